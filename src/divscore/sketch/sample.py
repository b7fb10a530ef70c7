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
WAITING = 98_304  # items that may wait in any case
FEWEST_WORDS = 4
APART = 3  # hashed components in which every two different examples must differ
COMPARED = 256  # examples on which this is checked

Hashes = NDArray[np.uint64]
Owners = NDArray[np.intp]
Items = NDArray[np.void]  # of type ITEM; `slot` says which row of bytes belongs to an item
ITEM = np.dtype([("hash", "u8"), ("copies", "i8"), ("step", "f8"), ("owner", "i4"), ("slot", "i4")])


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
    step: NDArray[np.float64]  # (m,)
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

    Invariant: every item of owner c with a hash below ``limit[c]`` is here, once, with its number of copies. Items
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
        self.width, self._k, self.least = width, k, least
        self.room = owners * k if room is None else room
        self.limit: Hashes = np.full(owners, TOP)
        self._items: Items = np.empty(0, dtype=ITEM)  # by owner and hash
        self._waiting: list[Items] = []
        self._lowered = False  # a limit may be below items that are still here
        self._rows: NDArray[np.uint8] = np.empty((0, width), dtype=np.uint8)
        self._free: NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self.items())

    @property
    def k(self) -> int:
        """Most items of an owner."""
        self.items()
        return self._k

    @property
    def nbytes(self) -> int:
        """Bytes of the sampled items."""
        return len(self) * (self.width + ITEM.itemsize)

    def grow(self, owners: int) -> None:
        """Make room for more collections."""
        self.limit = np.concatenate([self.limit, np.full(owners - len(self.limit), TOP)])

    def add(
        self,
        owner: NDArray[Any],
        hashes: Hashes,
        rows: NDArray[np.uint8],
        step: NDArray[np.float32],
        copies: NDArray[np.int64] | int = 1,
    ) -> None:
        """Add candidates. They wait until they are many, or until the sample is read."""
        new = np.empty(len(hashes), dtype=ITEM)
        new["owner"], new["hash"], new["step"], new["copies"] = owner, hashes, step, copies
        new["slot"] = self._slots(len(hashes))
        self._rows[new["slot"]] = rows
        self._waiting.append(new)
        # Sorting takes time, and waiting takes memory: at most a quarter of the sampled items, and of the room.
        few = min(self._k * len(self.limit), WAITING)
        many = min(len(self._items) // 4, self.room - len(self._items))
        if sum(map(len, self._waiting)) > max(few, many):
            self.items()

    def remove(
        self,
        owner: NDArray[Any],
        hashes: Hashes,
        rows: NDArray[np.uint8],
        step: NDArray[np.float32],
        copies: NDArray[np.int64] | int = 1,
    ) -> None:
        """Remove items that were added before. After an error the sample must not be used any more."""
        self.items()  # limits fall first: what is added and removed again has lowered them
        self.add(owner, hashes, rows, step, -copies)
        if self.items()["copies"].min(initial=0) < 0:
            raise InputError("items to remove were never added to this sketch; nothing was removed")

    def merge(self, other: Sample, at: Owners, sign: int = 1) -> None:
        """Add (or remove) the items of another sample; its owners are the owners `at` of this one."""
        if sign < 0:
            other.items()
        self._k = min(self._k, other._k)
        self.lower(other.limit, at)
        change = self.add if sign > 0 else self.remove
        for items in (other._items, *other._waiting):
            for start in range(0, len(items), MERGED):
                part = items[start : start + MERGED]
                owner = at[part["owner"]]
                below = part["hash"] < self.limit[owner]
                part, owner = (
                    (part, owner) if below.all() else (part.take(np.flatnonzero(below)), owner[below])
                )
                change(
                    owner, part["hash"], other._rows.take(part["slot"], axis=0), part["step"], part["copies"]
                )

    def lower(self, limit: Hashes, at: Owners) -> None:
        """Lower the limits of some owners."""
        self.limit[at] = np.minimum(self.limit[at], limit)
        self._lowered = True

    def of(self, owner: int) -> Sampled:
        """Return the sampled items of one collection."""
        items = self.items()
        first, last = np.searchsorted(items["owner"], [owner, owner + 1])
        part, limit = items[first:last], int(self.limit[owner])
        return Sampled(part["hash"], self._rows[part["slot"]], part["step"], part["copies"], limit)

    def take(self, at: Owners) -> Sample:
        """Return a sample of some of the owners, in this order; it shares nothing with this one."""
        items = self.items()
        firsts = np.searchsorted(items["owner"], at)
        sizes = np.searchsorted(items["owner"], at, side="right") - firsts
        ends = np.cumsum(sizes)
        part = items[np.arange(sizes.sum()) + np.repeat(firsts - (ends - sizes), sizes)]
        rows = self._rows[part["slot"]]
        part["owner"] = np.repeat(np.arange(len(at)), sizes)
        return Sample.restored((self.k, self.least, self.room), self.limit[at], part, rows)

    def rows(self) -> NDArray[np.uint8]:
        """Return the bytes of all items, in the order of `items`."""
        return np.asarray(self._rows[self.items()["slot"]])

    @classmethod
    def restored(
        cls, bounds: tuple[int, int, int], limit: Hashes, items: Items, rows: NDArray[np.uint8]
    ) -> Sample:
        """Put together what `items` and `rows` returned; `bounds` are k, its least value and the room."""
        k, least, room = bounds
        sample = cls(rows.shape[1], k=k, least=least, room=room)
        sample.limit, sample._items = limit, items
        items["slot"] = np.arange(len(items))
        sample._rows = rows if rows.flags.owndata else rows.copy()
        return sample

    def __reduce__(self) -> tuple[Any, ...]:
        bounds = self.k, self.least, self.room
        return Sample.restored, (bounds, self.limit, self.items().copy(), self.rows())

    def items(self) -> Items:
        """Return all items by owner and hash, once those that wait are among them. Do not change them."""
        if self._waiting:
            new = np.concatenate(self._waiting)
            self._waiting, self._lowered = [], True
            # Sorted parts are merged in linear time by a stable sort.
            new = new.take(np.argsort(self._keys(new)))  # several times as fast as new[…]
            both = np.concatenate([self._items, new])
            self._items = self._united(both.take(np.argsort(self._keys(both), kind="stable")))
        if self._lowered:
            self._lowered = False
            self._keep(
                (self._items["hash"] < self.limit[self._items["owner"]]) & (self._items["copies"] != 0)
            )
            self._trim()
            while len(self._items) > self.room and self._k > self.least:
                self._k = max(self.least, self._k * 3 // 4)
                self._trim()
        return self._items

    def _keys(self, items: Items) -> Hashes:
        """Owner and the upper bits of the hash as one number, which sorts faster than two."""
        bits = max(len(self.limit) - 1, 0).bit_length()
        if not bits:
            return np.asarray(items["hash"])
        return (items["owner"].astype(np.uint64) << np.uint64(64 - bits)) | (items["hash"] >> np.uint64(bits))

    def _united(self, items: Items) -> Items:
        """Bring the copies of an item together; `items` are ordered by `_keys`."""
        hashes, owner = items["hash"], items["owner"]
        mixed = (hashes[1:] < hashes[:-1]) & (owner[1:] == owner[:-1])
        if mixed.any():  # they differ in the lower bits of the hash only
            return self._united(items.take(np.lexsort((hashes, owner))))
        same = (hashes[1:] == hashes[:-1]) & (owner[1:] == owner[:-1])
        pairs = np.flatnonzero(same)
        if not pairs.size:
            return items
        equal = self._equal(items, pairs)
        if not equal.all():
            # Different vectors with one hash: order them by their bytes, so that copies are neighbours.
            run = np.concatenate([[0], np.cumsum(~same)])
            tied = np.flatnonzero(np.isin(run, run[pairs[~equal]]))
            content = self._rows[items["slot"][tied]].view(np.dtype((np.void, self.width))).ravel()
            _, rank = np.unique(content, return_inverse=True)
            items[tied] = items[tied[np.lexsort((rank, run[tied]))]]
            same[pairs] = self._equal(items, pairs)
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        united = items.take(starts)
        united["copies"] = np.add.reduceat(items["copies"], starts)
        # The length of a vector comes from BLAS: two kinds of processor may differ in its last bit.
        united["step"] = np.minimum.reduceat(items["step"], starts)
        self._release(items["slot"][1:][same])
        return united

    def _equal(self, items: Items, pairs: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether items have the same bytes as those after them."""
        equal = np.empty(len(pairs), dtype=bool)
        for start in range(0, len(pairs), MERGED):
            some = pairs[start : start + MERGED]
            left, right = self._rows[items["slot"][some]], self._rows[items["slot"][some + 1]]
            equal[start : start + MERGED] = (left == right).all(axis=1)
        return equal

    def _trim(self) -> None:
        starts = np.searchsorted(self._items["owner"], np.arange(len(self.limit) + 1))
        full = np.flatnonzero(np.diff(starts) > self._k)
        if full.size:
            self.limit[full] = self._items["hash"][starts[full] + self._k]
            self._keep(self._items["hash"] < self.limit[self._items["owner"]])

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        if not kept.all():
            self._release(self._items["slot"][~kept])
            self._items = self._items.take(np.flatnonzero(kept))

    def _release(self, slots: NDArray[np.int32]) -> None:
        self._free = np.concatenate([self._free, slots])

    def _slots(self, count: int) -> NDArray[np.int32]:
        """Return free slots for rows; the table grows where it stands, as it may have hundreds of megabytes."""
        missing = count - len(self._free)
        if missing > 0:
            have = len(self._rows)
            more = max(missing, min(max(have // 8, 64), GROWTH // self.width))
            # `resize` moves pages instead of copying them. Views never leave this class, hence no check.
            self._rows.resize((have + more, self.width), refcheck=False)
            self._release(np.arange(have, have + more, dtype=np.int32))
        slots, self._free = self._free[:count], self._free[count:]
        return slots
