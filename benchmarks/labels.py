"""Labels of the collection itself: width and coverage of `crossfit`, `rectified` and a simple sample.

Portraits of PPB-2017, encoded with `faces` and as the paper's features. A collection of 540 with a known share of the
first group, some of it labelled at random: is the truth in the interval, and how wide is it? Then collections of one
country with a control set of 200 portraits from other countries, labelled at random and in pairs of similar scores.
Then four groups (gender × skin tone).
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import portraits
from numpy.typing import NDArray
from portraits import DATA, ORDER, Portraits
from record import Check, Record, Table, parser, repository_path
from workers import each

from divscore import Audit, audit, draw_sample
from divscore.jobs.encode import Encoding
from divscore.sources import open as open_source

SIZE = 540
SHARES = (0.1, 0.3, 0.5)
BOTH = ("gender", "skin tone")
COVERAGE = 0.93
# (features, labels): largest mean width of d
WIDTHS = {("faces", 60): 0.17, ("faces", 30): 0.38}
# (attribute): largest mean width with 100 labels, as a part of the simple sample's
PARTS = {"gender": 0.60, "skin tone": 0.75}
CONTROL, PAIRS, PAIRS_PART = 200, 60, 0.8
SMALLEST = 150  # portraits of a country
FOUR, FOUR_ERROR = 100, 0.03
GENDER = {"f": "female", "m": "male"}
TONE = {**dict.fromkeys("123", "lighter"), **dict.fromkeys("456", "darker")}


@functools.cache
def load(features: str, data: Path) -> Portraits:
    """The portraits as the paper's features, or as vectors of their faces (from the cache, if they are there)."""
    if features == "VGG":
        return portraits.load(data)
    with Encoding("faces", cache=True) as encoding:
        blocks = list(encoding.encode(open_source(data.with_name("ppb2017_images"))))
    parts = [Path(name).stem.split("_") for block in blocks for name in block.ids]
    groups = {
        "gender": np.array([GENDER[gender] for _, _, gender, _ in parts]),
        "skin tone": np.array([TONE[tone] for _, tone, _, _ in parts]),
    }
    country = np.array([country for *_, country in parts])
    return Portraits(np.concatenate([block.vectors for block in blocks]).astype(np.float64), groups, country)


@dataclass(frozen=True)
class Answer:
    """What one audit said, and whether it was right."""

    features: str
    attribute: str
    case: str
    labels: int
    method: str
    error: float
    covered: float
    width: float

    @classmethod
    def of(cls, where: tuple[str, str, str, int, str], result: Audit, truth: float) -> Answer:
        """Compare an audit with the truth."""
        low, high = result.interval.low - 1e-9, result.interval.high + 1e-9
        return cls(*where, abs(result.disparity - truth), float(low <= truth <= high), high - low)


def wilson(groups: NDArray[Any], first: str, size: int) -> float:
    """Width of d by a simple sample without a fit: Wilson's interval for a part of a finite collection."""
    n, p = len(groups), float((groups == first).mean())
    z = 1.96 * math.sqrt(1 - n / size)
    return 4 * z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)


def random_draws(draw: int, *, data: Path, seed: int) -> list[Answer]:
    """One collection of each share, some of it labelled at random."""
    answers = []
    for features in ("faces", "VGG"):
        people = load(features, data)
        for attribute in BOTH:
            for share in SHARES:
                rng = np.random.default_rng([seed, draw, BOTH.index(attribute), round(100 * share)])
                first = people.first(attribute)
                count = round(share * SIZE)
                rows = np.concatenate(
                    [
                        rng.choice(np.flatnonzero(first), count, replace=False),
                        rng.choice(np.flatnonzero(~first), SIZE - count, replace=False),
                    ]
                )
                truth, names = people.disparity(attribute, rows), people.groups[attribute][rows]
                for labels in (30, 60, 100):
                    order, number = ORDER[attribute], int(rng.integers(2**31))
                    drawn = draw_sample(people.vectors[rows], labels, groups=order, seed=number)
                    groups = names[drawn.rows]
                    sample = drawn.labelled(groups)
                    where = (features, attribute, f"{share:g}", labels)
                    for method in ("crossfit", "iid"):
                        result = audit(
                            people.vectors[rows], sample=sample, estimator=method, show_untrusted=True
                        )
                        answers.append(Answer.of((*where, method), result, truth))
                    simple = wilson(groups, ORDER[attribute][0], SIZE)
                    answers.append(Answer(*where, "simple sample", math.nan, math.nan, simple))
    return answers


def country_draws(draw: int, *, data: Path, seed: int) -> list[Answer]:
    """The portraits of one country, with a control set of others: labels at random, and in pairs."""
    answers = []
    for features in ("faces", "VGG"):
        people = load(features, data)
        for attribute in BOTH:
            for country in np.unique(people.country).tolist():
                inside = people.country == country
                if inside.sum() < SMALLEST:
                    continue
                rng = np.random.default_rng([seed, draw])
                labelled = rng.choice(np.flatnonzero(~inside), CONTROL, replace=False)
                control = portraits.control(people, labelled, attribute)
                rows = np.flatnonzero(inside)
                truth, names = people.disparity(attribute, rows), people.groups[attribute][rows]
                for method, known in (("random", None), ("pairs", control)):
                    drawn = draw_sample(people.vectors[rows], PAIRS, known, seed=int(rng.integers(2**31)))
                    sample = drawn.labelled(names[drawn.rows])
                    result = audit(people.vectors[rows], control, sample=sample, show_untrusted=True)
                    where = (features, attribute, country, PAIRS, method)
                    answers.append(Answer.of(where, result, truth))
    return answers


def four_draws(draw: int, *, data: Path, seed: int) -> list[Answer]:
    """Four groups, labelled at random: the error of a share, and whether its interval has the truth."""
    answers = []
    for features in ("faces", "VGG"):
        people, rng = load(features, data), np.random.default_rng([seed, draw, 4])
        rows = rng.choice(len(people), SIZE, replace=False)
        names = np.array(
            [" × ".join(pair) for pair in zip(*(people.groups[a][rows] for a in BOTH), strict=True)]
        )
        order, number = tuple(np.unique(names).tolist()), int(rng.integers(2**31))
        drawn = draw_sample(people.vectors[rows], FOUR, groups=order, seed=number)
        result = audit(people.vectors[rows], sample=drawn.labelled(names[drawn.rows]))
        shares = {name: float((names == name).mean()) for name in order}
        for name, interval in result.share_intervals.items():
            covered = float(interval.low - 1e-9 <= shares[name] <= interval.high + 1e-9)
            where = (features, "gender × skin tone", name, FOUR, "share")
            answers.append(Answer(*where, abs(result.shares[name] - shares[name]), covered, interval.width))
        truth = max(shares.values()) - min(shares.values())
        answers.append(
            Answer.of((features, "gender × skin tone", "disparity", FOUR, "disparity"), result, truth)
        )
    return answers


def mean(answers: list[Answer], name: str, **wanted: Any) -> float:
    """Mean of a measure over the answers with these values."""
    chosen = [getattr(a, name) for a in answers if all(getattr(a, key) == v for key, v in wanted.items())]
    return float(np.mean(chosen))


def report_random(record: Record, answers: list[Answer]) -> None:
    """Width and coverage by number of labels and share."""
    rows = []
    for features in ("faces", "VGG"):
        for attribute in BOTH:
            for labels in (30, 60, 100):
                for share in map("{:g}".format, SHARES):
                    cell: dict[str, Any] = {"features": features, "attribute": attribute}
                    cell |= {"labels": labels, "case": share}
                    ours = [
                        mean(answers, m, method="crossfit", **cell) for m in ("error", "covered", "width")
                    ]
                    simple = mean(answers, "width", method="simple sample", **cell)
                    exact = mean(answers, "width", method="iid", **cell)
                    rows.append([features, attribute, labels, share, *ours, simple, exact])
                    where = f"{features}, {attribute}, {labels} labels, share {share}"
                    if (features, labels) in WIDTHS:
                        limit = WIDTHS[features, labels]
                        record.checks.append(Check(f"width of crossfit, {where}", ours[2], limit))
                        record.checks.append(Check(f"coverage, {where}", ours[1], COVERAGE, upper=False))
    for attribute, limit in PARTS.items():
        at = {"features": "VGG", "attribute": attribute, "labels": 100}
        part = mean(answers, "width", method="crossfit", **at) / mean(
            answers, "width", method="simple sample", **at
        )
        where = f"VGG, {attribute}, 100 labels"
        record.checks.append(Check(f"width of crossfit / simple sample, {where}", part, limit))
        cover = mean(answers, "covered", method="crossfit", **at)
        record.checks.append(Check(f"coverage, {where}", cover, COVERAGE, upper=False))
    columns = ["features", "attribute", "labels", "share", "error of d", "coverage", "width"]
    columns += ["width, simple sample (Wilson)", "width, iid (exact)"]
    record.tables.append(Table("Labels of the collection alone (crossfit)", columns, rows))


def report_countries(record: Record, answers: list[Answer]) -> None:
    """Pairs against random labels, with a control set from other countries."""
    rows = []
    for features in ("faces", "VGG"):
        for attribute in BOTH:
            for country in dict.fromkeys(a.case for a in answers):
                cell: dict[str, Any] = {"features": features, "attribute": attribute, "case": country}
                measures = [
                    mean(answers, m, method=method, **cell)
                    for method in ("random", "pairs")
                    for m in ("error", "covered", "width")
                ]
                rows.append([features, attribute, country, *measures])
        widths = [mean(answers, "width", features=features, method=m) for m in ("pairs", "random")]
        cover = mean(answers, "covered", features=features, method="pairs")
        where = f"one country, {features}, {PAIRS} labels"
        record.checks.append(Check(f"width of pairs / random, {where}", widths[0] / widths[1], PAIRS_PART))
        record.checks.append(Check(f"coverage of pairs, {where}", cover, COVERAGE, upper=False))
    columns = ["features", "attribute", "country"]
    columns += [f"{m}, {how}" for how in ("random", "pairs") for m in ("error", "coverage", "width")]
    record.tables.append(Table(f"One country, control set from others, {PAIRS} labels", columns, rows))


def report_four(record: Record, answers: list[Answer]) -> None:
    """Four groups."""
    rows = []
    for features in ("faces", "VGG"):
        for case in dict.fromkeys(a.case for a in answers):
            measures = [mean(answers, m, features=features, case=case) for m in ("error", "covered", "width")]
            rows.append([features, case, *measures])
        error = mean(answers, "error", features=features, method="share")
        record.checks.append(
            Check(f"error of a share, four groups, {features}, {FOUR} labels", error, FOUR_ERROR)
        )
        for method in ("share", "disparity"):
            cover = mean(answers, "covered", features=features, method=method)
            name = f"coverage of the {method}, four groups, {features}"
            record.checks.append(Check(name, cover, COVERAGE, upper=False))
    columns = ["features", "share of", "error", "coverage", "width"]
    record.tables.append(Table(f"Gender × skin tone, {FOUR} labels", columns, rows))


def main() -> None:
    options = _options()
    load("faces", options.data)  # encoded once, for all processes
    names = ("draws", "country_draws", "seed")
    record = Record("labels", {"data": repository_path(options.data), "collection": SIZE})
    record.settings.update({name: getattr(options, name) for name in names})
    shared = {"data": options.data, "seed": options.seed}
    draws, jobs = range(options.draws), options.jobs
    report_random(record, each(random_draws, draws, jobs, "collections", **shared))
    countries = range(options.country_draws)
    report_countries(record, each(country_draws, countries, jobs, "countries", **shared))
    report_four(record, each(four_draws, draws, jobs, "four groups", **shared))
    record.notes.append(
        "the allowance for unseen mistakes (0.75) and the five degrees of freedom were chosen on these portraits, with "
        "other draws"
    )
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("labels", (__doc__ or "").partition("\n")[0], data=DATA)
    options.add_argument(
        "--draws", type=int, default=300, help="collections of each share, and of four groups"
    )
    options.add_argument("--country-draws", type=int, default=50, help="draws for each country")
    options.add_argument("--jobs", type=int, default=2, help="number of processes")
    options.add_argument("--seed", type=int, default=0, help="seed of the draws")
    return options.parse_args()


if __name__ == "__main__":
    main()
