"""Shares of a mixture by maximum likelihood, from counts of cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from divscore.control.similarity import FloatArray
from divscore.sketch.scorer import Calibration, Grid
from divscore.sketch.sketch import Sketch


def mixture_share(ratio: FloatArray, counts: FloatArray) -> FloatArray:
    """Share p of the first of two groups that maximises ``Σ n_c log(p r_c + 1 − p)``, for many rows at once.

    `ratio` and `counts` are (…, cells). The derivative in p is monotone, so Newton's method inside a shrinking
    bracket finds the root much faster than EM; if the derivative has one sign everywhere, p is 0 or 1.

    >>> float(mixture_share(np.array([9.0, 1 / 9]), np.array([30.0, 10.0])).round(6))
    0.8125
    """
    gain = ratio - 1.0
    # If the slope has one sign everywhere, the answer is an end and the bracket shrinks to it at once.
    low = np.where((counts * gain / ratio).sum(axis=-1) >= 0, 1.0, 0.0)
    high = np.where((counts * gain).sum(axis=-1) <= 0, 0.0, 1.0)
    share = (low + high) / 2
    # Reused memory: with thousands of collections, fresh pages would cost more than the sums.
    pull, term = np.empty((2, *np.broadcast_shapes(gain.shape, counts.shape)))
    for _ in range(60):
        np.multiply(share[..., None], gain, out=term)
        np.divide(gain, np.add(1.0, term, out=term), out=pull)
        slope = np.multiply(counts, pull, out=term).sum(axis=-1)
        bend = np.multiply(counts, np.square(pull, out=pull), out=term).sum(axis=-1)
        inside = low < high
        low, high = np.where(inside & (slope > 0), share, low), np.where(inside & (slope <= 0), share, high)
        leap = share + slope / np.maximum(bend, 1e-300)
        # Newton where it stays inside the bracket or has arrived, bisection where it would leave it.
        after = np.where(((leap > low) & (leap < high)) | (leap == share), leap, (low + high) / 2)
        done = np.abs(after - share).max() < 1e-13
        share = after
        if done:
            break
    return np.where(share < 1e-9, 0.0, np.where(share > 1 - 1e-9, 1.0, share))


def mixture_shares(likelihoods: FloatArray, counts: FloatArray) -> FloatArray:
    """Shares (…, k) that maximise ``Σ n_c log Σ_g p_g L_cg``, for likelihoods (…, cells, k).

    Two groups by `mixture_share`; more by EM with squared extrapolation (SQUAREM, Varadhan and Roland 2008). A step
    that does not increase the likelihood is dropped, so it increases as surely as in EM. EM multiplies a share by its
    slope; the largest slope minus one bounds the distance of the mean log likelihood from its maximum: stop at 1e-9.
    """
    k = likelihoods.shape[-1]
    if k == 2:
        share = mixture_share(likelihoods[..., 0] / likelihoods[..., 1], counts)
        return np.stack([share, 1.0 - share], axis=-1)
    shape = np.broadcast_shapes(likelihoods.shape[:-2], counts.shape[:-1])
    cells = likelihoods.reshape(-1, *likelihoods.shape[-2:])  # one, or one for each mixture
    weights = (counts / counts.sum(axis=-1, keepdims=True)).reshape(-1, counts.shape[-1])
    shares = np.empty((math.prod(shape), k))
    left = np.arange(len(shares))

    def mixed(p: FloatArray) -> FloatArray:
        return np.asarray((cells @ p[..., None])[..., 0])

    def em(p: FloatArray) -> FloatArray:
        return np.asarray(p * ((weights / mixed(p))[..., None, :] @ cells)[..., 0, :])

    def height(p: FloatArray) -> FloatArray:
        return np.asarray((weights * np.log(mixed(p))).sum(axis=-1, keepdims=True))

    p = np.full(shares.shape, 1.0 / k)
    for _ in range(500):
        first = em(p)
        second = em(first)
        going = (second > first * (1 + 1e-9)).any(axis=-1)
        if not going.all():
            shares[left[~going]] = second[~going]
            left, p, first, second = left[going], p[going], first[going], second[going]
            cells = cells[going] if len(cells) > 1 else cells
            weights = weights[going] if len(weights) > 1 else weights
        if not len(left):
            break
        r, v = first - p, second - 2 * first + p
        length = np.sqrt(
            (r**2).sum(axis=-1, keepdims=True) / np.maximum((v**2).sum(axis=-1, keepdims=True), 1e-300)
        )
        step = np.clip(length, 1.0, 1e3)
        leap = np.maximum(p + 2 * step * r + step**2 * v, 0.1 * second)
        leap = em(leap / leap.sum(axis=-1, keepdims=True))
        p = np.where(height(leap) >= height(second), leap, second)
    shares[left] = p
    return shares.reshape(*shape, k)


def excess_variance(likelihoods: FloatArray, counts: FloatArray, shares: FloatArray) -> FloatArray:
    """Covariance (k, k) of the estimated shares due to this collection's own items, given its composition.

    The estimate of a population's shares varies by the inverse information over N. Its multinomial part is the
    composition changing from sample to sample; an audit is about the composition of *this* collection, so only the
    excess counts. Clipped to be positive semi-definite.
    """
    n = counts.sum()
    mixed = likelihoods @ shares
    scores = (likelihoods[:, :-1] - likelihoods[:, -1:]) / mixed[:, None]
    information = (scores * (counts / n)[:, None]).T @ scores
    q = len(shares) - 1
    inverse = np.linalg.pinv(information + 1e-9 * np.eye(q))
    multinomial = np.diag(shares[:-1]) - np.outer(shares[:-1], shares[:-1])
    values, vectors = np.linalg.eigh((inverse - multinomial) / n)
    first = vectors @ np.diag(np.clip(values, 0.0, 1.0)) @ vectors.T
    contrast = np.vstack([np.eye(q), -np.ones(q)])
    return np.asarray(contrast @ first @ contrast.T)


@dataclass(frozen=True)
class MixtureFit:
    """A collection as a mixture of the groups: scores with counts and likelihoods, and the most likely shares.

    Groups are in the scorer's order; `named` gives the shares in the control set's. `pool` are the leave-one-out scores
    of the labelled examples, which count as their `weights`.
    """

    scores: FloatArray  # (m, k − 1), on the grid
    counts: FloatArray  # (m,)
    likelihoods: FloatArray  # (m, k)
    shares: FloatArray  # (k,)
    named: FloatArray  # (k,)
    grid: Grid
    calibration: Calibration
    pool: FloatArray  # (n, k − 1)
    weights: FloatArray  # (n,)


def mixture_fit(sketch: Sketch) -> MixtureFit:
    """Fit the shares to a sketch's scores."""
    scorer = sketch.scorer
    scores, counts = sketch.scores()
    likelihoods = scorer.calibration.likelihoods(scores)
    shares = mixture_shares(likelihoods, counts)
    named, even = shares[np.argsort(scorer.order)], np.ones(len(scorer.labels))
    fitted = scorer.grid, scorer.calibration, scorer.fit.loo, even
    return MixtureFit(scores, counts, likelihoods, shares, named, *fitted)


def sampled_scores(sketch: Sketch, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scores (m, R, q) of the sampled items under other directions (R, d + 1, q), and the copies (m,) of each item.

    The mean score under every direction is known exactly from Σ x̂. Sampled scores are moved to have it, which takes
    away part of the noise of a small sample.
    """
    units, copies = sketch.units()
    count, _, q = weights.shape
    flat = weights[:, :-1].transpose(1, 0, 2).reshape(-1, count * q)
    scores = units @ flat
    scores += sketch.mean @ flat - np.average(scores, axis=0, weights=copies)
    scores += weights[:, -1].ravel()
    return scores.reshape(-1, count, q), copies.astype(np.float64)
