"""Intervals for the change between two audits: coverage and width, paired by the control set and not.

Each split labels 200 random portraits, of which 50 serve as the smaller control set, and draws pairs of collections
from the others: an earlier one of about 250, and a later one, either of up to 480 other portraits ("disjoint") or the
earlier one with about 200 added ("nested"). Each one's share of the first group is drawn from 0, 10, … 100 %. Four
groups (gender × skin tone) have 200 labels and shares uniform on the simplex.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import portraits
from numpy.typing import NDArray
from portraits import LABELLED, Portraits, Rows
from record import Check, Record, Table, parser, progress, repository_path
from workers import each

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.audit.change import added_intervals, compare_documents
from divscore.audit.document import document, parse_document
from divscore.estimators.interval import Interval, disparity
from divscore.text import as_json

ATTRIBUTES = ("gender", "skin tone")
BOTH = "gender × skin tone"
FEW, EARLIER, ADDED = 50, 250, 200
SHARES = tuple(f / 10 for f in range(11))
PAIRS = {"disjoint": 3, "nested": 3}
FOUR_PAIRS = {"disjoint": 1, "nested": 2}
COVERAGE, NARROWER = 0.93, 0.75


@dataclass(frozen=True)
class Answer:
    """What was said of one change."""

    split: int
    attribute: str
    labels: int
    kind: str
    truth: float
    change: float
    covered: bool
    increase_covered: bool
    added_covered: bool
    width: float
    increase_width: float
    added_width: float
    wrong: bool  # a direction was stated, and the wrong one


def split_answers(split: int, *, path: Path, seed: int) -> list[Answer]:
    """Two groups on one split."""
    data = portraits.load(path)
    found = []
    for at, attribute in enumerate(ATTRIBUTES):
        order = np.random.default_rng([seed, split]).permutation(len(data))
        rng = np.random.default_rng([seed, split, at])
        groups = data.groups[attribute]
        pairs = [
            (kind, *_pair(data, order[LABELLED:], attribute, kind, rng))
            for kind, number in PAIRS.items()
            for _ in range(number)
        ]
        for labels in (LABELLED, FEW):
            control = portraits.control(data, order[:labels], attribute)
            found += [
                _answer(data, groups, control, split, kind, before, after) for kind, before, after in pairs
            ]
    return found


def split_shares(split: int, *, path: Path, seed: int) -> list[Answer]:
    """Four groups on one split."""
    data = portraits.load(path)
    rng = np.random.default_rng([seed, split, 10])
    order = np.random.default_rng([seed, split]).permutation(len(data))
    parts = [portraits.control(data, order[:LABELLED], attribute) for attribute in ATTRIBUTES]
    control = parts[0].cross(parts[1])
    names = np.array([" × ".join(pair) for pair in zip(*(data.groups[a] for a in ATTRIBUTES), strict=True)])
    found = []
    for kind, number in FOUR_PAIRS.items():
        for _ in range(number):
            before = _composed(names, order[LABELLED:], control, EARLIER, rng)
            rest = np.setdiff1d(order[LABELLED:], before)
            later = _composed(names, rest, control, EARLIER if kind == "disjoint" else ADDED, rng)
            after = later if kind == "disjoint" else np.concatenate([before, later])
            found.append(_answer(data, names, control, split, kind, before, after))
    return found


def _pair(
    data: Portraits, rows: Rows, attribute: str, kind: str, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """An earlier and a later collection, of shares drawn for each."""
    first, second = rng.choice(SHARES, 2)
    before = portraits.collection(data, rows, attribute, first, rng)
    before = _thinned(data, before, attribute, EARLIER, rng)
    later = portraits.collection(data, np.setdiff1d(rows, before), attribute, second, rng)
    if kind == "disjoint":
        return before, later
    return before, np.concatenate([before, _thinned(data, later, attribute, ADDED, rng)])


def _thinned(data: Portraits, rows: Rows, attribute: str, size: int, rng: np.random.Generator) -> Rows:
    """Of a collection `size` items, with the same share of the first group."""
    first = data.first(attribute)[rows]
    count = round(float(first.mean()) * min(size, len(rows)))
    ours, others = rng.permutation(rows[first]), rng.permutation(rows[~first])
    return np.concatenate([ours[:count], others[: min(size, len(rows)) - count]])


def _composed(
    names: NDArray[Any], rows: Rows, control: ControlSet, size: int, rng: np.random.Generator
) -> Rows:
    """Draw a collection whose shares are uniform on the simplex, as near to `size` as the groups allow."""
    shares = rng.dirichlet(np.ones(len(control.groups)))
    members = [rng.permutation(rows[names[rows] == group]) for group in control.groups]
    size = min(size, *(int(len(m) / s) for m, s in zip(members, shares, strict=True)))
    return np.concatenate([m[: round(s * size)] for m, s in zip(members, shares, strict=True)])


def _answer(
    data: Portraits,
    names: NDArray[Any],
    control: ControlSet,
    split: int,
    kind: str,
    before: Rows,
    after: Rows,
) -> Answer:
    texts = [
        as_json(document([audit(data.vectors[rows], control, seed=split)], replicates=True))
        for rows in (before, after)
    ]
    found = compare_documents(*map(parse_document, texts)).changes[0]
    k = len(control.groups)
    old, new = (
        float(disparity(np.array([(names[rows] == group).mean() for group in control.groups])))
        for rows in (before, after)
    )
    truth, increase = new - old, (abs(new) - abs(old) if k == 2 else new - old)
    added = added_intervals(found.before, found.after, k)[0]
    said = {"less even": 1, "more even": -1}.get(found.verdict, 0)
    return Answer(
        split,
        control.attribute if k == 2 else BOTH,
        len(control),
        kind,
        truth,
        found.change,
        _holds(found.interval, truth),
        _holds(found.increase_interval, increase),
        _holds(added, truth),
        found.interval.width,
        found.increase_interval.width,
        added.width,
        said * increase < 0,
    )


def _holds(interval: Interval, value: float) -> bool:
    return interval.low - 1e-9 <= value <= interval.high + 1e-9


def report(record: Record, answers: list[Answer]) -> None:
    """Table and checks."""
    rows = []
    settings = dict.fromkeys((a.attribute, a.labels, a.kind) for a in answers)
    for attribute, labels, kind in settings:
        mine = [a for a in answers if (a.attribute, a.labels, a.kind) == (attribute, labels, kind)]
        cover, rise = _mean(mine, "covered"), _mean(mine, "increase_covered")
        width, added = _mean(mine, "width"), _mean(mine, "added_width")
        errors = [abs(a.change - a.truth) for a in mine if math.isfinite(a.change)]
        rows.append(
            [
                attribute,
                labels,
                kind,
                len(mine),
                float(np.mean(errors)) if errors else None,
                cover,
                _clustered(mine, "covered"),
                width,
                rise,
                _mean(mine, "increase_width"),
                _mean(mine, "added_covered"),
                added,
                _mean(mine, "wrong"),
            ]
        )
        where = f"{attribute}, {labels} labels, {kind}"
        record.checks.append(Check(f"coverage of the change, {where}", cover, COVERAGE, upper=False))
        record.checks.append(Check(f"coverage of the increase, {where}", rise, COVERAGE, upper=False))
        record.checks.append(Check(f"width over both added, {where}", width / added, NARROWER))
    columns = ["attribute", "labels", "pairs", "number", "error", "coverage", "± s.e.", "width"]
    columns += ["increase: coverage", "width", "both added: coverage", "width", "wrong way"]
    record.tables.append(Table("Change of the disparity between two audits", columns, rows))


def _mean(answers: list[Answer], name: str) -> float:
    return float(np.mean([getattr(a, name) for a in answers]))


def _clustered(answers: list[Answer], name: str) -> float | None:
    """Return the standard error of a mean over splits: pairs of one split share their labels."""
    splits = sorted({a.split for a in answers})
    means = np.array([_mean([a for a in answers if a.split == s], name) for s in splits])
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None


def main() -> None:
    options = _options()
    portraits.load(options.data)
    record = Record(
        "changes",
        {
            "data": repository_path(options.data),
            "splits": options.splits,
            "splits of four groups": options.four_splits,
            "seed": options.seed,
            "labels": [LABELLED, FEW],
            "earlier collection": EARLIER,
            "added": ADDED,
            "pairs a split": PAIRS,
        },
    )
    shared = {"path": options.data, "seed": options.seed}
    progress("two groups", 0, options.splits)
    answers = each(split_answers, range(options.splits), options.jobs, "two groups", **shared)
    if options.four_splits:
        four = range(options.four_splits)
        answers += each(split_shares, four, options.jobs, "four groups", **shared)
    report(record, answers)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("changes", (__doc__ or "").partition("\n")[0], data=portraits.DATA, splits=100)
    options.add_argument("--four-splits", type=int, default=60, help="the same, for four groups")
    return options.parse_args()


if __name__ == "__main__":
    main()
