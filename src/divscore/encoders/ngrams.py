"""`ngrams`: hashed character n-grams of short texts and names. No training, no download, the same everywhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["NgramEncoder"]

LONGEST = 4
START, END = "\x02", "\x03"
BASE = np.uint32(0x01000193)
BATCH = 4_096


class NgramEncoder:
    """Counts of character n-grams (1 to 4 long, ends marked), hashed with a sign into a fixed dimension.

    Hashing is integer arithmetic on code points, so the vectors are the same on every machine and version.
    Each vector is scaled to length one; an empty text is the zero vector.

    >>> NgramEncoder(64).encode(["Anna", "anna", ""]).any(axis=1).tolist()
    [True, True, False]
    """

    name = "ngrams"

    def __init__(self, dimension: int = 512) -> None:
        self.dimension = dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors (n, dimension) of texts."""
        parts = [self._batch(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        return np.concatenate([np.empty((0, self.dimension), dtype=np.float32), *parts])

    def _batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        folded = [unicodedata.normalize("NFKC", text).strip().casefold() for text in texts]
        marked = [f"{START}{text}{END}" if text else "" for text in folded]
        points = np.frombuffer("".join(marked).encode("utf-32-le"), dtype=np.uint32)
        owner = np.repeat(np.arange(len(texts)), [len(text) for text in marked])
        table = np.zeros(len(texts) * self.dimension)
        rolling = np.zeros(len(points), dtype=np.uint32)
        for size in range(1, LONGEST + 1):
            if len(points) < size:
                break
            starts = len(points) - size + 1
            rolling = rolling[:starts] * BASE + points[size - 1 :]
            inside = owner[:starts] == owner[size - 1 :]
            mixed = _mix(rolling[inside] ^ np.uint32(size * 0x9E3779B1 & 0xFFFFFFFF))
            slot = owner[:starts][inside] * self.dimension + (mixed >> np.uint32(1)) % np.uint32(
                self.dimension
            )
            sign = 1.0 - 2.0 * (mixed & np.uint32(1))
            table += np.bincount(slot, weights=sign, minlength=len(table))
        vectors = table.reshape(len(texts), self.dimension)
        norm = np.sqrt(np.vecdot(vectors, vectors))
        return (vectors / np.where(norm > 0, norm, 1.0)[:, None]).astype(np.float32)


def _mix(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    values = values ^ (values >> np.uint32(16))
    values = values * np.uint32(0x85EBCA6B)
    values = values ^ (values >> np.uint32(13))
    values = values * np.uint32(0xC2B2AE35)
    return np.asarray(values ^ (values >> np.uint32(16)))
