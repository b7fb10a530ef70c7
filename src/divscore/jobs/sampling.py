"""sample_source(): which items of a collection to label.

Every row of a collection gets a random 64-bit key, from the seed and its place alone. The rows with the smallest keys
are a simple random sample, whoever reads which part of the collection, in one pass and constant memory. With a control
set, up to 65,536 of them are sorted by score and cut into strata of equal size, and the two with the smallest keys are
drawn from each: every item has the same chance, and the sample has its share of all scores (METHOD: pairs).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError, MismatchError
from divscore.files import PathLike
from divscore.jobs.drawfile import Draw, DrawnItem, check_names, control_mark, read_draw
from divscore.jobs.finding import Place, Places, VectorPlaces, find_items, numbered, open_items, places_of
from divscore.jobs.pool import Warn
from divscore.jobs.sketching import Run, running
from divscore.sketch.scan import score_rows, usable_in_bulk
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sources import Table
from divscore.sources.table import Texts
from divscore.text import count, named

CANDIDATES = 65_536  # rows of a collection that are sorted by score
ALL_CANDIDATES = 1 << 22  # of all collections, which share the memory
FEWEST = 16  # times the size: candidates that every collection has
RESERVE = 2  # times the size: rows that are drawn at random, as some may turn out to be unreadable
LIKELY = 32  # times the size: rows among which the drawn ones almost certainly are, so their vectors are kept
LIKELY_BYTES = 64 << 20
WHOLE = ""  # the only collection, without `by`
TOP = int(np.iinfo(np.uint64).max)


@one_thread
def sample_source(
    collection: Any,
    size: int,
    control: Any = None,
    *,
    attribute: str | None = None,
    by: str | None = None,
    groups: Sequence[str] | None = None,
    rename: Mapping[Any, str] | None = None,
    add_to: PathLike | Draw | None = None,
    seed: int = 0,
    column: str | None = None,
    form: str = "",
    **how: Any,
) -> Draw:
    """Draw items to label; see `divscore.draw_sample`. The other parameters are those of `audit_source`."""
    if not isinstance(size, int | np.integer) or size < 1:
        raise InputError(f"size {size!r}: expected a whole number, at least 1")
    if control is not None and size % 2:
        raise InputError(
            f"with a control set, items are drawn in pairs: use an even size, such as {size + 1}"
        )
    if control is None and groups is not None:
        groups = check_names(groups)
    with running(by=by, seed=seed, **how) as run:
        earlier = None if add_to is None else _checked(add_to, by, control, run.warn)
        source = open_items(run, collection, column, form)
        if control is not None:
            reading = {"attribute": attribute, "order": groups, "likely_column": column, "rename": rename}
            control = run.read_control(control, **reading, fit_with=[source])
        places = places_of(run, source)
        drawing = Drawing(by, seed, size)
        if earlier is not None:
            drawing = _after(drawing, earlier, places)
        if control is None:
            pool = _counted(run, places, drawing)
        else:
            pool = _scored(run, places, run.vectors_of(source, control), control, drawing)
        items = _resolved(run, places, pool, drawing, control)
        draw = Draw(
            tuple(items),
            places.kind,
            control.attribute if control is not None else attribute or "",
            control.groups if control is not None else tuple(groups or ()),
            places.encoder,
        )
    return draw if earlier is None else _joined(earlier, draw)


# Random keys


@dataclass(frozen=True)
class Drawing:
    """What decides a draw; `taken` are places that were drawn before, by partition."""

    by: str | None
    seed: int
    size: int
    batch: int = 1
    taken: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def keys(self, part: int, places: NDArray[np.intp]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Random numbers of increasing places of a partition, and which of these can be drawn."""
        first, last = int(places[0]), int(places[-1])
        bits = np.random.PCG64([self.seed, self.batch, part]).advance(first)
        return bits.random_raw(last - first + 1)[places - first], ~np.isin(places, self.taken.get(part, ()))

    def rng(self, purpose: int) -> np.random.Generator:
        """Other random choices."""
        return np.random.default_rng([self.seed, self.batch, purpose])


class Lowest:
    """For each collection the rows with the smallest keys, in columns; as many as `most` says for so many collections.

    The number may fall as collections are added, so what is kept at the end does not depend on their order.
    """

    def __init__(self, least: int, most: int, share: int, first: int = TOP) -> None:
        self.bounds = least, most, share
        self._first = first  # larger keys are not even looked at
        self.columns: dict[str, NDArray[Any]] = {}
        self._new: list[dict[str, NDArray[Any]]] = []
        self._waiting = 0
        self._limits = np.empty(0, np.uint64)

    def grow(self, owners: int) -> None:
        """Take so many collections."""
        self._limits = np.append(self._limits, np.full(owners - len(self._limits), self._first, np.uint64))

    def below(self, owner: NDArray[np.intp], key: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Rows that may be among the smallest of their collection."""
        return np.flatnonzero(key < self._limits[owner])

    def add(self, **columns: NDArray[Any]) -> None:
        """Add rows, with the columns `owner` and `key`."""
        self._new.append(columns)
        self._waiting += len(columns["key"])
        if self._waiting > max(len(self.columns.get("key", ())), self.bounds[1]):
            self.trim()

    def trim(self) -> None:
        """Drop all rows but the smallest."""
        parts = [self.columns, *self._new] if self.columns else self._new
        if not parts:
            return
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        least, most, share = self.bounds
        order = np.lexsort((columns["key"], columns["owner"]))
        owner = columns["owner"][order]
        kept = max(least, min(most, share // max(1, len(self._limits))))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        rank = np.arange(len(owner)) - np.repeat(starts, np.diff(starts, append=len(owner)))
        full = order[rank == kept]  # the first that is dropped: no later row needs to be smaller than that
        self._limits[columns["owner"][full]] = columns["key"][full]
        self.columns = {name: values[order[rank < kept]] for name, values in columns.items()}
        self._new, self._waiting = [], 0

    def merge(self, other: Lowest, owners: NDArray[np.intp]) -> None:
        """Add the rows of another, whose collections have the numbers `owners` here."""
        other.trim()
        if other.columns:
            self.add(**{**other.columns, "owner": owners[other.columns["owner"]]})


def _first_limit(rows: int, total: int) -> int:
    """A key that about `rows` of `total` rows are below, and certainly no fewer (six standard deviations)."""
    return TOP if rows >= total else min(TOP, int(TOP * ((rows + 6 * rows**0.5) / total)))


class Pool:
    """Rows of a source that can be drawn: how many each collection has, and those with the smallest keys."""

    def __init__(self, size: int, *, pairs: bool, dimension: int = 0, total: int = 0) -> None:
        self.names: dict[str, int] = {}
        self.seen = np.zeros(0, dtype=np.int64)  # usable rows of each collection
        self.left = np.zeros(0, dtype=np.int64)  # without those that were drawn before
        self.lengths: dict[int, int] = {}  # rows of each partition
        self.skipped = 0  # rows without a usable vector
        rows = (FEWEST * size, CANDIDATES, ALL_CANDIDATES) if pairs else (RESERVE * size, RESERVE * size, 0)
        self.lowest = Lowest(*rows, first=_first_limit(rows[1], total))
        self.likely: Lowest | None = None
        if dimension:
            few = LIKELY * size
            self.likely = Lowest(0, few, LIKELY_BYTES // (4 * dimension), first=_first_limit(few, total))

    def owners(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Numbers of collections; new ones get the next."""
        numbers = [self.names.setdefault(name, len(self.names)) for name in names]
        new = 0, len(self.names) - len(self.seen)
        self.seen, self.left = np.pad(self.seen, new), np.pad(self.left, new)
        for lowest in filter(None, (self.lowest, self.likely)):
            lowest.grow(len(self.names))
        return np.array(numbers, dtype=np.intp)

    def add(
        self,
        part: int,
        places: NDArray[np.intp],
        keys: tuple[NDArray[np.uint64], NDArray[np.bool_]],
        collections: Sequence[str] | None,
        score: Callable[[NDArray[np.intp]], NDArray[Any]] | None = None,
        vectors: NDArray[Any] | None = None,
    ) -> None:
        """Add rows of a partition that can be drawn; `score` gives the scores of some of them."""
        owner = np.zeros(len(places), dtype=np.intp)
        if collections is None:
            self.owners([WHOLE])
        else:
            texts = Texts.of(collections)
            owner = self.owners(texts.names)[texts.codes]
        key, free = keys
        self.seen += np.bincount(owner, minlength=len(self.seen))
        self.left += np.bincount(owner[free], minlength=len(self.left))
        for lowest, extra in ((self.lowest, score), (self.likely, vectors)):
            if lowest is None:
                continue
            chosen = lowest.below(owner, key)
            chosen = chosen[free[chosen]]
            columns: dict[str, NDArray[Any]] = {"owner": owner[chosen], "key": key[chosen]}
            columns |= {"place": places[chosen], "part": np.full(len(chosen), part, dtype=np.int32)}
            if extra is not None:
                columns["extra"] = extra(chosen) if callable(extra) else extra[chosen]
            lowest.add(**columns)

    def merge(self, other: Pool) -> None:
        """Add the pool of another partition."""
        owners = self.owners(list(other.names))
        self.seen[owners] += other.seen
        self.left[owners] += other.left
        self.lengths |= other.lengths
        self.skipped += other.skipped
        self.lowest.merge(other.lowest, owners)
        if self.likely is not None and other.likely is not None:
            self.likely.merge(other.likely, owners)

    def enough(self, size: int) -> bool:
        """Whether it has the candidates that every collection should have, or all rows."""
        self.lowest.trim()
        rows = np.bincount(self.lowest.columns.get("owner", np.empty(0, np.intp)), minlength=len(self.left))
        return bool((rows >= np.minimum(self.left, FEWEST * size)).all())

    def vectors(self) -> dict[Place, NDArray[Any]]:
        """Vectors of the rows that are likely to be drawn."""
        if self.likely is None:
            return {}
        self.likely.trim()
        columns = self.likely.columns
        if not columns:
            return {}
        places = zip(columns["part"].tolist(), columns["place"].tolist(), strict=True)
        return dict(zip(places, columns["extra"], strict=True))

    def chosen(self, drawing: Drawing, *, pairs: bool) -> dict[str, list[tuple[Place, int]]]:
        """Places and strata of the rows to draw, by collection; more than enough if they are drawn at random."""
        self.lowest.trim()
        rng, size, chosen = drawing.rng(1), drawing.size, {}
        if not self.lowest.columns:
            return {}
        owner, key, part, place = (self.lowest.columns[name] for name in ("owner", "key", "part", "place"))
        for name in sorted(self.names):
            number = self.names[name]
            rows = np.flatnonzero(owner == number)  # in the order of their keys
            strata = np.zeros(len(rows), dtype=np.intp)
            if pairs and self.left[number] > size:
                score, half = self.lowest.columns["extra"], size // 2
                # As many candidates as make strata of equal size: then every item has the same chance.
                rows = rows[: len(rows) // half * half]
                order = rows[np.lexsort((place[rows], part[rows], score[rows]))].reshape(half, -1)
                two = np.argsort(key[order], axis=1)[:, :2]
                rows = np.take_along_axis(order, two, axis=1).ravel()
                # Numbers in the order of scores would tell the scores.
                strata = np.repeat(1 + rng.permutation(half), 2)
            chosen[name] = [
                ((int(part[row]), int(place[row])), int(stratum))
                for row, stratum in zip(rows, strata, strict=True)
            ]
        return chosen


# Passes over a collection


def _counted(run: Run, places: Places, drawing: Drawing) -> Pool:
    """Draw at random: the rows are counted, and nothing is encoded."""
    pool = Pool(drawing.size, pairs=False)
    if isinstance(places, VectorPlaces):
        with run.progress(places.source.name, places.source.rows) as advance:
            for number, part, result in run.each(
                places.source, partial(_count_part, drawing), missing=run.warn_of_missing(places.source)
            ):
                places.lengths[number] = part.rows or 0
                if result is not None:
                    pool.merge(result)
                    places.lengths[number] = result.lengths[number]
                advance(places.lengths[number])
        return pool
    for batch, first, kept in places.batches():
        if kept:
            rows = first + np.array(kept, dtype=np.intp)
            values = batch.values[drawing.by] if drawing.by else None
            pool.add(0, rows, drawing.keys(0, rows), values and [values[at] for at in kept])
    return pool


def _count_part(drawing: Drawing, number: int, part: Table) -> Pool:
    """The pool of a partition, from which no vectors are read."""
    pool = Pool(drawing.size, pairs=False)
    if drawing.by is None and part.rows is not None:
        places = np.arange(part.rows)
        if part.rows:
            pool.add(number, places, drawing.keys(number, places), None)
        pool.lengths[number] = part.rows
        return pool
    table = part.select(vectors=False, extra=(drawing.by,) if drawing.by else ())
    for block, places in numbered(table):
        names = block.values[drawing.by] if drawing.by else None
        pool.add(number, places, drawing.keys(number, places), names)
    pool.lengths[number] = table.read + table.unreadable
    return pool


def _scored(run: Run, places: Places, source: Table, control: ControlSet, drawing: Drawing) -> Pool:
    """Draw in pairs of similar scores, in one pass over the vectors."""
    scorer = scorer_for(control, drawing.seed)
    kept = isinstance(places, VectorPlaces)
    # The number of rows says which keys can matter; without it, or with several collections, all may.
    for total in (source.rows or 0 if kept and drawing.by is None else 0, 0):
        pool = Pool(drawing.size, pairs=True, dimension=source.dimension if kept else 0, total=total)
        with run.watched(source) as advance:
            read = partial(_score_part, scorer, drawing, kept, total)
            for number, part, result in run.each(source, read, missing=run.warn_of_missing(source)):
                length = part.rows or 0
                if result is not None:
                    pool.merge(result)
                    length = result.lengths[number]
                if isinstance(places, VectorPlaces):
                    places.lengths[number] = length
                advance(length)
        if pool.enough(drawing.size):
            break  # nearly always: unless most rows have no usable vector
    if not pool.left.any():
        raise FileError(f"{source.path} has no item with a usable vector")
    if pool.skipped and kept:
        run.warn(f"{source.path}: {count(pool.skipped, 'items')} without a usable vector cannot be drawn")
    return pool


@one_thread
def _score_part(scorer: Scorer, drawing: Drawing, kept: bool, total: int, number: int, part: Table) -> Pool:
    """The pool of a partition, with scores."""
    scorer = shared_scorer(scorer)
    pool = Pool(drawing.size, pairs=True, dimension=part.dimension if kept else 0, total=total)
    for block, places in numbered(part):
        vectors, key, usable = block.vectors, drawing.keys(number, places), usable_in_bulk(block.vectors)
        collections = block.values[drawing.by] if drawing.by else None
        if not usable.all():
            pool.skipped += int((~usable).sum())
            rows = np.flatnonzero(usable)
            places, vectors, key = places[rows], vectors[rows], (key[0][rows], key[1][rows])
            collections = None if collections is None else [collections[row] for row in rows.tolist()]

        def score(chosen: NDArray[np.intp], vectors: NDArray[Any] = vectors) -> NDArray[np.float32]:
            return _order(score_rows(vectors[chosen], scorer), scorer)

        pool.add(number, places, key, collections, score, vectors if kept else None)
    pool.lengths[number] = part.read + part.unreadable
    pool.skipped += part.unreadable
    return pool


def _order(scores: NDArray[np.float32], scorer: Scorer) -> NDArray[np.float32]:
    """One number by which similar items are neighbours: the score, or for more groups the likeliest and how likely."""
    if scores.shape[1] == 1:
        return scores[:, 0]
    likelihoods = scorer.calibration.likelihoods(scores.astype(np.float64))
    posterior = likelihoods / likelihoods.sum(axis=1, keepdims=True)
    best = posterior.argmax(axis=1)
    order: NDArray[np.float32] = (best + 0.5 * posterior[np.arange(len(best)), best]).astype(np.float32)
    return order


# From rows to items


def _resolved(
    run: Run, places: Places, pool: Pool, drawing: Drawing, control: ControlSet | None
) -> list[DrawnItem]:
    """The drawn items of all collections, in random order."""
    chosen = pool.chosen(drawing, pairs=control is not None)
    vectors = pool.vectors()
    wanted = {place for rows in chosen.values() for place, _ in rows}
    known = wanted <= vectors.keys()
    fetched = places.fetch(wanted, vectors=not known)
    items: list[DrawnItem] = []
    unreadable = 0
    for name, rows in chosen.items():
        own: list[DrawnItem] = []
        seen, left = (int(counts[pool.names[name]]) for counts in (pool.seen, pool.left))
        for place, stratum in rows:
            item = fetched.get(place)
            if item is not None and known:
                item = replace(item, vector=vectors[place])
            digest = places.digest(item) if item is not None else ""
            if item is None or not digest:
                unreadable += 1
                continue
            own.append(
                DrawnItem(
                    item.id,
                    item.content,
                    digest,
                    item.row,
                    collection=name if drawing.by else None,
                    stratum=stratum,
                    batch=drawing.batch,
                    size=seen,
                    control=control_mark(control) if stratum else "",
                    vector=item.vector,
                )
            )
            if len(own) == drawing.size:
                break
        items += [replace(item, drawn=len(own)) for item in own]
        _report(run, name if drawing.by else "", seen, left, len(own), drawing)
    if unreadable:
        run.warn(f"{places.source.path}: {count(unreadable, 'items')} cannot be read and were not drawn")
    if not items:
        raise FileError(f"{places.source.path} has no items that can be drawn")
    return [items[at] for at in drawing.rng(2).permutation(len(items))]


def _report(run: Run, name: str, seen: int, left: int, drawn: int, drawing: Drawing) -> None:
    """Say that a collection has fewer items than were asked for."""
    if drawn == drawing.size:
        return
    what = f"{named(name)}: " if drawing.by else ""
    rest = f", {left:,} of them not drawn before" if drawing.batch > 1 else ""
    run.warn(f"{what}{count(seen, 'items')}{rest}: all {drawn:,} that can be read are drawn")


# Adding to an earlier draw


def _checked(path: PathLike | Draw, by: str | None, control: Any, warn: Warn) -> Draw:
    """An earlier draw that can be added to in the same way."""
    earlier, name = (path, "the draw") if isinstance(path, Draw) else (read_draw(path, warn), os.fspath(path))
    if earlier is None:
        raise FileError(f"{name} was not written by 'divscore sample'; pass its table to --add-to")
    if (by is not None) != (earlier.items[0].collection is not None):
        how = (
            "for each collection: use the same --by"
            if by is None
            else "from the whole collection: leave out --by"
        )
        raise MismatchError(f"{name} was drawn {how}")
    pairs = any(item.stratum for item in earlier.items)
    if pairs != (control is not None):
        how = "in pairs: add --control" if pairs else "at random: leave out --control"
        raise MismatchError(f"{name} was drawn {how}, so that all its items are drawn in one way")
    return earlier


def _after(drawing: Drawing, earlier: Draw, places: Places) -> Drawing:
    """The drawing that goes on after an earlier one."""
    search = find_items(places, earlier.items)
    if 2 * len(search.found) < len(earlier):
        raise MismatchError(
            f"only {len(search.found)} of the {len(earlier)} items that were drawn before are in "
            f"{places.source.path}: were they drawn from another collection?"
        )
    taken: dict[int, list[int]] = {}
    for (part, place), _ in search.found.values():
        taken.setdefault(part, []).append(place)
    return replace(drawing, batch=1 + max(item.batch for item in earlier.items), taken=taken)


def _joined(earlier: Draw, new: Draw) -> Draw:
    """Both draws; strata of the new one get the next numbers."""
    last: dict[str | None, int] = {}
    for item in earlier.items:
        last[item.collection] = max(last.get(item.collection, 0), item.stratum)
    added = [
        replace(item, stratum=item.stratum + last.get(item.collection, 0)) if item.stratum else item
        for item in new.items
    ]
    return replace(
        new,
        items=(*earlier.items, *added),
        kind=earlier.kind if earlier.kind != "vectors" else new.kind,
        attribute=new.attribute or earlier.attribute,
        groups=new.groups or earlier.groups,
    )
