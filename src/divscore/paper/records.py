"""What a repetition leaves behind: answers of methods, measures of control sets, checks of collections."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from divscore.control.similarity import FloatArray

__all__ = [
    "Answer",
    "Batch",
    "Check",
    "Measure",
    "Point",
    "Ratio",
    "Summary",
    "points",
    "ratio",
    "summaries",
    "summarise",
]


@dataclass(frozen=True)
class Answer:
    """What one method said of one collection, and the truth.

    `at` is where in the `sweep` the collection stands: its share f, the size of the control set, or its name.
    `value` is NaN where a method has no answer: with an interval that is "cannot tell", without one the method is
    not defined there (a control set drawn from a collection of one group). `prepared` and `seconds` are the
    time for the control set and for this collection.
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
        """Whether the method says how sure it is."""
        return math.isfinite(self.low)

    @property
    def defined(self) -> bool:
        """Whether the method says anything, if only that it cannot tell."""
        return math.isfinite(self.value) or self.has_interval

    @property
    def counted(self) -> bool:
        """Whether the answer enters errors: not where "cannot tell", taken for 0, would be right by design.

        That is the size sweep at disparity 0; one composition of many does not decide a mean over all of them.
        """
        by_design = self.sweep == "size" and self.truth == 0
        return self.defined and (math.isfinite(self.value) or not by_design)

    @property
    def estimate(self) -> float:
        """The disparity as it is counted: "cannot tell" stands for 0."""
        return 0.0 if self.has_interval and not math.isfinite(self.value) else self.value

    @property
    def error(self) -> float:
        """Estimate minus truth."""
        return self.estimate - self.truth

    @property
    def clipped_error(self) -> float:
        """The same with the estimate cut to what a disparity can be."""
        return min(max(self.estimate, -1.0), 1.0) - self.truth

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth, up to rounding."""
        return self.low - 1e-9 <= self.truth <= self.high + 1e-9


@dataclass(frozen=True)
class Measure:
    """A number about a control set, such as its γ^(T)."""

    attribute: str
    repetition: int
    name: str
    value: float


@dataclass(frozen=True)
class Check:
    """How far an audit trusts its own answer about a collection, and why not further."""

    attribute: str
    collection: str
    repetition: int
    trust: str
    relevance: float
    relevance_p: float
    warning: str


@dataclass(frozen=True)
class Batch:
    """Everything that one repetition found."""

    answers: list[Answer] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @classmethod
    def joined(cls, batches: list[Batch]) -> Batch:
        """Put repetitions together, in their order."""
        return cls(
            [answer for batch in batches for answer in batch.answers],
            [measure for batch in batches for measure in batch.measures],
            [check for batch in batches for check in batch.checks],
        )


# Summaries of answers: by method, and by method at every point of a sweep.


@dataclass(frozen=True)
class Summary:
    """How one method did on one attribute, over all repetitions and all points of a sweep.

    `mae` is the mean absolute error of the disparity, `clipped` the same with estimates cut to [−1, 1]; `bias` the
    mean error, `worst_bias` the largest of its absolute values at a point; `spread` the standard deviation of the
    estimate at one point, root mean square over points; `quantile` the 0.9 quantile of the absolute error.
    Standard errors are over repetitions, because the collections of one share their labels. Answers that are not
    defined are left out and counted, "cannot tell" counts as 0.
    """

    attribute: str
    method: str
    answers: int
    undefined: int
    cannot_tell: int
    mae: float
    mae_se: float | None
    clipped: float
    median: float
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Point:
    """How one method did at one point of a sweep: mean estimate, its standard error and deviation, errors."""

    sweep: str
    attribute: str
    at: float | str
    method: str
    answers: int
    left_out: int
    truth: float
    mean: float
    se: float | None
    sd: float | None
    mae: float
    quantile: float
    coverage: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Ratio:
    """Mean absolute errors of a rival and of ours on the same draws, their ratio, and its jackknife error."""

    rival: float
    ours: float
    value: float
    se: float | None


def summaries(answers: Iterable[Answer]) -> dict[tuple[str, str], Summary]:
    """Summarise by attribute and method, in the order of first appearance."""
    by: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        by[answer.attribute, answer.method].append(answer)
    return {key: found for key, some in by.items() if (found := summarise(some)) is not None}


def summarise(answers: Sequence[Answer]) -> Summary | None:
    """Summarise answers of one method on one attribute; None if it is defined nowhere."""
    told = [a for a in answers if a.defined]
    if not told:
        return None
    error = np.array([a.error for a in told])
    size = np.abs(error)
    at_points = [np.array([a.error for a in some]) for some in _by_point(told).values()]
    several = [e for e in at_points if len(e) > 1]
    sure = [a for a in told if a.has_interval]
    cover = np.array([float(a.covered) for a in sure])
    return Summary(
        attribute=told[0].attribute,
        method=told[0].method,
        answers=len(told),
        undefined=len(answers) - len(told),
        cannot_tell=sum(not math.isfinite(a.value) for a in sure),
        mae=float(size.mean()),
        mae_se=_clustered(told, size),
        clipped=float(np.mean([abs(a.clipped_error) for a in told])),
        median=float(np.median(size)),
        quantile=float(np.quantile(size, 0.9)),
        largest=float(size.max()),
        bias=float(error.mean()),
        worst_bias=max(abs(float(e.mean())) for e in at_points),
        spread=math.sqrt(float(np.mean([e.var(ddof=1) for e in several]))) if several else None,
        coverage=float(cover.mean()) if sure else None,
        coverage_se=_clustered(sure, cover) if sure else None,
        width=float(np.mean([a.high - a.low for a in sure])) if sure else None,
        prepared=float(np.mean([a.prepared for a in told])),
        seconds=float(np.mean([a.seconds for a in told])),
    )


def points(answers: Iterable[Answer]) -> list[Point]:
    """Summarise by sweep, attribute, method and point, in the order of first appearance."""
    by: dict[tuple[str, str, str, float | str], list[Answer]] = defaultdict(list)
    for answer in answers:
        by[answer.sweep, answer.attribute, answer.method, answer.at].append(answer)
    kept = (([a for a in some if a.counted], len(some)) for some in by.values())
    return [_point(some, asked) for some, asked in kept if some]


def ratio(rival: Sequence[Answer], ours: Sequence[Answer]) -> Ratio:
    """Compare two methods where both are defined; the standard error by leaving out one repetition at a time."""
    theirs, mine = ({(a.repetition, a.sweep, a.at): a for a in some if a.defined} for some in (rival, ours))
    both = [key for key in theirs if key in mine]
    errors = np.array([[abs(theirs[key].error), abs(mine[key].error)] for key in both])
    repetition = np.array([key[0] for key in both])
    sums = np.array([errors[repetition == r].sum(axis=0) for r in np.unique(repetition)])
    total, n = sums.sum(axis=0), len(sums)
    means = errors.mean(axis=0)
    value = float(total[0] / total[1])
    left = (total - sums)[:, 0] / (total - sums)[:, 1] if n > 1 else None
    se = None if left is None else math.sqrt((n - 1) * float(np.var(left)))
    return Ratio(float(means[0]), float(means[1]), value, se)


def _point(told: list[Answer], asked: int) -> Point:
    values = np.array([a.estimate for a in told])
    size = np.array([abs(a.error) for a in told])
    sd = float(values.std(ddof=1)) if len(told) > 1 else None
    sure = [a.covered for a in told if a.has_interval]
    return Point(
        sweep=told[0].sweep,
        attribute=told[0].attribute,
        at=told[0].at,
        method=told[0].method,
        answers=len(told),
        left_out=asked - len(told),
        truth=float(np.mean([a.truth for a in told])),
        mean=float(values.mean()),
        se=None if sd is None else sd / math.sqrt(len(told)),
        sd=sd,
        mae=float(size.mean()),
        quantile=float(np.quantile(size, 0.9)),
        coverage=float(np.mean(sure)) if sure else None,
    )


def _by_point(answers: Iterable[Answer]) -> dict[tuple[str, float | str], list[Answer]]:
    by: dict[tuple[str, float | str], list[Answer]] = defaultdict(list)
    for answer in answers:
        by[answer.sweep, answer.at].append(answer)
    return by


def _clustered(answers: Sequence[Answer], values: FloatArray) -> float | None:
    repetition = np.array([a.repetition for a in answers])
    means = np.array([values[repetition == r].mean() for r in np.unique(repetition)])
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
