"""Files that are written whole or not at all and end with a checksum of everything in them."""

from __future__ import annotations

import hashlib
import math
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError

__all__ = [
    "CheckedReader",
    "CheckedWriter",
    "FileRows",
    "check_place",
    "digest_of",
    "refuse_address",
    "short",
    "unreadable",
    "write_whole",
]


DIGEST = hashlib.sha256().digest_size
TRAILER = 8 + DIGEST  # length of the header, and the checksum
AT_ONCE = 1 << 20


class CheckedWriter:
    """Writes magic, arrays and, at the end, a header that tells what they are; the file appears when all is written."""

    def __init__(self, path: str | os.PathLike[str], magic: bytes, what: str) -> None:
        refuse_address(path, what)
        self._target, self._what = Path(path), what
        self._temporary = self._target.with_name(f".{self._target.name}.{os.getpid()}.part")
        self._sum = hashlib.sha256()
        try:
            self._file: IO[bytes] = open(self._temporary, "wb")  # noqa: SIM115 - closed on leaving the context
        except OSError as error:
            raise self._failed(error) from error
        self.write(magic)

    def write(self, content: bytes | NDArray[Any]) -> None:
        """Write bytes, or the numbers of an array."""
        raw = content if isinstance(content, bytes) else np.ascontiguousarray(content).tobytes()
        self._sum.update(raw)
        try:
            self._file.write(raw)
        except OSError as error:
            raise self._failed(error) from error

    def finish(self, header: bytes) -> None:
        """Write the header and the checksum, and give the file its name."""
        self.write(header)
        self.write(len(header).to_bytes(8, "little"))
        self.write(self._sum.digest())
        try:
            self._file.close()
            self._temporary.replace(self._target)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> FileError:
        return FileError(f"cannot write {self._what} to {self._target}: {error.strerror or error}")


def refuse_address(path: str | os.PathLike[str], what: str) -> None:
    """Refuse an address where a path is expected."""
    if "://" in os.fspath(path):
        raise FileError(
            f"{os.fspath(path)} is an address; {what} can only be written to this machine or a mounted folder: give a "
            "path, and copy it there afterwards"
        )


class FileRows:
    """Rows of bytes in a file, which is opened whenever some are asked for: thousands of files may be in use."""

    def __init__(self, file: IO[bytes], start: int, width: int) -> None:
        self._path, self._known = file.name, _identity(file)
        self._start, self._width = start, width

    def __getitem__(self, part: slice) -> NDArray[np.uint8]:
        size = (part.stop - part.start) * self._width
        try:
            with open(self._path, "rb") as file:
                same = _identity(file) == self._known
                raw = os.pread(file.fileno(), size, self._start + part.start * self._width) if same else b""
        except OSError as error:
            raise unreadable(self._path, error) from error
        if len(raw) != size:
            raise FileError(f"{self._path} was replaced or changed while it was in use; read it anew")
        return np.frombuffer(raw, np.uint8).reshape(-1, self._width)


def unreadable(path: str | os.PathLike[str], error: OSError) -> FileError:
    """What the system says of a file, which need not be the file's fault."""
    if isinstance(error, FileNotFoundError):
        return FileError(f"{path}: no such file")
    return FileError(f"{path} cannot be read: {error.strerror or error}")


def _identity(file: IO[bytes]) -> tuple[int, ...]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class CheckedReader:
    """Reads what CheckedWriter wrote, after having compared the checksum of all of it."""

    def __init__(self, path: str | os.PathLike[str], magic: bytes) -> None:
        self._path = path
        self._file: IO[bytes] = open(path, "rb")  # noqa: SIM115 - closed on leaving the context
        try:
            self.header = self._verified(magic)
        except BaseException:
            self._file.close()
            raise
        self._at = len(magic)

    def array(self, kind: str, shape: Sequence[int]) -> NDArray[Any]:
        """Return the next array."""
        dtype, count = np.dtype(kind), math.prod(int(n) for n in shape)
        start = self._skip(shape, dtype.itemsize)
        self._file.seek(start)
        return np.frombuffer(self._file.read(count * dtype.itemsize), dtype).reshape(shape)

    def rows(self, count: int, width: int) -> FileRows:
        """Return the next array, of bytes, to be read as parts of it are asked for."""
        return FileRows(self._file, self._skip((count, width), 1), width)

    def end(self) -> None:
        """Make sure that everything was asked for."""
        if self._at != self._end:
            raise self._damaged("arrays shorter than the file")

    def _skip(self, shape: Sequence[int], size: int) -> int:
        start, self._at = self._at, self._at + math.prod(int(n) for n in shape) * size
        if min([0, *shape]) < 0 or self._at > self._end:
            raise self._damaged("arrays longer than the file")
        return start

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _verified(self, magic: bytes) -> bytes:
        size = os.fstat(self._file.fileno()).st_size
        if self._file.read(len(magic)) != magic:
            raise FileError(
                f"{self._path} is not a sketch, or is damaged (it does not begin as one); make it anew"
            )
        if size < len(magic) + TRAILER:
            raise self._damaged("it ends early")
        self._file.seek(0)
        found, left = hashlib.sha256(), size - DIGEST
        while left:
            some = self._file.read(min(left, AT_ONCE))
            if not some:
                raise self._damaged("it ends early")
            found.update(some)
            left -= len(some)
        if self._file.read() != found.digest():
            raise self._damaged("its checksum does not match: a part is missing or was changed")
        self._file.seek(size - TRAILER)
        length = int.from_bytes(self._file.read(8), "little")
        self._end = size - TRAILER - length
        if self._end < len(magic):
            raise self._damaged("its header is longer than the file")
        self._file.seek(self._end)
        return self._file.read(length)

    def _damaged(self, how: str) -> FileError:
        return FileError(f"{self._path} is not a sketch, or is damaged ({how}); make it anew")


# Files of text that are written whole or not at all.


def check_place(path: str | os.PathLike[str], what: str) -> None:
    """Refuse what no file can be written to; called before anything is computed, which may take hours."""
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{what} {target} is a folder; name a file")
    if not target.parent.is_dir():
        raise FileError(f"{what} {target}: there is no folder {target.parent}; make it first")
    if not _is_special(target) and not os.access(target.parent, os.W_OK | os.X_OK):
        raise FileError(f"{what} {target}: the folder {target.parent} cannot be written to; name another")


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Put a file in place of any earlier one in one step; a pipe or device is written to as it is."""
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}.part")
    try:
        if _is_special(Path(path)):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            return
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


# Fingerprints of weights files, as `sha256sum` prints them.


def digest_of(files: Iterable[str | os.PathLike[str]]) -> str:
    """SHA-256 of one file, or of several one after the other."""
    state = hashlib.sha256()
    for path in files:
        with open(path, "rb") as stream:
            while piece := stream.read(1 << 22):
                state.update(piece)
    return state.hexdigest()


def short(digest: str) -> str:
    """The part of a fingerprint that identities carry."""
    return digest[:16]
