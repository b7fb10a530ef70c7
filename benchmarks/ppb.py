"""The paper's PPB protocol: error and intervals of every estimator, and of QuaPy, on the same draws.

Each split labels 200 random portraits and makes collections of about 480 of the other 1,070, with 0, 10, …
100 % of the first group. `likelihood` and QuaPy get all 200 labels or 50 of them; DivScore gets the 50, or 50
chosen adaptively of the 200. An answer of "cannot tell" counts as d = 0.

QuaPy's methods run with logistic regression on raw and on unit vectors, with scikit-learn's default C and
with a C chosen by cross-validated log loss on the same labels; the best of the four is reported for each,
chosen by its error, which favours them. The default alone would be a straw man: plain EMQ needs calibrated
posteriors, which C = 1 gives on neither kind of vector. For that reason QuaPy's own calibrated configuration,
EMQ with BCTS, runs too; where its calibration fails to converge, QuaPy's "backup" goes on without.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import portraits
from numpy.typing import NDArray
from portraits import ATTRIBUTES, LABELLED, SIZE, Portraits, Rows
from record import Check, Record, Table, parser, progress, repository_path
from workers import each

from divscore import ControlSet, select_adaptive
from divscore.audit.audit import audit

SHARES = tuple(f / 10 for f in range(11))
FEW = 50
ERROR = {LABELLED: (0.025, 0.055, 0.065), FEW: (0.06, 0.12, 0.12)}
WIDTH = (0.30, 0.60, 0.55)  # with 50 labels
RATIO, COVERAGE, SHARE_ERROR = 1.15, 0.92, 0.03
QUAPY = ("EMQ", "EMQ-BCTS", "PACC", "KDEyML")
PENALTIES = {"raw": (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "unit": (0.1, 1.0, 10.0, 100.0, 1000.0)}  # values of C
DEFAULT, CHOSEN = "default C", "chosen C"
RANDOM, ADAPTIVE = "DivScore, the same 50", "DivScore, adaptive 50 of 200"


@dataclass(frozen=True)
class Answer:
    """What one method said of one collection."""

    split: int
    attribute: str
    labels: int
    method: str
    share: float
    truth: float
    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def error(self) -> float:
        """Estimate minus truth; no estimate stands for d = 0."""
        return (self.value if math.isfinite(self.value) else 0.0) - self.truth

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth, up to rounding."""
        return self.low - 1e-9 <= self.truth <= self.high + 1e-9


def split_answers(split: int, *, path: Path, seed: int, draw: str, quapy: bool) -> list[Answer]:
    """Everything that is asked on one split, for two groups."""
    data = portraits.load(path)
    found = []
    for attribute in ATTRIBUTES:
        labelled, few, sets = drawn(data, split, attribute, seed, draw)
        found += _ours(data, split, attribute, labelled, few, sets)
        if quapy:
            found += _theirs(data, split, attribute, {LABELLED: labelled, FEW: few}, sets)
    return found


def drawn(data: Portraits, split: int, attribute: str, seed: int, draw: str) -> tuple[Rows, Rows, list[Rows]]:
    """The labelled portraits of a split, a few of them, and collections of the others."""
    rng = np.random.default_rng([seed, split, ATTRIBUTES.index(attribute)])
    order = np.random.default_rng([seed, split]).permutation(len(data))
    labelled, rest = order[:LABELLED], order[LABELLED:]
    few = _few(data, labelled, attribute, draw, rng)
    return labelled, few, [portraits.collection(data, rest, attribute, share, rng) for share in SHARES]


def _few(data: Portraits, labelled: Rows, attribute: str, draw: str, rng: np.random.Generator) -> Rows:
    if draw == "balanced":
        return portraits.balanced(data, labelled, attribute, FEW, rng)
    while True:  # a draw with one example of a group is no control set, and is made again
        few = rng.permutation(labelled)[:FEW]
        if 2 <= data.first(attribute)[few].sum() <= FEW - 2:
            return few


def _ours(
    data: Portraits, split: int, attribute: str, labelled: Rows, few: Rows, sets: list[Rows]
) -> Iterator[Answer]:
    # One audit gives two answers: `likelihood` from all labelled examples, DivScore from the representatives.
    whole = portraits.control(data, labelled, attribute)
    adaptive = select_adaptive(whole, 2 * min(FEW // 2, *whole.counts.values()))
    pairs = [(LABELLED, adaptive, ADAPTIVE), (FEW, portraits.control(data, few, attribute), RANDOM)]
    for labels, control, score in pairs:
        for share, rows in zip(SHARES, sets, strict=True):
            truth = data.disparity(attribute, rows)
            result = audit(data.vectors[rows], control, seed=split, show_untrusted=True)
            low, high = result.interval.low, result.interval.high
            yield Answer(split, attribute, labels, "likelihood", share, truth, result.disparity, low, high)
            yield Answer(split, attribute, FEW, score, share, truth, result.divscore)


def _theirs(
    data: Portraits, split: int, attribute: str, labelled: dict[int, Rows], sets: list[Rows]
) -> Iterator[Answer]:
    import quapy as qp

    qp.environ["N_JOBS"] = 1
    groups = np.where(data.first(attribute), 0, 1)
    unit = data.vectors / np.linalg.norm(data.vectors, axis=1, keepdims=True)
    truths = [data.disparity(attribute, rows) for rows in sets]
    for features, vectors in (("raw", data.vectors), ("unit", unit)):
        for labels, rows in labelled.items():
            training = qp.data.LabelledCollection(vectors[rows], groups[rows], classes=[0, 1])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for variant, model in _models(training, features, split):
                    np.random.seed(split)  # noqa: NPY002 - QuaPy draws its folds from the global state
                    model.fit(*training.Xy)
                    for share, chosen, truth in zip(SHARES, sets, truths, strict=True):
                        guess = model.predict(vectors[chosen])
                        value = float(guess[0] - guess[1])
                        yield Answer(split, attribute, labels, variant, share, truth, value)


def _models(training: Any, features: str, seed: int) -> Iterator[tuple[str, Any]]:
    """Every method of `QUAPY` with the default C and with one chosen on the labelled examples alone."""
    from quapy.method.aggregative import EMQ, PACC, KDEyML
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    search = GridSearchCV(
        LogisticRegression(max_iter=1000),
        {"C": PENALTIES[features]},
        scoring="neg_log_loss",
        cv=StratifiedKFold(5, shuffle=True, random_state=seed),
    )
    chosen = search.fit(*training.Xy).best_params_["C"]
    makers = (EMQ, functools.partial(EMQ.EMQ_BCTS, on_calib_error="backup"), PACC, KDEyML)
    for label, C in ((DEFAULT, 1.0), (CHOSEN, chosen)):
        for name, make in zip(QUAPY, makers, strict=True):
            yield f"{name}|{features} vectors, {label}", make(LogisticRegression(C=C, max_iter=1000))


def split_shares(split: int, *, path: Path, seed: int) -> list[tuple[Any, ...]]:
    """Four groups on one split: (kind, split, |error| and cover of each share, |error| of each marginal)."""
    data = portraits.load(path)
    rng = np.random.default_rng([seed, split, 10])
    order = np.random.default_rng([seed, split]).permutation(len(data))
    labelled, rest = order[:LABELLED], order[LABELLED:]
    parts = [portraits.control(data, labelled, a) for a in ("gender", "skin tone")]
    control = parts[0].cross(parts[1])
    both = zip(data.groups["gender"], data.groups["skin tone"], strict=True)
    names = np.array([f"{gender} × {tone}" for gender, tone in both])
    kinds = {"random": 2, "artificial": 6}
    found = []
    for kind, number in kinds.items():
        for _ in range(number):
            rows = rng.permutation(rest)[:SIZE] if kind == "random" else _composed(names, rest, control, rng)
            found.append((kind, split, *_shares(data, rows, names, control, split)))
    return found


def _composed(names: NDArray[Any], rest: Rows, control: ControlSet, rng: np.random.Generator) -> Rows:
    """Draw a collection whose shares are uniform on the simplex, as near to `SIZE` as the groups allow."""
    shares = rng.dirichlet(np.ones(len(control.groups)))
    members = [rng.permutation(rest[names[rest] == group]) for group in control.groups]
    size = min(SIZE, *(len(m) / s for m, s in zip(members, shares, strict=True)))
    return np.concatenate([m[: round(s * size)] for m, s in zip(members, shares, strict=True)])


def _shares(
    data: Portraits, rows: Rows, names: NDArray[Any], control: ControlSet, seed: int
) -> tuple[list[float], list[bool], list[float]]:
    result = audit(data.vectors[rows], control, seed=seed, show_untrusted=True)
    truth = {group: float((names[rows] == group).mean()) for group in control.groups}
    even = 1 / len(control.groups)
    value = {g: result.shares[g] if math.isfinite(result.shares[g]) else even for g in control.groups}
    errors = [abs(value[g] - truth[g]) for g in control.groups]
    limits = result.share_intervals
    cover = [limits[g].low - 1e-9 <= truth[g] <= limits[g].high + 1e-9 for g in control.groups]
    marginal = [abs(m.disparity - data.disparity(m.attribute, rows)) for m in result.marginals]
    return errors, cover, marginal


def summarise(answers: list[Answer]) -> dict[str, float | None]:
    """Mean absolute error, bias, coverage with its standard error over splits, width, "cannot tell"."""
    error = np.array([a.error for a in answers])
    found: dict[str, float | None] = {
        "mae": float(np.abs(error).mean()),
        "mae_se": _clustered(answers, np.abs(error)),
        "bias": float(error.mean()),
        "coverage": None,
        "coverage_se": None,
        "width": None,
        "cannot_tell": float(np.mean([not math.isfinite(a.value) for a in answers])),
    }
    if math.isfinite(answers[0].low):
        cover = np.array([a.covered for a in answers], dtype=float)
        found["coverage"], found["coverage_se"] = float(cover.mean()), _clustered(answers, cover)
        found["width"] = float(np.mean([a.high - a.low for a in answers]))
    return found


def _clustered(answers: list[Answer], values: NDArray[np.float64]) -> float | None:
    """Return the standard error of a mean over splits: collections of one split share their labels."""
    split = np.array([a.split for a in answers])
    means = np.array([values[split == s].mean() for s in np.unique(split)])
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None


def report(record: Record, answers: list[Answer]) -> None:
    """Tables and checks of the two-group settings."""
    by: dict[tuple[str, int, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        by[answer.attribute, answer.labels, answer.method].append(answer)
    settings = [(labels, at, a) for labels in (LABELLED, FEW) for at, a in enumerate(ATTRIBUTES)]
    rows, ratios, detail = [], [], []
    for labels, at, attribute in settings:
        summaries = {m: summarise(v) for (a, n, m), v in by.items() if (a, n) == (attribute, labels)}
        plain = _best({m: t for m, t in summaries.items() if m.endswith(DEFAULT)})
        summaries = _better(summaries)
        rows += [[attribute, labels, m, *t.values()] for m, t in summaries.items()]
        ours = summaries["likelihood"]
        where = f"{attribute}, {labels} labels"
        record.checks.append(Check(f"likelihood error, {where}", float(ours["mae"] or 0), ERROR[labels][at]))
        record.checks.append(Check(f"coverage, {where}", float(ours["coverage"] or 0), COVERAGE, upper=False))
        if labels == FEW:
            record.checks.append(Check(f"width, {where}", float(ours["width"] or 0), WIDTH[at]))
        rival = _best(summaries)
        if rival and plain:
            error = float(ours["mae"] or 0)
            ratio = error / rival[1]
            ratios.append([attribute, labels, error, rival[1], rival[0], ratio, plain[1], error / plain[1]])
            record.checks.append(Check(f"error over QuaPy's best, {where}", ratio, RATIO))
        for share in SHARES:
            one = summarise([a for a in by[attribute, labels, "likelihood"] if a.share == share])
            detail.append([attribute, labels, share, *one.values()])
    measures = ["error", "± s.e.", "bias", "coverage", "± s.e.", "width", "cannot tell"]
    columns = ["attribute", "labels", "method", *measures]
    record.tables.append(Table("Mean absolute error of d", columns, rows))
    if ratios:
        columns = ["attribute", "labels", "likelihood", "QuaPy's best", "which", "ratio"]
        columns += ["best with default C", "ratio"]
        record.tables.append(Table("Against the best of QuaPy", columns, ratios))
    columns = ["attribute", "labels", "share", *measures]
    record.tables.append(Table("likelihood by share of the first group", columns, detail, shown=False))


def _better(summaries: dict[str, dict[str, float | None]]) -> dict[str, dict[str, float | None]]:
    """Keep the best variant of each of QuaPy's methods, and name it."""
    kept = {m: t for m, t in summaries.items() if "|" not in m}
    for name in QUAPY:
        best = _best({m: t for m, t in summaries.items() if m.startswith(f"{name}|")})
        if best:
            variant = best[0].partition("|")[2]
            kept[f"QuaPy {name} ({variant})"] = summaries[best[0]]
    return kept


def _best(summaries: dict[str, dict[str, float | None]]) -> tuple[str, float] | None:
    """Name QuaPy's method with the smallest error, and give the error."""
    errors = {m: float(t["mae"] or 0) for m, t in summaries.items() if "|" in m or m.startswith("QuaPy")}
    return min(errors.items(), key=lambda item: item[1]) if errors else None


def report_shares(record: Record, found: list[tuple[Any, ...]]) -> None:
    """Table and checks of the four groups."""
    rows = []
    for kind in ("random", "artificial"):
        mine = [f for f in found if f[0] == kind]
        error = float(np.mean([f[2] for f in mine]))
        cover = float(np.mean([f[3] for f in mine]))
        marginal = float(np.mean([f[4] for f in mine]))
        rows.append([kind, len(mine), error, cover, marginal])
        record.checks.append(Check(f"error of a share, four groups, {kind} collections", error, SHARE_ERROR))
        record.checks.append(
            Check(f"coverage of a share, four groups, {kind} collections", cover, COVERAGE, upper=False)
        )
    columns = ["collections", "number", "error of a share", "coverage", "error of a marginal's d"]
    record.tables.append(Table(f"Gender × skin tone, four groups, {LABELLED} labels", columns, rows))


def main() -> None:
    options = _options()
    portraits.load(options.data)
    quapy = not options.no_quapy
    if quapy:
        _require_quapy()
    splits = range(options.splits)
    record = Record("ppb", _settings(options, quapy))
    shared = {"path": options.data, "seed": options.seed}
    progress("two groups", 0, options.splits)
    answers = each(
        split_answers, splits, options.jobs, "two groups", draw=options.draw, quapy=quapy, **shared
    )
    report(record, answers)
    if not options.no_four:
        report_shares(record, each(split_shares, splits, options.jobs, "four groups", **shared))
    record.finish(options.out)


def _settings(options: argparse.Namespace, quapy: bool) -> dict[str, Any]:
    return {
        "data": repository_path(options.data),
        "splits": options.splits,
        "seed": options.seed,
        "labels": [LABELLED, FEW],
        "draw of the 50": options.draw,
        "collection": SIZE,
        "shares": list(SHARES),
        "quapy": quapy,
        "quapy's values of C": {kind: list(values) for kind, values in PENALTIES.items()} if quapy else None,
    }


def _require_quapy() -> None:
    try:
        import quapy  # noqa: F401
    except ImportError:
        raise SystemExit(
            "QuaPy is not installed: pip install -r benchmarks/requirements.txt, or give --no-quapy"
        ) from None


def _options() -> argparse.Namespace:
    options = parser("ppb", (__doc__ or "").partition("\n")[0], data=portraits.DATA, splits=30)
    options.add_argument(
        "--draw", choices=("balanced", "random"), default="balanced", help="how 50 of the 200 are drawn"
    )
    options.add_argument("--no-quapy", action="store_true", help="leave QuaPy out")
    options.add_argument("--no-four", action="store_true", help="leave the four groups out")
    return options.parse_args()


if __name__ == "__main__":
    main()
