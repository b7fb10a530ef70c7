"""NumPy arrays: .npy memory-mapped, .npz streamed member by member, never unpickled; arrays in memory."""

from __future__ import annotations

import contextlib
import io
import math
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import is_sparse
from divscore.errors import FileError
from divscore.sources.places import Location, NoRowsError, folder_values
from divscore.sources.table import KINDS, Block, Piece, Request, Table, as_float, no_vectors
from divscore.text import quoted

PICKLE_START = b"\x80"
PIECE_ROWS = 131_072
LONGEST_HEADER = 10_000  # bytes, as NumPy reads them
# Kinds of columns, by the kind of a NumPy type.
VECTORS = dict.fromkeys("fiu", "vector")
SCALARS = {"U": "text", "S": "text", "f": "number", "i": "number", "u": "number", "b": "bool"}


class Header(NamedTuple):
    """What the first bytes of an array file say."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int = 0

    @property
    def kind(self) -> str:
        """Kind of a column with these entries."""
        if self.dtype.hasobject:
            return "object"
        kinds = SCALARS if len(self.shape) == 1 else VECTORS if len(self.shape) == 2 else {}
        return kinds.get(self.dtype.kind, "other")

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])


class _Matrix(Table):
    """Vectors without columns; those that the names of folders add can still be asked for."""

    def _plan(self) -> None:
        request, folders = self.request, folder_values(self.location)
        for name in (*request.extra, *([] if request.column is None else [request.column])):
            if name not in folders:
                raise FileError(
                    f"{self.label} has no column '{name}': it is one array without columns; use .npz, Parquet, Arrow "
                    "or CSV for vectors with columns"
                )
        super()._plan()

    def _find_vectors(self) -> None:
        """The matrix is all there is."""

    def _slices(self, array: NDArray[Any]) -> Iterator[Block]:
        piece = self.request.piece
        first, last = (piece.start, piece.stop) if piece else (0, array.shape[0])
        step = self.request.rows_within(self.dimension, array.dtype.itemsize)
        for start in range(first, last, step):
            rows: Any = array[start : min(start + step, last)]
            yield Block(as_float(rows.toarray() if is_sparse(rows) else rows))


class NpyFile(_Matrix):
    """A two-dimensional array in a .npy file."""

    _header: Header

    def _open(self) -> None:
        with self.location.reading("a NumPy array"), self.location.open() as stream:
            self._header = header = read_header(stream, self.label)
            # A store may not say how long a file is; a short one ends its stream too early.
            size = None if self.location.remote else stream.seek(0, 2)
        self.rows, self.dimension = _matrix_shape(header, self.label)
        expected = header.offset + header.row_bytes * header.shape[0]
        if size is not None and size < expected:
            raise FileError(
                f"{self.label} is truncated: {size} bytes, expected {expected} for shape {header.shape}; "
                "create or download it again"
            )
        self._check_shape()

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of rows; none where the array is stored column by column, as a row is then all over the file."""
        return [] if self._header.fortran else Piece.runs(self._header.shape[0], rows or PIECE_ROWS)

    def _blocks(self) -> Iterator[Block]:
        piece, header = self.request.piece, self._header
        with self.location.reading("a NumPy array"):
            if not self.location.remote:
                yield from self._slices(_map(self.location.url, header))
                return
            first, last = (piece.start, piece.stop) if piece else (0, header.shape[0])
            step = self.request.rows_within(self.dimension, header.dtype.itemsize)
            with self.location.open() as stream:
                stream.seek(header.offset + first * header.row_bytes)
                for rows in _stream_rows(stream, header, step, first, last):
                    yield Block(as_float(rows))


class NpzFile(Table):
    """A two-dimensional member of an .npz file, with one-dimensional members of equal length as columns."""

    _members: dict[str, Header]

    def _open(self) -> None:
        self._members = {}
        with self._archive() as archive:
            for entry in archive.namelist():
                if entry.endswith(".npy"):
                    with archive.open(entry) as stream:
                        header = read_header(stream, f"{self.label}, member '{entry}'")
                    self._members[entry.removesuffix(".npy")] = header
            if not self._members:
                raise FileError(
                    f"{self.label} has no arrays, only {quoted(archive.namelist())}; write it with numpy.savez"
                )
        self.columns = {name: header.kind for name, header in self._members.items()}

    @contextlib.contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with (
            self.location.reading("an .npz archive"),
            self.location.open() as file,
            zipfile.ZipFile(file) as archive,
        ):
            yield archive

    def _find_vectors(self) -> None:
        self.column = self._choose("a table of items × dimensions")
        self.rows, self.dimension = self._members[self.column].shape
        self._check_shape()
        for name in self._own:
            if self._members[name].shape != (self.rows,):
                raise FileError(
                    f"{self.label}: member '{name}' has {self._members[name].shape[0]} entries for {self.rows} "
                    f"vectors in '{self.column}'; expected one per vector"
                )

    def _blocks(self) -> Iterator[Block]:
        request, vectors = self.request, self.column
        names = (vectors, *self._own) if request.vectors else self._own
        step = request.rows_within(self.dimension, self._members[vectors].dtype.itemsize if vectors else 4)
        # All members are streamed side by side, so only one block of each is in memory.
        with self._archive() as archive, contextlib.ExitStack() as streams:
            members = [
                _member_rows(streams.enter_context(archive.open(f"{name}.npy")), self._members[name], step)
                for name in names
            ]
            for arrays in zip(*members, strict=True):
                rows = dict(zip(names, arrays, strict=True))
                matrix = as_float(rows[vectors]) if request.vectors else no_vectors(len(arrays[0]))
                yield Block(matrix, {name: _texts(rows[name]) for name in self._own})


class ArrayTable(_Matrix):
    """A two-dimensional array in memory, or a matrix of scipy.sparse, which is made dense block by block."""

    def __init__(self, array: Any, request: Request | None = None) -> None:
        super().__init__(Location.in_memory_of(array), request)
        self._array = array.tocsr() if is_sparse(array) and array.ndim == 2 else array

    def __getstate__(self) -> dict[str, Any]:
        # A worker gets its own rows only.
        piece = self.request.piece
        rows = self._array[piece.start : piece.stop] if piece else self._array
        return {**super().__getstate__(), "_array": rows, "request": self.request.alone()}

    def _open(self) -> None:
        self.rows, self.dimension = _matrix_shape(self._array, self.label)
        self._check_shape()

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of rows."""
        return Piece.runs(self._array.shape[0], rows or PIECE_ROWS)

    def _blocks(self) -> Iterator[Block]:
        return self._slices(self._array)


class BlockStream(_Matrix):
    """Arrays that an iterable yields; one that can be iterated once can be read once."""

    def __init__(self, blocks: Iterable[Any], request: Request | None = None) -> None:
        super().__init__(Location.in_memory_of(blocks), request)
        self._source: Iterable[Any] = blocks
        self.here_only = True

    def _open(self) -> None:
        blocks = iter(self._source)
        first = next(blocks, None)
        if first is None:
            raise NoRowsError(f"{self.label} yields no blocks; expected arrays of items × dimensions")
        if blocks is self._source:
            self._source = chain([first], blocks)
        _, self.dimension = _matrix_shape(
            first if is_sparse(first) else np.asarray(first), f"{self.label}, block 0"
        )
        self._check_shape()

    def _blocks(self) -> Iterator[Block]:
        for number, each in enumerate(self._source):
            array = each.toarray() if is_sparse(each) else np.asarray(each)
            rows, dimension = _matrix_shape(array, f"{self.label}, block {number}")
            if dimension != self.dimension:
                raise FileError(
                    f"{self.label}, block {number} has vectors of {dimension} numbers, the first block of "
                    f"{self.dimension}; all blocks need the same dimension"
                )
            if rows:
                yield Block(as_float(array))


def _matrix_shape(array: NDArray[Any] | Header, label: str) -> tuple[int, int]:
    """Rows and dimension of an array; anything but a matrix of real numbers is refused."""
    header = Header(array.shape, False, array.dtype)
    if header.kind == "object":
        raise FileError(
            f"{label} has {KINDS['object']}; save the vectors with numpy.save as a plain array of numbers"
        )
    if len(header.shape) != 2:
        raise FileError(
            f"{label} has shape {header.shape}; expected a table of items × dimensions, for example "
            "numpy.stack(vectors)"
        )
    if header.kind != "vector":
        raise FileError(f"{label} has entries of type {header.dtype}; expected real numbers")
    return header.shape[0], header.shape[1]


def read_header(stream: IO[bytes], label: str) -> Header:
    """Read the header of a .npy file, and nothing else: a pickle is refused."""
    start = stream.read(6)
    if start[:1] == PICKLE_START:
        raise FileError(f"{label} is a pickle; divscore never loads pickles. Save the array with numpy.save")
    if start != b"\x93NUMPY":
        raise ValueError("the first bytes are not those of a NumPy array")
    version = tuple(stream.read(2))
    if version not in {(1, 0), (2, 0)}:
        raise ValueError(f"array format version {version} is unknown")
    formats = np.lib.format
    read, width = formats.read_array_header_1_0, 2
    if version == (2, 0):
        read, width = formats.read_array_header_2_0, 4
    size = stream.read(width)
    length = int.from_bytes(size, "little")
    if length > LONGEST_HEADER:  # a member of an archive could unpack to gigabytes
        raise ValueError(f"its header has {length:,} bytes")
    header = stream.read(length)
    try:
        if b"\\" in header:
            raise ValueError("it has a backslash")  # evaluated as an escape, which may print a warning
        return Header(*read(io.BytesIO(size + header)), stream.tell())
    except Exception as error:  # NumPy evaluates the text, and its tokenizer raises nearly anything
        raise ValueError(f"its header is damaged: {error}") from error


def _map(file: Any, header: Header) -> NDArray[Any]:
    order = "F" if header.fortran else "C"
    mapped = np.memmap(file, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]
    # A plain view: slicing np.memmap itself costs ten times as much.
    return np.asarray(mapped)


def _member_rows(stream: IO[bytes], header: Header, step: int) -> Iterator[NDArray[Any]]:
    if not header.fortran or len(header.shape) == 1:
        stream.read(header.offset)  # not seek, which makes zipfile forget its checksum
        yield from _stream_rows(stream, header, step, 0, header.shape[0])
        # Reading past the end makes zipfile compare its checksum.
        stream.read(1)
        return
    # Rows of a column-major array are scattered over the whole member, so it is unpacked to disk first.
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        mapped = _map(copy, header)
        for start in range(0, len(mapped), step):
            yield mapped[start : start + step]


def _stream_rows(
    stream: IO[bytes], header: Header, step: int, first: int, last: int
) -> Iterator[NDArray[Any]]:
    total, *rest = header.shape
    if header.fortran and rest:
        raise FileError("a remote array stored column by column cannot be streamed; download it first")
    width = header.row_bytes
    for start in range(first, last, step):
        rows = min(step, last - start)
        data = stream.read(rows * width)
        if len(data) < rows * width:
            raise EOFError(f"it ends in row {start + len(data) // max(1, width)} of {total}")
        yield np.frombuffer(data, header.dtype).reshape(rows, *rest)


def _texts(column: NDArray[Any]) -> list[str]:
    if column.dtype.kind == "S":
        return [value.decode("utf-8", "replace") for value in column.tolist()]
    if column.dtype.kind == "b":
        return ["true" if value else "false" for value in column.tolist()]
    return [str(value) for value in column.tolist()]
