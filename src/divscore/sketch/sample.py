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
LARGE = 8 << 20  # bytes of a table that gets all the room at once
MERGED = 65_536  # items that are copied from one sample to another at a time
WAITING = 65_536  # items that may wait in any case
FEWEST_WORDS = 4
APART = 3  # hashed components in which every two different examples must differ
COMPARED = 256  # examples on which this is checked
NEVER_ADDED = "items to remove were never added to this sketch; nothing was removed"

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

    words: slice  # the hashed components of a row
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
        while True:
            words = slice(0, dimension // count * count, dimension // count)
            some = rows[:, words]
            apart = (((some[at + 1 :] != row).sum(axis=1) >= APART).all() for at, row in enumerate(some[:-1]))
            if count == dimension or all(apart):
                break
            count = min(2 * count, dimension)
        factors = np.random.default_rng(0).integers(0, 2**63, size=count, dtype=np.uint64)
        return cls(words, factors * np.uint64(2) + np.uint64(1))

    def mixed(self, words: NDArray[np.float32]) -> Hashes:
        """Return the hashes (n,) of rows with these components (n, w)."""
        words = words + np.float32(0)  # −0.0 becomes 0.0
        mixed: Hashes = np.vecdot(words.view(np.uint32).astype(np.uint64), self.factors)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        return mixed


@dataclass(frozen=True)
class Sampled:
    """The sampled items of one collection, ordered by hash."""

    hash: Hashes  # (m,)
    rows: NDArray[np.uint8]  # (m, width)
    step: NDArray[np.float64]  # (m,)
    copies: NDArray[np.int64]  # (m,)
    limit: int
    complete: bool  # whether every item of the collection is here

    def __len__(self) -> int:
        return len(self.hash)

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
        self._lowered = False  # items may be here that are above their limit, or have no copies left
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
        sign: int = 1,
    ) -> None:
        """Add candidates, or remove (−1) some. They wait until they are many, or until the sample is read.

        What is removed must have been added before. After an error the sample must not be used any more.
        """
        if sign < 0:
            self.items()  # limits fall first: what is added and removed again has lowered them
        count, have = len(hashes), len(self._rows)
        missing = count - len(self._free)
        if missing > 0:
            more = max(missing, have // 8, 64)
            if (have + more) * self.width > LARGE:
                # All the room at once: pages that are never written take no memory, and numpy asks the system for large
                # ones, which take a tenth of the time to get.
                most = max(self.room, self.least * len(self.limit)) + 2 * WAITING
                more = max(more, most - have)
            grown = np.empty((have + more, self.width), dtype=np.uint8)
            grown[:have] = self._rows
            self._rows = grown
            self._free = np.concatenate([self._free, np.arange(have, have + more, dtype=np.int32)])
        slots, self._free = self._free[:count], self._free[count:]
        self._rows[slots] = rows
        new = np.empty(count, dtype=ITEM)
        new["owner"], new["hash"], new["step"], new["slot"] = owner, hashes, step, slots
        new["copies"] = sign * copies
        self._waiting.append(new)
        # Sorting takes time; waiting takes memory, and lets in candidates that a lower limit would refuse. A limit can
        # fall only where an owner has more than k items, or all owners more than the room.
        crowded = np.bincount(new["owner"]).max(initial=0) > self._k
        most = min(self._k * len(self.limit), max(WAITING, self.room - len(self._items)))
        if crowded or sum(map(len, self._waiting)) > most:
            self.items()
        if sign < 0:
            self._lowered = True
            if self.items()["copies"].min(initial=0) < 0:
                raise InputError(NEVER_ADDED)

    def merge(self, other: Sample, at: Owners, sign: int = 1) -> None:
        """Add (or remove) the items of another sample; its owners are the owners `at` of this one."""
        if sign < 0:
            other.items()
        self._k = min(self._k, other._k)
        self.lower(other.limit, at)
        for items in (other._items, *other._waiting):
            for start in range(0, len(items), MERGED):
                part = items[start : start + MERGED]
                owner = at[part["owner"]]
                below = np.flatnonzero(part["hash"] < self.limit[owner])
                if len(below) < len(part):
                    part, owner = part.take(below), owner[below]
                rows = other._rows.take(part["slot"], axis=0)
                self.add(owner, part["hash"], rows, part["step"], part["copies"], sign)

    def lower(self, limit: Hashes, at: Owners) -> None:
        """Lower the limits of some owners."""
        self.limit[at] = np.minimum(self.limit[at], limit)
        self._lowered = True

    def of(self, owner: int) -> Sampled:
        """Return the sampled items of one collection."""
        items = self.items()
        first, last = np.searchsorted(items["owner"], [owner, owner + 1])
        part, limit = items[first:last], self.limit[owner]
        rows = self._rows[part["slot"]]
        return Sampled(part["hash"], rows, part["step"], part["copies"], int(limit), bool(limit == TOP))

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
        if not (self._waiting or self._lowered):
            return self._items
        owners = len(self.limit)
        if self._waiting:
            new = np.concatenate(self._waiting)
            self._waiting = []
            # A limit may have fallen since the candidates were chosen.
            new = self._only(new, new["hash"] < self.limit[new["owner"]])
            keys = sort_keys(new["owner"], new["hash"], owners)
            order = np.argsort(keys)
            keys, new = keys[order], new.take(order)  # several times as fast as new[…]
            if len(self._items):
                # One array at a time: each may have 25 megabytes.
                new = self._items = np.concatenate([self._items, new])
                keys = sort_keys(new["owner"], new["hash"], owners)
                order = np.argsort(keys, kind="stable")  # merges two sorted parts in linear time
                keys, new = keys[order], new.take(order)
            self._items = new
            if (keys[1:] == keys[:-1]).any():
                self._unite()
        if self._lowered:
            self._lowered = False
            alive = (self._items["hash"] < self.limit[self._items["owner"]]) & (self._items["copies"] != 0)
            self._items = self._only(self._items, alive)
        while True:
            sizes = np.bincount(self._items["owner"], minlength=owners)
            full = np.flatnonzero(sizes > self._k)
            if full.size:
                self.limit[full] = self._items["hash"][np.cumsum(sizes)[full] - sizes[full] + self._k]
                below = self._items["hash"] < self.limit[self._items["owner"]]
                self._items = self._only(self._items, below)
            if len(self._items) <= self.room or self._k <= self.least:
                return self._items
            self._k = max(self.least, self._k * 3 // 4)

    def _only(self, items: Items, kept: NDArray[np.bool_]) -> Items:
        """Return some of the items; the slots of the others become free."""
        if kept.all():
            return items
        self._free = np.concatenate([items["slot"][~kept], self._free])  # used again before fresh memory is
        return items.take(np.flatnonzero(kept))

    def _unite(self) -> None:
        """Bring the copies of an item together; the items are ordered by `sort_keys`."""
        items = self._items
        if ((items["hash"][1:] < items["hash"][:-1]) & (items["owner"][1:] == items["owner"][:-1])).any():
            # Keys have only the upper bits of a hash.
            items = items.take(np.lexsort((items["hash"], items["owner"])))
        same = (items["hash"][1:] == items["hash"][:-1]) & (items["owner"][1:] == items["owner"][:-1])
        pairs = np.flatnonzero(same)
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
        self._items = items.take(starts)
        self._items["copies"] = np.add.reduceat(items["copies"], starts)
        # The length of a vector comes from BLAS: two kinds of processor may differ in its last bit.
        self._items["step"] = np.minimum.reduceat(items["step"], starts)
        self._free = np.concatenate([items["slot"][1:][same], self._free])

    def _equal(self, items: Items, pairs: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether items have the same bytes as those after them."""
        equal = np.empty(len(pairs), dtype=bool)
        for start in range(0, len(pairs), MERGED):
            some = pairs[start : start + MERGED]
            left, right = self._rows[items["slot"][some]], self._rows[items["slot"][some + 1]]
            equal[start : start + MERGED] = (left == right).all(axis=1)
        return equal


def sort_keys(owner: NDArray[Any], hashes: Hashes, owners: int) -> Hashes:
    """Owner and the upper bits of the hash as one number, which sorts faster than two."""
    bits = max(owners - 1, 0).bit_length()
    return (owner.astype(np.uint64) << np.uint64(64 - bits)) | (hashes >> np.uint64(bits)) if bits else hashes
