"""Can the groups be told apart at all? A rank test on leave-one-out scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divscore.scorer import Scorer
from divscore.similarity import FloatArray

__all__ = ["SEPARABLE_P", "Separation", "separable", "separation"]

SEPARABLE_P = 0.01


@dataclass(frozen=True)
class Separation:
    """How well an example's own group could be told without its label; for the group told worst.

    `auc` is the chance that an example of the group scores higher than one of another group; `p_value` is
    that of the Mann–Whitney test against no difference. Leave-one-out scores lean against the truth where
    there is no signal, so the test errs towards "cannot tell".
    """

    auc: float
    p_value: float


def separation(scorer: Scorer) -> Separation:
    """Test each group's own leave-one-out score inside against outside the group; the worst decides."""
    loo = scorer.fit.loo
    full = np.hstack([loo, -loo.sum(axis=1, keepdims=True)])
    worst = Separation(1.0, 0.0)
    for group in range(scorer.groups if scorer.groups > 2 else 1):
        inside = scorer.labels == group
        found = _mann_whitney(full[inside, group], full[~inside, group])
        worst = max(worst, found, key=lambda s: s.p_value)
    return worst


def _mann_whitney(own: FloatArray, rest: FloatArray) -> Separation:
    """Rank-sum test that `own` tends to be larger, with mid-ranks and the normal approximation."""
    from scipy.special import ndtr

    ordered = np.sort(rest)
    below = np.searchsorted(ordered, own, side="left")
    upto = np.searchsorted(ordered, own, side="right")
    n, m = len(own), len(rest)
    auc = float((below + upto).sum()) / (2 * n * m)
    _, ties = np.unique(np.concatenate([own, rest]), return_counts=True)
    total = n + m
    tied = float((ties**3 - ties).sum()) / (total * (total - 1))
    deviation = np.sqrt(((total + 1) - tied) / (12 * n * m))
    return Separation(auc, float(ndtr(-(auc - 0.5) / deviation)) if deviation > 0 else 1.0)


def separable(scorer: Scorer) -> bool:
    """Whether an estimate means anything."""
    return bool(scorer.calibration.informative) and separation(scorer).p_value <= SEPARABLE_P
