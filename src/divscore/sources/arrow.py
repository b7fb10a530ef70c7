"""Tables of vectors, which are the column of lists of numbers; and Parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.manifest import ABOUT_KEY, read_embedded
from divscore.sources.places import Location, quoted
from divscore.sources.table import (
    Block,
    Piece,
    Request,
    Table,
    Texts,
    decoded,
    kind_of,
    lengths_of,
    matrix_of,
    pictures_of,
    stored,
    stored_type,
    texts_of,
)

__all__ = ["ArrowSource", "HiveSource", "ParquetSource", "TableSource"]


# Reads a column chunk piece by piece; without it pyarrow holds a row group's whole chunk in memory.
READ_AT_ONCE = 8 << 20
PEEK_ROWS = 64
PIECE_ROWS = 65_536  # row groups are gathered until they have as many rows


class TableSource(Table):
    """What Parquet and Arrow files share: a schema, and record batches."""

    format: ClassVar[str]

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        with location.reading(self.format):
            schema = self._read_schema()
            self.columns = {field.name: kind_of(stored_type(field.type)) for field in schema}
        if len(self.columns) < len(schema.names):
            twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
            raise FileError(f"{self.path} has more than one column named {quoted(twice)}; rename them")
        self.metadata = decoded(schema.metadata)
        if request.piece is None:  # or else it was read when the file was cut
            about = read_embedded(self.metadata, self.label)
            self.missing = about.missing if about else ()
        self._require(self.columns)
        self._column = self._choose(self.columns) if request.vectors else ""
        with location.reading(self.format):
            self.rows = self._count_rows()
        if not request.vectors:
            return
        if request.dimension:
            self.dimension = request.dimension
        elif self.rows != 0:
            self.dimension = self._find_dimension(stored_type(schema.field(self._column).type))
        if self.rows == 0 and ABOUT_KEY in self.metadata:
            # A part of a job in which no item had a vector is no mistake.
            self.dimension = getattr(schema.field(self._column).type, "list_size", 0)
            if self.dimension:
                return
        self._check_shape()

    def _read_schema(self) -> Any:
        raise NotImplementedError

    def _count_rows(self) -> int | None:
        raise NotImplementedError

    def _batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        raise NotImplementedError

    def _find_dimension(self, kind: Any) -> int:
        import pyarrow as pa

        with self.location.reading(self.format):
            if pa.types.is_fixed_size_list(kind):
                if self.rows is None and not any(
                    b.num_rows for b in self._batches([self._column], PEEK_ROWS)
                ):
                    self.rows = 0
                return int(kind.list_size)
            for batch in self._batches([self._column], PEEK_ROWS):
                lengths = lengths_of(stored(batch.column(self._column)))
                if (lengths > 0).any():
                    return int(lengths[lengths > 0][0])
        return 0

    def _blocks(self) -> Iterator[Block]:
        if not self.request.vectors:
            yield from self._items()
            return
        first = self.request.piece.first if self.request.piece else 0
        step = self.request.rows_within(self.dimension, 4)
        with self.location.reading(self.format):
            for batch in self._batches([self._column, *self.request.extra], step):
                column = stored(batch.column(self._column))
                vectors, good = matrix_of(column, self.dimension)
                values = {name: texts_of(batch.column(name)) for name in self.request.extra}
                if good is not None:
                    self._refuse_rows(column, good, first)
                    values = {name: texts.where(good) for name, texts in values.items()}
                first += batch.num_rows
                if len(vectors):
                    yield Block(vectors, values)

    def _items(self) -> Iterator[Block]:
        extra, picture = self.request.extra, self.request.pictures
        read = dict.fromkeys([*extra, *([picture] if picture else [])])
        with self.location.reading(self.format):
            for batch in self._batches(list(read), self.request.batch_rows):
                values = {name: texts_of(batch.column(name)) for name in extra}
                pictures = pictures_of(batch.column(picture)) if picture else ()
                yield Block.without_vectors(batch.num_rows, values, pictures)

    def _refuse_rows(self, column: Any, good: NDArray[np.bool_], first: int) -> None:
        def reason(row: int) -> str:
            value = column[row - first].as_py()
            if value is None:
                return "has no vector (null)"
            if len(value) != self.dimension:
                return f"has a vector of length {len(value)}, not {self.dimension}"
            return "has a vector with a missing number (null)"

        self._refuse((first + np.flatnonzero(~good)).tolist(), reason)


class ParquetSource(TableSource):
    """A Parquet file, decoded a few megabytes at a time."""

    format = "Parquet"

    def __init__(self, location: Location, request: Request) -> None:
        self._footer: Any = None  # read once
        super().__init__(location, request)

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Consecutive row groups, gathered until they have `PIECE_ROWS` rows."""
        found: list[Piece] = []
        start = first = count = 0
        for group in range(self._footer.num_row_groups):
            count += int(self._footer.row_group(group).num_rows)
            if count >= (rows or PIECE_ROWS) or group + 1 == self._footer.num_row_groups:
                found.append(Piece(start, group + 1, "row groups", count, first))
                start, first, count = group + 1, first + count, 0
        return found

    def _read_schema(self) -> Any:
        with self._file() as file:
            return file.schema_arrow

    def _count_rows(self) -> int | None:
        piece = self.request.piece
        return piece.rows if piece else int(self._footer.num_rows)

    def _batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        piece = self.request.piece
        groups = list(range(piece.start, piece.stop)) if piece else None
        with self._file() as file:
            yield from file.iter_batches(batch_size=rows, columns=list(columns), row_groups=groups)

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        source = self.location.open() if self.location.remote else self.location.url
        options = {"pre_buffer": False, "buffer_size": READ_AT_ONCE, "metadata": self._footer}
        with pq.ParquetFile(source, **options) as file:
            self._footer = file.metadata
            yield file


# Arrow IPC files: record batches, mapped into memory.

# Record batches are gathered until they take as many bytes, which is known without reading them.
PIECE_BYTES = 64 << 20


class ArrowSource(TableSource):
    """An Arrow IPC file (or stream), memory-mapped."""

    format = "Arrow IPC"

    def _read_schema(self) -> Any:
        import pyarrow as pa

        with self._file() as file:
            return (pa.ipc.open_file if _is_random_access(file) else pa.ipc.open_stream)(file).schema

    def _count_rows(self) -> int | None:
        """Add up the batches; None where that would read the whole file (remote, compressed, a stream)."""
        import pyarrow as pa

        if self.request.piece:
            return self.request.piece.rows
        with self._file() as file:
            if self.location.remote or not _is_random_access(file):
                return None
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            first = next(batches, None)
            if first is None or reader.num_record_batches == 1:
                return 0 if first is None else int(first.num_rows)
            return sum((int(b.num_rows) for b in batches), first.num_rows) if _is_view(first, file) else None

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Consecutive record batches, as many as take `PIECE_BYTES` on the average."""
        import pyarrow as pa

        with self.location.reading(self.format), self._file() as file:
            if not _is_random_access(file):
                return []
            size = file.size()
            reader = pa.ipc.open_file(file)
            count = reader.num_record_batches
            step = max(1, -(-PIECE_BYTES * count // max(1, size)))
            found: list[Piece] = []
            first = 0
            for start in range(0, count, step):
                stop = min(start + step, count)
                number = None
                if self.rows is not None:
                    number = sum(int(reader.get_batch(at).num_rows) for at in range(start, stop))
                found.append(Piece(start, stop, "record batches", number, first))
                first += number or 0
            return found

    def _batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        # Choosing columns makes pyarrow copy them out of a memory map: done only where files are fetched.
        chosen = [list(self.columns).index(name) for name in columns] if self.location.remote else None
        options = pa.ipc.IpcReadOptions(included_fields=chosen)
        with self._file() as file:
            for batch in _read_batches(file, options, self.request.piece):
                for name in columns:
                    # A damaged file may hold offsets that point outside of it.
                    batch.column(name).validate(full=True)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        import pyarrow as pa

        if self.location.remote:
            with self.location.open() as stream:
                yield pa.PythonFile(stream, mode="r")
            return
        # Not closed here: blocks that were handed out may still view the mapping, and keep it alive.
        yield pa.memory_map(self.location.url)


def _is_random_access(file: Any) -> bool:
    start = file.read(6)
    file.seek(0)
    if start[:4] == b"FEA1":
        raise ValueError("Feather version 1 is not Arrow IPC; write it again with a current pyarrow")
    return bool(start == b"ARROW1")


def _is_view(batch: Any, file: Any) -> bool:
    """Whether a batch lies in the mapped file as it is, not decompressed."""
    file.seek(0)
    whole = file.read_buffer(file.size())
    filled = [
        buffer
        for column in batch.columns
        for buffer in column.buffers()
        if buffer is not None and buffer.size
    ]
    return all(whole.address <= buffer.address < whole.address + whole.size for buffer in filled)


def _read_batches(file: Any, options: Any, piece: Piece | None) -> Iterator[Any]:
    import pyarrow as pa

    if not _is_random_access(file):
        yield from pa.ipc.open_stream(file, options=options)
        return
    reader = pa.ipc.open_file(file, options=options)
    for number in range(*((piece.start, piece.stop) if piece else (0, reader.num_record_batches))):
        yield reader.get_batch(number)


# Columns in the names of folders: ``country=SA/part-0.parquet``, as Hive and its successors write them.


class HiveSource(Table):
    """A file whose folders add columns to it, each with one value throughout."""

    def __init__(self, inner: Table, values: Mapping[str, str]) -> None:
        extra = (*inner.request.extra, *values)
        super().__init__(inner.location, replace(inner.request, extra=extra))
        self.inner, self.folder_values = inner, dict(values)
        self.rows, self.dimension, self.metadata = inner.rows, inner.dimension, inner.metadata
        self.missing = inner.missing
        self.columns = {**inner.columns, **dict.fromkeys(values, "text")}

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Those of the file."""
        return self.inner.pieces(rows)

    def _blocks(self) -> Iterator[Block]:
        for block in self.inner:
            rows = np.zeros(len(block.vectors), dtype=np.intp)
            own = {name: Texts([value], rows) for name, value in self.folder_values.items()}
            yield replace(block, values={**block.values, **own})
            self.unreadable, self.problems = self.inner.unreadable, self.inner.problems
        self.unreadable, self.problems = self.inner.unreadable, self.inner.problems
