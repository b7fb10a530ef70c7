"""The workflow of docs/gate.md: its very shell lines, in bash, as a runner does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tables import (
    BEYOND,
    EVEN,
    GROWN,
    LITTLE_MORE,
    MORE,
    NEAR_THE_WALL,
    write_list,
)

PAGE = Path(__file__).parents[2] / "docs" / "gate.md"


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


def steps() -> dict[str, str]:
    """The page's shell lines by the name of their step, all but the installation."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    job = yaml.safe_load(text)["jobs"]["gate"]
    found = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert found.pop("Install") == 'pip install "wheels/divscore-$DIVSCORE-py3-none-any.whl"'
    return found


class Repository:
    """A folder as a runner has it after checkout; its pushes run the workflow's steps."""

    def __init__(self, folder: Path, labelled: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        shutil.copy(labelled, folder / "data" / "labelled.csv")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "DIVSCORE_CACHE": str(labelled.parent / "cache")}

    def push(self, counts: tuple[int, int]) -> Ran:
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


Ran = dict[str, subprocess.CompletedProcess[str]]


@pytest.fixture
def new_repository(audited: Path, tmp_path: Path) -> Repository:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    return Repository(tmp_path, audited / "labelled.csv")


@pytest.fixture(scope="module")
def first_push(audited: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Repository, Ran]:
    repository = Repository(tmp_path_factory.mktemp("first"), audited / "labelled.csv")
    return repository, repository.push(EVEN)


@pytest.fixture
def repository(new_repository: Repository, first_push: tuple[Repository, Ran]) -> Repository:
    """As it is after the first push."""
    shutil.copy(first_push[0].folder / "baseline.json", new_repository.folder)
    return new_repository


def codes(ran: Ran) -> dict[str, int]:
    return {name: done.returncode for name, done in ran.items()}


@pytest.mark.slow
def test_a_list_that_grows_evenly_passes_and_becomes_the_baseline(
    repository: Repository, first_push: tuple[Repository, Ran]
) -> None:
    first = first_push[1]
    assert codes(first) == {AUDIT: 0, COMPARE: 0}
    assert "this is the first" in first[COMPARE].stdout
    assert repository.baseline == sum(EVEN)
    second = repository.push(GROWN)
    assert codes(second) == {AUDIT: 0, COMPARE: 0}
    assert "::warning" not in second[AUDIT].stdout + second[COMPARE].stdout
    assert "| No clear change" in second[COMPARE].stdout
    assert repository.baseline == sum(GROWN)
    assert (repository.folder / "report.html").stat().st_size > 1000


@pytest.mark.slow
def test_a_sure_change_stops_the_push(repository: Repository) -> None:
    ran = repository.push(MORE)
    assert codes(ran) == {AUDIT: 0, COMPARE: 1}
    assert "| names: more uneven by over 0.2" in ran[COMPARE].stdout
    assert repository.baseline == sum(EVEN)


@pytest.mark.slow
def test_a_change_that_cannot_be_told_warns_and_keeps_the_baseline(repository: Repository) -> None:
    ran = repository.push(LITTLE_MORE)
    assert codes(ran) == {AUDIT: 0, COMPARE: 0}
    assert "\n::warning title=divscore::It is unclear" in ran[COMPARE].stdout
    assert repository.baseline == sum(EVEN)


@pytest.mark.slow
def test_a_list_beyond_the_wall_stops_before_the_comparison(new_repository: Repository) -> None:
    ran = new_repository.push(BEYOND)
    assert codes(ran) == {AUDIT: 1}
    assert "outside the limit of ±0.7" in ran[AUDIT].stdout
    assert not (new_repository.folder / "baseline.json").exists()
    assert (new_repository.folder / "report.html").exists()  # what stopped the push can be read


@pytest.mark.slow
def test_near_the_wall_warns(new_repository: Repository) -> None:
    ran = new_repository.push(NEAR_THE_WALL)
    assert codes(ran)[AUDIT] == 0
    assert "\n::warning title=divscore::It is unclear" in ran[AUDIT].stdout


@pytest.mark.slow
def test_errors_stop_the_push(repository: Repository) -> None:
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
