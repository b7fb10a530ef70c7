"""`divscore sketch` and `divscore merge`: folders of sketches, and what was missing when one was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

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
    assert "all.sketch is in" in again.stderr
    assert "is not counted: it is the output file" in again.stderr
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


def names_of(*arguments: Any) -> list[str]:
    told = json.loads(run("audit", *arguments, "--json", "-").stdout)
    return [each["name"] for each in told["collections"]]


def sketched(folder: Path, control: Path, day: str, source: str, places: str = "") -> None:
    """A day's sketch, of a source that is called the same every day; a letter a place."""
    rng = np.random.default_rng(len(day))
    vectors = rng.normal(size=(60, 8)).astype(np.float32)
    place = [places[at % len(places)] if places else "" for at in range(60)]
    parquet.write_table(pa.table({"embedding": list(vectors), "place": place}), folder.parent / source)
    by = ["--by", "place"] if places else []
    run("sketch", folder.parent / source, "--control", control, *by, "-o", folder / f"{day}.sketch")


@pytest.fixture
def days(tmp_path: Path) -> Path:
    (tmp_path / "days").mkdir()
    return tmp_path / "days"


def test_sketches_of_a_source_of_the_same_name_are_called_after_their_files(
    days: Path, control: Path
) -> None:
    sketched(days, control, "monday", "feed.parquet")
    sketched(days, control, "tuesday", "feed.parquet")
    assert names_of(days, "--control", control) == ["monday", "tuesday"]
    both = [days / "tuesday.sketch", days / "monday.sketch"]
    assert names_of(*both, "--control", control) == ["tuesday", "monday"]
    assert names_of(days / "monday.sketch", "--control", control) == ["feed"]
    sketched(days, control, "friday", "archive.parquet")
    assert names_of(days, "--control", control) == ["friday", "monday", "tuesday"]
    assert names_of(days / "friday.sketch", days / "monday.sketch", "--control", control) == [
        "archive",
        "feed",
    ]


def test_sketches_whose_files_have_the_same_name_too_are_called_by_their_paths(
    days: Path, control: Path, tmp_path: Path
) -> None:
    sketched(days, control, "monday", "feed.parquet")
    other = tmp_path / "later"
    other.mkdir()
    sketched(other, control, "monday", "feed.parquet")
    paths = [str(folder / "monday.sketch") for folder in (days, other)]
    assert names_of(*paths, "--control", control) == paths
    np.save(tmp_path / "tuesday.npy", np.random.default_rng(1).normal(size=(60, 8)))
    sketched(days, control, "tuesday", "feed.parquet")
    all_of_them = [
        str(tmp_path / "tuesday.npy"),
        *(str(days / f"{day}.sketch") for day in ("monday", "tuesday")),
    ]
    assert names_of(*all_of_them, "--control", control) == [all_of_them[0], "monday", all_of_them[2]]


def test_collections_of_a_column_keep_their_names(days: Path, control: Path, tmp_path: Path) -> None:
    sketched(days, control, "monday", "feed.parquet", "AB")
    sketched(days, control, "tuesday", "feed.parquet", "BC")
    assert names_of(days, "--control", control) == [
        "A",
        f"{days}/monday.sketch: B",
        f"{days}/tuesday.sketch: B",
        "C",
    ]
    sketched(days, control, "wednesday", "feed.parquet", "B")
    sketched(days, control, "yesterday", "feed.parquet", "B")
    told = names_of(days, "--control", control)
    assert told[-2:] == [f"{days}/{day}.sketch: B" for day in ("wednesday", "yesterday")]
    assert len(set(told)) == 6
    run("merge", days, "-o", tmp_path / "all.sketch")
    assert names_of(tmp_path / "all.sketch", "--control", control) == ["A", "B", "C"]


def test_a_sketch_cannot_be_written_to_an_address(control: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((30, 8)))
    asked = ["sketch", str(tmp_path / "x.npy"), "--control", str(control), "-o", "s3://bucket/x.sketch"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 2
    assert "s3://bucket/x.sketch is a URL" in done.stderr
