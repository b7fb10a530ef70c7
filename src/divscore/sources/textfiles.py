"""CSV and TSV: the vector is a JSON list in one column, or all the columns of numbers."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.cuts import BOM, check_records, mark_lines, mark_table, open_piece, pieces_of
from divscore.sources.places import Location, NoRowsError, quoted
from divscore.sources.table import Block, Piece, Request, Table

__all__ = [
    "DelimitedSource",
    "JsonLinesSource",
    "LinesSource",
    "first_length",
    "from_lists",
    "from_numbers",
    "kind_of_cells",
    "number_of",
    "vector_or_reason",
]


# JSON lines: one object a line, the vector a list of numbers in one of its fields.

SAMPLE_JSONLINES = 200


class JsonLinesSource(Table):
    """Vectors in a field of a .jsonl or .ndjson file."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        first = [record for *_, record in islice(self._records(), SAMPLE_JSONLINES)]
        if not first:
            raise NoRowsError(f"{location.label} holds 0 rows; expected at least one vector")
        sample = [record for record in first if isinstance(record, dict)]
        if not sample:
            raise FileError(
                f"{location.label} has no JSON object in its first lines; expected one a line, "
                'such as {"id": "a", "embedding": [0.1, 0.2]}'
            )
        self.columns = _kinds(sample)
        self._column = self._choose(self.columns) if request.vectors else ""
        self._require(self.columns)
        if not request.vectors:
            return
        lengths = (len(r[self._column]) for r in sample if _kind(r.get(self._column)) == "vector")
        self.dimension = next(lengths)

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of lines."""
        return pieces_of(self.location, mark_lines, rows)

    def _blocks(self) -> Iterator[Block]:
        step = self.request.rows_within(self.dimension) if self.request.vectors else self.request.batch_rows
        rows: list[NDArray[Any]] = []
        numbers: list[int] = []
        values: dict[str, list[str]] = {name: [] for name in self.request.extra}
        for line, number, record in self._records(self.request.piece):
            row = self._vector(record)
            if isinstance(row, str):
                self._refuse([line], lambda _, why=row: why, "line")  # type: ignore[misc]
                continue
            rows.append(row)
            numbers.append(number)
            for name, column in values.items():
                column.append(_text(record.get(name)))
            if len(rows) == step:
                yield Block(np.stack(rows, dtype=np.float64), values, numbers=numbers)
                rows, numbers, values = [], [], {name: [] for name in self.request.extra}
        if rows:
            yield Block(np.stack(rows, dtype=np.float64), values, numbers=numbers)

    def _vector(self, record: Any) -> NDArray[Any] | str:
        if isinstance(record, Exception):
            return f"is not JSON ({record})"
        if not isinstance(record, dict):
            return f"is a JSON {type(record).__name__}, not an object"
        if not self.request.vectors:
            return np.empty(0)
        if self._column not in record:
            return f"lacks the field '{self._column}'"
        return vector_or_reason(record[self._column], self.dimension)

    def _records(self, piece: Piece | None = None) -> Iterator[tuple[int, int, Any]]:
        """Yield a line's number, that of its record and what it holds; blank lines are passed over."""
        first, before = (piece.first, piece.line) if piece else (0, 0)
        number = first
        with self.location.reading("JSON lines"), open_piece(self.location, piece) as stream:
            for at, line in enumerate(stream, start=before + 1):
                text = line.removeprefix(BOM).strip() if at == 1 else line.strip()
                if text:
                    yield at, number, _parse(text)
                    number += 1
        check_records(self.location, piece, number - first)


def vector_or_reason(value: Any, dimension: int) -> NDArray[Any] | str:
    """Return a parsed JSON value as a vector, or say why it is none."""
    if value is None:
        return "has no vector (null)"
    if not isinstance(value, list):
        return f"has {str(value)[:40]!r} where a list of numbers should be"
    if len(value) != dimension:
        return f"has a vector of length {len(value)}, not {dimension}"
    try:
        row = np.array(value)
    except ValueError:
        return "has a nested list where a list of numbers should be"
    if row.ndim != 1 or row.dtype.kind not in "fiu":
        return "has a vector with entries that are not numbers"
    return row


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _kinds(sample: list[dict[str, Any]]) -> dict[str, str]:
    """Tell the kind of each field from the first record that fills it."""
    kinds: dict[str, str] = {}
    for record in sample:
        for name, value in record.items():
            if kinds.get(name, "other") == "other":
                kinds[name] = _kind(value)
    return kinds


def _kind(value: Any) -> str:
    if isinstance(value, list):
        row = vector_or_reason(value, len(value))
        return "vector" if value and not isinstance(row, str) else "other"
    kinds = {str: "text", bool: "bool", int: "number", float: "number"}
    return kinds.get(type(value), "other")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    # JSON may spell half a character, which no other format can hold.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


# Cells of a text table: what kind of column they make, and the numbers they spell.


def kind_of_cells(cells: list[str]) -> str:
    """Tell the kind of a column from its first cells."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled:
        return "text"
    if all(cell.lower() in {"true", "false"} for cell in filled):
        return "bool"
    if first_length(filled):
        return "vector"
    # A stray word among numbers makes that row unreadable; it must not drop the column from the vector.
    numbers = sum(number_of(cell) is not None for cell in filled)
    return "number" if 2 * numbers >= len(filled) else "text"


def first_length(cells: list[str]) -> int:
    """How many numbers the first vector among some cells has; 0 if there is none."""
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


def number_of(cell: str) -> float | None:
    """The number that a cell spells, if it does."""
    try:
        return float(cell)
    except ValueError:
        return None


def from_numbers(column: Any) -> tuple[NDArray[Any], dict[int, str]]:
    """Numbers of a column of text, and the cells that are none."""
    import pyarrow as pa

    with contextlib.suppress(pa.ArrowInvalid):
        return column.cast(pa.float64()).to_numpy(), {}
    cells = column.to_pylist()
    numbers = [number_of(cell) for cell in cells]
    wrong = {row: cells[row] for row, number in enumerate(numbers) if number is None}
    return np.array(numbers, dtype=np.float64), wrong


def from_lists(cells: list[str], dimension: int) -> tuple[NDArray[Any], dict[int, str]]:
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


READ_AT_ONCE = 8 << 20
SAMPLE = 200
SAMPLE_BYTES = 1 << 20  # that mostly hold as many rows
# Row names, and the index columns that pandas writes: numbers, but no part of a vector.
NAMES_OF_ROWS = frozenset({"id", "", "index", "unnamed: 0"})
EXPECTED = 'a column of JSON lists such as "[0.1, 0.2]", or columns of numbers'


class DelimitedSource(Table):
    """Vectors in a .csv or .tsv file with a header line."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        # Rows with too few or too many cells: those to be told of, and those that the next batches lack.
        self._broken: dict[int, int] = {}
        self._dropped: deque[int] = deque()
        with location.reading("CSV"):
            self._delimiter = "\t" if location.suffix == ".tsv" else _delimiter(location)
            sample = self._sample()
        self.columns = {name: kind_of_cells(cells) for name, cells in sample.items()}
        self._require(self.columns)
        if not request.vectors:
            return
        numbers = [
            name
            for name, kind in self.columns.items()
            if kind == "number" and name not in request.extra and name.lower() not in NAMES_OF_ROWS
        ]
        whole = request.column is None and "vector" not in self.columns.values()
        self.number_columns = numbers if whole else []
        self._column = "" if self.number_columns else self._choose(self.columns, EXPECTED)
        self.dimension = len(self.number_columns) or first_length(sample[self._column])

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of records."""
        return pieces_of(self.location, partial(mark_table, delimiter=self._delimiter), rows)

    def _blocks(self) -> Iterator[Block]:
        columns = (
            [*(self.number_columns or [self._column]), *self.request.extra] if self.request.vectors else []
        )
        columns = columns or list(self.request.extra) or list(self.columns)[:1]
        step = self.request.rows_within(self.dimension) if self.request.vectors else self.request.batch_rows
        with self.location.reading("CSV"):
            for numbers, batch in self._numbered(columns, step):
                values = {name: batch.column(name).to_pylist() for name in self.request.extra}
                if not self.request.vectors:
                    yield Block.without_vectors(batch.num_rows, values, numbers=numbers)
                    continue
                vectors, reasons = self._vectors(batch)
                if reasons:
                    bad = {numbers[row]: reasons[row] for row in sorted(reasons)}
                    self._refuse(bad, bad.__getitem__)
                    good = [row for row in range(batch.num_rows) if row not in reasons]
                    numbers = [numbers[row] for row in good]
                    values = {name: [texts[row] for row in good] for name, texts in values.items()}
                if len(vectors):
                    yield Block(vectors, values, numbers=numbers)

    def _numbered(self, columns: Sequence[str], step: int) -> Iterator[tuple[Sequence[int], Any]]:
        """Rows of the file, some at a time, and which ones they are."""
        piece = self.request.piece
        first = following = piece.first if piece else 0
        self._broken, self._dropped = {}, deque()
        for batch in self._batches(columns, step, piece):
            self._report_broken()
            numbers: Sequence[int] = range(following, following + batch.num_rows)
            if self._dropped and self._dropped[0] <= numbers[-1]:
                numbers = self._around_dropped(following, batch.num_rows)
            following = numbers[-1] + 1
            yield numbers, batch
        self._report_broken()
        check_records(self.location, piece, following + len(self._dropped) - first)

    def _vectors(self, batch: Any) -> tuple[NDArray[Any], dict[int, str]]:
        """Vectors of the batch's good rows, and what is wrong with the others."""
        if not self.number_columns:
            return from_lists(batch.column(self._column).to_pylist(), self.dimension)
        vectors = np.empty((batch.num_rows, self.dimension))
        reasons: dict[int, str] = {}
        for position, name in enumerate(self.number_columns):
            vectors[:, position], wrong = from_numbers(batch.column(name))
            for row, cell in wrong.items():
                reasons.setdefault(row, f"has {cell[:40]!r} in column '{name}', not a number")
        return (np.delete(vectors, list(reasons), axis=0) if reasons else vectors), reasons

    def _around_dropped(self, row: int, count: int) -> list[int]:
        """The next rows that the reader has not left out."""
        found: list[int] = []
        while len(found) < count:
            if self._dropped and self._dropped[0] == row:
                self._dropped.popleft()
            else:
                found.append(row)
            row += 1
        return found

    def _report_broken(self) -> None:
        found, self._broken = self._broken, {}
        self._refuse(found, lambda row: f"has {found[row]} cells, the header has {len(self.columns)}")

    def _batches(
        self, columns: Sequence[str], step: int, piece: Piece | None = None, block: int = READ_AT_ONCE
    ) -> Iterator[Any]:
        """Read every cell as text: numbers that turn up late in a column of text then cannot fail."""
        import pyarrow as pa
        import pyarrow.csv as pc

        convert = pc.ConvertOptions(
            column_types={name: pa.string() for name in columns}, include_columns=list(columns)
        )
        with open_piece(self.location, piece) as stream:
            for batch in self._reader(stream, convert, block, piece):
                for start in range(0, batch.num_rows, step):
                    yield batch.slice(start, step)

    def _reader(self, stream: Any, convert: Any, block: int, piece: Piece | None = None) -> Any:
        import pyarrow.csv as pc

        # Without a header a piece has the names of the file's.
        names = list(self.columns) if piece and piece.start else None
        # pyarrow counts from 1 and counts the header.
        before = (piece.first if piece else 0) - (1 if names else 2)

        def set_aside(row: Any) -> str:
            self._broken[before + row.number] = row.actual_columns
            self._dropped.append(before + row.number)
            return "skip"

        return pc.open_csv(
            # The reader takes a mark off the start of what it reads; any other, also after a cut, is text.
            _Utf8(stream, self.location.label, BOM if names else b""),
            # Only the serial reader tells the numbers of broken rows.
            read_options=pc.ReadOptions(block_size=block, use_threads=False, column_names=names),
            parse_options=pc.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=set_aside,
            ),
            convert_options=convert,
        )

    def _sample(self) -> dict[str, list[str]]:
        """The first rows of the file, whichever of its pieces is read; a piece is not worth much reading for that."""
        import pyarrow as pa

        if self.request.piece:
            with contextlib.suppress(pa.ArrowInvalid, NoRowsError):
                head = self._head(SAMPLE_BYTES)
                if len(next(iter(head.values()))) == SAMPLE:
                    return head
        return self._head(READ_AT_ONCE)

    def _head(self, block: int) -> dict[str, list[str]]:
        import pyarrow.csv as pc

        with self.location.open() as stream:
            names = self._reader(stream, pc.ConvertOptions(), block).schema.names
        _check_header(names, self.location.label)
        for head in self._batches(names, SAMPLE, block=block):
            return {name: head.column(name).to_pylist() for name in names}
        raise NoRowsError(
            f"{self.location.label} holds 0 rows below its header; expected at least one vector"
        )


class _Utf8(io.BufferedIOBase):
    """A stream that refuses other encodings, which pyarrow would report for some rows only."""

    def __init__(self, stream: BinaryIO, label: str, head: bytes) -> None:
        self._stream = stream
        self._held = head  # comes next
        self._label = label
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None or size < 0 else max(1, size - len(self._held))
        data, self._held = self._held + self._stream.read(wanted), b""
        if len(data) > 1 and data.endswith(b"\r"):
            # Between two reads pyarrow takes the rest of such a line break away, also inside quotes.
            data, self._held = data[:-1], b"\r"
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
    if names not in counted and all(number_of(name) is not None for name in names):
        raise FileError(
            f"{label} starts with a row of numbers ({', '.join(names[:3])}, …), expected a header line; "
            "add one that names the columns"
        )


# Plain text: every line is an item.

COLUMN = "text"
# A line beyond this is no item of a list but a whole document, or no text at all.
LONGEST = 1 << 20


class LinesSource(Table):
    """The lines of a .txt file as a column named ``text``; blank lines are passed over."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        self.columns = {COLUMN: "text"}
        self._require(self.columns)

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of lines."""
        return pieces_of(self.location, mark_lines, rows)

    def _blocks(self) -> Iterator[Block]:
        piece = self.request.piece
        first = piece.first if piece else 0
        number = first - 1
        texts: list[str] = []
        numbers: list[int] = []
        for number, (at, line) in enumerate(self._lines(piece), start=first):
            reason = _trouble(line)
            if reason:
                self._refuse([at], lambda _, why=reason: why, "line")  # type: ignore[misc]
                continue
            texts.append(line.decode("utf-8"))
            numbers.append(number)
            if len(texts) == self.request.batch_rows:
                yield self._block(texts, numbers)
                texts, numbers = [], []
        if texts:
            yield self._block(texts, numbers)
        check_records(self.location, piece, number + 1 - first)

    def _block(self, texts: list[str], numbers: list[int]) -> Block:
        return Block.without_vectors(len(texts), dict.fromkeys(self.request.extra, texts), numbers=numbers)

    def _lines(self, piece: Piece | None) -> Iterator[tuple[int, bytes]]:
        with self.location.reading("text"), open_piece(self.location, piece) as stream:
            number = piece.line if piece else 0
            while line := stream.readline(LONGEST + 1):
                number += 1
                whole = line
                while not line.endswith(b"\n") and (line := stream.readline(LONGEST)):
                    pass  # the rest of an overlong line
                text = whole.removeprefix(BOM).strip() if number == 1 else whole.strip()
                if text:
                    yield number, text


def _trouble(line: bytes) -> str:
    if len(line) > LONGEST:
        return f"is longer than {LONGEST:,} bytes"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text ({error.reason})"
    return ""
