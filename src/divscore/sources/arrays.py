"""NumPy's own files: .npy memory-mapped, .npz streamed member by member; nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.places import Location, quoted
from divscore.sources.table import KINDS, Block, Piece, Request, Table, as_float

__all__ = ["NpySource", "NpzSource"]

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


class NpySource(Table):
    """A two-dimensional array in a .npy file."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        if request.column is not None or request.extra:
            name = request.column if request.column is not None else request.extra[0]
            raise FileError(
                f"{self.path} has no column '{name}': a .npy file is one array without columns; "
                "put names into an .npz, Parquet, Arrow or CSV file"
            )
        with location.reading("a NumPy array"), location.open() as stream:
            self._header = _read_header(stream, self.path)
        _check_matrix(self._header, self.path)
        self.rows, self.dimension = self._header.shape
        self._check_shape()
        if not location.remote:
            _check_whole(location, self._header)

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Ranges of `PIECE_ROWS` rows, which can be reached by their position; rows stored together only."""
        step = rows or PIECE_ROWS
        if self._header.fortran:
            return []
        starts = range(0, self.rows or 0, step)
        stops = (min(start + step, self.rows or 0) for start in starts)
        return [
            Piece(start, stop, "rows", stop - start, start) for start, stop in zip(starts, stops, strict=True)
        ]

    def _blocks(self) -> Iterator[Block]:
        piece, step = self.request.piece, self._rows_at_once()
        first, last = (piece.start, piece.stop) if piece else (0, self._header.shape[0])
        with self.location.reading("a NumPy array"):
            if self.location.remote:
                with self.location.open() as stream:
                    stream.seek(self._header.offset + first * self._header.row_bytes)
                    for part in _stream_rows(stream, self._header, step, first, last):
                        yield Block(as_float(part))
                return
            mapped = _map(self.location.url, self._header)
            for start in range(first, last, step):
                yield Block(as_float(mapped[start : min(start + step, last)]))

    def _rows_at_once(self) -> int:
        return self.request.rows_within(self.dimension, max(4, self._header.dtype.itemsize))


class NpzSource(Table):
    """A two-dimensional member of an .npz file, with one-dimensional members of equal length as columns."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        with location.reading("an .npz archive"), location.open() as file, zipfile.ZipFile(file) as archive:
            members = _read_headers(archive, self.path)
        self.columns = {name: header.kind for name, header in members.items()}
        self._column = self._choose(self.columns, "a table of items × dimensions")
        self.rows, self.dimension = members[self._column].shape
        self._require(self.columns)
        self._check_shape()
        for name in request.extra:
            if members[name].shape != (self.rows,):
                raise FileError(
                    f"{self.path}: member '{name}' has {members[name].shape[0]} entries for {self.rows} "
                    f"vectors in '{self._column}'; expected one a vector"
                )
        self._members = {name: members[name] for name in (self._column, *request.extra)}

    def _blocks(self) -> Iterator[Block]:
        step = self.request.rows_within(self.dimension, max(4, self._members[self._column].dtype.itemsize))
        with contextlib.ExitStack() as open_files:
            open_files.enter_context(self.location.reading("an .npz archive"))
            archive = open_files.enter_context(
                zipfile.ZipFile(open_files.enter_context(self.location.open()))
            )
            streams = [
                _member_rows(open_files.enter_context(archive.open(f"{name}.npy")), header, step)
                for name, header in self._members.items()
            ]
            for vectors, *columns in zip(*streams, strict=True):
                values = {n: _texts(c) for n, c in zip(self.request.extra, columns, strict=True)}
                yield Block(as_float(vectors), values)


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
            f"{label} holds {KINDS['object']}; save the vectors with numpy.save as a plain array of numbers"
        )
    if len(header.shape) != 2:
        raise FileError(
            f"{label} has shape {header.shape}; expected a table of items × dimensions, for example "
            "numpy.stack(vectors)"
        )
    if header.kind != "vector":
        raise FileError(f"{label} holds entries of type {header.dtype}; expected real numbers")


def _check_whole(location: Location, header: Header) -> None:
    with location.open() as stream:
        got = stream.seek(0, 2)
    if got < header.size:
        raise FileError(
            f"{location.label} is truncated: {got} bytes, expected {header.size} for shape {header.shape}; "
            "make or fetch it again"
        )


def _read_headers(archive: zipfile.ZipFile, label: str) -> dict[str, Header]:
    headers = {}
    for entry in archive.namelist():
        if entry.endswith(".npy"):
            with archive.open(entry) as stream:
                headers[entry.removesuffix(".npy")] = _read_header(stream, f"{label}, member '{entry}'")
    if not headers:
        raise FileError(
            f"{label} holds no arrays, only {quoted(archive.namelist())}; write it with numpy.savez"
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
    # Rows of a column-major array lie scattered over the whole member, so it is unpacked to disk first.
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
        raise FileError("a remote array stored column by column cannot be streamed; copy it to this computer")
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
