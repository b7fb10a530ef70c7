"""The hot loop: one pass over a chunk of vectors gives sums, score cells and candidates for the sample.

Reading the vectors from memory is the cost that cannot be avoided, so all products (norm, score, hash, sum) run on
pieces of about 2,000 rows that stay in the cache. Two rules keep results independent of how the rows are split:

- A row gets the same score and hash wherever it stands, so removing an item finds the cell that counted it.
- Single precision is used only within short sums, which are added in double precision. That leaves an error of about
  1e-10 in a mean over tens of thousands of rows (5e-9 at most, for vectors that nearly coincide, and 1e-7 for a small
  collection among thousands). Smaller inputs are summed in double precision throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, usable_rows
from divscore.sketch.sample import ITEMS, Hashes, Owners, sort_keys
from divscore.sketch.scorer import Scorer

# Numbers in a strip of rows. From 9,216 on OpenBLAS starts threads of its own for a product with a vector, which costs
# more than it brings. The same everywhere: sums over strips of another length are rounded otherwise, and a worker with
# one thread must give the same bits as a process with several.
STRIP = 9_000
PIECE = 2_048  # rows that are expected to stay in the cache
WINDOW = 4  # pieces whose rows are summed by owner together
RUNS = 4  # collections that follow each other in a window and are summed one by one
TOGETHER = 64  # most rows of one collection among many that are summed in single precision
SMALLEST, LARGEST = np.float32(1e-30), np.float32(1e30)  # squared lengths that are safe in single precision
FULL = np.float32(127)
CHUNK = 20 << 20  # numbers in one scan
SINGLE = 32_768  # float32 rows from which short sums in single precision are precise enough

# Rows, a code for each, the names of the codes.
Block = tuple[NDArray[Any], NDArray[np.intp] | None, Sequence[str]]
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, on whichever workers


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
    tally: NDArray[np.int64]  # (owners, 3): rows that are usable, zero, or not finite
    usable: NDArray[np.intp]  # rows
    owner: Owners  # of each usable row
    cells: NDArray[np.int64] | None  # of each usable row; two groups
    joint: Candidates | None  # steps of all scores; three groups or more
    sample: Candidates


@dataclass(frozen=True)
class ScannedChunk:
    """The scan of some rows of the collections `at`, not yet counted anywhere."""

    at: Owners
    scan: Scan
    similarity: FloatArray  # (owners, m)


def scan_blocks(
    blocks: Iterable[Block],
    control: ControlSet,
    scorer: Scorer,
    places: Callable[[list[str]], Owners],
    limits: Callable[[Owners], Limits],
    *,
    seen: int = 0,
    mapper: Mapper = map,
) -> Iterable[ScannedChunk]:
    """Scan blocks in chunks, which `mapper` may share among threads; the results are in order.

    Chunks have a fixed length and are folded in order, so the answer does not depend on the number of threads. `places`
    gives names their places in a table, and `limits` says which of their items are candidates. `seen` is the number of
    rows that came before, in other passes: it decides how precise short sums must be.
    """

    def chunks() -> Iterator[tuple[NDArray[Any], Owners | None, Owners, bool, Limits]]:
        nonlocal seen
        size = max(PIECE, min(65_536, CHUNK // control.dimension))
        for rows, codes, names in blocks:
            single = len(rows) + seen >= SINGLE
            seen += len(rows)
            for start in range(0, len(rows), size):
                part, owner, occurring = slice(start, start + size), None, list(names)
                if codes is not None:
                    # A chunk may have few of a file's names: a scan without the others takes less memory.
                    occurs = np.bincount(codes[part]) > 0
                    occurring = [names[at] for at in np.flatnonzero(occurs).tolist()]
                    owner = (np.cumsum(occurs) - 1)[codes[part]] if len(occurring) > 1 else None
                at = places(occurring)
                yield rows[part], owner, at, single, limits(at)

    def task(chunk: tuple[NDArray[Any], Owners | None, Owners, bool, Limits]) -> ScannedChunk:
        rows, owner, at, single, limit = chunk
        part = scan(rows, scorer, limit, owner, single=single)
        similarity = np.zeros((len(at), 0))
        if not control.similarity.collapses:
            similarity = _similarities(control, rows, len(at), part)
        return ScannedChunk(at, part, similarity)

    return mapper(task, chunks())


def _similarities(control: ControlSet, rows: NDArray[Any], owners: int, part: Scan) -> FloatArray:
    """Σ_x sim(x, t_j) for every owner and representative j: m numbers instead of d, for any similarity."""
    chosen = control.vectors[control.representative].astype(np.float64)
    total = np.zeros((owners, len(chosen)))
    for start in range(0, len(part.usable), 4096):
        some = slice(start, start + 4096)
        pairs = control.similarity.pairs(rows[part.usable[some]].astype(np.float64), chosen)
        np.add.at(total, part.owner[some], pairs)
    return total


@one_thread
def scan(
    rows: NDArray[Any], scorer: Scorer, limits: Limits, owner: Owners | None = None, *, single: bool = False
) -> Scan:
    """Pass over one chunk of rows; `owner` is the collection of each row, if they are several.

    `single` allows single precision in short sums of float32 rows.
    """
    single = single and rows.dtype == np.float32
    n, owners = len(rows), len(limits.sample)
    why: NDArray[np.uint8] | None = None  # a row is skipped: 0 not at all, 1 zero, 2 not finite
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        block: NDArray[np.float32] = np.ascontiguousarray(rows, dtype=np.float32)
        square, inverse, scores, words, totals = _products(rows, block, why, scorer, owner, owners, single)
        if not (square.min(initial=1) > SMALLEST and square.max(initial=1) < LARGEST):
            # Rare, so checked at the end: two comparisons of every piece would cost more.
            block, why = _cleaned(rows, block, square)
            _, inverse, scores, words, totals = _products(rows, block, why, scorer, owner, owners, single)
        # Lengths are divided out of the products: one number a row, where unit vectors would be a copy of all rows.
        scores *= inverse[:, None]
        scores += scorer.fit.weights[-1].astype(np.float32)
    hashes = scorer.row_hash.mixed(words)
    mine, usable = np.zeros(n, dtype=np.intp) if owner is None else owner, np.arange(n)
    tally = np.zeros((owners, 3), dtype=np.int64)
    tally[:, 0] = n if owner is None else np.bincount(owner, minlength=owners)
    if why is not None:
        tally = np.bincount(3 * mine + why, minlength=3 * owners).reshape(owners, 3)
        usable = np.flatnonzero(why == 0)
        hashes, scores, mine = hashes[usable], scores[usable], mine[usable]
    cells, joint = None, None
    if limits.joint is None:
        cells = scorer.grid.steps(scores)[:, 0].astype(np.int64)
    else:
        below = np.flatnonzero(hashes < (limits.joint[0] if owner is None else limits.joint[mine]))
        steps = np.ascontiguousarray(scorer.grid.steps(scores[below]), dtype=np.int16)
        ones = np.ones(len(below), dtype=np.float32)
        joint = Candidates(mine[below], hashes[below], steps.view(np.uint8), ones)
    chosen = np.flatnonzero(hashes < (limits.sample[0] if owner is None else limits.sample[mine]))
    if len(chosen) > 4 * ITEMS * owners:
        # Limits are still at their top. To find the few that can stay is faster than to encode all.
        chosen = chosen[_least(mine[chosen], hashes[chosen], owners)]
    units, step = _encoded(block, inverse, usable[chosen])
    sample = Candidates(mine[chosen], hashes[chosen], units, step)
    return Scan(totals, tally, usable, mine, cells, joint, sample)


@one_thread
def usable_in_bulk(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows `scan` counts, read from memory once: those that are neither zero nor have NaN or infinite numbers."""
    square = np.empty(len(rows), dtype=rows.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for at in range(0, len(rows), PIECE):
            np.vecdot(rows[at : at + PIECE], rows[at : at + PIECE], out=square[at : at + PIECE])
    usable = (square > SMALLEST) & (square < LARGEST)
    if not usable.all():
        odd = np.flatnonzero(~usable)
        usable[odd] = usable_rows(rows[odd])
    return usable


@one_thread
def score_rows(rows: NDArray[Any], scorer: Scorer) -> NDArray[np.float32]:
    """Scores (n, q) of usable rows as `scan` computes them."""
    block: NDArray[np.float32] = np.ascontiguousarray(rows, dtype=np.float32)
    weights = np.ascontiguousarray(scorer.fit.weights[:-1].T, dtype=np.float32)
    strip, steady = scorer.once(_strip)
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.vecdot(block, block)
        if not (square.min(initial=1) > SMALLEST and square.max(initial=1) < LARGEST):
            block, _ = _cleaned(rows, block, square)
            square = np.vecdot(block, block)
    scores = [_dots(block, each, strip) if steady else np.vecdot(block, each) for each in weights]
    result = np.stack(scores, axis=1, dtype=np.float32)
    result /= np.sqrt(square)[:, None]
    result += scorer.fit.weights[-1].astype(np.float32)
    return result


def _products(
    rows: NDArray[Any],
    block: NDArray[np.float32],
    why: NDArray[np.uint8] | None,
    scorer: Scorer,
    owner: Owners | None,
    owners: int,
    single: bool,
) -> tuple[NDArray[Any], ...]:
    """Squared and inverse lengths, dot products with all directions, hashed words, and sums of unit vectors.

    Every piece is read from memory once.
    """
    n, d = block.shape
    weights = np.ascontiguousarray(scorer.fit.weights[:-1].T, dtype=np.float32)
    square, inverse = np.empty((2, n), dtype=np.float32)
    scores = np.empty((n, len(weights)), dtype=np.float32)
    words = np.empty((n, len(scorer.row_hash.factors)), dtype=np.float32)
    total: NDArray[Any] = np.zeros((owners, d), dtype=np.float32)
    strip, steady = scorer.once(_strip)
    size = window = max(strip, PIECE // strip * strip)
    if owner is not None:
        # A window writes one sum for every owner, so many owners need large windows. In double precision these are
        # limited, as their rows are copied.
        window = size * (max(WINDOW, owners * TOGETHER // size) if single else 2 * WINDOW)
    for start in range(0, n, window):
        for at in range(start, min(start + window, n), size):
            piece = slice(at, at + size)
            some, factor = block[piece], inverse[piece]
            np.vecdot(some, some, out=square[piece])
            np.reciprocal(np.sqrt(square[piece], out=factor), out=factor)
            if why is not None:
                factor[why[piece] > 0] = 0.0
            for j, direction in enumerate(weights):
                scores[piece, j] = _dots(some, direction, strip) if steady else np.vecdot(some, direction)
            # Copied while the piece is in the cache; later each of them would be a read from memory.
            words[piece] = some[:, scorer.row_hash.words]
        part = slice(start, start + window)
        values, lengths = (
            (block[part], inverse[part])
            if single
            else _double(rows[part], None if why is None else why[part])
        )
        mine = np.zeros(len(values), dtype=np.intp) if owner is None else owner[part]
        edges = np.flatnonzero(mine[1:] != mine[:-1]) + 1
        if len(edges) < RUNS:  # one collection, or a file that is sorted by collection
            summed: NDArray[Any] = np.zeros((owners, d))
            for first, last in pairwise([0, *edges, len(mine)]):
                summed[mine[first]] += _weighted_sum(values[first:last], lengths[first:last], strip)
        else:
            summed = _by_owner(values, lengths, mine, owners)
        # The first sum may be the only one, and large: it stays in its own precision until another is added.
        if start:
            total = total.astype(np.float64, copy=False)
            total += summed
        else:
            total = summed
    return square, inverse, scores, words, total


def _dots(block: NDArray[np.float32], weights: NDArray[np.float32], strip: int) -> NDArray[np.float32]:
    """Dot product of every row with `weights`, independent of the other rows.

    Removing an item must find the cell that counted it. A product of a whole block with a vector does not promise
    that: BLAS sums the rows left over from its inner loop in another order. Strips of full length promise it on
    most machines, and `np.vecdot`, which is slower, on all.
    """
    n, d = block.shape
    whole = n // strip * strip
    dots: NDArray[np.float32] = np.matmul(block[:whole].reshape(-1, strip, d), weights).reshape(-1)
    if whole == n:
        return dots
    last = np.zeros((strip, d), dtype=np.float32)
    last[: n - whole] = block[whole:]
    return np.concatenate([dots, np.matmul(last, weights)[: n - whole]], dtype=np.float32)


def _strip(scorer: Scorer) -> tuple[int, bool]:
    """Rows of a strip, and whether BLAS gives a row the same result in every place of it: measured on random rows."""
    d = scorer.control.dimension
    strip = max(8, min(64, STRIP // d // 4 * 4))
    rng = np.random.default_rng(d)
    block = rng.standard_normal((strip, d), dtype=np.float32)
    weights = rng.standard_normal(d, dtype=np.float32)
    dots = block @ weights
    same = (np.array_equal(np.roll(block, s, axis=0) @ weights, np.roll(dots, s)) for s in range(1, strip))
    return strip, strip * d <= STRIP and all(same)


def _weighted_sum(block: NDArray[Any], weights: NDArray[Any], strip: int) -> FloatArray:
    """Sum of rows times their weights: in the rows' own precision within a strip, in double between strips."""
    n, d = block.shape
    whole = n // strip * strip
    strips = weights[:whole].reshape(-1, 1, strip) @ block[:whole].reshape(-1, strip, d)
    total: FloatArray = strips.sum(axis=(0, 1), dtype=np.float64)
    if whole < n:
        total += weights[whole:] @ block[whole:]
    return total


def _cleaned(
    rows: NDArray[Any], block: NDArray[np.float32], square: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Rescale rows with squares outside the range of single precision, and blank those that cannot be used.

    Also return for every row why it is skipped.
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
    """Sum rows times their inverse lengths by owner: a sparse product that reads the rows in their order.

    Long sums in single precision are cut into lanes of `TOGETHER` rows, which are added in double precision.
    """
    from scipy.sparse import csc_array

    n, place, places = len(block), owner, owners
    counts = np.bincount(owner, minlength=owners)
    cut = block.dtype == np.float32 and counts.max() > TOGETHER
    if cut:
        lanes = np.maximum(-(-counts // TOGETHER), 1)
        ends = np.cumsum(lanes)
        places = int(ends[-1])
        sizes = np.full(places, TOGETHER)
        sizes[ends - 1] = counts - TOGETHER * (lanes - 1)
        # Numbers of 16 bits are sorted in linear time.
        order = np.argsort(owner.astype(np.uint16 if owners <= 1 << 16 else np.intp), kind="stable")
        place = np.empty(n, dtype=np.intp)
        place[order] = np.repeat(np.arange(places), sizes)
    columns = np.arange(n + 1, dtype=np.int32)
    sums = np.asarray(csc_array((inverse, place.astype(np.int32), columns), shape=(places, n)) @ block)
    return np.add.reduceat(sums, ends - lanes, axis=0, dtype=np.float64) if cut else sums


def _least(owner: Owners, hashes: Hashes, owners: int) -> NDArray[np.bool_]:
    """Return which items can be among the `ITEMS` of their owner: those with one of its smallest different hashes.

    One more than the sample keeps, so that the fold lowers its limit to the same hash as it would with all of them.
    """
    keys = sort_keys(owner, hashes, owners)
    order = np.argsort(keys)
    mine, keys = owner[order], keys[order]
    starts = np.flatnonzero(np.diff(mine, prepend=-1))
    different = np.cumsum(np.diff(keys, prepend=keys[:1]) != 0)
    kept = np.empty(len(order), dtype=bool)
    kept[order] = different - np.repeat(different[starts], np.diff(starts, append=len(order))) <= ITEMS
    return kept


def _encoded(
    block: NDArray[np.float32], inverse: NDArray[np.float32], chosen: NDArray[np.intp]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Unit vectors of some rows, a byte a component: half the room of float16, and five times as fast."""
    n, d = len(chosen), block.shape[1]
    units, step = np.empty((n, d), dtype=np.int8), np.empty(n, dtype=np.float32)
    # Memory that is used again: fresh pages would cost more than the arithmetic.
    rows, size = np.empty((2, min(n, PIECE // 4), d), dtype=np.float32)
    for start in range(0, n, PIECE // 4):
        some = chosen[start : start + PIECE // 4]
        piece, row = slice(start, start + len(some)), rows[: len(some)]
        np.take(block, some, axis=0, out=row, mode="clip")
        # Twice as fast as `max` of many short rows.
        ends = np.arange(0, row.size, d)
        largest = np.maximum.reduceat(np.abs(row, out=size[: len(some)]).ravel(), ends)
        step[piece] = largest * inverse[some] / FULL
        row *= (FULL / largest)[:, None]
        units[piece] = np.rint(row, out=row)
    return units.view(np.uint8), step
