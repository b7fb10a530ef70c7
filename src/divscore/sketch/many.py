"""Sketches: thousands of collections in one pass."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.errors import InputError, MismatchError
from divscore.sketch.codes import (
    COPIES,
    CellCounts,
    CodeRows,
    CodeStore,
    Positions,
    Rows,
    add_rows,
    distinct,
    with_room,
)
from divscore.sketch.scan import ZERO, Owners, Scan
from divscore.sketch.scorer import LEVELS, Scorer
from divscore.sketch.sketch import (
    JOINT_ITEMS,
    REPLICATE_ITEMS,
    SHARED_ITEMS,
    SKIPS,
    Sketch,
    SketchState,
    floors,
    similarity_sum,
)

__all__ = ["Shape", "SharedSample", "SketchTable", "Sketches"]


# SketchTable: the numbers of thousands of sketches, side by side in a few large arrays.
#
# An object of its own for each would cost more in bookkeeping than in counting.

SHELF = (
    1_024  # collections whose cells are counted together: few enough that joining counts needs little memory
)
AT_ONCE = 4_096
TAKEN_OVER = ("totals", "levels")  # from the first block: they are large
ARRAYS = ("totals", "similarities", "levels", "skipped", "floors", "held")


@dataclass(frozen=True)
class Shape:
    """What tables of sketches must have in common to be joined."""

    control: str  # digest of the control set
    seed: int
    dimension: int
    similarities: int
    groups: int
    levels: int
    cells: int
    stride: int  # keys a collection
    rows: int  # directions
    side: int
    shared: bool = False  # one sample for all collections, in place of one each


class SketchTable:
    """States of named collections, which grow together and can be sent home and joined.

    The same numbers as a SketchState for each would have. Memory: 3 to 4 KB a collection for 300 dimensions, and for
    the codes of its sampled items at most 512 × (groups − 1) × 201 bytes; what does not fit goes to a temporary file.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.names: dict[str, int] = {}
        self.totals: NDArray[np.floating] = np.zeros((0, shape.dimension))
        self.similarities: FloatArray = np.zeros((0, shape.similarities))
        self.levels: NDArray[np.int64] = np.zeros((0, shape.levels), dtype=np.int64)
        self.skipped: NDArray[np.int64] = np.zeros((0, len(SKIPS)), dtype=np.int64)
        self.floors: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)  # of the cells and of the sample
        self.held: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # slots in the store
        self._shelves: list[CellCounts] = []
        self._store = CodeStore(shape.rows * (shape.groups - 1))
        self.sample = CodeRows(shape.rows, shape.groups - 1, shape.side) if shape.shared else None
        self._handed_out = False

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all its numbers."""
        arrays = sum(getattr(self, name)[: len(self)].nbytes for name in ARRAYS)
        cells = sum(shelf.keys.nbytes + shelf.counts.nbytes for shelf in self._shelves)
        sampled = 0 if self.sample is None else self.sample.settled()[1].nbytes
        return int(arrays + cells + sampled + self._store.used * self._store.width)

    def positions(self, names: Sequence[str]) -> Positions:
        """Positions of different collections in the table; new ones get a place."""
        if self._handed_out:
            raise InputError("these sketches were handed out; add to them one by one, or make a new table")
        known = self.names
        if not known:
            self.names = dict(zip(names, itertools.count()))
            self._make_room()
        elif len(names) != len(known) or any(map(ne, names, known)):  # mostly all of them, in the same order
            found: list[Any] = list(map(known.get, names))
            if None in found:
                found = [known.setdefault(name, len(known)) for name in names]
                self._make_room()
            return np.array(found, dtype=np.intp)
        return np.arange(len(names))

    def add(self, at: Positions, totals: NDArray[np.floating], levels: NDArray[np.int64]) -> None:
        """Add sums and items by level, and give up the levels that would make a sample too large."""
        if len(self.totals):
            self.totals = with_room(self.totals, len(self), np.float64)
            self.levels = with_room(self.levels, len(self))
            add_rows(self.totals, at, totals)
            add_rows(self.levels, at, levels)
        else:
            # The first block's, whose collections are the table's first; sums perhaps in single precision.
            self.totals, self.levels = totals, levels
        if self.sample is not None:
            self.sample.raise_floor(int(floors(self.levels.sum(axis=0), SHARED_ITEMS)))
            return
        now = self.levels[at]
        sample = floors(now, REPLICATE_ITEMS)
        joint = floors(now, JOINT_ITEMS) if self.shape.groups > 2 else np.zeros_like(sample)
        self.floors[at] = np.maximum(self.floors[at], np.stack([joint, sample], axis=1))

    def count_cells(self, at: Positions, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count cells ``(collection · levels + level) · cells + cell`` of the collections at `at`, in their order.

        They wait, to be joined in large numbers.
        """
        stride = np.int64(self.shape.stride)
        if not (at == np.arange(len(at))).all():
            whose, within = np.divmod(keys, stride)
            keys = at[whose] * stride + within
            if (at[1:] < at[:-1]).any():
                order = np.argsort(keys, kind="stable")
                keys, counts = keys[order], counts[order]
        firsts = np.arange(len(self._shelves) + 1) * (stride * SHELF)
        edges = np.searchsorted(keys, firsts)
        for place in np.flatnonzero(edges[1:] > edges[:-1]):
            some = slice(edges[place], edges[place + 1])
            self._shelves[place].add(keys[some] - firsts[place], counts[some])

    def hold(self, whose: NDArray[Any], rows: Rows) -> None:
        """Hold the codes of sampled items of collections."""
        kept = rows[0] >= self.floors[whose, 1]
        if not kept.all():
            whose, rows = whose[kept], (rows[0][kept], rows[1][kept], rows[2][kept])
        self._store.put(whose, rows)
        self.held += np.bincount(whose, minlength=len(self.held))

    def tidy(self) -> None:
        """Free what is no longer needed, if it is much: finding it means to look at every slot."""
        if self.sample is not None:
            return
        if self._store.used > 1.25 * self._kept() + 16 * AT_ONCE or self.held.max(initial=0) > 4 * COPIES:
            self._sweep()

    def merge(self, other: SketchTable) -> None:
        """Count in everything that another table has seen; collections of the same name are joined."""
        if self.shape != other.shape:
            raise MismatchError(
                "the sketches were made with different control sets or seeds, or one of them with a shared sample, and "
                "cannot be merged"
            )
        at = self.positions(list(other.names))
        n = len(at)
        self.similarities[at] += other.similarities[:n]
        self.skipped[at] += other.skipped[:n]
        self.floors[at] = np.maximum(self.floors[at], other.floors[:n])
        taken = (other.totals[:n], other.levels[:n])
        self.add(at, *(taken if len(self.totals) else (each.copy() for each in taken)))
        for place, shelf in enumerate(other._shelves):
            self.count_cells(at, shelf.keys + place * SHELF * self.shape.stride, shelf.counts)
        if self.sample is not None and other.sample is not None:
            self.sample.merge(other.sample)
        slots, _ = other._store.by_owner(n)
        for start in range(0, len(slots), AT_ONCE):
            some = slots[start : start + AT_ONCE]
            self.hold(at[other._store.owner[some]], other._store.take(some))
        self.tidy()

    def states(self) -> Iterator[tuple[str, SketchState]]:
        """Every collection by name. They share memory with the table, which takes no more items afterwards."""
        self._handed_out = True
        self._sweep()
        self._store = self._store.in_order()
        _, edges = self._store.by_owner(len(self))
        slots, self.totals = edges.tolist(), self.totals.astype(np.float64, copy=False)
        counts, skipped = self.levels.sum(axis=1).tolist(), self.skipped.tolist()
        cells = itertools.chain.from_iterable(map(self._cells, range(len(self._shelves))))
        for (name, at), found in zip(self.names.items(), cells, strict=False):
            state = self._state(at, slots[at], slots[at + 1])
            state.count, state.cells = counts[at], found
            state.skipped = dict(zip(SKIPS, skipped[at], strict=True))
            yield name, state

    def __getstate__(self) -> dict[str, Any]:
        self._sweep()
        slots, _ = self._store.by_owner(len(self))
        return {
            "shape": self.shape,
            "names": list(self.names),
            "arrays": {name: getattr(self, name)[: len(self)] for name in ARRAYS},
            "shelves": [(shelf.keys, shelf.counts) for shelf in self._shelves],
            "codes": (self._store.owner[slots], self._store.take(slots)),
            "sample": self.sample,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        SketchTable.__init__(self, state["shape"])
        self.names = {name: at for at, name in enumerate(state["names"])}
        self.__dict__.update(state["arrays"])
        self._make_room()
        for shelf, (keys, counts) in zip(self._shelves, state["shelves"], strict=True):
            shelf.restore(0, keys, counts)
        self._store.put(*state["codes"])
        self.sample = state["sample"]

    def _make_room(self) -> None:
        for name in ARRAYS:
            if name not in TAKEN_OVER:
                setattr(self, name, with_room(getattr(self, name), len(self)))
        while len(self._shelves) * SHELF < len(self):
            self._shelves.append(CellCounts(self.shape.stride * SHELF))

    def _kept(self) -> int:
        """Items that the samples hold together, copies included."""
        n = min(len(self.levels), len(self.floors))  # each may have room that the other has not
        return int(self.levels[:n][self.floors[:n, 1, None] <= np.arange(self.shape.levels)].sum())

    def _sweep(self) -> None:
        """Free the slots of levels that were given up, and bring copies together."""
        gone = self._store.below(self.floors[:, 1])
        self.held -= np.bincount(self._store.owner[gone], minlength=len(self.held))
        self._store.release(gone)
        if (self.held > COPIES).any():
            slots, edges = self._store.by_owner(len(self))
            for at in np.flatnonzero(self.held > COPIES):
                mine = slots[edges[at] : edges[at + 1]]
                rows = distinct(self._store.take(mine))
                self._store.release(mine)
                self._store.put(np.full(len(rows[0]), at), rows)
                self.held[at] = len(rows[0])

    def _state(self, at: int, start: int, stop: int) -> SketchState:
        state, shape, store = SketchState(), self.shape, self._store
        state.groups = shape.groups
        state.total, state.similarity_total = self.totals[at], self.similarities[at]
        state.levels = self.levels[at]
        if self.sample is None:  # or else it is lent
            state.replicate_cells = CodeRows(shape.rows, shape.groups - 1, shape.side)
            state.replicate_cells.restore(int(self.floors[at, 1]), lambda: store.take(np.arange(start, stop)))
        return state

    def _cells(self, place: int) -> Iterator[CellCounts]:
        """Cells of all collections of a shelf, in their order."""
        keys, counts = self._shelves[place].keys, self._shelves[place].counts
        firsts = np.arange(SHELF + 1) * self.shape.stride
        edges = np.searchsorted(keys, firsts).tolist()
        within = keys - np.repeat(firsts[:-1], np.diff(edges))
        floors = self.floors[place * SHELF :, 0].tolist()
        for low, high, floor in zip(edges[:-1], edges[1:], floors, strict=False):
            cells = CellCounts(self.shape.cells)
            cells.restore(0, within[low:high], counts[low:high])
            cells.raise_floor(floor)
            yield cells


# SharedSample: one sample of items for the intervals of thousands of collections.
#
# An interval needs the scores of a collection's items under every refitted direction. A collection of its own scores
# some hundreds of its items so; ten thousand collections would score every row of the source two hundred times. Most of
# it is already known: the scores of all items under the fitted direction are counted; the mean score under any other
# direction follows from the mean vector. Only how scores scatter about their mean is not, and
# that hardly depends on the collection: it is taken from a sample of all items together.

NEIGHBOURS = 9  # items of the sample with about the same score, which take turns


class SharedSample:
    """Items of all collections with their scores under every direction; two groups only."""

    def __init__(self, scorer: Scorer, sampled: CodeRows) -> None:
        self.sampled = sampled
        self.replicates = scorer.replicates
        self.grid = scorer.grid
        half = self.replicates.grid.half
        steps = distinct(sampled.settled())[1].astype(np.float32) - np.float32(half)
        steps = steps[np.argsort(steps[:, 0], kind="stable")]
        self.base = steps[:, 0]
        # Sums and dot products rather than matrix products, whose last bits depend on the threads of the BLAS.
        square = float(np.vecdot(self.base, self.base))
        self.slope = (self.base[:, None] * steps).sum(axis=0) / np.float32(square or 1.0)
        self.scatter = steps - self.base[:, None] * self.slope

    def lend(self, sketch: Sketch) -> None:
        """Let a collection's interval rest on this sample."""
        coarse = self.replicates
        sketch.shared = self
        sketch.replicate_cells = CodeRows(coarse.count, 1, coarse.grid.side)
        if sketch.count:
            sketch.replicate_cells.restore(0, partial(self.codes, sketch))

    def codes(self, sketch: Sketch) -> Rows:
        """Stand-ins for the codes of at most `REPLICATE_ITEMS` items of a collection.

        Each has the score of one of its items under the fitted direction. Under another it has that score times the
        slope of the sample, the scatter of an item of the sample that scores about the same, and what it takes to give
        all together the mean that the collection has.
        """
        base = self._base(sketch)
        turn = np.arange(len(base)) % NEIGHBOURS - NEIGHBOURS // 2
        near = np.clip(np.searchsorted(self.base, base) + turn, 0, len(self.base) - 1)
        steps = base[:, None] * self.slope + self.scatter[near]
        steps += (self._mean(sketch, base) - steps.mean(axis=0, dtype=np.float64)).astype(np.float32)
        half = self.replicates.grid.half
        codes = (np.clip(np.rint(steps), -half, half) + half).astype(np.uint8)
        return np.zeros(len(codes), np.uint8), codes, np.ones(len(codes), np.int64)

    def _base(self, sketch: Sketch) -> NDArray[np.float32]:
        """Scores of the collection's items, or of evenly chosen ones, in the coarse steps of the fitted direction."""
        cells, counts = sketch.cells.table()
        upto = np.cumsum(counts)
        size = min(int(upto[-1]), REPLICATE_ITEMS)
        chosen = np.searchsorted(upto, (np.arange(size) + 0.5) * upto[-1] / size)
        coarse = self.replicates.grid
        scores = self.grid.decode(cells[chosen])[:, 0] * (coarse.half / coarse.reach[0, 0])
        return np.asarray(scores, dtype=np.float32)

    def _mean(self, sketch: Sketch, base: NDArray[np.float32]) -> FloatArray:
        """Mean score under every direction, less what scores beyond the grid and the choice of items take from it."""
        steps = self.replicates.steps
        mean = np.vecdot(steps[:, :-1], sketch.mean) + steps[:, -1]
        return np.asarray(mean - self.slope * (mean[0] - base.mean(dtype=np.float64)))


ZERO_AT, NONFINITE_AT = SKIPS.index("zero"), SKIPS.index("nonfinite")


class Sketches:
    """The sketches of named collections while they are being made; `sketches()` hands them out at the end.

    What is counted is held in `table`, which knows nothing of the control set, can be sent home and merged there.
    With `shared`, all collections together have one sample of items for their intervals, in place of one each.
    """

    def __init__(self, control: ControlSet, *, seed: int = 0, shared: bool = False) -> None:
        self._blank = Sketch(control, seed=seed)
        self.shared = shared
        self.control, self.scorer = control, self._blank.scorer
        replicates = self.scorer.replicates
        self.table = SketchTable(
            Shape(
                control=control.digest,
                seed=seed,
                dimension=control.dimension,
                similarities=len(self._blank.similarity_total),
                groups=self.scorer.groups,
                levels=LEVELS,
                cells=self.scorer.grid.cells,
                stride=self.scorer.stride,
                rows=replicates.count,
                side=replicates.grid.side,
                shared=shared,
            )
        )

    def __len__(self) -> int:
        return len(self.table)

    def checked(self, batch: Any) -> NDArray[Any]:
        """Return a batch as an array of the right dimension, or say what is wrong with it."""
        return self._blank.checked(batch)

    def positions(self, names: Sequence[str]) -> Positions:
        """Positions of different collections in the table; new ones get a place."""
        return self.table.positions(names)

    def fold(self, at: Positions, rows: NDArray[Any], owner: Owners | None, found: Scan) -> None:
        """Count in the result of a scan of `rows` that was made for the collections at `at`."""
        table = self.table
        if not self.control.similarity.collapses:
            # First, because a similarity may refuse, and nothing must be half counted then.
            everyone = _by_owner(np.flatnonzero(found.level < ZERO), owner, len(at))
            table.similarities[at] += [similarity_sum(self.control, rows, members) for members in everyone]
        table.skipped[at, ZERO_AT] += found.zero
        table.skipped[at, NONFINITE_AT] += found.nonfinite
        table.add(at, found.totals, found.levels)
        table.count_cells(at, found.keys, found.counts)
        self._count_sampled(at, rows, owner, found.level)

    def merge(self, other: SketchTable) -> None:
        """Count in everything that another table has seen; collections of the same name are joined."""
        if len(self) or self.table.shape != other.shape:
            self.table.merge(other)
        else:
            self.table = other  # the first of many, or the only one: taken over as it is

    def sketches(self) -> dict[str, Sketch]:
        """All of them, by name. No more items can be added to the table afterwards."""
        sample = None if self.table.sample is None else SharedSample(self.scorer, self.table.sample)
        with _without_collections():
            found = {name: self._blank.holding(state) for name, state in self.table.states()}
            if sample is not None:
                for sketch in found.values():
                    sample.lend(sketch)
        return found

    def _count_sampled(
        self, at: Positions, rows: NDArray[Any], owner: Owners | None, level: NDArray[np.uint8]
    ) -> None:
        """Find the sampled items' codes under every refitted direction."""
        if self.table.sample is not None:
            self._share_sampled(self.table.sample, rows, level)
            return
        floor = self.table.floors[at, 1]
        sampled = np.flatnonzero((level >= floor.min()) & (level < ZERO))
        if owner is not None:
            sampled = sampled[level[sampled] >= floor[owner[sampled]]]
        for start in range(0, len(sampled), AT_ONCE):
            some = sampled[start : start + AT_ONCE]
            codes = self.scorer.replicates.codes(rows[some])
            whose = np.full(len(some), at[0]) if owner is None else at[owner[some]]
            self.table.hold(whose, (level[some], codes, np.ones(len(some), dtype=np.int64)))
        self.table.tidy()

    def _share_sampled(self, sample: CodeRows, rows: NDArray[Any], level: NDArray[np.uint8]) -> None:
        sampled = np.flatnonzero((level >= sample.floor) & (level < ZERO))
        for start in range(0, len(sampled), AT_ONCE):
            some = sampled[start : start + AT_ONCE]
            sample.add(level[some], self.scorer.replicates.codes(rows[some]))


@contextmanager
def _without_collections() -> Iterator[None]:
    """A hundred thousand objects that all stay would be looked through for garbage a dozen times."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _by_owner(members: NDArray[np.intp], owner: Owners | None, owners: int) -> list[NDArray[np.intp]]:
    """Row numbers, split by the collection that they belong to."""
    if owner is None:
        return [members]
    order = members[np.argsort(owner[members], kind="stable")]
    return np.split(order, np.searchsorted(owner[order], np.arange(1, owners)))
