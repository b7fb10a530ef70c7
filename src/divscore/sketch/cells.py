"""CellCounts: how many items fell into each cell; the only memory of scores that exists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError

__all__ = ["CellCounts", "tally"]

DENSE = 1 << 22
DENSE_SPACE = 1 << 17
WAITING = 1 << 17
FEW_COPIES = 4  # items a key, up to which each of them is sorted
NONE = np.empty(0, dtype=np.int64)


class CellCounts:
    """Counts over a large space of cells, kept sparsely, in levels of which the lowest may be given up.

    A commutative group as long as no level is given up: add, remove and merge are exact.
    """

    __slots__ = ("_counts", "_keys", "_wait", "_waiting", "cells", "floor")

    def __init__(self, cells: int) -> None:
        self.cells = cells  # of a level
        self.floor = 0
        self._keys: NDArray[np.int64] = NONE
        self._counts: NDArray[np.int64] = NONE
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._wait = 0

    @property
    def keys(self) -> NDArray[np.int64]:
        """Occupied keys, in order."""
        return self._settled()[0]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Items at each occupied key."""
        return self._settled()[1]

    def update(self, keys: NDArray[np.int64], counts: NDArray[np.int64], sign: int = 1) -> None:
        """Count distinct, ordered keys ``level · cells + cell``; sign −1 takes them away."""
        start = int(np.searchsorted(keys, self.floor * self.cells))
        self._combine(keys[start:], sign * counts[start:])

    def add(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count keys in any order. They wait until they are many, or somebody looks."""
        self._waiting.append((keys, counts))
        self._wait += len(keys)
        if self._wait > max(len(self._keys), WAITING):
            self._settled()

    def merge(self, other: CellCounts, sign: int = 1) -> None:
        """Add (or take away) the counts of another."""
        self.raise_floor(other.floor)
        self.update(other.keys, other.counts, sign)

    def raise_floor(self, floor: int) -> None:
        """Give up every level below `floor`; levels once given up do not come back."""
        if floor <= self.floor:
            return
        self.floor = floor
        start = int(np.searchsorted(self._keys, floor * self.cells))
        self._keys, self._counts = self._keys[start:], self._counts[start:]

    def table(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Occupied cells and counts, over all levels."""
        return tally(self.keys % self.cells, self.counts)

    def copy(self) -> CellCounts:
        """Return an independent copy."""
        clone = CellCounts(self.cells)
        clone.floor = self.floor
        clone._keys, clone._counts = self._settled()
        return clone

    def restore(self, floor: int, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Take over what a file holds."""
        self.floor, self._keys, self._counts = floor, keys, counts
        self._waiting, self._wait = [], 0

    def _settled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._waiting:
            (keys, counts), self._waiting, self._wait = zip(*self._waiting, strict=True), [], 0
            self.update(*tally(np.concatenate(keys), np.concatenate(counts)))
        return self._keys, self._counts

    def _combine(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        held, numbers = self._settled()
        keys, counts = tally(np.concatenate([held, keys]), np.concatenate([numbers, counts]))
        if counts.size and counts.min() < 0:
            raise InputError("items to remove were never added to this sketch; nothing was removed")
        self._keys, self._counts = keys[counts > 0], counts[counts > 0]


def tally(
    keys: NDArray[np.int64], counts: NDArray[np.int64] | None = None, space: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys in order, with their summed counts; `space` says that keys lie below it."""
    if not len(keys):
        return keys, NONE
    if counts is None and space is not None and space <= DENSE_SPACE:
        flat = np.bincount(keys, minlength=space)
        found = np.flatnonzero(flat)
        return found, flat[found].astype(np.int64)
    if (keys[1:] > keys[:-1]).all():
        return keys, np.ones(len(keys), dtype=np.int64) if counts is None else counts
    low = int(keys.min())
    width = int(keys.max()) - low + 1
    if width <= min(DENSE, 2 * len(keys)):
        flat = np.zeros(width, dtype=np.int64)
        if counts is None:
            flat += np.bincount(keys - low, minlength=width)
        else:
            np.add.at(flat, keys - low, counts)
        found = np.flatnonzero(flat)
        return found + low, flat[found]
    if counts is None or (counts.min() > 0 and counts.sum() <= FEW_COPIES * len(keys)):
        # Numbers alone are sorted several times as fast as what belongs to them.
        ordered = np.sort(keys if counts is None else np.repeat(keys, counts))
        starts = _starts(ordered)
        return ordered[starts], np.diff(starts, append=len(ordered))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = _starts(ordered)
    return ordered[starts], np.add.reduceat(counts[order], starts)


def _starts(ordered: NDArray[np.int64]) -> NDArray[np.intp]:
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
