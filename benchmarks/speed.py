"""How fast the passes are, each against a yardstick measured in the same run.

Sides take turns, so that a busy moment of the machine hits all of them, and ratios are of the shortest times.
BLAS has one thread throughout; where two are said, they are the sketch's own.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from record import Check, Record, Table, parser, progress

from divscore import ControlSet, Sketch
from divscore.audit.audit import audit
from divscore.control.similarity import unit_rows
from divscore.estimators.self_training import self_training
from divscore.sketch.many import sketch_blocks
from divscore.sketch.scorer import scorer_for

LABELLED = 200
EXAMPLES = 50
COLLECTIONS = 20
BARE, ONE, TWO = "ones @ X", "sketch", "sketch, two threads"
RANDOM, SORTED = "20 collections, mixed rows", "20 collections, sorted rows"
PAIRWISE = "pairwise cosine with 50 examples, in blocks"
LIBRARY = "pairwise cosine with 50 examples, scikit-learn"
FRESH, CACHED = "audit, new control set", "audit, control set seen before"

Times = dict[str, list[float]]


def vectors(rows: int, dimension: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Make two overlapping groups, with variances that fall as principal components' do."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=rows)
    spread = (1.0 / np.sqrt(1.0 + np.arange(dimension))).astype(np.float32)
    shift = (rng.standard_normal(dimension) * spread * 0.25).astype(np.float32)
    found = rng.standard_normal((rows, dimension), dtype=np.float32)
    found *= spread
    found += np.where(group == 0, np.float32(1), np.float32(-1))[:, None] * shift
    return found, group


def labelled(X: NDArray[np.float32], group: NDArray[np.intp], perturbed: int = 0) -> ControlSet:
    """Label the first rows; perturbing them makes a control set that was never fitted."""
    few = X[:LABELLED].astype(np.float64)
    if perturbed:
        few = few + 1e-6 * np.random.default_rng(perturbed).standard_normal(few.shape)
    names = [("first", "second")[g] for g in group[:LABELLED]]
    return ControlSet(few, names, attribute="group")


def take_turns(sides: dict[str, Callable[[int], Any]], repetitions: int, what: str) -> Times:
    """Time every side once a round; each gets the number of the round, from 1. Round 0 warms up and is not counted."""
    times: Times = {name: [] for name in sides}
    for turn in range(repetitions + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side(turn)
            if turn:
                times[name].append(time.perf_counter() - start)
        progress(what, turn, repetitions)
    return times


def ratio(times: Times, side: str, yardstick: str, of: Callable[[list[float]], float] = min) -> float:
    """Tell how many times as long one side takes as another."""
    return of(times[side]) / of(times[yardstick])


def library_mean(X: NDArray[np.float32], examples: NDArray[np.float32]) -> float:
    """Average the cosine similarity over all pairs as most people would: scikit-learn's function, then the mean."""
    from sklearn.metrics.pairwise import cosine_similarity

    return float(1 + cosine_similarity(X, examples).mean())


def pairwise_mean(X: NDArray[np.float32], examples: NDArray[np.float32]) -> float:
    """Average the cosine similarity over all pairs, in blocks that stay in the cache."""
    total = 0.0
    for start in range(0, len(X), 8192):
        block = X[start : start + 8192]
        units = block / np.linalg.norm(block, axis=1, keepdims=True)
        total += float((1 + units @ examples.T).sum(dtype=np.float64))
    return total / (len(X) * len(examples))


def passes(rows: int, dimension: int, repetitions: int, seed: int, workers: int) -> Times:
    """Every way to pass over one large array."""
    X, group = vectors(rows, dimension, seed)
    control = labelled(X, group)
    ones = np.ones(rows, dtype=np.float32)
    examples = unit_rows(X[:EXAMPLES]).astype(np.float32)
    mixed = np.random.default_rng(seed + 1).integers(COLLECTIONS, size=rows).astype(np.intp)
    ordered = np.sort(mixed)

    def by_collection(owner: NDArray[np.intp]) -> dict[str, Sketch]:
        names, scorer = [f"collection {number}" for number in range(COLLECTIONS)], scorer_for(control)
        return sketch_blocks([(X, (names, owner))], control, scorer).sketches(control, scorer)

    Sketch(control)  # the fit is not part of the pass
    sides: dict[str, Callable[[int], Any]] = {
        BARE: lambda _: ones @ X,
        ONE: lambda _: Sketch(control).add(X),
        TWO: lambda _: Sketch(control).add(X, workers=workers),
        RANDOM: lambda _: by_collection(mixed),
        SORTED: lambda _: by_collection(ordered),
        PAIRWISE: lambda _: pairwise_mean(X, examples),
        LIBRARY: lambda _: library_mean(X, examples),
        FRESH: lambda turn: audit(X, labelled(X, group, turn + 1)),
        CACHED: lambda _: audit(X, control),
    }
    return take_turns(sides, repetitions, f"passes over {rows:,} × {dimension}")


def report_passes(record: Record, times: Times, rows: int) -> None:
    """Table and checks of the passes."""
    table: list[list[Any]] = []
    for name, found in times.items():
        against = [ratio(times, name, BARE), ratio(times, name, BARE, median)]
        table.append(
            [name, min(found), median(found), *against, ratio(times, name, ONE), rows / min(found) / 1e6]
        )
    columns = ["pass", "least s", "median s", "× bare", "× bare, medians", "× sketch", "million rows/s"]
    record.tables.append(Table(f"Passes over {rows:,} vectors", columns, table))
    record.checks += [
        Check("sketch over ones @ X, one thread", ratio(times, ONE, BARE), 2.1),
        Check("sketch over ones @ X, two threads", ratio(times, TWO, BARE), 1.5),
        Check("pairwise cosine (scikit-learn) over sketch", ratio(times, LIBRARY, ONE), 10.0, upper=False),
        Check("pairwise cosine (in blocks) over sketch", ratio(times, PAIRWISE, ONE), 10.0, upper=False),
        Check("audit with interval over sketch, new control set", ratio(times, FRESH, ONE), 5.0),
        Check("20 collections over one, mixed rows", ratio(times, RANDOM, ONE), 1.3),
        Check("20 collections over one, sorted rows", ratio(times, SORTED, ONE), 1.3),
    ]


def plain_self_training(X: NDArray[Any], control: ControlSet, dtype: type, k: int = 5) -> tuple[int, int]:
    """Algorithm 3 with one matrix–vector product over the remaining items a round; the counts.

    Labelled items are overwritten by the last rows, so a round never copies the collection.
    """
    units = unit_rows(X).astype(dtype)
    order = np.arange(len(X))
    sums = [control.units[control.rows(g, representatives=True)].sum(axis=0) for g in (0, 1)]
    sizes = [len(control.rows(g, representatives=True)) for g in (0, 1)]
    counts, left = [0, 0], len(X)
    while left:
        direction = sums[0] / sizes[0] - sums[1] / sizes[1]
        scores = units[:left] @ direction.astype(dtype)
        size, take = np.abs(scores), min(k, left)
        reached = np.flatnonzero(size >= np.partition(size, left - take)[left - take])
        best = reached[np.lexsort((order[reached], -size[reached]))][:take]
        for group, chosen in enumerate((best[scores[best] > 0], best[scores[best] < 0])):
            if len(chosen):
                sums[group] = sums[group] + units[chosen].sum(axis=0, dtype=np.float64)
                sizes[group] += len(chosen)
                counts[group] += len(chosen)
        left = _drop(units, order, best, left)
    return counts[0], counts[1]


def _drop(units: NDArray[Any], order: NDArray[Any], gone: NDArray[Any], left: int) -> int:
    """Fill the places of labelled items with the last rows that stay."""
    keep = left - len(gone)
    holes = gone[gone < keep]
    tail = np.setdiff1d(np.arange(keep, left), gone)
    units[holes], order[holes] = units[tail], order[tail]
    return keep


def report_self_training(record: Record, rows: int, small: int, repetitions: int, seed: int) -> None:
    """SS-ST against the plain loop, and whether both count the same."""
    X, group = vectors(rows + LABELLED, 300, seed)
    control, items = labelled(X, group), X[LABELLED:]
    plain, single = "one product a round, float64", "one product a round, float32"
    sides: dict[str, Callable[[int], Any]] = {
        "self_training": lambda _: self_training(items, control),
        plain: lambda _: plain_self_training(items, control, np.float64),
        single: lambda _: plain_self_training(items, control, np.float32),
    }
    times = take_turns(sides, repetitions, f"self-training on {rows:,}")
    found = [[name, min(t), median(t), ratio(times, name, "self_training")] for name, t in times.items()]
    columns = ["self-training", "least s", "median s", "× self_training"]
    record.tables.append(Table(f"Self-training (SS-ST) on {rows:,} vectors", columns, found))
    same = {
        size: self_training(items[:size], control).counts
        == plain_self_training(items[:size], control, np.float64)
        for size in (small, rows)
    }
    record.checks += [
        Check(
            "plain loop (float64) over self_training", ratio(times, plain, "self_training"), 3.0, upper=False
        ),
        *(
            Check(f"same counts as the plain loop on {n:,}", float(s), 1.0, upper=False)
            for n, s in same.items()
        ),
    ]


def report_start(record: Record, repetitions: int) -> None:
    """Time to prepare a control set for its first collection."""
    X, group = vectors(2 * LABELLED, 300, 0)
    made = []
    for turn in range(repetitions):  # another control set each time, or it would not be fitted
        control = labelled(X, group, turn + 1)
        start = time.perf_counter()
        Sketch(control)
        made.append(time.perf_counter() - start)
    rows: list[list[Any]] = [[f"Sketch() of a control set of {LABELLED} examples", min(made), median(made)]]
    record.checks.append(Check(f"Sketch() of {LABELLED} examples", 1e3 * min(made), 30.0, unit=" ms"))
    record.tables.append(Table("Start", ["", "least s", "median s"], rows))


def main() -> None:
    options = _options()
    names = ("rows", "dimension", "repetitions", "self_training_rows", "self_training_repetitions", "seed")
    record = Record("speed", {name: getattr(options, name) for name in names})
    times = passes(options.rows, options.dimension, options.repetitions, options.seed, workers=2)
    report_passes(record, times, options.rows)
    report_self_training(
        record, options.self_training_rows, 2_000, options.self_training_repetitions, options.seed
    )
    report_start(record, 5)
    # A ratio far from that of the medians says that the machine was busy.
    drift = max(ratio(times, n, BARE, median) / ratio(times, n, BARE) for n in (ONE, TWO))
    if not math.isclose(drift, 1.0, abs_tol=0.25):
        record.notes.append(
            "medians and minima disagree by more than a quarter: the machine was busy, run again"
        )
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("speed", (__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=1_000_000, help="vectors in memory")
    options.add_argument("--dimension", type=int, default=300, help="their length")
    options.add_argument("--repetitions", type=int, default=7, help="rounds in which every side has a turn")
    options.add_argument("--self-training-rows", type=int, default=20_000, help="items of Algorithm 3")
    options.add_argument("--self-training-repetitions", type=int, default=2, help="rounds of Algorithm 3")
    options.add_argument("--seed", type=int, default=0, help="of the vectors")
    return options.parse_args()


if __name__ == "__main__":
    main()
