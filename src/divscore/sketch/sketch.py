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

from divscore.control.controlset import ControlSet, checked_vectors
from divscore.control.similarity import FloatArray, dense_blocks
from divscore.errors import InputError, MismatchError
from divscore.sketch.sample import LEAST_ITEMS, NEVER_ADDED, TOP, Owners, Sample, Sampled
from divscore.sketch.scan import Limits, Scan, ScannedChunk, scan_blocks
from divscore.sketch.scorer import FINE, Scorer, scorer_for

# Zero and nonfinite vectors, in the order of `Scan.tally`; items that could not be read; items with nothing to encode
# (no face, no known word).
SKIPS = ("zero", "nonfinite", "unreadable", "empty")
SIDE = 2 * FINE + 1
SMALLEST_SET = 5
EVEN = 32  # items that must carry the weight of a sample
SMALL_SAMPLE = 128  # sampled items below which an interval is noticeably wider
JOINT_ITEMS, LEAST_JOINT_ITEMS = 65_536, 4_096  # score tuples of a collection, with three groups or more
BUDGET = 200 << 20  # bytes of sampled vectors of all collections of a table
JOINT_BUDGET = 100 << 20
WAITING = 1 << 20  # keys
DENSE = 1 << 17  # cells up to which a full table is counted: it stays in the cache
SOME = 128  # sums that are added at a time
REFUSED = "more items to remove than were added to this sketch; nothing was removed"

Counts = NDArray[np.int64]
NO_COUNTS: Counts = np.empty(0, dtype=np.int64)


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
        groups = max(2, len(control.fitted))
        return cls(control.digest, control.attribute, seed, groups, control.dimension, general)


class Cells:
    """Counts of score cells of one or many collections: sorted keys ``owner · SIDE + cell``, sparse."""

    def __init__(self) -> None:
        self._keys: Counts = np.empty(0, dtype=np.int64)
        self._counts: Counts = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Counts, Counts | None]] = []

    def add(self, keys: Counts, counts: Counts | None = None, sign: int = 1) -> None:
        """Count (or take away) keys, in any order. They wait until they are many, or until the counts are read.

        After an error the counts must not be used any more.
        """
        if sign < 0:
            counts = -(np.ones_like(keys) if counts is None else counts)
        self._waiting.append((keys, counts))
        if sum(len(keys) for keys, _ in self._waiting) > WAITING:
            self.table()
        if sign < 0 and self.table()[1].min(initial=0) < 0:
            raise InputError(NEVER_ADDED)

    def table(self) -> tuple[Counts, Counts]:
        """Return occupied keys in order, and their counts. Do not change them."""
        if self._waiting:
            pairs = [(keys, counts) for keys, counts in self._waiting if counts is not None]
            # Numbers alone sort several times as fast as pairs, and nine in ten of a large collection's are copies.
            single = np.sort(
                np.concatenate([NO_COUNTS, *(k for k, counts in self._waiting if counts is None)])
            )
            starts = np.flatnonzero(np.diff(single, prepend=-1))
            pairs.append((single[starts], np.diff(starts, append=len(single))))
            self._waiting = []
            keys, counts = (
                np.concatenate(each) for each in zip((self._keys, self._counts), *pairs, strict=True)
            )
            order = np.argsort(keys, kind="stable")  # merges sorted parts in linear time
            keys, counts = keys[order], counts[order]
            starts = np.flatnonzero(np.diff(keys, prepend=-1))
            keys, counts = keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts
            self._keys, self._counts = (
                (keys, counts) if counts.all() else (keys[counts != 0], counts[counts != 0])
            )
        return self._keys, self._counts

    def of(self, owner: int) -> tuple[Counts, Counts]:
        """Return the occupied cells of a collection, and their counts."""
        keys, counts = self.table()
        first, last = np.searchsorted(keys, [owner * SIDE, (owner + 1) * SIDE])
        return keys[first:last] - owner * SIDE, counts[first:last]

    def take(self, at: Owners) -> Cells:
        """Return the cells of some owners, in this order."""
        taken = Cells()
        parts = [self.of(owner) for owner in at.tolist()]
        taken._keys = np.concatenate(
            [NO_COUNTS, *(cells + SIDE * new for new, (cells, _) in enumerate(parts))]
        )
        taken._counts = np.concatenate([NO_COUNTS, *(counts for _, counts in parts)])
        return taken


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

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        arrays = self.total.nbytes + self.similarity.nbytes + self.skipped.nbytes + self.count.nbytes
        joint = 0 if self.joint is None else self.joint.nbytes
        return int(arrays + 16 * len(self.cells.table()[0]) + self.sample.nbytes + joint)

    def grow(self, owners: int) -> None:
        """Make room for more collections."""
        for name in ("count", "total", "similarity", "skipped"):
            array = getattr(self, name)
            grown = np.zeros((owners, *array.shape[1:]), dtype=np.float64 if name == "total" else array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)
        self.sample.grow(owners)
        if self.joint is not None:
            self.joint.grow(owners)

    def limits(self, at: Owners) -> Limits:
        """Return what a scan for the collections `at` must know; those that are not in this table have no limit yet.

        An older limit is higher, so a thread that reads it a moment too early does no harm.
        """
        # The last limit is that of collections without a place: at −1, or not in the table yet.
        sample, joint = np.append(self.sample.limit, TOP), None
        if self.joint is not None:
            joint = np.append(self.joint.limit, TOP)
            joint = joint[np.minimum(at, len(joint) - 1)]
        return Limits(sample[np.minimum(at, len(sample) - 1)], joint)

    def add_counts(self, chunk: ScannedChunk, sign: int = 1) -> None:
        """Add (or take away) the counts and sums of a scanned chunk."""
        at, part = chunk.at, chunk.scan
        if sign > 0 and not self.count.any() and np.array_equal(at, np.arange(len(self.count))):
            self.total = part.totals  # taken over, perhaps in single precision: it may be large
        else:
            self._add_totals(at, part.totals, sign)
        self.count[at] += sign * part.tally[:, 0]
        self.skipped[at, :2] += sign * part.tally[:, 1:]
        self.similarity[at] += sign * chunk.similarity
        if sign < 0:
            self._check_removed(at)

    def add_items(self, at: Owners, part: Scan, sign: int = 1) -> None:
        """Add (or take away) the scores and sampled items of a scanned chunk."""
        if part.cells is not None:
            owner, cells, counts = part.owner, part.cells, None
            if len(at) * SIDE <= DENSE:
                # A few collections have many rows in a cell: counted here, they take no memory while they wait.
                dense = np.bincount(cells if len(at) == 1 else owner * SIDE + cells)
                keys = np.flatnonzero(dense)
                owner, cells = np.divmod(keys, SIDE)
                counts = dense[keys]
            self.cells.add(at[owner] * SIDE + cells, counts, sign)
        for sample, new in ((self.sample, part.sample), (self.joint, part.joint)):
            if sample is not None and new is not None and len(new.hash):
                sample.add(at[new.owner], new.hash, new.rows, new.step, sign=sign)

    def merge(self, other: SketchTable, at: Owners, sign: int = 1) -> None:
        """Count (or take away) everything in another table; its collections are those `at` of this one."""
        self.count[at] += sign * other.count
        self._add_totals(at, other.total, sign)
        self.similarity[at] += sign * other.similarity
        self.skipped[at] += sign * other.skipped
        keys, counts = other.cells.table()
        owner, cell = np.divmod(keys, SIDE)
        self.cells.add(at[owner] * SIDE + cell, counts, sign)
        self.sample.merge(other.sample, at, sign)
        if self.joint is not None and other.joint is not None:
            self.joint.merge(other.joint, at, sign)
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
        # Some at a time, which stay in the cache: copies of all of them may be large.
        for start in range(0, len(at), SOME):
            some = slice(start, start + SOME)
            self.total[at[some]] += sign * totals[some]

    def _check_removed(self, at: Owners) -> None:
        if self.count[at].min(initial=0) < 0 or self.skipped[at].min(initial=0) < 0:
            raise InputError(REFUSED)
        # Without any item the sums are zero, not what rounding left of them.
        empty = at[self.count[at] == 0]
        self.total[empty], self.similarity[empty] = 0.0, 0.0


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
        return np.asarray(self.table.total[self.at], dtype=np.float64) / self.count

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
        self._change(batch, workers, 1)

    def remove(self, batch: Any, *, workers: int = 1) -> None:
        """Take a batch out again; it must have been added before."""
        self._change(batch, workers, -1)

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
        self._own()  # other sketches must not see the change
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
        return checked_vectors(batch, self.control)

    def _own(self) -> None:
        """Leave a table that other sketches use."""
        if len(self.table.count) > 1:
            self.table, self.at = self.table.take(np.array([self.at])), 0

    def _change(self, batch: Any, workers: int, sign: int) -> None:
        self._own()
        # A removal, or a similarity, may be refused in the middle: change a copy then.
        safe = sign > 0 and self.control.similarity.collapses
        table, only = self.table if safe else self.table.take(np.array([0])), np.zeros(1, dtype=np.intp)

        def on_threads(task: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterator[Any]:
            from divscore.jobs.engine import Engine

            with Engine(workers) as threads:
                yield from (result for _, result in threads.map(task, chunks))

        for chunk in scan_blocks(
            ((self.checked(rows), None, [""]) for rows in dense_blocks(batch)),
            self.control,
            self.scorer,
            lambda _: only,
            table.limits,
            seen=self.count,
            mapper=on_threads if workers > 1 else map,
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
