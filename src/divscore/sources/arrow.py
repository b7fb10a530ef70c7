"""Tables in Arrow's form: Parquet files, Arrow IPC files, and objects with the Arrow interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError
from divscore.sources.manifest import read_embedded
from divscore.sources.places import Location
from divscore.sources.table import (
    BLOCK_BYTES,
    HEAD,
    PROBLEMS_KEPT,
    Block,
    Piece,
    Request,
    Table,
    Texts,
    as_float,
    no_vectors,
)

# Reads a column chunk piece by piece; without it pyarrow holds a row group's whole chunk in memory.
READ_AT_ONCE = 8 << 20
PEEK_ROWS = 64
PIECE_ROWS = 65_536  # row groups are gathered until they have as many rows
PIECE_BYTES = 64 << 20  # of record batches, which is known without reading them
MOST_NAMES = 65_536  # of a dictionary that is kept from block to block
STACKED = "__numbers"  # a column of vectors, made from columns of numbers
INDEX = "__index_level_"  # how pandas names an index without a name


class ArrowTable(Table):
    """What all of them share: a schema, and record batches."""

    format: ClassVar[str]

    def __init__(self, location: Location, request: Request | None = None) -> None:
        super().__init__(location, request)
        self._dimensions: dict[str, int] = {}  # of columns of vectors
        self._may_be_empty = False

    # Each format implements these; `file` is what `_file` yields.
    _file: Callable[[], contextlib.AbstractContextManager[Any]]
    _schema: Callable[[Any], Any]
    _count: Callable[[Any], int | None]
    _batches: Callable[[Any, Sequence[str], int], Iterator[Any]]

    def _open(self) -> None:
        with self.location.reading(self.format), self._file() as file:
            schema = self._schema(file)
            self._check_names(schema.names)
            # Below an extension type, such as a fixed-shape tensor, is a plain one.
            types = {each.name: getattr(each.type, "storage_type", each.type) for each in schema}
            self.columns = {name: kind_of(type_) for name, type_ in types.items()}
            pairs = (schema.metadata or {}).items()
            self.metadata = {
                key.decode(errors="replace"): text.decode(errors="replace") for key, text in pairs
            }
            self.embedded = read_embedded(self.metadata, self.label)
            if self.embedded is not None:
                # A part of a job in which no item had a vector is no mistake.
                self.missing, self._may_be_empty = self.embedded.missing, True
            self.rows = self._count(file)
            vectors = [name for name, kind in self.columns.items() if kind == "vector"]
            self._dimensions = {name: getattr(types[name], "list_size", 0) for name in vectors}
            # While the file is open, read what will probably be needed next.
            if len(vectors) == 1:
                self._peek(file, vectors[0])
            texts = [name for name, kind in self.columns.items() if kind == "text"]
            if texts and not vectors and self.request.peek:
                # Damaged rows are an error when they are read, not here.
                with contextlib.suppress(Exception):
                    batch = next(self._batches(file, texts, HEAD))
                    self._head = {name: list(texts_of(batch.column(name))) for name in texts}

    def _peek(self, file: Any, column: str) -> None:
        """Find the dimension of a column, and whether there are rows, where the schema does not say."""
        if self.rows == 0 or (self.rows is not None and self._dimensions[column]):
            return
        empty = True
        for batch in self._batches(file, [column], PEEK_ROWS):
            empty = empty and not batch.num_rows
            lengths = _lengths(_stored(batch.column(column)))
            if (lengths > 0).any():
                self._dimensions[column] = int(lengths[lengths > 0][0])
                break
        self.rows = 0 if empty else self.rows

    def _find_vectors(self) -> None:
        self.column = self._choose()
        if not self._dimensions[self.column] and self.rows != 0:
            with self.location.reading(self.format), self._file() as file:
                self._peek(file, self.column)
        self.dimension = self._dimensions[self.column]
        if not (self.rows == 0 and self.dimension and self._may_be_empty):
            self._check_shape()

    def _blocks(self) -> Iterator[Block]:
        request, own = self.request, self._own
        vectors, pictures = self.column if request.vectors else None, request.pictures
        columns = list(dict.fromkeys([*own, *(name for name in (vectors, pictures) if name)]))
        first, complete = request.piece.first if request.piece else 0, True
        names = _Names()
        with self.location.reading(self.format), self._file() as file:
            for batch in self._batches(file, columns, request.rows_within(self.dimension, 4)):
                values = {name: texts_of(batch.column(name), names) for name in own}
                if vectors is None:
                    contents = _pictures(batch.column(pictures)) if pictures else ()
                    yield Block(no_vectors(batch.num_rows), values, contents)
                    continue
                column = _stored(batch.column(vectors))
                matrix, good = _matrix(column, self.dimension)
                numbers: Sequence[int] = () if complete else range(first, first + batch.num_rows)
                if good is not None:
                    self._skip_rows(column, good, first)
                    values = {name: texts.where(good) for name, texts in values.items()}
                    numbers, complete = (first + np.flatnonzero(good)).tolist(), False
                first += batch.num_rows
                if len(matrix):
                    yield Block(matrix, values, numbers=numbers)

    def _skip_rows(self, column: Any, good: NDArray[np.bool_], first: int) -> None:
        bad, reasons = np.flatnonzero(~good).tolist(), {}
        for row in bad[:PROBLEMS_KEPT]:  # a reason takes a Python object: no more than are shown
            value = column[row].as_py()
            reasons[first + row] = "has a vector with a missing number (null)"
            if value is None:
                reasons[first + row] = "has no vector (null)"
            elif len(value) != self.dimension:
                reasons[first + row] = f"has a vector of length {len(value)}, not {self.dimension}"
        self._skip(reasons, more=len(bad) - len(reasons))


class ParquetFile(ArrowTable):
    """A Parquet file, decoded a few megabytes at a time."""

    format = "Parquet"
    _footer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_footer": None}  # large where row groups are many

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Consecutive row groups, gathered until they have `PIECE_ROWS` rows."""
        # A reader can begin only where a row group does; small ones are joined, as each piece opens the file.
        pieces: list[Piece] = []
        start = first = count = 0
        for group in range(self._footer.num_row_groups):
            count += int(self._footer.row_group(group).num_rows)
            if count >= (rows or PIECE_ROWS) or group + 1 == self._footer.num_row_groups:
                pieces.append(Piece(start, group + 1, "row groups", count, first))
                start, first, count = group + 1, first + count, 0
        return pieces

    def _schema(self, file: Any) -> Any:
        self._footer = file.metadata
        return file.schema_arrow

    def _count(self, file: Any) -> int | None:
        return int(file.metadata.num_rows)

    def _batches(self, file: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
        piece = self.request.piece
        groups = list(range(piece.start, piece.stop)) if piece else None
        # Decoding takes three times the memory of a batch, so large blocks are left to formats that are mapped.
        rows = min(rows, max(1, BLOCK_BYTES // (4 * max(1, self.dimension or 1))))
        return iter(file.iter_batches(batch_size=rows, columns=list(columns), row_groups=groups))

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        source = self.location.open() if self.location.remote else self.location.url
        # The footer is read once: it is megabytes long in a file of many columns or row groups.
        options = {"pre_buffer": False, "buffer_size": READ_AT_ONCE, "metadata": self._footer}
        with pq.ParquetFile(source, **options) as file:
            yield file


class IpcFile(ArrowTable):
    """An Arrow IPC file (or stream), memory-mapped."""

    format = "Arrow IPC"

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Consecutive record batches, as many as take `PIECE_BYTES` on the average."""
        pieces: list[Piece] = []
        with self.location.reading(self.format), self._file() as file:
            reader = _ipc_reader(file)
            count = getattr(reader, "num_record_batches", 0)
            step = max(1, -(-PIECE_BYTES * count // max(1, file.size()))) if count else 1
            first = 0
            for start in range(0, count, step):
                stop, number = min(start + step, count), None
                # Counting reads the batches, unless they are views of the mapped file.
                if self.rows is not None:
                    number = sum(int(reader.get_batch(at).num_rows) for at in range(start, stop))
                pieces.append(Piece(start, stop, "record batches", number, first))
                first += number or 0
        return pieces

    def _schema(self, file: Any) -> Any:
        return _ipc_reader(file).schema

    def _count(self, file: Any) -> int | None:
        """Add up the batches; None where that would read the whole file (remote, compressed, a stream)."""
        reader = _ipc_reader(file)
        count = getattr(reader, "num_record_batches", None)
        if self.location.remote or count is None or (count > 1 and not _is_view(reader.get_batch(0), file)):
            return None
        return sum(int(reader.get_batch(number).num_rows) for number in range(count))

    def _batches(self, file: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
        # Choosing columns makes pyarrow copy them out of a memory map: done only where files are fetched.
        chosen = [list(self.columns).index(name) for name in columns] if self.location.remote else None
        reader, piece = _ipc_reader(file, chosen), self.request.piece
        batches: Iterable[Any] = reader
        if hasattr(reader, "get_batch"):
            numbers = range(piece.start, piece.stop) if piece else range(reader.num_record_batches)
            batches = map(reader.get_batch, numbers)
        for batch in batches:
            for name in columns:
                # A damaged file may have offsets that point outside of it.
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
        # Not closed here: blocks may still view the mapping, and keep it alive.
        yield pa.memory_map(self.location.url)


def _ipc_reader(file: Any, columns: Sequence[int] | None = None) -> Any:
    """The reader of an IPC file, or that of a stream, which has no `get_batch` and is read from its start."""
    import pyarrow as pa

    file.seek(0)
    start = file.read(6)
    file.seek(0)
    if start[:4] == b"FEA1":
        raise ValueError("Feather version 1 is not Arrow IPC; write it again with a current pyarrow")
    options = pa.ipc.IpcReadOptions(included_fields=columns)
    return (pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream)(file, options=options)


def _is_view(batch: Any, file: Any) -> bool:
    """Whether a batch is used from the mapped file as it is, not decompressed."""
    file.seek(0)
    whole = file.read_buffer(file.size())
    filled = [each for column in batch.columns for each in column.buffers() if each is not None and each.size]
    return all(whole.address <= each.address < whole.address + whole.size for each in filled)


class StreamedTable(ArrowTable):
    """A table in memory: pandas, polars, pyarrow, or anything else with the Arrow interface."""

    format = "an Arrow table"

    def __init__(self, frame: Any, request: Request | None = None) -> None:
        import pyarrow as pa

        super().__init__(Location.in_memory_of(frame), request)
        kind = type(frame).__name__
        if kind == "Series":
            raise InputError(
                "a Series is a single column; pass a DataFrame (series.to_frame()), or vectors as one array "
                "(numpy.stack(series))"
            )
        try:
            data = frame if isinstance(frame, pa.Table) else pa.table(frame)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(f"the {kind} cannot be read as a table: {error}") from error
        self._data = data.select([name for name in data.column_names if not name.startswith(INDEX)])

    def __getstate__(self) -> dict[str, Any]:
        import pyarrow as pa

        # Written as a stream, because a slice would be pickled with all the rows it was cut from.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._data.schema) as writer:
            writer.write_table(self._rows())
        data = sink.getvalue().to_pybytes()
        return {**super().__getstate__(), "request": self.request.alone(), "_data": data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import pyarrow as pa

        self.__dict__.update(state)
        self._data = pa.ipc.open_stream(state["_data"]).read_all()

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of `PIECE_ROWS` rows."""
        return Piece.runs(self._data.num_rows, rows or PIECE_ROWS)

    def _rows(self) -> Any:
        piece = self.request.piece
        return self._data.slice(piece.start, piece.stop - piece.start) if piece else self._data

    def _schema(self, file: Any) -> Any:
        return self._data.schema

    def _count(self, file: Any) -> int | None:
        return int(self._data.num_rows)

    def _batches(self, file: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
        return iter(self._rows().select(list(columns)).to_batches(max_chunksize=rows))

    def _find_vectors(self) -> None:
        """A frame of plain numbers is a matrix: without a column of vectors, its numbers together are the vector."""
        if numbers := self._numbers({"id"}):
            import pyarrow as pa

            matrix = as_float(np.column_stack([self._data.column(name).to_numpy() for name in numbers]))
            lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), len(numbers))
            self._data = self._data.append_column(STACKED, lists)
            self.columns = {**self.columns, STACKED: "vector"}
            self.number_columns, self._dimensions = numbers, {STACKED: len(numbers)}
        super()._find_vectors()

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        yield None


# Columns of Arrow tables as arrays and text.


def _stored(array: Any) -> Any:
    """The plain array below one of an extension type."""
    return getattr(array, "storage", array)


def kind_of(kind: Any) -> str:
    """Kind of a column of this Arrow type."""
    from pyarrow import types

    def is_binary(each: Any) -> bool:
        return bool(types.is_binary(each) or types.is_large_binary(each))

    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        item = kind.value_type
        return "vector" if types.is_floating(item) or types.is_integer(item) else "other"
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    at = kind.get_field_index("bytes") if types.is_struct(kind) else -1  # as image data sets have them
    if is_binary(kind) or (at >= 0 and is_binary(kind.field(at).type)):
        return "picture"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "bool"
    if types.is_temporal(kind):
        return "date"
    number = types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)
    return "number" if number else "other"


def _lengths(column: Any) -> NDArray[Any]:
    """The length of every list, −1 for null."""
    import pyarrow.compute as pc

    lengths: NDArray[Any] = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    return lengths


def _matrix(column: Any, dimension: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The rows of `column` that are complete vectors, and which rows those are (None: all of them)."""
    import pyarrow as pa

    good: NDArray[np.bool_] | None = None
    if column.null_count or not pa.types.is_fixed_size_list(column.type):
        fits = _lengths(column) == dimension
        if not fits.all():
            good, column = fits, column.filter(pa.array(fits))
    numbers = column.flatten()
    matrix = numbers.to_numpy(zero_copy_only=not numbers.null_count).reshape(-1, dimension)
    if numbers.null_count:
        whole = numbers.is_valid().to_numpy(zero_copy_only=False).reshape(-1, dimension).all(axis=1)
        good = np.ones(len(whole), dtype=bool) if good is None else good.copy()
        good[good] = whole
        matrix = matrix[whole]
    return as_float(matrix), good


def _pictures(column: Any) -> list[bytes]:
    """The bytes of pictures, empty for null; the usual form is a struct of bytes and path."""
    import pyarrow as pa

    cells = column.field("bytes") if pa.types.is_struct(column.type) else column
    return [cell or b"" for cell in cells.to_pylist()]


class _Names:
    """The values of the last dictionary as text: mostly the next block has the same one."""

    def __init__(self) -> None:
        self._texts: Any = None
        self._names: list[str] = []

    def of(self, dictionary: Any) -> list[str]:
        import pyarrow as pa

        texts = dictionary.cast(pa.string())
        if self._texts is not None and self._texts.equals(texts):
            return self._names
        names: list[str] = texts.to_pylist()
        if len(names) <= MOST_NAMES:
            self._texts, self._names = pa.array(names, pa.string()), names  # a copy, which keeps no file open
        return names


def texts_of(column: Any, names: _Names | None = None) -> Texts:
    """Values as text, empty for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        if not column.null_count and not column.dictionary.null_count:
            return Texts((names or _Names()).of(column.dictionary), column.indices.to_numpy().astype(np.intp))
        column = column.dictionary_decode()
    coded = pc.fill_null(column.cast(pa.string()), "").dictionary_encode()
    return Texts(coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.intp))
