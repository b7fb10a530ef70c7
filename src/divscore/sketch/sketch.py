"""Sketch: everything that an audit needs to know about a collection, in about 200 kilobytes.

State: count, Σ x̂, counts of scores, and a bottom-k sample of unit vectors. Adding, removing and merging are exact,
which is the paper's "variable-sized collections" and lets batches, threads and machines share one pass.

A sketch contains vectors of up to 512 items, a byte a component. Share it only where you could share those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, as_matrix
from divscore.errors import InputError, MismatchError, VectorError
from divscore.sketch.sample import LEAST_ITEMS, TOP, Owners, Sample, Sampled
from divscore.sketch.scan import SINGLE, Limits, Scan, chunk_rows, in_order, scan
from divscore.sketch.scorer import FINE, Scorer, scorer_for

# Zero and nonfinite vectors; items that could not be read; items with nothing to encode (no face, no known word).
SKIPS = ("zero", "nonfinite", "unreadable", "empty")
ZERO, NONFINITE = SKIPS.index("zero"), SKIPS.index("nonfinite")
SIDE = 2 * FINE + 1
SMALLEST_SET = 5
EVEN = 32  # items that must carry the weight of a sample
SMALL_SAMPLE = 128  # sampled items below which an interval is noticeably wider
JOINT_ITEMS, LEAST_JOINT_ITEMS = 65_536, 4_096  # score tuples of a collection, with three groups or more
BUDGET = 200 << 20  # bytes of sampled vectors of all collections of a table
JOINT_BUDGET = 100 << 20
WAITING = 1 << 20  # keys
DENSE = 1 << 17  # cells up to which a full table is counted: it stays in the cache
REFUSED = "more items to remove than were added to this sketch; nothing was removed"

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Origin:
    """What sketches must have in common to be merged."""

    control: str  # digest
    attribute: str
    seed: Annotated[int, msgspec.Meta(ge=0)]
    groups: Annotated[int, msgspec.Meta(ge=2, le=64)]
    dimension: Annotated[int, msgspec.Meta(ge=1, le=2**24)]
    similarities: Annotated[int, msgspec.Meta(ge=0, le=2**24)]  # for any similarity but the cosine

    @classmethod
    def of(cls, control: ControlSet, seed: int) -> Origin:
        """Describe the sketches of a control set."""
        general = 0 if control.similarity.collapses else int(control.representative.sum())
        return cls(control.digest, control.attribute, seed, len(control.groups), control.dimension, general)


class Cells:
    """Counts of score cells of one or many collections: sorted keys ``owner · SIDE + cell``, sparse."""

    def __init__(self) -> None:
        self._keys: Counts = np.empty(0, dtype=np.int64)
        self._counts: Counts = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Counts, Counts | None]] = []
        self._wait = 0

    def add(self, keys: Counts, counts: Counts | None = None) -> None:
        """Count keys, in any order. They wait until they are many, or until the counts are read."""
        self._waiting.append((keys, counts))
        self._wait += len(keys)
        if self._wait > WAITING:
            self.table()

    def remove(self, keys: Counts, counts: Counts | None = None) -> None:
        """Take counts away. After an error the counts must not be used any more."""
        self.add(keys, -(np.ones_like(keys) if counts is None else counts))
        if self.table()[1].min(initial=0) < 0:
            raise InputError("items to remove were never added to this sketch; nothing was removed")

    def table(self) -> tuple[Counts, Counts]:
        """Return occupied keys in order, and their counts. Do not change them."""
        if self._waiting:
            single = [keys for keys, counts in self._waiting if counts is None]
            pairs = [(keys, counts) for keys, counts in self._waiting if counts is not None]
            if single:
                # Numbers alone sort several times as fast as pairs.
                pairs.append(_runs(np.sort(np.concatenate(single)), None))
            keys, counts = (
                np.concatenate(column) for column in zip((self._keys, self._counts), *pairs, strict=True)
            )
            order = np.argsort(keys, kind="stable")
            keys, counts = _runs(keys[order], counts[order])
            self._keys, self._counts = keys[counts != 0], counts[counts != 0]
            self._waiting, self._wait = [], 0
        return self._keys, self._counts

    def of(self, owner: int) -> tuple[Counts, Counts]:
        """Return the occupied cells of a collection, and their counts."""
        keys, counts = self.table()
        first, last = np.searchsorted(keys, [owner * SIDE, (owner + 1) * SIDE])
        return keys[first:last] - owner * SIDE, counts[first:last]

    def moved(self, at: Owners) -> tuple[Counts, Counts]:
        """Return keys and counts with owner c renamed to ``at[c]``."""
        keys, counts = self.table()
        owner, cell = np.divmod(keys, SIDE)
        return at[owner] * SIDE + cell, counts

    def take(self, at: Owners) -> Cells:
        """Return the cells of some owners, in this order."""
        taken = Cells()
        parts = [self.of(owner) for owner in at.tolist()]
        taken._keys = np.concatenate([cells + SIDE * new for new, (cells, _) in enumerate(parts)])
        taken._counts = np.concatenate([counts for _, counts in parts])
        return taken


def _runs(ordered: Counts, counts: Counts | None) -> tuple[Counts, Counts]:
    if not len(ordered):
        return ordered, np.empty(0, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    summed = np.diff(starts, append=len(ordered)) if counts is None else np.add.reduceat(counts, starts)
    return ordered[starts], summed.astype(np.int64, copy=False)


class SketchTable:
    """The numbers of one or many sketches in columns, without the control set that gives them meaning.

    Two groups: the scores of all items are counted in `cells`. More: steps of all scores of at most `JOINT_ITEMS`
    items are in `joint`. `sample` has unit vectors for what depends on refitted directions.
    Memory, with d dimensions: about 8 d bytes a collection and d bytes a sampled item. Samples share `BUDGET`: their k
    is lowered to `LEAST_ITEMS` where necessary, so a collection never costs more than 64 d bytes above it.
    """

    def __init__(self, origin: Origin, owners: int = 1) -> None:
        self.origin = origin
        self.count: Counts = np.zeros(owners, dtype=np.int64)
        self.total: NDArray[np.floating] = np.zeros((owners, origin.dimension))
        self.similarity: FloatArray = np.zeros((owners, origin.similarities))
        self.skipped: Counts = np.zeros((owners, len(SKIPS)), dtype=np.int64)
        self.cells = Cells()
        self.sample = Sample(origin.dimension, owners, room=BUDGET // (origin.dimension + 24))
        self.joint: Sample | None = None
        if origin.groups > 2:
            width = 2 * (origin.groups - 1)
            room = JOINT_BUDGET // (width + 24)
            self.joint = Sample(width, owners, k=JOINT_ITEMS, least=LEAST_JOINT_ITEMS, room=room)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        arrays = self.total.nbytes + self.similarity.nbytes + self.skipped.nbytes + self.count.nbytes
        joint = 0 if self.joint is None else self.joint.nbytes
        return int(arrays + 16 * len(self.cells.table()[0]) + self.sample.nbytes + joint)

    def grow(self, owners: int) -> None:
        """Make room for more collections."""
        self.count, self.total = _with_rows(self.count, owners), _with_rows(self.total, owners)
        self.similarity = _with_rows(self.similarity, owners)
        self.skipped = _with_rows(self.skipped, owners)
        for sample in self._samples():
            sample.grow(owners)

    def limits(self, at: Owners) -> Limits:
        """Return what a scan for the collections `at` must know; those that are not in this table have no limit yet.

        An older limit is higher, so a thread that reads it a moment too early does no harm.
        """
        unknown = (at < 0) | (at >= len(self))
        at = np.where(unknown, 0, at)
        limits = [np.where(unknown, TOP, np.append(each.limit, TOP)[at]) for each in self._samples()]
        return Limits(limits[0], limits[1] if len(limits) > 1 else None)

    def add_counts(self, chunk: ScannedChunk, sign: int = 1) -> None:
        """Add (or take away) the counts and sums of a scanned chunk."""
        at, part = chunk.at, chunk.scan
        if not self.count.any() and sign > 0 and _everyone(at, len(self)):
            self.total = part.totals  # taken over, perhaps in single precision: it may be large
        else:
            self._add_totals(at, part.totals, sign)
        self.count[at] += sign * part.usable
        self.similarity[at] += sign * chunk.similarity
        self.skipped[at, ZERO] += sign * part.zero
        self.skipped[at, NONFINITE] += sign * part.nonfinite
        if sign < 0:
            self._check_removed(at)

    def add_items(self, at: Owners, part: Scan, sign: int = 1) -> None:
        """Add (or take away) the scores and sampled items of a scanned chunk."""
        if part.keys is not None:
            keys, counts = part.keys, None
            if len(at) * SIDE <= DENSE:
                dense = np.bincount(keys)
                keys = np.flatnonzero(dense)
                counts = dense[keys].astype(np.int64, copy=False)
            if not _everyone(at, len(at)):
                owner, cell = np.divmod(keys, SIDE)
                keys = at[owner] * SIDE + cell
            (self.cells.add if sign > 0 else self.cells.remove)(keys, counts)
        for sample, new in ((self.sample, part.sample), (self.joint, part.joint)):
            if sample is not None and new is not None and len(new.hash):
                change = sample.add if sign > 0 else sample.remove
                change(at[new.owner], new.hash, new.rows, new.step)

    def merge(self, other: SketchTable, at: Owners, sign: int = 1) -> None:
        """Count (or take away) everything in another table; its collections are those `at` of this one."""
        self.count[at] += sign * other.count
        self._add_totals(at, other.total, sign)
        self.similarity[at] += sign * other.similarity
        self.skipped[at] += sign * other.skipped
        (self.cells.add if sign > 0 else self.cells.remove)(*other.cells.moved(at))
        for sample, others in zip(self._samples(), other._samples(), strict=True):
            sample.merge(others, at, sign)
        if sign < 0:
            self._check_removed(at)

    def take(self, at: Owners) -> SketchTable:
        """Return a table of some collections, in this order; it shares nothing with this one."""
        taken = SketchTable(self.origin, 0)
        taken.count, taken.total = self.count[at], self.total[at].astype(np.float64)
        taken.similarity, taken.skipped = self.similarity[at], self.skipped[at]
        taken.cells, taken.sample = self.cells.take(at), self.sample.take(at)
        taken.joint = None if self.joint is None else self.joint.take(at)
        return taken

    def _add_totals(self, at: Owners, totals: NDArray[np.floating], sign: int) -> None:
        self.total = self.total.astype(np.float64, copy=False)
        if _everyone(at, len(self)):
            np.add(
                self.total, totals if sign > 0 else -totals, out=self.total
            )  # no copies: they may be large
        else:
            self.total[at] += sign * totals

    def _samples(self) -> list[Sample]:
        return [self.sample] if self.joint is None else [self.sample, self.joint]

    def _check_removed(self, at: Owners) -> None:
        if self.count[at].min(initial=0) < 0 or self.skipped[at].min(initial=0) < 0:
            raise InputError(REFUSED)
        # Without any item the sums are zero, not what rounding left of them.
        empty = at[self.count[at] == 0]
        self.total[empty], self.similarity[empty] = 0.0, 0.0


def _everyone(at: Owners, owners: int) -> bool:
    return len(at) == owners and np.array_equal(at, np.arange(owners))


def _with_rows(array: NDArray[Any], rows: int) -> NDArray[Any]:
    more = np.zeros((rows - len(array), *array.shape[1:]), dtype=array.dtype)
    return np.concatenate([array, more]) if len(array) else more


class Sketch:
    """A summary of a collection, as seen from one control set.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    >>> control = ControlSet(vectors, ["a"] * 20 + ["b"] * 20, attribute="letter")
    >>> sketch = Sketch(control)
    >>> sketch.add(rng.normal(size=(100, 8)))
    >>> sketch.count
    100
    """

    def __init__(self, control: ControlSet, *, seed: int = 0) -> None:
        self.control = control
        self.scorer = scorer_for(control, seed)
        self.table, self.at = SketchTable(Origin.of(control, seed)), 0

    @classmethod
    def row(cls, control: ControlSet, scorer: Scorer, table: SketchTable, at: int) -> Sketch:
        """Return the sketch of collection `at` of a table. It leaves the table as it is when you change it."""
        sketch = cls.__new__(cls)
        sketch.control, sketch.scorer, sketch.table, sketch.at = control, scorer, table, at
        return sketch

    @property
    def seed(self) -> int:
        """Seed of the intervals."""
        return self.table.origin.seed

    @property
    def count(self) -> int:
        """Number of items with a usable vector."""
        return int(self.table.count[self.at])

    @property
    def total(self) -> FloatArray:
        """Sum of the unit vectors."""
        return np.array(self.table.total[self.at], dtype=np.float64)

    @property
    def mean(self) -> FloatArray:
        """Mean of the unit vectors."""
        if not self.count:
            raise InputError("the sketch is empty: no item with a usable vector was added")
        return self.total / self.count

    @property
    def similarity_total(self) -> FloatArray:
        """Sum of the similarities with every representative; empty for the cosine."""
        return np.array(self.table.similarity[self.at])

    @property
    def skipped(self) -> dict[str, int]:
        """Number of skipped items by kind."""
        return dict(zip(SKIPS, self.table.skipped[self.at].tolist(), strict=True))

    @property
    def sample(self) -> Sampled:
        """The sampled items."""
        return self.table.sample.of(self.at)

    def units(self) -> tuple[FloatArray, Counts]:
        """Return the unit vectors (m, d) of the sampled items, and the number of copies of each."""
        sample = self.sample
        return np.multiply(sample.rows.view(np.int8), sample.step[:, None], dtype=np.float64), sample.copies

    def scores(self) -> tuple[FloatArray, FloatArray]:
        """Return scores (m, groups − 1) that occur, and how many items have them."""
        joint, grid = self.table.joint, self.scorer.grid
        if joint is None:
            cells, counts = self.table.cells.of(self.at)
            return grid.scores(cells[:, None]), counts.astype(np.float64)
        items = joint.of(self.at)
        return grid.scores(items.rows.view(np.int16)), items.copies.astype(np.float64)

    @property
    def individual(self) -> bool:
        """Whether a statement about this set would be one about single items: fewer than five different ones."""
        if self.count < SMALLEST_SET:
            return True
        sample, scores = self.sample, self.scores()[0]
        return (sample.complete and len(sample) < SMALLEST_SET) or not (scores != scores[0]).any()

    @property
    def thinned(self) -> bool:
        """Whether so many items were removed that too few of the rest are in the sample: a limit stays low."""
        sample = self.sample
        return not sample.complete and len(sample) < LEAST_ITEMS

    @property
    def few_distinct(self) -> bool:
        """Whether most of the items are copies of so few that a sample of different items cannot represent them.

        Copies share one hash, so they are in the sample together or not at all: either a few items carry its weight,
        or it represents less than half of the collection.
        """
        sample = self.sample
        if sample.complete or self.thinned:
            return False
        return sample.effective < EVEN or sample.represented < self.count / 2

    @property
    def small_sample(self) -> bool:
        """Whether the interval is based on fewer items than usual, because very many collections share the memory."""
        sample = self.sample
        return not sample.complete and len(sample) < SMALL_SAMPLE

    def add(self, batch: Any, *, workers: int = 1) -> None:
        """Count a batch of vectors; zero and non-finite ones are skipped and counted."""
        self._change(self.checked(batch), workers, 1)

    def remove(self, batch: Any, *, workers: int = 1) -> None:
        """Take a batch out again; it must have been added before."""
        self._change(self.checked(batch), workers, -1)

    def merge(self, other: Sketch) -> None:
        """Count everything that another sketch of the same control set has seen."""
        self._combine(other, 1)

    def subtract(self, other: Sketch) -> None:
        """Take out everything that another sketch has seen; all of it must have been added before."""
        self._combine(other, -1)

    def skip(self, kind: str, count: int = 1) -> None:
        """Record items that could not be turned into vectors."""
        if kind not in SKIPS:
            raise KeyError(kind)
        self._own()
        self.table.skipped[0, SKIPS.index(kind)] += count

    def copy(self) -> Sketch:
        """Return an independent copy."""
        return Sketch.row(self.control, self.scorer, self.table.take(np.array([self.at])), 0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `Sketch.load` reads back; an earlier file is replaced in one step."""
        from divscore.sketch.sketchfile import write_sketches

        write_sketches(path, {"": self})

    @classmethod
    def load(cls, path: str | os.PathLike[str], control: ControlSet) -> Sketch:
        """Read a sketch of one collection, made with this control set."""
        from divscore.sketch.sketchfile import read_sketches

        sketches = read_sketches(path, control)
        if len(sketches) != 1:
            raise InputError(f"{path} has {len(sketches)} collections; read them with read_sketches")
        return next(iter(sketches.values()))

    def __repr__(self) -> str:
        return f"<Sketch of {self.count} items, {self.control.attribute}>"

    def checked(self, batch: Any) -> NDArray[Any]:
        """Return a batch as an array of the right dimension, or raise an error that says what is wrong."""
        return checked_rows(batch, self.control)

    def _own(self) -> None:
        """Leave a table that other sketches use."""
        if len(self.table) > 1:
            self.table, self.at = self.table.take(np.array([self.at])), 0

    def _change(self, rows: NDArray[Any], workers: int, sign: int) -> None:
        self._own()
        # A removal, or a similarity, may be refused in the middle: change a copy then.
        safe = sign > 0 and self.control.similarity.collapses
        table = self.table if safe else self.table.take(np.array([0]))
        blocks = [(rows, None, np.zeros(1, dtype=np.intp))]
        for chunk in scan_blocks(
            self.control, self.scorer, blocks, table.limits, seen=self.count, workers=workers
        ):
            table.add_items(chunk.at, chunk.scan, sign)
            table.add_counts(chunk, sign)
        self.table = table

    def _combine(self, other: Sketch, sign: int) -> None:
        if self.control.digest != other.control.digest:
            raise MismatchError(
                "the sketches were made with different control sets and cannot be merged; "
                "make both with the same control set"
            )
        if self.seed != other.seed:
            raise MismatchError(f"the sketches were made with different seeds ({self.seed} and {other.seed})")
        table = self.table.take(np.array([self.at]))
        table.merge(other.table.take(np.array([other.at])), np.zeros(1, dtype=np.intp), sign)
        self.table, self.at = table, 0


def checked_rows(batch: Any, control: ControlSet) -> NDArray[Any]:
    """Return a batch as an array of the control set's dimension, or raise an error that says what is wrong."""
    rows = as_matrix(batch, "the collection's vectors")
    if rows.shape[1] != control.dimension:
        raise VectorError(
            f"the collection's vectors have {rows.shape[1]} dimensions, the control set's "
            f"{control.dimension}; both must come from the same encoder"
        )
    return rows


Block = tuple[NDArray[Any], Owners | None, Owners]  # rows, the owner of each among `at`, and `at`


@dataclass(frozen=True)
class ScannedChunk:
    """The scan of some rows of the collections `at`, not yet counted anywhere."""

    at: Owners
    scan: Scan
    similarity: FloatArray  # (owners, m)
    rows: int


def scan_blocks(
    control: ControlSet,
    scorer: Scorer,
    blocks: Iterable[Block],
    limits: Callable[[Owners], Limits],
    *,
    seen: int = 0,
    workers: int = 1,
) -> Iterator[ScannedChunk]:
    """Scan blocks on threads; yield the results in order.

    Chunks have a fixed length and are folded in order, so the answer does not depend on the number of threads. `seen`
    is the number of rows that came before, in other passes: it decides how precise short sums must be.
    """

    def chunks() -> Iterator[tuple[NDArray[Any], Owners | None, Owners, bool, Limits]]:
        nonlocal seen
        size = chunk_rows(control.dimension)
        for rows, owner, at in blocks:
            single = len(rows) + seen >= SINGLE
            seen += len(rows)
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                mine, here = (None, at) if owner is None else _present(owner[part], at)
                yield rows[part], mine, here, single, limits(here)

    def task(chunk: tuple[NDArray[Any], Owners | None, Owners, bool, Limits]) -> ScannedChunk:
        rows, owner, at, single, limit = chunk
        part = scan(rows, scorer, limit, owner, single=single)
        return ScannedChunk(at, part, _similarities(control, rows, owner, len(at), part), len(rows))

    return in_order(task, chunks(), workers)


def _present(owner: Owners, at: Owners) -> tuple[Owners | None, Owners]:
    """Number the owners that occur in a chunk, which may be few of those of a block."""
    counts = np.bincount(owner, minlength=len(at))
    present = np.flatnonzero(counts)
    if len(present) == len(at):
        return owner, at
    return (np.cumsum(counts > 0) - 1)[owner] if len(present) > 1 else None, at[present]


def _similarities(
    control: ControlSet, rows: NDArray[Any], owner: Owners | None, owners: int, part: Scan
) -> FloatArray:
    """Σ_x sim(x, t_j) for every owner and representative j: m numbers instead of d, for any similarity."""
    if control.similarity.collapses:
        return np.zeros((owners, 0))
    chosen = control.vectors[control.representative].astype(np.float64)
    total = np.zeros((owners, len(chosen)))
    members = np.delete(np.arange(len(rows)), part.skipped)
    for start in range(0, len(members), 4096):
        some = members[start : start + 4096]
        pairs = control.similarity.pairs(rows[some].astype(np.float64), chosen)
        np.add.at(total, np.zeros(len(some), dtype=np.intp) if owner is None else owner[some], pairs)
    return total
