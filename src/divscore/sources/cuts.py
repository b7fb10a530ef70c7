"""Where a large text file is divided: after which bytes a record ends, as its reader sees it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.places import WHOLE, Location
from divscore.sources.table import Piece, Table

# Text is parsed at tens of megabytes a second: half a second of work, against some milliseconds to begin a piece.
PIECE_BYTES = 16 << 20
WORTH_PARSING = 64 << 20  # bytes of text: parsing them takes longer than starting processes
SLOW_TO_DIVIDE = 1 << 30  # bytes of text: looking for record boundaries takes seconds
BOM = b"\xef\xbb\xbf"
NEWLINE, RETURN, QUOTE, SPACE, TAB = b'\n\r" \t'


@dataclass(frozen=True)
class Marks:
    """Ends of records in some bytes of a file, and how many records there are up to each."""

    ends: NDArray[np.intp]
    records: NDArray[np.intp]


# Marks a window that begins with a record; the flags say whether it has the file's first and its last bytes.
Scan = Callable[[bytes, bool, bool], Marks]


def divisible(location: Location) -> bool:
    """Whether this is a text file that any worker can begin to read in its middle: others are fetched or kept whole."""
    here = not location.remote and location.path != "-" and os.path.isfile(location.url)
    return here and location.suffix in WHOLE and not location.recoded


def much_text(source: Table) -> bool:
    """Whether parsing is worth processes: it holds Python's lock."""
    files = source.locations
    if any(file.suffix not in WHOLE for file in files) or (len(files) < 2 and not divisible(files[0])):
        return False
    return sum(file.size() for file in files) >= WORTH_PARSING


def warn_of_dividing(what: str, files: Iterable[Location], warn: Callable[[str], None]) -> None:
    """Say that large files of text are scanned first, to find where they can be divided."""
    size = sum(file.size() for file in files if divisible(file))
    if size >= SLOW_TO_DIVIDE:
        warn(f"{what}: scanning for row boundaries in {size / 1e9:,.1f} GB of text")


def pieces_of(location: Location, scan: Scan, rows: int | None = None) -> list[Piece]:
    """Runs of bytes that begin and end with a record: as many as fit into `PIECE_BYTES`, and `rows` at most.

    They may hold more than `rows` where lone carriage returns end records: nothing is divided there. None where the
    file has to be read from end to end: it is small, not here, or a record is larger than a piece.
    """
    if not divisible(location):
        return []  # without opening it: that would fetch the whole, or wait for whoever writes to a pipe
    size = location.size()
    if rows is None and size <= PIECE_BYTES:
        return []
    pieces: list[Piece] = []
    start = first = line = 0  # byte, record and line with which the next piece begins
    at = records = lines = 0  # bytes, records and lines before the window
    with location.reading("text"), location.open() as stream:
        while at < size:
            # The next window begins at the last cut: bytes after it are read twice, and memory stays at one window.
            stream.seek(at)
            window = stream.read(PIECE_BYTES)
            last = at + len(window) >= size
            marks = scan(window, at == 0, last)
            if not len(marks.ends):
                return []
            before = at, records
            for cut in _chosen(marks, rows, last):
                end = before[0] + int(marks.ends[cut])
                lines += _line_breaks(window[at - before[0] : end - before[0]], scan is not mark_lines)
                at, records = end, before[1] + int(marks.records[cut])
                if records > first:  # or else there are only blank lines, which go to the next
                    pieces.append(Piece(start, at, "bytes", records - first, first, line))
                    start, first, line = at, records, lines
    if pieces:
        pieces[-1] = replace(pieces[-1], stop=size)  # with the blank lines at the end
    return pieces


def _line_breaks(data: bytes, table: bool) -> int:
    """Ends of lines; in a table a lone carriage return is one."""
    returns = data.count(b"\r") - data.count(b"\r\n") if table and b"\r" in data else 0
    return data.count(b"\n") + returns


def mark_lines(window: bytes, first: bool, last: bool) -> Marks:
    """Every line is a record, unless it is blank."""
    data = np.frombuffer(window, dtype=np.uint8)
    breaks = np.flatnonzero(data == NEWLINE)
    if last and not window.endswith(b"\n"):
        breaks = np.append(breaks, len(data))
    starts = np.concatenate(([_begin(window, first)], breaks[:-1] + 1))[: len(breaks)]
    filled = breaks > starts
    begins = starts[filled]
    if not _solid(data[begins]).all():
        # Each stretch from one of these to the next is a line, its break, and empty lines, which are blank too.
        filled[filled] = np.logical_or.reduceat(_solid(data[: breaks[-1]]), begins)
    return Marks(np.minimum(breaks + 1, len(data)), np.cumsum(filled, dtype=np.intp))


def mark_table(window: bytes, first: bool, last: bool, delimiter: str) -> Marks:
    """Records of a table end at line breaks outside quotes; the header is none, nor is an empty line."""
    data, begin = np.frombuffer(window, dtype=np.uint8), _begin(window, first)
    ending = data == NEWLINE
    breaks = np.flatnonzero(ending | (data == RETURN) if b"\r" in window else ending)
    if b'"' in window:
        breaks = _outside(breaks, data, begin, ord(delimiter))
    stops = np.append(breaks, len(data))
    records = np.cumsum(stops > np.concatenate(([begin], breaks + 1)), dtype=np.intp)
    if first:
        if not len(breaks) or not records[-2]:
            return Marks(breaks[:0], records[:0])  # the header does not end in this window
        records = np.maximum(records - 1, 0)
    # Readers take a lone carriage return for a line break, too; nothing is gained by dividing there.
    ends = np.flatnonzero(data[breaks] == NEWLINE)
    if last and (not len(ends) or stops[ends[-1]] + 1 < len(data)):
        ends = np.append(ends, len(breaks))
    return Marks(np.minimum(stops[ends] + 1, len(data)), records[ends])


def _begin(window: bytes, first: bool) -> int:
    return len(BOM) if first and window.startswith(BOM) else 0


def _solid(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which bytes are not blank; the blank ones from tab to carriage return follow one another."""
    solid: NDArray[np.bool_] = (data != SPACE) & ((data < TAB) | (data > RETURN))
    return solid


def _outside(
    breaks: NDArray[np.intp], data: NDArray[np.uint8], begin: int, delimiter: int
) -> NDArray[np.intp]:
    """Line breaks that are not quoted.

    Quoting begins only where a cell begins; any other quote outside is a character like others. Inside, two quotes
    stand for one. So an even number of quotes, one right after another, changes nothing. An odd number ends quoting if
    there is any, and begins it if there is none and a cell begins there.
    """
    quotes = np.flatnonzero(data == QUOTE)
    before = data[quotes - 1]
    if quotes[0] == begin:
        before[0] = NEWLINE
    heads = before != QUOTE
    if not heads.all():
        odd = np.flatnonzero(heads)
        odd = odd[(np.diff(odd, append=len(quotes)) & 1).astype(bool)]
        quotes, before = quotes[odd], before[odd]
    inside = (before == delimiter) | (before == NEWLINE) | (before == RETURN)
    if (inside[1:] & inside[:-1]).any():
        # Inside, a delimiter or line break begins no cell: such quotes take turns, counted from the last other one.
        order = np.arange(1, len(inside) + 1, dtype=np.int32)
        others = order * ~inside
        order -= np.maximum.accumulate(others, out=others)
        inside = (order & 1).astype(bool)
    # The last, at -1, is for breaks before any quote.
    outside: NDArray[np.intp] = breaks[np.append(~inside, True)[np.searchsorted(quotes, breaks) - 1]]
    return outside


def _chosen(marks: Marks, rows: int | None, last: bool) -> list[int]:
    """Which of the ends to divide at: every `rows` records, or else the last one."""
    final = len(marks.ends) - 1
    if rows is None:
        return [final]
    wanted = np.arange(rows, int(marks.records[-1]) + (not last), rows)
    cuts: list[int] = np.searchsorted(marks.records, wanted).tolist()
    return [*cuts, final] if last or not cuts else cuts


# Some bytes of a text file as a stream of their own.

READ_AT_ONCE = 1 << 20


class _ByteRange(io.RawIOBase):
    """The next `size` bytes of an open file."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_piece(location: Location, piece: Piece | None) -> BinaryIO:
    """Open a text file, or some of its records."""
    stream = location.open()
    if piece is None:
        return stream
    # The byte before shows whether a line still begins here.
    stream.seek(max(0, piece.start - 1))
    if piece.start and stream.read(1) != b"\n":
        stream.close()
        raise _changed(location, f"no row begins at byte {piece.start}")
    return cast(BinaryIO, io.BufferedReader(_ByteRange(stream, piece.stop - piece.start), READ_AT_ONCE))


def check_records(location: Location, piece: Piece | None, read: int) -> None:
    """Refuse a piece in which the reader found another number of records than was counted when it was cut."""
    if piece is not None and piece.rows != read:
        raise _changed(location, f"{piece} have {read:,} rows, not {piece.rows:,}")


def _changed(location: Location, what: str) -> FileError:
    return FileError(
        f"{location.label} has changed since the work was planned ({what}), or this machine has another copy"
    )
