"""SketchTable: the numbers of thousands of sketches, side by side in a few large arrays.

An object of its own for each would cost more in bookkeeping than in counting.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.errors import InputError, MismatchError
from divscore.sketch.cells import CellCounts
from divscore.sketch.codes import COPIES, CodeRows, Rows, distinct
from divscore.sketch.codestore import CodeStore
from divscore.sketch.rowsums import Positions, add_rows, with_room
from divscore.sketch.state import JOINT_ITEMS, REPLICATE_ITEMS, SHARED_ITEMS, SKIPS, SketchState, floors

__all__ = ["Shape", "SketchTable"]

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
