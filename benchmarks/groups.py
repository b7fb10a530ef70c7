"""Many groups, few labels: how often there is an answer, and how good it is.

Before, one pair of groups that the labelled examples did not separate made every result inconclusive. Now such groups
are merged and have one share, their sum. The PPB features with up to twelve groups, and normal groups in families:
those of one family look nearly the same. Collections have random compositions.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import portraits
from numpy.typing import NDArray
from record import Check, Record, Table, parser, repository_path
from workers import each

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.estimators.checks import SEPARABLE_P, separation
from divscore.sketch.scorer import scorer_for

LABELS, SIZE, FEWEST = 200, 400, 3
ANSWERED, COVERED = 0.9, 0.93
PPB = {
    "PPB, gender × skin tone": ("gender", "skin tone"),
    "PPB, country × gender": ("country", "gender"),
    "PPB, country × gender × skin tone": ("country", "gender", "skin tone"),
}
# Groups, families, distance of families, and of the groups of a family, in standard deviations.
SIMULATED = {
    "10 groups in 3 families": (10, 3, 5.0, 1.0),
    "10 groups in 5 families": (10, 5, 4.0, 1.0),
    "10 groups in 3 loose families": (10, 3, 6.0, 2.0),
    "4 groups, easy": (4, 4, 5.0, 0.0),
    "4 groups in 2 families": (4, 2, 3.0, 0.5),
}
MANY, DIMENSION = 12, 60

Drawn = tuple[NDArray[np.float64], NDArray[np.str_]]


@dataclass(frozen=True)
class Outcome:
    """One collection: whether it has an answer, before and now, and each share's size, error, coverage and width."""

    kind: str
    groups: int
    before: bool
    answered: bool
    sizes: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()
    covered: tuple[bool, ...] = ()
    widths: tuple[float, ...] = ()
    disparity: bool = True


def outcome(kind: str, labelled: Drawn, collection: Drawn) -> Outcome:
    """Audit a collection with known groups."""
    control = ControlSet(*labelled, attribute="group")
    result = audit(collection[0], control)
    scorer = scorer_for(control)
    before = bool(scorer.calibration.informative) and scorer.once(separation).p_value <= SEPARABLE_P
    truth = {name: float((collection[1] == name).mean()) for name in control.groups}
    if not result.conclusive:
        return Outcome(kind, len(truth), before, False)
    sizes, errors, covered, widths = [], [], [], []
    for name, members in result.members.items():
        true, interval = sum(truth[member] for member in members), result.share_intervals[name]
        sizes.append(len(members))
        errors.append(abs(result.shares[name] - true))
        covered.append(interval.low - 1e-9 <= true <= interval.high + 1e-9)
        widths.append(interval.width)
    true = max(truth.values()) - min(truth.values())
    inside = result.interval.low - 1e-9 <= true <= result.interval.high + 1e-9
    return Outcome(
        kind, len(truth), before, True, tuple(sizes), tuple(errors), tuple(covered), tuple(widths), inside
    )


def split(number: int, *, path: Path, seed: int) -> list[Outcome]:
    """One collection of every kind."""
    data, found = portraits.load(path), []
    columns = {**data.groups, "country": data.country}
    for at, (kind, names) in enumerate(PPB.items()):
        rng = np.random.default_rng([seed, number, at])
        groups = np.array([" × ".join(each) for each in zip(*(columns[n] for n in names), strict=True)])
        known, counts = np.unique(groups, return_counts=True)
        kept = known[np.argsort(-counts, kind="stable")][:MANY]
        rows = np.flatnonzero(np.isin(groups, kept))
        while True:  # every group needs a few labels
            order = rng.permutation(rows)
            labelled = order[:LABELS]
            numbers = [int((groups[labelled] == name).sum()) for name in kept]
            if min(numbers) >= FEWEST:
                break
        rest = order[LABELS:]
        wanted = rng.dirichlet(np.ones(len(kept)))
        parts = [
            rng.permutation(rest[groups[rest] == name])[: round(share * SIZE)]
            for name, share in zip(kept, wanted, strict=True)
        ]
        drawn = np.concatenate(parts)
        found.append(
            outcome(
                kind,
                (data.vectors[labelled], groups[labelled]),
                (data.vectors[drawn], groups[drawn]),
            )
        )
    for at, (kind, (k, families, apart, within)) in enumerate(SIMULATED.items()):
        rng = np.random.default_rng([seed, number, 100 + at])
        scale = 1 / np.sqrt(2 * DIMENSION)
        means = apart * scale * rng.standard_normal((families, DIMENSION))[np.arange(k) % families]
        means += within * scale * rng.standard_normal((k, DIMENSION))
        spread = 1 / np.sqrt(1.0 + np.arange(DIMENSION))  # as principal components'
        sides = []
        for counts in ([LABELS // k] * k, rng.multinomial(SIZE, rng.dirichlet(np.ones(k)))):
            label = np.repeat(np.arange(k), counts)
            vectors = (rng.standard_normal((len(label), DIMENSION)) + means[label]) * spread
            sides.append((vectors, np.array([f"group {g:02d}" for g in range(k)])[label]))
        found.append(outcome(kind, *sides))
    return found


def report(record: Record, found: list[Outcome]) -> None:
    """One line for each kind."""
    rows: list[list[Any]] = []
    for kind in (*PPB, *SIMULATED):
        own = [each for each in found if each.kind == kind]
        told = [each for each in own if each.answered]
        pooled = [
            np.concatenate([np.array(getattr(t, name)) for t in told])
            for name in ("covered", "errors", "widths")
        ]
        covered, errors, widths = (float(part.mean()) for part in pooled)
        answered, before = len(told) / len(own), float(np.mean([each.before for each in own]))
        shares = float(np.mean([len(each.sizes) for each in told]))
        disparity = float(np.mean([each.disparity for each in told]))
        groups = max(each.groups for each in own)
        rows.append([kind, groups, before, answered, shares, covered, errors, widths, disparity])
        if groups > 4:
            record.checks.append(Check(f"answered, {kind}", answered, ANSWERED, upper=False))
        record.checks.append(Check(f"coverage of shares, {kind}", covered, COVERED, upper=False))
    columns = [
        "groups of",
        "groups",
        "answered before",
        "answered now",
        "shares",
        "coverage",
        "error",
        "width",
    ]
    title = f"{LABELS} labels; collections of up to {SIZE} items, one a split"
    record.tables.append(Table(title, [*columns, "disparity covered"], rows))
    record.notes.append(
        "“answered before” counts control sets that separate every pair of groups; “shares” is the mean number of "
        "groups or sums that a result has."
    )


def main() -> None:
    options = _options()
    settings = {"data": repository_path(options.data), "splits": options.splits, "seed": options.seed}
    record = Record("groups", {**settings, "labels": LABELS, "size": SIZE})
    found = each(split, range(options.splits), options.jobs, "splits", path=options.data, seed=options.seed)
    report(record, found)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("groups", (__doc__ or "").partition("\n")[0], data=portraits.DATA, splits=40, jobs=2)
    return options.parse_args()


if __name__ == "__main__":
    main()
