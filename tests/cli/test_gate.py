"""`divscore diff` on real files, and the workflow of docs/gate.md: its very shell lines, in bash, as a runner does."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from divscore.cli import main
from divscore.paper.names import first_names

PAGE = Path(__file__).parents[2] / "docs" / "gate.md"
LABELLED = 200  # of each sex

# Women and men of a list, and what an audit of it says.
EVEN = 500, 450
GROWN = 540, 480
LITTLE_MORE = 800, 450
MORE = 1500, 450
NEAR_THE_WALL = 2400, 380
BEYOND = 3500, 60


@cache
def names() -> tuple[list[str], list[str]]:
    rows = list(zip(*first_names(), strict=True))
    random.Random(4).shuffle(rows)
    return [n for n, sex in rows if sex == "female"], [n for n, sex in rows if sex == "male"]


def write(path: Path, *rows: tuple[str, ...]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_list(path: Path, counts: tuple[int, int]) -> None:
    women, men = names()
    chosen = women[LABELLED : LABELLED + counts[0]] + men[LABELLED : LABELLED + counts[1]]
    write(path, ("name",), *((name,) for name in chosen))


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labelled names, lists, and the JSON of their audits."""
    folder = tmp_path_factory.mktemp("names")
    women, men = names()
    labelled = [(n, "female") for n in women[:LABELLED]] + [(n, "male") for n in men[:LABELLED]]
    write(folder / "labelled.csv", ("name", "sex"), *labelled)
    lists = {"even": EVEN, "grown": GROWN, "little": LITTLE_MORE, "more": MORE, "beyond": BEYOND}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVSCORE_CACHE", str(folder / "cache"))
        for name, counts in lists.items():
            write_list(folder / f"{name}.csv", counts)
            run_audit(folder, f"{name}.csv", "--json", str(folder / f"{name}.json"))
    return folder


def run_audit(folder: Path, *args: str) -> None:
    paths = [str(folder / a) if a.endswith(".csv") else a for a in args]
    control = ["--control", str(folder / "labelled.csv"), "--attribute", "sex"]
    done = CliRunner().invoke(main, ["audit", *paths, *control])
    assert done.exit_code == 0, done.output


def diff(folder: Path, before: str, after: str, *options: str, code: int = 0, **more: Any) -> Result:
    paths = [str(folder / f"{name}.json") if name != "-" else name for name in (before, after)]
    done = CliRunner().invoke(main, ["diff", *paths, *options], **more)
    assert done.exit_code == code, done.output
    return done


def test_headline_then_table(audited: Path) -> None:
    lines = diff(audited, "even", "more").stdout.splitlines()
    assert re.fullmatch(
        r"The share of female rose by [\d.]+ to [\d.]+ points, from about \d+% to \d+%: less even\.", lines[0]
    )
    assert lines[2].split() == ["collection", "before", "after", "change", "95%", "interval", "verdict"]
    assert lines[3].endswith("less even")


@pytest.mark.parametrize(
    ("before", "after", "limit", "code"),
    [
        ("even", "grown", "0.2", 0),
        ("even", "more", "0.2", 1),
        ("even", "little", "0.2", 3),
        ("more", "even", "0", 0),  # towards balance
        ("even", "even", "0", 0),
    ],
)
def test_exit_codes(audited: Path, before: str, after: str, limit: str, code: int) -> None:
    done = diff(audited, before, after, "--max-change", limit, code=code)
    assert ("over 0.2" in done.stderr) == (code > 0)
    assert diff(audited, before, after).exit_code == 0  # no gate, no verdict


def several(audited: Path, folder: Path, name: str, **lists: str) -> None:
    """An audit of several collections, put together from those of one."""
    found = [json.loads((audited / f"{file}.json").read_text(encoding="utf-8")) for file in lists.values()]
    both = zip(lists, found, strict=True)
    entries = [{**each["collections"][0], "name": called} for called, each in both]
    (folder / f"{name}.json").write_text(json.dumps({**found[0], "collections": entries}))


def test_what_vanished_does_not_pass_in_silence(audited: Path, tmp_path: Path) -> None:
    several(audited, tmp_path, "monday", north="even", south="even", west="even")
    several(audited, tmp_path, "friday", south="even", east="even")
    gate = "--max-change", "0.1"
    done = diff(tmp_path, "monday", "friday", *gate, code=3)
    assert done.stdout.startswith("In 'south' nothing has changed")
    assert done.stderr == (
        "vanished, so not compared: north, west; if that is intended, add --allow-vanished\n"
        "new, so not compared: east\n"
    )
    done = diff(tmp_path, "monday", "friday", *gate, "--allow-vanished")
    assert done.stderr == "vanished, so not compared: north, west\nnew, so not compared: east\n"
    assert diff(tmp_path, "monday", "friday").stderr == ""
    assert "needs --max-change" in diff(tmp_path, "monday", "friday", "--allow-vanished", code=2).stderr
    several(audited, tmp_path, "sunday", south="more")
    assert "south: more uneven" in diff(tmp_path, "monday", "sunday", *gate, code=1).stderr


def test_new_collections_pass(audited: Path, tmp_path: Path) -> None:
    several(audited, tmp_path, "monday", north="even", south="more")
    several(audited, tmp_path, "friday", north="even", south="more", east="beyond")
    done = diff(tmp_path, "monday", "friday", "--max-change", "0")
    assert done.stderr == "new, so not compared: east\n"
    several(audited, tmp_path, "again", south="more", north="even")
    same = diff(tmp_path, "monday", "again", "--max-change", "0").stdout
    assert same.startswith("Nothing has changed: all 2 collections have the same items.\n")


def test_a_name_of_any_length_fits_a_line(audited: Path, tmp_path: Path) -> None:
    name = "n" * 5000
    several(audited, tmp_path, "monday", **{name: "even", f"{name}o": "even"})
    several(audited, tmp_path, "friday", **{name: "more", f"{name}p": "even"})
    done = diff(tmp_path, "monday", "friday", "--max-change", "0.2", code=1)
    assert max(map(len, (done.stdout + done.stderr).splitlines())) < 200


def test_json(audited: Path, tmp_path: Path) -> None:
    out = tmp_path / "changes.json"
    shown = diff(audited, "even", "more", "--json", str(out), "--max-change", "0.2", code=1).stdout
    printed = diff(audited, "even", "more", "--json", "-", "--max-change", "0.2", code=1).stdout
    assert "less even" in shown
    found = json.loads(printed)
    assert json.loads(out.read_text(encoding="utf-8")) == found
    assert [path.name for path in tmp_path.iterdir()] == ["changes.json"]
    entry = found["collections"][0]
    assert (found["schema"], found["groups"]) == ("divscore.diff/1", ["female", "male"])
    assert (entry["gate"], entry["verdict"], entry["towards"]) == ("fail", "less even", "female")
    assert entry["interval_method"] == "paired refits"
    truth = (1500 - 450) / 1950 - 50 / 950
    assert entry["interval"][0] <= truth <= entry["interval"][1]
    assert entry["change"] == pytest.approx(entry["after"]["disparity"] - entry["before"]["disparity"])


def test_standard_input(audited: Path) -> None:
    after = (audited / "more.json").read_text(encoding="utf-8")
    assert diff(audited, "even", "-", input=after).stdout == diff(audited, "even", "more").stdout
    assert "only one" in diff(audited, "-", "-", input=after, code=2).stderr


@pytest.mark.parametrize("text", ["", "{", '{"schema": "divscore.audit/9"}', "sex,name\nfemale,Mary\n"])
def test_wrong_files_end_with_2_and_one_line(audited: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "wrong.json").write_text(text)
    done = CliRunner().invoke(main, ["diff", str(audited / "even.json"), str(tmp_path / "wrong.json")])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "wrong.json" in done.stderr


def test_the_page_cites_what_was_measured() -> None:
    stored = PAGE.parent.parent / "benchmarks" / "results" / "changes.json"
    (table,) = json.loads(stored.read_text(encoding="utf-8"))["tables"]
    rows = [row for row in table["rows"] if "×" not in row[0]]
    coverage = [row[table["columns"].index("coverage")] for row in rows]
    widths = [row[7] / row[11] for row in rows]  # the change's own, and that of both added
    assert table["columns"][7] == table["columns"][11] == "width"
    cited = re.search(
        r"in (\d+) to (\d+) % of cases, and were (0\.\d\d) to (0\.\d\d) times as wide",
        PAGE.read_text(encoding="utf-8"),
    )
    assert cited
    measured = [f"{100 * min(coverage):.0f}", f"{100 * max(coverage):.0f}"]
    assert [*cited.groups()] == [*measured, f"{min(widths):.2f}", f"{max(widths):.2f}"]


# The workflow


def steps() -> dict[str, str]:
    """The page's shell lines by the name of their step, all but the installation."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    job = yaml.safe_load(text)["jobs"]["gate"]
    found = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert found.pop("Install") == 'pip install "divscore==$DIVSCORE"'
    return found


class Repository:
    """A folder as a runner has it after checkout; its pushes run the workflow's steps."""

    def __init__(self, folder: Path, labelled: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        shutil.copy(labelled, folder / "data" / "labelled.csv")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "DIVSCORE_CACHE": str(labelled.parent / "cache")}

    def push(self, counts: tuple[int, int]) -> dict[str, subprocess.CompletedProcess[str]]:
        """Steps that ran, the last of them the first that failed."""
        write_list(self.folder / "data" / "names.csv", counts)
        for made in ("audit.json", "audit.txt", "changes.json", "changes.txt", "report.html"):
            (self.folder / made).unlink(missing_ok=True)
        ran = {}
        for name, lines in steps().items():
            ran[name] = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-c", lines],
                cwd=self.folder,
                env=self.env,
                capture_output=True,
                text=True,
                check=False,
            )
            if ran[name].returncode:
                break
        return ran

    @property
    def baseline(self) -> int:
        """How many items the baseline has."""
        text = (self.folder / "baseline.json").read_text(encoding="utf-8")
        return int(json.loads(text)["collections"][0]["count"])


AUDIT, COMPARE = "Audit", "Compare with the last audit that passed"


@pytest.fixture
def repository(audited: Path, tmp_path: Path) -> Repository:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    return Repository(tmp_path, audited / "labelled.csv")


def codes(ran: dict[str, subprocess.CompletedProcess[str]]) -> dict[str, int]:
    return {name: done.returncode for name, done in ran.items()}


def test_a_list_that_grows_evenly_passes_and_becomes_the_baseline(repository: Repository) -> None:
    first = repository.push(EVEN)
    assert codes(first) == {AUDIT: 0, COMPARE: 0}
    assert "this is the first" in first[COMPARE].stdout
    assert repository.baseline == sum(EVEN)
    second = repository.push(GROWN)
    assert codes(second) == {AUDIT: 0, COMPARE: 0}
    assert "::warning" not in second[AUDIT].stdout + second[COMPARE].stdout
    assert "| No clear change" in second[COMPARE].stdout
    assert repository.baseline == sum(GROWN)
    assert (repository.folder / "report.html").stat().st_size > 1000


def test_a_sure_change_stops_the_push(repository: Repository) -> None:
    repository.push(EVEN)
    ran = repository.push(MORE)
    assert codes(ran) == {AUDIT: 0, COMPARE: 1}
    assert "| names: more uneven by over 0.2" in ran[COMPARE].stdout
    assert repository.baseline == sum(EVEN)


def test_a_change_that_cannot_be_told_warns_and_keeps_the_baseline(repository: Repository) -> None:
    repository.push(EVEN)
    ran = repository.push(LITTLE_MORE)
    assert codes(ran) == {AUDIT: 0, COMPARE: 0}
    assert "\n::warning title=divscore::It is unclear" in ran[COMPARE].stdout
    assert repository.baseline == sum(EVEN)


def test_a_list_beyond_the_wall_stops_before_the_comparison(repository: Repository) -> None:
    ran = repository.push(BEYOND)
    assert codes(ran) == {AUDIT: 1}
    assert "beyond the limit of ±0.7" in ran[AUDIT].stdout
    assert not (repository.folder / "baseline.json").exists()
    assert (repository.folder / "report.html").exists()  # what stopped the push can be read


def test_near_the_wall_warns(repository: Repository) -> None:
    ran = repository.push(NEAR_THE_WALL)
    assert codes(ran)[AUDIT] == 0
    assert "\n::warning title=divscore::It is unclear" in ran[AUDIT].stdout


def test_errors_stop_the_push(repository: Repository) -> None:
    repository.push(EVEN)
    (repository.folder / "baseline.json").write_text('{"schema": "divs')
    assert codes(repository.push(EVEN)) == {AUDIT: 0, COMPARE: 2}
    (repository.folder / "data" / "labelled.csv").write_text("name\nMary\n")
    assert codes(repository.push(EVEN)) == {AUDIT: 2}


def test_no_line_of_a_run_begins_with_a_command_of_its_own() -> None:
    for lines in steps().values():
        joined = lines.replace("\\\n", " ")
        for command in re.findall(r"^\s*divscore .*", joined, re.M):
            assert "> " in command  # into a file
            assert "2>&1 || code=$?" in command
        assert "${{" not in lines
