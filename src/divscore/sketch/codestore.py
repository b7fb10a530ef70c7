"""CodeStore: the sampled items of many collections, in slabs of memory and, where those are too many, of a file."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sketch.codes import Rows

__all__ = ["CodeStore"]

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
