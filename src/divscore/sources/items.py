"""Items and Items: texts and pictures that are still to be encoded, some at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Literal

from divscore.errors import FileError
from divscore.sketch.missing import MissingPart
from divscore.sources.open import open_located
from divscore.sources.pictures import IMAGE_SUFFIXES
from divscore.sources.places import Location, filesystem_of, quoted
from divscore.sources.table import Block, Piece, Request, Table
from divscore.text import public

__all__ = [
    "FolderItems",
    "ItemBatch",
    "PictureFiles",
    "TableItems",
    "is_picture",
    "item_column",
    "plain",
]


@dataclass(frozen=True)
class ItemBatch:
    """A run of items: texts, or pictures as their addresses or bytes; what each is called, and its columns."""

    contents: Sequence[str | bytes]
    ids: Sequence[str]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.contents)

    def slice(self, start: int, stop: int) -> ItemBatch:
        """Some of them."""
        values = {name: column[start:stop] for name, column in self.values.items()}
        return ItemBatch(self.contents[start:stop], self.ids[start:stop], values)


class Items:
    """Items of a folder or a file, enumerated anew and in the same order at every iteration.

    `rows` is None where the number of items is not known beforehand. `unreadable` and `problems` speak of rows that
    the last iteration could not even hand on (a broken line of a table).
    """

    kind: Literal["image", "text"]

    def __init__(
        self, path: str, name: str, kind: Literal["image", "text"], columns: Mapping[str, str]
    ) -> None:
        self.path = path
        self.name = name
        self.kind = kind
        self.columns = dict(columns)
        self.rows: int | None = None
        self.extra: tuple[str, ...] = ()
        self.unreadable = 0
        self.problems: list[str] = []
        self.locations: Sequence[Location] = ()  # files that were named, or found by a pattern
        self.parts: Sequence[Table] = ()  # tables that the items are in
        self.missing: tuple[MissingPart, ...] = ()  # files that could not be opened
        self.unlisted: list[str] = []  # folders that could not be listed, and why
        self.other: Counter[str] = Counter()  # files in a folder that are no pictures, by suffix

    def __iter__(self) -> Iterator[ItemBatch]:
        raise NotImplementedError

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} "
        return f"<{type(self).__name__} {self.path}: {rows}{self.kind}s>"


def plain(name: str) -> str:
    """A file name as text that can be written anywhere: bytes that are no UTF-8 become escapes.

    >>> plain("a" + chr(0xDCFF))
    'a\\\\xff'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


# Folders of pictures, and pictures named by a pattern.

RUN = 1024
COLUMNS = {"file": "text", "folder": "text"}


def is_picture(name: str) -> bool:
    """Whether a file's suffix is that of a picture."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


class FolderItems(Items):
    """Every picture in a folder and the folders below it, in the order of their names.

    Each folder is entered once, so that links that lead back do no harm; hidden files and folders are left out.
    The column ``folder`` is where a picture lies inside the folder, ``file`` its path there.
    """

    def __init__(self, path: str, extra: Sequence[str] = ()) -> None:
        super().__init__(public(path), _folder_name(path), "image", COLUMNS)
        self._root = path
        self.extra = _checked(extra, self.path)
        self.rows = sum(1 for _ in self._files())
        if not self.rows:
            files = self.other.total()
            seen = f"; of its {files:,} files none is" if files else "; it has no files that are"
            raise FileError(
                f"{self.path} holds no pictures{seen} a picture by its suffix ({', '.join(sorted(IMAGE_SUFFIXES))}); "
                "for a table or a file of vectors name the file itself"
            )

    def __iter__(self) -> Iterator[ItemBatch]:
        run: list[tuple[str, str]] = []
        for each in self._files():
            run.append(each)
            if len(run) == RUN:
                yield self._items(run)
                run = []
        if run:
            yield self._items(run)

    def _items(self, run: list[tuple[str, str]]) -> ItemBatch:
        names = [plain(inside) for _, inside in run]
        folders = [str(PurePosixPath(name).parent) for name in names]
        columns = {"file": names, "folder": [self.name if each == "." else each for each in folders]}
        return ItemBatch([address for address, _ in run], names, {name: columns[name] for name in self.extra})

    def _files(self) -> Iterator[tuple[str, str]]:
        """Address of each picture, and its path inside the folder with forward slashes."""
        self.other, self.unlisted = Counter(), []
        self.problems = self.unlisted
        for address, inside in _remote(self._root) if "://" in self._root else self._local():
            if is_picture(inside):
                yield address, inside
            else:
                self.other[os.path.splitext(inside)[1].lower()] += 1

    def _local(self) -> Iterator[tuple[str, str]]:
        entered: set[tuple[int, int]] = set()
        waiting = [(self._root, "")]
        while waiting:
            folder, inside = waiting.pop()
            try:
                about = os.stat(folder)
                if (about.st_dev, about.st_ino) in entered:
                    continue
                entered.add((about.st_dev, about.st_ino))
                with os.scandir(folder) as listing:
                    entries = sorted((e for e in listing if not e.name.startswith(".")), key=lambda e: e.name)
            except OSError as error:
                if not inside:
                    raise FileError(f"{plain(folder)} could not be listed: {error.strerror}") from error
                self.unlisted.append(f"{plain(folder)} could not be listed: {error.strerror}")
                continue
            below = [(entry.path, f"{inside}{entry.name}/") for entry in entries if _is_folder(entry)]
            yield from ((e.path, inside + e.name) for e in entries if not _is_folder(e))
            waiting.extend(reversed(below))


class PictureFiles(Items):
    """Pictures that were named one by one or by a pattern."""

    def __init__(self, pattern: str, found: Sequence[Location], extra: Sequence[str] = ()) -> None:
        shown = public(pattern)
        super().__init__(shown, found[0].name if len(found) == 1 else shown, "image", COLUMNS)
        self.extra = _checked(extra, shown)
        self.locations = found
        self.rows = len(found)

    def __iter__(self) -> Iterator[ItemBatch]:
        for start in range(0, len(self.locations), RUN):
            run = [location.url for location in self.locations[start : start + RUN]]
            names = [plain(public(address)) for address in run]
            columns = {"file": names, "folder": [str(PurePosixPath(name).parent) for name in names]}
            yield ItemBatch(run, names, {name: columns[name] for name in self.extra})


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _remote(url: str) -> Iterator[tuple[str, str]]:
    filesystem, root = filesystem_of(url)
    with Location(url, url).reading("a remote folder"):
        found: list[Any] = sorted(filesystem.find(root))
    for path in found:
        inside = path.removeprefix(root.rstrip("/")).lstrip("/")
        if not any(part.startswith(".") for part in inside.split("/")):
            yield filesystem.unstrip_protocol(path), inside


def _folder_name(path: str) -> str:
    text = public(path).rstrip("/") if "://" in path else os.path.abspath(path)
    return plain(os.path.basename(text)) or public(path)


def _checked(extra: Sequence[str], path: str) -> tuple[str, ...]:
    unknown = [name for name in extra if name not in COLUMNS]
    if unknown:
        raise FileError(
            f"{path} is a folder of pictures and has no column {quoted(unknown[:1])}; it has 'folder'"
        )
    return tuple(extra)


# Tables of items: which column holds the texts or the pictures, and its rows.

# Names by which a column says that it holds the items, the surest first.
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
# As many columns of numbers beside a path are features of the picture, not facts about it.
FEATURES = 8
SAMPLE = 200
WORDS = 4
RUN_TABLEITEMS = 4096
IDENTITY = "id"


class TableItems(Items):
    """Items of a table (or of several with the same columns); a column ``id`` names them, or else their position.

    A path of a picture is taken from the folder of its table.
    """

    def __init__(
        self,
        found: Sequence[Location],
        column: str,
        *,
        extra: Sequence[str],
        strict: bool,
        pattern: str,
        kind: Literal["image", "text"] | None = None,
        piece: Piece | None = None,
        missing: Sequence[MissingPart] = (),
    ) -> None:
        opened = open_located(found, Request(vectors=False, strict=strict), pattern, missing)
        found = opened.locations
        columns = opened.columns
        bytes_inside = columns.get(column) == "picture"
        if kind is None:
            kind = "image" if bytes_inside or _holds_pictures(found, column, pattern) else "text"
        super().__init__(opened.path, opened.name, kind, columns)
        self.rows = piece.rows if piece else opened.rows
        self.locations, self.missing = found, opened.missing
        self._first = piece.first if piece else 0
        self.extra = tuple(dict.fromkeys(extra))
        self.column = column
        self._identity = next((name for name in columns if name.lower() == IDENTITY and name != column), None)
        wanted = (
            *self.extra,
            *([] if bytes_inside else [column]),
            *([self._identity] if self._identity else []),
        )
        request = Request(
            extra=tuple(dict.fromkeys(wanted)),
            strict=strict,
            batch_rows=64 if bytes_inside else RUN_TABLEITEMS,
            vectors=False,
            pictures=column if bytes_inside else None,
            piece=piece,
        )
        self.parts = [open_located([each], request) for each in found]

    def __iter__(self) -> Iterator[ItemBatch]:
        self.unreadable, self.problems = 0, []
        before = 0  # rows of earlier files
        for location, part in zip(self.locations, self.parts, strict=True):
            count = 0
            for block in part:
                start = self._first + count
                count += len(block.vectors)
                numbers = block.numbers or range(start, self._first + count)
                yield self._items(location, block, [str(before + number) for number in numbers])
            before += count + part.unreadable
            self.unreadable += part.unreadable
            self.problems += part.problems

    def _items(self, location: Location, block: Block, ids: Sequence[str]) -> ItemBatch:
        contents: Sequence[str | bytes] = block.pictures or block.values[self.column]
        if self.kind == "image" and not block.pictures:
            base = _folder_of(location)
            contents = [_address(base, str(path)) for path in contents]
        if self._identity:
            ids = [name or row for name, row in zip(block.values[self._identity], ids, strict=True)]
        return ItemBatch(contents, ids, {name: block.values[name] for name in self.extra})


def item_column(
    found: Sequence[Location],
    pattern: str,
    *,
    column: str | None,
    taken: Sequence[str] = (),
    forced: bool = False,
) -> str | None:
    """Name the column of texts or pictures; None where the table holds vectors.

    Parameters
    ----------
    found, pattern :
        The files, and what the user called them.
    column : str, optional
        The one the user named.
    taken : sequence of str
        Columns known to be something else, such as the groups.
    forced : bool
        Whether the user asked for an encoder, so that vectors in the table are passed by.
    """
    opened = open_located(found[:1], Request(vectors=False), pattern)
    columns = opened.columns
    if column is not None:
        if column not in columns:
            raise FileError(
                f"{opened.label} has no column '{column}'; give --column one of {quoted(columns)}"
            )
        return column if columns[column] in {"text", "picture"} else None
    if "vector" in columns.values() and not forced:
        return None
    usual = _usual(
        found, pattern, {name: kind for name, kind in columns.items() if name not in taken}, forced
    )
    if usual is not None:
        return usual
    free = _free_text(found, pattern, [n for n, kind in columns.items() if kind == "text" and n not in taken])
    if free is not None and _features(columns) < FEATURES:
        return free
    if "number" in columns.values() and not forced and _features(columns):
        return None
    texts = [n for n, kind in columns.items() if kind == "text" and n not in taken and n.lower() != IDENTITY]
    if len(texts) == 1:
        return texts[0]
    if not texts and not forced:
        return None
    raise FileError(
        f"{opened.label}: cannot tell which column holds the items; it has {quoted(columns)}. Name it with --column"
    )


def _usual(found: Sequence[Location], pattern: str, columns: Mapping[str, str], forced: bool) -> str | None:
    """The column whose name says that it holds items."""
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
            if not path or (features < FEATURES and _holds_pictures(found, name, pattern)):
                return name
    return None


def _features(columns: Mapping[str, str]) -> int:
    """Columns that may be the parts of a vector; a single one, such as an age, is a fact about the item."""
    numbers = sum(kind == "number" and name.lower() != IDENTITY for name, kind in columns.items())
    return numbers if numbers > 1 else 0


def _free_text(found: Sequence[Location], pattern: str, names: Sequence[str]) -> str | None:
    """The column of running text, if there is just one: several words in most cells."""
    opened = open_located(found[:1], Request(vectors=False, extra=tuple(names), batch_rows=SAMPLE), pattern)
    for block in islice(opened, 1):
        wordy = [
            name
            for name in names
            if 2 * sum(len(cell.split()) >= WORDS for cell in block.values[name]) > len(block.values[name])
        ]
        return wordy[0] if len(wordy) == 1 else None
    return None


def _holds_pictures(found: Sequence[Location], column: str, pattern: str) -> bool:
    """Whether most of the first cells are names of pictures."""
    opened = open_located(found[:1], Request(vectors=False, extra=(column,), batch_rows=SAMPLE), pattern)
    for block in islice(opened, 1):
        cells = [cell.strip() for cell in block.values[column] if cell.strip()]
        return bool(cells) and 2 * sum(is_picture(cell) for cell in cells) > len(cells)
    return False


def _folder_of(location: Location) -> str:
    if location.path == "-":
        return ""
    return str(location.url.rpartition("/")[0]) if location.remote else os.path.dirname(location.url)


def _address(base: str, path: str) -> str:
    """Where a picture named in a table lies; only its own folder's address may lead elsewhere than here."""
    path = path.strip()
    if "://" in base:
        return path if path.startswith(f"{base}/") else f"{base}/{PurePosixPath(path)}"
    return path if "://" in path else os.path.join(base, path)
