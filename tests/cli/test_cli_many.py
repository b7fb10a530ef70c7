"""Many collections on a screen, at a gate and in a pipe; and bars that tell the truth."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from divscore.cli import main
from divscore.cli.console import _pace
from divscore.text import brief, named

USERS, EACH, D = 60, 30, 12
TOLD = ("beyond", "not certainly within")
AUDIT = ["audit", "posts.parquet", "--control", "labelled.parquet", "--by", "user", "--workers", "1"]


@dataclass(frozen=True)
class Whole:
    """What is written where nobody watches: the table, and the collections of the JSON."""

    folder: Path
    table: list[str]
    entries: list[dict[str, Any]]

    def ordered(self) -> list[str]:
        return by_disparity(self.entries)


def by_disparity(entries: list[dict[str, Any]]) -> list[str]:
    """Names of what can be told, the largest disparity first."""
    told = [each for each in entries if each["trust"] != "poor"]
    return [named(e["name"]) for e in sorted(told, key=lambda each: (-each["disparity"], each["name"]))]


def write_table(path: str | Path, rows: Any, **columns: Any) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float32).ravel()), D)
    parquet.write_table(pa.table({**columns, "embedding": lists}), path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Users from hardly any 'a' to hardly any 'b', in mixed order; the first has no name, the last hardly any items."""
    folder = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(5)
    labels = np.repeat(["a", "b"], 60)
    write_table(folder / "labelled.parquet", vectors(rng, labels == "a"), letter=labels.tolist())
    user = np.repeat(rng.permutation(USERS), EACH)
    user = user[(user != USERS - 1) | (np.cumsum(user == USERS - 1) <= 5)]
    names = [None if each == 0 else f"user{each:02d}" for each in user]
    write_table(folder / "posts.parquet", vectors(rng, rng.random(len(user)) < user / USERS), user=names)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table = run(*AUDIT, "--json", "r.json", "--report", "r.html", "--report", "r.md").stdout
    return Whole(folder, table.splitlines(), json.loads((folder / "r.json").read_text())["collections"])


@pytest.fixture
def posts(whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files of an audit, which may be changed."""
    for name in ("labelled.parquet", "posts.parquet"):
        (tmp_path / name).write_bytes((whole.folder / name).read_bytes())
    monkeypatch.chdir(tmp_path)


def vectors(rng: np.random.Generator, first: Any) -> Any:
    return rng.normal(size=(len(first), D)) + np.where(first, 1.2, -1.2)[:, None]


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    return done


def on_a_terminal(command: list[str], stream: str, columns: int = 150) -> str:
    """What a process writes to a stream that is a terminal."""
    screen, inside = pty.openpty()
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    streams: dict[str, Any] = {stream: inside, other: subprocess.DEVNULL}
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([sys.executable, *command], stdin=inside, env=environment, **streams) as process:
        os.close(inside)
        read = bytearray()
        while block := _read(screen):
            read += block
    os.close(screen)
    assert process.returncode == 0, bytes(read)
    return read.decode().replace("\r\n", "\n")


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 1 << 16)
    except OSError:  # the other side is closed
        return b""


# The table


def test_a_pipe_gets_every_collection(whole: Whole) -> None:
    assert len(whole.table) == 1 + USERS
    assert whole.table[0].startswith("collection")
    shown = [re.split(r" {2,}", line)[0] for line in whole.table[1:]]
    assert shown == [named(each["name"]) for each in whole.entries]


def test_a_terminal_gets_the_ends_of_a_long_table(whole: Whole, posts: None) -> None:
    lines = on_a_terminal(["-m", "divscore", *AUDIT], "stdout").splitlines()
    counted = r"Of 60 collections, \d+ have more a than b, \d+ have more b than a, .* inconclusive\."
    assert re.fullmatch(counted, lines[0])
    assert lines[1] == ""
    assert lines[2].split() == whole.table[0].split()
    shown = [re.split(r" {2,}", line)[0] for line in lines[3:28]]
    assert shown == [*whole.ordered()[:12], "…", *whole.ordered()[-12:]]
    assert "(no value)" in shown
    rows = {" ".join(line.split()) for line in whole.table}
    assert {" ".join(line.split()) for line in lines[3:28]} - rows == {"…"}
    assert lines[28:30] == [
        "",
        "36 of 60 collections are not in this table. To get all of them, add --json FILE or --report FILE.html, or "
        "redirect the output.",
    ]
    trust = [each["trust"] for each in whole.entries]
    counts = [f"{trust.count(word)} {word}" for word in ("good", "caution", "poor") if word in trust]
    assert lines[30:] == [f"Trust: {', '.join(counts)}."]


def test_a_terminal_gets_the_whole_of_a_short_table(posts: None) -> None:
    rows = parquet.read_table("posts.parquet")
    few = {f"user{at:02d}" for at in range(1, 51)}
    parquet.write_table(
        rows.filter(pa.array([name in few for name in rows["user"].to_pylist()])), "posts.parquet"
    )
    shown = on_a_terminal(["-m", "divscore", *AUDIT], "stdout")
    assert shown == run(*AUDIT).stdout
    assert len(shown.splitlines()) == 51


def test_where_little_can_be_told_the_rest_fills_the_table(posts: None) -> None:
    noise = np.random.default_rng(1).normal(size=(120, D))
    write_table("labelled.parquet", noise, letter=["a", "b"] * 60)
    lines = on_a_terminal(["-m", "divscore", *AUDIT], "stdout").splitlines()
    assert lines[0] == "Cannot tell how letter is distributed in any of 60 collections."
    assert len(lines[3:27]) == sum(line.endswith("poor") for line in lines)
    assert lines[-1] == "Trust: 60 poor."


# The gate


@pytest.mark.parametrize(("limit", "many"), [(0.3, ["beyond"]), (0.85, ["not certainly within"]), (0.75, [])])
def test_a_gate_names_a_few_and_counts_many(whole: Whole, posts: None, limit: float, many: list[str]) -> None:
    verdicts = [(named(each["name"]), judged(each, limit)) for each in whole.entries]
    names = {told: [name for name, each in verdicts if each == told] for told in TOLD}
    assert [told for told in TOLD if len(names[told]) > 12] == many
    expected = [
        f"{name}: {told} the limit of ±{limit:g}" for name, told in verdicts if told and told not in many
    ]
    for told in many:
        first = ", ".join(names[told][:12])
        expected.append(f"{first} and {len(names[told]) - 12} more: {told} the limit of ±{limit:g}")
    if many:
        beyond, unclear = (len(names[told]) for told in TOLD)
        expected.append(f"{beyond} of 60 collections are beyond ±{limit:g}; {unclear} are inconclusive")
    done = CliRunner().invoke(main, [*AUDIT, "--max-disparity", str(limit)])
    assert done.exit_code == (1 if names["beyond"] else 3)
    assert done.stderr.splitlines()[-len(expected) :] == expected
    assert "the limit" not in "".join(done.stderr.splitlines()[: -len(expected)])


def judged(entry: dict[str, Any], limit: float) -> str:
    low, high = entry["interval"]
    if entry["trust"] == "poor" or (low <= limit < high) or (low < -limit <= high):
        return "not certainly within"
    return "beyond" if max(abs(low), abs(high)) > limit else ""


# What changed


def redrawn(shares: dict[int, float], renamed: dict[str, str] | None = None, shaken: int = 0) -> None:
    """Audit the users once more, some with other posts, slightly other ones or another name, into s.json."""
    rng = np.random.default_rng(11)
    table = parquet.read_table("posts.parquet")
    names = [name or "" for name in table["user"].to_pylist()]
    rows = np.array(table["embedding"].to_pylist())
    for user, share in shares.items():
        mine = np.array([name == f"user{user:02d}" for name in names])
        rows[mine] = vectors(rng, rng.random(mine.sum()) < share)
    moved = np.array([name in {f"user{user:02d}" for user in range(20, 20 + shaken)} for name in names])
    rows[moved] += rng.normal(scale=0.2, size=(moved.sum(), D))
    write_table("posts.parquet", rows, user=[(renamed or {}).get(name, name) or None for name in names])
    run(*AUDIT, "--json", "s.json")


@pytest.fixture
def before(whole: Whole, posts: None) -> str:
    return str(whole.folder / "r.json")


def compared(before: str, *options: str, code: int = 0) -> Any:
    return json.loads(run("diff", before, "s.json", *options, "--json", "-", code=code).stdout)


def changes(before: str, *options: str, code: int = 0) -> Any:
    return compared(before, *options, code=code)["collections"]


def is_sure(entry: dict[str, Any]) -> bool:
    return bool(entry["verdict"] not in ("cannot tell", "no clear change"))


def first_column(lines: list[str]) -> list[str]:
    return [re.split(r" {2,}", line)[0] for line in lines]


def test_a_terminal_gets_the_largest_changes_at_both_ends(before: str) -> None:
    lone = {f"user{at}": f"newcomer{at}" for at in range(53, 59)}
    redrawn({at: (at + 30) % USERS / USERS for at in range(1, 53)}, lone)
    found = compared(before)
    assert (set(found["new"]), set(found["vanished"])) == (set(lone.values()), set(lone))
    sure = sorted(filter(is_sure, found["collections"]), key=lambda each: -each["change"])
    assert len(sure) > 24
    assert sum(each["change"] > 0 for each in sure) > 12
    assert sum(each["change"] < 0 for each in sure) > 12
    piped = run("diff", before, "s.json").stdout.splitlines()
    assert len(piped) == 3 + USERS + len(lone)
    lines = on_a_terminal(["-m", "divscore", "diff", before, "s.json"], "stdout").splitlines()
    assert lines[0] == piped[0]
    assert re.fullmatch(
        r"Of 54 collections in both audits: .* 6 new and 6 vanished, not compared\.", lines[0]
    )
    names = [each["name"] for each in sure]
    ends = [*names[:12], "…", *names[-12:]]
    assert first_column(lines[3:36]) == [*ends, *found["new"][:4], *found["vanished"][:4]]
    rows = {" ".join(line.split()) for line in piped}
    assert {" ".join(line.split()) for line in lines[:36]} - rows == {"…"}
    assert lines[36:] == [
        "",
        "34 of 66 collections are not in this table. To get all of them, add --json FILE, or redirect the output.",
    ]


def test_where_little_has_changed_what_may_be_chance_fills_the_table(before: str) -> None:
    redrawn({5: 0.95, 6: 0.95, 50: 0.1}, shaken=6)
    found = changes(before)
    rises = sorted(
        (each for each in found if is_sure(each) and each["change"] > 0), key=lambda c: -c["change"]
    )
    falls = sorted(
        (each for each in found if is_sure(each) and each["change"] < 0), key=lambda c: -c["change"]
    )
    assert {"user05", "user06"} <= {each["name"] for each in rises}
    assert "user50" in {each["name"] for each in falls}
    chance = sorted(
        (each for each in found if not is_sure(each) and each["change"]), key=lambda c: -abs(c["change"])
    )
    assert chance
    lines = on_a_terminal(["-m", "divscore", "diff", before, "s.json"], "stdout").splitlines()
    changed = [each["name"] for each in (*rises, *falls, *chance)]
    shown = first_column(lines[3:27])
    assert shown[: len(changed)] == changed
    assert all("the same items" in line for line in lines[3 + len(changed) : 27])
    assert "…" not in shown
    assert lines[28].startswith("36 of 60 collections are not in this table")


def test_changes_in_one_direction_fill_both_ends(before: str) -> None:
    redrawn(dict.fromkeys(range(1, 41), 0.99))
    rises = sorted(filter(is_sure, changes(before)), key=lambda each: -each["change"])
    assert len(rises) > 24
    assert rises[-1]["change"] > 0
    lines = on_a_terminal(["-m", "divscore", "diff", before, "s.json"], "stdout").splitlines()
    assert first_column(lines[3:28]) == [*(each["name"] for each in rises[:24]), "…"]


def test_a_gate_on_changes_names_a_few_and_counts_many(before: str) -> None:
    redrawn(dict.fromkeys(range(20, 46), 0.88))
    limit = "0.2"
    gates = [(named(each["name"]), each["gate"]) for each in changes(before, "--max-change", limit, code=1)]
    failed, unclear = ([name for name, gate in gates if gate == each] for each in ("fail", "inconclusive"))
    assert len(failed) > 12
    assert 0 < len(unclear) <= 12
    told = run("diff", before, "s.json", "--max-change", limit, code=1).stderr.splitlines()
    assert told == [
        *(f"{name}: possibly more uneven by over 0.2" for name in unclear),
        f"{', '.join(failed[:12])} and {len(failed) - 12} more: more uneven by over 0.2",
        f"{len(failed)} of 60 collections are more uneven by over 0.2; {len(unclear)} are inconclusive",
    ]


# Names that are missing


def test_a_missing_value_has_a_name_for_people_only(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole.folder)
    assert sum(line.startswith("(no value)  ") for line in whole.table) == 1
    assert "<bdi>(no value)</bdi>" in Path("r.html").read_text(encoding="utf-8")
    assert "| (no value) | 30 |" in Path("r.md").read_text(encoding="utf-8")
    found = [each["name"] for each in whole.entries]
    assert found.count("") == 1
    assert "(no value)" not in found
    compared = run("diff", "r.json", "r.json").stdout
    assert sum(line.startswith("(no value)  ") for line in compared.splitlines()) == 1


def test_only_what_has_no_name_is_given_one() -> None:
    assert (named(""), named(" "), named("\n"), brief("")) == ("(no value)", " ", "\\n", "(no value)")


def test_many_collections_of_a_sketch_are_counted_legibly(posts: None) -> None:
    rng = np.random.default_rng(2)
    write_table(
        "posts.parquet", vectors(rng, np.arange(2400) % 2 == 0), user=[f"u{at // 2}" for at in range(2400)]
    )
    told = run(
        "sketch", "posts.parquet", "--control", "labelled.parquet", "--by", "user", "-o", "u.sketch"
    ).stderr
    assert "wrote u.sketch: 2,400 items in 1,200 collections, " in told
    Path("v.sketch").write_bytes(Path("u.sketch").read_bytes())
    joined = run("merge", "u.sketch", "v.sketch", "-o", "w.sketch").stderr
    first = ", ".join(f"u{at} with 4 items" for at in range(12))
    assert joined == f"wrote w.sketch: 4,800 items in 1,200 collections: {first} and 1,188 more\n"


def test_a_merge_of_few_collections_names_them_all(posts: None) -> None:
    rng = np.random.default_rng(2)
    names = [None if at == 11 else f"u{at:02d}" for at in range(12) for _ in range(4)]
    write_table("posts.parquet", vectors(rng, np.arange(48) % 2 == 0), user=names)
    asked = ["--control", "labelled.parquet", "--by", "user"]
    for name in ("a", "b"):
        run("sketch", "posts.parquet", *asked, "-o", f"{name}.sketch")
    told = ", ".join(f"{named(name or '')} with 8 items" for name in dict.fromkeys(names))
    assert run("merge", "a.sketch", "b.sketch", "-o", "c.sketch").stderr == f"wrote c.sketch: {told}\n"


def test_files_that_are_named_twice_are_said_in_one_line(posts: None) -> None:
    run("sketch", "posts.parquet", "--control", "labelled.parquet", "-o", "a.sketch")
    paths = [f"days/{at:02d}.sketch" for at in range(20)]
    Path("days").mkdir()
    for path in paths:
        Path(path).write_bytes(Path("a.sketch").read_bytes())
    told = run("merge", "days", *paths, *paths, "-o", "all.sketch").stderr.splitlines()
    assert told[0] == f"{', '.join(paths[:12])} and 8 more were named twice; each is counted once"
    assert len(told) == 2


def test_a_quoted_pattern_stands_for_sketches(posts: None) -> None:
    Path("days").mkdir()
    for name in ("a", "b", "rest"):
        run("sketch", "posts.parquet", "--control", "labelled.parquet", "-o", f"days/{name}.sketch")
    found = json.loads(run("audit", "days/?.sketch", "--control", "labelled.parquet", "--json", "-").stdout)
    assert [each["name"] for each in found["collections"]] == ["a", "b"]
    assert "wrote all.sketch" in run("merge", "days/?.sketch", "-o", "all.sketch").stderr
    assert "no such file" in run("merge", "days/x*.sketch", "-o", "all.sketch", code=2).stderr


# Bars


def test_a_bar_tells_the_speed_since_the_start() -> None:
    assert _pace(8_000_000, None, 0.05) == "8,000,000 –/s 0:00:00 gone"
    assert _pace(8_000_000, 9_000_000, 0.99) == "8,000,000/9,000,000 –/s 0:00:00 gone"
    assert _pace(0, 100, 5.0) == "0/100 –/s 0:00:05 gone"
    assert _pace(500, None, 2.0) == "500 250/s 0:00:02 gone"
    assert _pace(500, 1000, 2.0) == "500/1,000 250/s 0:00:02 gone, 0:00:02 left"
    assert _pace(3, 3600, 2.0) == "3/3,600 1.5/s 0:00:02 gone, 0:39:58 left"
    assert _pace(1001, 1000, 2.0).endswith(", 0:00:00 left")  # a total may be a guess


@pytest.mark.parametrize("total", [None, 4000])
def test_a_bar_on_a_terminal(total: int | None) -> None:
    code = (
        "import time\n"
        "from divscore.cli.console import progress_bar\n"
        f"with progress_bar('rows', {total}) as advance:\n"
        "    for pause in (0.3, 1.2):\n"
        "        advance(1000)\n"
        "        time.sleep(pause)\n"
    )
    shown = on_a_terminal(["-c", code], "stderr")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    frames = [line for line in re.split(r"[\r\n]+", plain) if "gone" in line]
    assert all("–/s" in line for line in frames if "0:00:00 gone" in line)
    late = [line for line in frames if "0:00:01 gone" in line]
    assert late
    for line in late:
        assert 500 <= float(re.search(r"([\d,]+)/s", line)[1].replace(",", "")) <= 2000  # type: ignore[index]
        assert bool(re.search(r"gone, 0:00:0\d left", line)) == (total is not None)
    assert total is not None or "left" not in plain


# The bar

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


@pytest.mark.parametrize("name", ["collections", "a name that is longer than there is room for " * 3])
def test_a_message_does_not_run_into_the_bar_which_has_one_line(name: str) -> None:
    written = on_a_terminal(["-c", SLOWLY, name], "stderr", columns=80)
    before, after = written.split("left out: a file with a name")
    assert before.endswith("\x1b[2K")  # the line is cleared
    assert after.startswith("\n")
    # Only at the end does the cursor go up, to where the bar was: it never had a second line.
    assert written.count("\x1b[1A") == 1
    assert "3,000/3,000" in written
    assert "0:00:01 gone, 0:00:00 left" in written
