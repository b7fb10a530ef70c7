"""Open vectors by the file's suffix; a pattern of files is one source."""

from __future__ import annotations

import glob
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from divscore.errors import FileError
from divscore.sketch.missing import MissingPart
from divscore.sources.arrays import NpySource, NpzSource
from divscore.sources.arrow import ArrowSource, HiveSource, ParquetSource
from divscore.sources.manifest import missing_beside
from divscore.sources.places import (
    Files,
    Location,
    NoRowsError,
    UnseenError,
    file_in,
    filesystem_of,
    folder_values,
    form_of,
    is_pattern,
    over_http,
    unseen,
)
from divscore.sources.table import PROBLEMS_KEPT, Block, Request, Table
from divscore.sources.textfiles import DelimitedSource, JsonLinesSource, LinesSource
from divscore.text import public

__all__ = [
    "SUFFIXES",
    "TEXT_SUFFIXES",
    "ManySource",
    "Partition",
    "UnseenError",
    "check_here",
    "is_folder",
    "locate",
    "locate_all",
    "locate_files",
    "open_located",
    "open_many",
    "open_one",
    "open_vectors",
    "partitions_of",
]


# Find what a user names: one file, the files of a pattern, standard input; and tell a folder.

COPIED_AT_ONCE = 1 << 20


def locate(path: str | os.PathLike[str], form: str = "") -> Location:
    """Find one file; ``-`` is standard input, kept in a temporary file so that it can be read twice."""
    text = os.fspath(path)
    if text == "-":
        return _keep_standard_input(form)
    location = Location(text, text, form)
    location.check()
    return location


def locate_all(pattern: str | os.PathLike[str], form: str = "") -> list[Location]:
    """Find the files of a pattern in sorted order, or the one file of a plain path."""
    text = os.fspath(pattern)
    if not _is_pattern(text):
        return [locate(text, form)]
    if "://" in text:
        filesystem, path = filesystem_of(text)
        with Location(text, text).reading("a remote folder"):
            found = [filesystem.unstrip_protocol(name) for name in filesystem.glob(path)]
    else:
        found = [name for name in glob.glob(text, recursive=True) if os.path.isfile(name)]
    if not found:
        raise FileError(f"no file matches '{public(text)}'; check the pattern, and the folder it starts from")
    # Not checked yet: a bad file is one among others, not the end.
    return [Location(name, name, form) for name in sorted(found)]


def locate_files(pattern: str | os.PathLike[str], form: str = "") -> Files:
    """The same, and what is missing from the folders in which a pattern found parts that `embed` wrote."""
    found = locate_all(pattern, form)
    return Files(found, missing_beside(found) if _is_pattern(os.fspath(pattern)) else ())


def _is_pattern(text: str) -> bool:
    return is_pattern(text) and not os.path.exists(text)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether this is a folder, here or on a remote file system."""
    text = os.fspath(path)
    if "://" not in text:
        return os.path.isdir(text)
    if is_pattern(text):
        return False
    if over_http(text):
        # To be asked for its links, a file would be fetched whole.
        return file_in(text).name == "" or text.partition("?")[0].endswith("/")
    filesystem, inside = filesystem_of(text)
    with Location(text, text).reading("a remote folder"):
        return bool(filesystem.isdir(inside))


_KEPT: dict[str, tuple[Any, Location]] = {}


def _keep_standard_input(form: str) -> Location:
    stream = sys.stdin.buffer
    earlier = _KEPT.get("-")
    if earlier is not None and earlier[0] is stream:
        return earlier[1]  # it can be read once only, and was
    head = stream.read(COPIED_AT_ONCE)
    if not head.strip():
        raise FileError(
            "standard input is empty; expected CSV with a header line, JSON lines, or lines of text"
        )
    handle, url = tempfile.mkstemp(prefix="divscore-", suffix=form or form_of(head))
    with os.fdopen(handle, "wb") as copy:
        while head:
            copy.write(head)
            head = stream.read(COPIED_AT_ONCE)
    location = Location("-", url)
    weakref.finalize(location, os.unlink, url)
    _KEPT["-"] = stream, location
    return location


SUFFIXES: dict[str, type[Table]] = {
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
TEXT_SUFFIXES: dict[str, type[Table]] = {
    ".txt": LinesSource,
    ".text": LinesSource,
    ".lst": LinesSource,
}


OPENED_AT_ONCE = 16  # remote files, whose answers are waited for


class ManySource(Table):
    """Several files of equal dimension, one after the other."""

    def __init__(self, pattern: str, parts: Sequence[Table], missing: Sequence[MissingPart] = ()) -> None:
        first = parts[0]
        super().__init__(first.location, first.request)
        self.parts = tuple(parts)
        self.missing = (*missing, *(each for part in parts for each in part.missing))
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

    @property
    def many(self) -> bool:
        """It has, or had before some were found to be bad."""
        return True

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
) -> Table:
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
) -> Table:
    """Open the files of a pattern such as ``data/*.parquet`` as one source, or a plain path as it is."""
    files = locate_files(pattern)
    request = _request(column, extra, strict, batch_rows)
    return open_located(files.found, request, os.fspath(pattern), files.missing)


def open_located(
    found: Sequence[Location], request: Request, pattern: str = "", missing: Sequence[MissingPart] = ()
) -> Table:
    """Open files that were found before; a bad one among several is left out and noted, unless strict.

    One without rows among several is simply not there. Those that are `missing` already are bad ones as well.
    """
    if missing and request.strict:
        raise FileError(f"{missing[0].reason}; mend it, or leave out --strict")
    if len(found) == 1 and not missing:
        found[0].check()
        return _checked(open_one(found[0], request))
    with ThreadPoolExecutor(OPENED_AT_ONCE if found[0].remote else 1) as pool:
        tried = list(pool.map(lambda location: _try(location, request), found))
    parts = [each for each in tried if isinstance(each, Table)]
    bad = [
        (location, each)
        for location, each in zip(found, tried, strict=True)
        if isinstance(each, FileError) and not isinstance(each, NoRowsError)
    ]
    if bad and (request.strict or not parts):
        raise bad[0][1]
    if not parts:
        raise NoRowsError(f"{public(pattern)}: none of its {len(found):,} files has any rows")
    unread = [MissingPart(location.label, str(error)) for location, error in bad]
    return _checked(ManySource(pattern, parts, [*missing, *unread]))


def _checked(source: Table) -> Table:
    """Refuse vectors that were made without some files, if strict."""
    if source.missing and source.request.strict:
        raise FileError(f"{source.missing[0].reason}; mend it and embed again, or leave out --strict")
    return source


def _try(location: Location, request: Request) -> Table | FileError:
    try:
        location.check()
        return open_one(location, request)
    except FileError as error:
        return error


def open_one(location: Location, request: Request) -> Table:
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


def _open(location: Location, request: Request) -> Table:
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


# Partition: a file, or a run of its rows, described so that any worker can read it.


@dataclass(frozen=True)
class Partition:
    """What to read where; how files are cut into partitions depends on the files alone, never on the workers."""

    location: Location
    request: Request
    rows: int | None
    size: int  # bytes of the file when the work was planned

    @property
    def label(self) -> str:
        """What messages call it."""
        piece = self.request.piece
        return f"{self.location.label}, {piece}" if piece else self.location.label

    def __str__(self) -> str:
        return self.label

    def open(self, block_bytes: int | None = None) -> Table:
        """Open it for reading, wherever this is, perhaps in larger blocks than usual."""
        check_here(self.location, self.size)
        request = self.request if block_bytes is None else replace(self.request, block_bytes=block_bytes)
        return open_one(self.location, request)


def check_here(location: Location, size: int) -> None:
    """Refuse a file that is not there for this worker, or has another size than when the work was planned."""
    if not location.remote and not os.path.exists(location.url):
        raise UnseenError(unseen(location.label))
    found = location.size()
    if found != size:
        raise FileError(
            f"{location.label} has {found:,} bytes, and had {size:,} when the work was planned: it was "
            "changed, or another copy lies here"
        )


def partitions_of(source: Table) -> Iterator[Partition]:
    """Cut a source into partitions: file by file, each from its start to its end."""
    for part in source.parts:
        request = replace(part.request, dimension=part.dimension)
        location, size = part.location.anywhere, part.location.size()
        pieces = part.pieces()
        if len(pieces) < 2:
            yield Partition(location, request, part.rows, size)
            continue
        for piece in pieces:
            yield Partition(location, replace(request, piece=piece), piece.rows, size)
