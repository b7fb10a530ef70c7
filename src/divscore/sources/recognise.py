"""open(): whatever a user names, as a Table of vectors or as Items to encode; every file is opened once."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from divscore.control.similarity import is_sparse
from divscore.errors import FileError, InputError
from divscore.files import PathLike
from divscore.sketch.missing import MissingPart
from divscore.sources.arrays import ArrayTable, BlockStream, NpyFile, NpzFile
from divscore.sources.arrow import IpcFile, ParquetFile, StreamedTable
from divscore.sources.items import (
    Items,
    PictureFiles,
    PictureFolder,
    TableItems,
    is_media,
    is_picture,
    names_pictures,
)
from divscore.sources.manifest import MANIFEST, Manifest, missing_beside, read_manifest, read_manifests
from divscore.sources.pictures import NOT_READ
from divscore.sources.places import ADVICE, Location, NoRowsError, files_in, is_folder, is_pattern, locate
from divscore.sources.table import PROBLEMS_KEPT, Block, Request, Table
from divscore.sources.textfiles import WORDS, DelimitedFile, JsonLinesFile, LinesFile
from divscore.text import public, quoted

ARRAYS = frozenset({".npy", ".npz"})
VECTOR_FORMATS: dict[str, type[Table]] = {
    ".npy": NpyFile,
    ".npz": NpzFile,
    ".parquet": ParquetFile,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), IpcFile),
    **dict.fromkeys((".csv", ".tsv"), DelimitedFile),
    **dict.fromkeys((".jsonl", ".ndjson"), JsonLinesFile),
}
FORMATS: dict[str, type[Table]] = {**VECTOR_FORMATS, **dict.fromkeys((".txt", ".text", ".lst"), LinesFile)}
OPENED_AT_ONCE = 16  # remote files, which answer slowly


def open(
    thing: Any,
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    exclude: Sequence[str] = (),
    form: str = "",
    strict: bool = False,
    forced: bool = False,
    labelled: bool = False,
) -> Items | Table:
    """Open a collection, once: what it has (`kind`, `columns`, `rows`, `missing`) is known from what this returns.

    `thing` is a folder of pictures or of tables, a file, a quoted pattern, an address such as ``s3://…``, ``-``; a
    NumPy array, a table with the Arrow interface (pandas, polars, pyarrow), or an iterable of arrays. `column` has the
    texts, the paths of pictures or the vectors; `extra` columns are read as text; those of `exclude`, such as the
    groups, cannot be the items. `form` is a suffix to read a file by. `strict` makes the first unreadable row or file
    an error. `forced` takes the items even where the table also has vectors. `labelled` refuses a table that begins
    with an example instead of a header: the first example would be lost.
    """
    if isinstance(thing, str | os.PathLike):
        text = os.fspath(thing)
        files = files_of(text, form)
        if files is None:
            return PictureFolder(text).select(extra)
        pictures = [is_media(each.url) and not form for each in files.locations]
        if all(pictures):
            return PictureFiles(text, files.locations).select(extra)
        if any(pictures):
            other = next(each for each, picture in zip(files.locations, pictures, strict=True) if not picture)
            raise FileError(
                f"'{text}' names pictures and other files ({other.label}); audit one kind at a time"
            )
        table = open_files(files, text, Request(strict=strict, vectors=False))
    else:
        table = _in_memory(thing, Request(strict=strict, vectors=False))
    if labelled:
        usual = {"id", "label", *PICTURES, *PATHS, *TEXTS, *NAMES, *(name.lower() for name in exclude)}
        for part in table.parts:
            part.check_header(usual | ({column.lower()} if column else set()))
    extra = tuple(dict.fromkeys(extra))
    chosen = None
    if table.columns and table.location.suffix not in ARRAYS:
        # Some of many files may be unlike the others, so the first ones are asked until one answers.
        errors = []
        for part in table.parts[:FIRST_FILES]:
            try:
                chosen = item_column(part, column, (*exclude, *extra), forced)
                break
            except FileError as error:
                errors.append(error)
        else:
            raise errors[0]
    if chosen is None:
        return table.select(vectors=True, column=column, extra=extra)
    return TableItems(table, chosen, extra=extra)


def open_pictures(folder: PathLike) -> Items:
    """Open a folder of pictures with its sub-folders as a column, whatever else is in it."""
    return PictureFolder(os.fspath(folder)).select(["folder"])


def open_table(
    thing: Any,
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    strict: bool = False,
    batch_rows: int = 65536,
    vectors: bool = True,
    form: str = "",
) -> Table:
    """Open vectors, which are known to be vectors: a file, the files of a pattern as one table, or an object.

    `batch_rows` is the largest number of rows in a block; blocks of long vectors have fewer, to keep memory small.
    Without `vectors` only the `extra` columns are read.
    """
    if batch_rows < 1:
        raise InputError(f"batch_rows is {batch_rows}; expected at least 1")
    request = Request(column, tuple(dict.fromkeys(extra)), strict, batch_rows, vectors=vectors)
    if not isinstance(thing, str | os.PathLike):
        return _in_memory(thing, request)
    return open_files(named_files(os.fspath(thing), form), os.fspath(thing), request)


def _in_memory(thing: Any, request: Request) -> Table:
    module = type(thing).__module__.partition(".")[0]
    if isinstance(thing, np.ndarray) or is_sparse(thing):
        table: Table = ArrayTable(thing, request)
    elif hasattr(thing, "__arrow_c_stream__") or module == "pandas":
        table = StreamedTable(thing, request)
    elif isinstance(thing, Iterable):
        table = BlockStream(thing, request)
    else:
        raise InputError(
            f"cannot open a {type(thing).__name__}; expected a path, a NumPy array, a table (pandas, polars, pyarrow) "
            "or an iterable of arrays"
        )
    return table.opened()


# Files: those that make one collection, and those known from the start to be missing from it.


@dataclass(frozen=True)
class Files:
    """The files that a path, a pattern or a folder names."""

    locations: Sequence[Location]
    missing: tuple[MissingPart, ...] = ()


def open_files(files: Files, pattern: str, request: Request) -> Table:
    """Open files as one table; a bad one among several is missing, unless strict."""
    missing, locations = files.missing, files.locations
    if missing and request.strict:
        raise FileError(f"{missing[0].reason}; fix it, or leave out --strict")
    if len(locations) == 1 and not missing:
        table = open_file(locations[0], request)
    else:
        # Opened without vectors; `ManyTable` then makes the same request to each.
        schema = Request(strict=request.strict, vectors=False, peek=False)
        with ThreadPoolExecutor(OPENED_AT_ONCE if locations[0].remote else 1) as pool:
            requests = [replace(schema, peek=True), *[schema] * (len(locations) - 1)]
            opened = list(pool.map(_open_or_error, locations, requests))
        table = ManyTable(pattern, list(zip(locations, opened, strict=True)), request, missing)
    if table.missing and request.strict:
        raise FileError(f"{table.missing[0].reason}; fix it and embed again, or leave out --strict")
    return table


class ManyTable(Table):
    """Several files with vectors of equal dimension, one after the other.

    A file that cannot be read is `missing`; one without rows is simply not there. All bad, or strict: an error.
    """

    many = True

    def __init__(
        self,
        pattern: str,
        opened: Sequence[tuple[Location, Table | FileError]],
        request: Request,
        missing: Sequence[MissingPart],
    ) -> None:
        super().__init__(Location(pattern, pattern), request)
        # A folder is called by its own name; a pattern has none but itself.
        self.name = self.path if is_pattern(pattern) else PurePath(self.path).name or self.path
        self._opened, self._missing = list(opened), tuple(missing)
        self._parts: list[Table] = []
        self._plan()

    @property
    def parts(self) -> Sequence[Table]:
        """One table for each file that can be read."""
        return self._parts

    def head(self, name: str) -> list[str]:
        """Those of the first file."""
        return self._parts[0].head(name)

    def _plan(self) -> None:
        self._parts, bad = [], []
        for location, each in self._opened:
            try:
                if isinstance(each, FileError):
                    raise each
                self._parts.append(each.select(**self.request.__dict__))
            except NoRowsError:
                continue
            except FileError as error:
                if self.request.strict:
                    raise
                bad.append((location, error))
        if not self._parts:
            if bad:
                raise bad[0][1]
            raise NoRowsError(f"{self.path}: none of its {len(self._opened):,} files has any rows")
        first, parts = self._parts[0], self._parts
        self.location, self.folder_values = first.location, first.folder_values
        self.dimension, self.columns, self.metadata = first.dimension, first.columns, first.metadata
        counts = [part.rows for part in parts if part.rows is not None]
        self.rows = sum(counts) if len(counts) == len(parts) else None
        unread = (MissingPart(location.label, str(error)) for location, error in bad)
        self.missing = (*self._missing, *unread, *(each for part in parts for each in part.missing))
        other = next((part for part in parts if part.dimension != first.dimension), None)
        if other is not None:
            raise FileError(
                f"{other.path} has vectors of {other.dimension} numbers, but {first.path} of {first.dimension}; "
                "all files need the same dimension"
            )

    def __iter__(self) -> Iterator[Block]:
        self.read, self.unreadable, self.problems = 0, 0, []
        for part in self._parts:
            yield from part
            self.read += part.read
            self.unreadable += part.unreadable
            self.problems = [*self.problems, *part.problems][:PROBLEMS_KEPT]


def _open_or_error(location: Location, request: Request) -> Table | FileError:
    try:
        return open_file(location, request)
    except FileError as error:
        return error


def open_file(location: Location, request: Request) -> Table:
    """Open one file by the reader of its suffix."""
    location.check()
    format_ = FORMATS.get(location.suffix)
    if format_ is None:
        if advice := ADVICE.get(location.suffix) or NOT_READ.get(location.suffix):
            raise FileError(f"{location.label} cannot be read: {advice}")
        suffix = f"the suffix '{location.suffix}'" if location.suffix else "no suffix"
        raise FileError(f"{location.label} has {suffix}; tables and vectors end in {', '.join(FORMATS)}")
    return format_(location, request).opened()


def files_of(text: str, form: str = "") -> Files | None:
    """The files that a path names, or the tables in a folder; None for a folder of pictures."""
    if text == "-" or not is_folder(text):
        return named_files(text, form)
    files = tables_in(text)
    return files if files.locations else None


def named_files(text: str, form: str = "") -> Files:
    """The files of a path or a pattern."""
    locations = locate(text, form)
    # A pattern finds the parts that `embed` wrote; their manifest says what is missing from them.
    several = is_pattern(text) and not os.path.exists(text)
    return Files(locations, missing_beside(locations) if several else ())


def tables_in(folder: str) -> Files:
    """Tables or arrays in a folder and those below it, in order; none where it has pictures or neither.

    Names that begin with a dot or an underscore are skipped, as data sets have them for their own purposes. Where
    `embed` wrote the folder, or one below it, its manifest says which files belong to it, and what is missing.
    """
    own = read_manifest(folder)
    if own is not None:
        return _files_of([own], [])
    names, job_folders = [], []
    unlisted: list[str] = []
    for name, inside in files_in(folder, unlisted):
        if any(part.startswith("_") for part in inside.split("/")):
            continue
        if is_picture(name):
            return Files([])
        if Location(name, name).suffix in VECTOR_FORMATS:
            names.append(name)
        elif os.path.basename(name) == MANIFEST and os.path.dirname(name) != folder.rstrip("/"):
            job_folders.append(os.path.dirname(name))
    jobs = {each.folder: each for each in read_manifests(job_folders, listed=True)}
    outermost = [jobs[name] for name in sorted(jobs) if not _inside(os.path.dirname(name), jobs)]
    others = [name for name in names if not _inside(os.path.dirname(name), jobs)] if jobs else names
    files = _files_of(outermost, others, unlisted)
    kinds = sorted({each.suffix for each in files.locations})
    if len(kinds) > 1:
        raise FileError(
            f"{public(folder)} has files of several kinds ({', '.join(kinds)}); choose some with a pattern, such as "
            f"'{public(folder).rstrip('/')}/**/*{kinds[0]}'"
        )
    return files


def _files_of(jobs: Sequence[Manifest], others: Sequence[str], unlisted: Sequence[str] = ()) -> Files:
    """Files that no job wrote, the parts that manifests list, and what is missing."""
    for each in jobs:
        each.check()
    places = [*sorted(others), *(place for each in jobs for place in each.places)]
    missing = [part for each in jobs for part in each.missing]
    missing += [MissingPart(each.partition(" cannot be listed")[0], each) for each in unlisted]
    return Files([Location(each, each) for each in places], tuple(missing))


def _inside(folder: str, jobs: Container[str]) -> bool:
    """Whether a folder is a job's own, or inside one, where only the job's parts count."""
    while folder not in jobs:
        above = os.path.dirname(folder)
        if above == folder or not above:
            return False
        folder = above
    return True


# Which column of a table has the items: texts, or pictures.

# Names by which a column says that it has the items, the surest first.
PICTURES = (
    "image",
    "img",
    "photo",
    "picture",
    "image_path",
    "img_path",
    "image_file",
    "filepath",
    "file_path",
)
PATHS = ("file", "file_name", "filename", "path")
TEXTS = ("text", "tweet", "post", "sentence", "content", "body", "comment", "message", "caption")
NAMES = ("name", "full_name", "first_name", "title", "headline", "description")
# As many columns of numbers next to a path are features of the picture, not facts about it.
FEATURES = 8
FIRST_FILES = 5


def item_column(table: Table, column: str | None, exclude: Sequence[str], forced: bool) -> str | None:
    """Name the column of texts or pictures; None where the table has vectors.

    `column` is the one the user named; `exclude` are known to be something else, such as the groups; `forced` means
    that the user asked for an encoder, so vectors in the table do not count.
    """
    columns = table.columns
    if column is not None:
        return column if table.kind_of(column) in {"text", "picture"} else None
    if "vector" in columns.values() and not forced:
        return None
    usual = usual_column(table, {name: kind for name, kind in columns.items() if name not in exclude}, forced)
    if usual is not None:
        return usual
    texts = [name for name, kind in columns.items() if kind == "text" and name not in exclude]
    # The column of running text, if there is just one: several words in most cells.
    wordy = [n for n in texts if 2 * sum(len(c.split()) >= WORDS for c in table.head(n)) > len(table.head(n))]
    if len(wordy) == 1 and _features(columns) < FEATURES:
        return wordy[0]
    if "number" in columns.values() and not forced and _features(columns):
        return None
    texts = [name for name in texts if name.lower() != "id"]
    if len(texts) == 1:
        return texts[0]
    if not texts and not forced:
        return None
    raise FileError(
        f"{table.label}: it is unclear which column has the items; it has {quoted(columns)}. Name one with --column"
    )


def usual_column(table: Table, columns: Mapping[str, str], forced: bool) -> str | None:
    """The column that has the items by its name."""
    features = 0 if forced else _features(columns)
    for names, kinds in (
        (PICTURES, {"picture", "text"}),
        (PATHS, {"text"}),
        (TEXTS, {"text"}),
        (NAMES, {"text"}),
    ):
        for name in (each for wanted in names for each in columns if each.lower() == wanted):
            if columns[name] not in kinds or (names is NAMES and features):
                continue
            path = names is PATHS or (names is PICTURES and columns[name] == "text")
            if not path or (features < FEATURES and names_pictures(table, name)):
                return name
    return None


def _features(columns: Mapping[str, str]) -> int:
    """Columns that may be the parts of a vector; a single one, such as an age, is a fact about the item."""
    numbers = sum(kind == "number" and name.lower() != "id" for name, kind in columns.items())
    return numbers if numbers > 1 else 0
