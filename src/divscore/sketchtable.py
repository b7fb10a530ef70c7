"""SketchTable: the numbers of thousands of sketches, side by side in a few large arrays.

An object of its own for each would cost more in bookkeeping than in counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.cells import CellCounts
from divscore.codes import COPIES, CodeRows, Rows, distinct
from divscore.codestore import CodeStore
from divscore.errors import InputError, MismatchError
from divscore.similarity import FloatArray
from divscore.state import JOINT_ITEMS, REPLICATE_ITEMS, SKIPS, SketchState, floors

__all__ = ["Shape", "SketchTable"]

SHELF = (
    1_024  # collections whose cells are counted together: few enough that joining counts needs little memory
)
AT_ONCE = 4_096
ARRAYS = ("totals", "similarities", "levels", "skipped", "floors", "held")

Positions = NDArray[np.intp]


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


class SketchTable:
    """States of named collections, which grow together and can be sent home and joined.

    The same numbers as a SketchState for each would have. Memory: 3 to 4 KB a collection for 300 dimensions, and for
    the codes of its sampled items at most 512 × (groups − 1) × 201 bytes; what does not fit goes to a temporary file.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.names: dict[str, int] = {}
        self.totals: FloatArray = np.zeros((0, shape.dimension))
        self.similarities: FloatArray = np.zeros((0, shape.similarities))
        self.levels: NDArray[np.int64] = np.zeros((0, shape.levels), dtype=np.int64)
        self.skipped: NDArray[np.int64] = np.zeros((0, len(SKIPS)), dtype=np.int64)
        self.floors: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)  # of the cells and of the sample
        self.held: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # slots in the store
        self._shelves: list[CellCounts] = []
        self._store = CodeStore(shape.rows * (shape.groups - 1))
        self._handed_out = False

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all its numbers."""
        arrays = sum(getattr(self, name)[: len(self)].nbytes for name in ARRAYS)
        cells = sum(shelf.keys.nbytes + shelf.counts.nbytes for shelf in self._shelves)
        return int(arrays + cells + self._store.used * self._store.width)

    def positions(self, names: Sequence[str]) -> Positions:
        """Positions of different collections in the table; new ones get a place."""
        if self._handed_out:
            raise InputError("these sketches were handed out; add to them one by one, or make a new table")
        known = self.names
        found = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.intp)
        self._make_room()
        return found

    def add(self, at: Positions, totals: FloatArray, levels: NDArray[np.int64]) -> None:
        """Add sums and items by level, and give up the levels that would make a sample too large."""
        if len(at) and at[-1] - at[0] + 1 == len(at) and (at[1:] > at[:-1]).all():
            self.totals[at[0] : at[-1] + 1] += totals
        else:
            self.totals[at] += totals
        self.levels[at] += levels
        now = self.levels[at]
        sample = floors(now, REPLICATE_ITEMS)
        joint = floors(now, JOINT_ITEMS) if self.shape.groups > 2 else np.zeros_like(sample)
        self.floors[at] = np.maximum(self.floors[at], np.stack([joint, sample], axis=1))

    def count_cells(self, whose: Positions, within: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count cells ``level · cells + cell`` of collections; they wait, to be joined in large numbers."""
        shelf, local = np.divmod(whose, SHELF)
        keys = local * np.int64(self.shape.stride) + within
        order = np.argsort(shelf, kind="stable")
        edges = np.searchsorted(shelf[order], np.arange(len(self._shelves) + 1))
        for place in np.flatnonzero(edges[1:] > edges[:-1]):
            some = order[edges[place] : edges[place + 1]]
            self._shelves[place].add(keys[some], counts[some])

    def hold(self, whose: NDArray[Any], rows: Rows) -> None:
        """Hold the codes of sampled items of collections."""
        kept = rows[0] >= self.floors[whose, 1]
        if not kept.all():
            whose, rows = whose[kept], (rows[0][kept], rows[1][kept], rows[2][kept])
        self._store.put(whose, rows)
        self.held += np.bincount(whose, minlength=len(self.held))

    def tidy(self) -> None:
        """Free what is no longer needed, if it is much: finding it means to look at every slot."""
        if self._store.used > 1.25 * self._kept() + 16 * AT_ONCE or self.held.max(initial=0) > 4 * COPIES:
            self._sweep()

    def merge(self, other: SketchTable) -> None:
        """Count in everything that another table has seen; collections of the same name are joined."""
        if self.shape != other.shape:
            raise MismatchError(
                "the sketches were made with different control sets or seeds and cannot be merged"
            )
        at = self.positions(list(other.names))
        n = len(at)
        self.similarities[at] += other.similarities[:n]
        self.skipped[at] += other.skipped[:n]
        self.floors[at] = np.maximum(self.floors[at], other.floors[:n])
        self.add(at, other.totals[:n], other.levels[:n])
        for first, shelf in enumerate(other._shelves):
            whose, within = np.divmod(shelf.keys, self.shape.stride)
            self.count_cells(at[first * SHELF + whose], within, shelf.counts)
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
        for name, at in self.names.items():
            yield name, self._state(at, int(edges[at]), int(edges[at + 1]))

    def __getstate__(self) -> dict[str, Any]:
        self._sweep()
        slots, _ = self._store.by_owner(len(self))
        return {
            "shape": self.shape,
            "names": list(self.names),
            "arrays": {name: getattr(self, name)[: len(self)] for name in ARRAYS},
            "shelves": [(shelf.keys, shelf.counts) for shelf in self._shelves],
            "codes": (self._store.owner[slots], self._store.take(slots)),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        SketchTable.__init__(self, state["shape"])
        self.names = {name: at for at, name in enumerate(state["names"])}
        self.__dict__.update(state["arrays"])
        self._make_room()
        for shelf, (keys, counts) in zip(self._shelves, state["shelves"], strict=True):
            shelf.restore(0, keys, counts)
        self._store.put(*state["codes"])

    def _make_room(self) -> None:
        missing = len(self) - len(self.totals)
        if missing > 0:
            more = max(missing, min(len(self.totals), 4 * SHELF))
            for name in ARRAYS:
                held = getattr(self, name)
                room = np.zeros((more, *held.shape[1:]), dtype=held.dtype)
                setattr(self, name, np.concatenate([held, room]))
        while len(self._shelves) * SHELF < len(self):
            self._shelves.append(CellCounts(self.shape.stride * SHELF))

    def _kept(self) -> int:
        """Items that the samples hold together, copies included."""
        return int(self.levels[self.floors[:, 1, None] <= np.arange(self.shape.levels)].sum())

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
        state.count, state.groups = int(self.levels[at].sum()), shape.groups
        state.total, state.similarity_total = self.totals[at], self.similarities[at]
        state.levels = self.levels[at]
        state.skipped = dict(zip(SKIPS, self.skipped[at].tolist(), strict=True))
        state.cells = self._cells(at)
        state.replicate_cells = CodeRows(shape.rows, shape.groups - 1, shape.side)
        state.replicate_cells.restore(int(self.floors[at, 1]), lambda: store.take(np.arange(start, stop)))
        return state

    def _cells(self, at: int) -> CellCounts:
        place, local = divmod(at, SHELF)
        keys, counts = self._shelves[place].keys, self._shelves[place].counts
        first = local * self.shape.stride
        low, high = np.searchsorted(keys, [first, first + self.shape.stride])
        cells = CellCounts(self.shape.cells)
        cells.restore(0, keys[low:high] - first, counts[low:high])
        cells.raise_floor(int(self.floors[at, 0]))
        return cells
