"""CodeRows: the sampled items of a collection, one byte for each score under each refitted direction."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError
from divscore.sketch.cells import tally

__all__ = ["CodeRows", "Rows", "distinct"]

Codes = NDArray[np.uint8]
Rows = tuple[Codes, Codes, NDArray[np.int64]]  # level (m,), codes (m, width) and number of copies (m,)

WAITING = 4_096  # rows that may wait to be joined to the rest
COPIES = 1_024  # a sample is smaller than this, so a larger one holds copies, which are brought together


class CodeRows:
    """A multiset of items, each known by its level and by the steps on which its scores fall.

    A commutative group as long as no level is given up: add, remove and merge are exact. An item has `scores`
    steps below `side` under each of `rows` directions; together they are its cell under that direction.
    """

    __slots__ = ("_fetch", "_held", "_waiting", "floor", "rows", "scores", "side")

    def __init__(self, rows: int, scores: int = 1, side: int = 256) -> None:
        self.rows = rows
        self.scores = scores
        self.side = side
        self.floor = 0
        self._held: Rows | None = nothing(rows * scores)
        self._fetch: Callable[[], Rows] | None = None
        self._waiting: list[Rows] = []

    @property
    def cells(self) -> int:
        """Cells of one direction."""
        return int(self.side**self.scores)

    @property
    def items(self) -> int:
        """Items in the sample, copies included."""
        return int(self.settled()[2].sum())

    @property
    def keys(self) -> NDArray[np.int64]:
        """Occupied cells ``(level · rows + row) · cells + cell``, in order."""
        return self._counted()[0]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Items at each occupied cell."""
        return self._counted()[1]

    def add(self, level: Codes, codes: Codes) -> None:
        """Count items in. They wait until they are many, or somebody looks."""
        self._wait((level, codes, np.ones(len(level), dtype=np.int64)))

    def remove(self, level: Codes, codes: Codes) -> None:
        """Take items out; each must have been counted in."""
        self._take((level, codes, np.ones(len(level), dtype=np.int64)))

    def merge(self, other: CodeRows, sign: int = 1) -> None:
        """Add (or take away) the items of another."""
        self.raise_floor(other.floor)
        if sign > 0:
            self._wait(other.settled())
        else:
            self._take(other.settled())

    def raise_floor(self, floor: int) -> None:
        """Give up every level below `floor`; levels once given up do not come back."""
        if floor > self.floor:
            self._waiting.insert(0, self._all_held())
            self._held = nothing(self.rows * self.scores)
            self.floor = floor

    def table(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Occupied cells and counts under one direction, over all levels."""
        _, codes, times = self.settled()
        return tally(self._cell(codes, row), times)

    def dense(self) -> NDArray[np.int64]:
        """Counts as a (rows, cells) array, over all levels; for small spaces."""
        _, codes, times = self.settled()
        flat = np.zeros(self.rows * self.cells, dtype=np.int64)
        offset = np.arange(self.rows) * self.cells
        for copies in np.unique(times):
            some = codes if len(times) == (times == copies).sum() else codes[times == copies]
            cells = (
                np.stack([self._cell(some, row) for row in range(self.rows)], axis=1)
                if self.scores > 1
                else some
            )
            flat += copies * np.bincount((cells + offset).ravel(), minlength=len(flat))
        return flat.reshape(self.rows, self.cells)

    def copy(self) -> CodeRows:
        """Return an independent copy."""
        clone = CodeRows(self.rows, self.scores, self.side)
        clone.restore(self.floor, self.settled())
        return clone

    def restore(self, floor: int, rows: Rows | Callable[[], Rows]) -> None:
        """Take over what a file or a table holds; a function is asked each time somebody looks, to save memory."""
        self.floor, self._waiting = floor, []
        self._held, self._fetch = (None, rows) if callable(rows) else (rows, None)

    def settled(self) -> Rows:
        """Levels, codes and numbers of copies of the items that are kept; not to be changed."""
        if self._waiting:
            parts = [_above(part, self.floor) for part in (self._all_held(), *self._waiting)]
            self._hold(_joined([part for part in parts if len(part[0])] or parts[:1]))
            self._waiting = []
        return self._all_held()

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.rows, self.scores, self.side, self.floor, self.settled())

    def _wait(self, rows: Rows) -> None:
        self._waiting.append(rows)
        if sum(len(each[0]) for each in self._waiting) > WAITING:
            self.settled()

    def _all_held(self) -> Rows:
        if self._held is not None:
            return self._held
        assert self._fetch is not None
        return self._fetch()

    def _hold(self, rows: Rows) -> None:
        self._held, self._fetch = distinct(rows) if len(rows[0]) > COPIES else rows, None

    def _take(self, gone: Rows) -> None:
        level, codes, times = _above(gone, self.floor)
        if not len(level):
            return
        rows = distinct(_joined([self.settled(), (level, codes, -times)]))
        if (rows[2] < 0).any():
            raise InputError("items to remove were never added to this sketch; nothing was removed")
        left = rows[2] > 0
        self._hold((rows[0][left], rows[1][left], rows[2][left]))

    def _cell(self, codes: Codes, row: int) -> NDArray[np.int64]:
        first = row * self.scores
        cell = codes[:, first].astype(np.int64)
        for at in range(first + 1, first + self.scores):
            cell = cell * self.side + codes[:, at]
        return cell

    def _counted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        level, codes, times = self.settled()
        of_level = level.astype(np.int64) * self.rows
        keys = [(of_level + row) * self.cells + self._cell(codes, row) for row in range(self.rows)]
        return tally(np.concatenate(keys), np.tile(times, self.rows))


@lru_cache
def nothing(width: int) -> Rows:
    """No rows, of the right shape."""
    return np.empty(0, np.uint8), np.empty((0, width), np.uint8), np.empty(0, np.int64)


def distinct(rows: Rows) -> Rows:
    """Bring copies together: every item once, in a fixed order, with the sum of its numbers."""
    level, codes, times = rows
    whole = np.concatenate([level[:, None], codes], axis=1)
    _, first, which = np.unique(
        whole.view(np.dtype((np.void, whole.shape[1]))).ravel(), return_index=True, return_inverse=True
    )
    summed = np.zeros(len(first), dtype=np.int64)
    np.add.at(summed, which, times)
    return level[first], codes[first], summed


def _above(rows: Rows, floor: int) -> Rows:
    kept = rows[0] >= floor
    return rows if kept.all() else (rows[0][kept], rows[1][kept], rows[2][kept])


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    level, codes, times = zip(*parts, strict=True)
    return np.concatenate(level), np.concatenate(codes), np.concatenate(times)


def _restored(rows: int, scores: int, side: int, floor: int, held: Rows) -> CodeRows:
    found = CodeRows(rows, scores, side)
    found.restore(floor, held)
    return found
