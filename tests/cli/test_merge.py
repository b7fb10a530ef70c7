"""divscore merge: sketches by the day become a week, and lose a day again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from vectorfiles import fingerprint, matrix, write

from divscore import ControlSet, Sketch
from divscore.cli import main
from divscore.jobs.sketching import sketch_source
from divscore.sketch.sketchfile import read_sketches
from divscore.sources import open_table


@pytest.fixture
def control(tmp_path: Path) -> ControlSet:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    groups = ["a"] * 20 + ["b"] * 20
    np.savez(tmp_path / "c.npz", embedding=vectors, group=np.array(groups))
    return ControlSet(vectors, groups, attribute="group")


def run(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == 0, done.stderr
    return done


def audited(*arguments: Any) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(run(*arguments, "--json", "-").stdout)["collections"]}


@pytest.fixture
def week(tmp_path: Path, control: ControlSet) -> Path:
    folder = tmp_path / "week"
    folder.mkdir()
    for at, day in enumerate(("monday", "tuesday", "wednesday")):
        write(tmp_path / f"{day}.npy", matrix(at))
        run(
            "sketch", tmp_path / f"{day}.npy", "--control", tmp_path / "c.npz", "-o", folder / f"{day}.sketch"
        )
    return folder


def test_a_folder_of_sketches_is_audited_day_by_day(week: Path, tmp_path: Path) -> None:
    told = audited("audit", week, "--control", tmp_path / "c.npz")
    assert {name: each["count"] for name, each in told.items()} == dict.fromkeys(
        ("monday", "tuesday", "wednesday"), 298
    )


def test_this_week_by_merge_and_without_monday_by_removal(
    week: Path, tmp_path: Path, control: ControlSet
) -> None:
    run("merge", week, "-o", tmp_path / "week.sketch")
    told = audited("audit", tmp_path / "week.sketch", "--control", tmp_path / "c.npz")
    assert told["week"]["count"] == 3 * 298
    run(
        "merge", tmp_path / "week.sketch", "--without", week / "monday.sketch", "-o", tmp_path / "rest.sketch"
    )
    run("merge", week, "--without", week / "monday.sketch", "-o", tmp_path / "again.sketch")
    run("merge", week / "tuesday.sketch", week / "wednesday.sketch", "-o", tmp_path / "two.sketch")
    rest, again, two = (only(tmp_path / f"{name}.sketch", control) for name in ("rest", "again", "two"))
    for other in (rest, again):
        assert other.count == two.count == 596
        assert other.skipped == two.skipped
        for mine, expected in zip(other.scores(), two.scores(), strict=True):
            np.testing.assert_array_equal(mine, expected)
        np.testing.assert_allclose(other.total, two.total, rtol=0, atol=1e-12)
    assert not list(tmp_path.glob("tmp*"))


def test_what_is_not_in_a_sketch_cannot_be_taken_out(week: Path, tmp_path: Path) -> None:
    command = [
        "merge",
        week / "monday.sketch",
        "--without",
        week / "tuesday.sketch",
        "-o",
        tmp_path / "x.sketch",
    ]
    done = CliRunner().invoke(main, [str(each) for each in command])
    assert done.exit_code == 2
    assert "some of its items were never added" in done.stderr
    assert not (tmp_path / "x.sketch").exists()


def test_a_folder_without_sketches(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["merge", str(tmp_path), "-o", str(tmp_path / "x.sketch")])
    assert done.exit_code == 2
    assert "a folder without sketches" in done.stderr


def only(path: Path, control: ControlSet) -> Sketch:
    return next(iter(read_sketches(path, control).values()))


def test_a_merged_week_is_the_pass_over_its_files(week: Path, tmp_path: Path, control: ControlSet) -> None:
    run("merge", week, "-o", tmp_path / "week.sketch")
    days = sketch_source(open_table(str(tmp_path / "*day.npy")), control)
    merged = only(tmp_path / "week.sketch", control)
    assert fingerprint(merged, control) == fingerprint(next(iter(days.sketches.values())), control)
