"""Items of a collection by their places, without encoding any: those to draw, and those that were drawn."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import usable_rows
from divscore.errors import FileError, InputError
from divscore.jobs.drawfile import OF_VECTOR, DrawnItem, Shown
from divscore.jobs.encodedsource import SEVERAL
from divscore.jobs.sketching import PATH, Run
from divscore.sketch.sketch import Sketch
from divscore.sources import Block, Items, Table
from divscore.sources import open as open_collection
from divscore.sources.items import IDENTITY, ItemBatch, address_from, fingerprint, folder_of, names_pictures
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.pictures import NOT_READ, read_picture, suffix_of
from divscore.sources.recognise import usual_column

Place = tuple[int, int]  # the partition of a source that an item is in, and its position there
READABLE = ("text", "number")  # kinds of columns that can be names
NAMED = 5  # items in a message
LONGEST = 19  # digits of a row's number


def vector_digest(vector: NDArray[Any]) -> str:
    """Digest of a vector's numbers, whatever type they are stored as."""
    return OF_VECTOR + fingerprint(np.ascontiguousarray(vector, dtype="<f8").tobytes()).hex()


def content_digest(content: str | bytes) -> str:
    """Digest of a text, or of the bytes of a picture."""
    return f"blake2b-{fingerprint(content).hex()}"


@dataclass(frozen=True)
class FoundItem:
    """An item of a collection: its name, row and collection, its text or the picture's address or bytes, its vector."""

    id: str
    row: int
    collection: str | None = None
    content: str | bytes | None = None
    vector: NDArray[Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Search:
    """Drawn items that are in the collection, by their numbers in the draw; and the numbers of the others.

    Those that are `renamed` were found by their content.
    """

    found: dict[int, tuple[Place, FoundItem]]
    gone: list[int]
    changed: list[int]
    renamed: list[int]


class ItemPlaces:
    """Texts or pictures of a source, all in one partition. Files that are never read, such as videos, are not items."""

    vectors = False  # whether the content of an item is its vector
    encoder: str | None = None

    def __init__(self, run: Run, source: Items) -> None:
        self.run, self.source = run, source
        self.kind: Shown = source.kind

    def batches(self) -> Iterator[tuple[ItemBatch, int, Sequence[int]]]:
        """Runs of items, the place of the first, and which of them can be read."""
        first = 0
        with self.run.progress(self.source.name, self.source.rows) as advance:
            for batch in self.source:
                kept: Sequence[int] = range(len(batch))
                if self.kind == "image":
                    suffixes = (suffix_of(c) if isinstance(c, str) else "" for c in batch.contents)
                    kept = [at for at, suffix in enumerate(suffixes) if suffix not in NOT_READ]
                yield batch, first, kept
                first += len(batch)
                advance(len(batch))

    def named(self, names: Collection[str]) -> Iterator[tuple[str, Place]]:
        """Names and places of the items with some names."""
        wanted = frozenset(names)
        for batch, first, kept in self.batches():
            if not wanted.isdisjoint(batch.ids):
                yield from ((batch.ids[at], (0, first + at)) for at in kept if batch.ids[at] in wanted)

    def fetch(self, wanted: Collection[Place], *, vectors: bool = True) -> dict[Place, FoundItem]:
        """The items at some places."""
        places, found = {place for _, place in wanted}, dict[Place, FoundItem]()
        for batch, first, _ in self.batches() if wanted else ():
            for place in places.intersection(range(first, first + len(batch))):
                found[0, place] = self._item(batch, first, place - first)
            if len(found) == len(places):
                break
        return found

    def _item(self, batch: ItemBatch, first: int, at: int) -> FoundItem:
        collection = batch.values[self.run.by][at] if self.run.by else None
        return FoundItem(batch.ids[at], first + at, collection, batch.contents[at])

    def digest(self, item: FoundItem) -> str:
        """Digest of a text or picture; empty if it cannot be read."""
        assert item.content is not None
        if self.kind == "text":
            return content_digest(item.content)
        with suppress(FileError):
            return content_digest(read_picture(item.content))
        return ""

    def search(self, digests: Collection[str]) -> Iterator[tuple[str, Place, FoundItem]]:
        """Items with some digests; every item is read."""
        for batch, first, kept in self.batches():
            for at in kept:
                item = self._item(batch, first, at)
                if (digest := self.digest(item)) in digests:
                    yield digest, (0, item.row), item


class VectorPlaces:
    """Vectors of a source, in the partitions that it is divided into; `lengths` are their rows, once they are known."""

    vectors = True

    def __init__(self, run: Run, source: Table) -> None:
        self.run, self.source = run, source
        self.encoder = source.metadata.get(ENCODER_KEY)
        self.lengths: dict[int, int] = {}
        columns = source.columns
        names = (name for name, kind in columns.items() if name.lower() == IDENTITY and kind in READABLE)
        self._identity = next(names, None)
        # A table of vectors may also have what they were made from, for people to see.
        others = {name: kind for name, kind in columns.items() if kind == "text" and name != run.by}
        self._shown = usual_column(source.parts[0], others, forced=True) if others else None
        self.kind: Shown = "vectors"
        if self._shown is not None and names_pictures(source.parts[0], self._shown):
            folder = folder_of(source.parts[0].location)
            first = [address_from(folder, path) for path in source.parts[0].head(self._shown)[:NAMED]]
            # Vectors that `embed` made are often elsewhere than the pictures.
            near = any("://" in path or os.path.exists(path) for path in first)
            self.kind, self._shown = ("image", self._shown) if near else ("vectors", None)
        elif self._shown is not None:
            self.kind = "text"
        shown = (self._identity, run.by, self._shown)
        self._columns = tuple(dict.fromkeys(name for name in shown if name))

    def named(self, names: Collection[str]) -> Iterator[tuple[str, Place]]:
        """Names and places of the items with some names."""
        read = partial(_named_part, self._identity, frozenset(names))
        with self.run.progress(self.source.name, self.source.rows) as advance:
            for number, part, result in self.run.each(self.source, read):
                found, self.lengths[number] = result or ([], part.rows or 0)
                yield from ((name, (number, place)) for name, place in found)
                advance(self.lengths[number])
        if self._identity is None:
            ends = np.cumsum([self.lengths[number] for number in range(len(self.lengths))])
            for name in names:
                row = int(name) if name.isdecimal() and len(name) < LONGEST else -1
                if 0 <= row < (ends[-1] if len(ends) else 0):
                    number = int(np.searchsorted(ends, row, side="right"))
                    yield name, (number, row - int(ends[number]) + self.lengths[number])

    def fetch(self, wanted: Collection[Place], *, vectors: bool = True) -> dict[Place, FoundItem]:
        """The items at some places that have a usable vector; only the partitions that they are in are read."""
        places: dict[int, list[int]] = defaultdict(list)
        for number, place in wanted:
            places[number].append(place)
        read = partial(_fetch_part, dict(places), self._columns, vectors)
        found: dict[Place, FoundItem] = {}
        for number, part, rows in self.run.each(self.source, read, only=places) if wanted else ():
            for place, (values, vector) in (rows or {}).items():
                found[number, place] = self._item(part, (number, place), values, vector)
        return found

    def digest(self, item: FoundItem) -> str:
        """Digest of a vector."""
        assert item.vector is not None
        return vector_digest(item.vector)

    def search(self, digests: Collection[str]) -> Iterator[tuple[str, Place, FoundItem]]:
        """Items with some digests; every vector is read."""
        read = partial(_search_part, frozenset(digests), self._columns)
        with self.run.progress(self.source.name, self.source.rows) as advance:
            for number, part, rows in self.run.each(self.source, read):
                for digest, place, values, vector in rows or ():
                    yield digest, (number, place), self._item(part, (number, place), values, vector)
                advance(self.lengths[number])

    def _item(
        self, part: Table, place: Place, values: Mapping[str, str], vector: NDArray[Any] | None
    ) -> FoundItem:
        row = sum(self.lengths[number] for number in range(place[0])) + place[1]
        content = values[self._shown] if self._shown else None
        if content is not None and self.kind == "image":
            content = address_from(folder_of(part.location), content)
        collection = values[self.run.by] if self.run.by else None
        return FoundItem(
            (values[self._identity] if self._identity else "") or str(row), row, collection, content, vector
        )


def open_items(run: Run, thing: Any, column: str | None, form: str) -> Items | Table:
    """Open a collection whose items can be drawn or found again: not a sketch, and one vector an item."""
    if SEVERAL in run.encoding.options:
        raise InputError("a labelled item needs one vector; leave out --faces all")
    source = None if isinstance(thing, Sketch) else run.open(thing, column, form)
    if source is None and isinstance(thing, (*PATH, Sketch)):
        what = "a sketch" if isinstance(thing, Sketch) else f"{os.fspath(thing)} is a sketch and"
        raise InputError(f"{what} has no items to label; give the collection itself")
    if source is None and hasattr(thing, "__next__"):
        raise InputError("the blocks can be read only once; give an array, or a list of arrays")
    return open_collection(thing, strict=run.strict) if source is None else source


Places = ItemPlaces | VectorPlaces


def places_of(run: Run, source: Items | Table) -> Places:
    """The items of an opened source, by their places."""
    return VectorPlaces(run, source) if isinstance(source, Table) else ItemPlaces(run, source)


def find_items(places: Places, items: Sequence[DrawnItem]) -> Search:
    """Find drawn items by their names, and check their contents; else by their contents.

    Spreadsheets change names such as 007 or 1-2, and rows have other numbers once others were inserted. Where the draw
    was made from pictures and the collection has their vectors, or the other way round, names have to do.
    """
    wanted: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        wanted[item.id].append(number)
    options: dict[int, list[Place]] = defaultdict(list)
    for name, place in places.named(wanted):
        for number in wanted[name]:
            options[number].append(place)
    fetched = places.fetch({place for own in options.values() for place in own})
    digest = cache(lambda place: places.digest(fetched[place]))
    found: dict[int, tuple[Place, FoundItem]] = {}
    checked = [bool(item.digest) and item.digest.startswith(OF_VECTOR) == places.vectors for item in items]
    used: set[Place] = set()
    # Copies have one name and one content: each is first looked for in its own row, then in any that is left.
    for moved in (False, True):
        for number, own in options.items():
            item = items[number]
            for place in own if number not in found else ():
                candidate = fetched.get(place)
                if candidate is None or place in used or item.collection not in (None, candidate.collection):
                    continue
                if not moved and candidate.row != item.row:
                    continue
                if not checked[number] or digest(place) == item.digest:
                    found[number] = place, candidate
                    used.add(place)
                    break
    renamed: list[int] = []
    by_digest: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        if number not in found and checked[number]:
            by_digest[item.digest].append(number)
    for content, place, candidate in places.search(frozenset(by_digest)) if by_digest else ():
        for number in by_digest[content] if place not in used else ():
            if number not in found and items[number].collection in (None, candidate.collection):
                found[number] = place, candidate
                renamed.append(number)
                break
    rest = [number for number in range(len(items)) if number not in found]
    gone = [number for number in rest if number not in options]
    found = dict(sorted(found.items()))  # as in the draw, whichever way they were found
    return Search(found, gone, [number for number in rest if number in options], renamed)


# Partitions, in any process.


def numbered(table: Table) -> Iterator[tuple[Block, NDArray[np.intp]]]:
    """Blocks of a partition, and the place of each row in it, skipped rows counted."""
    first, at = table.request.piece.first if table.request.piece else 0, 0
    for block in table:
        places = np.arange(at, at + len(block.vectors))
        if block.numbers:
            places = np.array(block.numbers, dtype=np.intp) - first
        at = int(places[-1]) + 1
        yield block, places


def _named_part(
    column: str | None, names: frozenset[str], number: int, part: Table
) -> tuple[list[tuple[str, int]], int]:
    """Rows of a partition that have some names, and its number of rows, skipped ones counted."""
    if column is None and part.rows is not None:
        return [], part.rows
    table = part.select(vectors=False, extra=(column,) if column else ())
    found: list[tuple[str, int]] = []
    for block, places in numbered(table):
        if column and not names.isdisjoint(block.values[column]):
            texts = enumerate(block.values[column])
            found += [(text, int(places[at])) for at, text in texts if text in names]
    return found, table.read + table.unreadable


def _fetch_part(
    wanted: Mapping[int, Sequence[int]], columns: tuple[str, ...], vectors: bool, number: int, part: Table
) -> dict[int, tuple[dict[str, str], NDArray[Any] | None]]:
    """Columns and vectors of some rows of a partition, by their places."""
    table = part.select(vectors=vectors, extra=columns)
    rows, last = {}, max(wanted[number])
    for block, places in numbered(table):
        for at in np.flatnonzero(np.isin(places, wanted[number])).tolist():
            vector = np.array(block.vectors[at]) if vectors else None
            if vector is None or usable_rows(vector[None])[0]:
                rows[int(places[at])] = {name: block.values[name][at] for name in columns}, vector
        if places[-1] >= last:
            break
    return rows


def _search_part(
    digests: frozenset[str], columns: tuple[str, ...], number: int, part: Table
) -> list[tuple[str, int, dict[str, str], NDArray[Any]]]:
    """Digest, place, columns and vector of the rows that have some digests."""
    found = []
    for block, places in numbered(part.select(extra=columns)):
        for at, vector in enumerate(block.vectors):
            if (digest := vector_digest(vector)) in digests:
                values = {name: block.values[name][at] for name in columns}
                found.append((digest, int(places[at]), values, np.array(vector)))
    return found
