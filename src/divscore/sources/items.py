"""Items: texts and pictures that are still to be encoded, in a folder, a table or named one by one."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Literal, Self

from divscore.errors import FileError
from divscore.sketch.missing import MissingPart
from divscore.sources.pictures import IMAGE_SUFFIXES, NOT_READ, not_read, suffix_of
from divscore.sources.places import ADVICE, Location, UnseenError, files_in, folder_values, plain, unseen
from divscore.sources.table import Table
from divscore.text import public, quoted

RUN = 1024  # pictures in a batch
RUN_OF_TABLE = 4096
RUN_OF_PICTURES = 64  # in the table itself, so that few are in memory
COLUMNS = {"file": "text", "folder": "text"}  # of pictures that are files
IDENTITY = "id"
KEY_BYTES = 16


@dataclass(frozen=True)
class ItemBatch:
    """A run of items: texts, or pictures as their addresses or bytes; their names, and their columns.

    `table` and `numbers` say which rows they are, where those have no names of their own.
    """

    contents: Sequence[str | bytes]
    ids: Sequence[str]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    table: Table | None = None
    numbers: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.contents)

    def slice(self, start: int, stop: int) -> ItemBatch:
        """Some of them."""
        values = {name: column[start:stop] for name, column in self.values.items()}
        numbers = self.numbers[start:stop]
        return ItemBatch(self.contents[start:stop], self.ids[start:stop], values, self.table, numbers)


def item_labels(path: str, items: Sequence[tuple[ItemBatch, int]]) -> list[str]:
    """Items of batches as messages name them: by their names in `path`, or by the lines and rows of a table."""
    labels = [f"{path}, {batch.ids[at]}" for batch, at in items]
    for table in {id(batch.table): batch.table for batch, _ in items}.values():
        if table is not None:
            rows = {n: batch.numbers[at] for n, (batch, at) in enumerate(items) if batch.table is table}
            for n, place in zip(rows, table.places(list(rows.values())), strict=True):
                labels[n] = f"{table.label}, {place}"
    return labels


class Items:
    """Items of a folder or a file, listed again and in the same order at every iteration.

    `rows` is None where the number of items is not known beforehand. `unreadable` and `problems` describe rows that
    the last iteration skipped, such as a broken line of a table.
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
        self.table: Table | None = None  # that the items are in, and the column
        self.column = ""
        self.before = 0  # rows of the tables before these

    def __iter__(self) -> Iterator[ItemBatch]:
        raise NotImplementedError

    def select(self, extra: Sequence[str]) -> Self:
        """The same items with other columns; nothing is opened again."""
        for name in extra:
            if name not in self.columns:
                raise FileError(f"{self.path} has no column '{name}'; it has {quoted(self.columns)}")
        other = copy(self)
        other.extra = tuple(extra)
        return other

    def divided(self, rows: int) -> Iterator[Items]:
        """Runs of at most, or of a table about, `rows` items that a worker in another folder can read."""
        for batch in self:
            for start in range(0, len(batch), rows):
                yield PictureRun(self, batch.slice(start, start + rows))

    def version(self) -> tuple[object, ...]:
        """What changes with the content of a run of `divided`."""
        raise NotImplementedError

    def check_visible(self) -> None:
        """Refuse a run of `divided` that this machine does not see, or that has changed since it was divided."""
        raise NotImplementedError

    @property
    def readable(self) -> list[str]:
        """Columns that can be read as text."""
        return [name for name, kind in self.columns.items() if kind in {"text", "number", "bool", "date"}]

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} "
        return f"<{type(self).__name__} {self.path}: {rows}{self.kind}s>"


class PictureRun(Items):
    """Some pictures of a source, by their absolute paths."""

    def __init__(self, source: Items, batch: ItemBatch) -> None:
        label = f"{source.path}, {batch.ids[0]} to {batch.ids[-1]}"
        super().__init__(label, source.name, source.kind, source.columns)
        self.extra, self.rows = source.extra, len(batch)
        here = (isinstance(each, str) and "://" not in each for each in batch.contents)
        contents = [os.path.abspath(c) if local else c for c, local in zip(batch.contents, here, strict=True)]
        self.batch = replace(batch, contents=contents)

    def __iter__(self) -> Iterator[ItemBatch]:
        yield self.batch

    def version(self) -> tuple[object, ...]:
        """Names, sizes and times of the pictures."""
        return self.extra, list(self.batch.ids), [_picture_version(each) for each in self.batch.contents]

    def check_visible(self) -> None:
        """A single picture may have been removed; if none is here, this machine does not see the folder."""
        paths = [each for each in self.batch.contents if isinstance(each, str) and "://" not in each]
        if paths and not any(map(os.path.exists, paths)):
            raise UnseenError(unseen(paths[0]))


def _picture_version(content: str | bytes) -> str:
    if isinstance(content, str) and "://" not in content:
        with suppress(OSError, ValueError):
            about = os.stat(content)
            return f"{about.st_size} {about.st_mtime_ns}"
    return fingerprint(content).hex()


def fingerprint(content: str | bytes) -> bytes:
    """Digest of a text or a picture: the key of the cache."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def is_picture(name: str) -> bool:
    """Whether a file's suffix is that of a picture that can be read."""
    return suffix_of(name) in IMAGE_SUFFIXES


def is_media(name: str) -> bool:
    """Whether it is an item among pictures: a picture, or a file such as a video that counts as unreadable."""
    return is_picture(name) or suffix_of(name) in NOT_READ


class PictureFiles(Items):
    """Pictures that were named one by one or by a pattern; ``folder`` is a column, and ``file`` the whole path."""

    def __init__(self, pattern: str, locations: Sequence[Location]) -> None:
        shown = public(pattern)
        super().__init__(shown, locations[0].name if len(locations) == 1 else shown, "image", COLUMNS)
        self.locations = locations
        self._count(each.url for each in locations)

    def _count(self, names: Iterable[str]) -> None:
        """Set the number of items; refuse a source in which none can be read."""
        suffixes = Counter(map(suffix_of, names))
        self.rows = suffixes.total()
        if suffixes and not suffixes.keys() & IMAGE_SUFFIXES:
            texts = not_read({(NOT_READ[suffix], suffix): number for suffix, number in suffixes.items()})
            raise FileError(f"{self.path} has no pictures that can be read; {'; '.join(texts)}")

    def __iter__(self) -> Iterator[ItemBatch]:
        files = self._files()
        while run := list(islice(files, RUN)):
            names = [plain(name) for _, name in run]
            folders = [str(PurePosixPath(name).parent) for name in names]
            columns = {"file": names, "folder": [self.name if each == "." else each for each in folders]}
            yield ItemBatch([address for address, _ in run], names, {n: columns[n] for n in self.extra})

    def _files(self) -> Iterator[tuple[str, str]]:
        """Address and name of each picture."""
        return ((each.url, public(each.url)) for each in self.locations)


class PictureFolder(PictureFiles):
    """Every picture in a folder and the folders below it, in the order of their names, also those that are not read.

    The column ``folder`` is the sub-folder of a picture, ``file`` its path inside the folder.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, [])
        text = self.path.rstrip("/") if "://" in path else os.path.abspath(path)
        self.name = plain(os.path.basename(text)) or self.path
        self._root = path
        self._count(inside for _, inside in self._files())
        if not self.rows:
            other = self.other.total()
            files = f"{other:,} files, but no pictures or tables" if other else "no files"
            known = (
                f"{suffix}: {ADVICE[suffix]}" for suffix, _ in self.other.most_common() if suffix in ADVICE
            )
            expected = f"expected pictures ({', '.join(sorted(IMAGE_SUFFIXES))}), or name a table itself"
            raise FileError(f"{self.path} has {files}; {next(known, expected)}")

    def _files(self) -> Iterator[tuple[str, str]]:
        self.other, self.unlisted = Counter(), []
        self.problems = self.unlisted
        for address, inside in files_in(self._root, self.unlisted):
            if is_media(inside):
                yield address, inside
            else:
                self.other[suffix_of(inside)] += 1


class TableItems(Items):
    """Items of a table (or of several with the same columns); a column ``id`` names them, or else their position.

    The path of a picture starts at the folder of its table.
    """

    table: Table

    def __init__(
        self,
        table: Table,
        column: str,
        *,
        extra: Sequence[str] = (),
    ) -> None:
        inside = table.columns.get(column) == "picture"
        image = inside or names_pictures(table, column)
        super().__init__(table.path, table.name, "image" if image else "text", table.columns)
        self.column = column
        self._inside = inside
        names = [name for name in table.columns if name.lower() == IDENTITY and name != column]
        self._identity = names[:1]
        self._read(table, extra)

    def select(self, extra: Sequence[str]) -> Self:
        """The same items with other columns; nothing is opened again."""
        other = copy(self)
        other._read(self.table, extra)
        return other

    def divided(self, rows: int) -> Iterator[Self]:
        """Runs of about `rows` rows, file by file."""
        before = 0
        for part in self.table.parts:
            pieces = part.pieces(rows)
            for piece in pieces if len(pieces) > 1 else [None]:
                other, table = copy(self), part.anywhere().select(piece=piece)
                other.path = f"{part.label}, {piece}" if piece else part.label
                other._read(table, self.extra)
                other.before = before
                yield other
            before += part.rows or sum(piece.rows or 0 for piece in pieces)

    def version(self) -> tuple[object, ...]:
        """Name, size and time of the file, and which of its rows and columns these are."""
        location = self.locations[0]
        piece = str(self.table.request.piece)
        return location.name, *location.version(), self.column, self.extra, piece, self.before

    def check_visible(self) -> None:
        """Those of the table."""
        self.table.check_visible()

    def _read(self, table: Table, extra: Sequence[str]) -> None:
        self.extra = tuple(dict.fromkeys(extra))
        columns = [*self.extra, *([] if self._inside else [self.column]), *self._identity]
        self.table = table.select(
            vectors=False,
            column=None,
            extra=tuple(dict.fromkeys(columns)),
            batch_rows=RUN_OF_PICTURES if self._inside else RUN_OF_TABLE,
            pictures=self.column if self._inside else None,
        )
        self.rows, self.missing = self.table.rows, self.table.missing
        self.parts, self.locations = self.table.parts, self.table.locations

    @property
    def readable(self) -> list[str]:
        """Columns of text and numbers, and those that the folders of all its files add."""
        own = super().readable
        first, *others = map(folder_values, self.locations)
        return own + [n for n in first if n not in self.columns and all(n in each for each in others)]

    def __iter__(self) -> Iterator[ItemBatch]:
        self.unreadable, self.problems = 0, []
        before = self.before
        for part in self.parts:
            first = part.request.piece.first if part.request.piece else 0
            count = 0
            folder = folder_of(part.location)
            for block in part:
                start = first + count
                count += len(block.vectors)
                numbers = block.numbers or range(start, first + count)
                ids = [str(before + number) for number in numbers]
                for name in self._identity:
                    ids = [own or row for own, row in zip(block.values[name], ids, strict=True)]
                contents: Sequence[str | bytes] = block.pictures or block.values[self.column]
                if self.kind == "image" and not block.pictures:
                    contents = [address_from(folder, path) for path in block.values[self.column]]
                values = {name: block.values[name] for name in self.extra}
                yield ItemBatch(contents, ids, values, *(() if self._identity else (part, numbers)))
            # Skipped rows count too, so a row keeps its number whatever else is readable.
            before += count + part.unreadable
            self.unreadable += part.unreadable
            self.problems += part.problems


def names_pictures(table: Table, column: str) -> bool:
    """Whether most of the first cells are names of pictures."""
    cells = [cell.strip() for cell in table.head(column) if cell.strip()]
    return bool(cells) and 2 * sum(is_media(cell) for cell in cells) > len(cells)


def folder_of(location: Location) -> str:
    """Where paths in a table start."""
    if location.path == "-" or location.in_memory:
        return ""
    return location.url.rpartition("/")[0] if location.remote else os.path.dirname(location.url)


def address_from(base: str, path: str) -> str:
    """Where a picture named in a table is; a remote table can name only pictures of its own folder."""
    path = path.strip()
    if "://" in base:
        return path if path.startswith(f"{base}/") else f"{base}/{PurePosixPath(path)}"
    return path if "://" in path else os.path.join(base, path)
