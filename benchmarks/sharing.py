"""Intervals of many collections that share one sample of items, against samples of their own.

Each split labels 200 random portraits, of which 50 serve as the smaller control set, and draws collections of several
sizes from the others (or as near to that as the groups allow), with 0, 10, … 100 % of the first group; the portraits
of each country are collections too. All collections of a split are sketched in one pass, once with a shared sample and
once with their own. The estimates are the same by construction: only the intervals differ. An answer of "cannot tell"
is left out; it is the same for both.

Portraits of a country are a sixth of the sample. So there are made-up vectors too, of which most collections are of one
kind and one in eight of another, that scatters in three directions of its own; labelled are 60, half of either kind.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import portraits
from numpy.typing import NDArray
from portraits import ATTRIBUTES, LABELLED, Portraits, Rows
from record import Check, Record, Table, parser, progress, repository_path
from workers import each

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.jobs.sketching import tabulate_blocks

FEW = 50
SIZES = (30, 100, 200, 480)
SHARES = tuple(f / 10 for f in range(11))
COUNTRIES = "one country"
MADE_UP = 64  # numbers in a made-up vector
GROUPS = ("first", "second")
WIDER = 0.05  # how much the mean width may differ
LESS = 0.02  # how much less may be covered


@dataclass(frozen=True)
class Answer:
    """Both intervals of one collection."""

    split: int
    attribute: str
    labels: int
    kind: str
    own: float  # width
    shared: float
    own_covered: bool
    shared_covered: bool


def split_answers(split: int, *, path: Path, seed: int) -> list[Answer]:
    """Everything that is asked on one split."""
    data = portraits.load(path)
    found = []
    for at, attribute in enumerate(ATTRIBUTES):
        rng = np.random.default_rng([seed, split, at])
        order = rng.permutation(len(data))
        drawn = list(_collections(data, order[LABELLED:], attribute, rng))
        rows = np.concatenate([members for _, members in drawn])
        names = [str(number) for number in range(len(drawn))]
        whose = names, np.repeat(np.arange(len(drawn)), [len(members) for _, members in drawn])
        for labels in (LABELLED, FEW):
            control = portraits.control(data, order[:labels], attribute)
            asked = [(kind, data.disparity(attribute, members)) for kind, members in drawn]
            found += _answers(split, attribute, control, data.vectors[rows], whose, asked)
    return found


def made_up_answers(split: int, *, seed: int) -> list[Answer]:
    """Collections of vectors, an eighth of which are unlike the others."""
    rng = np.random.default_rng([seed, split, 99])
    own_way = rng.normal(size=(3, MADE_UP))
    own_way[:, 0] = 0.0
    own_way *= 5.0 / np.linalg.norm(own_way, axis=1, keepdims=True)

    def vectors(first: NDArray[np.bool_], odd: bool) -> NDArray[np.float64]:
        found = rng.normal(size=(len(first), MADE_UP))
        if odd:
            found = 0.3 * found + rng.normal(size=(len(first), 3)) @ own_way
        found[:, 0] += np.where(first, 2.0, -2.0)
        return found

    labels = rng.random(60) < 0.5
    labelled = np.concatenate([vectors(labels[:30], False), vectors(labels[30:], True)])
    control = ControlSet(labelled, np.where(labels, "first", "second"), attribute="group", order=GROUPS)
    drawn = [rng.random(rng.integers(100, 400)) < rng.choice([0.1, 0.3, 0.5, 0.7, 0.9]) for _ in range(40)]
    rows = np.concatenate([vectors(first, at % 8 == 0) for at, first in enumerate(drawn)])
    names = [str(at) for at in range(len(drawn))]
    whose = names, np.repeat(np.arange(len(drawn)), [len(first) for first in drawn])
    asked = [
        ("unlike the others" if at % 8 == 0 else "like the others", float(2 * first.mean() - 1))
        for at, first in enumerate(drawn)
    ]
    return _answers(split, "made up", control, rows, whose, asked)


def _answers(
    split: int,
    attribute: str,
    control: ControlSet,
    rows: NDArray[np.float64],
    whose: tuple[list[str], Rows],
    asked: list[tuple[str, float]],
) -> list[Answer]:
    """Both intervals of every collection; `asked` has the kind and the truth of each."""
    own, shared = (
        tabulate_blocks([(rows, whose)], control, seed=split, shared=way).sketches() for way in (False, True)
    )
    found = []
    for name, (kind, truth) in zip(whose[0], asked, strict=True):
        both = [audit(sketches[name], control, seed=split).interval for sketches in (own, shared)]
        if not both[0].method.startswith("cannot tell"):
            covered = [one.low - 1e-9 <= truth <= one.high + 1e-9 for one in both]
            found.append(Answer(split, attribute, len(control), kind, *(one.width for one in both), *covered))
    return found


def _collections(
    data: Portraits, rows: Rows, attribute: str, rng: np.random.Generator
) -> Iterator[tuple[str, Rows]]:
    for wanted in SIZES:
        for share in SHARES:
            whole = portraits.collection(data, rows, attribute, share, rng)
            first = data.first(attribute)[whole]
            size = min(wanted, len(whole))
            count = min(round(share * size), int(first.sum()))
            chosen = np.concatenate([whole[first][:count], whole[~first][: size - count]])
            yield f"{wanted} items", chosen
    for country in np.unique(data.country):
        yield COUNTRIES, rows[data.country[rows] == country]


def report(record: Record, answers: list[Answer]) -> None:
    """Table and checks."""
    rows: list[list[Any]] = []
    for attribute, labels, kind in dict.fromkeys((a.attribute, a.labels, a.kind) for a in answers):
        mine = [a for a in answers if (a.attribute, a.labels, a.kind) == (attribute, labels, kind)]
        own, shared = (float(np.mean([getattr(a, name) for a in mine])) for name in ("own", "shared"))
        covered = [
            float(np.mean([getattr(a, name) for a in mine])) for name in ("own_covered", "shared_covered")
        ]
        low, high = np.quantile([a.shared / a.own for a in mine if a.own > 0], [0.05, 0.95])
        rows.append(
            [attribute, labels, kind, len(mine), own, shared, shared / own, float(low), float(high), *covered]
        )
    ratios = [row[6] for row in rows]
    record.checks += [
        Check(
            "width with a shared sample over own, smallest of all rows", min(ratios), 1 - WIDER, upper=False
        ),
        Check("width with a shared sample over own, largest of all rows", max(ratios), 1 + WIDER),
        Check("coverage lost by sharing, most of all rows", max(row[9] - row[10] for row in rows), LESS),
    ]
    columns = ["attribute", "labels", "collections", "number", "width, own", "shared", "ratio", "5 %", "95 %"]
    columns += ["coverage, own", "coverage, shared"]
    record.tables.append(Table("Intervals with a shared sample and with an own one", columns, rows))


def main() -> None:
    options = _options()
    portraits.load(options.data)
    settings = {"data": repository_path(options.data), "splits": options.splits, "seed": options.seed}
    record = Record("sharing", settings | {"labels": [LABELLED, FEW], "sizes": list(SIZES)})
    progress("splits", 0, options.splits)
    splits = range(options.splits)
    answers = each(split_answers, splits, options.jobs, "splits", path=options.data, seed=options.seed)
    answers += each(made_up_answers, splits, options.jobs, "made up", seed=options.seed)
    report(record, answers)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("sharing", (__doc__ or "").partition("\n")[0])
    options.add_argument("--data", type=Path, default=portraits.DATA, help="the PPB-2017 features")
    options.add_argument("--splits", type=int, default=30, help="independent draws of the labelled examples")
    options.add_argument("--jobs", type=int, default=2, help="processes")
    options.add_argument("--seed", type=int, default=0, help="of the draws")
    return options.parse_args()


if __name__ == "__main__":
    main()
