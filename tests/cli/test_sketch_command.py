"""`divscore sketch` and `divscore merge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import document, run
from pyarrow import parquet
from tables import (
    mixed,
    vectors,
    write_table,
)

from divscore.text import named


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


def test_sketch_merge_audit_equals_the_whole(files):
    rows = np.load("mostly_a.npy")
    np.save("monday.npy", rows[:250])
    np.save("tuesday.npy", rows[250:])
    for day in ("monday", "tuesday"):
        run("sketch", f"{day}.npy", "--control", "labelled.parquet", "-o", f"{day}.sketch")
    run("merge", "monday.sketch", "tuesday.sketch", "-o", "week.sketch")
    merged = json.loads(run("audit", "week.sketch", "--control", "labelled.parquet", "--json", "-").stdout)
    whole = json.loads(run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--json", "-").stdout)
    assert merged["collections"][0]["name"] == "week"
    for key in ("count", "disparity", "interval", "divscore"):
        assert merged["collections"][0][key] == pytest.approx(whole["collections"][0][key], abs=1e-9)


def test_sketch_of_another_control_set_is_refused(files):
    rng = np.random.default_rng(9)
    write_table("other.parquet", vectors(rng, 30, 30), letter=["a"] * 30 + ["b"] * 30)
    run("sketch", "even.npy", "--control", "labelled.parquet", "-o", "even.sketch")
    assert "another control set" in run("audit", "even.sketch", "--control", "other.parquet", code=2).stderr


def test_by_on_a_sketch_is_refused(files):
    run("sketch", "even.npy", "--control", "labelled.parquet", "-o", "even.sketch")
    args = ("audit", "even.sketch", "--control", "labelled.parquet", "--by", "place")
    assert "no columns" in run(*args, code=2).stderr


def test_a_sketch_of_texts(people: Path, tmp_path: Path) -> None:
    control = ("--control", people / "pool.csv", "--attribute", "sex")
    run("sketch", people / "list.txt", *control, "-o", tmp_path / "s")
    one, other = (
        document("audit", path, *control)["collections"][0] for path in (tmp_path / "s", people / "list.txt")
    )
    assert one["interval"] == other["interval"]


def test_many_collections_of_a_sketch_are_counted_legibly(posts: None) -> None:
    rng = np.random.default_rng(2)
    write_table(
        "posts.parquet", mixed(rng, np.arange(2400) % 2 == 0), user=[f"u{at // 2}" for at in range(2400)]
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
    write_table("posts.parquet", mixed(rng, np.arange(48) % 2 == 0), user=names)
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
