"""Progress, messages and pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import on_terminal

from divscore.cli.console import _left, _pace, _Speed


def pace(total: int | None, now: float, *steps: tuple[float, int]) -> str:
    """What a bar says that began at 100 seconds, with steps so many seconds later."""
    speed = _Speed(100.0)
    for at, step in steps:
        speed.advance(step, 100.0 + at)
    return _pace(speed, total, 100.0 + now)


def test_a_bar_tells_the_speed() -> None:
    assert pace(None, 0.05, (0.05, 8_000_000)) == "8,000,000 –/s 0:00:00 elapsed"
    assert pace(9_000_000, 0.99, (0.05, 8_000_000)) == "8,000,000/9,000,000 –/s 0:00:00 elapsed"
    assert pace(100, 5.0) == "0/100 –/s 0:00:05 elapsed"
    # After the first step it is that since the start.
    assert pace(None, 2.0, (1.5, 500)) == "500 250/s 0:00:02 elapsed"
    assert pace(1000, 2.0, (1.5, 500)) == "500/1,000 250/s 0:00:02 elapsed, 0:00:02 left"
    assert pace(3600, 2.0, (1.0, 3)) == "3/3,600 1.5/s 0:00:02 elapsed, 0:39:58 left"
    assert pace(1000, 2.0, (1.0, 1001)).endswith(", 0:00:00 left")  # a total may be a guess


def test_what_was_done_before_does_not_hurry_the_rest() -> None:
    steps = [(0.5, 4000), (0.52, 5000), *((0.6 + n / 10, 1) for n in range(1, 10))]
    assert pace(10_000, 1.5, *steps) == "9,009/10,000 9.2/s 0:00:01 elapsed, 0:01:47 left"


def test_only_the_last_seconds_count_for_the_speed() -> None:
    fast_then_slow = [*((n / 10, 100) for n in range(1, 301)), *((30 + n, 10) for n in range(1, 16))]
    assert pace(None, 45.0, *fast_then_slow) == "30,150 10/s 0:00:45 elapsed"
    assert pace(None, 30.0, *fast_then_slow[:300]) == "30,000 1,000/s 0:00:30 elapsed"
    # A long wait shows.
    assert pace(None, 60.0, *fast_then_slow).startswith("30,150 3.5/s")
    # What the cache knows may take more than a moment.
    known = [(n / 100, 46) for n in range(1, 131)]
    fresh = [(1.3 + n / 20, 8) for n in range(1, 71)]
    assert pace(7020, 4.8, *known, *fresh) == "6,540/7,020 160/s 0:00:04 elapsed, 0:00:03 left"


def test_a_line_of_a_log_tells_the_time_that_is_left() -> None:
    left = {-3.0: "less than a minute", 29.0: "less than a minute", 31.0: "1 min", 3000.0: "50 min"}
    assert {seconds: _left(seconds) for seconds in left} == left
    assert _left(7500.0) == "2 h 5 min"


@pytest.mark.slow
@pytest.mark.parametrize("total", [None, 4000])
def test_a_bar_on_terminal(total: int | None) -> None:
    code = (
        "import time\n"
        "from divscore.cli.console import progress_bar\n"
        f"with progress_bar('rows', {total}) as advance:\n"
        "    for pause in (0.3, 1.2):\n"
        "        advance(1000)\n"
        "        time.sleep(pause)\n"
    )
    shown = on_terminal(["-c", code], "stderr")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    frames = [line for line in re.split(r"[\r\n]+", plain) if "elapsed" in line]
    assert all("–/s" in line for line in frames if "0:00:00 elapsed" in line)
    late = [line for line in frames if "0:00:01 elapsed" in line]
    assert late
    for line in late:
        assert 500 <= float(re.search(r"([\d,]+)/s", line)[1].replace(",", "")) <= 2000  # type: ignore[index]
        assert bool(re.search(r"elapsed, 0:00:0\d left", line)) == (total is not None)
    assert total is not None or "left" not in plain


SLOWLY = """
import sys, time
from divscore.cli.console import progress_bar, warn
with progress_bar(sys.argv[1], 3000) as advance:
    for at in range(30):
        time.sleep(0.05)
        advance(100)
        if at == 15:
            warn("left out: a file with a name")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["collections", "a name that is longer than there is room for " * 3])
def test_a_message_does_not_run_into_the_bar_which_has_one_line(name: str) -> None:
    written = on_terminal(["-c", SLOWLY, name], "stderr", columns=80)
    before, after = written.split("left out: a file with a name")
    assert before.endswith("\x1b[2K")  # the line is cleared
    assert after.startswith("\n")
    # Only at the end does the cursor go up, to where the bar was: it never had a second line.
    assert written.count("\x1b[1A") == 1
    assert "3,000/3,000" in written
    assert re.search("0:00:0[1-9] elapsed, 0:00:00 left", written)  # thirty short pauses are at least 1.5 s


@pytest.mark.slow
def test_progress_in_a_log_is_a_line_now_and_then(people: Path, tmp_path: Path) -> None:
    code = (
        "import divscore.cli.console as c; c.LINE_SECONDS = 0.0\n"
        "from divscore.cli import main\n"
        f"main(['embed', {str(people / 'list.txt')!r}, '-o', {str(tmp_path / 'x.arrow')!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=True,
    )
    assert "list: 400, " in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_broken_pipe_does_not_open_the_gate(people: Path) -> None:
    command = (
        f"{sys.executable} -m divscore audit {people / 'list.txt'} --control {people / 'pool.csv'} --attribute sex "
        "--max-disparity 0.01 2>/dev/null"
    )
    plain = subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, check=False).returncode
    piped = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert plain in {1, 3}
    assert int(piped.stdout.split()[-1]) == plain
