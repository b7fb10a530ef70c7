"""CSV and TSV: the vector is a JSON list in one column, or all the columns of numbers."""

from __future__ import annotations

import codecs
import contextlib
import io
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.byterange import check_records, open_piece
from divscore.sources.cuts import BOM, mark_table, pieces_of
from divscore.sources.places import Location, NoRowsError, quoted
from divscore.sources.table import Block, Piece, Request, VectorSource
from divscore.sources.textcells import first_length, from_lists, from_numbers, kind_of_cells, number_of

__all__ = ["DelimitedSource"]

READ_AT_ONCE = 8 << 20
SAMPLE = 200
SAMPLE_BYTES = 1 << 20  # that mostly hold as many rows
# Row names, and the index columns that pandas writes: numbers, but no part of a vector.
NAMES_OF_ROWS = frozenset({"id", "", "index", "unnamed: 0"})
EXPECTED = 'a column of JSON lists such as "[0.1, 0.2]", or columns of numbers'


class DelimitedSource(VectorSource):
    """Vectors in a .csv or .tsv file with a header line."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        # Rows with too few or too many cells: those to be told of, and those that the next batches lack.
        self._broken: dict[int, int] = {}
        self._dropped: deque[int] = deque()
        self.numbers: list[str] = []  # columns that are together the vector
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
        self.numbers = numbers if whole else []
        self._column = "" if self.numbers else self._choose(self.columns, EXPECTED)
        self.dimension = len(self.numbers) or first_length(sample[self._column])

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of records."""
        return pieces_of(self.location, partial(mark_table, delimiter=self._delimiter), rows)

    def _blocks(self) -> Iterator[Block]:
        columns = [*(self.numbers or [self._column]), *self.request.extra] if self.request.vectors else []
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
        if not self.numbers:
            return from_lists(batch.column(self._column).to_pylist(), self.dimension)
        vectors = np.empty((batch.num_rows, self.dimension))
        reasons: dict[int, str] = {}
        for position, name in enumerate(self.numbers):
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
