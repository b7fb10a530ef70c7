"""open(): a path or an object, as vectors or items, each file opened once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from vectorfiles import matrix, write

from divscore import ControlSet, audit, sources
from divscore.errors import FileError, InputError
from divscore.jobs.sketching import sketch_source
from divscore.sources import Table, arrays, arrow, open_table
from divscore.sources.recognise import Files, tables_in

VECTORS = np.random.default_rng(3).standard_normal((60, 4), dtype=np.float32)
FEEDS = [f"feed {row % 3}" for row in range(60)]


def arrow_table() -> pa.Table:
    return pa.table({"feed": FEEDS, "embedding": list(VECTORS)})


class Streamed:
    """An object of which only the Arrow interface is known, as a polars frame."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def rows_of(source: Table) -> np.ndarray[Any, Any]:
    return np.concatenate([block.vectors for block in source])


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often each Parquet file is opened."""
    counts: Counter[str] = Counter()
    real = pq.ParquetFile.__init__

    def counted(self: Any, source: Any, *args: Any, **kwargs: Any) -> None:
        counts[Path(source).name] += 1
        real(self, source, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counted)
    return counts


@pytest.mark.parametrize("thing", [arrow_table(), Streamed(arrow_table())], ids=["pyarrow", "stream"])
def test_a_table_in_memory_is_like_a_file(thing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "PIECE_ROWS", 25)
    source = sources.open(thing, extra=["feed"])
    assert (source.kind, source.rows, source.name) == ("vectors", 60, "collection")
    np.testing.assert_array_equal(rows_of(source), VECTORS)
    assert [text for block in source for text in block.values["feed"]] == FEEDS
    sent = [pickle.loads(pickle.dumps(each)) for each in source.divided()]
    assert [each.rows for each in sent] == [25, 25, 10]
    np.testing.assert_array_equal(np.concatenate([rows_of(each) for each in sent]), VECTORS)
    assert [text for each in sent for block in each for text in block.values["feed"]] == FEEDS


def test_a_frame_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["one more", "two"], "feed": ["a", "b"]}, index=["x", "y"])
    source = sources.open(frame, extra=["feed"])
    assert (source.kind, list(source.columns)) == ("text", ["text", "feed"])
    (batch,) = source
    assert (batch.contents, batch.values["feed"]) == (["one more", "two"], ["a", "b"])


def test_an_array_is_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE_ROWS", 25)
    source = sources.open(VECTORS)
    assert (source.kind, source.rows, source.dimension) == ("vectors", 60, 4)
    sent = [pickle.dumps(each) for each in source.divided()]
    assert max(map(len, sent)) < VECTORS.nbytes + 2000
    np.testing.assert_array_equal(np.concatenate([rows_of(pickle.loads(each)) for each in sent]), VECTORS)


def test_a_sparse_matrix_is_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE_ROWS", 4)
    source = sources.open(scipy.sparse.coo_array(VECTORS))
    np.testing.assert_array_equal(rows_of(source), VECTORS)
    parts = [pickle.loads(pickle.dumps(part)) for part in source.divided()]
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate([rows_of(part) for part in parts]), VECTORS)
    np.testing.assert_array_equal(rows_of(sources.open([scipy.sparse.csr_array(VECTORS)])), VECTORS)


def test_a_series_is_no_table() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(["some words", "and others"])
    control = ControlSet(np.eye(4), ["a", "b"] * 2, attribute="letter")
    for thing in (series, pandas.Series(list(VECTORS))):
        with pytest.raises(
            InputError, match=r"a Series is a single column; pass a DataFrame \(series\.to_frame"
        ):
            sources.open(thing)
        with pytest.raises(InputError, match=r"Series|numpy\.stack"):
            audit(thing, control)
    with pytest.raises(InputError, match=r"numpy\.stack"):
        ControlSet(pandas.Series(list(np.eye(4))), ["a", "b"] * 2, attribute="letter")
    with pytest.raises(InputError, match="cannot be read as a table"):
        sources.open(Streamed(pa.chunked_array([[1, 2]])))


def test_an_iterable_of_arrays_is_vectors() -> None:
    def blocks() -> Iterator[Any]:
        yield VECTORS[:20]
        yield VECTORS[20:].tolist()

    source = sources.open(blocks())
    assert source.here_only
    np.testing.assert_allclose(rows_of(source), VECTORS)
    np.testing.assert_array_equal(rows_of(sources.open([VECTORS[:5], VECTORS[5:]])), VECTORS)
    with pytest.raises(FileError, match="block 1 has vectors of 3 numbers, the first block of 4"):
        list(sources.open([VECTORS, VECTORS[:, :3]]))


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (VECTORS[0], "the array has shape"),
        (np.array([["a"]]), "the array has entries of type <U1; expected real numbers"),
        (iter([]), "yields no blocks"),
        (scipy.sparse.csr_array(np.eye(3, dtype=complex)), "expected real numbers"),
        (7, "cannot open a int; expected a path, a NumPy array"),
        (pa.table({"embedding": pa.array([], pa.list_(pa.float32(), 4))}), "the Table has 0 rows"),
    ],
)
def test_objects_that_are_refused(thing: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sources.open(thing)


@pytest.mark.parametrize("kind", ["fixed", "variable"])
def test_a_parquet_file_is_opened_once_to_plan_and_once_to_read(
    tmp_path: Path, opens: Counter[str], kind: str
) -> None:
    cells = pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 4) if kind == "fixed" else list(VECTORS)
    pq.write_table(pa.table({"feed": FEEDS, "embedding": cells}), tmp_path / "a.parquet")
    control = ControlSet(VECTORS[:8], ["a", "b"] * 4, attribute="letter")
    source = sources.open(tmp_path / "a.parquet", extra=["feed"])
    assert (source.kind, source.columns, opens["a.parquet"]) == (
        "vectors",
        {"feed": "text", "embedding": "vector"},
        1,
    )
    assert set(sketch_source(source, control, by="feed").sketches) == set(FEEDS)
    assert opens["a.parquet"] == 2
    worker = pickle.loads(pickle.dumps(next(iter(source.divided()))))
    opens.clear()
    np.testing.assert_array_equal(rows_of(worker), VECTORS)
    assert opens["a.parquet"] == 1


def test_a_parquet_file_of_texts_is_opened_once_to_plan(tmp_path: Path, opens: Counter[str]) -> None:
    table = pa.table({"bio": ["some words of mine"] * 3, "feed": ["a", "b", "a"]})
    for name in ("0", "1"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    items = sources.open(tmp_path, extra=["feed"])
    assert (items.kind, items.column, items.rows, dict(opens)) == (
        "text",
        "bio",
        6,
        {"0.parquet": 1, "1.parquet": 1},
    )
    assert [batch.values["feed"] for batch in items.select(["feed"])] == [["a", "b", "a"]] * 2
    assert set(opens.values()) == {2}


def test_other_columns_are_read_without_opening_it_again(tmp_path: Path, opens: Counter[str]) -> None:
    pq.write_table(arrow_table(), tmp_path / "a.parquet")
    source = open_table(tmp_path / "a.parquet")
    chosen = source.select(extra=("feed",))
    assert (opens["a.parquet"], source.request.extra) == (1, ())
    assert [text for block in chosen for text in block.values["feed"]] == FEEDS
    with pytest.raises(FileError, match="has no column 'fed'; it has 'feed', 'embedding'"):
        source.select(extra=("fed",))


# Folders of tables, and columns in the names of folders.


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
def test_folders_name_columns(hive: Path, path: str) -> None:
    source = sources.open(hive / path, extra=["country", "day"])
    values = [
        pair for block in source for pair in zip(block.values["country"], block.values["day"], strict=True)
    ]
    assert Counter(values) == {("SA", "1"): 288, ("SA", "2"): 288, ("Côte d'Ivoire", "1"): 288}


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


def test_a_column_that_is_nowhere_is_refused(hive: Path) -> None:
    with pytest.raises(FileError, match=r"no column 'city'; it has .*; its folders add 'country', 'day'"):
        sources.open(hive, extra=["city"])


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


def test_a_folder_of_tables_is_a_collection(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    (folder / "deeper").mkdir(parents=True)
    write(folder / "deeper" / "b.npy", matrix(1))
    write(folder / "a.npy", matrix(0))
    (folder / ".hidden.npy").write_bytes(b"")
    (folder / "readme.md").write_text("words")
    source = sources.open(folder)
    assert [each.url for each in source.locations] == [
        str(folder / "a.npy"),
        str(folder / "deeper" / "b.npy"),
    ]
    assert (source.name, source.rows) == ("vectors", 600)


def test_a_folder_of_several_kinds_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", matrix(0))
    write(tmp_path / "a.parquet", matrix(0))
    with pytest.raises(FileError, match=r"several kinds \(\.npy, \.parquet\); choose some with a pattern"):
        tables_in(str(tmp_path))


def test_a_folder_with_pictures_is_one_of_pictures(tmp_path: Path) -> None:
    write(tmp_path / "labels.csv", matrix(0))
    (tmp_path / "x.jpg").write_bytes(b"")
    assert tables_in(str(tmp_path)) == Files([])
