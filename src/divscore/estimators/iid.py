"""`iid`: the disparity of a labelled random sample of the collection (the paper's IID-Measure)."""

from __future__ import annotations

from divscore.control.controlset import LabelledSample
from divscore.estimators.interval import Estimate, Interval, bounds, disparity

__all__ = ["clopper_pearson", "iid"]


def iid(sample: LabelledSample, groups: int, *, confidence: float = 0.95) -> Estimate:
    """Shares of a labelled random sample, with exact intervals.

    Two groups: the Clopper–Pearson interval of the first share, carried over to d = 2p − 1. More: intervals of
    all shares at once (Bonferroni), and the largest and smallest range that they allow.

    >>> import numpy as np
    >>> sample = LabelledSample(np.eye(3), np.array([0, 0, 1]))
    >>> round(iid(sample, 2).disparity, 3)
    0.333
    """
    counts = sample.counts(groups)
    n = len(sample)
    shares = counts / n
    each = tuple(clopper_pearson(int(c), n, confidence) for c in counts)
    value = float(disparity(shares))
    if groups == 2:
        low, high = 2 * each[0].low - 1, 2 * each[0].high - 1
    else:
        joint = [clopper_pearson(int(c), n, 1 - (1 - confidence) / groups) for c in counts]
        most, least = bounds(groups)[1], bounds(groups)[0]
        low = max(max(i.low for i in joint) - min(i.high for i in joint), least)
        high = min(max(i.high for i in joint) - min(i.low for i in joint), most)
    return Estimate(shares, each, value, Interval(low, high, confidence, "clopper-pearson"))


def clopper_pearson(hits: int, n: int, confidence: float) -> Interval:
    """Exact binomial interval for a share.

    >>> interval = clopper_pearson(0, 30, 0.95)
    >>> interval.low, round(interval.high, 3)
    (0.0, 0.116)
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return Interval(low, high, confidence, "clopper-pearson")
