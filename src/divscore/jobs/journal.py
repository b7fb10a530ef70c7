"""Journal: the finished chunks of an embedding job, one after the other, so that a killed job can go on.

A record is its length, a checksum, the signature of the chunk's items, and an Arrow record batch. A record that was
cut off by a kill is the last one and is dropped at the next start.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from divscore.errors import FileError
from divscore.halt import heed

__all__ = ["Journal", "lock"]

MAGIC = b"divscore.journal/1\n"
RECORD = struct.Struct("<QI16s")


class Journal:
    """Append-only file of record batches with a header that says which job it belongs to."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.header = header
        self.marks: list[
            tuple[int, bytes]
        ] = []  # where each whole record starts, and the signature of its items
        self.replaced = False  # whether an unfinished job of another kind was there
        self._end = 0
        self._stream = self._open()

    @classmethod
    def header_of(cls, path: Path) -> dict[str, Any] | None:
        """Read the header of a journal that an earlier start left, if it is whole."""
        try:
            with open(path, "rb") as stream:
                if stream.read(len(MAGIC)) != MAGIC:
                    return None
                line = stream.readline()
            found = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    @classmethod
    def has_records(cls, path: Path) -> bool:
        """Whether a journal with a whole header keeps anything beside it."""
        with open(path, "rb") as stream:
            stream.seek(len(MAGIC))
            stream.readline()
            return os.fstat(stream.fileno()).st_size > stream.tell() + RECORD.size

    def append(self, signature: bytes, payload: bytes) -> None:
        """Add a finished chunk; once this returns, a kill of the process cannot lose it."""
        start = self._end
        self._stream.write(RECORD.pack(len(payload), zlib.crc32(payload), signature))
        self._stream.write(payload)
        self._stream.flush()
        self._end += RECORD.size + len(payload)
        self.marks.append((start, signature))

    def cut(self, records: int) -> None:
        """Keep the first records only."""
        if records < len(self.marks):
            self._end = self.marks[records][0]
            self._stream.truncate(self._end)
            self._stream.seek(self._end)
            del self.marks[records:]

    def payloads(self) -> Iterator[bytes]:
        """Every record's content."""
        self._stream.flush()
        with open(self.path, "rb") as stream:
            for start, _ in self.marks:
                heed()
                stream.seek(start)
                length, checksum, _ = RECORD.unpack(stream.read(RECORD.size))
                payload = stream.read(length)
                if zlib.crc32(payload) != checksum:
                    raise FileError(f"{self.path} was changed while it was in use; start the job again")
                yield payload

    def close(self) -> None:
        """Close the file and leave it there."""
        self._stream.close()

    def _open(self) -> BinaryIO:
        stream = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock(stream, self.path)
            found = self.header_of(self.path)
            if found == self.header:
                self._read_marks(stream)
            else:
                self.replaced = found is not None
                stream.truncate(0)
                stream.write(MAGIC + json.dumps(self.header).encode() + b"\n")
                stream.flush()
                self._end = stream.tell()
            stream.truncate(self._end)
            stream.seek(self._end)
        except BaseException:
            stream.close()
            raise
        return stream

    def _read_marks(self, stream: BinaryIO) -> None:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(len(MAGIC))
        stream.readline()
        self._end = stream.tell()
        while self._end + RECORD.size <= size:
            length, checksum, signature = RECORD.unpack(stream.read(RECORD.size))
            if self._end + RECORD.size + length > size or zlib.crc32(stream.read(length)) != checksum:
                return
            self.marks.append((self._end, signature))
            self._end += RECORD.size + length


def lock(stream: BinaryIO, path: Path) -> None:
    """Two jobs must not write one journal or folder; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows, where an open file cannot be replaced anyway
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileError(
            f"{path} is in use by another job; wait for it, or give another name to write"
        ) from error
