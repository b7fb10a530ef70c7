"""`iid`: the disparity of a labelled random sample of the collection (the paper's IID-Measure)."""

from __future__ import annotations

from divscore.control.labelledsample import LabelledSample
from divscore.estimators.interval import Estimate, Interval, disparity, disparity_range


def iid(sample: LabelledSample, *, confidence: float = 0.95) -> Estimate:
    """Shares of a labelled random sample, with exact intervals; items without a label are left out.

    Two groups: the Clopper–Pearson interval of the first share, carried over to d = 2p − 1. More: intervals of
    all shares at once (Bonferroni), and the largest and smallest range that they allow.

    >>> import numpy as np
    >>> sample = LabelledSample.of(np.eye(3), ["a", "a", "b"])
    >>> round(iid(sample).disparity, 3)
    0.333
    """
    counts = sample.counts
    n, groups = int(counts.sum()), len(counts)
    shares = counts / n
    each = tuple(clopper_pearson(int(c), n, confidence) for c in counts)
    if groups == 2:
        low, high = 2 * each[0].low - 1, 2 * each[0].high - 1
    else:
        low, high = disparity_range(
            [clopper_pearson(int(c), n, 1 - (1 - confidence) / groups) for c in counts]
        )
    return Estimate(
        shares, each, float(disparity(shares)), Interval(low, high, confidence, "clopper-pearson")
    )


def clopper_pearson(hits: int, n: int, confidence: float) -> Interval:
    """Exact binomial interval for a share.

    >>> interval = clopper_pearson(0, 30, 0.95)
    >>> interval.low, round(interval.high, 3)
    (0.0, 0.116)
    """
    from scipy.stats import binomtest  # half a second to import, and only labelled samples need it

    limits = binomtest(hits, n).proportion_ci(confidence, method="exact")
    return Interval(float(limits.low), float(limits.high), confidence, "clopper-pearson")
