from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plainshell
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sketches import on_threads
from vectorfiles import (
    CLEAN,
    FORMATS,
    NAMES,
    ROWS,
    fingerprint,
    fingerprints,
    letters,
    matrix,
    opened,
    write,
)

from divscore import ControlSet, Sketch
from divscore.cli import main
from divscore.errors import FileError, InputError
from divscore.jobs.engine import Engine
from divscore.jobs.sketching import sketch_source
from divscore.sketch import scan as scan_module
from divscore.sketch.many import sketch_blocks
from divscore.sketch.scorer import scorer_for
from divscore.sources import arrays, cuts, open_table
from divscore.sources import arrow as ipc
from divscore.sources import arrow as tables


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small files into several partitions."""
    monkeypatch.setattr(arrays, "PIECE_ROWS", 70)
    monkeypatch.setattr(tables, "PIECE_ROWS", 70)
    monkeypatch.setattr(ipc, "PIECE_BYTES", 4000)
    monkeypatch.setattr(cuts, "PIECE_BYTES", 12_000)


@pytest.fixture(scope="module")
def control() -> ControlSet:
    return letters()


# What is sent


def test_what_cannot_be_sent_is_told(control: ControlSet, processes: Engine, tmp_path: Path) -> None:
    for at in range(2):
        write(tmp_path / f"{at}.npy", np.abs(matrix(at)[10:]))
    local = ControlSet(
        control.vectors,
        ["a"] * 20 + ["b"] * 20,
        attribute="letter",
        similarity=lambda left, right: np.exp(left @ right.T),
    )
    source = open_table(str(tmp_path / "*.npy"))
    with pytest.raises(InputError, match="it must be a function that a module defines"):
        sketch_source(source, local, engine=processes)
    assert sketch_source(source, local, workers=2).rows == 2 * (ROWS - 10)


# Partitions


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("form", FORMATS)
def test_partitions_are_the_file_in_order(tmp_path: Path, form: str) -> None:
    write(tmp_path / f"a.{form}", matrix(1))
    source = opened(tmp_path, form)
    parts = list(source.divided())
    assert (len(parts) > 3) == (form != "npz")
    again = pickle.loads(pickle.dumps(parts))
    read = np.concatenate([block.vectors for part in again for block in part])
    np.testing.assert_array_equal(read, np.concatenate([block.vectors for block in source]))
    if form != "npz":
        assert [part.rows for part in parts] == [sum(len(b.vectors) for b in part) for part in parts]


@given(rows=st.integers(1, 400), group=st.integers(1, 90), least=st.integers(1, 120))
def test_row_groups_are_gathered_whatever_their_size(rows: int, group: int, least: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "PIECE_ROWS", least)
        path = Path(folder) / "a.parquet"
        vectors = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        pq.write_table(pa.table({"embedding": list(vectors)}), path, row_group_size=group)
        parts = list(open_table(path).divided())
        assert all((part.rows or 0) >= min(least, rows) for part in parts[:-1])
        read = [block.vectors for part in parts for block in part]
        np.testing.assert_array_equal(np.concatenate(read), vectors)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("by", [None, "kind"])
def test_threads_and_processes_agree_with_one_thread_to_the_bit(
    tmp_path: Path, control: ControlSet, processes: Engine, form: str, by: str | None
) -> None:
    if by and form == "npy":
        pytest.skip("an array has no columns")
    for at in range(3):
        write(tmp_path / f"{at}.{form}", matrix(at))
    source = opened(tmp_path, form, by)
    alone = sketch_source(source, control, by=by)
    wanted = fingerprints(alone, control)
    assert list(wanted) == (list(NAMES) if by else [source.name])
    assert sum(sketch.count for sketch in alone.sketches.values()) == alone.rows - 6
    for options in ({"workers": 2}, {"workers": 5}, {"engine": processes}):
        found = sketch_source(source, control, by=by, **options)
        assert fingerprints(found, control) == wanted
        assert (found.rows, found.unreadable, found.problems) == (
            alone.rows,
            alone.unreadable,
            alone.problems,
        )


def test_threads_share_the_blocks_of_a_single_partition(tmp_path: Path, control: ControlSet) -> None:
    write(tmp_path / "a.npy", matrix(3, 5000))
    source = open_table(tmp_path / "a.npy", batch_rows=64)
    assert len(list(source.divided())) == 1
    wanted = fingerprints(sketch_source(source, control), control)
    assert fingerprints(sketch_source(source, control, workers=3), control) == wanted


@pytest.mark.slow
def test_a_plain_shell_gives_the_same_bits_on_every_engine(tmp_path: Path) -> None:
    """Worker processes have one thread for linear algebra, and this one as many as there are cores."""
    plain = {name: value for name, value in os.environ.items() if name not in plainshell.SETTINGS}
    command = [sys.executable, plainshell.__file__, str(tmp_path)]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["one", "threads", "processes"]
    assert len(set(found.values())) == 1


def blocks_sketched(blocks: list[Any], control: ControlSet, **options: int) -> Sketch:
    scorer = scorer_for(control)
    return sketch_blocks(blocks, control, scorer, **options).sketches(control, scorer)["collection"]


def test_how_sums_are_rounded_depends_on_the_whole_source(
    tmp_path: Path, control: ControlSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are small, and all of them together large: then strips are precise enough for each."""
    monkeypatch.setattr(scan_module, "SINGLE", 2 * ROWS)
    for at in range(3):
        write(tmp_path / f"{at}.npy", matrix(at))
    found = next(iter(sketch_source(open_table(str(tmp_path / "*.npy")), control).sketches.values()))
    known, unknown = (
        [blocks_sketched([(matrix(at), None)], control, seen=seen) for at in range(3)]
        for seen in (3 * ROWS, 0)
    )
    assert known[0].total.tobytes() != unknown[0].total.tobytes()
    for other in known[1:]:
        known[0].merge(other)
    assert found.total.tobytes() == known[0].total.tobytes()


def test_blocks_in_threads_are_folded_in_their_order(control: ControlSet) -> None:
    blocks = [(matrix(at), None) for at in range(9)]
    alone, shared = (blocks_sketched(blocks, control, mapper=on_threads(workers)) for workers in (1, 4))
    assert fingerprint(alone, control) == fingerprint(shared, control)


# Bad files


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Five Parquet files; one is cut off, and in another some pages are overwritten."""
    for at in range(5):
        write(tmp_path / f"{at}.parquet", matrix(at)[CLEAN:])
    cut = tmp_path / "1.parquet"
    cut.write_bytes(cut.read_bytes()[:-50])
    scarred = tmp_path / "3.parquet"
    data = bytearray(scarred.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 1000] = bytes(1000)
    scarred.write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("options", [{}, {"workers": 3}], ids=["alone", "threads"])
def test_bad_files_are_named_and_the_rest_survives(
    damaged: Path, control: ControlSet, options: dict[str, int]
) -> None:
    told: list[str] = []
    found = sketch_source(
        open_table(str(damaged / "*.parquet")),
        control,
        on_missing=lambda failure: told.append(failure.reason),
        **options,
    )
    assert [each.part for each in found.missing] == [
        str(damaged / "1.parquet"),
        str(damaged / "3.parquet"),
    ]
    assert [each.rows for each in found.missing] == [None, ROWS - CLEAN]
    assert all("cannot be read as Parquet" in reason for reason in told)
    assert len(told) == 2
    for name in ("1", "3"):
        (damaged / f"{name}.parquet").unlink()
    rest = sketch_source(open_table(str(damaged / "*.parquet")), control)
    pairs = zip(found.sketches.values(), rest.sketches.values(), strict=True)
    assert all(fingerprint(a, control) == fingerprint(b, control) for a, b in pairs)


def test_strict_makes_the_first_bad_file_an_error(damaged: Path, control: ControlSet) -> None:
    with pytest.raises(FileError, match=r"1\.parquet"):
        open_table(str(damaged / "*.parquet"), strict=True)
    (damaged / "1.parquet").unlink()
    with pytest.raises(FileError, match=r"3\.parquet"):
        sketch_source(open_table(str(damaged / "*.parquet"), strict=True), control, strict=True, workers=2)


def test_what_is_missing_travels_with_the_result(damaged: Path, control: ControlSet, tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    pattern, out = str(damaged / "*.parquet"), str(tmp_path / "a.sketch")

    def told(command: str, *arguments: str) -> Any:
        done = CliRunner().invoke(main, [command, *arguments, "--control", str(tmp_path / "c.npz")])
        assert done.exit_code == 0, done.stderr
        if not done.stdout:
            return None
        document = json.loads(done.stdout)
        for each in document["collections"]:
            assert any("1.parquet" in warning for warning in each["warnings"])
        return document["missing"]

    alone = told("audit", pattern, "--json", "-")
    assert (alone["more"], alone["more_rows"]) == (0, 0)
    assert [(each["part"], each["rows"]) for each in alone["listed"]] == [
        (str(damaged / "1.parquet"), None),
        (str(damaged / "3.parquet"), ROWS - CLEAN),
    ]
    assert all("cannot be read as Parquet" in each["reason"] for each in alone["listed"])
    assert told("audit", pattern, "--by", "kind", "--json", "-") == alone
    told("sketch", pattern, "-o", out)
    assert told("audit", out, "--json", "-") == alone
    assert told("audit", pattern, "--estimator", "self-training", "--json", "-") == alone


def test_self_training_goes_on_without_bad_files_too(damaged: Path, control: ControlSet) -> None:
    np.savez(damaged / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    asked = ["audit", str(damaged / "*.parquet"), "--control", str(damaged / "c.npz")]
    told = []
    for estimator in ("likelihood", "self-training"):
        done = CliRunner().invoke(main, [*asked, "--estimator", estimator, "--json", "-"])
        assert done.exit_code == 0, done.stderr
        document = json.loads(done.stdout)
        found = document["collections"][0]
        assert f"missing ({ROWS - CLEAN:,} rows): {damaged / '3.parquet'} cannot be read" in done.stderr
        assert "2 parts of the source could not be read" in found["warnings"][0]
        told.append((document["missing"], found["count"], found["skipped"]["unreadable"]))
    assert told[0] == told[1]
    (damaged / "1.parquet").unlink()
    for estimator in ("likelihood", "self-training"):
        strict = CliRunner().invoke(main, [*asked, "--estimator", estimator, "--strict"])
        assert strict.exit_code == 2
        assert "3.parquet cannot be read as Parquet" in strict.stderr
    for path in damaged.glob("*.parquet"):
        if path.name != "3.parquet":
            path.unlink()
    (damaged / "4.parquet").write_bytes((damaged / "3.parquet").read_bytes())
    nothing = CliRunner().invoke(main, [*asked, "--estimator", "self-training"])
    assert nothing.exit_code == 2
    assert "has no row with a usable vector" in nothing.stderr
    assert "3.parquet cannot be read as Parquet" in nothing.stderr


def write_nothing(path: Path) -> None:
    """A whole file with the usual columns and no rows."""
    if path.suffix not in {".parquet", ".arrow"}:
        write(path, matrix(1)[:0])
        return
    schema = pa.schema([("embedding", pa.list_(pa.float32())), ("kind", pa.string())])
    if path.suffix == ".parquet":
        pq.write_table(schema.empty_table(), path)
    else:
        with pa.ipc.new_file(path, schema) as writer:
            writer.write_table(schema.empty_table())


@pytest.mark.parametrize("form", FORMATS)
def test_files_without_rows_are_nothing_among_several(tmp_path: Path, control: ControlSet, form: str) -> None:
    write_nothing(tmp_path / f"0.{form}")
    write(tmp_path / f"1.{form}", matrix(1)[CLEAN:])
    write_nothing(tmp_path / f"2.{form}")
    if form in {"csv", "jsonl"}:
        (tmp_path / f"2.{form}").write_bytes(b"")
    found = sketch_source(open_table(str(tmp_path / f"*.{form}"), strict=True), control, strict=True)
    assert (found.rows, found.missing) == (ROWS - CLEAN, ())
    (tmp_path / f"1.{form}").unlink()
    with pytest.raises(FileError, match="none of its 2 files has any rows"):
        open_table(str(tmp_path / f"*.{form}"))


def test_a_file_of_numbers_without_a_byte_is_bad(tmp_path: Path, control: ControlSet) -> None:
    write(tmp_path / "0.npy", matrix(0)[CLEAN:])
    (tmp_path / "1.npy").touch()
    found = sketch_source(open_table(str(tmp_path / "*.npy")), control)
    assert [each.part for each in found.missing] == [str(tmp_path / "1.npy")]


def test_a_single_bad_file_is_an_error(damaged: Path, control: ControlSet) -> None:
    with pytest.raises(FileError, match=r"3\.parquet cannot be read"):
        sketch_source(open_table(damaged / "3.parquet"), control)


def test_when_nothing_can_be_read_that_is_an_error(damaged: Path, control: ControlSet) -> None:
    for name in ("0", "2", "4"):
        (damaged / f"{name}.parquet").unlink()
    with pytest.raises(FileError, match=r"nothing of .* could be read; .*1\.parquet"):
        sketch_source(open_table(str(damaged / "*.parquet")), control)


def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path, control: ControlSet) -> None:
    for at in range(2):
        write(tmp_path / f"{at}.npy", matrix(at))
    parts = list(open_table(str(tmp_path / "*.npy")).divided())
    write(tmp_path / "1.npy", matrix(1, 100))
    with pytest.raises(FileError, match="when the work was planned"):
        parts[1].check_visible()
    (tmp_path / "1.npy").unlink()
    with pytest.raises(FileError, match="every worker must see the files under the same path"):
        parts[1].check_visible()
