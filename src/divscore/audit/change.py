"""Change: how two audits of a collection differ, and how sure that is.

Two audits with one control set share its error, which usually is the larger part of each interval, so the change
is known much better than either value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np

from divscore.audit.document import Entry
from divscore.control.similarity import FloatArray
from divscore.estimators.interval import Interval, Refits, from_replicates

__all__ = ["IDENTICAL", "Change", "added_intervals", "change_between", "paired_intervals"]

SAME_MEAN = 1e-5  # DivScores of the same items, which magnify the rounding of their mean
STEPS = 16  # of either collection's own error; eight would make it 5 % too small

CANNOT_TELL = "cannot tell"
SAME = "no change that can be told"
LESS_EVEN = "less even"
MORE_EVEN = "more even"
OTHER_WAY = "tilted the other way"
SHIFTED = "shifted"
PAIRED = "paired refits"
UNPAIRED = "both intervals added"
IDENTICAL = "the same items"


@dataclass(frozen=True)
class Change:
    """One collection in two audits.

    `change` is the later disparity less the earlier one. `increase` is that of the unevenness: of |disparity| for two
    groups, of the disparity itself, which has no sign, for more.
    """

    before: Entry
    after: Entry
    groups: tuple[str, ...]
    change: float
    interval: Interval
    increase: float
    increase_interval: Interval

    @property
    def name(self) -> str:
        """The name in the later audit."""
        return self.after.name

    @property
    def told(self) -> bool:
        """Whether both audits came to an answer."""
        return self.before.told and self.after.told

    @property
    def unchanged(self) -> bool:
        """Whether both audits looked at the same items."""
        return self.interval.method == IDENTICAL

    @property
    def known(self) -> bool:
        """Whether anything can be told of the change: the same items have none, whatever their audits came to."""
        return self.told or self.unchanged

    @property
    def towards(self) -> str | None:
        """Of two groups the one whose share has grown, where that can be told."""
        if not self.told or len(self.groups) > 2 or 0.0 in self.interval:
            return None
        return self.groups[0] if self.interval.low > 0 else self.groups[1]

    @property
    def verdict(self) -> str:
        """What has happened, in words."""
        if not self.known:
            return CANNOT_TELL
        if 0.0 in self.interval:
            return SAME
        before, after = self.before.interval, self.after.interval
        if (before.high < 0 < after.low) or (after.high < 0 < before.low):
            return OTHER_WAY
        if 0.0 in self.increase_interval:
            return SHIFTED
        return LESS_EVEN if self.increase_interval.low > 0 else MORE_EVEN

    def gate(self, limit: float) -> str:
        """Whether the unevenness has grown by more than `limit`: "pass", "fail" or "inconclusive".

        What is missing from the later collection may hide a change, so that it does not pass.
        """
        if not self.known:
            return "inconclusive"
        if self.increase_interval.low > limit:
            return "fail"
        kept = self.increase_interval.high <= limit and not self.after.missing_parts
        return "pass" if kept else "inconclusive"


def paired_intervals(
    before: tuple[float, Refits], after: tuple[float, Refits], groups: int, level: float
) -> tuple[Interval, Interval]:
    r"""Intervals for the change and for the increase of unevenness, from two audits with the same refits.

    .. math:: \Delta_b = (d^{after}_b + \sigma^{after} z) - (d^{before}_b + \sigma^{before} z')

    `before` and `after` are disparities with their refits. d_b is the disparity by refit b of the one control set,
    with the same weights on its examples and the same rates of mistakes in both audits: what it gets wrong alike goes
    away. σ is what a collection's own items add; z and z' are independent and go evenly through the normal
    distribution. Where the later collection contains the earlier one, their own errors are alike and would partly go
    away too; that is not claimed, so the interval is then too wide rather than too narrow. A refit that does not tell
    the groups apart stands for the largest change either way. Limits as for a disparity: union of the percentile and
    the basic interval.

    >>> refits = np.linspace(-0.1, 0.1, 200)
    >>> before, after = (0.2, Refits(0.2 + refits, 0.01)), (0.3, Refits(0.3 + refits, 0.01))
    >>> change, _ = paired_intervals(before, after, 2, 0.95)
    >>> round(change.low, 2), round(change.high, 2)
    (0.07, 0.13)
    """
    change, increase = [], []
    for earlier, later in _series(before[1], after[1]):
        b = earlier[:, None, None] + before[1].own * _steps()[:, None]
        a = later[:, None, None] + after[1].own * _steps()
        change.append(_interval(after[0] - before[0], a - b, level, 2.0 if groups == 2 else 1.0))
        value = float(_unevenness(after[0], groups) - _unevenness(before[0], groups))
        increase.append(_interval(value, _unevenness(a, groups) - _unevenness(b, groups), level, 1.0))
    return _union(change), _bounded(_union(increase), _union(change))


def added_intervals(before: Entry, after: Entry, groups: int) -> tuple[Interval, Interval]:
    """Intervals for the change and the increase of unevenness where nothing is known of what two audits share.

    The later interval less the earlier one, end by end: half-widths add up. Errors of different control sets are not
    known to be independent (examples may be the same, and so may be what is odd about them), and for normal errors
    this is right in the worst case, when they go opposite ways.
    """
    level = min(before.interval.level, after.interval.level)
    b, a = (before.interval.low, before.interval.high), (after.interval.low, after.interval.high)
    change = Interval(a[0] - b[1], a[1] - b[0], level, UNPAIRED)
    if groups > 2:
        return change, change
    b, a = _sizes(before.interval), _sizes(after.interval)
    return change, Interval(a[0] - b[1], a[1] - b[0], level, UNPAIRED)


def change_between(before: Entry, after: Entry, groups: tuple[str, ...], *, paired: bool) -> Change:
    """Compare two audits of one collection; `paired` says that both were made with the same refits."""
    k = len(groups)
    b, a = before.refits, after.refits
    if paired and b is not None and a is not None and len(b.disparity) == len(a.disparity):
        level = min(before.interval.level, after.interval.level)
        if _identical(before, after):
            none = Interval(0.0, 0.0, level, IDENTICAL)
            return Change(before, after, groups, 0.0, none, 0.0, none)
        change, increase = paired_intervals((before.disparity, b), (after.disparity, a), k, level)
    else:
        change, increase = added_intervals(before, after, k)
    return Change(
        before,
        after,
        groups,
        after.disparity - before.disparity,
        change,
        float(_unevenness(after.disparity, k) - _unevenness(before.disparity, k)),
        increase,
    )


def _identical(before: Entry, after: Entry) -> bool:
    """Whether nothing was added or removed: counts and estimates agree to the last digit, and so do two hundred refits.

    Refits on a sample that many collections share change with the others; then the DivScore, which follows from the
    mean vector, has to agree as far as sums in single precision can.
    """
    b, a = before.refits, after.refits
    if (
        b is None
        or a is None
        or (before.count, before.disparity, b.own) != (after.count, after.disparity, a.own)
    ):
        return False
    if before.on_shared_sample or after.on_shared_sample:
        near = SAME_MEAN * max(1.0, abs(before.divscore))
        return abs(before.divscore - after.divscore) <= near
    return np.array_equal(b.disparity, a.disparity, equal_nan=True)


def _series(before: Refits, after: Refits) -> Iterator[tuple[FloatArray, FloatArray]]:
    yield before.disparity, after.disparity
    if before.pair is not None and after.pair is not None:
        yield before.pair, after.pair


@cache
def _steps() -> FloatArray:
    """Go evenly through the normal distribution, with mean 0 and variance 1."""
    even = [NormalDist().inv_cdf((step + 0.5) / STEPS) for step in range(STEPS)]
    symmetric = (np.array(even) - np.array(even[::-1])) / 2
    return np.asarray(symmetric / symmetric.std())


def _unevenness(disparity: FloatArray | float, groups: int) -> FloatArray:
    return np.abs(disparity) if groups == 2 else np.asarray(disparity)


def _interval(value: float, replicates: FloatArray, level: float, span: float) -> Interval:
    """Limits from replicates (B, steps, steps); those that are lost stand for both ends."""
    ends = np.where(np.arange(STEPS * STEPS) % 2, span, -span).reshape(STEPS, STEPS)
    known = np.where(np.isnan(replicates), ends, replicates).ravel()
    found = from_replicates(float(value), known, level, (-span, span), drawn=len(replicates))
    return replace(found, method=PAIRED)


def _union(intervals: list[Interval]) -> Interval:
    return replace(intervals[0], low=min(i.low for i in intervals), high=max(i.high for i in intervals))


def _bounded(increase: Interval, change: Interval) -> Interval:
    """No number's size grows by more than the number changes: ||a| − |b|| ≤ |a − b|."""
    most = max(abs(change.low), abs(change.high))
    return replace(increase, low=max(increase.low, -most), high=min(increase.high, most))


def _sizes(interval: Interval) -> tuple[float, float]:
    """Smallest and largest absolute value."""
    ends = abs(interval.low), abs(interval.high)
    return (0.0 if 0.0 in interval else min(ends)), max(ends)
