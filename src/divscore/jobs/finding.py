"""Items of a collection by their places, without encoding any: those to draw, and those that were drawn."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet, name_groups
from divscore.control.labelledsample import LabelledSample
from divscore.control.similarity import usable_rows
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs.cache import ItemVectors
from divscore.jobs.drawfile import (
    GROUP,
    OF_VECTOR,
    Draw,
    DrawnItem,
    content_digest,
    control_mark,
    is_unknown,
    vector_digest,
)
from divscore.jobs.encode import SEVERAL
from divscore.jobs.pool import no_warning
from divscore.jobs.sketching import PATH, Run
from divscore.sketch.sketch import Sketch
from divscore.sources import Block, Items, Table
from divscore.sources import open as open_collection
from divscore.sources.items import IDENTITY, ItemBatch, address_from, folder_of, names_pictures
from divscore.sources.manifest import ENCODER_KEY
from divscore.sources.pictures import NOT_READ, read_picture, suffix_of
from divscore.sources.recognise import usual_column
from divscore.text import brief, count, listed

Place = tuple[int, int]  # the partition of a source that an item is in, and its position there
READABLE = ("text", "number")  # kinds of columns that can be names
NAMED = 5  # items in a message
LONGEST = 19  # digits of a row's number


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
        self.kind: Literal["image", "text", "vectors"] = source.kind

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
        self.kind: Literal["image", "text", "vectors"] = "vectors"
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
    if isinstance(thing, Sketch):
        raise InputError("a sketch has no items to label; give the collection itself")
    source = run.open(thing, column, form)
    if source is None and isinstance(thing, PATH):
        raise InputError(
            f"{os.fspath(thing)} is a sketch and has no items to label; give the collection itself"
        )
    if source is None and iter(thing) is thing:
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
    found: dict[int, tuple[Place, FoundItem]] = {}
    checked = [bool(item.digest) and item.digest.startswith(OF_VECTOR) == places.vectors for item in items]
    for number, own in options.items():
        item = items[number]
        for place in own:
            candidate = fetched.get(place)
            if candidate is None or item.collection not in (None, candidate.collection):
                continue
            if not checked[number] or places.digest(candidate) == item.digest:
                found[number] = place, candidate
                break
    renamed: list[int] = []
    by_digest: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        if number not in found and checked[number]:
            by_digest[item.digest].append(number)
    for digest, place, candidate in places.search(frozenset(by_digest)) if by_digest else ():
        for number in by_digest[digest]:
            if number not in found and items[number].collection in (None, candidate.collection):
                found[number] = place, candidate
                renamed.append(number)
                break
    rest = [number for number in range(len(items)) if number not in found]
    gone = [number for number in rest if number not in options]
    found = dict(sorted(found.items()))  # as in the draw, whichever way they were found
    return Search(found, gone, [number for number in rest if number in options], renamed)


# Labelled samples of an audit


def labelled_samples(
    run: Run,
    source: Items | Table,
    draw: Draw,
    control: ControlSet | None,
    *,
    path: str = "the draw",
    groups: Sequence[str] | None = None,
    attribute: str | None = None,
    rename: Mapping[Any, str] | None = None,
) -> dict[str, LabelledSample]:
    """The labelled items of each collection, with their vectors; only these items are encoded.

    What is no longer in the collection, or has changed, is reported and not used. Without `by` the only collection is
    named after the source.
    """
    if not draw.labels:
        raise FileError(f"{path}: no row has a label; fill in the column '{GROUP}'")
    _check_design(run, draw, path)
    places = places_of(run, source)
    search = find_items(places, draw.items)
    _report(run, draw, search, places, path)
    found = {number: item for number, (_, item) in search.found.items()}
    if isinstance(places, ItemPlaces):
        found = _encoded(run, places.source, found)
    marks = {item.control for item in draw.items if item.stratum} - {""}
    if marks and control is not None and control_mark(control) not in marks:
        run.warn(
            f"{path}: its pairs were made with another control set. The interval is still correct, but may be wider "
            "than with pairs of this one"
        )
    order = tuple(groups or draw.groups) or _names(draw, rename)
    own: dict[str, list[int]] = defaultdict(list)
    for number, item in found.items():
        own[(item.collection or "") if run.by else source.name].append(number)
    samples: dict[str, LabelledSample] = {}
    for name, numbers in own.items():
        drawn = [draw.items[number] for number in numbers]
        if all(is_unknown(item.group) for item in drawn):
            continue
        strata = np.array([item.stratum for item in drawn], dtype=np.intp)
        first = min(drawn, key=lambda item: item.batch)
        samples[name] = LabelledSample.of(
            np.stack([vector for number in numbers if (vector := found[number].vector) is not None]),
            [item.group for item in drawn],
            control=control,
            order=None if control is not None else order,
            attribute=attribute or draw.attribute or None,
            rename=rename,
            strata=_in_pairs(strata) if strata.any() else None,
            batches=max(item.batch for item in drawn),
            drawn_from=None if run.by and first.collection is None else first.size,
            encoder=run.encoding.identity(source.kind) if source.kind != "vectors" else places.encoder,
        )
    return samples


def _check_design(run: Run, draw: Draw, path: str) -> None:
    """Refuse a draw that says nothing about the collections that are audited."""
    by_collection = draw.items[0].collection is not None
    if by_collection and run.by is None:
        raise MismatchError(
            f"{path} was drawn for each of several collections; audit them with the same --by"
        )
    if run.by is not None and not by_collection and any(item.stratum for item in draw.items):
        raise MismatchError(
            f"{path} was drawn in pairs from the whole collection; draw it with --by {run.by} for each collection"
        )


def _report(run: Run, draw: Draw, search: Search, places: Places, path: str) -> None:
    """Say which drawn items are not used, and why."""
    where, total = places.source.path, len(draw)
    if 2 * len(search.found) < total:
        raise MismatchError(
            f"only {len(search.found)} of the {total} items of {path} are in {where}: was it drawn from another "
            "collection?"
        )
    for numbers, why in ((search.gone, "no longer in"), (search.changed, "changed in")):
        if numbers:
            names = listed([f"'{brief(draw.items[number].id)}'" for number in numbers], NAMED)
            verb = "is" if len(numbers) == 1 else "are" if numbers is search.gone else "have"
            verb = "has" if verb == "is" and numbers is search.changed else verb
            run.warn(
                f"{path}: {len(numbers)} of {total} items {verb} {why} {where} and {_used(numbers)}: {names}"
            )
    if search.renamed:
        run.warn(
            f"{path}: {count(len(search.renamed), 'items')} found by content, as the ids differ; a spreadsheet may "
            "have changed them"
        )
    if any(item.digest.startswith(OF_VECTOR) != places.vectors for item in draw.items):
        run.warn(f"{path}: the items were found by their ids alone; {where} has their {_kind(places)} only")


def _used(numbers: Sequence[int]) -> str:
    return "is not used" if len(numbers) == 1 else "are not used"


def _kind(places: Places) -> str:
    return "vectors" if places.vectors else {"image": "pictures", "text": "texts"}[places.kind]


def _encoded(run: Run, source: Items, found: Mapping[int, FoundItem]) -> dict[int, FoundItem]:
    """Encode the items that were found; those that cannot be encoded are reported."""
    encoding = run.encoding
    encoding.fit(source)
    numbers = list(found)
    contents = [found[number].content or "" for number in numbers]
    batch = ItemBatch(contents, [found[number].id for number in numbers])
    with run.progress("labelled items", len(numbers)) as advance:
        results: list[ItemVectors] = []
        for piece, some in encoding.run([batch], source.kind, rows=len(numbers)):
            results += some
            advance(len(piece))
    bad = [number for number, result in zip(numbers, results, strict=True) if not len(result.vectors)]
    if bad:
        names = listed([f"'{brief(found[number].id)}'" for number in bad], NAMED)
        run.warn(f"{count(len(bad), 'labelled items')} cannot be encoded and {_used(bad)}: {names}")
    return {
        number: replace(found[number], vector=encoding.shorten(result.vectors)[0])
        for number, result in zip(numbers, results, strict=True)
        if len(result.vectors)
    }


def _names(draw: Draw, rename: Mapping[Any, str] | None) -> tuple[str, ...]:
    """Names of groups, if only the labels say them; the first spelling counts."""
    labels = [item.group for item in draw.items if not is_unknown(item.group)]
    spelled: dict[str, str] = {}
    for name in name_groups({GROUP: labels}, rename, no_warning, every=False)[GROUP]:
        spelled.setdefault(" ".join(name.split()).casefold(), name)
    return tuple(sorted(spelled.values()))


def _in_pairs(strata: NDArray[np.intp]) -> NDArray[np.intp]:
    """Strata of two items or more: those that lost an item become one.

    Its items differ more than those of a pair, so the interval is rather too wide.
    """
    names, stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    single = sizes[stratum] == 1
    if not single.any():
        return strata
    merged = strata.copy()
    merged[single] = names.max() + 1 if single.sum() > 1 else names[0] if sizes[0] > 1 else names[-1]
    return merged


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
