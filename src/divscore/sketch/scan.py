"""The hot loop: one pass over a chunk of vectors gives sums, score cells and candidates for the sample.

Reading the vectors from memory is the cost that cannot be avoided, so all products (norm, score, hash, sum) run on
pieces of about 2,000 rows that stay in the cache. Two rules keep results independent of how the rows are split:

- A row gets the same score and hash wherever it stands, so removing an item finds the cell that counted it.
- Single precision is used only within short sums, which are added in double precision. That leaves an error of about
  1e-10 in a mean over tens of thousands of rows (5e-9 at most, for vectors that nearly coincide, and 1e-7 for a small
  collection among thousands). Smaller inputs are summed in double precision throughout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.sketch.sample import ITEMS, Hashes, Owners
from divscore.sketch.scorer import Scorer

CHUNK = 20 << 20  # numbers in one scan
PIECE = 2_048  # rows that are expected to stay in the cache
SINGLE = 32_768  # float32 rows from which short sums in single precision are precise enough
TOGETHER = 16  # rows of one collection among many that are summed in single precision, about
RUNS = 4  # collections that follow each other in a window and are summed one by one
SMALLEST, LARGEST = np.float32(1e-30), np.float32(1e30)  # squared lengths that are safe in single precision
FULL = np.float32(127)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Limits:
    """Which rows are candidates: those with a hash below the limit of their owner."""

    sample: Hashes  # (owners,)
    joint: Hashes | None  # (owners,); with three groups or more


@dataclass(frozen=True)
class Candidates:
    """Rows for a bottom-k sample, as bytes in units of `step`."""

    owner: Owners
    hash: Hashes
    rows: NDArray[np.uint8]
    step: NDArray[np.float32]


@dataclass(frozen=True)
class Scan:
    """Result of a pass over some rows, for each of several owners."""

    totals: NDArray[np.floating]  # (owners, d): sums of unit vectors
    usable: NDArray[np.int64]  # (owners,)
    zero: NDArray[np.int64]  # (owners,): rows that are zero
    nonfinite: NDArray[np.int64]  # (owners,): rows with numbers that are not finite
    keys: NDArray[np.int64] | None  # owner · side + cell of each usable row; two groups
    joint: Candidates | None  # steps of all scores; three groups or more
    sample: Candidates
    skipped: NDArray[np.intp]  # rows that are not usable


def in_order(task: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Run a task on threads and yield the results in the order of the items, at most a few ahead."""
    if workers <= 1:
        yield from map(task, items)
        return
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            waiting.append(pool.submit(task, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def chunk_rows(dimension: int) -> int:
    """Rows of one scan. Fixed, so that sums do not depend on the number of threads."""
    return max(PIECE, min(65_536, CHUNK // dimension))


def scan(
    rows: NDArray[Any],
    scorer: Scorer,
    limits: Limits,
    owner: Owners | None = None,
    *,
    single: bool = False,
) -> Scan:
    """Pass over one chunk of rows; `owner` is the collection of each row, if they are several.

    `single` allows single precision in short sums of float32 rows.
    """
    single = single and rows.dtype == np.float32
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        block: NDArray[np.float32] = np.ascontiguousarray(rows, dtype=np.float32)
        why = None
        products = _Products(block, scorer, owner, len(limits.sample), single)
        products.run(rows, None)
        if not (products.square.min(initial=1) > SMALLEST and products.square.max(initial=1) < LARGEST):
            # Rare, so checked at the end: two comparisons of every piece would cost more.
            block, why = _cleaned(rows, block, products.square)
            products = _Products(block, scorer, owner, len(limits.sample), single)
            products.run(rows, why)
        return _result(products, block, why, scorer, limits, owner)


class _Products:
    """Lengths, scores and hashed words of rows, and sums of unit vectors; every piece is read from memory once."""

    def __init__(
        self, block: NDArray[np.float32], scorer: Scorer, owner: Owners | None, owners: int, single: bool
    ) -> None:
        self.block, self.scorer, self.owner, self.owners, self.single = block, scorer, owner, owners, single
        self.square = np.empty(len(block), dtype=np.float32)
        self.inverse = np.empty(len(block), dtype=np.float32)
        self.scores = np.empty((len(block), scorer.scores), dtype=np.float32)
        self.words = np.empty((len(block), len(scorer.row_hash.factors)), dtype=np.float32)
        self.total: NDArray[np.floating] = np.zeros((owners, block.shape[1]), dtype=np.float32)

    def run(self, rows: NDArray[Any], why: NDArray[np.uint8] | None) -> None:
        n, scorer, many = len(self.block), self.scorer, self.owner is not None
        size = max(scorer.strip, PIECE // scorer.strip * scorer.strip)
        # A window writes one sum for every owner, so many owners need large windows.
        most = -(-(n if self.single else 8 * PIECE) // size)
        window = size * min(max(self.owners * 4 * TOGETHER // size, 1), most) if many else size
        for start in range(0, n, window):
            for at in range(start, min(start + window, n), size):
                piece = slice(at, at + size)
                block, inverse = self.block[piece], self.inverse[piece]
                np.vecdot(block, block, out=self.square[piece])
                np.reciprocal(np.sqrt(self.square[piece], out=inverse), out=inverse)
                if why is not None:
                    inverse[why[piece] > 0] = 0.0
                for j, weights in enumerate(scorer.weights32):
                    self.scores[piece, j] = scorer.row_dots(block, weights)
                self.words[piece] = scorer.row_hash.words(block)
            part = slice(start, start + window)
            if self.single:
                self._sum(self.block[part], self.inverse[part], part, start == 0)
            else:
                self._sum(*_double(rows[part], None if why is None else why[part]), part, start == 0)

    def _sum(self, block: NDArray[Any], inverse: NDArray[Any], part: slice, first: bool) -> None:
        if self.owner is None:
            summed: NDArray[np.floating] = self.scorer.weighted_sum(block, inverse)[None]
        else:
            owner = self.owner[part]
            edges = np.flatnonzero(owner[1:] != owner[:-1]) + 1
            if len(edges) < RUNS:  # a file that is sorted by collection
                summed = np.zeros((self.owners, block.shape[1]))
                for start, stop in pairwise([0, *edges.tolist(), len(owner)]):
                    summed[owner[start]] += self.scorer.weighted_sum(block[start:stop], inverse[start:stop])
            else:
                summed = _by_owner(block, inverse, owner, self.owners)
        # The first sum may be the only one, and large: it stays in its own precision until another is added.
        self.total = summed if first else self.total.astype(np.float64, copy=False)
        if not first:
            self.total += summed


def _cleaned(
    rows: NDArray[Any], block: NDArray[np.float32], square: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Rescale rows with squares outside the range of single precision, and blank those that cannot be used.

    Also return for every row why it is skipped: 0 not at all, 1 zero, 2 not finite.
    """
    odd = np.flatnonzero(~((square > SMALLEST) & (square < LARGEST)))
    wide = rows[odd].astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    wide[~finite] = 0.0
    largest = np.abs(wide).max(axis=1)
    why = np.zeros(len(rows), dtype=np.uint8)
    why[odd] = np.where(finite, largest == 0, 2)
    block = block.copy()
    block[odd] = wide / np.where(largest > 0, largest, 1.0)[:, None]
    return block, why


def _result(
    products: _Products,
    block: NDArray[np.float32],
    why: NDArray[np.uint8] | None,
    scorer: Scorer,
    limits: Limits,
    owner: Owners | None,
) -> Scan:
    owners, scores = len(limits.sample), products.scores
    scores *= products.inverse[:, None]
    scores += scorer.intercept32
    hashes = scorer.row_hash.mixed(products.words)
    rows, skipped = np.arange(len(block)), np.empty(0, dtype=np.intp)
    usable, zero, nonfinite = (
        _tally(None if why is None else why == kind, owner, owners, len(block), kind) for kind in range(3)
    )
    if why is not None:
        skipped, rows = np.flatnonzero(why), np.flatnonzero(why == 0)
        hashes, scores = hashes[rows], scores[rows]
    mine = np.zeros(len(rows), dtype=np.intp) if owner is None else owner[rows] if len(skipped) else owner
    keys, joint = None, None
    if limits.joint is None:
        keys = scorer.grid.steps(scores)[:, 0].astype(np.int64)
        if owner is not None:
            keys += mine * np.int64(scorer.grid.side)
    else:
        below = np.flatnonzero(hashes < (limits.joint[0] if owner is None else limits.joint[mine]))
        steps = np.ascontiguousarray(scorer.grid.steps(scores[below]), dtype=np.int16)
        ones = np.ones(len(below), dtype=np.float32)
        joint = Candidates(mine[below], hashes[below], steps.view(np.uint8), ones)
    chosen = np.flatnonzero(hashes < (limits.sample[0] if owner is None else limits.sample[mine]))
    if len(chosen) > 4 * ITEMS * owners:  # limits are still at their top
        chosen = chosen[_least(mine[chosen], hashes[chosen], ITEMS)]
    units, step = _encoded(block, products.inverse, rows[chosen])
    sample = Candidates(mine[chosen], hashes[chosen], units, step)
    return Scan(products.total, usable, zero, nonfinite, keys, joint, sample, skipped)


def _least(owner: Owners, hashes: Hashes, k: int) -> NDArray[np.bool_]:
    """Return which items have one of the k + 1 smallest different hashes of their owner.

    One more than k, so that the fold lowers its limit to the same hash as it would with all of them.
    """
    order = np.lexsort((hashes, owner))
    mine, ordered = owner[order], hashes[order]
    first = np.concatenate([[True], mine[1:] != mine[:-1]])
    different = np.cumsum(first | np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    starts = np.flatnonzero(first)
    rank = different - np.repeat(different[starts], np.diff(starts, append=len(order)))
    kept = np.empty(len(order), dtype=bool)
    kept[order] = rank <= k
    return kept


def _tally(
    here: NDArray[np.bool_] | None, owner: Owners | None, owners: int, rows: int, kind: int
) -> NDArray[np.int64]:
    """Count rows of a kind by owner; without `here` all rows are usable."""
    if owner is None or (here is None and kind):
        members = here.sum() if here is not None else 0 if kind else rows
        return np.full(owners, members, dtype=np.int64)
    return np.bincount(owner if here is None else owner[here], minlength=owners).astype(np.int64, copy=False)


def _encoded(
    block: NDArray[np.float32], inverse: NDArray[np.float32], chosen: NDArray[np.intp]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Unit vectors of some rows, a byte a component: half the room of float16, and five times as fast."""
    units = np.empty((len(chosen), block.shape[1]), dtype=np.int8)
    step = np.empty(len(chosen), dtype=np.float32)
    # Memory that is used again: fresh pages would cost more than the arithmetic.
    rows, size = np.empty((2, min(len(chosen), PIECE // 4), block.shape[1]), dtype=np.float32)
    for start in range(0, len(chosen), PIECE // 4):
        some = chosen[start : start + PIECE // 4]
        piece, row = slice(start, start + len(some)), rows[: len(some)]
        np.take(block, some, axis=0, out=row, mode="clip")
        largest = np.abs(row, out=size[: len(some)]).max(axis=1)
        step[piece] = largest * inverse[some] / FULL
        row *= (FULL / largest)[:, None]
        units[piece] = np.rint(row, out=row)
    return units.view(np.uint8), step


def _double(rows: NDArray[Any], why: NDArray[np.uint8] | None) -> tuple[FloatArray, FloatArray]:
    """Rows in double precision, and their inverse lengths."""
    wide = rows.astype(np.float64)
    if why is not None:
        wide[why > 0] = 0.0
        largest = np.abs(wide).max(axis=1)
        wide /= np.where(largest > 0, largest, 1.0)[:, None]
    square = np.vecdot(wide, wide)
    return wide, 1.0 / np.sqrt(np.where(square > 0, square, 1.0))


def _by_owner(block: NDArray[Any], inverse: NDArray[Any], owner: Owners, owners: int) -> NDArray[np.floating]:
    """Sum rows times their inverse lengths by owner.

    Long sums in single precision are cut into lanes of about `TOGETHER` rows, which are added in double precision.
    """
    n = len(block)
    lanes = np.ones(owners, dtype=np.intp)
    if block.dtype == np.float32:
        counts = np.bincount(owner, minlength=owners)
        lanes = np.where(counts > 2 * TOGETHER, -(-counts // TOGETHER), 1)
    most = int(lanes.max())
    if most == 1:
        return _product(inverse, owner, owners, block)
    row = np.arange(n)
    if most * owners <= 4 * lanes.sum():
        sums = _product(inverse, owner + row * most // n * owners, most * owners, block)
        return np.asarray(sums.reshape(most, owners, -1).sum(axis=0, dtype=np.float64))
    first = np.cumsum(lanes) - lanes
    sums = _product(inverse, first[owner] + row * lanes[owner] // n, int(lanes.sum()), block)
    back = np.repeat(np.arange(owners), lanes)
    return _product(np.ones(len(back)), back, owners, sums.astype(np.float64))


def _product(weights: NDArray[Any], place: Owners, places: int, block: NDArray[Any]) -> NDArray[np.floating]:
    """Add every row times its weight to its place: a sparse product that reads the rows in their order."""
    from scipy.sparse import csc_array

    columns = np.arange(len(block) + 1, dtype=np.int32)
    return np.asarray(
        csc_array((weights, place.astype(np.int32), columns), shape=(places, len(block))) @ block
    )
