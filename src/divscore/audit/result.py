"""Audit: the result for one collection."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from divscore.audit.trust import Diagnostics, control_facts
from divscore.control.controlset import CROSS, ControlSet
from divscore.estimators.interval import Estimate, Interval, Refits
from divscore.estimators.likelihood import summarise
from divscore.sketch.missing import Missing
from divscore.text import count, finite, percent, percent_ends, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
            "shares": {name: finite(value) for name, value in self.shares.items()},
            "disparity": finite(self.disparity),
            "interval": [self.interval.low, self.interval.high],
        }


@dataclass(frozen=True)
class Audit:
    """The result of auditing one collection with one control set.

    `disparity` is share(first group) − share(second) for two groups, largest share − smallest for more; NaN
    if the groups cannot be separated. `divscore` is the paper's Algorithm 1 on the representatives, for
    comparison, whichever estimator was used. `noun` is what the items are: items, pictures, texts.
    `missing` are the parts of the source that could not be read and that belong, or may belong, to the collection.
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
    noun: str = "items"
    missing: Missing = field(default_factory=Missing)
    refits: Refits | None = field(default=None, compare=False, repr=False)

    @property
    def most(self) -> str:
        """The group with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def least(self) -> str:
        """The group with the smallest share."""
        return min(self.shares, key=lambda name: self.shares[name])

    @property
    def has_shares(self) -> bool:
        """Whether every group has a share; the DivScore of more than two groups gives none."""
        return all(math.isfinite(share) for share in self.shares.values())

    @property
    def conclusive(self) -> bool:
        """Whether there is an estimate to report."""
        return self.trust != "poor" and math.isfinite(self.disparity)

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        these = f"{'this' if self.count == 1 else 'these'} {count(self.count, self.noun)}"
        if self.trust == "poor":
            return f"Cannot tell how {printable(self.control.attribute)} is distributed among {these}."
        if not self.has_shares:
            return (
                f"The DivScore of the largest and the smallest group among {these} differs by {self.disparity:.2f}; it "
                "gives no shares."
            )
        first = self.control.groups[0] if len(self.shares) == 2 else self.most
        low, high = percent_ends(self.share_intervals[first].low, self.share_intervals[first].high)
        are = "are" if self.noun == "items" else "belong to the group"
        rest = f"of {these} {are} {printable(first)} (an even split is {1 / len(self.shares):.0%})."
        if self.interval.is_none:
            return f"About {percent(self.shares[first])} {rest} The method gives no interval."
        return f"Between {low} and {high} {rest}"

    @property
    def noisy_groups(self) -> tuple[str, ...]:
        """Groups with representatives that are hardly more similar to each other than to others: DivScore is noise."""
        noisy = control_facts(self.control).reference.noisy
        return tuple(name for name, bad in zip(self.control.groups, noisy, strict=True) if bad)

    def to_html(self) -> str:
        """A report for people as one self-contained page."""
        from divscore.report.page import render_html

        return render_html([self])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the disparity with its interval and the DivScore on matplotlib axes, new ones by default."""
        from divscore.report.picture import forest

        return forest([self], ax)

    def _repr_html_(self) -> str:
        from divscore.report.page import fragment

        return fragment([self])

    def to_dict(self, *, replicates: bool = False) -> dict[str, Any]:
        """Return the entry of one collection in the JSON document `divscore.audit/1`.

        With `replicates` (about 1.6 KB) the change to a later audit gets the narrowest possible interval.
        """
        entry: dict[str, Any] = {
            "name": self.name,
            "count": self.count,
            "skipped": dict(self.skipped),
            "missing_parts": self.missing.count,
            "shares": {name: finite(value) for name, value in self.shares.items()},
            "share_intervals": {name: [i.low, i.high] for name, i in self.share_intervals.items()},
            "disparity": finite(self.disparity),
            "interval": [self.interval.low, self.interval.high],
            "interval_level": self.interval.level,
            "interval_method": self.interval.method,
            "divscore": finite(self.divscore),
            "trust": self.trust,
            "diagnostics": self.diagnostics.to_dict(),
            "warnings": list(self.warnings),
        }
        if len(self.shares) > 2 and self.has_shares:
            entry["most"], entry["least"] = self.most, self.least
        if self.marginals:
            entry["marginals"] = [marginal.to_dict() for marginal in self.marginals]
        if replicates and self.refits is not None:
            series = {"disparity": self.refits.disparity, "pair": self.refits.pair}
            # Four decimals are far finer than any interval, and halve the size of the document.
            entry["replicates"] = {"own": self.refits.own} | {
                key: [round(value, 4) if math.isfinite(value) else None for value in values.tolist()]
                for key, values in series.items()
                if values is not None
            }
        return entry


def marginals(control: ControlSet, estimate: Estimate, confidence: float) -> tuple[Marginal, ...]:
    """Sum an intersection's shares, and their replicates, over all but one of its attributes."""
    attributes = control.attribute.split(CROSS)
    parts = [name.split(CROSS) for name in control.groups]
    if len(attributes) < 2 or any(len(p) != len(attributes) for p in parts) or estimate.replicates is None:
        return ()
    results = []
    for at, attribute in enumerate(attributes):
        names = list(dict.fromkeys(p[at] for p in parts))
        member = np.array([[p[at] == name for p in parts] for name in names], dtype=float)
        summed = summarise(member @ estimate.shares, estimate.replicates @ member.T, confidence)
        shares = dict(zip(names, summed.shares.tolist(), strict=True))
        results.append(Marginal(attribute, shares, summed.disparity, summed.interval))
    return tuple(results)
