"""How often the diagnostics alarm when they should not, and when they should, on the PPB features.

Random collections, one an independent split: domain relevance and score fit should reject about one in twenty at
the 5 % level. Collections of a single country: relevance should reject. Random labels, which no vector can
tell apart: the answer should be "cannot tell" and the interval should hold the truth all the same.
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
from portraits import ATTRIBUTES, LABELLED, SIZE, Portraits, Rows
from record import Check, Record, Table, parser, repository_path
from workers import each

from divscore import Audit, ControlSet
from divscore.audit.audit import audit

FEW = 50
LEVEL = 0.05
RATES = (0.03, 0.08)
NOISE_COVERAGE = 0.95


@dataclass(frozen=True)
class Verdict:
    """What the diagnostics said of one collection."""

    kind: str
    attribute: str
    labels: int
    relevance_p: float
    score_fit_p: float
    trust: str
    answered: bool
    error: float
    covered: bool
    width: float

    @classmethod
    def of(cls, kind: str, attribute: str, labels: int, result: Audit, truth: float) -> Verdict:
        """Read an audit whose truth is known."""
        found, interval = result.diagnostics, result.interval
        answered = math.isfinite(result.disparity)
        return cls(
            kind,
            attribute,
            labels,
            found.relevance_p,
            found.score_fit_p,
            result.trust,
            answered,
            abs(result.disparity - truth) if answered else math.nan,
            interval.low - 1e-9 <= truth <= interval.high + 1e-9,
            interval.width,
        )


def random_split(split: int, *, path: Path, seed: int) -> list[Verdict]:
    """One random collection, audited from every control set of a split."""
    data = portraits.load(path)
    order = np.random.default_rng([seed, split]).permutation(len(data))
    rows = order[LABELLED : LABELLED + SIZE]
    return _verdicts(data, order[:LABELLED], {"random": rows}, seed, split)


def country_split(split: int, *, path: Path, seed: int) -> list[Verdict]:
    """The unlabelled portraits of each country, audited from every control set of a split."""
    data = portraits.load(path)
    order = np.random.default_rng([seed, split]).permutation(len(data))
    rest = order[LABELLED:]
    sets = {str(c): rest[data.country[rest] == c] for c in np.unique(data.country)}
    return _verdicts(data, order[:LABELLED], sets, seed, split)


def _verdicts(data: Portraits, labelled: Rows, sets: dict[str, Rows], seed: int, split: int) -> list[Verdict]:
    found = []
    for at, attribute in enumerate(ATTRIBUTES):
        rng = np.random.default_rng([seed, split, at])
        few = portraits.balanced(data, labelled, attribute, FEW, rng)
        for labels, chosen in ((LABELLED, labelled), (FEW, few)):
            control = portraits.control(data, chosen, attribute)
            for kind, rows in sets.items():
                result = audit(data.vectors[rows], control, seed=split, show_untrusted=True)
                truth = data.disparity(attribute, rows)
                found.append(Verdict.of(kind, attribute, labels, result, truth))
    return found


def noise_split(split: int, *, path: Path, seed: int) -> list[Verdict]:
    """Random labels on a split's portraits: a collection of any composition, and nothing to tell it by."""
    data = portraits.load(path)
    rng = np.random.default_rng([seed, split, 20])
    order = rng.permutation(len(data))
    rows = order[LABELLED : LABELLED + SIZE]
    truth = 2 * round(SIZE * rng.uniform()) / SIZE - 1
    found = []
    for labels in (LABELLED, FEW):
        names = rng.permutation(np.repeat(["heads", "tails"], labels // 2))
        control = ControlSet(data.vectors[order[:labels]], names, attribute="coin", order=("heads", "tails"))
        result = audit(data.vectors[rows], control, seed=split, show_untrusted=True)
        found.append(Verdict.of("noise", "coin", labels, result, truth))
    return found


def report_random(record: Record, found: list[Verdict]) -> None:
    """Rejection rates where nothing is wrong."""
    rows: list[list[Any]] = []
    for labels in (LABELLED, FEW):
        for attribute in ATTRIBUTES:
            mine = [v for v in found if (v.attribute, v.labels) == (attribute, labels)]
            rates = [_rate(v.relevance_p < LEVEL for v in mine), _rate(v.score_fit_p < LEVEL for v in mine)]
            error = math.sqrt(LEVEL * (1 - LEVEL) / len(mine))
            rows.append([attribute, labels, len(mine), *rates, error, *_trust(mine)])
            for name, rate in zip(("relevance", "score fit"), rates, strict=True):
                where = f"{name} rejects at 5 %, random collections, {attribute}, {labels} labels"
                record.checks.append(Check(where, rate, RATES[1], least=RATES[0]))
    columns = ["attribute", "labels", "splits", "relevance rejects", "score fit rejects", "± s.e."]
    record.tables.append(
        Table("Random collections, at the 5 % level", [*columns, "good", "caution", "poor"], rows)
    )


def report_countries(record: Record, found: list[Verdict]) -> None:
    """Rejection rates where the assumption is broken, and what it did to the estimate."""
    columns = ["relevance rejects", "score fit rejects", "good", "caution", "poor", "error", "coverage"]
    pooled: list[list[Any]] = []
    each_attribute: list[list[Any]] = []
    for country in sorted({v.kind for v in found}):
        for labels in (LABELLED, FEW):
            mine = [v for v in found if (v.kind, v.labels) == (country, labels)]
            pooled.append([country, labels, *_outcome(mine)])
            if labels == LABELLED:
                rate = _rate(v.relevance_p < LEVEL for v in mine)
                record.checks.append(
                    Check(f"relevance rejects {country} alone, {labels} labels", rate, 0.95, upper=False)
                )
            for attribute in ATTRIBUTES:
                some = [v for v in mine if v.attribute == attribute]
                each_attribute.append([country, labels, attribute, *_outcome(some)])
    title = "Collections of one country, at the 5 % level"
    record.tables.append(Table(f"{title}, all attributes", ["country", "labels", *columns], pooled))
    record.tables.append(
        Table(title, ["country", "labels", "attribute", *columns], each_attribute, shown=False)
    )


def _outcome(verdicts: list[Verdict]) -> list[float | None]:
    rejected = [
        _rate(v.relevance_p < LEVEL for v in verdicts),
        _rate(v.score_fit_p < LEVEL for v in verdicts),
    ]
    error = [v.error for v in verdicts if v.answered]
    mean = float(np.mean(error)) if error else None
    return [*rejected, *_trust(verdicts), mean, _rate(v.covered for v in verdicts)]


def report_noise(record: Record, found: list[Verdict]) -> None:
    """Pools whose groups do not differ."""
    rows: list[list[Any]] = []
    for labels in (LABELLED, FEW):
        mine = [v for v in found if v.labels == labels]
        poor, silent = _rate(v.trust == "poor" for v in mine), _rate(not v.answered for v in mine)
        cover, width = _rate(v.covered for v in mine), float(np.mean([v.width for v in mine]))
        rows.append([labels, len(mine), silent, poor, cover, width])
        name = f"coverage, random labels, {labels} labelled"
        record.checks.append(Check(name, cover, NOISE_COVERAGE, upper=False))
        record.checks.append(Check(f"trust poor, random labels, {labels} labelled", poor, 0.95, upper=False))
    columns = ["labels", "splits", "cannot tell", "trust poor", "coverage", "width"]
    record.tables.append(Table("Random labels", columns, rows))


def _rate(values: Any) -> float:
    return float(np.mean(list(values)))


def _trust(verdicts: list[Verdict]) -> list[float]:
    return [_rate(v.trust == word for v in verdicts) for word in ("good", "caution", "poor")]


def main() -> None:
    options = _options()
    portraits.load(options.data)
    settings = {k: getattr(options, k) for k in ("splits", "country_splits", "noise_splits", "seed")}
    record = Record("diagnostics", {"data": repository_path(options.data), **settings, "collection": SIZE})
    shared = {"path": options.data, "seed": options.seed}
    jobs = options.jobs
    report_random(record, each(random_split, range(options.splits), jobs, "random collections", **shared))
    report_countries(record, each(country_split, range(options.country_splits), jobs, "countries", **shared))
    report_noise(record, each(noise_split, range(options.noise_splits), jobs, "random labels", **shared))
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser(
        "diagnostics", (__doc__ or "").partition("\n")[0], data=portraits.DATA, splits=400, seed=1
    )
    options.add_argument("--country-splits", type=int, default=30, help="splits with a collection a country")
    options.add_argument("--noise-splits", type=int, default=300, help="splits with random labels")
    return options.parse_args()


if __name__ == "__main__":
    main()
