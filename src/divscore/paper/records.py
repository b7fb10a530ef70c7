"""What a repetition leaves behind: the answers of methods, and how accurate they are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from divscore.control.similarity import FloatArray


@dataclass(frozen=True)
class Answer:
    """One method's estimate for one collection, and the truth.

    `at` is the collection's place in the `sweep`: its share f, the size of the control set, or its name. `value` is
    NaN if there is no estimate: with an interval that means "cannot tell", without one the method is undefined there
    (a control set drawn from a collection of one group). `prepared` and `seconds` are the times for the control set
    and for this collection.
    """

    sweep: str
    attribute: str
    at: float | str
    repetition: int
    method: str
    items: int
    truth: float
    value: float
    low: float = math.nan
    high: float = math.nan
    prepared: float = 0.0
    seconds: float = 0.0

    @property
    def has_interval(self) -> bool:
        """Whether the method has an interval."""
        return math.isfinite(self.low)

    @property
    def defined(self) -> bool:
        """Whether the method answers, if only by "cannot tell"."""
        return math.isfinite(self.value) or self.has_interval

    @property
    def estimate(self) -> float:
        """The disparity as it is counted: "cannot tell" counts as 0."""
        return 0.0 if self.has_interval and not math.isfinite(self.value) else self.value

    @property
    def error(self) -> float:
        """Estimate minus truth."""
        return self.estimate - self.truth

    @property
    def covered(self) -> bool:
        """Whether the interval contains the truth, up to rounding."""
        return self.low - 1e-9 <= self.truth <= self.high + 1e-9


@dataclass(frozen=True)
class SelfCheck:
    """How far an audit trusts its own answer about a collection, and its first warning."""

    attribute: str
    collection: str
    trust: str
    relevance: float
    warning: str


@dataclass(frozen=True)
class Batch:
    """Everything of one repetition; `measures` are (attribute, name, value), such as a control set's γ^(T)."""

    answers: list[Answer] = field(default_factory=list)
    measures: list[tuple[str, str, float]] = field(default_factory=list)
    checks: list[SelfCheck] = field(default_factory=list)

    @classmethod
    def joined(cls, batches: Iterable[Batch]) -> Batch:
        """Concatenate repetitions, in their order."""
        whole = cls()
        for batch in batches:
            whole.answers.extend(batch.answers)
            whole.measures.extend(batch.measures)
            whole.checks.extend(batch.checks)
        return whole


@dataclass(frozen=True)
class Accuracy:
    """How accurate one method is on one attribute: at one point of a sweep, or over all of them.

    `truth` and `mean` are means of the true and the estimated disparity, `sd` the estimate's standard deviation. `mae`
    is the mean absolute error, `clipped` the same with estimates cut to [−1, 1]; `quantile` the 0.9 quantile of the
    absolute error; `bias` the mean error, `worst_bias` its largest absolute value at a point; `spread` the standard
    deviation of the estimate at one point, root mean square over points. `mae_se` and `coverage_se` are standard errors
    over repetitions, because the collections of one share their labels. `excluded` answers do not count;
    "cannot tell" counts as 0.
    """

    sweep: str
    attribute: str
    at: float | str
    method: str
    answers: int
    excluded: int
    cannot_tell: int
    truth: float
    mean: float
    sd: float | None
    mae: float
    mae_se: float | None
    clipped: float
    quantile: float
    largest: float
    bias: float
    worst_bias: float
    spread: float | None
    coverage: float | None
    coverage_se: float | None
    width: float | None
    prepared: float
    seconds: float

    @property
    def se(self) -> float | None:
        """Standard error of the mean estimate at a point."""
        return None if self.sd is None else self.sd / math.sqrt(self.answers)

    @property
    def mostly_answers(self) -> bool:
        """Whether at least half of the answers count; a method that mostly cannot tell has no error worth showing."""
        return self.answers >= self.excluded


class Ratio(NamedTuple):
    """Mean absolute errors of a rival and of ours on the same draws, their ratio, and its jackknife error."""

    rival: float
    ours: float
    value: float
    se: float | None


def points(answers: Iterable[Answer]) -> list[Accuracy]:
    """Accuracy by sweep, attribute, method and point, in the order of first appearance.

    "Cannot tell", which counts as 0, does not count where that is right by design: in the size sweep at disparity 0.
    Elsewhere one composition of many does not decide a mean over all of them.
    """
    by: dict[tuple[str, str, str, float | str], list[Answer]] = defaultdict(list)
    for a in answers:
        by[a.sweep, a.attribute, a.method, a.at].append(a)
    at_points = []
    for same in by.values():
        counted = [a for a in same if math.isfinite(a.value) or a.sweep != "size" or a.truth]
        at_points.append(summarise(counted, len(same)))
    return [point for point in at_points if point is not None]


def summarise(answers: Sequence[Answer], asked: int | None = None) -> Accuracy | None:
    """Accuracy of one method on one attribute; None if it is undefined everywhere."""
    kept = [a for a in answers if a.defined]
    if not kept:
        return None
    values = np.array([a.estimate for a in kept])
    error = np.array([a.error for a in kept])
    size = np.abs(error)
    by_point: dict[tuple[str, float | str], list[float]] = defaultdict(list)
    for a in kept:
        by_point[a.sweep, a.at].append(a.error)
    variances = [np.var(e, ddof=1) for e in by_point.values() if len(e) > 1]
    sure = [a for a in kept if a.has_interval]
    cover = np.array([float(a.covered) for a in sure])
    return Accuracy(
        sweep=kept[0].sweep,
        attribute=kept[0].attribute,
        at=kept[0].at,
        method=kept[0].method,
        answers=len(kept),
        excluded=(len(answers) if asked is None else asked) - len(kept),
        cannot_tell=sum(not math.isfinite(a.value) for a in sure),
        truth=float(np.mean([a.truth for a in kept])),
        mean=float(values.mean()),
        sd=float(values.std(ddof=1)) if len(kept) > 1 else None,
        mae=float(size.mean()),
        mae_se=_clustered(kept, size),
        clipped=float(np.mean([abs(min(max(a.estimate, -1.0), 1.0) - a.truth) for a in kept])),
        quantile=float(np.quantile(size, 0.9)),
        largest=float(size.max()),
        bias=float(error.mean()),
        worst_bias=max(abs(float(np.mean(e))) for e in by_point.values()),
        spread=math.sqrt(float(np.mean(variances))) if variances else None,
        coverage=float(cover.mean()) if sure else None,
        coverage_se=_clustered(sure, cover) if sure else None,
        width=float(np.mean([a.high - a.low for a in sure])) if sure else None,
        prepared=float(np.mean([a.prepared for a in kept])),
        seconds=float(np.mean([a.seconds for a in kept])),
    )


def ratio(rival: Sequence[Answer], ours: Sequence[Answer]) -> Ratio:
    """Compare two methods where both are defined; the standard error by leaving out one repetition at a time."""
    theirs, mine = (
        {(a.repetition, a.sweep, a.at): a for a in answers if a.defined} for answers in (rival, ours)
    )
    both = [key for key in theirs if key in mine]
    errors = np.array([[abs(theirs[key].error), abs(mine[key].error)] for key in both])
    repetition = np.array([key[0] for key in both])
    sums = np.array([errors[repetition == r].sum(axis=0) for r in np.unique(repetition)])
    total, n = sums.sum(axis=0), len(sums)
    means = errors.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a method may be exactly right
        value, without = total[0] / total[1], (total - sums)[:, 0] / (total - sums)[:, 1]
    se = math.sqrt((n - 1) * float(np.var(without))) if n > 1 and np.isfinite(without).all() else None
    return Ratio(float(means[0]), float(means[1]), float(value), se)


def _clustered(answers: Sequence[Answer], values: FloatArray) -> float | None:
    """Standard error of a mean over repetitions."""
    repetition = np.array([a.repetition for a in answers])
    means = np.array([values[repetition == r].mean() for r in np.unique(repetition)])
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
