"""Folders of tables, columns in the names of folders, folders of sketches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from test_engines import fingerprint, matrix, write

from divscore import ControlSet, Sketch, sources
from divscore.cli import main
from divscore.errors import FileError
from divscore.jobs.sketching import sketch_source
from divscore.sketch.sketchfile import read_sketches
from divscore.sources import open_table
from divscore.sources.recognise import Files, tables_in


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
def hive(tmp_path: Path) -> Path:
    root = tmp_path / "posts"
    for at, (country, day) in enumerate((("SA", "1"), ("SA", "2"), ("C%C3%B4te d'Ivoire", "1"))):
        folder = root / f"country={country}" / f"day={day}"
        folder.mkdir(parents=True)
        write(folder / "part-0.parquet", matrix(at)[12:])
    (root / "_SUCCESS").touch()
    return root


@pytest.mark.parametrize("path", ["", "**/*.parquet", "country=*/day=*/*.parquet"])
def test_folders_name_columns_to_audit_by(hive: Path, control: ControlSet, tmp_path: Path, path: str) -> None:
    found = audited("audit", hive / path, "--control", tmp_path / "c.npz", "--by", "country")
    assert {name: each["count"] for name, each in found.items()} == {"Côte d'Ivoire": 288, "SA": 576}
    days = audited("audit", hive / path, "--control", tmp_path / "c.npz", "--by", "day")
    assert {name: each["count"] for name, each in days.items()} == {"1": 576, "2": 288}


def test_a_column_of_the_file_is_believed_more_than_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kind=folder"
    folder.mkdir()
    write(folder / "a.parquet", matrix(0))
    values = [
        text for block in open_table(folder / "a.parquet", extra=["kind"]) for text in block.values["kind"]
    ]
    assert set(values) == {"first", "second", "third"}


@pytest.mark.parametrize("form", ["npy", "csv", "jsonl", "arrow", "npz"])
def test_every_format_gets_the_columns_of_its_folders(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "day=__HIVE_DEFAULT_PARTITION__" / "country=SA"
    folder.mkdir(parents=True)
    write(folder / f"a.{form}", matrix(0))
    source = open_table(folder / f"a.{form}", extra=["country", "day"])
    blocks = list(source)
    assert {text for block in blocks for text in block.values["country"]} == {"SA"}
    assert {text for block in blocks for text in block.values["day"]} == {""}
    assert sum(len(block.values["day"]) for block in blocks) == sum(len(block.vectors) for block in blocks)


def test_a_column_that_is_nowhere_is_refused(hive: Path, control: ControlSet, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["audit", str(hive), "--control", str(tmp_path / "c.npz"), "--by", "city"]
    )
    assert done.exit_code == 2
    assert "no column 'city'" in done.stderr


def test_only_needed_columns_are_decoded(tmp_path: Path) -> None:
    """A column that cannot be decoded does no harm as long as nobody asks for it."""
    path = tmp_path / "a.parquet"
    table = pa.table({"embedding": list(matrix(0)[12:]), "note": [str(at) * 50 for at in range(288)]})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    start, size = column.data_page_offset, column.total_compressed_size
    data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    assert sum(len(block.vectors) for block in open_table(path)) == 288
    with pytest.raises(FileError, match="cannot be read as Parquet"):
        list(open_table(path, extra=["note"]))


def test_a_folder_of_tables_is_a_collection(tmp_path: Path, control: ControlSet) -> None:
    folder = tmp_path / "vectors"
    (folder / "deeper").mkdir(parents=True)
    write(folder / "deeper" / "b.npy", matrix(1))
    write(folder / "a.npy", matrix(0))
    (folder / ".hidden.npy").write_bytes(b"")
    (folder / "readme.md").write_text("words")
    found = sources.open(folder)
    assert [each.url for each in found.locations] == [str(folder / "a.npy"), str(folder / "deeper" / "b.npy")]
    told = audited("audit", folder, "--control", tmp_path / "c.npz")
    assert told["vectors"]["count"] == 596


def test_a_folder_of_several_kinds_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", matrix(0))
    write(tmp_path / "a.parquet", matrix(0))
    with pytest.raises(FileError, match=r"several kinds \(\.npy, \.parquet\); choose some with a pattern"):
        tables_in(str(tmp_path))


def test_a_folder_with_pictures_is_one_of_pictures(tmp_path: Path) -> None:
    write(tmp_path / "labels.csv", matrix(0))
    (tmp_path / "x.jpg").write_bytes(b"")
    assert tables_in(str(tmp_path)) == Files([])


# Sketches by the day


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
    assert "not all of its items are in it" in done.stderr
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


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """The same folders, with items like those of the control set, half of either group."""
    root, rng = tmp_path / "posts", np.random.default_rng(4)
    for country, day in (("SA", "1"), ("SA", "2"), ("C%C3%B4te d'Ivoire", "1")):
        folder = root / f"country={country}" / f"day={day}"
        folder.mkdir(parents=True)
        write(folder / "part-0.parquet", rng.normal(size=(288, 8)) + np.repeat([[1.0], [-1.0]], 144, axis=0))
    return root


def test_what_is_missing_concerns_the_folder_that_it_was_in(
    known: Path, control: ControlSet, tmp_path: Path
) -> None:
    asked = ("--control", tmp_path / "c.npz", "--by", "country")
    whole = audited("audit", known, *asked)
    spoil(known / "country=SA" / "day=2" / "part-0.parquet")
    found = audited("audit", known, *asked)
    assert found["Côte d'Ivoire"] == whole["Côte d'Ivoire"]
    assert found["SA"]["count"] == 288
    assert "country=SA/day=2/part-0.parquet" in found["SA"]["warnings"][0]
    assert whole["SA"]["trust"] == "good"
    assert found["SA"]["trust"] == "caution"
    document = json.loads(run("audit", known, *asked, "--json", "-").stdout)
    assert [Path(each["part"]).parent.name for each in document["missing"]["listed"]] == ["day=2"]


def test_a_collection_of_which_nothing_could_be_read_is_named(
    known: Path, control: ControlSet, tmp_path: Path
) -> None:
    spoil(known / "country=C%C3%B4te d'Ivoire" / "day=1" / "part-0.parquet")
    done = run("audit", known, "--control", tmp_path / "c.npz", "--by", "country", "--json", "-")
    assert "Côte d'Ivoire: skipped, as none of its files could be read" in done.stderr
    assert [each["name"] for each in json.loads(done.stdout)["collections"]] == ["SA"]


@pytest.mark.parametrize(("limit", "spoilt", "code"), [("1", False, 0), ("1", True, 3), ("0", True, 3)])
def test_a_gate_is_not_passed_where_parts_are_missing(
    known: Path, control: ControlSet, tmp_path: Path, limit: str, spoilt: bool, code: int
) -> None:
    asked = ["--control", str(tmp_path / "c.npz"), "--by", "country", "--max-disparity", limit]
    if spoilt:
        spoil(known / "country=SA" / "day=2" / "part-0.parquet")
    report = tmp_path / "r.md"
    done = CliRunner().invoke(main, ["audit", str(known), *asked, "--report", str(report)])
    assert done.exit_code == code, done.stderr
    assert ("parts of the source are missing" in done.stderr) == (spoilt and limit == "1")
    assert ("and 1 part of the source" in report.read_text()) == spoilt


def test_a_change_is_not_passed_where_parts_are_missing(
    known: Path, control: ControlSet, tmp_path: Path
) -> None:
    asked = ["--control", str(tmp_path / "c.npz"), "--by", "country", "--json"]
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    run("audit", known, *asked, before)
    spoil(known / "country=SA" / "day=2" / "part-0.parquet")
    run("audit", known, *asked, after)
    gate = ["--max-change", "1"]
    assert CliRunner().invoke(main, ["diff", str(before), str(before), *gate]).exit_code == 0
    done = CliRunner().invoke(main, ["diff", str(before), str(after), *gate])
    assert done.exit_code == 3
    assert "the later audit: 1 part of the source could not be read and is missing" in done.stderr
    damaged = json.loads(after.read_text()) | {"missing": {"listed": [{"part": 1}]}}
    after.write_text(json.dumps(damaged))
    refused = CliRunner().invoke(main, ["diff", str(before), str(after)])
    assert refused.exit_code == 2
    assert "missing.listed[0].part: expected a text" in refused.stderr
