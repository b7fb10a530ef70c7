"""CodeRows: the sampled items of a collection, one byte for each score under each refitted direction."""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError, InputError

__all__ = [
    "CellCounts",
    "CodeRows",
    "CodeStore",
    "Positions",
    "Rows",
    "add_rows",
    "distinct",
    "tally",
    "with_room",
]


# CellCounts: how many items fell into each cell; the only memory of scores that exists.

DENSE = 1 << 22
DENSE_SPACE = 1 << 17
WAITING_CELLS = 1 << 17
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
        if self._wait > max(len(self._keys), WAITING_CELLS):
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


# Tables of numbers that grow by rows, and are added to row by row.

MOST_SPARE = 4_096  # rows
PIECE = 256  # rows that stay in the cache
FEWEST_IN_A_ROW = 16  # rows for which a call of their own is worth while

Positions = NDArray[np.intp]


def with_room(held: NDArray[Any], rows: int, kind: Any = None) -> NDArray[Any]:
    """As many rows at least, the new ones zero; some more than needed, so that this is seldom done.

    Numbers of another `kind` are turned into it, in the same step: tables may be large.
    """
    kind = np.dtype(kind or held.dtype)
    missing = rows - len(held)
    if missing <= 0 and held.dtype == kind:
        return held
    more = max(missing, min(len(held), MOST_SPARE))
    room = np.zeros((len(held) + more, *held.shape[1:]), dtype=kind)
    room[: len(held)] = held
    return room


def add_rows(table: NDArray[Any], at: Positions, rows: NDArray[Any]) -> None:
    """Add rows to those at different positions, without a copy of them all: they may be tens of megabytes."""
    breaks = np.flatnonzero(np.diff(at) != 1) + 1
    edges = [0, *breaks.tolist(), len(at)]
    if len(edges) > len(at) // FEWEST_IN_A_ROW + 2:
        for start in range(0, len(at), PIECE):
            table[at[start : start + PIECE]] += rows[start : start + PIECE]
        return
    for start, stop in itertools.pairwise(edges):
        first = at[start] if stop > start else 0
        table[first : first + stop - start] += rows[start:stop]


# CodeStore: the sampled items of many collections, in slabs of memory and, where those are too many, of a file.

SLAB = 1 << 23  # bytes
IN_MEMORY = (
    32 << 20
)  # bytes of slabs, beyond which they go to a temporary file; twice that while rows are put in order

MOVED = 16 << 20  # bytes that are moved at once when rows are put in order

Slots = NDArray[np.intp]


class CodeStore:
    """Rows of codes in numbered slots, each with its owner, level and number of copies; free slots are used again."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.used = 0
        self.owner: NDArray[np.int32] = np.empty(0, dtype=np.int32)  # −1: a free slot
        self.level: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self.times: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._rows = max(64, SLAB // max(width, 1))
        self._slabs: list[NDArray[np.uint8]] = []
        self._maps: dict[int, mmap.mmap] = {}
        self._free: Slots = np.empty(0, dtype=np.intp)
        self._end = 0

    def put(self, owner: NDArray[Any], rows: Rows) -> None:
        """Hold rows of codes for their owners."""
        slots = self._slots(len(owner))
        self.owner[slots], self.level[slots], self.times[slots] = owner, rows[0], rows[2]
        for slab, here, local in self._by_slab(slots):
            self._slabs[slab][local] = rows[1][here]
            self._let_go(slab)

    def take(self, slots: Slots) -> Rows:
        """Rows in the given slots."""
        codes = np.empty((len(slots), self.width), dtype=np.uint8)
        for slab, here, local in self._by_slab(slots):
            codes[here] = self._slabs[slab][local]
            self._let_go(slab)
        return self.level[slots], codes, self.times[slots]

    def release(self, slots: Slots) -> None:
        """Free slots for others."""
        self.owner[slots] = -1
        self._free = np.concatenate([self._free, slots])
        self.used -= len(slots)

    def below(self, floors: NDArray[Any]) -> Slots:
        """Slots whose level is below the floor of their owner."""
        owner = self.owner[: self._end]
        return np.flatnonzero((owner >= 0) & (self.level[: self._end] < floors[owner]))

    def by_owner(self, owners: int) -> tuple[Slots, NDArray[np.intp]]:
        """Used slots ordered by owner, and where the slots of each owner begin and end."""
        owner = self.owner[: self._end]
        slots = np.flatnonzero(owner >= 0)
        slots = slots[np.argsort(owner[slots], kind="stable")]
        return slots, np.searchsorted(owner[slots], np.arange(owners + 1))

    def in_order(self) -> CodeStore:
        """Return the same rows in slots from 0 ordered by owner, so that those of one are found in one place."""
        slots, _ = self.by_owner(0)
        if np.array_equal(slots, np.arange(len(slots))):
            return self
        ordered, at_once = CodeStore(self.width), max(64, MOVED // max(self.width, 1))
        for start in range(0, len(slots), at_once):
            some = slots[start : start + at_once]
            ordered.put(self.owner[some], self.take(some))
        return ordered

    def _slots(self, count: int) -> Slots:
        again, self._free = self._free[:count], self._free[count:]
        fresh = np.arange(self._end, self._end + count - len(again))
        self._end += len(fresh)
        self.used += count
        while len(self._slabs) * self._rows < self._end:
            self._slabs.append(self._slab())
        if len(self.owner) < self._end:
            more = max(self._end, len(self.owner) + len(self.owner) // 4) - len(self.owner)
            self.owner = np.concatenate([self.owner, np.full(more, -1, dtype=np.int32)])
            self.level = np.concatenate([self.level, np.zeros(more, dtype=np.uint8)])
            self.times = np.concatenate([self.times, np.zeros(more, dtype=np.int64)])
        return np.concatenate([np.sort(again), fresh])

    def _by_slab(self, slots: Slots) -> Iterator[tuple[int, Any, Any]]:
        slab, local = np.divmod(slots, self._rows)
        if len(slots) and slab[0] == slab[-1] and (slab == slab[0]).all():
            yield int(slab[0]), slice(None), local
            return
        for at in np.unique(slab):
            here = np.flatnonzero(slab == at)
            yield int(at), here, local[here]

    def _slab(self) -> NDArray[np.uint8]:
        size = self._rows * self.width
        if len(self._slabs) * size < IN_MEMORY:
            return np.empty((self._rows, self.width), dtype=np.uint8)
        try:
            # The mapping keeps the file, which has no name, and lets it go with the store.
            with tempfile.TemporaryFile(prefix="divscore-") as file:
                _reserve(file, size)
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise FileError(
                f"cannot keep so many collections: no room for {size:,} more bytes in {tempfile.gettempdir()} "
                f"({error.strerror or error}); set TMPDIR to a folder with more room, or sketch in parts and merge"
            ) from error
        self._maps[len(self._slabs)] = mapped
        return np.frombuffer(mapped, dtype=np.uint8, count=size).reshape(self._rows, self.width)

    def _let_go(self, slab: int) -> None:
        """Tell the system that it need not keep a file's pages in this process's memory."""
        if slab in self._maps and hasattr(mmap, "MADV_DONTNEED"):
            self._maps[slab].madvise(mmap.MADV_DONTNEED)


def _reserve(file: IO[bytes], size: int) -> None:
    """Make sure of the room: writing to a mapped page for which there is none would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.write(bytes(size))
        file.flush()
