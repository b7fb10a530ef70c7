"""Comparison: which estimator, which control set and how many labels suit a user's own labelled pool.

Part of the pool plays the labelled examples, the rest is drawn into collections of every composition (artificial
prevalence), whose disparity is known.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_dpp, select_random
from divscore.errors import ControlError, InputError, MissingExtraError
from divscore.estimators.interval import disparity
from divscore.paper.draws import SHARES, Attribute, Labelled, Material, Rows, collected, composed
from divscore.paper.figures import LOOKS, label, panels, save_figure, styled, with_legend
from divscore.paper.methods import (
    CONFIDENCE,
    Choose,
    Method,
    Run,
    Told,
    divscore_with,
    likelihood_with,
    self_training_with,
)
from divscore.paper.records import Answer, Batch, Summary, summarise
from divscore.paper.results import ResultTable, results_folder, write_texts
from divscore.paper.sweep import ask, repeat

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FILES",
    "IN_FILES_ONLY",
    "QUAPY",
    "Candidate",
    "Compared",
    "Comparison",
    "Setup",
    "advice",
    "candidates",
    "clearly_low",
    "compare",
    "comparison_document",
    "comparison_figure",
    "comparison_table",
    "usable_labels",
    "write_comparison",
]


# Candidates: the estimators and control sets among which a user chooses.

QUAPY = ("EMQ", "PACC", "KDEyML")
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # values of C
FOLDS = 5
ALPHAS: tuple[float | Literal["auto"], ...] = (0.1, 1.0, "auto")


@dataclass(frozen=True)
class Candidate(Method):
    """A method, and how many examples of all groups together stand for them; None where it has none to choose."""

    representatives: int | None = None


def candidates(counts: Sequence[int], size: int, *, quapy: bool = False) -> tuple[Candidate, ...]:
    """Methods that can be used with so many labels of each group.

    Control sets that are chosen among them are of one size: `size`, but at most half of the labels, so that there is
    a choice, and no more of a group than the rarest has.
    """
    labels, groups, balanced = sum(counts), len(counts), len(counts) * min(counts)
    chosen = min(max(2 * groups, min(size, labels // 2)), balanced)
    sets: list[tuple[str, str, Choose, int]] = [
        ("random-balanced", "random", lambda labelled: labelled.balanced(chosen), chosen),
        ("proportional", "proportional", _proportional(chosen), chosen),
        *(
            (_key(alpha), f"adaptive α = {_shown(alpha)}", _adaptive(chosen, alpha), chosen)
            for alpha in ALPHAS
        ),
        ("dpp", "dpp", lambda labelled: select_dpp(labelled.pool, chosen), chosen),
        ("all-balanced", "random, all labels", _balanced, balanced),
    ]
    found = [Candidate("likelihood", "likelihood", likelihood_with(_pool), labels)]
    for key, title, choose, number in sets:
        run = divscore_with(choose) if key != "proportional" else _where_possible(divscore_with(choose))
        found.append(Candidate(key, f"divscore, {title}", run, labels, paper=True, representatives=number))
    if groups == 2:
        run = self_training_with(_balanced, 5)
        found.append(Candidate("ss-st", "self-training", run, labels, paper=True, representatives=balanced))
    if quapy:
        _imported()
        found += [Candidate(name, f"QuaPy {name}", _quapy(name), labels) for name in QUAPY]
    return tuple(found)


def _pool(labelled: Labelled) -> ControlSet:
    return labelled.pool


def _balanced(labelled: Labelled) -> ControlSet:
    return labelled.balanced(labelled.largest)


def _key(alpha: float | Literal["auto"]) -> str:
    return "adaptive" if alpha == 1.0 else f"adaptive-{_shown(alpha)}"


def _shown(alpha: float | Literal["auto"]) -> str:
    return alpha if isinstance(alpha, str) else f"{alpha:g}"


def _adaptive(size: int, alpha: float | Literal["auto"]) -> Choose:
    return lambda labelled: select_adaptive(labelled.pool, size, alpha=alpha, seed=labelled.seed)


def _proportional(size: int) -> Choose:
    return lambda labelled: select_random(labelled.pool, size, balanced=False, seed=labelled.seed)


def _where_possible(prepare: Callable[[Labelled], Run]) -> Callable[[Labelled], Run]:
    """Not defined where there is no such control set: proportional draws may never hold two of a rare group."""

    def tried(labelled: Labelled) -> Run:
        try:
            return prepare(labelled)
        except ControlError:
            return lambda collection: Told(math.nan)

    return tried


def _quapy(name: str) -> Callable[[Labelled], Run]:
    """One of QuaPy's quantifiers with logistic regression, on all labels."""

    def prepare(labelled: Labelled) -> Run:
        from divscore.paper.quapy import fit_quantifier

        shares = fit_quantifier(_quantifier(name, labelled), labelled.pool, seed=labelled.seed)
        return lambda collection: Told(float(disparity(shares(collection.vectors))))

    return prepare


def _imported() -> None:
    """Import what QuaPy's methods need: told before anything is computed, and not part of the time they take."""
    try:
        import_module("quapy.method.aggregative")
        import_module("sklearn.model_selection")
    except ImportError as error:
        raise MissingExtraError(
            f"QuaPy cannot be imported ({error}); install it with: pip install 'divscore[quapy]'"
        ) from error


def _quantifier(name: str, labelled: Labelled) -> object:
    """A quantifier with logistic regression.

    EMQ and PACC need calibrated posteriors, which the default C does not give on unit vectors: theirs is chosen by
    cross-validated log loss on the same labels. KDEyML does better with the default.
    """
    from quapy.method import aggregative
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    strength = 1.0
    if name != "KDEyML":
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=labelled.seed)
        search = GridSearchCV(
            LogisticRegression(max_iter=1000), {"C": STRENGTHS}, scoring="neg_log_loss", cv=folds
        )
        strength = search.fit(labelled.pool.units, labelled.pool.labels).best_params_["C"]
    return getattr(aggregative, name)(LogisticRegression(C=strength, max_iter=1000))


LABELS = (50, 100, 200)
FEW_LABELS, FEW_HELD = 5, 8  # of every group: to label, to draw collections from
LEADS = (0.0, 0.5, 1.0)  # shares of the leading group where there are more than two


@dataclass(frozen=True)
class Setup:
    """How a comparison is made; `size` is that of control sets chosen among the labels, at most half of them.

    `only` names the methods to ask, where not all are wanted.
    """

    labels: tuple[int, ...]
    repetitions: int = 20
    collection: int = 200
    size: int = 50
    seed: int = 0
    quapy: bool = False
    only: tuple[str, ...] = ()

    def candidates(self, counts: Sequence[int]) -> tuple[Candidate, ...]:
        """What is asked with so many labelled examples of every group."""
        found = candidates(counts, self.size, quapy=self.quapy)
        return tuple(method for method in found if not self.only or method.key in self.only)


@dataclass(frozen=True)
class Compared:
    """One method with one number of labels."""

    labels: int
    method: str
    title: str
    summary: Summary
    representatives: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Every method with every number of labels, on the same draws."""

    attribute: str
    groups: tuple[str, ...]
    pool: int
    setup: Setup
    rows: tuple[Compared, ...]
    answers: tuple[Answer, ...]

    @property
    def items(self) -> tuple[int, int]:
        """Smallest and largest collection."""
        sizes = [a.items for a in self.answers]
        return min(sizes), max(sizes)

    @property
    def held_out(self) -> int:
        """How many examples all collections of a split are drawn from."""
        return self.pool - max(self.setup.labels)


def compare(
    pool: ControlSet,
    setup: Setup,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare on repeated splits of a labelled pool; two groups or more."""
    if not pool.similarity.collapses:
        raise InputError(f"compare works with cosine similarity; this pool has '{pool.similarity.name}'")
    usable_labels(pool, setup.labels)
    names = np.array(pool.groups)[pool.labels]
    material = Material(pool.vectors, {"group": names})
    attribute = Attribute(pool.attribute, "group", pool.groups)
    counts = np.bincount(pool.labels)
    asked = {n: setup.candidates(_quotas(counts, n).tolist()) for n in setup.labels}
    doing = functools.partial(work, attribute=attribute, setup=setup)
    tasks = [(repetition,) for repetition in range(setup.repetitions)]
    answers = Batch.joined(repeat(doing, material, tasks, workers=workers, progress=progress)).answers
    rows = []
    for labels, methods in asked.items():
        for method in methods:
            mine = [a for a in answers if a.method == method.key and a.sweep == f"{labels} labels"]
            found = summarise(mine)
            if found is not None:
                rows.append(Compared(labels, method.key, method.title, found, method.representatives))
    return Comparison(pool.attribute, pool.groups, len(pool), setup, tuple(rows), tuple(answers))


def work(material: Material, repetition: int, attribute: Attribute, setup: Setup) -> Batch:
    """One split: every number of labels and every method, on the same collections."""
    labels = attribute.labels(material)
    rng = np.random.default_rng([setup.seed, repetition])
    order = [rng.permutation(np.flatnonzero(labels == g)) for g in range(len(attribute.groups))]
    counts = np.array([len(rows) for rows in order])
    most = _quotas(counts, max(setup.labels))
    rest = np.concatenate([rows[n:] for rows, n in zip(order, most, strict=True)])
    collections = [
        collected(material, attribute, composed(labels, rest, shares, setup.collection, rng), str(at), rng)
        for at, shares in enumerate(_compositions(len(counts)))
    ]
    batch = Batch()
    for number in setup.labels:
        quotas = _quotas(counts, number)
        rows = np.concatenate([some[:n] for some, n in zip(order, quotas, strict=True)])
        labelled = Labelled.draw(material, attribute, rows, setup.size, rng, repetition)
        methods = setup.candidates(quotas.tolist())
        batch.answers.extend(ask(methods, labelled, collections, f"{number} labels"))
    return batch


def usable_labels(pool: ControlSet, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """Numbers of labels that a pool has room for: those wanted, or an error; without a wish, the usual ones."""
    few = [f"{n} of '{name}'" for name, n in pool.counts.items() if n < FEW_LABELS + FEW_HELD]
    if few:
        raise ControlError(
            f"only {' and '.join(few)} in the pool; comparing takes at least {FEW_LABELS + FEW_HELD} of every group, "
            f"{FEW_LABELS} to label and {FEW_HELD} to draw collections from. Label more"
        )
    counts = np.array(list(pool.counts.values()))
    least, most = FEW_LABELS * len(counts), _most_labels(counts)
    if wanted is None:
        usual = tuple(n for n in LABELS if least <= n <= 2 * len(pool) // 3 and n <= most)
        return usual or (max(least, min(most, len(pool) // 2)),)
    for number in wanted:
        if number < least:
            raise InputError(f"--labels {number}: {len(counts)} groups take at least {least} labels")
        if number > most:
            raise InputError(
                f"--labels {number}: of {len(pool)} labelled examples {FEW_HELD} of every group are held out, which "
                f"leaves {most} to label; give --labels {most} or less, or label about {number - most} more"
            )
    return tuple(sorted(set(wanted)))


def _most_labels(counts: Rows) -> int:
    """How many labels leave enough of every group to draw collections from."""
    numbers = range(FEW_LABELS * len(counts), int(counts.sum()) + 1)
    fitting = (n for n in reversed(numbers) if (counts - _quotas(counts, n) >= FEW_HELD).all())
    return next(fitting, FEW_LABELS * len(counts))


def _quotas(counts: Rows, labels: int) -> Rows:
    """Labels of each group in the pool's own proportions, but at least `FEW_LABELS`, at the largest's expense."""
    edges = np.rint(np.cumsum(counts / counts.sum()) * labels).astype(np.intp)
    quotas: Rows = np.maximum(np.diff(edges, prepend=0), FEW_LABELS)
    while quotas.sum() > labels:
        quotas[quotas.argmax()] -= 1
    return quotas


def _compositions(groups: int) -> list[tuple[float, ...]]:
    if groups == 2:
        return [(share, 1 - share) for share in SHARES]
    return [
        tuple(share if g == lead else (1 - share) / (groups - 1) for g in range(groups))
        for lead in range(groups)
        for share in LEADS
    ]


# Advice: what a comparison says to do, how far it goes, and what it does not show.

TOO_FAR = 0.3  # a mean absolute error beyond which no method is advised
HELPS = 1.1  # how many times the error with fewer labels is that with more, where more would help
# Evidence is thin below these. Of fewer splits than ten even the standard error is off by a quarter or more; from fewer
# than a hundred held-out examples the collections of a split are much the same items; and what a method gets wrong in
# fewer than fifty items is mostly chance, which says little of a real collection.
FEW_SPLITS, FEW_HELD_OUT, FEW_ITEMS = 10, 100, 50
SURE = 0.05  # at twenty splits coverage that is as promised is called low in some 2 % of comparisons


def advice(found: Comparison) -> str:
    """What to do, in a few sentences; then what speaks against relying on it, if anything does."""
    most = max(found.setup.labels)
    last = [row for row in found.rows if row.labels == most]
    best = min(last, key=lambda row: row.summary.mae)
    ours = next(row for row in last if row.method == "likelihood")
    # With an interval it is worth more than a rival that is ahead by chance.
    close = ours.summary.mae <= best.summary.mae + (best.summary.mae_se or 0.0)
    chosen = ours if close and _useful(ours.summary) else best
    if not _useful(chosen.summary):
        said = (
            f"None of these methods tells the groups of {found.attribute} apart with {most} labels (the best, "
            f"{best.title}, is off by {best.summary.mae:.2f} on average{_unsure(best.summary)}): try vectors of "
            "another encoder, or label more."
        )
        return f"{said}{_thin(found)}"
    told = chosen.summary
    said = (
        f"Use {chosen.title}, with all of your {found.pool:,} labels. With {most} of them, the others being held out "
        f"to test it, it was off by {told.mae:.3f} on average{_interval(told)}.{_rival(chosen, best)}"
        f"{_more(found, chosen)}{_control_set(last)}"
    )
    return f"{said}{_low_coverage(told, found.setup.repetitions)}{_thin(found)}"


def clearly_low(told: Summary, splits: int, level: float = CONFIDENCE) -> bool:
    """Whether intervals held the truth less often than they promise, beyond chance.

    A one-sided t-test over splits, because all collections of one share their labels and are missed together; its
    standard error is no smaller than that of as many independent intervals.
    """
    from scipy import stats

    if told.coverage is None or told.coverage_se is None:
        return False
    independent = math.sqrt(level * (1 - level) / told.answers)
    se = max(told.coverage_se, independent)
    return bool(stats.t.sf((level - told.coverage) / se, splits - 1) < SURE)


def _useful(told: Summary) -> bool:
    return told.mae <= TOO_FAR and 2 * told.cannot_tell <= told.answers


def _unsure(told: Summary) -> str:
    if 2 * told.cannot_tell <= told.answers:
        return ""
    return f" and cannot tell in {told.cannot_tell / told.answers:.0%} of cases"


def _interval(told: Summary) -> str:
    if told.coverage is None or told.width is None:
        return ""
    return (
        f", and its {CONFIDENCE * 100:g} % interval, {told.width:.2f} wide, held the truth in {told.coverage:.0%} of "
        "cases"
    )


def _rival(chosen: Compared, best: Compared) -> str:
    if chosen is best:
        return ""
    return (
        f" {best.title} was off by {best.summary.mae:.3f}, which may be chance (less than one standard error ahead), "
        "and has no interval."
    )


def _more(found: Comparison, chosen: Compared) -> str:
    fewer = [row for row in found.rows if row.method == chosen.method and row.labels < chosen.labels]
    if not fewer:
        return ""
    row = max(fewer, key=lambda r: r.labels)
    gain = row.summary.mae / max(chosen.summary.mae, 1e-9)
    if gain > HELPS:
        return (
            f" With {row.labels} labels it was {row.summary.mae:.3f}, so more labels should still help; 'divscore "
            "plan' says how many."
        )
    return f" With {row.labels} labels it was {row.summary.mae:.3f} already, so more would hardly help."


def _control_set(last: Sequence[Compared]) -> str:
    scores = [row for row in last if row.title.startswith("divscore")]
    best = min(scores, key=lambda row: row.summary.mae)
    kind = best.title.removeprefix("divscore, ")
    return (
        f" For the paper's DivScore the best control set was '{kind}' of {best.representatives}, off by "
        f"{best.summary.mae:.3f}."
    )


def _low_coverage(told: Summary, splits: int) -> str:
    if told.coverage is None or not clearly_low(told, splits):
        return ""
    return (
        f" But its interval held the truth in only {told.coverage:.0%} of cases, clearly less than "
        f"{CONFIDENCE * 100:g} %: take it for too narrow on such items."
    )


def _thin(found: Comparison) -> str:
    """What the comparison rests on, where that is little."""
    splits, (smallest, _) = found.setup.repetitions, found.items
    little = [
        (splits < FEW_SPLITS, f"{splits} splits"),
        (found.held_out < FEW_HELD_OUT, f"{found.held_out} held-out examples"),
        (smallest < FEW_ITEMS, f"collections from {smallest} items on"),
    ]
    said = [text for is_little, text in little if is_little]
    if not said:
        return ""
    small = found.setup.collection < FEW_ITEMS
    steps = [
        (splits < FEW_SPLITS, "more --repetitions"),
        (smallest < FEW_ITEMS and small, "a larger --collection-size"),
        (found.held_out < FEW_HELD_OUT or (smallest < FEW_ITEMS and not small), "more labelled examples"),
    ]
    do = " and ".join(text for needed, text in steps if needed)
    return f" This rests on little ({', '.join(said)}), and other splits may say otherwise; take {do}."


# The plot of a comparison: error by number of labels, or, where there is one number only, method by method.

FARTHEST = 1.0  # as far off as always saying "all of one group"; what is worse is cut
ERROR = "mean absolute error of the disparity"


def comparison_figure(rows: Sequence[Compared], title: str) -> Figure:
    """Mean absolute errors, cut where a method is far worse than guessing; the title says so."""
    numbers = sorted({row.labels for row in rows})
    cut = f", cut at {FARTHEST:g}" if any(row.summary.mae > FARTHEST for row in rows) else ""
    with styled():
        if len(numbers) == 1:
            figure, axes = panels(1, 0.6 + 0.22 * len(rows), legend=0)
            _bars(axes[0], sorted(rows, key=lambda row: row.summary.mae))
            label(axes[0], f"{title}{cut}", f"{ERROR}, {numbers[0]} labels, ± standard error", "")
            axes[0].set_xlim(0, _limit(rows, with_se=True))
            return figure
        figure, axes = panels(1, 3.2, legend=5)
        for method in dict.fromkeys(row.method for row in rows):
            _curve(axes[0], [row for row in rows if row.method == method])
        axes[0].set_ylim(0, _limit(rows))
        axes[0].set_xticks(numbers)
        label(axes[0], f"{title}{cut}", "labels", ERROR)
        return with_legend(figure, axes[0])


def _limit(rows: Sequence[Compared], *, with_se: bool = False) -> float:
    ends = [row.summary.mae + (row.summary.mae_se or 0.0) * with_se for row in rows]
    return min(FARTHEST, 1.05 * max(0.05, *ends))


def _curve(axis: Axes, rows: Sequence[Compared]) -> None:
    look = LOOKS[rows[0].method]
    axis.plot(
        [row.labels for row in rows],
        [row.summary.mae for row in rows],
        color=look.colour,
        marker=look.marker,
        markersize=look.size,
        linestyle=look.line,
        linewidth=1.1,
        label=rows[0].title,
    )


def _bars(axis: Axes, rows: Sequence[Compared]) -> None:
    """The smallest error on top."""
    axis.barh(
        range(len(rows)),
        [row.summary.mae for row in rows],
        xerr=[row.summary.mae_se or 0.0 for row in rows],
        color=[LOOKS[row.method].colour for row in rows],
        height=0.6,
        error_kw={"elinewidth": 1.0, "capsize": 2.0},
    )
    axis.set_yticks(range(len(rows)), [row.title for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)


# The outcome of a comparison: a table, a JSON document and a plot.

SCHEMA = "divscore.compare/1"
FILES = ("comparison.json", "comparison.csv", "comparison.svg", "comparison.png")
# The mean over all compositions says little of a method that leans to the middle; times differ from run to run.
IN_FILES_ONLY = ("bias", "s to prepare", "s a collection")


def comparison_table(found: Comparison) -> ResultTable:
    """Error, bias, coverage, width and time of every method."""
    rows = [
        (
            row.labels, row.title, row.representatives, s.mae, s.mae_se, s.bias, s.worst_bias, s.coverage, s.width,
            # A method without an interval always has an answer, however wrong.
            None if s.coverage is None else s.cannot_tell / s.answers, s.prepared, s.seconds,
        )
        for row in found.rows
        for s in (row.summary,)
    ]  # fmt: skip
    columns = (
        "labels", "method", "representatives", "error", "± s.e.", "bias", "largest bias", "coverage", "width",
        "cannot tell", "s to prepare", "s a collection",
    )  # fmt: skip
    return ResultTable.of("comparison", f"Comparison on {found.attribute}", columns, rows)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """The JSON document."""
    table = comparison_table(found)
    names = [name.replace(" ", "_").replace("±_s.e.", "error_se") for name in table.columns]
    smallest, largest = found.items
    return {
        "schema": SCHEMA,
        "attribute": found.attribute,
        "groups": list(found.groups),
        "pool": found.pool,
        "settings": {
            "labels": list(found.setup.labels),
            "repetitions": found.setup.repetitions,
            "collection_size": found.setup.collection,
            "size": found.setup.size,
            "seed": found.setup.seed,
            "quapy": found.setup.quapy,
        },
        "collections": {"smallest": smallest, "largest": largest, "held_out": found.held_out},
        "rows": [dict(zip(names, row, strict=True)) for row in table.rows],
        "advice": advice(found),
    }


def write_comparison(found: Comparison, folder: str | os.PathLike[str]) -> list[Path]:
    """Write comparison.json, comparison.csv and the plot; every file appears whole or not at all."""
    title = f"{found.attribute}: {found.pool} labelled examples, {found.setup.repetitions} splits"
    document = json.dumps(comparison_document(found), indent=1, ensure_ascii=False) + "\n"
    texts = dict(zip(FILES, (document, comparison_table(found).csv()), strict=False))
    with results_folder(folder) as place:
        written = save_figure(comparison_figure(found.rows, title), place / "comparison")
        return written + write_texts(place, texts)
