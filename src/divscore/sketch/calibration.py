"""From a score to a likelihood ratio: balanced multinomial logistic regression on leave-one-out scores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.sketch.direction import balanced_weights

__all__ = ["Calibration", "fit_calibration"]

# Of the mean loss. Ten times as much shrinks the slope enough to bias disparities by 0.06.
SLOPE_PENALTY = 1e-3
LARGEST_LOG_RATIO = 30.0


@dataclass(frozen=True)
class Calibration:
    """Log likelihood ratios against the last group: ``log r_c(s) = a_c + Σ_j b_cj s_j``.

    Arrays may carry a leading axis of replicates. A fit is `informative` where, for every two groups, the
    difference of their scores points the right way; otherwise it says nothing about a collection.
    """

    intercept: FloatArray  # (…, k − 1)
    slope: FloatArray  # (…, k − 1 ratios, k − 1 scores)
    informative: NDArray[np.bool_]  # (…)

    def __getitem__(self, replicate: int) -> Calibration:
        return Calibration(self.intercept[replicate], self.slope[replicate], self.informative[replicate])

    def log_ratio(self, scores: FloatArray) -> FloatArray:
        """Log likelihood ratios (…, m, k − 1) of scores (…, m, k − 1)."""
        ratio = scores @ np.swapaxes(self.slope, -1, -2) + self.intercept[..., None, :]
        return np.clip(ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)

    def likelihoods(self, scores: FloatArray) -> FloatArray:
        """Likelihoods (…, m, k) up to a factor an item, the largest of each item being 1."""
        ratio = self.log_ratio(scores)
        full = np.concatenate([ratio, np.zeros((*ratio.shape[:-1], 1))], axis=-1)
        return np.asarray(np.exp(full - full.max(axis=-1, keepdims=True)))


def fit_calibration(
    scores: FloatArray, labels: NDArray[np.intp], groups: int, weights: FloatArray
) -> Calibration:
    """Fit replicates (B, n, k − 1) of scores at once by Newton's method; groups weigh the same.

    With two groups this is Platt's calibration. The regression is on standardised scores, with a penalty of
    ``SLOPE_PENALTY / 2`` on the squared slopes.
    """
    v = balanced_weights(labels, groups, weights) / len(labels)
    centre = np.einsum("bn,bnq->bq", v, scores)
    spread = np.sqrt(np.einsum("bn,bnq->bq", v, (scores - centre[:, None]) ** 2)) + 1e-12
    z = (scores - centre[:, None]) / spread[:, None]
    design = np.concatenate([np.ones((*z.shape[:2], 1)), z], axis=2)
    coefficients = _newton(design, (labels[:, None] == np.arange(groups - 1)).astype(float), v)
    slope = coefficients[:, :, 1:] / spread[:, None, :]
    intercept = coefficients[:, :, 0] - np.einsum("bcq,bq->bc", slope, centre)
    return Calibration(intercept, slope, _informative(scores, labels, groups, v))


def _newton(design: FloatArray, member: FloatArray, v: FloatArray) -> FloatArray:
    """Coefficients (B, k − 1, k) of the penalised multinomial regression."""
    B, n, p = design.shape
    q = member.shape[1]
    outer = (design[..., :, None] * design[..., None, :]).reshape(B, n, p * p)
    theta = np.zeros((B, q, p))
    penalty = np.tile(np.r_[1e-9, np.full(p - 1, SLOPE_PENALTY)], q)
    for _ in range(60):
        logits = np.einsum("bnp,bcp->bnc", design, theta)
        top = np.maximum(logits.max(axis=2, keepdims=True), 0.0)
        odds = np.exp(logits - top)
        prob = odds / (odds.sum(axis=2, keepdims=True) + np.exp(-top))
        gradient = np.einsum("bn,bnc,bnp->bcp", v, prob - member, design).reshape(B, -1)
        gradient += penalty * theta.reshape(B, -1)
        curvature = v[:, :, None, None] * (prob[..., :, None] * (np.eye(q) - prob[..., None, :]))
        hessian = np.swapaxes(curvature.reshape(B, n, q * q), 1, 2) @ outer
        hessian = hessian.reshape(B, q, q, p, p).transpose(0, 1, 3, 2, 4).reshape(B, q * p, q * p)
        hessian = hessian + np.diag(penalty + 1e-12)
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        step *= np.minimum(1.0, 4.0 / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        theta -= step.reshape(theta.shape)
        if np.abs(step).max() < 1e-9:
            break
    return theta


def _informative(
    scores: FloatArray, labels: NDArray[np.intp], groups: int, v: FloatArray
) -> NDArray[np.bool_]:
    last = -scores.sum(axis=2, keepdims=True)
    full = np.concatenate([scores, last], axis=2)
    mean = np.stack(
        [
            np.einsum("bn,bnq->bq", v[:, labels == g], full[:, labels == g])
            / v[:, labels == g].sum(axis=1)[:, None]
            for g in range(groups)
        ],
        axis=1,
    )  # (B, group of the items, score of the group)
    own = np.einsum("bgg->bg", mean)
    verdict = np.ones(len(scores), dtype=bool)
    for g, h in combinations(range(groups), 2):
        verdict &= own[:, g] - mean[:, g, h] > mean[:, h, g] - own[:, h]
    return verdict
