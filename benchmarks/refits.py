"""Large control sets: how long a first audit takes, and whether its intervals are those of full refits.

Up to `FEW` labelled examples every bootstrap refit is solved on its own; with more, all are solved together, nearly.
Both sides run here: the full refits by raising that limit. Features are the PPB-2017 ones, and normal groups with the
same spectrum, extended to more dimensions.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import time
from typing import Any

import numpy as np
import portraits
from numpy.typing import NDArray
from record import Check, Record, Table, parser, progress, repository_path

from divscore import Audit, ControlSet
from divscore.audit.audit import audit
from divscore.control.similarity import unit_rows
from divscore.estimators import checks
from divscore.sketch import scorer

FEW = scorer.FEW
COLLECTION = 1_000  # items that are audited
SECONDS = {2_000: 1.0, 10_000: 4.0}  # wanted with two groups
NEAR = 0.03  # of the interval's width

Labelled = tuple[NDArray[np.float64], NDArray[np.str_]]


def spectrum(vectors: NDArray[np.float64], dimension: int) -> NDArray[np.float64]:
    """Variances of the principal components of unit vectors, continued as a power law."""
    units = unit_rows(vectors)
    known = np.linalg.eigvalsh(np.cov(units.T))[::-1]
    rank = np.arange(1, len(known) + 1)
    tail = np.polyfit(np.log(rank[len(known) // 3 :]), np.log(known[len(known) // 3 :]), 1)
    more = np.exp(np.polyval(tail, np.log(np.arange(len(known) + 1, dimension + 1))))
    return np.concatenate([known, more])[:dimension]


def drawn(
    variances: NDArray[np.float64], counts: list[int], distance: float, source: int, seed: int
) -> Labelled:
    """Draw normal groups of one source; their means are about `distance` standard deviations apart."""
    d, k = len(variances), len(counts)
    means = (
        np.random.default_rng([source, 0]).standard_normal((k, d)) * np.sqrt(variances / (2 * d)) * distance
    )
    label = np.repeat(np.arange(k), counts)
    rng = np.random.default_rng([source, 1, seed])
    rows = rng.standard_normal((len(label), d)) * np.sqrt(variances) + means[label]
    return rows, np.array([f"group {g + 1}" for g in range(k)])[label]


def first_audit(labelled: Labelled, collection: NDArray[np.float64], few: int) -> tuple[Audit, float]:
    """Audit with a control set that this process has not seen; the seconds it takes."""
    scorer.FEW = checks.FEW = few
    scorer._SCORERS.clear()
    control = ControlSet(*labelled, attribute="group")
    start = time.perf_counter()
    result = audit(collection, control, show_untrusted=True)
    seconds = time.perf_counter() - start
    scorer.FEW = checks.FEW = FEW
    return result, seconds


def off(nearly: Audit, full: Audit) -> tuple[float, float]:
    """The largest difference of two ends over the width, and the ratio of widths farthest from 1.

    Of the intervals of the disparity and of every share.
    """
    pairs = [(nearly.interval, full.interval)]
    pairs += [(nearly.share_intervals[name], full.share_intervals[name]) for name in full.shares]
    ends = max(max(abs(a.low - b.low), abs(a.high - b.high)) / b.width for a, b in pairs)
    return ends, max((a.width / b.width for a, b in pairs), key=lambda ratio: abs(ratio - 1))


def report_time(record: Record, variances: NDArray[np.float64], sizes: list[int], repetitions: int) -> None:
    """Time the first audit with both kinds of refits."""
    rows: list[list[Any]] = []
    for groups in (2, 4):
        for size in sizes:
            each = [COLLECTION // groups] * groups
            collection = drawn(variances, each, 2.5, groups, 1)[0]
            seconds = []
            for turn in range(repetitions):
                labelled = drawn(variances, [size // groups] * groups, 2.5, groups, 2 + turn)
                result, taken = first_audit(labelled, collection, FEW)
                seconds.append(taken)
                progress(f"{size:,} labels, {groups} groups", turn + 1, repetitions)
            full, taken = first_audit(labelled, collection, 10**9)  # once: it takes up to a minute
            rows.append([groups, size, taken, min(seconds), *off(result, full)])
            if groups == 2 and size in SECONDS:
                name = f"first audit, {size:,} labels of {len(variances)} dimensions"
                record.checks.append(Check(name, min(seconds), SECONDS[size], unit=" s"))
    columns = ["groups", "labels", "full refits s", "now s", "ends differ by", "width ratio"]
    title = f"First audit of {COLLECTION:,} items, {len(variances)} dimensions, one thread"
    record.tables.append(Table(title, columns, rows))


def report_intervals(
    record: Record, data: portraits.Portraits, variances: NDArray[np.float64], splits: int
) -> None:
    """Compare the intervals of both kinds of refits, from the first number of labels on that uses the second."""
    tone, gender = data.groups["skin tone"], data.groups["gender"]
    both = np.array([f"{a} × {b}" for a, b in zip(gender, tone, strict=True)])
    kinds = {"PPB, gender": gender, "PPB, skin tone": tone, "PPB, gender × skin tone": both}
    rows: list[list[Any]] = []
    worst = 0.0

    def add(kind: str, labels: int, dimension: int, found: list[tuple[float, float]]) -> None:
        nonlocal worst
        ends, ratios = (np.array(each) for each in zip(*found, strict=True))
        worst = max(worst, float(ends.max()), float(np.abs(ratios - 1).max()))
        rows.append(
            [kind, labels, dimension, len(found), float(ends.mean()), float(ends.max()), float(ratios.mean())]
        )
        progress("intervals", len(rows), 3 * len(kinds) + 6)

    for labels in (FEW + 1, 600, 900):
        for kind, groups in kinds.items():
            found = []
            for split in range(splits):
                order = np.random.default_rng([labels, split]).permutation(len(data))
                mine, rest = order[:labels], data.vectors[order[labels:]]
                sides = [
                    first_audit((data.vectors[mine], groups[mine]), rest, few)[0] for few in (FEW, 10**9)
                ]
                found.append(off(*sides))
            add(kind, labels, data.vectors.shape[1], found)
    for distance, how in ((1.5, "hard"), (4.0, "easy")):
        for groups, labels, dimension in ((2, FEW + 2, 512), (2, 1_000, 128), (4, FEW + 4, 128)):
            found = []
            for split in range(splits):
                far = distance if groups == 2 else distance + 1.0
                each = [labels // groups] * groups
                labelled, rest = (
                    drawn(variances[:dimension], counts, far, 100 * labels + split, seed)
                    for counts, seed in ((each, 1), ([500, 300, 100, 100][:groups], 2))
                )
                sides = [first_audit(labelled, rest[0], few)[0] for few in (FEW, 10**9)]
                found.append(off(*sides))
            add(f"simulated, {groups} groups, {how}", labels, dimension, found)
    columns = ["features", "labels", "dimensions", "audits", "ends differ by, mean", "at most", "width ratio"]
    record.tables.append(Table("Intervals against those of full refits", columns, rows))
    name = "intervals, ends over the width and ratio of the widths: largest difference"
    record.checks.append(Check(name, worst, NEAR))


def main() -> None:
    options = _options()
    data = portraits.load(options.data)
    variances = spectrum(data.vectors, options.dimension)
    settings = {
        "data": repository_path(options.data),
        "labels": options.labels,
        "dimension": options.dimension,
    }
    record = Record("refits", {**settings, "repetitions": options.repetitions, "splits": options.splits})
    report_time(record, variances, options.labels, options.repetitions)
    report_intervals(record, data, variances, options.splits)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("refits", (__doc__ or "").partition("\n")[0], data=portraits.DATA)
    options.add_argument(
        "--labels", type=int, nargs="+", default=[200, 2_000, 10_000], help="labelled examples"
    )
    options.add_argument("--dimension", type=int, default=512, help="of the simulated features")
    options.add_argument("--repetitions", type=int, default=3, help="first audits of each size")
    options.add_argument("--splits", type=int, default=6, help="audits for each comparison of intervals")
    return options.parse_args()


if __name__ == "__main__":
    main()
