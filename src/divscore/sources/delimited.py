"""CSV and TSV: the vector is a JSON list in one column, or all the columns of numbers."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.block import Block, Request, VectorSource
from divscore.sources.jsonlines import vector_or_reason
from divscore.sources.location import Location, NoRowsError, quoted

__all__ = ["DelimitedSource"]

READ_AT_ONCE = 8 << 20
SAMPLE = 200
# Row names, and the index columns that pandas writes: numbers, but no part of a vector.
NAMES_OF_ROWS = frozenset({"id", "", "index", "unnamed: 0"})
EXPECTED = 'a column of JSON lists such as "[0.1, 0.2]", or columns of numbers'


class DelimitedSource(VectorSource):
    """Vectors in a .csv or .tsv file with a header line."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        self._broken: list[tuple[int, int]] = []
        self.numbers: list[str] = []  # columns that are together the vector
        with location.reading("CSV"):
            self._delimiter = "\t" if location.suffix == ".tsv" else _delimiter(location)
            sample = self._sample()
        self.columns = {name: _kind(cells) for name, cells in sample.items()}
        self._require(self.columns)
        if not request.vectors:
            return
        numbers = [
            name
            for name, kind in self.columns.items()
            if kind == "number" and name not in request.extra and name.lower() not in NAMES_OF_ROWS
        ]
        whole = request.column is None and "vector" not in self.columns.values()
        self.numbers = numbers if whole else []
        self._column = "" if self.numbers else self._choose(self.columns, EXPECTED)
        self.dimension = len(self.numbers) or _first_length(sample[self._column])

    def _blocks(self) -> Iterator[Block]:
        self._broken = []
        if not self.request.vectors:
            yield from self._items()
            return
        first = reported = 0
        columns = [*(self.numbers or [self._column]), *self.request.extra]
        with self.location.reading("CSV"):
            for batch in self._batches(columns, self.request.rows_within(self.dimension)):
                reported = self._report_broken(reported)
                vectors, reasons = self._vectors(batch)
                values = {name: batch.column(name).to_pylist() for name in self.request.extra}
                if reasons:
                    self._report(reasons, first)
                    for name, texts in values.items():
                        values[name] = [text for i, text in enumerate(texts) if i not in reasons]
                first += batch.num_rows
                if len(vectors):
                    yield Block(vectors, values)
            self._report_broken(reported)

    def _items(self) -> Iterator[Block]:
        reported = 0
        with self.location.reading("CSV"):
            for batch in self._batches(self.request.extra or list(self.columns)[:1], self.request.batch_rows):
                reported = self._report_broken(reported)
                values = {name: batch.column(name).to_pylist() for name in self.request.extra}
                yield Block.without_vectors(batch.num_rows, values)
            self._report_broken(reported)

    def _vectors(self, batch: Any) -> tuple[NDArray[Any], dict[int, str]]:
        """Vectors of the batch's good rows, and what is wrong with the others."""
        if not self.numbers:
            return _from_lists(batch.column(self._column).to_pylist(), self.dimension)
        vectors = np.empty((batch.num_rows, self.dimension))
        reasons: dict[int, str] = {}
        for position, name in enumerate(self.numbers):
            vectors[:, position], wrong = _from_cells(batch.column(name))
            for row, cell in wrong.items():
                reasons.setdefault(row, f"has {cell[:40]!r} in column '{name}', not a number")
        return (np.delete(vectors, list(reasons), axis=0) if reasons else vectors), reasons

    def _report(self, reasons: dict[int, str], first: int) -> None:
        positions = first + np.array(sorted(reasons))
        # The reader drops rows with too few or too many cells, so later rows have moved up.
        broken = np.array(sorted(row for row, _ in self._broken), dtype=np.intp)
        moved = np.searchsorted(broken - np.arange(len(broken)), positions, side="right")
        rows = dict(zip((positions + moved).tolist(), (reasons[r] for r in sorted(reasons)), strict=True))
        self._refuse(rows, rows.__getitem__)

    def _report_broken(self, reported: int) -> int:
        found = dict(self._broken[reported:])
        self._refuse(found, lambda row: f"has {found[row]} cells, the header has {len(self.columns)}")
        return len(self._broken)

    def _batches(self, columns: Sequence[str], step: int) -> Iterator[Any]:
        """Read every cell as text: numbers that turn up late in a column of text then cannot fail."""
        import pyarrow as pa
        import pyarrow.csv as pc

        convert = pc.ConvertOptions(
            column_types={name: pa.string() for name in columns}, include_columns=list(columns)
        )
        with self.location.open() as stream:
            for batch in self._reader(stream, convert):
                for start in range(0, batch.num_rows, step):
                    yield batch.slice(start, step)

    def _reader(self, stream: Any, convert: Any) -> Any:
        import pyarrow.csv as pc

        def set_aside(row: Any) -> str:
            # pyarrow counts from 1 and counts the header.
            self._broken.append((row.number - 2, row.actual_columns))
            return "skip"

        return pc.open_csv(
            _Utf8(stream, self.location.label),
            # Only the serial reader tells the numbers of broken rows.
            read_options=pc.ReadOptions(block_size=READ_AT_ONCE, use_threads=False),
            parse_options=pc.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=set_aside,
            ),
            convert_options=convert,
        )

    def _sample(self) -> dict[str, list[str]]:
        import pyarrow.csv as pc

        with self.location.open() as stream:
            names = self._reader(stream, pc.ConvertOptions()).schema.names
        _check_header(names, self.location.label)
        for head in self._batches(names, SAMPLE):
            return {name: head.column(name).to_pylist() for name in names}
        raise NoRowsError(
            f"{self.location.label} holds 0 rows below its header; expected at least one vector"
        )


class _Utf8(io.BufferedIOBase):
    """A stream that refuses other encodings, which pyarrow would report for some rows only."""

    def __init__(self, stream: BinaryIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(-1 if size is None else size)
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise FileError(f"{self._label} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
        return data


def _delimiter(location: Location) -> str:
    """The comma, unless the header has none and is divided by semicolons (as spreadsheets often do) or tabs."""
    with location.open() as stream:
        header = stream.readline(READ_AT_ONCE)
    return "," if b"," in header else ";" if b";" in header else "\t" if b"\t" in header else ","


def _check_header(names: list[str], label: str) -> None:
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise FileError(f"{label} has more than one column named {quoted(twice)}; rename them")
    counted = ([str(i) for i in range(len(names))], [str(i + 1) for i in range(len(names))])
    if names not in counted and all(_number(name) is not None for name in names):
        raise FileError(
            f"{label} starts with a row of numbers ({', '.join(names[:3])}, …), expected a header line; "
            "add one that names the columns"
        )


def _kind(cells: list[str]) -> str:
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled:
        return "text"
    if all(cell.lower() in {"true", "false"} for cell in filled):
        return "bool"
    if _first_length(filled):
        return "vector"
    # A stray word among numbers makes that row unreadable; it must not drop the column from the vector.
    numbers = sum(_number(cell) is not None for cell in filled)
    return "number" if 2 * numbers >= len(filled) else "text"


def _first_length(cells: list[str]) -> int:
    for cell in cells:
        value = _list(cell)
        if value and not isinstance(vector_or_reason(value, len(value)), str):
            return len(value)
    return 0


def _list(cell: str) -> list[Any] | None:
    if not cell.lstrip().startswith("["):
        return None
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _from_cells(column: Any) -> tuple[NDArray[Any], dict[int, str]]:
    """Numbers of a column of text, and the cells that are none."""
    import pyarrow as pa

    with contextlib.suppress(pa.ArrowInvalid):
        return column.cast(pa.float64()).to_numpy(), {}
    cells = column.to_pylist()
    numbers = [_number(cell) for cell in cells]
    wrong = {row: cells[row] for row, number in enumerate(numbers) if number is None}
    return np.array(numbers, dtype=np.float64), wrong


def _from_lists(cells: list[str], dimension: int) -> tuple[NDArray[Any], dict[int, str]]:
    """Vectors of the cells that hold one, and what is wrong with the others."""
    with contextlib.suppress(ValueError, RecursionError):
        matrix = np.array(json.loads(f"[{','.join(cells)}]"))
        if matrix.shape == (len(cells), dimension) and matrix.dtype.kind in "fiu":
            return matrix.astype(np.float64, copy=False), {}
    good, reasons = [], {}
    for row, cell in enumerate(cells):
        value = _list(cell)
        vector = "has no vector (an empty cell)" if not cell.strip() else vector_or_reason(value, dimension)
        if value is None and cell.strip():
            vector = f"has {cell[:40]!r} where a JSON list of numbers should be"
        if isinstance(vector, str):
            reasons[row] = vector
        else:
            good.append(vector)
    return (np.stack(good, dtype=np.float64) if good else np.empty((0, dimension))), reasons
