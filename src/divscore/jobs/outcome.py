"""Outcome: what became of a run of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["EMPTY", "READ", "UNREADABLE", "Entry", "Outcome"]

# Why an item has no vector: it could not be read, or nothing to encode was in it (no face, no known word).
READ, UNREADABLE, EMPTY = "", "unreadable", "empty"


@dataclass(frozen=True)
class Entry:
    """What became of one item: its vectors (usually one), or the kind of its failure and the reason."""

    vectors: NDArray[np.float32]
    found: int = 1
    kind: str = READ
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a run of items; vector j belongs to item ``owner[j]``.

    `keys` are the fingerprints of the contents, empty where an item could not be read; `fresh` marks what was
    encoded now and not remembered.
    """

    vectors: NDArray[np.float32]
    owner: NDArray[np.intp]
    found: NDArray[np.intp]
    kinds: Sequence[str]
    reasons: Sequence[str]
    keys: Sequence[bytes]
    fresh: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def of(
        cls, entries: Sequence[Entry], keys: Sequence[bytes], fresh: NDArray[np.bool_], dimension: int
    ) -> Outcome:
        """Put the items' entries together in their order."""
        counts = [len(entry.vectors) for entry in entries]
        none = np.empty((0, dimension), dtype=np.float32)
        return cls(
            np.concatenate([none, *(entry.vectors for entry in entries)]),
            np.repeat(np.arange(len(entries)), counts),
            np.array([entry.found for entry in entries], dtype=np.intp),
            [entry.kind for entry in entries],
            [entry.reason for entry in entries],
            keys,
            fresh,
        )

    def entry(self, item: int) -> Entry:
        """What became of one of them."""
        rows = self.vectors[self.owner == item]
        return Entry(rows, int(self.found[item]), self.kinds[item], self.reasons[item])

    def fresh_entries(self) -> dict[bytes, Entry]:
        """What is worth remembering, by fingerprint; what could not be read may be readable another time."""
        worth = [
            i for i in np.flatnonzero(self.fresh).tolist() if self.keys[i] and self.kinds[i] != UNREADABLE
        ]
        return {self.keys[item]: self.entry(item) for item in worth}
