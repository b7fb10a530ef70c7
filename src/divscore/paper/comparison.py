"""Comparison: which estimator, which control set and how many labels suit a user's own labelled pool.

Part of the pool serves as labelled examples; the rest is drawn into collections of every composition (artificial
prevalence) with a known disparity.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.selection import select_dpp, select_random
from divscore.errors import ControlError, InputError
from divscore.estimators.interval import disparity
from divscore.files import write_file
from divscore.paper.draws import SHARES, Attribute, Labelled, collect, compose
from divscore.paper.experiment import ask, repeat
from divscore.paper.figures import comparison_figure, save_figure
from divscore.paper.labelleddata import LabelledData, Progress, Rows
from divscore.paper.methods import (
    CONFIDENCE,
    Choose,
    Method,
    Prepare,
    Run,
    adaptive,
    all_balanced,
    balanced,
    divscore_with,
    likelihood_with,
    self_training_with,
    whole_pool,
)
from divscore.paper.quapy import fit_quantifier, require_quapy
from divscore.paper.records import Accuracy, Answer, summarise
from divscore.paper.results import ResultTable
from divscore.paper.sections import TEXTS

QUAPY = ("EMQ", "PACC", "KDEyML")
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # values of C
FOLDS = 5
LABELS = (50, 100, 200)
FEW_LABELS, FEW_REST = 5, 8  # of every group: to label, to draw collections from
LEADS = (0.0, 0.5, 1.0)  # shares of the leading group if there are more than two
SCHEMA = "divscore.compare/1"
FILES = ("comparison.json", "comparison.csv", "comparison.svg", "comparison.png")
COLUMNS = {
    "labels": "labels", "method": "title", "representatives": "representatives", "error": "mae", "± s.e.": "mae_se",
    "bias": "bias", "largest bias": "worst_bias", "coverage": "coverage", "width": "width",
    "cannot tell": "cannot_tell_share", "s to prepare": "prepared", "s a collection": "seconds",
}  # fmt: skip
# The mean over all compositions says little about a method that leans to the middle; times differ from run to run.
IN_FILES_ONLY = ("bias", "s to prepare", "s a collection")


def candidates(counts: Sequence[int], setup: Setup) -> tuple[Method, ...]:
    """Methods that can be used with so many labels of each group.

    All control sets have one size: that of the setup, but at most half of the labels, which leaves a choice, and no
    more of a group than the rarest has.
    """
    labels, groups, largest = sum(counts), len(counts), len(counts) * min(counts)
    chosen = min(max(2 * groups, min(setup.size, labels // 2)), largest)
    sets: dict[str, tuple[str, Choose]] = {
        "random-balanced": ("random", balanced(chosen)),
        "proportional": (
            "proportional",
            lambda few: select_random(few.pool, chosen, balanced=False, seed=few.seed),
        ),
        "adaptive-0.1": ("adaptive α = 0.1", adaptive(chosen, 0.1)),
        "adaptive": ("adaptive α = 1", adaptive(chosen, 1.0)),
        "adaptive-auto": ("adaptive α = auto", adaptive(chosen, "auto")),
        "dpp": ("dpp", lambda few: select_dpp(few.pool, chosen)),
        "all-balanced": ("random, all labels", all_balanced),
    }
    methods = [Method("likelihood", "likelihood", likelihood_with(whole_pool), labels)]
    for key, (title, choose) in sets.items():
        number = largest if choose is all_balanced else chosen
        prepare = divscore_with(choose)
        methods.append(Method(key, f"divscore, {title}", prepare, labels, paper=True, representatives=number))
    if groups == 2:
        train = self_training_with(all_balanced, 5)
        methods.append(Method("ss-st", "self-training", train, labels, paper=True, representatives=largest))
    if setup.quapy:
        require_quapy()  # before anything is computed, and not against the clock
        methods += [Method(name, f"QuaPy {name}", _quapy(name), labels) for name in QUAPY]
    return tuple(method for method in methods if not setup.only or method.key in setup.only)


def _quapy(name: str) -> Prepare:
    """One of QuaPy's quantifiers with logistic regression, on all labels.

    EMQ and PACC need calibrated posteriors, which the default C does not give on unit vectors: their C is chosen by
    cross-validated log loss on the same labels. KDEyML does better with the default.
    """

    def prepare(labelled: Labelled) -> Run:
        from quapy.method import aggregative
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedKFold

        strength = 1.0
        if name != "KDEyML":
            folds = StratifiedKFold(FOLDS, shuffle=True, random_state=labelled.seed)
            model, grid = LogisticRegression(max_iter=1000), {"C": STRENGTHS}
            search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds)
            strength = search.fit(labelled.pool.units, labelled.pool.labels).best_params_["C"]
        quantifier = getattr(aggregative, name)(LogisticRegression(C=strength, max_iter=1000))
        shares = fit_quantifier(quantifier, labelled.pool, seed=labelled.seed)
        return lambda collection: (float(disparity(shares(collection.vectors))), math.nan, math.nan)

    return prepare


@dataclass(frozen=True)
class Setup:
    """How a comparison is made; `size` is that of control sets chosen among the labels, at most half of them.

    `only` lists the methods to compare, if not all.
    """

    labels: tuple[int, ...]
    repetitions: int = 20
    collection_size: int = 200
    size: int = 50
    seed: int = 0
    quapy: bool = False
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compared:
    """One method with one number of labels."""

    method: Method
    summary: Accuracy

    @property
    def cannot_tell_share(self) -> float | None:
        """How often the method cannot tell; a method without an interval always answers, right or wrong."""
        s = self.summary
        return None if s.coverage is None else s.cannot_tell / s.answers

    @property
    def useful(self) -> bool:
        """Whether the method is worth advising."""
        return self.summary.mae <= TOO_FAR and 2 * self.summary.cannot_tell <= self.summary.answers


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
        """Number of examples that all collections of a split are drawn from."""
        return self.pool - max(self.setup.labels)


def compare(pool: ControlSet, setup: Setup, *, workers: int = 1, progress: Progress = None) -> Comparison:
    """Compare on repeated splits of a labelled pool of two groups or more."""
    if not pool.similarity.collapses:
        raise InputError(f"compare works with cosine similarity; this pool has '{pool.similarity.name}'")
    usable_labels(pool, setup.labels)
    names = np.array(pool.groups)[pool.labels]
    data = LabelledData("pool", pool.vectors, {"group": names}, tuple(map(str, range(len(pool)))))
    counts = np.bincount(pool.labels)
    asked = {n: candidates(_quotas(counts, n).tolist(), setup) for n in setup.labels}
    call = functools.partial(work, attribute=Attribute(pool.attribute, "group", pool.groups), setup=setup)
    tasks = [(repetition,) for repetition in range(setup.repetitions)]
    batches = repeat(call, data, tasks, workers=workers, progress=progress)
    answers = [answer for batch in batches for answer in batch]
    rows = []
    for labels, methods in asked.items():
        for method in methods:
            mine = [a for a in answers if a.method == method.key and a.sweep == f"{labels} labels"]
            if (summary := summarise(mine)) is not None:
                rows.append(Compared(method, summary))
    return Comparison(pool.attribute, pool.groups, len(pool), setup, tuple(rows), tuple(answers))


def work(data: LabelledData, repetition: int, attribute: Attribute, setup: Setup) -> list[Answer]:
    """One split: every number of labels and every method, on the same collections."""
    labels = attribute.labels(data)
    rng = np.random.default_rng([setup.seed, repetition])
    order = [rng.permutation(np.flatnonzero(labels == g)) for g in range(len(attribute.groups))]
    counts = np.array([len(rows) for rows in order])
    most = _quotas(counts, max(setup.labels))
    rest = np.concatenate([rows[n:] for rows, n in zip(order, most, strict=True)])
    collections = [
        collect(data, attribute, compose(labels, rest, shares, setup.collection_size, rng), str(at), rng)
        for at, shares in enumerate(_compositions(len(counts)))
    ]
    answers = []
    for number in setup.labels:
        quotas = _quotas(counts, number)
        rows = np.concatenate([group[:n] for group, n in zip(order, quotas, strict=True)])
        labelled = Labelled.draw(data, attribute, rows, rng, repetition)
        answers += ask(candidates(quotas.tolist(), setup), labelled, collections, f"{number} labels")
    return answers


def usable_labels(pool: ControlSet, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """Numbers of labels that a pool is large enough for: those wanted, or an error; by default the usual ones."""
    few = [f"{n} of '{name}'" for name, n in pool.counts.items() if n < FEW_LABELS + FEW_REST]
    if few:
        raise ControlError(
            f"only {' and '.join(few)} in the pool; compare needs at least {FEW_LABELS + FEW_REST} of every group, "
            f"{FEW_LABELS} to label and {FEW_REST} to draw collections from. Label more"
        )
    counts = np.array(list(pool.counts.values()))
    least = FEW_LABELS * len(counts)
    numbers = range(least, len(pool) + 1)
    enough_left = (n for n in reversed(numbers) if (counts - _quotas(counts, n) >= FEW_REST).all())
    most = next(enough_left, least)
    if wanted is None:
        usual = tuple(n for n in LABELS if least <= n <= 2 * len(pool) // 3 and n <= most)
        return usual or (max(least, min(most, len(pool) // 2)),)
    for number in wanted:
        if number < least:
            raise InputError(f"--labels {number}: {len(counts)} groups need at least {least} labels")
        if number > most:
            raise InputError(
                f"--labels {number}: {FEW_REST} of every group are held out, so {most} of the {len(pool)} labelled "
                f"examples are left to label; use --labels {most} or less, or label about {number - most} more"
            )
    return tuple(sorted(set(wanted)))


def _quotas(counts: Rows, labels: int) -> Rows:
    """Labels of each group in the pool's own proportions, but at least `FEW_LABELS`, taken from the largest."""
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


# Advice: what to do, and how much evidence there is.

TOO_FAR = 0.3  # no method with a larger mean absolute error is advised
HELPS = 1.1  # more labels help if the error with fewer is so many times as large
# Evidence is thin below these. With fewer than ten splits even the standard error is wrong by a quarter or more; with
# fewer than a hundred held-out examples the collections of a split are mostly the same items; and the error on fewer
# than fifty items is mostly chance, which says little about a real collection.
FEW_SPLITS, FEW_HELD_OUT, FEW_ITEMS = 10, 100, 50
SURE = 0.05  # at twenty splits, coverage as promised is called low in about 2 % of comparisons


def advice(comparison: Comparison) -> str:
    """What to do, in a few sentences; then what weakens the advice, if anything does."""
    most, splits = max(comparison.setup.labels), comparison.setup.repetitions
    last = [row for row in comparison.rows if row.method.labels == most]
    best = min(last, key=lambda row: row.summary.mae)
    ours = next(row for row in last if row.method.key == "likelihood")
    scores = [row for row in last if row.method.title.startswith("divscore")]
    score = min(scores, key=lambda row: row.summary.mae)
    # With its interval it is worth more than a rival that is ahead by chance.
    close = ours.summary.mae <= best.summary.mae + (best.summary.mae_se or 0.0)
    chosen = ours if close and ours.useful else best
    s = chosen.summary
    mine = [row for row in comparison.rows if row.method.key == chosen.method.key]
    less = [row for row in mine if row.method.labels < most]
    fewer = max(less, key=lambda row: row.method.labels, default=chosen)
    helps = fewer.summary.mae / max(s.mae, 1e-9) > HELPS
    few_splits, few_held_out = splits < FEW_SPLITS, comparison.held_out < FEW_HELD_OUT
    few_items, small = comparison.items[0] < FEW_ITEMS, comparison.setup.collection_size < FEW_ITEMS
    little = {
        f"{splits} splits": few_splits,
        f"{comparison.held_out} held-out examples": few_held_out,
        f"collections of only {comparison.items[0]} items": few_items,
    }
    take = {
        "more --repetitions": few_splits,
        "a larger --collection-size": few_items and small,
        "more labelled examples": few_held_out or (few_items and not small),
    }
    share = best.cannot_tell_share or 0.0
    sentences = {
        "none": not chosen.useful,
        "use": chosen.useful,
        "rival": chosen.useful and chosen is not best,
        "more": chosen.useful and bool(less) and helps,
        "enough": chosen.useful and bool(less) and not helps,
        "control": chosen.useful,
        "low": chosen.useful and clearly_low(s, splits),
        "thin": any(little.values()),
    }
    texts, level = TEXTS["advice"], 100 * CONFIDENCE
    return " ".join(texts[name] for name, applies in sentences.items() if applies).format(
        attribute=comparison.attribute,
        pool=comparison.pool,
        most=most,
        level=level,
        best=best,
        unsure=texts["unsure"].format(unsure=share) if 2 * share > 1 else "",
        chosen=chosen,
        s=s,
        interval="" if s.coverage is None else texts["interval"].format(level=level, s=s),
        fewer=fewer,
        score=score,
        kind=score.method.title.removeprefix("divscore, "),
        little=", ".join(text for text, applies in little.items() if applies),
        take=" and ".join(text for text, applies in take.items() if applies),
    )


def clearly_low(summary: Accuracy, splits: int, level: float = CONFIDENCE) -> bool:
    """Whether intervals contain the truth less often than they promise, beyond chance.

    A one-sided t-test over splits, because all collections of one share their labels and are missed together; its
    standard error is at least that of as many independent intervals.
    """
    from scipy import stats

    if summary.coverage is None or summary.coverage_se is None:
        return False
    independent = math.sqrt(level * (1 - level) / summary.answers)
    se = max(summary.coverage_se, independent)
    return bool(stats.t.sf((level - summary.coverage) / se, splits - 1) < SURE)


def comparison_table(comparison: Comparison) -> ResultTable:
    """Error, bias, coverage, width and time of every method."""
    rows = [(row, row.summary, row.method) for row in comparison.rows]
    return ResultTable.of_fields("comparison", f"Comparison on {comparison.attribute}", COLUMNS, rows)


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The JSON document."""
    smallest, largest = comparison.items
    settings = asdict(comparison.setup)
    del settings["only"]  # a choice of the code that publishes, not of the user
    return {
        "schema": SCHEMA,
        "attribute": comparison.attribute,
        "groups": list(comparison.groups),
        "pool": comparison.pool,
        "settings": settings,
        "collections": {"smallest": smallest, "largest": largest, "held_out": comparison.held_out},
        "rows": [
            {name.replace("± s.e.", "error_se").replace(" ", "_"): value for name, value in row.items()}
            for row in comparison_table(comparison).records
        ],
        "advice": advice(comparison),
    }


def write_comparison(comparison: Comparison, place: Path) -> list[Path]:
    """Write comparison.json, comparison.csv and the plot into a folder."""
    title = (
        f"{comparison.attribute}: {comparison.pool} labelled examples, {comparison.setup.repetitions} splits"
    )
    document = json.dumps(comparison_document(comparison), indent=1, ensure_ascii=False) + "\n"
    figure = comparison_figure([(row.method, row.summary) for row in comparison.rows], title)
    written = save_figure(figure, place / "comparison")
    for name, text in zip(FILES, (document, comparison_table(comparison).csv()), strict=False):
        write_file(place / name, text)
        written.append(place / name)
    return written
