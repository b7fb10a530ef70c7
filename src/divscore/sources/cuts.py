"""Where a large text file is divided: after which bytes a record ends, as its reader sees it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from divscore.sources.block import Piece
from divscore.sources.location import WHOLE, Location

__all__ = ["BOM", "Marks", "divisible", "mark_lines", "mark_table", "pieces_of"]

# Text is parsed at tens of megabytes a second: half a second of work, against some milliseconds to begin a piece.
PIECE_BYTES = 16 << 20
BOM = b"\xef\xbb\xbf"
NEWLINE, RETURN, QUOTE = b'\n\r"'
BLANK = np.isin(np.arange(256), list(b" \t\n\r\x0b\x0c"))


@dataclass(frozen=True)
class Marks:
    """Ends of records in some bytes of a file, and how many records there are up to each."""

    ends: NDArray[np.intp]
    records: NDArray[np.intp]


# Marks bytes that begin with a record; is told whether they are the file's first, and its last.
Scan = Callable[[bytes, bool, bool], Marks]


def divisible(location: Location) -> bool:
    """Whether this is a text file that any worker can begin to read in its middle: others are fetched or kept whole."""
    here = not location.remote and location.path != "-" and os.path.isfile(location.url)
    return here and location.suffix in WHOLE


def pieces_of(location: Location, scan: Scan, rows: int | None = None) -> list[Piece]:
    """Runs of bytes that begin and end with a record: as many as fit into `PIECE_BYTES`, and `rows` at most.

    None where the file has to be read from end to end: it is small, not here, or a record is larger than a piece.
    """
    size = location.size() if divisible(location) else 0
    if rows is None and size <= PIECE_BYTES:
        return []
    found: list[Piece] = []
    start = first = line = 0  # where the next piece begins
    at = records = lines = 0  # what was looked at
    with location.reading("text"), location.open() as stream:
        while at < size:
            stream.seek(at)
            window = stream.read(PIECE_BYTES)
            last = at + len(window) >= size
            marks = scan(window, at == 0, last)
            if not len(marks.ends):
                return []
            begun, seen, passed = at, records, lines
            for cut in _chosen(marks, rows, last):
                at, lines = begun + int(marks.ends[cut]), passed + cut + 1
                records = seen + int(marks.records[cut])
                if records > first:  # or else there are only blank lines, which go to the next
                    found.append(Piece(start, at, "bytes", records - first, first, line))
                    start, first, line = at, records, lines
    if found:
        found[-1] = replace(found[-1], stop=size)
    return found


def mark_lines(window: bytes, first: bool, last: bool) -> Marks:
    """Every line is a record, unless it is blank."""
    data = np.frombuffer(window, dtype=np.uint8)
    breaks = np.flatnonzero(data == NEWLINE)
    if last and not window.endswith(b"\n"):
        breaks = np.append(breaks, len(data))
    starts = np.concatenate(([_begin(window, first)], breaks[:-1] + 1))[: len(breaks)]
    filled = breaks > starts
    for line in np.flatnonzero(filled & BLANK[data[np.minimum(starts, len(data) - 1)]]).tolist():
        filled[line] = bool(window[starts[line] : breaks[line]].strip())
    return Marks(np.minimum(breaks + 1, len(data)), np.cumsum(filled, dtype=np.intp))


def mark_table(window: bytes, first: bool, last: bool, delimiter: str) -> Marks:
    """Records of a table end at line breaks outside quotes; the header is none, nor is an empty line."""
    data, begin = np.frombuffer(window, dtype=np.uint8), _begin(window, first)
    ending = data == NEWLINE
    breaks = np.flatnonzero(ending | (data == RETURN) if b"\r" in window else ending)
    if b'"' in window:
        breaks = breaks[np.searchsorted(_edges(data, begin, ord(delimiter)), breaks) % 2 == 0]
    stops = np.append(breaks, len(data))
    records = np.cumsum(stops > np.concatenate(([begin], breaks + 1)), dtype=np.intp)
    if first:
        if not len(breaks) or not records[-2]:
            return Marks(breaks[:0], records[:0])  # the header is not to be seen
        records = np.maximum(records - 1, 0)
    # Readers take a lone carriage return for a line break, too; nothing is gained by dividing there.
    ends = np.flatnonzero(data[breaks] == NEWLINE)
    if last and (not len(ends) or stops[ends[-1]] + 1 < len(data)):
        ends = np.append(ends, len(breaks))
    return Marks(np.minimum(stops[ends] + 1, len(data)), records[ends])


def _begin(window: bytes, first: bool) -> int:
    return len(BOM) if first and window.startswith(BOM) else 0


def _edges(data: NDArray[np.uint8], begin: int, delimiter: int) -> NDArray[np.intp]:
    """Quotes at which quoting begins and ends, by turns.

    It begins only where a cell begins; any other quote outside is a character like others. Inside, two quotes stand
    for one, which comes to the same as an end and a new beginning.
    """
    quotes = np.flatnonzero(data == QUOTE)
    before = data[quotes - 1]
    opening = (before == delimiter) | (before == NEWLINE) | (before == RETURN) | (quotes == begin)
    doubled = np.diff(quotes, prepend=-2) == 1
    if (opening | doubled)[::2].all():
        return quotes
    places, opens = quotes.tolist(), opening.tolist()
    found, at = [], 0
    while at < len(places):
        if not opens[at]:
            at += 1
            continue
        found.append(places[at])
        at += 1
        while at + 1 < len(places) and places[at + 1] == places[at] + 1:
            at += 2
        found += places[at : at + 1]
        at += 1
    return np.array(found, dtype=np.intp)


def _chosen(marks: Marks, rows: int | None, last: bool) -> list[int]:
    """Which of the ends to divide at: every `rows` records, or else the last one."""
    final = len(marks.ends) - 1
    if rows is None:
        return [final]
    wanted = np.arange(rows, int(marks.records[-1]) + (not last), rows)
    cuts: list[int] = np.searchsorted(marks.records, wanted).tolist()
    return [*cuts, final] if last or not cuts else cuts
