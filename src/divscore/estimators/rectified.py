"""`rectified`: prediction-powered inference from a few labelled items of the collection itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from divscore.blas import one_thread
from divscore.control.controlset import LabelledSample
from divscore.control.similarity import FloatArray
from divscore.errors import InputError
from divscore.estimators.iid import clopper_pearson
from divscore.estimators.interval import Estimate, Interval, disparity, disparity_range
from divscore.estimators.mixture import mixture_fit
from divscore.sketch.sketch import Sketch

SMALLEST_SAMPLE = 10


@one_thread
def rectified(sketch: Sketch, sample: LabelledSample, *, confidence: float = 0.95) -> Estimate:
    r"""Correct the likelihood posterior by its errors on labelled items (PPI++, Angelopoulos et al. 2023).

    .. math:: \hat\theta_g = \bar y_g + \lambda_g (\bar f_g^S - \bar f_g), \quad
              \lambda_g = \frac{cov(y_g, f_g)}{(1 + n/N)\, var(f_g)}

    y are the labels of the n sampled items, f their posterior probabilities of group g, and f^S those of all N
    items of the collection, from its sketch. Needs no assumption on the control set, only that the sample is
    random: with a useless predictor λ = 0, and it is the sample's own share. Student's t interval; two imaginary items,
    one in and one outside the group, enter the variance, so that a sample of one group does not look certain.
    """
    if len(sample) < SMALLEST_SAMPLE:
        raise InputError(
            f"{len(sample)} labelled items of the collection; 'rectified' needs at least {SMALLEST_SAMPLE} random ones"
        )
    everywhere, weights, here = _posteriors(sketch, sample)
    k = everywhere.shape[1]
    labels = np.eye(k)[sample.labels]

    def share_of(g: int, level: float) -> tuple[float, Interval]:
        return _rectify(labels[:, g], here[:, g], everywhere[:, g], weights, sketch.count, level)

    if k == 2:
        # Through d = 2p − 1, so that both shares and the disparity agree.
        share, interval = share_of(0, confidence)
        return Estimate.of_two(
            2 * share - 1, replace(interval, low=2 * interval.low - 1, high=2 * interval.high - 1)
        )
    values, each = zip(*(share_of(g, confidence) for g in range(k)), strict=True)
    shares = np.clip(values, 0.0, 1.0)
    shares = shares / shares.sum()
    low, high = disparity_range([share_of(g, 1 - (1 - confidence) / k)[1] for g in range(k)])
    return Estimate(shares, each, float(disparity(shares)), Interval(low, high, confidence, "ppi++"))


def _posteriors(sketch: Sketch, sample: LabelledSample) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posteriors at every cell of the collection, the cells' weights, and posteriors of the sample."""
    scorer = sketch.scorer
    mixture = mixture_fit(sketch)
    shares = np.maximum(mixture.shares, 1e-3)
    exact = sample.units @ scorer.fit.weights[:-1] + scorer.fit.weights[-1]
    scores = scorer.grid.scores(scorer.grid.steps(exact))  # like the collection's scores
    back = np.argsort(scorer.order)

    def posterior(values: FloatArray) -> FloatArray:
        joint = values * shares
        return np.asarray((joint / joint.sum(axis=1, keepdims=True))[:, back])

    return (
        posterior(mixture.likelihoods),
        mixture.counts / mixture.counts.sum(),
        posterior(scorer.calibration.likelihoods(scores)),
    )


def _rectify(
    y: FloatArray, f: FloatArray, everywhere: FloatArray, weights: FloatArray, count: int, confidence: float
) -> tuple[float, Interval]:
    from scipy.special import stdtrit

    n = len(y)
    overall = float(weights @ everywhere)
    spread = float(weights @ (everywhere - overall) ** 2)
    covariance = float(np.cov(y, f)[0, 1])
    power = min(max(covariance / ((1 + n / count) * max(spread, 1e-12)), 0.0), 1.0)
    value = float(np.mean(y - power * f) + power * overall)
    residual = np.append(y - power * f, np.array([1.0, 0.0]) - power * float(f.mean()))
    variance = float(residual.var(ddof=1)) / n * max(1 - n / count, 0.0)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * math.sqrt(variance)
    low, high = max(value - half, 0.0), min(value + half, 1.0)
    if y.min() == y.max():
        # One group only: the exact interval of the sample is the honest limit on the other.
        exact = clopper_pearson(int(y.sum()), n, confidence)
        low, high = min(low, exact.low), max(high, exact.high)
    return min(max(value, 0.0), 1.0), Interval(low, high, confidence, "ppi++")
