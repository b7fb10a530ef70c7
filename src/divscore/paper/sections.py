"""Sections that all experiments share: accuracy, equal label cost, time, and the stored answers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from divscore.paper.draws import Settings
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import Method
from divscore.paper.records import Answer, Check, Point, Summary, ratio
from divscore.paper.results import Claim, ResultTable, Section

__all__ = [
    "CLOSE",
    "WANTED",
    "Found",
    "accuracy_table",
    "equal_cost",
    "equal_cost_text",
    "how_counted",
    "in_short",
    "made_of",
    "short_table",
    "size_table",
    "smaller_sets",
    "stored_section",
    "strictest",
    "time_table",
    "trust_table",
]


WANTED = 4.0  # how many times the paper's error should be ours with all labels
Found = dict[tuple[str, str], Summary]


def accuracy_table(found: Found, methods: Sequence[Method], attributes: Sequence[str]) -> ResultTable:
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
    return ResultTable.of(
        "accuracy", "Mean absolute error of the disparity, bias, spread and coverage", columns, rows
    )


def equal_cost(
    answers: Sequence[Answer], methods: Sequence[Method], attributes: Sequence[str]
) -> ResultTable:
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
    return ResultTable.of("equal_cost", "likelihood with as many labels", columns, rows)


def time_table(found: Found, methods: Sequence[Method], attributes: Sequence[str]) -> ResultTable:
    """Milliseconds for the control set, once, and for every collection; one process, one thread."""
    rows = []
    for method in methods:
        some = [found[a, method.key] for a in attributes if (a, method.key) in found]
        if some:
            times = ([getattr(s, what) for s in some] for what in ("prepared", "seconds"))
            rows.append((method.title, *(1000.0 * sum(t) / len(t) for t in times)))
    columns = ("method", "ms to prepare", "ms a collection")
    return ResultTable.of("time", "Time, one thread", columns, rows)


def short_table(found: Found, methods: Sequence[Method], attributes: Sequence[str]) -> ResultTable:
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
    return ResultTable.of("short", "Mean absolute error of the disparity", columns, rows)


def size_table(points: Sequence[Point], methods: Sequence[Method]) -> ResultTable:
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
    return ResultTable.of("sizes", "By size of the control set", columns, rows)


def trust_table(
    points: Sequence[Point],
    checks: Sequence[Check],
    methods: Sequence[Method],
    attributes: Sequence[str],
    what: str,
) -> ResultTable:
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
    return ResultTable.of(
        "collections", f"By {what}: errors, and how often an audit is trusted", columns, rows
    )


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
            ResultTable.of("points", "Every point of the figures", point_columns, point_rows, shown=False),
            ResultTable.of("answers", "Every answer", columns, rows, shown=False),
        ),
    )


def _each(
    found: Found, methods: Sequence[Method], attributes: Sequence[str]
) -> list[tuple[str, Method, Summary]]:
    return [(a, m, found[a, m.key]) for a in attributes for m in methods if (a, m.key) in found]


def _answers(answers: Sequence[Answer], attribute: str, method: str) -> list[Answer]:
    return [a for a in answers if a.attribute == attribute and a.method == method and a.defined]


# Sentences that all experiments share: what came out, and how it was counted.

PROPOSAL = "DivScore-Adaptive"  # what the paper makes of |U| labels


def in_short(
    found: Found, attributes: Sequence[str], cost: ResultTable, claims: ResultTable, settings: Settings
) -> tuple[str, ...]:
    """The outcome in a few sentences."""
    m, n = settings.size, settings.labels

    def errors(method: str) -> str:
        several = len(attributes) > 1
        return " and ".join(f"{found[a, method].mae:.3f}{f' ({a})' * several}" for a in attributes)

    agreed = sum(row[3] == "agrees" for row in claims.rows)
    return (
        f"With all {n} labels `likelihood` errs by {errors('likelihood')}, with {m} of them by "
        f"{errors('likelihood-few')}. DivScore-Adaptive, {m} chosen of the {n}, errs by {errors('adaptive')}; "
        f"DivScore-Random-Balanced, {m} labels, by {errors('random-balanced')}; labelling {m} items of every "
        f"collection itself (IID-Measure) by {errors('iid')}. These are mean absolute errors of the disparity.",
        f"Against every use of the same {n} labels that the paper describes:",
        "\n".join(equal_cost_text(cost)),
        strictest(cost),
        f"The paper and these results agree in {agreed} of {len(claims.rows)} claims; the table of claims names them.",
    )


def equal_cost_text(table: ResultTable) -> list[str]:
    """Say in words against what the wanted factor is reached, and against what it is not; nothing is left out."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows if row[-1] is not None]
    said = []
    for title in dict.fromkeys(str(row["method"]) for row in rows):
        mine = [row for row in rows if row["method"] == title]
        factors = ", ".join(f"{row['ratio']:.1f} × ({row['attribute']})" for row in mine)
        short = [str(row["attribute"]) for row in mine if not row["≥ 4 ×"]]
        verdict = f"**the factor {WANTED:.0f} is not reached** on {', '.join(short)}" if short else "reached"
        note = " (the paper's proposal)" if title == PROPOSAL else ""
        if mine[0]["labelled"] != "once":
            note = f" ({mine[0]['labels']} new labels in every collection)"
        said.append(f"- {title}{note}: errs {factors} as much as `likelihood`; {verdict}.")
    return said


def strictest(table: ResultTable) -> str:
    """The best of the paper's methods with the same labels, given once, attribute by attribute."""
    rows = [row for row in table.rows if row[-1] is not None and row[2] == "once"]
    best = [
        min((r for r in rows if r[0] == a), key=lambda r: float(r[6] or 0))
        for a in dict.fromkeys(r[0] for r in rows)
    ]
    told = "; ".join(f"{row[0]}: {row[3]}, {row[6]:.1f} ×" for row in best)
    reached = all(row[-1] for row in best)
    return (
        f"Taking for each attribute whichever of these, labelled once, errs least ({told}), the factor {WANTED:.0f} is "
        f"{'reached' if reached else '**not reached**'}."
    )


def how_counted(answers: Sequence[Answer]) -> str:
    """What the columns of the tables count, in words."""
    drawn = [a for a in answers if a.method == "random-proportional"]
    undefined = sum(not a.defined for a in drawn)
    return (
        "Methods that label items of the collection itself need new labels for every collection; the others are "
        "labelled once. DivScore-Random-Proportional is not defined where a control set drawn from the collection "
        f"has fewer than two of a group ({undefined} of {len(drawn)} draws); these are left out, which favours it. "
        '"Cannot tell" counts as a disparity of 0 in errors, and, with limits from −1 to 1, as covered. IID-Measure\'s '
        "interval (Clopper–Pearson) does not use that the collection is finite. "
        'DivScore is not cut to [−1, 1]; "clipped" is the error '
        "if it were. Spread is the standard deviation of the estimate for one composition; standard errors are over "
        "repetitions."
    )


def made_of(data: LabelledData) -> str:
    """What the vectors are, and how many items have none."""
    lost = max((len(column) for column in data.left_out.values()), default=0)
    told = [f"vectors: {data.encoder or 'as the file has them'}"]
    if lost:
        told.append(f"{lost:,} more items without")
    if data.unreadable:
        told.append(f"{data.unreadable:,} lines of the file were not of its format")
    return "; ".join(told)


# Claims that the paper makes of several data sets, beside what is measured.

CLOSE = 0.1  # a mean that is never farther from the truth is close to it


def smaller_sets(points: Sequence[Point], attribute: str, where: str) -> Claim:
    """The appendix: adaptive control sets reach a low error with fewer examples than random ones.

    Compared are the fewest examples with which each errs no more than the lowest error that both reach.
    """
    by: dict[str, dict[float, float]] = {
        method: {float(p.at): p.mae for p in points if p.attribute == attribute and p.method == method}
        for method in ("adaptive", "random-balanced")
    }
    both = max(min(errors.values()) for errors in by.values())
    adaptive, random = (min(at for at, error in errors.items() if error <= both) for errors in by.values())
    return Claim(
        f"Adaptive control sets reach a low error with fewer examples than random ones ({where})",
        "appendix",
        f"to err by no more than {both:.3f}, the lowest error that both reach: {adaptive:.0f} examples against "
        f"{random:.0f}",
        adaptive < random,
    )
