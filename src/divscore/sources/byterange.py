"""ByteRange: some bytes of a text file as a stream of their own."""

from __future__ import annotations

import io
from typing import Any, BinaryIO, cast

from divscore.errors import FileError
from divscore.sources.places import Location
from divscore.sources.table import Piece

__all__ = ["check_records", "open_piece"]

READ_AT_ONCE = 1 << 20


class ByteRange(io.RawIOBase):
    """The bytes of an open file from `start` to `stop`; nothing before them is read but one byte."""

    def __init__(self, stream: BinaryIO, start: int, stop: int) -> None:
        self._stream, self._left = stream, stop - start
        stream.seek(max(0, start - 1))
        self.whole = start == 0 or stream.read(1) == b"\n"  # whether a line begins here

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, or what of it there are bytes for."""
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        """Close the file as well."""
        self._stream.close()
        super().close()


def open_piece(location: Location, piece: Piece | None) -> BinaryIO:
    """Open a text file, or some of its records."""
    if piece is None:
        return location.open()
    inside = ByteRange(location.open(), piece.start, piece.stop)
    if not inside.whole:
        inside.close()
        raise _changed(location, f"no row begins at byte {piece.start}")
    return cast(BinaryIO, io.BufferedReader(inside, READ_AT_ONCE))


def check_records(location: Location, piece: Piece | None, read: int) -> None:
    """Refuse a piece in which the reader found another number of records than was counted when it was cut."""
    if piece is not None and piece.rows != read:
        raise _changed(location, f"{piece} hold {read:,} rows, not {piece.rows:,}")


def _changed(location: Location, what: str) -> FileError:
    return FileError(
        f"{location.label} is not as it was when the work was planned ({what}): it was changed, or another copy lies "
        "here"
    )
