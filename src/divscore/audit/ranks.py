"""Shares by rank: the first items of a list count most. From audits of first items, never of single ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from divscore.audit.result import Audit
from divscore.estimators.interval import Interval


def rank_weighted(firsts: Sequence[tuple[int, Audit]]) -> dict[str, tuple[float, Interval]]:
    """Share of each group if items have the weights 1 / log2(rank + 1), and its interval.

    `firsts` are audits of the first d_1 < … < d_K items, the last one of all. Let S_k be their shares, and w_k the mean
    weight of the ranks from d_(k-1) + 1 to d_k. Weights that are equal within these blocks give Σ a_k S_k with a_k =
    d_k (w_k − w_(k+1)) / Σ weights and w_(K+1) = 0: no a_k is negative, and their sum is 1. The same mean of the ends
    of their intervals is wide enough however the S_k depend on each other. Which ranks a group has within a block is
    not known; if the order there is random, this has the variance Σ p (1 − p) m / (m − 1) Σ (weight − w_k)² /
    (Σ weights)², with the share p of the group in each block of m items, and makes the interval wider.
    """
    depths = np.array([depth for depth, _ in firsts])
    weights = 1 / np.log2(np.arange(2, depths[-1] + 2))
    blocks = np.split(weights, depths[:-1])
    sizes = np.diff(depths, prepend=0)
    means = np.array([block.mean() for block in blocks])
    spreads = np.array([block.var() for block in blocks]) * sizes**2 / np.maximum(sizes - 1, 1)
    factors = depths * (means - np.append(means[1:], 0)) / weights.sum()
    level = firsts[-1][1].interval.level
    z = NormalDist().inv_cdf((1 + level) / 2)
    found = {}
    for name in firsts[-1][1].shares:
        shares = np.array([audit.shares[name] for _, audit in firsts])
        limits = [audit.share_intervals[name] for _, audit in firsts]
        inside = np.clip(np.diff(depths * shares, prepend=0) / sizes, 0, 1)
        order = z * np.sqrt((inside * (1 - inside) * spreads).sum()) / weights.sum()
        share = float(factors @ shares)
        below = share - factors @ [each.low for each in limits]
        above = factors @ [each.high for each in limits] - share
        low, high = max(0.0, share - np.hypot(below, order)), min(1.0, share + np.hypot(above, order))
        found[name] = share, Interval(float(low), float(high), level, "audits of first items")
    return found
