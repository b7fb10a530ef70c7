"""Audit: the result for one collection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from divscore.control import CROSS, ControlSet
from divscore.diagnostics import Diagnostics
from divscore.estimators.likelihood import summarise
from divscore.interval import Estimate, Interval
from divscore.wording import printable

__all__ = ["Audit", "Marginal", "marginals"]


@dataclass(frozen=True)
class Marginal:
    """One attribute of an intersection: its shares, summed over the other, and its disparity."""

    attribute: str
    shares: dict[str, float]
    disparity: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "attribute": self.attribute,
            "shares": {name: _number(value) for name, value in self.shares.items()},
            "disparity": _number(self.disparity),
            "interval": [self.interval.low, self.interval.high],
        }


@dataclass(frozen=True)
class Audit:
    """What one collection looks like from one control set.

    `disparity` is share(first group) − share(second) for two groups, largest share − smallest for more; NaN
    where the groups cannot be told apart. `divscore` is the paper's Algorithm 1 on the representatives, for
    comparison, whichever estimator was asked for.
    """

    name: str
    control: ControlSet
    estimator: str
    confidence: float
    seed: int
    count: int
    skipped: dict[str, int]
    shares: dict[str, float]
    share_intervals: dict[str, Interval]
    disparity: float
    interval: Interval
    divscore: float
    trust: str
    diagnostics: Diagnostics
    warnings: tuple[str, ...]
    marginals: tuple[Marginal, ...] = ()

    @property
    def most(self) -> str:
        """The group with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def least(self) -> str:
        """The group with the smallest share."""
        return min(self.shares, key=lambda name: self.shares[name])

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if self.trust == "poor":
            return (
                f"Cannot tell how {self.control.attribute} is distributed among these {self.count:,} items."
            )
        first = self.control.groups[0] if len(self.shares) == 2 else self.most
        limits = self.share_intervals[first]
        even = 1 / len(self.shares)
        return (
            f"Between {limits.low:.0%} and {limits.high:.0%} of these {self.count:,} items are {printable(first)}; "
            f"balanced would be {even:.0%}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of one collection in the JSON document `divscore.audit/1`."""
        entry: dict[str, Any] = {
            "name": self.name,
            "count": self.count,
            "skipped": dict(self.skipped),
            "shares": {name: _number(value) for name, value in self.shares.items()},
            "share_intervals": {name: [i.low, i.high] for name, i in self.share_intervals.items()},
            "disparity": _number(self.disparity),
            "interval": [self.interval.low, self.interval.high],
            "interval_level": self.interval.level,
            "interval_method": self.interval.method,
            "divscore": _number(self.divscore),
            "trust": self.trust,
            "diagnostics": self.diagnostics.to_dict(),
            "warnings": list(self.warnings),
        }
        if len(self.shares) > 2 and math.isfinite(self.disparity):
            entry["most"], entry["least"] = self.most, self.least
        if self.marginals:
            entry["marginals"] = [marginal.to_dict() for marginal in self.marginals]
        return entry


def marginals(control: ControlSet, estimate: Estimate, confidence: float) -> tuple[Marginal, ...]:
    """Sum an intersection's shares, and their replicates, over all but one of its attributes."""
    attributes = control.attribute.split(CROSS)
    parts = [name.split(CROSS) for name in control.groups]
    if len(attributes) < 2 or any(len(p) != len(attributes) for p in parts) or estimate.replicates is None:
        return ()
    found = []
    for at, attribute in enumerate(attributes):
        names = list(dict.fromkeys(p[at] for p in parts))
        member = np.array([[p[at] == name for p in parts] for name in names], dtype=float)
        summed = summarise(member @ estimate.shares, estimate.replicates @ member.T, confidence)
        shares = dict(zip(names, (float(s) for s in summed.shares), strict=True))
        found.append(Marginal(attribute, shares, summed.disparity, summed.interval))
    return tuple(found)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
