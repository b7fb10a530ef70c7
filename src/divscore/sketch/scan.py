"""One pass over a block of vectors: sums of unit vectors, and counts of score cells, by collection.

The arithmetic is arranged around three facts. Reading the vectors from memory is the cost that cannot be
avoided, so all three products (norm, score, sum) run on pieces that stay in the cache. A row gets the same
score wherever it stands, so that removing an item finds the cell in which adding it was counted. And short sums
in single precision, added up in double precision, leave an error of about 1e-10 in a mean over the tens of
thousands of rows for which they are used (5e-9 was the worst found, on vectors that nearly coincide, and 2e-9 in
small collections that share a large block); smaller inputs are summed in double precision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.sketch.codes import tally
from divscore.sketch.scorer import LARGEST, LEVELS, SMALLEST, Scorer

__all__ = [
    "ZERO",
    "Owners",
    "Scan",
    "add_by_owner",
    "row_dots",
    "scan",
    "strip_rows",
    "sums_of_many",
    "weighted_sum",
]


# Products over short strips of rows: fast, in one thread, and the same for a row wherever it stands.

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


# Sums of rows by the collection that each belongs to.

FEW_OWNERS = 64  # collections among the rows up to which each is summed by a product of its own
TOGETHER = 32  # rows of one collection that are summed before they are added in double precision

Owners = NDArray[np.intp]
_HELD = threading.local()


def add_by_owner(total: FloatArray, block: NDArray[Any], inverse: NDArray[Any], owner: Owners) -> None:
    """Add rows, each times its inverse length, to the totals of their owners."""
    if (owner[1:] < owner[:-1]).any():
        order = _by_owner(owner, len(total))
        owner, inverse = owner[order], inverse[order]
        block = np.take(block, order, axis=0, out=_buffer(block), mode="clip")
    starts = _starts(owner)
    edges = np.append(starts, len(owner))
    if len(starts) <= FEW_OWNERS:
        for at, start in enumerate(starts):
            run = slice(start, edges[at + 1])
            total[owner[start]] += weighted_sum(block[run], inverse[run])
    else:
        columns = np.arange(len(owner))
        total[owner[starts]] += _picked(block.astype(np.float64), inverse, columns, edges)


def sums_of_many(
    block: NDArray[Any], inverse: NDArray[Any], owner: Owners, owners: int
) -> NDArray[np.floating]:
    """Sum rows, each times its inverse length, for thousands of owners.

    A few at a time in the precision of the rows, which is the result's where none has more: in single precision the
    mean of some dozen unit vectors errs by 3e-8 at most.
    """
    if np.bincount(owner).max() <= TOGETHER:
        return _handed_out(block, inverse, owner, owners)
    order = _by_owner(owner, owners)
    ordered = owner[order]
    starts = _starts(ordered)
    lengths = np.diff(starts, append=len(owner))
    if lengths.max() > TOGETHER:
        within = np.arange(len(owner)) - np.repeat(starts, lengths)
        starts = np.flatnonzero(within % TOGETHER == 0)
    sums = _picked(block, inverse[order], order, np.append(starts, len(owner)))
    whose = ordered[starts]
    first = np.concatenate([[True], whose[1:] != whose[:-1]])
    if first.all() and len(whose) == owners:
        return sums
    total = np.zeros((owners, block.shape[1]))
    total[whose[first]] = sums[first]
    more = np.flatnonzero(~first)
    if more.size:
        runs = _starts(whose[more])
        rest = _picked(
            sums[more].astype(np.float64),
            np.ones(len(more)),
            np.arange(len(more)),
            np.append(runs, len(more)),
        )
        total[whose[more[runs]]] += rest
    return total


def _handed_out(
    block: NDArray[Any], weights: NDArray[Any], owner: Owners, owners: int
) -> NDArray[np.floating]:
    """Weighted sums of a block's rows by owner: read in their order, which is faster than by owner."""
    from scipy.sparse import csc_array

    rows = np.arange(len(block) + 1, dtype=np.int32)
    giver = csc_array((weights.astype(block.dtype), owner.astype(np.int32), rows), shape=(owners, len(block)))
    return np.asarray(giver @ block)


def _picked(
    block: NDArray[Any], weights: NDArray[Any], columns: NDArray[np.intp], edges: NDArray[np.intp]
) -> NDArray[Any]:
    """Weighted sums of the rows `columns` of a block, from one edge to the next."""
    from scipy.sparse import csr_array

    picker = csr_array((weights.astype(block.dtype), columns, edges), shape=(len(edges) - 1, len(block)))
    return np.asarray(picker @ block)


def _by_owner(owner: Owners, owners: int) -> NDArray[np.intp]:
    narrow = owner.astype(np.uint16) if owners <= 65_536 else owner  # numpy sorts 16 bits by radix
    return np.argsort(narrow, kind="stable")


def _starts(owner: Owners) -> NDArray[np.intp]:
    return np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))


def _buffer(block: NDArray[Any]) -> NDArray[Any]:
    """Memory of the shape of `block`, the thread's own and used again: fresh pages cost more than the copy."""
    held = getattr(_HELD, "block", None)
    if held is None or held.dtype != block.dtype or held.shape[1] != block.shape[1] or len(held) < len(block):
        held = _HELD.block = np.empty_like(block)
    return np.asarray(held[: len(block)])


CHUNK = 65_536  # rows handed to one thread; fixed, so that the answer does not depend on their number
PIECE = 2_048  # rows whose vectors are expected to stay in the cache
WINDOW = 2  # pieces whose rows are summed by collection at once
SINGLE = 32_768  # from this many float32 rows on, strips are precise enough
ZERO, NONFINITE = np.uint8(254), np.uint8(255)  # in place of a level: why a row was skipped

Levels = NDArray[np.uint8]


@dataclass(frozen=True)
class Scan:
    """What one pass found, for each of several collections."""

    totals: NDArray[np.floating]  # (owners, d): sums of unit vectors
    levels: NDArray[np.int64]  # (owners, LEVELS): usable items by level
    zero: NDArray[np.int64]  # (owners,): items skipped for being zero
    nonfinite: NDArray[np.int64]  # (owners,): items skipped for not being finite
    keys: NDArray[np.int64]  # owner · stride + level · cells + cell, the occupied ones in order
    counts: NDArray[np.int64]  # items at each key
    level: Levels  # (rows,): level of each row; ZERO and above for skipped ones


def scan(
    rows: NDArray[Any],
    scorer: Scorer,
    owner: Owners | None = None,
    owners: int = 1,
    *,
    workers: int = 1,
    seen: int = 0,
    shared: bool = False,
) -> Scan:
    """Pass over `rows` once, after `seen` others; `owner` says to which collection each row belongs.

    `shared` is for thousands of collections, of which a block has few rows each: their sums are less precise.
    """
    n = len(rows)
    level = np.empty(n, dtype=np.uint8)
    single = rows.dtype == np.float32 and n + seen >= SINGLE

    def chunk(start: int) -> _Part:
        part = slice(start, min(start + CHUNK, n))
        mine = None if owner is None else owner[part]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return _scan_chunk(rows[part], scorer, single, level[part], mine, owners, shared)

    parts = iter(_in_order(chunk, range(0, n, CHUNK), workers))
    # The first chunk's arrays are added to: with thousands of collections they are large.
    totals, table, keys, counts = next(parts, None) or _nothing(owners, rows.shape[1])
    rest = list[tuple[NDArray[np.int64], NDArray[np.int64]]]()
    for total, by_level, *found in parts:
        totals = totals.astype(np.float64, copy=False)
        totals += total
        table += by_level
        rest.append((found[0], found[1]))
    if rest:
        keys, counts = tally(
            np.concatenate([keys, *(each for each, _ in rest)]),
            np.concatenate([counts, *(each for _, each in rest)]),
        )
    return Scan(totals, table[:, :LEVELS], table[:, LEVELS], table[:, LEVELS + 1], keys, counts, level)


_Part = tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _nothing(owners: int, dimension: int) -> _Part:
    empty = np.empty(0, dtype=np.int64)
    return np.zeros((owners, dimension)), np.zeros((owners, LEVELS + 2), dtype=np.int64), empty, empty


def _in_order(task: Callable[[int], _Part], items: range, workers: int) -> Iterable[_Part]:
    if workers <= 1 or len(items) <= 1:
        return map(task, items)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, items))


def _scan_chunk(
    rows: NDArray[Any],
    scorer: Scorer,
    single: bool,
    level: Levels,
    owner: Owners | None,
    owners: int,
    shared: bool,
) -> _Part:
    scores = np.empty((len(rows), scorer.scores), dtype=np.float32)
    skipped: list[tuple[int, Levels]] = []
    total = None
    if single and rows.flags.c_contiguous:
        total = _hurry(rows, scorer, scores, owner, owners, shared)
    if total is None:
        total = np.zeros((owners, rows.shape[1]))
        for at in range(0, len(rows), PIECE):
            piece = slice(at, at + PIECE)
            block, inverse, why = _score(rows[piece], scorer, single, scores[piece])
            _add(total, block, inverse, None if owner is None else owner[piece])
            if why is not None:
                skipped.append((at, why))
    _assign_levels(scores, scorer, level, skipped)
    kinds = LEVELS + 2
    # The two marks of skipped rows are the largest numbers there are; here they follow the levels.
    kind = np.where(level < ZERO, level, level - (ZERO - LEVELS)).astype(np.intp)
    by_level = np.bincount(kind if owner is None else kind + owner * kinds, minlength=owners * kinds)
    return total, by_level.reshape(owners, kinds), *_cells(scores, scorer, owner, owners, level)


def _hurry(
    rows: NDArray[Any],
    scorer: Scorer,
    scores: NDArray[np.float32],
    owner: Owners | None,
    owners: int,
    shared: bool,
) -> NDArray[np.floating] | None:
    """Score and sum rows as if all were usable; whether they were is found out at the end.

    The same numbers as `_score` gives, with as few calls as possible.
    """
    later = shared and owner is not None
    total = np.zeros((0 if later else owners, rows.shape[1]))
    square = np.empty(len(rows), dtype=np.float32)
    inverse = np.empty(len(rows), dtype=np.float32)
    size = PIECE // strip_rows(rows.shape[1]) * strip_rows(rows.shape[1])
    # Rows of mixed collections are summed less often, so that there are more of each collection at a time.
    window = size if owner is None or later else WINDOW * size
    for start in range(0, len(rows), window):
        for at in range(start, min(start + window, len(rows)), size):
            piece = slice(at, at + size)
            block = rows[piece]
            np.reciprocal(np.sqrt(np.vecdot(block, block, out=square[piece])), out=inverse[piece])
            for j, w in enumerate(scorer.weights32):
                np.multiply(row_dots(block, w), inverse[piece], out=scores[piece, j])
        whole = slice(start, start + window)
        if not later:
            _add(total, rows[whole], inverse[whole], None if owner is None else owner[whole])
    if not (square.min() > SMALLEST and square.max() < LARGEST):
        return None
    return total if owner is None or not shared else sums_of_many(rows, inverse, owner, owners)


def _assign_levels(
    scores: NDArray[np.float32], scorer: Scorer, level: Levels, skipped: list[tuple[int, Levels]]
) -> None:
    scores += scorer.intercept32
    level[:] = scorer.level(scores)
    for at, why in skipped:
        here = level[at : at + len(why)]
        here[why > 0] = why[why > 0]


def _cells(
    scores: NDArray[np.float32], scorer: Scorer, owner: Owners | None, owners: int, level: Levels
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys = scorer.grid.encode(scores)
    # With two groups all items are counted, so their level does not matter and would only spread them out.
    if scorer.groups > 2:
        keys += level * np.int64(scorer.grid.cells)
    if owner is not None:
        keys += owner * np.int64(scorer.stride)
    if level.max() >= ZERO:
        keys = keys[level < ZERO]
    return tally(keys, space=scorer.stride * owners)


def _score(
    rows: NDArray[Any], scorer: Scorer, single: bool, scores: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[Any], Levels | None]:
    """Score rows; return them with their inverse norms, ready to be summed, and why some were skipped."""
    block, inverse, why = _normalise(rows)
    for j, w in enumerate(scorer.weights32):
        np.multiply(row_dots(block, w), inverse, out=scores[:, j])
    return (block, inverse, why) if single else (*_double(rows, why), why)


def _normalise(rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32], Levels | None]:
    """Rows in single precision with their inverse norms; those that cannot be used are blanked and marked."""
    block = np.ascontiguousarray(rows, dtype=np.float32)
    square = np.vecdot(block, block)
    if square.min() > SMALLEST and square.max() < LARGEST:
        return block, np.reciprocal(np.sqrt(square)), None
    odd = np.flatnonzero(~((square > SMALLEST) & (square < LARGEST)))
    block, why = block.copy(), np.zeros(len(rows), dtype=np.uint8)
    block[odd], why[odd] = _mend(rows[odd])
    square[odd] = np.where(why[odd] == 0, np.vecdot(block[odd], block[odd]), 1.0)
    return block, np.reciprocal(np.sqrt(square)), why


def _mend(rows: NDArray[Any]) -> tuple[FloatArray, Levels]:
    """Rescale rows whose squares leave the range of single precision; blank the useless ones."""
    wide = rows.astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    wide[~finite] = 0.0
    largest = np.abs(wide).max(axis=1)
    why = np.where(finite, np.where(largest > 0, np.uint8(0), ZERO), NONFINITE)
    return wide / np.where(largest > 0, largest, 1.0)[:, None], why


def _double(rows: NDArray[Any], why: Levels | None) -> tuple[FloatArray, FloatArray]:
    wide = rows.astype(np.float64)
    if why is not None:
        wide[why > 0] = 0.0
        largest = np.abs(wide).max(axis=1)
        wide /= np.where(largest > 0, largest, 1.0)[:, None]
    square = np.vecdot(wide, wide)
    return wide, 1.0 / np.sqrt(np.where(square > 0, square, 1.0))


def _add(total: FloatArray, block: NDArray[Any], inverse: NDArray[Any], owner: Owners | None) -> None:
    if owner is None:
        total[0] += weighted_sum(block, inverse)
    else:
        add_by_owner(total, block, inverse, owner)
