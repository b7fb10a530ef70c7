"""Results of an experiment from its answers: accuracy, equal label cost, time, claims of the paper, and all answers."""

from __future__ import annotations

import math
import operator
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from divscore.paper.draws import Settings
from divscore.paper.labelleddata import LabelledData
from divscore.paper.methods import CONFIDENCE, Method
from divscore.paper.records import Accuracy, Answer, Batch, points, ratio, summarise
from divscore.paper.results import Results, ResultTable, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARISONS = {"<": operator.lt, "≤": operator.le, ">": operator.gt, "≥": operator.ge}
WANTED = 4.0  # the paper's error should be so many times ours with all labels
PROPOSAL = "DivScore-Adaptive"  # the paper's use of |U| labels
ACCURACY = {
    "attribute": "attribute", "method": "title", "labels": "labels", "+ in every S": "sampled", "error": "mae",
    "± s.e.": "mae_se", "error, clipped": "clipped", "bias": "bias", "largest bias": "worst_bias", "spread": "spread",
    "coverage": "coverage", "width": "width", "undefined": "excluded", "cannot tell": "cannot_tell",
}  # fmt: skip
POINTS = {
    "sweep": "sweep", "attribute": "attribute", "at": "at", "method": "title", "answers": "answers", "truth": "truth",
    "mean": "mean", "standard error": "se", "standard deviation": "sd", "error": "mae",
    "0.9 quantile of error": "quantile", "coverage": "coverage",
}  # fmt: skip
ANSWERS = {
    "sweep": "sweep", "attribute": "attribute", "at": "at", "repetition": "repetition", "method": "title",
    "items": "items", "truth": "truth", "estimate": "value", "low": "low", "high": "high",
}  # fmt: skip
TEXTS: dict[str, Any] = tomllib.loads((files("divscore.paper") / "texts.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Findings:
    """Everything that an experiment measured; `sweep` is the one that accuracy is measured on."""

    data: LabelledData
    settings: Settings
    methods: tuple[Method, ...]
    attributes: tuple[str, ...]
    main: tuple[str, ...]  # the attributes that the summary speaks of
    batch: Batch
    sweep: str

    @cached_property
    def answers(self) -> list[Answer]:
        """Answers of the main sweep."""
        return [a for a in self.batch.answers if a.sweep == self.sweep]

    @cached_property
    def accuracy(self) -> dict[str, dict[str, Accuracy]]:
        """Accuracy in the main sweep, by attribute and method."""
        by: dict[str, dict[str, Accuracy]] = {name: {} for name in self.attributes}
        for name, method in product(self.attributes, (m.key for m in self.methods)):
            mine = [a for a in self.answers if (a.attribute, a.method) == (name, method)]
            if (accuracy := summarise(mine)) is not None:
                by[name][method] = accuracy
        return by

    @cached_property
    def points(self) -> list[Accuracy]:
        """Accuracy at every point of every sweep."""
        return points(self.batch.answers)

    def at(self, sweep: str) -> list[Accuracy]:
        """Accuracy at the points of one sweep."""
        return [p for p in self.points if p.sweep == sweep]

    def select(self, keys: Sequence[str]) -> list[Method]:
        """Methods by their keys."""
        return [m for m in self.methods if m.key in keys]


class Report(NamedTuple):
    """What the pages of an experiment show; claims are texts with the values to check them by."""

    claims: list[tuple[Any, dict[str, Any]]]
    tables: dict[str, ResultTable]
    figures: dict[str, Figure]
    values: dict[str, Any] = {}  # noqa: RUF012 - of texts; never changed


def make_results(name: str, findings: Findings, report: Report, run: dict[str, Any]) -> Results:
    """The sections that all experiments share, and those that texts.toml gives to this one."""
    about, data, settings, answers = TEXTS[name], findings.data, findings.settings, findings.answers
    methods = {m.key: m for m in findings.methods}
    scores = [(s, methods[key]) for by in findings.accuracy.values() for key, s in by.items()]
    times, short = [], []
    for method in findings.methods:
        if mine := [s for s, of in scores if of is method]:
            seconds = fmean(s.prepared for s in mine), fmean(s.seconds for s in mine)
            times.append((method.title, *(1000 * each for each in seconds)))
        errors = [s and s.mae for s in (findings.accuracy[a].get(method.key) for a in findings.attributes)]
        short.append((method.title, method.labels, method.sampled, *errors))
    title = "Mean absolute error of the disparity"
    time_columns = ("method", "ms to prepare", "ms a collection")
    short_columns = ("mean absolute error of d", "labels", "+ in every S", *findings.attributes)
    accuracy = ResultTable.of_fields("accuracy", f"{title}, bias, spread and coverage", ACCURACY, scores)
    tables = report.tables | {
        "accuracy": accuracy,
        "time": ResultTable.of("time", "Time, one thread", time_columns, times),
    }
    claims, cost = check_claims(report.claims), equal_cost(answers, findings.methods, findings.attributes)
    points = [(p, methods[p.method]) for p in findings.points]
    everything = [(a, methods[a.method]) for a in findings.batch.answers]

    made_of = [
        f"vectors: {data.encoder or 'as in the file'}",
        f"{data.skipped:,} more items were skipped" if data.skipped else "",
        f"{data.unreadable:,} lines of the file could not be read" if data.unreadable else "",
    ]
    sizes = sorted({a.items for a in answers})
    values = report.values | {
        "items": len(data),
        "made_of": "; ".join(part for part in made_of if part),
        "settings": settings,
        "sizes": f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}",
        "collections": len({a.at for a in answers}),
        "groups": about["groups"],
        "chance": fmean(abs(a.truth) for a in answers),
        "level": 100 * CONFIDENCE,
        "elsewhere": report.values.get("elsewhere", ""),
    }
    values |= {term: text.format(**values) for term, text in TEXTS["terms"].items()}
    protocol, *notes = (text.format(**values) for text in about["done"])
    drawn = [a.defined for a in answers if a.method == "random-proportional"]
    counted = TEXTS["how_counted"].format(undefined=drawn.count(False), drawn=len(drawn))
    stand_in = [TEXTS["stand_in"].format(name=data.name)] if data.stand_in else []
    facts = {"data": data.name, "stand_in": data.stand_in, "items": len(data), "encoder": data.encoder}
    sections = (
        Section("In short", (*stand_in, *in_short(findings, cost, claims, values)), tables=(cost,)),
        Section("What was done", (protocol, counted, *notes)),
        Section("What agrees with the paper, and what does not", tables=(claims,)),
        *(
            Section(
                section["title"],
                tuple(filled for text in section.get("text", ()) if (filled := text.format(**values))),
                tuple((stem, caption.format(**values)) for stem, caption in section.get("figures", ())),
                tuple(tables[name] for name in section["tables"]),
            )
            for section in about["sections"]
        ),
        Section(
            "Everything",
            tables=(
                ResultTable.of_fields("points", "Every point", POINTS, points, shown=False),
                ResultTable.of_fields("answers", "Every answer", ANSWERS, everything, shown=False),
            ),
        ),
    )

    def explained(table: ResultTable) -> ResultTable:
        texts = TEXTS["tables"].get(table.name, "") + about.get("tables", {}).get(table.name, "")
        return replace(table, about=texts.format(**values))

    return Results(
        name,
        f"{about['title']}{' (stand-in)' if data.stand_in else ''}: the paper's experiments, with our estimators",
        f"divscore reproduce {name} --data PATH",
        asdict(settings) | facts,
        tuple(replace(section, tables=tuple(map(explained, section.tables))) for section in sections),
        report.figures,
        run,
        ResultTable.of("short", title, short_columns, short),
    )


def equal_cost(
    answers: Sequence[Answer], methods: Sequence[Method], attributes: Sequence[str]
) -> ResultTable:
    """Every method of the paper against `likelihood` with the same number of labels."""
    ours = {m.labels: m for m in methods if not m.paper and not m.sampled}
    most = max(ours)
    rows = []
    for attribute in attributes:
        by = {m.key: [a for a in answers if (a.attribute, a.method) == (attribute, m.key)] for m in methods}
        for method in methods:
            cost = method.labels or method.sampled
            if not method.paper or cost not in ours or not any(a.defined for a in by[method.key]):
                continue
            errors = ratio(by[method.key], by[ours[cost].key])
            where = "in every collection" if method.sampled else "once"
            reached = errors.value >= WANTED if cost == most else None
            rows.append((attribute, cost, where, method.title, *errors, reached))
    columns = ("attribute", "labels", "labelled", "method", "error", "likelihood", "ratio", "± s.e.", "≥ 4 ×")
    return ResultTable.of("equal_cost", "likelihood with as many labels", columns, rows)


def size_table(findings: Findings, methods: Sequence[Method]) -> ResultTable:
    """Errors and means by size of the control set; neither if most answers are "cannot tell"."""
    by = {(p.attribute, p.at, p.method): p for p in findings.at("size")}
    rows = []
    for attribute, size in dict.fromkeys((attribute, size) for attribute, size, _ in by):
        mine = [by.get((attribute, size, m.key)) for m in methods]
        kept = [p if p and p.mostly_answers else None for p in mine]
        truth = next(p.truth for p in mine if p)
        excluded = max(p.excluded / (p.answers + p.excluded) if p else 1.0 for p in mine)
        means, errors = ([getattr(p, what) if p else None for p in kept] for what in ("mean", "mae"))
        rows.append((attribute, size, truth, *means, *errors, excluded))
    titles = [m.title for m in methods]
    columns = (
        "attribute", "size", "true d", *(f"mean, {t}" for t in titles), *(f"error, {t}" for t in titles),
        "cannot tell",
    )  # fmt: skip
    return ResultTable.of("sizes", "By size of the control set", columns, rows)


def trust_table(findings: Findings, sweep: str, methods: Sequence[Method], what: str) -> ResultTable:
    """Truth, errors and an audit's own trust in its answer, for every named collection."""
    by = {(p.attribute, p.at, p.method): p for p in findings.at(sweep)}
    rows: list[tuple[object, ...]] = []
    for attribute, name in dict.fromkeys((attribute, name) for attribute, name, _ in by):
        checks = [c for c in findings.batch.checks if (c.attribute, c.collection) == (attribute, name)]
        trusts = [fmean(c.trust == word for c in checks) for word in ("good", "caution", "poor")]
        errors = [p and p.mae for p in (by.get((attribute, name, m.key)) for m in methods)]
        ours = by[attribute, name, "likelihood"]
        relevance = median(c.relevance for c in checks)
        rows.append((attribute, name, ours.truth, *errors, ours.coverage, relevance, *trusts))
    columns = (
        "attribute", what, "true d", *(f"error, {m.title}" for m in methods), "coverage, likelihood", "relevance",
        "good", "caution", "poor",
    )  # fmt: skip
    title = f"By {what}: errors, and how often an audit is trusted"
    return ResultTable.of("collections", title, columns, rows)


def in_short(
    findings: Findings, cost: ResultTable, claims: ResultTable, values: Mapping[str, Any]
) -> tuple[str, ...]:
    """The outcome in a few sentences."""

    def by_attribute(key: str, show: Callable[[Accuracy], str]) -> str:
        shown = [(show(findings.accuracy[name][key]), name) for name in findings.main]
        return " and ".join(f"{text} ({name})" if len(shown) > 1 else text for text, name in shown)

    keys = {"few": "likelihood-few", "random": "random-balanced"}
    keys |= {key: key for key in ("likelihood", "adaptive", "iid")}
    results, note, uses = (
        text.format(
            m=findings.settings.size,
            n=findings.settings.labels,
            wanted=WANTED,
            coverage=by_attribute("likelihood", lambda s: f"{100 * (s.coverage or 0):.0f} %"),
            agreed=claims.column("verdict").count("agrees"),
            claims=len(claims.rows),
            **{word: by_attribute(key, lambda s: f"{s.mae:.3f}") for word, key in keys.items()},
            **values,
        )
        for text in TEXTS["in_short"]
    )
    return results, note, uses, "\n".join(equal_cost_text(cost)), strictest(cost)


def equal_cost_text(table: ResultTable) -> list[str]:
    """One line a method: how many times our error it has, and whether the wanted factor is reached."""
    rows = [row for row in table.records if row["≥ 4 ×"] is not None]
    lines = []
    for title in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == title]
        factors = ", ".join(f"{_factor(row)} ({row['attribute']})" for row in mine)
        short = ", ".join(row["attribute"] for row in mine if not row["≥ 4 ×"])
        factor = f"factor {WANTED:.0f}"
        verdict = f"**{factor} not reached** on {short}" if short else f"{factor} reached"
        note = " (the paper's proposal)" if title == PROPOSAL else ""
        if mine[0]["labelled"] != "once":
            note = f" ({mine[0]['labels']} new labels in every collection)"
        lines.append(f"- {title}{note}: {factors} the error of `likelihood`; {verdict}.")
    return lines


def strictest(table: ResultTable) -> str:
    """The best of the paper's methods with the same labels, given once, by attribute."""
    rows = [row for row in table.records if row["≥ 4 ×"] is not None and row["labelled"] == "once"]
    best = [
        min((row for row in rows if row["attribute"] == a), key=lambda row: float(row["ratio"] or math.inf))
        for a in dict.fromkeys(row["attribute"] for row in rows)
    ]
    listed = "; ".join(f"{row['attribute']}: {row['method']}, {_factor(row)}" for row in best)
    verdict = "reached" if all(row["≥ 4 ×"] for row in best) else "**not reached**"
    return f"Against the best of those that label once ({listed}), factor {WANTED:.0f} is {verdict}."


def _factor(row: Mapping[str, Any]) -> str:
    return f"{row['ratio'] or math.inf:.1f} ×"  # our error may be 0


class _Template(string.Formatter):
    """`str.format` that takes a missing number for 0: a spread needs two repetitions."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return str(super().format_field(0.0 if value is None else value, format_spec))

    def number(self, name: str | float, values: Mapping[str, Any]) -> float:
        value = self.get_field(name, (), values)[0] if isinstance(name, str) else name
        return float(value or 0.0)


def check_claims(checks: Iterable[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]]) -> ResultTable:
    """Check the paper's claims (see texts.toml) with values: a statistic is compared with a threshold."""
    template, rows = _Template(), []
    for claims, values in checks:
        for claim in claims:
            statistic, comparison, threshold = claim["check"]
            numbers = template.number(statistic, values), template.number(threshold, values)
            agrees = COMPARISONS[comparison](*numbers)
            measured = claim["measured"] + ("" if agrees else claim.get("otherwise", ""))
            texts = (template.vformat(text, (), values) for text in (claim["says"], claim["where"], measured))
            rows.append((*texts, "agrees" if agrees else "differs"))
    return ResultTable.of(
        "claims", "The paper's claims", ("the paper says", "where", "measured", "verdict"), rows
    )


def smaller_sets(points: Sequence[Accuracy], attribute: str, where: str) -> tuple[Any, dict[str, Any]]:
    """The claim of the appendix: adaptive control sets reach a low error with fewer examples than random ones.

    Compares the fewest examples with which each reaches the lowest error that both reach.
    """
    by: dict[str, dict[float, float]] = {
        method: {float(p.at): p.mae for p in points if p.attribute == attribute and p.method == method}
        for method in ("adaptive", "random-balanced")
    }
    both = max(min(errors.values()) for errors in by.values())
    adaptive, random = (min(at for at, error in errors.items() if error <= both) for errors in by.values())
    return TEXTS["smaller_sets"], {"where": where, "both": both, "adaptive": adaptive, "random": random}
