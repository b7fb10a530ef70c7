from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divscore.errors import FileError, InputError
from divscore.sources import open_table
from divscore.sources.arrow import texts_of
from divscore.sources.table import Table
from divscore.sources.textfiles import READ_AT_ONCE

ROWS, DIMENSION = 23, 5
MATRIX = np.random.default_rng(3).standard_normal((ROWS, DIMENSION))
TEXTS = [f"name, {i}" for i in range(ROWS)]


def listed(matrix: Any, kind: str = "fixed") -> pa.Array:
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(matrix).ravel()), np.shape(matrix)[1])
    return pa.array(
        np.asarray(matrix).tolist(), {"list": pa.list_, "large": pa.large_list}[kind](pa.float64())
    )


def table(kind: str = "fixed") -> pa.Table:
    return pa.table({"name": TEXTS, "embedding": listed(MATRIX, kind), "year": range(ROWS)})


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=10)


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=10)


def write_numbers(path: Path) -> None:
    columns = {f"x{j}": MATRIX[:, j] for j in range(DIMENSION)}
    pa.csv.write_csv(pa.table({"id": range(ROWS), **columns, "name": TEXTS}), path)


def write_tsv(path: Path) -> None:
    cells = [json.dumps(row) for row in MATRIX.tolist()]
    lines = ["name\tembedding", *(f"{t}\t{c}" for t, c in zip(TEXTS, cells, strict=True))]
    path.write_text("\n".join(lines) + "\n")


def write_jsonl(path: Path) -> None:
    lines = [json.dumps({"name": t, "v": row}) for t, row in zip(TEXTS, MATRIX.tolist(), strict=True)]
    path.write_text("\n\n".join(lines))


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "npz": ("a.npz", lambda p: np.savez(p, vectors=MATRIX, name=np.array(TEXTS), year=np.arange(ROWS))),
    "npz compressed": ("a.npz", lambda p: np.savez_compressed(p, vectors=MATRIX, name=np.array(TEXTS))),
    "npz columns": ("a.npz", lambda p: np.savez(p, v=np.asfortranarray(MATRIX), name=np.array(TEXTS, "S"))),
    "parquet fixed": ("a.parquet", lambda p: pq.write_table(table(), p, row_group_size=7)),
    "parquet list": ("a.parquet", lambda p: pq.write_table(table("list"), p, row_group_size=7)),
    "parquet large": ("a.parquet", lambda p: pq.write_table(table("large"), p)),
    "arrow": ("a.arrow", write_arrow),
    "feather": ("a.feather", lambda p: pa.feather.write_feather(table(), p, compression="lz4", chunksize=9)),
    "stream": ("a.ipc", write_stream),
    "csv numbers": ("a.csv", write_numbers),
    "tsv lists": ("a.tsv", write_tsv),
    "jsonl": ("a.jsonl", write_jsonl),
}


def stacked(source: Table) -> np.ndarray:
    return np.concatenate([block.vectors for block in source])


def test_npy_is_mapped_and_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", MATRIX)
    source = open_table(tmp_path / "a.npy", batch_rows=10)
    blocks = [block.vectors for block in source]
    assert (source.name, source.rows, source.dimension) == ("a", ROWS, DIMENSION)
    assert [len(b) for b in blocks] == [10, 10, 3]
    assert not any(b.flags.owndata for b in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), MATRIX)


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("batch_rows", [4, 65536])
def test_every_format_gives_the_same_matrix(tmp_path: Path, form: str, batch_rows: int) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name)
    source = open_table(tmp_path / name, extra=["name"], batch_rows=batch_rows)
    for _ in range(2):
        blocks = list(source)
        np.testing.assert_array_equal(np.concatenate([b.vectors for b in blocks]), MATRIX)
        assert [text for b in blocks for text in b.values["name"]] == TEXTS
    assert source.dimension == DIMENSION
    assert source.rows in (None, ROWS)
    assert source.unreadable == 0
    assert all(b.vectors.flags.c_contiguous for b in blocks)


@pytest.mark.parametrize("form", WRITERS)
def test_blocks_are_no_larger_than_asked(tmp_path: Path, form: str) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name)
    assert all(len(block.vectors) <= 4 for block in open_table(tmp_path / name, batch_rows=4))


@pytest.mark.parametrize("form", ["npz", "parquet fixed", "arrow"])
def test_rows_are_known_where_the_format_tells(tmp_path: Path, form: str) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name)
    assert open_table(tmp_path / name).rows == ROWS


@pytest.mark.parametrize(
    ("given", "expected"),
    [("f4", "f4"), ("f8", "f8"), ("f2", "f4"), ("i1", "f4"), ("i8", "f8"), (">f4", "f4"), (">f8", "f8")],
)
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "a.arrow"])
def test_numbers_become_float_without_loss(tmp_path: Path, name: str, given: str, expected: str) -> None:
    matrix = np.arange(12).reshape(4, 3).astype(given)
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, matrix)
    elif name == "a.npz":
        np.savez(path, matrix)
    else:
        kind = pa.table({"v": listed(matrix.astype(matrix.dtype.newbyteorder("=")))})
        pq.write_table(kind, path) if name == "a.parquet" else pa.feather.write_feather(kind, path)
    read = stacked(open_table(path))
    assert read.dtype == np.dtype(expected)
    np.testing.assert_array_equal(read, np.arange(12).reshape(4, 3))


def test_columns_stored_in_fortran_order_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(MATRIX))
    np.testing.assert_array_equal(stacked(open_table(tmp_path / "a.npy", batch_rows=7)), MATRIX)


def test_fixed_size_lists_in_arrow_are_not_copied(tmp_path: Path) -> None:
    matrix = np.ones((1000, 64))
    pa.feather.write_feather(
        pa.table({"v": listed(matrix)}), tmp_path / "a.arrow", compression="uncompressed"
    )
    before = pa.total_allocated_bytes()
    blocks = list(open_table(tmp_path / "a.arrow"))
    assert not any(block.vectors.flags.owndata for block in blocks)
    assert pa.total_allocated_bytes() - before < matrix.nbytes / 10


def test_tensor_columns_are_vectors(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float64(), [DIMENSION])
    column = pa.ExtensionArray.from_storage(kind, listed(MATRIX))
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(stacked(open_table(tmp_path / "a.parquet")), MATRIX)


def test_the_usual_name_wins_and_column_overrules(tmp_path: Path) -> None:
    both = pa.table({"tokens": listed(MATRIX[:, :2]), "Embedding": listed(MATRIX)})
    pq.write_table(both, tmp_path / "a.parquet")
    assert open_table(tmp_path / "a.parquet").dimension == DIMENSION
    assert open_table(tmp_path / "a.parquet", column="tokens").dimension == 2


def test_extra_columns_come_as_text(tmp_path: Path) -> None:
    names = pa.array(["x", None, "x"]).dictionary_encode()
    columns = {"v": listed(np.eye(3)), "n": [1, None, 3], "b": [True, False, None], "d": names}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = open_table(tmp_path / "a.parquet", extra=["n", "b", "d"])
    assert source.columns == {"v": "vector", "n": "number", "b": "bool", "d": "text"}
    (block,) = source
    assert block.values == {"n": ["1", "", "3"], "b": ["true", "false", ""], "d": ["x", "", "x"]}


@given(
    st.lists(st.lists(st.sampled_from(["", "a", "b", "ä", "c", None]), min_size=1, max_size=9), max_size=6)
)
def test_a_dictionary_of_texts_reads_like_the_texts(blocks: list[list[str | None]]) -> None:
    """Its names are kept from one block to the next, which may have others, or fewer."""
    for texts in blocks:
        plain = pa.array(texts, pa.string())
        for column in (plain.dictionary_encode(), plain.dictionary_encode()[1:], plain):
            expected = [text or "" for text in column.to_pylist()]
            assert list(texts_of(column)) == expected
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b", "a"]))
    numbers = pa.array([3, 5, 3]).dictionary_encode()
    assert [list(texts_of(each)) for each in (twice, numbers)] == [["a", "b", "a"], ["3", "5", "3"]]


RAGGED = [[1.0, 2.0], None, [3.0], [4.0, 5.0], [6.0, None], [7.0, 8.0]]


def write_ragged(path: Path) -> None:
    names = [str(i) for i in range(len(RAGGED))]
    if path.suffix == ".csv":
        cells = ["" if v is None else json.dumps(v) for v in RAGGED]
        path.write_text("n,v\n" + "".join(f'{n},"{c}"\n' for n, c in zip(names, cells, strict=True)))
    elif path.suffix == ".jsonl":
        records = [{"n": n, "v": v} for n, v in zip(names, RAGGED, strict=True)]
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
    else:
        whole = pa.table({"n": names, "v": pa.array(RAGGED, pa.list_(pa.float32()))})
        pq.write_table(whole, path) if path.suffix == ".parquet" else pa.feather.write_feather(whole, path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("batch_rows", [2, 100])
def test_unusable_rows_are_counted_and_named(tmp_path: Path, name: str, batch_rows: int) -> None:
    path = tmp_path / name
    write_ragged(path)
    source = open_table(path, extra=["n"], batch_rows=batch_rows)
    for _ in range(2):
        blocks = list(source)
        assert source.unreadable == 3
    np.testing.assert_array_equal(np.concatenate([b.vectors for b in blocks]), [[1, 2], [4, 5], [7, 8]])
    assert [t for b in blocks for t in b.values["n"]] == ["0", "3", "5"]
    unit, first = {"a.jsonl": ("line", 1), "a.csv": ("line", 2)}.get(name, ("row", 0))
    places = [f"{path}, {unit} {row + first}: " for row in (1, 2, 4)]
    assert all(p.startswith(place) for p, place in zip(source.problems, places, strict=True))
    assert "no vector" in source.problems[0]
    assert "length 1, not 2" in source.problems[1]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl"])
def test_strict_makes_the_first_unusable_row_an_error(tmp_path: Path, name: str) -> None:
    write_ragged(tmp_path / name)
    with pytest.raises(FileError, match=r"a\.\w+, (row 1|line 2|line 3): has no vector .*remove the"):
        list(open_table(tmp_path / name, strict=True))


def test_fixed_size_lists_with_nulls(tmp_path: Path) -> None:
    column = pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.float64(), 2))
    pa.feather.write_feather(pa.table({"v": column}), tmp_path / "a.feather")
    source = open_table(tmp_path / "a.feather")
    np.testing.assert_array_equal(stacked(source), [[1, 2], [5, 6]])
    assert source.unreadable == 2
    assert "missing number" in source.problems[1]


def test_only_the_first_problems_are_kept(tmp_path: Path) -> None:
    vectors = pa.array([[1.0], *([None] * 50)], pa.list_(pa.float64()))
    pq.write_table(pa.table({"v": vectors}), tmp_path / "a.parquet")
    source = open_table(tmp_path / "a.parquet", batch_rows=8)
    list(source)
    assert (source.unreadable, len(source.problems)) == (50, 20)


def test_csv_rows_with_words_gaps_and_missing_cells(tmp_path: Path) -> None:
    lines = [
        "id,x,y,note",
        "1,1,2,a",
        "2,3",
        "3,oops,4,b",
        "4,5,,c",
        "5,nan,inf,d",
        "6, 7 ,8,e",
        "7,1,2,3,4",
        "8,9,9,f",
    ]
    (tmp_path / "a.csv").write_text("\ufeff" + "\n".join(lines))
    source = open_table(tmp_path / "a.csv", extra=["note"])
    (block,) = source
    np.testing.assert_array_equal(block.vectors, [[1, 2], [np.nan, np.inf], [7, 8], [9, 9]])
    assert block.values["note"] == ["a", "d", "e", "f"]
    assert source.unreadable == 4
    said = sorted(problem.split(", ", 1)[1] for problem in source.problems)
    assert [problem.split(":")[0] for problem in said] == ["line 3", "line 4", "line 5", "line 8"]
    assert "2 cells, the header has 4" in said[0]
    assert "'oops' in column 'x'" in said[1]


def test_csv_line_breaks_inside_cells_are_kept_wherever_they_stand(tmp_path: Path) -> None:
    row = '1,"a\r\nb"\n'
    start = 'x,note\n1,"'
    filler = "c" * (READ_AT_ONCE - len(start) - 1)
    (tmp_path / "a.csv").write_bytes(
        f'{start}{filler}\r\nd"\n{row}'.encode()
    )  # the break is where a read ends
    notes = [
        note for block in open_table(tmp_path / "a.csv", extra=["note"]) for note in block.values["note"]
    ]
    assert [note.lstrip("c") for note in notes] == ["\r\nd", "a\r\nb"]


def test_csv_numbers_that_turn_real_late_and_index_columns(tmp_path: Path) -> None:
    lines = [",x,y", *(f"{i},1,2" for i in range(5000)), "5000,0.5,oops", "5001,0.5,1"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    source = open_table(tmp_path / "a.csv")
    read = stacked(source)
    assert source.dimension == 2
    assert read.shape == (5001, 2)
    assert read[-1].tolist() == [0.5, 1.0]
    assert source.unreadable == 1
    assert "line 5002" in source.problems[0]


def test_jsonl_with_broken_lines(tmp_path: Path) -> None:
    lines = [
        '{"v": [1, 2]}',
        "{oops",
        "[1, 2]",
        '{"w": 1}',
        '{"v": ["a", "b"]}',
        '{"v": [[1], [2]]}',
        '{"v": [3, 4]}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = open_table(tmp_path / "a.jsonl")
    np.testing.assert_array_equal(stacked(source), [[1, 2], [3, 4]])
    assert source.unreadable == 5
    for problem, words in zip(
        source.problems,
        ["not JSON", "not an object", "has no field", "not numbers", "not numbers"],
        strict=True,
    ):
        assert words in problem


def test_a_pattern_is_one_source_in_sorted_order(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", MATRIX[10:])
    np.save(tmp_path / "a.npy", MATRIX[:10])
    source = open_table(str(tmp_path / "*.npy"))
    np.testing.assert_array_equal(stacked(source), MATRIX)
    assert (source.rows, source.dimension) == (ROWS, DIMENSION)
    assert open_table(tmp_path / "a.npy").rows == 10


def test_a_pattern_adds_up_unreadable_rows(tmp_path: Path) -> None:
    write_ragged(tmp_path / "a.jsonl")
    write_ragged(tmp_path / "b.jsonl")
    source = open_table(str(tmp_path / "*.jsonl"))
    for _ in range(2):
        assert len(stacked(source)) == 6
        assert (source.unreadable, len(source.problems), source.rows) == (6, 6, None)


def test_a_file_with_brackets_in_its_name_is_no_pattern(tmp_path: Path) -> None:
    np.save(tmp_path / "a[1].npy", MATRIX)
    assert open_table(tmp_path / "a[1].npy").rows == ROWS


def test_patterns_that_cannot_be_one_source(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", MATRIX)
    np.save(tmp_path / "b.npy", MATRIX[:, :2])
    with pytest.raises(FileError, match=r"b\.npy has vectors of 2 numbers, but .*a\.npy of 5"):
        open_table(str(tmp_path / "*.npy"))
    with pytest.raises(FileError, match="no file matches"):
        open_table(str(tmp_path / "*.parquet"))


@pytest.mark.parametrize("form", ["csv numbers", "jsonl"])
def test_standard_input(tmp_path: Path, form: str) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name)
    code = (
        "from divscore.sources import open_table\n"
        "s = open_table('-')\n"
        "print(s.name, s.path, s.dimension, [sum(len(b.vectors) for b in s) for _ in 'ab'], s.location.url)"
    )
    with open(tmp_path / name, "rb") as stream:
        done = subprocess.run(
            [sys.executable, "-c", code], stdin=stream, capture_output=True, text=True, check=True
        )
    *told, url = done.stdout.split()
    assert told == ["stdin", "-", "5", "[23,", "23]"]
    assert not os.path.exists(url)


def test_empty_standard_input() -> None:
    code = "from divscore.sources import open_table; open_table('-')"
    done = subprocess.run([sys.executable, "-c", code], input="", capture_output=True, text=True, check=False)
    assert "standard input is empty" in done.stderr


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "a.arrow", "a.csv", "a.jsonl"])
def test_remote_files(tmp_path: Path, name: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    write = next((w for n, w in WRITERS.values() if n == name), lambda p: np.save(p, MATRIX))
    write(tmp_path / name)
    with fsspec.open(f"memory://divscore/{name}", "wb") as stream:
        stream.write((tmp_path / name).read_bytes())
    np.testing.assert_array_equal(stacked(open_table(f"memory://divscore/{name}", batch_rows=6)), MATRIX)
    assert open_table(f"memory://divscore/{name[:2]}*{name[2:]}").dimension == DIMENSION
    with pytest.raises(FileError, match="does not exist"):
        open_table(f"memory://divscore/missing{name}")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap()))
    np.savez(tmp_path / "c.npz", v=np.array([[Trap()]], dtype=object), allow_pickle=True)
    for name in ("a.npy", "b.npy", "c.npz"):
        with pytest.raises(FileError, match="pickle"):
            open_table(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "a.arrow", "a.ipc", "a.csv", "a.jsonl"])
def test_missing_empty_and_foreign_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(FileError, match="does not exist"):
        open_table(path)
    path.touch()
    with pytest.raises(FileError, match=r"is empty \(0 bytes\)"):
        open_table(path)
    path.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(FileError, match=name):
        open_table(path)


@pytest.mark.parametrize("form", ["npz", "npz compressed", "parquet fixed", "arrow", "feather", "stream"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_truncated_files(tmp_path: Path, form: str, kept: float) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(FileError, match="truncated, damaged or of another format"):
        list(open_table(tmp_path / name))


def test_truncated_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", MATRIX)
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-8])
    with pytest.raises(FileError, match=rf"truncated: {len(whole) - 8} bytes, expected {len(whole)}"):
        open_table(tmp_path / "a.npy")


def test_a_damaged_member_of_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", v=MATRIX)
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    at = bytes(whole).index(MATRIX.tobytes()[:64])
    whole[at + 20] ^= 1
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(FileError, match="Bad CRC-32"):
        list(open_table(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.zeros(4), r"shape \(4,\); expected a table"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros((0, 4)), "0 rows"),
        (np.zeros((4, 0)), "no row with a usable vector"),
        (np.array([["a"]]), "type <U1; expected real numbers"),
        (np.zeros((2, 2), complex), "type complex128"),
    ],
)
def test_arrays_of_another_shape_or_type(tmp_path: Path, matrix: np.ndarray, words: str) -> None:
    np.save(tmp_path / "a.npy", matrix)
    with pytest.raises(FileError, match=words):
        open_table(tmp_path / "a.npy")


NO_ROWS = pa.table({"v": pa.array([], pa.list_(pa.float64(), 3))})
TWO = pa.table({"p": listed(np.eye(2)), "q": listed(np.eye(2))})


@pytest.mark.parametrize(
    ("contents", "options", "words"),
    [
        (NO_ROWS, {}, "0 rows"),
        (pa.table({"v": pa.array([None, []], pa.list_(pa.float64()))}), {}, "no row with a usable vector"),
        (pa.table({"a": ["x"], "b": [1]}), {}, r"no column of vectors; .*'a' \(text\), 'b' .*--column"),
        (pa.table({"a": [["x"]]}), {}, "no column of vectors"),
        (TWO, {}, "2 columns of vectors, 'p', 'q'; choose one with --column"),
        (TWO, {"column": "r"}, "no column 'r'; give --column one of 'p', 'q'"),
        (TWO, {"extra": ["r"]}, "no column 'r'; it has 'p', 'q'"),
        (TWO, {"extra": ["q"]}, "column 'q' has vectors; expected text"),
        (table(), {"column": "name"}, r"column 'name' has text, expected lists of numbers; .*'embedding'"),
        (
            pa.Table.from_arrays([listed(np.eye(2))] * 2, names=["v", "v"]),
            {},
            "more than one column named 'v'",
        ),
    ],
)
@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_tables_without_the_column(
    tmp_path: Path, name: str, contents: pa.Table, options: dict[str, Any], words: str
) -> None:
    if name == "a.parquet":
        pq.write_table(contents, tmp_path / name)
    else:
        with pa.ipc.new_file(tmp_path / name, contents.schema) as writer:
            writer.write_table(contents)
    with pytest.raises(FileError, match=words):
        open_table(tmp_path / name, **options)


def test_a_stream_without_rows(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "a.arrow", NO_ROWS.schema):
        pass
    with pytest.raises(FileError, match="0 rows"):
        open_table(tmp_path / "a.arrow")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "id,x,y\n", "0 rows below its header"),
        ("a.csv", "name\nfoo\nbar\n", "no column of vectors; .* JSON lists"),
        ("a.csv", 'v\n"[0.1 0.2]"\n', "no column of vectors; .* JSON lists"),
        ("a.csv", "0.5,0.25\n1,2\n", "starts with a row of numbers .*header line"),
        ("a.csv", "x,x\n1,2\n", "more than one column named 'x'"),
        ("a.csv", "x,y\n1,2\n", None),
        ("a.jsonl", "\n\n", "has 0 rows"),
        ("a.jsonl", '{"a": "x"}', r"no column of vectors; .*'a' \(text\)"),
        ("a.txt", "1", r"has lines of text, not vectors"),
        ("a", "1", "has no suffix"),
    ],
)
def test_text_files_without_vectors(tmp_path: Path, name: str, text: str, words: str | None) -> None:
    (tmp_path / name).write_text(text)
    if words is None:
        assert open_table(tmp_path / name).dimension == 2
        return
    with pytest.raises(FileError, match=words):
        open_table(tmp_path / name)


def test_other_refusals(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", MATRIX)
    np.savez(tmp_path / "a.npz", v=MATRIX, short=np.arange(3))
    (tmp_path / "b.csv").write_bytes(b"name,x,y\n\xff\xfe,1,2\n")
    with pytest.raises(FileError, match=r"no column 'x': it is one array"):
        open_table(tmp_path / "a.npy", column="x")
    with pytest.raises(FileError, match="'short' has 3 entries for 23 vectors"):
        open_table(tmp_path / "a.npz", extra=["short"])
    with pytest.raises(FileError, match="is a folder"):
        open_table(tmp_path)
    with pytest.raises(FileError, match=r"not UTF-8 text .*save it as UTF-8"):
        list(open_table(tmp_path / "b.csv", extra=["name"]))
    with pytest.raises(InputError, match="at least 1"):
        open_table(tmp_path / "a.npy", batch_rows=0)
