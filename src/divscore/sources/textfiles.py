"""Tables of text: CSV and TSV, JSON lines, and plain lines."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import re
from collections import deque
from collections.abc import Container, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.cuts import BOM, check_records, mark_lines, mark_table, open_piece, pieces_of
from divscore.sources.pictures import IMAGE_SUFFIXES, suffix_of
from divscore.sources.places import LONGEST_HEADING, Location, NoRowsError
from divscore.sources.table import HEAD, Block, Piece, Request, Table, no_vectors
from divscore.text import brief

READ_AT_ONCE = 8 << 20
LINE = "text"  # the column of a file of plain lines
# A longer line is no item of a list but a whole document, or no text at all; a vector may take more.
LONGEST, LONGEST_RECORD = 1 << 20, 16 << 20
# Row names, and the index columns that pandas writes: numbers, but no part of a vector.
NAMES_OF_ROWS = frozenset({"id", "", "index", "unnamed: 0"})
WORDS = 4  # of running text, in a cell
EXACT_NUMBER = re.compile(r"-\d+|[-+]?\d*\.\d{3,}|[-+]?\d+(\.\d*)?[eE][-+]?\d+")  # as no column is called
EXPECTED = 'a column of JSON lists such as "[0.1, 0.2]", or columns of numbers'
JSON_KINDS = {str: "text", bool: "bool", int: "number", float: "number"}

Row = tuple[NDArray[Any], dict[str, str]]
NO_VECTOR: NDArray[Any] = np.empty(0, dtype=np.float32)


class _RecordFile(Table):
    """A file with one record per line; blank lines are no records."""

    longest = LONGEST_RECORD  # bytes of a line; compressed, a longer one may be as long as the disk

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of lines."""
        return pieces_of(self.location, mark_lines, rows)

    def _row(self, text: bytes) -> Row | str:
        """Vector and requested columns of a record, or what is wrong with it."""
        raise NotImplementedError

    def _blocks(self) -> Iterator[Block]:
        step, rows = self.request.rows_within(self.dimension), self._rows()
        while block := list(islice(rows, step)):
            numbers, vectors, records = zip(*block, strict=True)
            values = {name: [record[name] for record in records] for name in self._own}
            matrix = np.stack(vectors, dtype=np.float64) if self.request.vectors else no_vectors(len(block))
            yield Block(matrix, values, numbers=numbers)

    def _rows(self) -> Iterator[tuple[int, NDArray[Any], dict[str, str]]]:
        """Number, vector and requested columns of each record that can be read."""
        for line, number, text in self._records(self.request.piece):
            row = self._row(text) if len(text) <= self.longest else f"is longer than {self.longest:,} bytes"
            if isinstance(row, str):
                self._skip({number: row}, lines={number: line})
            else:
                yield number, *row

    def _lines(self, numbers: Sequence[int]) -> dict[int, int]:
        """The lines of records."""
        lines, last = dict[int, int](), max(numbers)
        for line, number, _ in self._records(self.request.piece):
            lines[number] = line
            if number == last:
                break
        return lines

    def _records(self, piece: Piece | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield the number of a line, the number of its record, and its text."""
        first, at = (piece.first, piece.line) if piece else (0, 0)
        number = first
        with self.location.reading("lines of text"), open_piece(self.location, piece) as stream:
            while line := stream.readline(self.longest + 1):
                at += 1
                text = line.removeprefix(BOM).strip() if at == 1 else line.strip()
                while not line.endswith(b"\n") and (line := stream.readline(self.longest + 1)):
                    pass  # the rest of an overlong line
                if text:
                    yield at, number, text
                    number += 1
        check_records(self.location, piece, number - first)


class LinesFile(_RecordFile):
    """The lines of a .txt file as a column named ``text``."""

    longest = LONGEST

    def _open(self) -> None:
        self.columns = {LINE: "text"}

    def _find_vectors(self) -> None:
        raise FileError(
            f"{self.label} has lines of text, not vectors; encode them, or name a file of vectors"
        )

    def _row(self, text: bytes) -> Row | str:
        try:
            return NO_VECTOR, {LINE: text.decode("utf-8")}
        except UnicodeDecodeError as error:
            return f"is not UTF-8 text ({error.reason})"


class JsonLinesFile(_RecordFile):
    """Vectors in a field of a .jsonl or .ndjson file: one object per line."""

    _lengths: dict[str, int]

    def _open(self) -> None:
        first = [_parsed(text) for *_, text in islice(self._records(), HEAD)]
        if not first:
            self.rows = 0
            self._check_shape()
        sample = [record for record in first if isinstance(record, dict)]
        if not sample:
            raise FileError(
                f"{self.label} has no JSON object in its first lines; expected one per line, "
                'such as {"id": "a", "embedding": [0.1, 0.2]}'
            )
        self._lengths = {}
        for record in sample:  # the first record that fills a field decides its kind
            for name, value in record.items():
                if self.columns.get(name, "other") == "other":
                    self.columns[name] = _json_kind(value)
                    if self.columns[name] == "vector":
                        self._lengths[name] = len(value)

    def _find_vectors(self) -> None:
        self.column = self._choose()
        self.dimension = self._lengths[self.column]

    def _row(self, text: bytes) -> Row | str:
        record, vector = _parsed(text), NO_VECTOR
        if isinstance(record, Exception):
            return f"is not JSON ({record})"
        if not isinstance(record, dict):
            return f"is a JSON {type(record).__name__}, not an object"
        if self.request.vectors:
            if self.column not in record:
                return f"has no field '{self.column}'"
            read = _vector(record[self.column], self.dimension)
            if isinstance(read, str):
                return read
            vector = read
        return vector, {name: _json_text(record.get(name)) for name in self._own}


def _parsed(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _json_kind(value: Any) -> str:
    if isinstance(value, list):
        return "vector" if value and not isinstance(_vector(value, len(value)), str) else "other"
    return JSON_KINDS.get(type(value), "other")


def _json_text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    # JSON may spell half a character, which no other format can hold.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _vector(value: Any, dimension: int) -> NDArray[Any] | str:
    """A parsed JSON value as a vector, or the reason why it is none."""
    if value is None:
        return "has no vector (null)"
    if not isinstance(value, list):
        return f"has {str(value)[:40]!r}, expected a list of numbers"
    if len(value) != dimension:
        return f"has a vector of length {len(value)}, not {dimension}"
    try:
        row = np.array(value)
    except ValueError:
        return "has a nested list, expected a list of numbers"
    if row.ndim != 1 or row.dtype.kind not in "fiu":
        return "has a vector with entries that are not numbers"
    return row


class DelimitedFile(Table):
    """Vectors in a .csv or .tsv file with a header line: a JSON list in one column, or all columns of numbers."""

    def __init__(self, location: Location, request: Request | None = None) -> None:
        super().__init__(location, request)
        self._delimiter = "\t"
        self._lengths: dict[str, int] = {}  # of the vectors in a column
        # Rows with too few or too many cells: those not reported yet, and those missing from the next batches.
        self._broken: dict[int, int] = {}
        self._dropped: deque[int] = deque()

    def _open(self) -> None:
        import pyarrow.csv as pc

        with self.location.reading("CSV"):
            with self.location.open() as stream:
                header = stream.readline(READ_AT_ONCE).decode("utf-8", "replace")
            if not header:  # nothing but a compressed end, or the mark of UTF-16
                raise NoRowsError(f"{self.label} has no lines; expected a header line, and at least one row")
            if self.location.suffix != ".tsv":
                # Spreadsheets often write semicolons.
                self._delimiter = next((mark for mark in (",", ";", "\t") if mark in header), ",")
            with self.location.open() as stream:
                names = self._reader(stream, pc.ConvertOptions()).schema.names
            self._check_header(names)
            for batch in self._batches(names, HEAD, None):
                self._head = {name: batch.column(name).to_pylist() for name in names}
                break
            else:
                raise NoRowsError(f"{self.label} has 0 rows below its header; expected at least one vector")
        self.columns = {name: _kind_of_cells(cells) for name, cells in self._head.items()}
        self._lengths = {
            n: _first_length(self._head[n]) for n, kind in self.columns.items() if kind == "vector"
        }

    def _check_header(self, names: list[str]) -> None:
        self._check_names(names)
        counted = ([str(i) for i in range(len(names))], [str(i + 1) for i in range(len(names))])
        if names not in counted and all(_number(name) is not None for name in names):
            raise FileError(
                f"{self.label} starts with a row of numbers ({', '.join(names[:3])}, …), expected a header line; "
                "add one that names the columns"
            )

    def check_header(self, usual: Container[str]) -> None:
        """Refuse a header with a cell that looks like those below it."""
        if any(name.strip().lower() in usual for name in self._head):
            return
        for name, cells in self._head.items():
            if _is_example(name.strip(), [cell.strip() for cell in cells if cell.strip()]):
                raise FileError(
                    f"{self.label} begins with an example ('{brief(name)}'), expected a header line; add one that "
                    "names the columns, such as text,group"
                )

    def _find_vectors(self) -> None:
        self.number_columns = self._numbers(NAMES_OF_ROWS)
        self.column = "" if self.number_columns else self._choose(EXPECTED)
        self.dimension = len(self.number_columns) or self._lengths[self.column]

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of records."""
        return pieces_of(self.location, partial(mark_table, delimiter=self._delimiter), rows)

    def _blocks(self) -> Iterator[Block]:
        request, own = self.request, self._own
        columns = [*(self.number_columns or [self.column]), *own] if request.vectors else list(own)
        with self.location.reading("CSV"):
            # For pyarrow no columns would mean all of them.
            for numbers, batch in self._numbered(columns or list(self.columns)[:1]):
                values = {name: batch.column(name).to_pylist() for name in own}
                if not request.vectors:
                    yield Block(no_vectors(batch.num_rows), values, numbers=numbers)
                    continue
                vectors, reasons = self._vectors(batch)
                if reasons:
                    self._skip({numbers[row]: reasons[row] for row in sorted(reasons)})
                    good = [row for row in range(batch.num_rows) if row not in reasons]
                    numbers = [numbers[row] for row in good]
                    values = {name: [texts[row] for row in good] for name, texts in values.items()}
                if len(vectors):
                    yield Block(vectors, values, numbers=numbers)

    def _numbered(self, columns: Sequence[str]) -> Iterator[tuple[Sequence[int], Any]]:
        """Rows of the file, some at a time, and their numbers."""
        piece = self.request.piece
        first = following = piece.first if piece else 0
        self._broken, self._dropped = {}, deque()
        for batch in self._batches(columns, self.request.rows_within(self.dimension), piece):
            self._skip_broken()
            numbers: Sequence[int] = range(following, following + batch.num_rows)
            if self._dropped and self._dropped[0] <= numbers[-1]:
                # The reader left out rows among these: the numbers go around them.
                numbers = []
                while len(numbers) < batch.num_rows:
                    if self._dropped and self._dropped[0] == following:
                        self._dropped.popleft()
                    else:
                        numbers.append(following)
                    following += 1
            following = numbers[-1] + 1
            yield numbers, batch
        self._skip_broken()
        check_records(self.location, piece, following + len(self._dropped) - first)

    def _lines(self, numbers: Sequence[int]) -> dict[int, int]:
        """The lines of records, which may have several: read again, as pyarrow does not count them."""
        piece, wanted, lines = self.request.piece, set(numbers), dict[int, int]()
        following = piece.first if piece else 0
        if piece is None or not piece.start:
            following -= 1  # the header
        with self.location.reading("CSV"), open_piece(self.location, piece) as stream:
            rows = csv.reader(io.TextIOWrapper(stream, "utf-8", newline=""), delimiter=self._delimiter)
            line = piece.line if piece else 0
            before = 0
            with contextlib.suppress(csv.Error):  # a longer cell than it reads
                for row in rows:
                    if row and following in wanted:
                        lines[following] = line + before + 1
                        if len(lines) == len(wanted):
                            break
                    following += bool(row)
                    before = rows.line_num
        return lines

    def _skip_broken(self) -> None:
        cells, self._broken = self._broken, {}
        header = len(self.columns)
        self._skip({row: f"has {count} cells, the header has {header}" for row, count in cells.items()})

    def _vectors(self, batch: Any) -> tuple[NDArray[Any], dict[int, str]]:
        """Vectors of the batch's good rows, and what is wrong with the others."""
        if not self.number_columns:
            return _from_lists(batch.column(self.column).to_pylist(), self.dimension)
        vectors = np.empty((batch.num_rows, self.dimension))
        reasons: dict[int, str] = {}
        for position, name in enumerate(self.number_columns):
            vectors[:, position], wrong = _from_numbers(batch.column(name))
            for row, cell in wrong.items():
                reasons.setdefault(row, f"has {cell[:40]!r} in column '{name}', not a number")
        return (np.delete(vectors, list(reasons), axis=0) if reasons else vectors), reasons

    def _batches(self, columns: Sequence[str], step: int, piece: Piece | None) -> Iterator[Any]:
        """Read every cell as text: numbers that turn up late in a column of text then cannot fail."""
        import pyarrow as pa
        import pyarrow.csv as pc

        convert = pc.ConvertOptions(
            column_types={name: pa.string() for name in columns}, include_columns=list(columns)
        )
        with open_piece(self.location, piece) as stream:
            for batch in self._reader(stream, convert, piece):
                for start in range(0, batch.num_rows, step):
                    yield batch.slice(start, step)

    def _reader(self, stream: Any, convert: Any, piece: Piece | None = None) -> Any:
        import pyarrow.csv as pc

        # A piece without the header gets the names from the file's.
        names = list(self.columns) if piece and piece.start else None
        # pyarrow counts from 1 and counts the header.
        before = (piece.first if piece else 0) - (1 if names else 2)

        def drop(row: Any) -> str:
            self._broken[before + row.number] = row.actual_columns
            self._dropped.append(before + row.number)
            return "skip"

        return pc.open_csv(
            # The reader takes a mark off the start of what it reads; any other, also after a cut, is text.
            _Utf8(stream, self.label, BOM if names else b""),
            # Only the serial reader reports the numbers of broken rows.
            read_options=pc.ReadOptions(block_size=READ_AT_ONCE, use_threads=False, column_names=names),
            parse_options=pc.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=drop
            ),
            convert_options=convert,
        )


class _Utf8(io.BufferedIOBase):
    """A stream that refuses other encodings, which pyarrow would report for some rows only."""

    def __init__(self, stream: BinaryIO, label: str, head: bytes) -> None:
        self._stream = stream
        self._kept = head  # comes next
        self._label = label
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None or size < 0 else max(1, size - len(self._kept))
        data, self._kept = self._kept + self._stream.read(wanted), b""
        if len(data) > 1 and data.endswith(b"\r"):
            # Between two reads pyarrow drops the rest of such a line break, also inside quotes.
            data, self._kept = data[:-1], b"\r"
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise FileError(f"{self._label} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
        return data


# Cells of a delimited file: the kind of column they make, and the numbers in them.


def _is_example(name: str, cells: Sequence[str]) -> bool:
    """Whether the name of a column looks like one of its cells: the file may have no header."""
    if not name or not cells:
        return False
    same, half = cells.count(name), len(cells) / 2
    if same > 1 or (same and len(set(cells)) <= half):
        return True  # such as the name of a group
    if suffix_of(name) in IMAGE_SUFFIXES:
        return sum(suffix_of(cell) in IMAGE_SUFFIXES for cell in cells) > half
    if EXACT_NUMBER.fullmatch(name) or _list(name):
        return True
    # Running text; but a question may be the name of a column of answers.
    wordy = sum(len(cell.split()) >= WORDS for cell in cells) > half
    return wordy and len(name) > LONGEST_HEADING and len(name.split()) >= WORDS and name[-1] not in "?:"


def _kind_of_cells(cells: list[str]) -> str:
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
    """Length of the first vector among some cells; 0 if there is none."""
    for cell in cells:
        value = _list(cell)
        if value and not isinstance(_vector(value, len(value)), str):
            return len(value)
    return 0


def _list(cell: str) -> list[Any] | None:
    value = _parsed(cell) if cell.lstrip().startswith("[") else None
    return value if isinstance(value, list) else None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _from_numbers(column: Any) -> tuple[NDArray[Any], dict[int, str]]:
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
    # Parsed all at once; cell by cell only to learn which are wrong.
    with contextlib.suppress(ValueError, RecursionError):
        matrix = np.array(json.loads(f"[{','.join(cells)}]"))
        if matrix.shape == (len(cells), dimension) and matrix.dtype.kind in "fiu":
            return matrix.astype(np.float64, copy=False), {}
    good, reasons = [], {}
    for row, cell in enumerate(cells):
        value = _list(cell)
        vector: NDArray[Any] | str = "has no vector (an empty cell)"
        if value is not None:
            vector = _vector(value, dimension)
        elif cell.strip():
            vector = f"has {cell[:40]!r}, expected a JSON list of numbers"
        if isinstance(vector, str):
            reasons[row] = vector
        else:
            good.append(vector)
    return (np.stack(good, dtype=np.float64) if good else np.empty((0, dimension))), reasons
