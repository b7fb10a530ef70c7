"""NumPy arrays: .npy memory-mapped, .npz streamed member by member, never unpickled; arrays in memory."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.places import Location, NoRowsError, folder_values
from divscore.sources.table import KINDS, Block, Piece, Request, Table, as_float
from divscore.text import quoted

PICKLE_START = b"\x80"
PIECE_ROWS = 131_072


@dataclass(frozen=True)
class Header:
    """What the first bytes of an array file say."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int

    @property
    def kind(self) -> str:
        """What a column of this array would hold."""
        if self.dtype.hasobject:
            return "object"
        if len(self.shape) == 2:
            return "vector" if self.dtype.kind in "fiu" else "other"
        if len(self.shape) != 1:
            return "other"
        return {"U": "text", "S": "text", "f": "number", "i": "number", "u": "number", "b": "bool"}.get(
            self.dtype.kind, "other"
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def size(self) -> int:
        """Bytes of the file when it is whole."""
        return self.offset + int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


class _Matrix(Table):
    """Vectors without columns; those that the names of folders add can still be asked for."""

    def _plan(self) -> None:
        asked = [*([] if self.request.column is None else [self.request.column]), *self.request.extra]
        folders = folder_values(self.location)
        unknown = next((name for name in asked if name not in folders), None)
        if unknown is not None:
            raise FileError(
                f"{self.label} has no column '{unknown}': it is one array without columns; use .npz, Parquet, Arrow or "
                "CSV for vectors with columns"
            )
        super()._plan()

    def _find_vectors(self) -> None:
        """The matrix is all there is."""


class NpyFile(_Matrix):
    """A two-dimensional array in a .npy file."""

    _header: Header

    def _open(self) -> None:
        with self.location.reading("a NumPy array"), self.location.open() as stream:
            self._header = header = _read_header(stream, self.label)
            size = header.size if self.location.remote else stream.seek(0, 2)
        _check_matrix(header, self.label)
        if size < header.size:
            raise FileError(
                f"{self.label} is truncated: {size} bytes, expected {header.size} for shape {header.shape}; "
                "create or download it again"
            )
        self.rows, self.dimension = header.shape
        self._check_shape()

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Ranges of `PIECE_ROWS` rows, which can be reached by their position; rows stored together only."""
        return [] if self._header.fortran else Piece.runs(self._header.shape[0], rows or PIECE_ROWS)

    def _blocks(self) -> Iterator[Block]:
        piece, header = self.request.piece, self._header
        step = self.request.rows_within(self.dimension, max(4, header.dtype.itemsize))
        first, last = (piece.start, piece.stop) if piece else (0, header.shape[0])
        with self.location.reading("a NumPy array"):
            if self.location.remote:
                with self.location.open() as stream:
                    stream.seek(header.offset + first * header.row_bytes)
                    for part in _stream_rows(stream, header, step, first, last):
                        yield Block(as_float(part))
                return
            mapped = _map(self.location.url, header)
            for start in range(first, last, step):
                yield Block(as_float(mapped[start : min(start + step, last)]))


class NpzFile(Table):
    """A two-dimensional member of an .npz file, with one-dimensional members of equal length as columns."""

    _members: dict[str, Header]

    def _open(self) -> None:
        with (
            self.location.reading("an .npz archive"),
            self.location.open() as file,
            zipfile.ZipFile(file) as archive,
        ):
            self._members = _read_headers(archive, self.label)
        self.columns = {name: header.kind for name, header in self._members.items()}

    def _find_vectors(self) -> None:
        self._column = self._choose("a table of items × dimensions")
        self.rows, self.dimension = self._members[self._column].shape
        self._check_shape()
        for name in self._own:
            if self._members[name].shape != (self.rows,):
                raise FileError(
                    f"{self.label}: member '{name}' has {self._members[name].shape[0]} entries for {self.rows} "
                    f"vectors in '{self._column}'; expected one per vector"
                )

    def _blocks(self) -> Iterator[Block]:
        members = {name: self._members[name] for name in (self._column, *self._own)}
        step = self.request.rows_within(self.dimension, max(4, members[self._column].dtype.itemsize))
        with contextlib.ExitStack() as open_files:
            open_files.enter_context(self.location.reading("an .npz archive"))
            file = open_files.enter_context(self.location.open())
            archive = open_files.enter_context(zipfile.ZipFile(file))
            streams = [
                _member_rows(open_files.enter_context(archive.open(f"{name}.npy")), header, step)
                for name, header in members.items()
            ]
            for vectors, *columns in zip(*streams, strict=True):
                values = {n: _texts(c) for n, c in zip(self._own, columns, strict=True)}
                yield Block(as_float(vectors), values)


class ArrayTable(_Matrix):
    """A two-dimensional array in memory."""

    def __init__(self, array: NDArray[Any], request: Request | None = None) -> None:
        super().__init__(Location.in_memory_of(array), request)
        self._array = array

    def __getstate__(self) -> dict[str, Any]:
        piece = self.request.piece
        if piece is None:
            return super().__getstate__()
        # A worker gets its own rows only.
        own = replace(piece, start=0, stop=piece.stop - piece.start)
        some = {"_array": self._array[piece.start : piece.stop], "request": replace(self.request, piece=own)}
        return {**super().__getstate__(), **some}

    def _open(self) -> None:
        array = self._array
        _check_matrix(Header(array.shape, False, array.dtype, 0), self.label)
        self.rows, self.dimension = array.shape
        self._check_shape()

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Ranges of rows."""
        return Piece.runs(len(self._array), rows or PIECE_ROWS)

    def _blocks(self) -> Iterator[Block]:
        piece = self.request.piece
        step = self.request.rows_within(self.dimension, max(4, self._array.dtype.itemsize))
        first, last = (piece.start, piece.stop) if piece else (0, len(self._array))
        for start in range(first, last, step):
            yield Block(as_float(self._array[start : min(start + step, last)]))


class BlockStream(_Matrix):
    """Arrays that an iterable yields; one that can be iterated once can be read once."""

    def __init__(self, blocks: Iterable[Any], request: Request | None = None) -> None:
        super().__init__(Location.in_memory_of(blocks), request)
        self._source: Iterable[Any] = blocks

    @property
    def here_only(self) -> bool:
        """An iterator cannot be sent anywhere."""
        return True

    def _open(self) -> None:
        blocks = iter(self._source)
        first = next(blocks, None)
        if first is None:
            raise NoRowsError(f"{self.label} yields no blocks; expected arrays of items × dimensions")
        if blocks is self._source:
            self._source = chain([first], blocks)
        array = np.asarray(first)
        _check_matrix(Header(array.shape, False, array.dtype, 0), f"{self.label}, block 0")
        self.dimension = array.shape[1]
        self._check_shape()

    def _blocks(self) -> Iterator[Block]:
        for number, each in enumerate(self._source):
            array = np.asarray(each)
            _check_matrix(Header(array.shape, False, array.dtype, 0), f"{self.label}, block {number}")
            if array.shape[1] != self.dimension:
                raise FileError(
                    f"{self.label}, block {number} has vectors of {array.shape[1]} numbers, the first block of "
                    f"{self.dimension}; all blocks need the same dimension"
                )
            if len(array):
                yield Block(as_float(array))


def _read_header(stream: IO[bytes], label: str) -> Header:
    start = stream.read(6)
    if start[:1] == PICKLE_START:
        raise FileError(f"{label} is a pickle; divscore never loads pickles. Save the array with numpy.save")
    if start != b"\x93NUMPY":
        raise ValueError("the first bytes are not those of a NumPy array")
    version = tuple(stream.read(2))
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"array format version {version} is unknown")
    return Header(shape, fortran, dtype, stream.tell())


def _check_matrix(header: Header, label: str) -> None:
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


def _read_headers(archive: zipfile.ZipFile, label: str) -> dict[str, Header]:
    headers = {}
    for entry in archive.namelist():
        if entry.endswith(".npy"):
            with archive.open(entry) as stream:
                headers[entry.removesuffix(".npy")] = _read_header(stream, f"{label}, member '{entry}'")
    if not headers:
        raise FileError(
            f"{label} has no arrays, only {quoted(archive.namelist())}; write it with numpy.savez"
        )
    return headers


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
