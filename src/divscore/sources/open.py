"""Open vectors by the file's suffix; a pattern of files is one source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePath

from divscore.audit.missing import Missing
from divscore.errors import FileError
from divscore.sources.address import is_pattern
from divscore.sources.arrays import NpySource, NpzSource
from divscore.sources.arrow import ParquetSource
from divscore.sources.hive import HiveSource
from divscore.sources.ipc import ArrowSource
from divscore.sources.jsonlines import JsonLinesSource
from divscore.sources.lines import LinesSource
from divscore.sources.locate import locate, locate_files
from divscore.sources.places import Location, NoRowsError, folder_values
from divscore.sources.table import PROBLEMS_KEPT, Block, Request, VectorSource
from divscore.sources.textfiles import DelimitedSource
from divscore.text import public

__all__ = [
    "SUFFIXES",
    "TEXT_SUFFIXES",
    "ManySource",
    "open_located",
    "open_many",
    "open_one",
    "open_vectors",
    "parts_of",
]

SUFFIXES: dict[str, type[VectorSource]] = {
    ".npy": NpySource,
    ".npz": NpzSource,
    ".parquet": ParquetSource,
    ".arrow": ArrowSource,
    ".feather": ArrowSource,
    ".ipc": ArrowSource,
    ".csv": DelimitedSource,
    ".tsv": DelimitedSource,
    ".jsonl": JsonLinesSource,
    ".ndjson": JsonLinesSource,
}
TEXT_SUFFIXES: dict[str, type[VectorSource]] = {
    ".txt": LinesSource,
    ".text": LinesSource,
    ".lst": LinesSource,
}


OPENED_AT_ONCE = 16  # remote files, whose answers are waited for


class ManySource(VectorSource):
    """Several files of equal dimension, one after the other."""

    def __init__(self, pattern: str, parts: Sequence[VectorSource], unopened: Sequence[Missing] = ()) -> None:
        first = parts[0]
        super().__init__(first.location, first.request)
        self.parts = tuple(parts)
        self.unopened = (*unopened, *(each for part in parts for each in part.unopened))
        shown = public(pattern)
        self.path = self.label = shown
        # A folder is called by its own name; a pattern has none but itself.
        self.name = shown if is_pattern(pattern) else PurePath(shown).name or shown
        self.dimension, self.columns, self.metadata = first.dimension, first.columns, first.metadata
        counts = [part.rows for part in parts if part.rows is not None]
        self.rows = sum(counts) if len(counts) == len(parts) else None
        for part in parts:
            if part.dimension != first.dimension:
                raise FileError(
                    f"{part.path} has vectors of {part.dimension} numbers, but {first.path} of "
                    f"{first.dimension}; files of one pattern need the same dimension"
                )

    def _blocks(self) -> Iterator[Block]:
        for part in self.parts:
            unreadable, problems = self.unreadable, self.problems
            for block in part:
                self.unreadable = unreadable + part.unreadable
                yield block
            self.unreadable = unreadable + part.unreadable
            self.problems = [*problems, *part.problems][:PROBLEMS_KEPT]


def open_vectors(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    strict: bool = False,
    batch_rows: int = 65536,
) -> VectorSource:
    """Open the vectors of one file; ``-`` is CSV or JSON lines from standard input.

    Parameters
    ----------
    path : path
        A file with one of the known suffixes (`SUFFIXES`), local or with a protocol that fsspec knows.
    column : str, optional
        The column of vectors, where several could be meant.
    extra : sequence of str
        Further columns to read, as text.
    strict : bool
        Make the first row without a usable vector an error instead of counting it.
    batch_rows : int
        Most rows of a block; blocks of long vectors have fewer, to keep memory small.
    """
    return open_located([locate(path)], _request(column, extra, strict, batch_rows))


def open_many(
    pattern: str | os.PathLike[str],
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    strict: bool = False,
    batch_rows: int = 65536,
) -> VectorSource:
    """Open the files of a pattern such as ``data/*.parquet`` as one source, or a plain path as it is."""
    files = locate_files(pattern)
    request = _request(column, extra, strict, batch_rows)
    return open_located(files.found, request, os.fspath(pattern), files.unopened)


def open_located(
    found: Sequence[Location], request: Request, pattern: str = "", unopened: Sequence[Missing] = ()
) -> VectorSource:
    """Open files that were found before; a bad one among several is left out and noted, unless strict.

    One without rows among several is simply not there. Those that are `unopened` already are bad ones as well.
    """
    if unopened and request.strict:
        raise FileError(f"{unopened[0].reason}; mend it, or leave out --strict")
    if len(found) == 1 and not unopened:
        found[0].check()
        return _checked(open_one(found[0], request))
    with ThreadPoolExecutor(OPENED_AT_ONCE if found[0].remote else 1) as pool:
        tried = list(pool.map(lambda location: _try(location, request), found))
    parts = [each for each in tried if isinstance(each, VectorSource)]
    bad = [
        (location, each)
        for location, each in zip(found, tried, strict=True)
        if isinstance(each, FileError) and not isinstance(each, NoRowsError)
    ]
    if bad and (request.strict or not parts):
        raise bad[0][1]
    if not parts:
        raise NoRowsError(f"{public(pattern)}: none of its {len(found):,} files has any rows")
    unread = [Missing(location.label, str(error)) for location, error in bad]
    return _checked(ManySource(pattern, parts, [*unopened, *unread]))


def _checked(source: VectorSource) -> VectorSource:
    """Refuse vectors that were made without some files, if strict."""
    if source.unopened and source.request.strict:
        raise FileError(f"{source.unopened[0].reason}; mend it and embed again, or leave out --strict")
    return source


def parts_of(source: VectorSource) -> Sequence[VectorSource]:
    """The files of a source."""
    return source.parts if isinstance(source, ManySource) else [source]


def _try(location: Location, request: Request) -> VectorSource | FileError:
    try:
        location.check()
        return open_one(location, request)
    except FileError as error:
        return error


def open_one(location: Location, request: Request) -> VectorSource:
    """Open one file that is known to be there; asked for a column that its folders name, with that column."""
    named = {name: value for name, value in folder_values(location).items() if name in request.extra}
    if not named:
        return _open(location, request)
    inside = tuple(name for name in request.extra if name not in named)
    opened = _open(location, replace(request, extra=inside))
    if named.keys() & opened.columns.keys():
        # The file has the column itself, which is believed more than its folder.
        named = {name: value for name, value in named.items() if name not in opened.columns}
        inside = tuple(name for name in request.extra if name not in named)
        opened = _open(location, replace(request, extra=inside))
    return HiveSource(opened, named) if named else opened


def _open(location: Location, request: Request) -> VectorSource:
    known = SUFFIXES if request.vectors else {**SUFFIXES, **TEXT_SUFFIXES}
    source = known.get(location.suffix)
    if source is None:
        got = f"the suffix '{location.suffix}'" if location.suffix else "no suffix"
        raise FileError(f"{location.label} has {got}; files of vectors end in {', '.join(SUFFIXES)}")
    return source(location, request)


def _request(column: str | None, extra: Sequence[str], strict: bool, batch_rows: int) -> Request:
    if batch_rows < 1:
        raise FileError(f"blocks of {batch_rows} rows were asked for; expected at least 1")
    return Request(column, tuple(dict.fromkeys(extra)), strict, batch_rows)
