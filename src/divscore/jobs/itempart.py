"""ItemPartition: some items of a source, described so that any worker can read them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from divscore.audit.missing import Missing
from divscore.errors import FileError
from divscore.jobs.contents import KEY_BYTES, signature
from divscore.sources.address import filesystem_of
from divscore.sources.items import Items, ItemSource
from divscore.sources.open import open_one
from divscore.sources.partition import check_here
from divscore.sources.places import Location
from divscore.sources.table import Piece, Request
from divscore.sources.tableitems import TableItems

__all__ = ["ItemPartition", "item_partitions", "unopened"]

# Items of a partition, where a file can be divided: minutes of work for the slower encoders. Of text there may be
# fewer, as no run of it is longer than a piece.
ROWS = {"image": 1024, "text": 16_384}
# What object stores and other file systems say of a file's content or time, the surest first.
MARKS = (
    "etag",
    "content-md5",
    "md5hash",
    "generation",
    "lastmodified",
    "last_modified",
    "mtime",
    "updated",
    "created",
)


@dataclass(frozen=True)
class ItemPartition:
    """A run of pictures, listed, or a table, or a run of its rows."""

    source: str  # what the whole source is called
    kind: Literal["image", "text"]
    label: str
    extra: tuple[str, ...]
    signature: str  # tells whether it is the same as at an earlier start
    listed: Items | None = None
    columns: dict[str, str] = field(default_factory=dict)
    location: Location | None = None
    column: str = ""
    piece: Piece | None = None
    size: int = 0  # bytes of the file when the work was planned
    strict: bool = False

    @property
    def rows(self) -> int | None:
        """How many items, where that is known."""
        if self.listed is not None:
            return len(self.listed)
        return self.piece.rows if self.piece else None

    def __str__(self) -> str:
        return self.label

    def open(self) -> ItemSource:
        """Open it, wherever this is."""
        if self.listed is not None:
            return _Listed(self, self.listed)
        assert self.location is not None
        check_here(self.location, self.size)
        return TableItems(
            [self.location],
            self.column,
            extra=self.extra,
            strict=self.strict,
            pattern=self.location.path,
            kind=self.kind,
            piece=self.piece,
        )


class _Listed(ItemSource):
    """Items that the description itself holds."""

    def __init__(self, partition: ItemPartition, items: Items) -> None:
        super().__init__(partition.label, partition.source, partition.kind, partition.columns)
        self.extra, self.rows, self._items = partition.extra, len(items), items

    def __iter__(self) -> Iterator[Items]:
        yield self._items


def item_partitions(source: ItemSource, *, strict: bool = False) -> Iterator[ItemPartition]:
    """Cut a source of items into partitions, in its order; depends on the source alone."""
    if isinstance(source, TableItems):
        for location in source.locations:
            yield from _of_table(source, location, strict)
        return
    for items in source:
        state = hashlib.blake2b(digest_size=KEY_BYTES)
        for content, name in zip(items.contents, items.ids, strict=True):
            state.update(signature(content, source.kind) + name.encode("utf-8", "surrogatepass") + b"\0")
        label = f"{source.path}, {items.ids[0]} to {items.ids[-1]}"
        yield ItemPartition(
            source.name,
            source.kind,
            label,
            source.extra,
            state.hexdigest(),
            listed=replace(items, contents=[_anywhere(each) for each in items.contents]),
            columns=source.columns,
        )


def unopened(source: ItemSource) -> tuple[Missing, ...]:
    """Files of a source that had to be left out from the start."""
    return source.unopened if isinstance(source, TableItems) else ()


def _of_table(source: TableItems, location: Location, strict: bool) -> Iterator[ItemPartition]:
    if location.path == "-":
        raise FileError(
            "standard input cannot be cut into parts; save it as a file, or, without --cluster, give a name ending in "
            ".arrow"
        )
    version = _version(location)
    pieces = open_one(location, Request(vectors=False)).pieces(ROWS[source.kind])
    for piece in pieces if len(pieces) > 1 else [None]:
        about = (location.url, version, source.column, source.extra, str(piece))
        yield ItemPartition(
            source.name,
            source.kind,
            f"{location.label}, {piece}" if piece else location.label,
            source.extra,
            hashlib.blake2b(repr(about).encode(), digest_size=KEY_BYTES).hexdigest(),
            location=location.anywhere,
            column=source.column,
            piece=piece,
            size=int(version[0]),
            strict=strict,
        )


def _anywhere(content: str | bytes) -> str | bytes:
    """A picture's address for a process that works in another folder."""
    local = isinstance(content, str) and "://" not in content
    return os.path.abspath(content) if local else content


def _version(location: Location) -> tuple[int | str, ...]:
    """Changes when the file does; a remote one's size may not, but its store's mark of the content or time does."""
    if not location.remote:
        here = os.stat(location.url)
        return here.st_size, here.st_mtime_ns
    filesystem, path = filesystem_of(location.url)
    with location.reading("a remote file"):
        told = {key.lower(): value for key, value in filesystem.info(path).items()}
    mark = next((str(told[key]) for key in MARKS if told.get(key)), "")
    return int(told.get("size") or 0), mark
