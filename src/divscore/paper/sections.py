"""Sections that all experiments share: accuracy, equal label cost, time, and the stored answers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from divscore.paper.methods import Method
from divscore.paper.records import Answer, Check
from divscore.paper.results import Section
from divscore.paper.summary import Point, Summary, ratio
from divscore.paper.tables import Table

__all__ = [
    "WANTED",
    "Found",
    "accuracy_table",
    "equal_cost",
    "short_table",
    "size_table",
    "stored_section",
    "time_table",
    "trust_table",
]

WANTED = 4.0  # how many times the paper's error should be ours with all labels
Found = dict[tuple[str, str], Summary]


def accuracy_table(found: Found, methods: Sequence[Method], attributes: Sequence[str]) -> Table:
    """Error, bias, spread and coverage of every method on every attribute."""
    rows = []
    for attribute, method, s in _each(found, methods, attributes):
        rows.append(
            (
                attribute, method.title, method.labels, method.sampled, s.mae, s.mae_se, s.clipped, s.bias,
                s.worst_bias, s.spread, s.coverage, s.width, s.undefined, s.cannot_tell,
            )
        )  # fmt: skip
    columns = (
        "attribute", "method", "labels", "+ in every S", "error", "± s.e.", "error, clipped", "bias", "largest bias",
        "spread", "coverage", "width", "undefined", "cannot tell",
    )  # fmt: skip
    return Table.of(
        "accuracy", "Mean absolute error of the disparity, bias, spread and coverage", columns, rows
    )


def equal_cost(answers: Sequence[Answer], methods: Sequence[Method], attributes: Sequence[str]) -> Table:
    """Every method of the paper against `likelihood` with the same number of labels."""
    ours = {m.labels: m for m in methods if not m.paper and not m.sampled}
    most = max(ours)
    rows = []
    for attribute in attributes:
        for method in methods:
            cost = method.labels or method.sampled
            rival = _answers(answers, attribute, method.key)
            if not method.paper or cost not in ours or not rival:
                continue
            better = ratio(rival, _answers(answers, attribute, ours[cost].key))
            where = "in every collection" if method.sampled else "once"
            reached = better.value >= WANTED if cost == most else None
            errors = better.rival, better.ours
            rows.append((attribute, cost, where, method.title, *errors, better.value, better.se, reached))
    columns = ("attribute", "labels", "labelled", "method", "error", "likelihood", "ratio", "± s.e.", "≥ 4 ×")
    return Table.of("equal_cost", "likelihood with as many labels", columns, rows)


def time_table(found: Found, methods: Sequence[Method], attributes: Sequence[str]) -> Table:
    """Milliseconds for the control set, once, and for every collection; one process, one thread."""
    rows = []
    for method in methods:
        some = [found[a, method.key] for a in attributes if (a, method.key) in found]
        if some:
            times = ([getattr(s, what) for s in some] for what in ("prepared", "seconds"))
            rows.append((method.title, *(1000.0 * sum(t) / len(t) for t in times)))
    columns = ("method", "ms to prepare", "ms a collection")
    return Table.of("time", "Time, one thread", columns, rows)


def short_table(found: Found, methods: Sequence[Method], attributes: Sequence[str]) -> Table:
    """Mean absolute errors alone, for the terminal."""
    rows = [
        (
            m.title,
            m.labels,
            m.sampled,
            *(found[a, m.key].mae if (a, m.key) in found else None for a in attributes),
        )
        for m in methods
    ]
    columns = ("mean absolute error of d", "labels", "+ in every S", *attributes)
    return Table.of("short", "Mean absolute error of the disparity", columns, rows)


def size_table(points: Sequence[Point], methods: Sequence[Method]) -> Table:
    """Errors and means by size of the control set; where most answers are "cannot tell" there are neither."""
    by = {(p.attribute, p.at, p.method): p for p in points}
    rows = []
    for attribute, size in dict.fromkeys((p.attribute, p.at) for p in points):
        mine = [by.get((attribute, size, m.key)) for m in methods]
        kept = [p if p and p.answers >= p.left_out else None for p in mine]
        truth = next(p.truth for p in mine if p)
        left = max(p.left_out / (p.answers + p.left_out) if p else 1.0 for p in mine)
        means, errors = ([getattr(p, what) if p else None for p in kept] for what in ("mean", "mae"))
        rows.append((attribute, size, truth, *means, *errors, left))
    titles = [m.title for m in methods]
    columns = (
        "attribute", "size", "true d", *(f"mean, {t}" for t in titles), *(f"error, {t}" for t in titles),
        "cannot tell",
    )  # fmt: skip
    return Table.of("sizes", "By size of the control set", columns, rows)


def trust_table(
    points: Sequence[Point],
    checks: Sequence[Check],
    methods: Sequence[Method],
    attributes: Sequence[str],
    what: str,
) -> Table:
    """Truth, mean absolute errors, and what an audit says of its own answer, for every named collection."""
    rows: list[tuple[object, ...]] = []
    for attribute in attributes:
        here = [p for p in points if p.attribute == attribute]
        for name in dict.fromkeys(p.at for p in here):
            mine = {p.method: p for p in here if p.at == name}
            told = [c for c in checks if c.attribute == attribute and c.collection == name]
            trusts = [sum(c.trust == word for c in told) / len(told) for word in ("good", "caution", "poor")]
            errors = [mine[m.key].mae if m.key in mine else None for m in methods]
            relevance = median(c.relevance for c in told)
            sure = mine["likelihood"]
            rows.append((attribute, name, sure.truth, *errors, sure.coverage, relevance, *trusts))
    columns = (
        "attribute", what, "true d", *(f"error, {m.title}" for m in methods), "coverage, likelihood", "relevance",
        "good", "caution", "poor",
    )  # fmt: skip
    return Table.of("collections", f"By {what}: errors, and how often an audit is trusted", columns, rows)


def stored_section(answers: Sequence[Answer], points: Sequence[Point], methods: Sequence[Method]) -> Section:
    """Tables that are stored but not shown: every answer, and every point of every figure."""
    titles = {m.key: m.title for m in methods}
    point_rows = [
        (
            p.sweep, p.attribute, p.at, titles[p.method], p.answers, p.truth, p.mean, p.se, p.sd, p.mae, p.quantile,
            p.coverage,
        )
        for p in points
    ]  # fmt: skip
    point_columns = (
        "sweep", "attribute", "at", "method", "answers", "truth", "mean", "standard error", "standard deviation",
        "error", "0.9 quantile of error", "coverage",
    )  # fmt: skip
    rows = [
        (
            a.sweep, a.attribute, a.at, a.repetition, titles[a.method], a.items, a.truth, a.value, a.low, a.high,
        )
        for a in answers
    ]  # fmt: skip
    columns = (
        "sweep", "attribute", "at", "repetition", "method", "items", "truth", "estimate", "low", "high",
    )  # fmt: skip
    return Section(
        "Everything",
        ('An empty estimate is one that is not defined, or, where there are limits, "cannot tell".',),
        tables=(
            Table.of("points", "Every point of the figures", point_columns, point_rows, shown=False),
            Table.of("answers", "Every answer", columns, rows, shown=False),
        ),
    )


def _each(
    found: Found, methods: Sequence[Method], attributes: Sequence[str]
) -> list[tuple[str, Method, Summary]]:
    return [(a, m, found[a, m.key]) for a in attributes for m in methods if (a, m.key) in found]


def _answers(answers: Sequence[Answer], attribute: str, method: str) -> list[Answer]:
    return [a for a in answers if a.attribute == attribute and a.method == method and a.defined]
