"""A bounded random sample of each collection that does not depend on the order in which its items arrive.

Every item has a 64-bit hash of its vector. A bottom-k sample keeps the items with the k smallest hashes: it can be
merged, it is the same for every order, split and machine, and it is a uniform sample of the different items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError

ITEMS = 512  # k: against 5,000 items, 512 widen an interval by less than 2 %
LEAST_ITEMS = 64  # k is never lowered further; intervals are then 1 to 14 % wider
TOP = np.uint64(2**64 - 1)  # the limit of a sample that has every item
GROWTH = 32 << 20  # bytes
MERGED = 65_536  # items that are copied from one sample to another at a time
FEWEST_WORDS = 4
APART = 3  # hashed components in which every two different examples must differ
COMPARED = 256  # examples on which this is checked

Hashes = NDArray[np.uint64]
Owners = NDArray[np.intp]


@dataclass(frozen=True)
class RowHash:
    """A 64-bit hash of a row from the bits of a few evenly spaced components.

    Integer arithmetic only, so the result does not depend on BLAS, processor, thread or neighbouring rows. The sum
    Σ f_i w_i mod 2⁶⁴ of 32-bit words w_i with random odd factors f_i is universal in its upper half.
    """

    step: int
    factors: NDArray[np.uint64]

    @classmethod
    def of(cls, examples: NDArray[Any]) -> RowHash:
        """Choose the components on labelled examples.

        Twice as many until every two different examples differ in three of them: four for dense vectors, more for
        sparse or binary ones, all in the worst case.
        """
        with np.errstate(over="ignore"):
            rows = np.asarray(examples[:: max(1, len(examples) // COMPARED)], dtype=np.float32)
        rows = np.unique(rows, axis=0)
        dimension = rows.shape[1]
        count = min(FEWEST_WORDS, dimension)
        while count < dimension and not _apart(rows[:, :: dimension // count][:, :count]):
            count = min(2 * count, dimension)
        factors = np.random.default_rng(0).integers(0, 2**63, size=count, dtype=np.uint64)
        return cls(dimension // count, factors * np.uint64(2) + np.uint64(1))

    def words(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the hashed components (n, w) of rows (n, d)."""
        return rows[:, :: self.step][:, : len(self.factors)]

    def mixed(self, words: NDArray[np.float32]) -> Hashes:
        """Return the hashes (n,) of rows with these components."""
        words = words + np.float32(0)  # −0.0 becomes 0.0
        mixed: Hashes = np.vecdot(words.view(np.uint32).astype(np.uint64), self.factors)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        return mixed


def _apart(rows: NDArray[np.float32]) -> bool:
    return all(((rows[at + 1 :] != row).sum(axis=1) >= APART).all() for at, row in enumerate(rows[:-1]))


@dataclass(frozen=True)
class Sampled:
    """The sampled items of one collection, ordered by hash."""

    hash: Hashes  # (m,)
    rows: NDArray[np.uint8]  # (m, width)
    step: NDArray[np.float32]  # (m,)
    copies: NDArray[np.int64]  # (m,)
    limit: int

    def __len__(self) -> int:
        return len(self.hash)

    @property
    def complete(self) -> bool:
        """Whether every item of the collection is here."""
        return self.limit == int(TOP)

    @property
    def represented(self) -> float:
        """Number of items of the collection, estimated from the sample."""
        return float(self.copies.sum()) * (float(TOP) / max(self.limit, 1))

    @property
    def effective(self) -> float:
        """Number of items that carry the sample's weight: (Σ n)² / Σ n² for items with n copies."""
        copies = self.copies.astype(np.float64)
        return float(copies.sum() ** 2 / max((copies**2).sum(), 1.0))


class Sample:
    """Bottom-k samples of one or many collections (owners), in columns.

    Invariant: every item of owner c whose hash is below ``limit[c]`` is here, once, with its number of copies. Items
    are different if their hash or their row of bytes differs, so two vectors with one hash do not depend on order.
    Adding lowers the limit of an owner with more than k items to its (k + 1)-th hash; removing leaves the limit.

    Where all owners together have more than `room` items, k becomes the first of k, 3k/4, 9k/16, … (at least
    `least`) that fits. The number of sampled items only grows as items are added, so the final k does not depend
    on their order either.
    """

    def __init__(
        self,
        width: int,
        owners: int = 1,
        *,
        k: int = ITEMS,
        least: int = LEAST_ITEMS,
        room: int | None = None,
    ) -> None:
        self.width, self.k, self.least = width, k, least
        self.room = owners * k if room is None else room
        self.limit: Hashes = np.full(owners, TOP)
        self._columns = _no_items()
        self._rows: NDArray[np.uint8] = np.empty((0, width), dtype=np.uint8)
        self._free: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._waiting: list[_Columns] = []
        self._wait = 0

    def __len__(self) -> int:
        self.settle()
        return len(self._columns.hash)

    @property
    def owners(self) -> int:
        """Number of collections."""
        return len(self.limit)

    @property
    def nbytes(self) -> int:
        """Bytes of the sampled items."""
        return len(self) * (self.width + 24)

    def grow(self, owners: int) -> None:
        """Make room for more collections."""
        self.limit = np.concatenate([self.limit, np.full(owners - self.owners, TOP)])

    def add(
        self,
        owner: Owners,
        hashes: Hashes,
        rows: NDArray[np.uint8],
        step: NDArray[np.float32],
        copies: NDArray[np.int64] | None = None,
    ) -> None:
        """Add candidates. They wait until they are many, or until the sample is read."""
        if copies is None:
            copies = np.ones(len(hashes), dtype=np.int64)
        slots = self._slots(len(hashes))
        self._rows[slots] = rows
        self._waiting.append(_Columns(owner.astype(np.int32), hashes, copies, step, slots))
        self._wait += len(hashes)
        if self._wait > max(self.k, len(self._columns.hash) // 4):
            self.settle()

    def remove(
        self,
        owner: Owners,
        hashes: Hashes,
        rows: NDArray[np.uint8],
        step: NDArray[np.float32],
        copies: NDArray[np.int64] | None = None,
    ) -> None:
        """Remove items that were added before. After an error the sample must not be used any more."""
        self.settle()
        copies = np.ones(len(hashes), dtype=np.int64) if copies is None else copies
        self.add(owner, hashes, rows, step, -copies)
        self.settle()
        if (self._columns.copies < 0).any():
            raise InputError("items to remove were never added to this sketch; nothing was removed")
        self._keep(self._columns.copies > 0)

    def merge(self, other: Sample, at: Owners, sign: int = 1) -> None:
        """Add (or remove) the items of another sample, whose owners are the owners `at` of this one."""
        other.settle()
        self.k = min(self.k, other.k)
        self.lower(np.minimum(self.limit[at], other.limit), at)
        change = self.add if sign > 0 else self.remove
        columns = other._columns
        for start in range(0, len(columns.hash), MERGED):
            part = columns.where(slice(start, start + MERGED))
            below = part.hash < self.limit[at[part.owner]]
            part = part if below.all() else part.where(below)
            change(at[part.owner], part.hash, other._rows[part.slot], part.step, part.copies)
        self.settle()

    def lower(self, limit: Hashes, at: Owners) -> None:
        """Lower the limits of some owners."""
        self.settle()
        self.limit[at] = np.minimum(self.limit[at], limit)
        self._keep(self._columns.hash < self.limit[self._columns.owner])

    def of(self, owner: int) -> Sampled:
        """Return the sampled items of one collection."""
        self.settle()
        first, last = np.searchsorted(self._columns.owner, [owner, owner + 1])
        part = self._columns.where(slice(first, last))
        return Sampled(part.hash, self._rows[part.slot], part.step, part.copies, int(self.limit[owner]))

    def take(self, at: Owners) -> Sample:
        """Return a sample with some of the owners, in this order."""
        self.settle()
        taken = Sample(self.width, len(at), k=self.k, least=self.least, room=self.room)
        taken.limit = self.limit[at]
        firsts = np.searchsorted(self._columns.owner, at)
        sizes = np.searchsorted(self._columns.owner, at, side="right") - firsts
        ends = np.cumsum(sizes)
        chosen = np.arange(ends[-1] if len(ends) else 0) + np.repeat(firsts - (ends - sizes), sizes)
        part = self._columns.where(chosen)
        part.owner = np.repeat(np.arange(len(at), dtype=np.int32), sizes)
        taken._restore(part, self._rows[part.slot])
        return taken

    def columns(self) -> tuple[NDArray[np.int32], Hashes, NDArray[np.int64], NDArray[np.float32]]:
        """Return owner, hash, copies and step of all items, by owner and hash. Do not change them."""
        self.settle()
        part = self._columns
        return part.owner, part.hash, part.copies, part.step

    def rows(self, items: slice) -> NDArray[np.uint8]:
        """Return the bytes of some items, in the order of `columns`."""
        self.settle()
        return self._rows[self._columns.slot[items]]

    @classmethod
    def restored(
        cls,
        bounds: tuple[int, int, int],
        limit: Hashes,
        columns: tuple[NDArray[np.int32], Hashes, NDArray[np.int64], NDArray[np.float32]],
        rows: NDArray[np.uint8],
    ) -> Sample:
        """Put together what `columns` and `rows` returned; `bounds` are k, its least value, and the room."""
        k, least, room = bounds
        sample = cls(rows.shape[1], k=k, least=least, room=room)
        sample.limit = limit
        owner, hashes, copies, step = columns
        sample._restore(_Columns(owner, hashes, copies, step, np.empty(0, dtype=np.int32)), rows)
        return sample

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self.columns()
        bounds = self.k, self.least, self.room
        return Sample.restored, (bounds, self.limit, columns, self.rows(slice(None)))

    def settle(self) -> None:
        """Join waiting items to the others, then drop what is above the limits."""
        if not self._waiting:
            return
        items = _Columns.joined([self._columns, *self._waiting])
        self._waiting, self._wait = [], 0
        order = np.argsort(items.hash)
        if self.owners > 1:
            # 16 bits are sorted by radix, which is several times as fast.
            narrow = items.owner.astype(np.uint16) if self.owners <= 65_536 else items.owner
            order = order[np.argsort(narrow[order], kind="stable")]
        self._columns = self._united(items.where(order))
        self._keep((self._columns.hash < self.limit[self._columns.owner]) & (self._columns.copies != 0))
        self._trim()
        while len(self._columns.hash) > self.room and self.k > self.least:
            self.k = max(self.least, self.k * 3 // 4)
            self._trim()

    def _united(self, items: _Columns) -> _Columns:
        """Bring the copies of an item together; `items` are ordered by owner and hash."""
        same = (items.hash[1:] == items.hash[:-1]) & (items.owner[1:] == items.owner[:-1])
        pairs = np.flatnonzero(same)
        if not pairs.size:
            return items
        equal = self._equal(items.slot[pairs], items.slot[pairs + 1])
        if not equal.all():
            # Different vectors with one hash: order them by their bytes, so that copies are neighbours.
            run = np.concatenate([[0], np.cumsum(~same)])
            mixed = np.flatnonzero(np.isin(run, run[pairs[~equal]]))
            content = np.ascontiguousarray(self._rows[items.slot[mixed]])
            _, rank = np.unique(content.view(np.dtype((np.void, self.width))).ravel(), return_inverse=True)
            order = np.arange(len(items.hash))
            order[mixed] = mixed[np.lexsort((rank, run[mixed]))]
            items = items.where(order)
            same[pairs] = self._equal(items.slot[pairs], items.slot[pairs + 1])
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        united = items.where(starts)
        united.copies = np.add.reduceat(items.copies, starts)
        # The length of a vector comes from BLAS: two kinds of processor may differ in its last bit.
        united.step = np.minimum.reduceat(items.step, starts)
        self._release(items.slot[np.flatnonzero(same) + 1])
        return united

    def _equal(self, left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.bool_]:
        equal = np.empty(len(left), dtype=bool)
        for start in range(0, len(left), MERGED):
            part = slice(start, start + MERGED)
            equal[part] = (self._rows[left[part]] == self._rows[right[part]]).all(axis=1)
        return equal

    def _trim(self) -> None:
        starts = np.searchsorted(self._columns.owner, np.arange(self.owners + 1))
        full = np.flatnonzero(np.diff(starts) > self.k)
        if full.size:
            self.limit[full] = self._columns.hash[starts[full] + self.k]
            self._keep(self._columns.hash < self.limit[self._columns.owner])

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        if not kept.all():
            self._release(self._columns.slot[~kept])
            self._columns = self._columns.where(kept)

    def _release(self, slots: NDArray[np.int32]) -> None:
        self._free = np.concatenate([self._free, slots])

    def _slots(self, count: int) -> NDArray[np.int32]:
        """Return free slots for rows; the table grows where it stands, as it may have hundreds of megabytes."""
        missing = count - len(self._free)
        if missing > 0 and self._waiting:
            self.settle()
            missing = count - len(self._free)
        if missing > 0:
            have = len(self._rows)
            more = max(missing, min(max(have // 4, 64), GROWTH // max(self.width, 1)))
            # `resize` moves pages instead of copying them. Views never leave this class, hence no check.
            self._rows.resize((have + more, self.width), refcheck=False)
            self._release(np.arange(have, have + more, dtype=np.int32))
        slots, self._free = np.sort(self._free[:count]), self._free[count:]
        return slots

    def _restore(self, columns: _Columns, rows: NDArray[np.uint8]) -> None:
        columns.slot = np.arange(len(rows), dtype=np.int32)
        self._columns = columns
        self._rows = rows if rows.base is None and rows.flags.owndata else rows.copy()


class _Columns:
    """Columns of sampled items; `slot` says which row of bytes belongs to an item."""

    __slots__ = ("copies", "hash", "owner", "slot", "step")

    def __init__(
        self,
        owner: NDArray[np.int32],
        hash: Hashes,
        copies: NDArray[np.int64],
        step: NDArray[np.float32],
        slot: NDArray[np.int32],
    ) -> None:
        self.owner, self.hash, self.copies, self.step, self.slot = owner, hash, copies, step, slot

    def where(self, chosen: Any) -> _Columns:
        return _Columns(
            self.owner[chosen], self.hash[chosen], self.copies[chosen], self.step[chosen], self.slot[chosen]
        )

    @staticmethod
    def joined(parts: list[_Columns]) -> _Columns:
        return _Columns(
            np.concatenate([part.owner for part in parts]),
            np.concatenate([part.hash for part in parts]),
            np.concatenate([part.copies for part in parts]),
            np.concatenate([part.step for part in parts]),
            np.concatenate([part.slot for part in parts]),
        )


def _no_items() -> _Columns:
    return _Columns(
        np.empty(0, dtype=np.int32),
        np.empty(0, dtype=np.uint64),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.float32),
        np.empty(0, dtype=np.int32),
    )
