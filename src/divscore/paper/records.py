"""What a repetition leaves behind: answers of methods, measures of control sets, checks of collections."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["Answer", "Batch", "Check", "Measure"]


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
