"""Interval, disparity, and the result every estimator returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Self

import numpy as np

from divscore.control.similarity import FloatArray

# How intervals are made; the second where so many collections share the memory that their samples are small.
BOOTSTRAP = "bayesian bootstrap"
SMALL_SAMPLE = "bayesian bootstrap, small sample"


@dataclass(frozen=True)
class Interval:
    """A confidence interval: limits, level and method."""

    low: float
    high: float
    level: float
    method: str

    @property
    def width(self) -> float:
        """Distance between the limits."""
        return self.high - self.low

    @property
    def is_none(self) -> bool:
        """Whether the method gives no interval; the limits are then the whole range."""
        return self.method.startswith("none")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def mirrored(self) -> Interval:
        """Negate the quantity."""
        return Interval(-self.high, -self.low, self.level, self.method)


@dataclass(frozen=True)
class Refits:
    """The disparity by every refit of the control set: the part of its error that two audits can share.

    Replicate b of two audits with the same control set and seed comes from the same refit, so errors that both share
    cancel in their difference. NaN if a refit does not separate the groups. With more than two groups `pair` follows
    the largest and the smallest group; `own` is the standard error that the collection's own items add. `shift` is the
    standard error from a difference between the collection and the labelled examples, which two audits share as far
    as their differences have one `outline`.
    """

    disparity: FloatArray  # (B,)
    own: float
    pair: FloatArray | None = None  # (B,)
    shift: float = 0.0
    outline: FloatArray | None = None  # a vector of length 1


@dataclass(frozen=True)
class Estimate:
    """Shares of the groups in the control set's order, the disparity, and an interval for each.

    If some groups cannot be distinguished, the shares are those of `clusters`: positions of the groups that each is
    the sum of. The disparity is then unknown (NaN), and its interval is what these sums allow.
    """

    shares: FloatArray
    share_intervals: tuple[Interval, ...]
    disparity: float
    interval: Interval
    replicates: FloatArray | None = None  # (B, k) replicated shares, if the method has them
    refits: Refits | None = None
    clusters: tuple[tuple[int, ...], ...] = ()
    # What it would be if the collection were like the labelled examples, where a method allows for a difference.
    if_similar: Estimate | None = None

    @classmethod
    def of_two(cls, value: float, interval: Interval) -> Self:
        """Shares of two groups from the disparity d = 2p − 1 and its interval; a value beyond ±1 is cut for them."""
        share = (1 + min(max(value, -1.0), 1.0)) / 2
        first = replace(interval, low=(1 + interval.low) / 2, high=(1 + interval.high) / 2)
        second = replace(interval, low=(1 - interval.high) / 2, high=(1 - interval.low) / 2)
        return cls(np.array([share, 1 - share]), (first, second), value, interval)


def even_normal(number: int) -> FloatArray:
    """Evenly spaced quantiles of the normal distribution: exactly symmetric, with variance 1.

    Mirrored replicates then give mirrored intervals, and chance does not decide how wide these are.
    """
    even = np.array([NormalDist().inv_cdf((at + 0.5) / number) for at in range(number)])
    return np.asarray((even - even[::-1]) / (even - even[::-1]).std())


def disparity(shares: FloatArray) -> FloatArray:
    """Two groups: share(first) − share(second). More: largest share − smallest (the paper's footnote)."""
    if shares.shape[-1] == 2:
        return np.asarray(shares[..., 0] - shares[..., 1])
    return np.asarray(shares.max(axis=-1) - shares.min(axis=-1))


def bounds(groups: int) -> tuple[float, float]:
    """Smallest and largest possible disparity."""
    return (-1.0, 1.0) if groups == 2 else (0.0, 1.0)


def disparity_range(shares: Sequence[Interval]) -> tuple[float, float]:
    """Smallest and largest disparity of three groups or more that joint intervals of their shares allow."""
    most = max(i.high for i in shares) - min(i.low for i in shares)
    least = max(i.low for i in shares) - min(i.high for i in shares)
    return max(least, 0.0), min(most, 1.0)


def from_replicates(
    value: float, replicates: FloatArray, level: float, limits: tuple[float, float], drawn: int | None = None
) -> Interval:
    """Union of the percentile and the basic bootstrap interval, clipped to `limits`.

    `drawn` is the number of independent replicates, if each occurs several times.
    """
    tail = (1.0 - level) / 2
    # Both ends are interpolated from the outside in, so mirrored replicates give exactly the mirrored interval.
    ordered = np.sort(replicates)
    reached = max(tail, 2 / ((drawn or len(ordered)) + 1))
    below, between = divmod(reached * (len(ordered) - 1), 1)
    at = int(below)
    low = float(ordered[at] + between * (ordered[at + 1] - ordered[at]))
    high = float(ordered[-1 - at] - between * (ordered[-1 - at] - ordered[-2 - at]))
    if tail < reached:
        # The replicates do not reach so far: extrapolate their spread as a normal tail.
        stretch = NormalDist().inv_cdf(tail) / NormalDist().inv_cdf(reached)
        middle = (float(ordered[(len(ordered) - 1) // 2]) + float(ordered[len(ordered) // 2])) / 2
        low, high = middle + stretch * (low - middle), middle + stretch * (high - middle)
    low, high = min(low, 2 * value - high), max(high, 2 * value - low)
    return Interval(
        min(max(low, limits[0]), limits[1]), max(min(high, limits[1]), limits[0]), level, BOOTSTRAP
    )


def range_interval(
    upper: FloatArray, lower: FloatArray, level: float, limits: tuple[float, float]
) -> Interval:
    """Interval for the largest of some numbers minus the smallest of others, or of the same.

    Both are (1 + B, k), the estimate and its replicates. Noise spreads numbers, so the estimate is not in the middle:
    the two that are farthest apart are followed as well.
    """
    most, least = int(upper[0].argmax()), int(lower[0].argmin())
    ends = [
        from_replicates(float(series[0]), series[1:], level, limits)
        for series in (upper[:, most] - lower[:, least], upper.max(axis=1) - lower.min(axis=1))
    ]
    return replace(ends[0], low=min(end.low for end in ends), high=max(end.high for end in ends))
