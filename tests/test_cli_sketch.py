"""`divscore sketch` and `divscore merge`: folders of sketches, and what was missing when one was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from divscore.cli import main


def run(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == 0, done.stderr
    return done


@pytest.fixture
def control(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    np.savez(tmp_path / "c.npz", embedding=vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    return tmp_path / "c.npz"


@pytest.fixture
def week(tmp_path: Path, control: Path) -> Path:
    folder = tmp_path / "week"
    folder.mkdir()
    for at, day in enumerate(("monday", "tuesday")):
        np.save(tmp_path / f"{day}.npy", np.random.default_rng(at).normal(size=(100, 8)))
        run("sketch", tmp_path / f"{day}.npy", "--control", control, "-o", folder / f"{day}.sketch")
    return folder


def test_a_merge_into_its_own_folder_does_not_count_twice(week: Path) -> None:
    first = run("merge", week, "-o", week / "all.sketch")
    assert "all with 200 items" in first.stderr
    again = run("merge", week, "-o", week / "all.sketch")
    assert "all with 200 items" in again.stderr
    assert "all.sketch lies in" in again.stderr
    assert "is not counted in" in again.stderr
    rest = run("merge", week, "--without", week / "monday.sketch", "-o", week / "all.sketch")
    assert "all with 100 items" in rest.stderr


def test_hidden_files_are_not_counted(week: Path, control: Path) -> None:
    whole = (week / "monday.sketch").read_bytes()
    (week / ".monday.sketch.99.part").write_bytes(whole[:500])
    (week / ".copy.sketch").write_bytes(whole)
    assert "with 200 items" in run("merge", week, "-o", week.parent / "x.sketch").stderr
    told = json.loads(run("audit", week, "--control", control, "--json", "-").stdout)
    assert [each["name"] for each in told["collections"]] == ["monday", "tuesday"]


def test_a_file_that_is_named_twice_is_taken_once(week: Path) -> None:
    done = run("merge", week, week / "monday.sketch", "-o", week.parent / "x.sketch")
    assert "x with 200 items" in done.stderr
    assert "monday.sketch was named twice" in done.stderr


def test_what_was_missing_is_said_wherever_the_sketch_goes(week: Path, control: Path, tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    for at in range(3):
        np.save(tmp_path / "days" / f"{at}.npy", np.random.default_rng(at).normal(size=(100, 8)))
    whole = (tmp_path / "days" / "1.npy").read_bytes()
    (tmp_path / "days" / "1.npy").write_bytes(whole[:2000])
    pattern = tmp_path / "days" / "*.npy"
    direct = json.loads(run("audit", pattern, "--control", control, "--json", "-").stdout)
    said = [
        each for each in direct["collections"][0]["warnings"] if "could not be read and is missing" in each
    ]
    assert len(said) == 1
    assert "1.npy" in said[0]
    run("sketch", pattern, "--control", control, "-o", tmp_path / "days.sketch")
    run("merge", tmp_path / "days.sketch", week / "monday.sketch", "-o", tmp_path / "all.sketch")
    for name in ("days", "all"):
        told = run("audit", tmp_path / f"{name}.sketch", "--control", control, "--json", "-")
        assert said[0] in json.loads(told.stdout)["collections"][0]["warnings"]
        assert said[0] in told.stderr
    told = run("audit", week / "monday.sketch", "--control", control, "--json", "-")
    assert not any("missing" in each for each in json.loads(told.stdout)["collections"][0]["warnings"])


def test_a_sketch_cannot_be_written_to_an_address(control: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((30, 8)))
    asked = ["sketch", str(tmp_path / "x.npy"), "--control", str(control), "-o", "s3://bucket/x.sketch"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 2
    assert "s3://bucket/x.sketch is an address" in done.stderr
