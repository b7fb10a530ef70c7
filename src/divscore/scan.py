"""One pass over a block of vectors: sums of unit vectors, and counts of score cells, by collection.

The arithmetic is arranged around three facts. Reading the vectors from memory is the cost that cannot be
avoided, so all three products (norm, score, sum) run on pieces that stay in the cache. `np.vecdot` gives a row
the same score wherever it stands, so that removing an item finds the cell in which adding it was counted.
And short sums in single precision, added up in double precision, leave an error below 1e-10 of a mean
over the tens of thousands of rows for which they are used; smaller inputs are summed in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.cells import tally
from divscore.scorer import LEVELS, Scorer
from divscore.similarity import FloatArray

__all__ = ["SKIPPED", "Scan", "scan"]

CHUNK = 65_536  # rows handed to one thread; fixed, so that the answer does not depend on their number
PIECE = 4_096  # rows whose vectors are expected to stay in the cache
STRIP = 9_000  # numbers summed over at once in single precision: below where BLAS starts its own threads
SINGLE = 32_768  # from this many float32 rows on, strips are precise enough
FEW_OWNERS = 64  # collections in one piece up to which each is summed by a product of its own
SKIPPED = np.uint8(255)  # in place of a level

Owners = NDArray[np.intp]


@dataclass(frozen=True)
class Scan:
    """What one pass found, for each of several collections."""

    totals: FloatArray  # (owners, d): sums of unit vectors
    levels: NDArray[np.int64]  # (owners, LEVELS): usable items by level
    zero: NDArray[np.int64]  # (owners,): items skipped for being zero
    nonfinite: NDArray[np.int64]  # (owners,): items skipped for not being finite
    keys: NDArray[np.int64]  # (owner · LEVELS + level) · cells + cell, occupied ones, in order
    counts: NDArray[np.int64]  # items at each key
    level: NDArray[np.uint8]  # (rows,): level of each row, or SKIPPED


def scan(
    rows: NDArray[Any],
    scorer: Scorer,
    owner: Owners | None = None,
    owners: int = 1,
    *,
    workers: int = 1,
    seen: int = 0,
) -> Scan:
    """Pass over `rows` once, after `seen` others; `owner` says to which collection each row belongs."""
    n, d = rows.shape
    level = np.empty(n, dtype=np.uint8)
    single = rows.dtype == np.float32 and n + seen >= SINGLE

    def chunk(start: int) -> tuple[Any, ...]:
        part = slice(start, min(start + CHUNK, n))
        mine = None if owner is None else owner[part]
        total, scores, zero = _sums(rows[part], scorer, mine, owners, single, level[part])
        return total, zero, *_cells(scores, scorer, mine, level[part])

    totals, zero = np.zeros((owners, d)), np.zeros(n, dtype=bool)
    keys, counts = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for start, found in zip(range(0, n, CHUNK), _in_order(chunk, range(0, n, CHUNK), workers), strict=True):
        totals += found[0]
        zero[start : start + CHUNK] = found[1]
        keys.append(found[2])
        counts.append(found[3])
    whose: Owners = np.zeros(n, dtype=np.intp) if owner is None else owner
    good = level != SKIPPED
    by_level = np.bincount(whose[good] * LEVELS + level[good], minlength=owners * LEVELS)
    return Scan(
        totals,
        by_level.reshape(owners, LEVELS),
        np.bincount(whose[zero], minlength=owners),
        np.bincount(whose[~good & ~zero], minlength=owners),
        *tally(np.concatenate(keys), np.concatenate(counts)),
        level,
    )


def _in_order(
    task: Callable[[int], tuple[Any, ...]], items: range, workers: int
) -> Iterable[tuple[Any, ...]]:
    if workers <= 1 or len(items) <= 1:
        return map(task, items)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, items))


def _sums(
    rows: NDArray[Any],
    scorer: Scorer,
    owner: Owners | None,
    owners: int,
    single: bool,
    level: NDArray[np.uint8],
) -> tuple[FloatArray, NDArray[np.float32], NDArray[np.bool_]]:
    n = len(rows)
    total = np.zeros((owners, rows.shape[1]))
    scores = np.empty((n, scorer.scores), dtype=np.float32)
    good, zero = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    for at in range(0, n, PIECE):
        piece = slice(at, min(at + PIECE, n))
        # Rows of one collection are brought together first, while they are read from memory anyway.
        order = slice(None) if owner is None else _grouped(owner[piece], owners)
        mine = rows[piece] if owner is None else np.take(rows[piece], order, axis=0, mode="clip")
        usable, blank = good[piece][order], zero[piece][order]
        block, inverse = _normalise(mine, usable, blank)
        for j, w in enumerate(scorer.weights32):
            scores[piece, j][order] = np.vecdot(block, w) * inverse
        wide = (block, inverse) if single else _double(mine, usable)
        if owner is None:
            total[0] += _weighted_sum(*wide)
        else:
            good[piece][order], zero[piece][order] = usable, blank
            _add_by(total, *wide, owner[piece][order])
    scores += scorer.intercept32
    level[:] = scorer.level(scores)
    level[~good] = SKIPPED
    return total, scores, zero


def _cells(
    scores: NDArray[np.float32], scorer: Scorer, owner: Owners | None, level: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys = scorer.grid.encode(scores)
    # With two groups all items are counted, so their level does not matter and would only spread them out.
    if scorer.groups > 2:
        keys += level * np.int64(scorer.grid.cells)
    if owner is not None:
        keys += owner * np.int64(LEVELS * scorer.grid.cells)
    good = level != SKIPPED
    return tally(keys if good.all() else keys[good])


def _normalise(
    rows: NDArray[Any], good: NDArray[np.bool_], zero: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows in single precision with their inverse norms; marks and blanks those that cannot be used."""
    with np.errstate(over="ignore", invalid="ignore"):
        block = np.ascontiguousarray(rows, dtype=np.float32)
        square = np.vecdot(block, block)
        odd = np.flatnonzero(~((square > 1e-30) & (square < 1e30)))
    if odd.size:
        block = block.copy()
        block[odd], good[odd], zero[odd] = _mend(rows[odd])
        square[odd] = np.where(good[odd], np.vecdot(block[odd], block[odd]), 1.0)
    return block, 1.0 / np.sqrt(square)


def _mend(rows: NDArray[Any]) -> tuple[FloatArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Rescale rows whose squares leave the range of single precision; blank the useless ones."""
    wide = rows.astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    wide[~finite] = 0.0
    largest = np.abs(wide).max(axis=1)
    usable = largest > 0
    return wide / np.where(usable, largest, 1.0)[:, None], usable, finite & ~usable


def _double(rows: NDArray[Any], good: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    wide = rows.astype(np.float64)
    wide[~good] = 0.0
    largest = np.abs(wide).max(axis=1)
    far = good & ((largest > 1e100) | (largest < 1e-100))
    wide[far] /= largest[far, None]
    return wide, 1.0 / np.sqrt(np.where(good, np.vecdot(wide, wide), 1.0))


def _weighted_sum(block: NDArray[Any], inverse: NDArray[Any]) -> FloatArray:
    """Sum of the rows times their inverse norms."""
    n, d = block.shape
    strip = max(8, min(64, STRIP // d))
    whole = n // strip * strip
    strips = inverse[:whole].reshape(-1, 1, strip) @ block[:whole].reshape(-1, strip, d)
    total = strips.sum(axis=(0, 1), dtype=np.float64)
    return total if whole == n else total + inverse[whole:] @ block[whole:]


def _grouped(owner: Owners, owners: int) -> NDArray[np.intp]:
    narrow = owner.astype(np.uint16) if owners <= 65_536 else owner  # numpy sorts 16 bits by radix
    return np.argsort(narrow, kind="stable")


def _add_by(total: FloatArray, block: NDArray[Any], inverse: NDArray[Any], owner: Owners) -> None:
    """Add rows, sorted by owner, to their owners' totals."""
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    edges = np.r_[starts, len(owner)]
    if len(starts) <= FEW_OWNERS:
        for at, start in enumerate(starts):
            run = slice(start, edges[at + 1])
            total[owner[start]] += _weighted_sum(block[run], inverse[run])
    else:
        from scipy.sparse import csr_array

        columns = np.arange(len(owner))
        picker = csr_array((inverse.astype(np.float64), columns, edges), shape=(len(starts), len(owner)))
        total[owner[starts]] += picker @ block.astype(np.float64)
