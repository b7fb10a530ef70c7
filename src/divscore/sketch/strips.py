"""Products over short strips of rows: fast, in one thread, and the same for a row wherever it stands."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray

__all__ = ["row_dots", "strip_rows", "weighted_sum"]

# Numbers in a strip. From 9,216 on OpenBLAS starts threads of its own for a product with a vector, which costs more
# than it brings. The same everywhere: sums over strips of another length are rounded otherwise, and a worker that has
# one thread must give the bits that a process with several gives.
STRIP = 9_000


@lru_cache(maxsize=64)
def strip_rows(dimension: int) -> int:
    """Rows in a strip of vectors of this dimension, a multiple of four."""
    return max(8, min(64, STRIP // dimension // 4 * 4))


def row_dots(block: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Dot product of every row with `weights`.

    A row's result must not depend on its neighbours, or removing an item would miss the cell that adding it was
    counted in. A product of a whole block with a vector does not promise that: rows left over from its inner
    loop are summed in another order. Strips of full length do it on the BLAS at hand, or `np.vecdot` does.
    """
    n, d = block.shape
    if not _steady(d):
        return np.asarray(np.vecdot(block, weights))
    rows = strip_rows(d)
    whole = n // rows * rows
    dots: NDArray[np.float32] = np.matmul(block[:whole].reshape(-1, rows, d), weights).reshape(-1)
    if whole == n:
        return dots
    last = np.zeros((rows, d), dtype=np.float32)
    last[: n - whole] = block[whole:]
    return np.concatenate([dots, np.matmul(last, weights)[: n - whole]], dtype=np.float32)


def weighted_sum(block: NDArray[Any], weights: NDArray[Any]) -> FloatArray:
    """Sum of the rows times their weights: single precision within a strip, double between strips."""
    n, d = block.shape
    rows = strip_rows(d)
    whole = n // rows * rows
    strips = weights[:whole].reshape(-1, 1, rows) @ block[:whole].reshape(-1, rows, d)
    total: FloatArray = strips.sum(axis=(0, 1), dtype=np.float64)
    if whole < n:
        total += weights[whole:] @ block[whole:]
    return total


@lru_cache(maxsize=64)
def _steady(dimension: int) -> bool:
    """Whether strips give every row the same result in every place; tried on random rows."""
    rows = strip_rows(dimension)
    if rows * dimension > STRIP:
        return False
    rng = np.random.default_rng(dimension)
    block = rng.standard_normal((rows, dimension), dtype=np.float32)
    weights = rng.standard_normal(dimension, dtype=np.float32)
    dots = block @ weights
    shifts = range(1, rows)
    return all(np.array_equal(np.roll(block, s, axis=0) @ weights, np.roll(dots, s)) for s in shifts)
