"""`crossfit` and `rectified`: a few labelled items of the collection itself, and a fit that predicts all others."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from divscore.blas import one_thread
from divscore.control.labelledsample import LabelledSample
from divscore.control.similarity import FloatArray
from divscore.estimators.iid import clopper_pearson
from divscore.estimators.interval import Estimate, Interval, disparity_range
from divscore.estimators.likelihood import summarise
from divscore.sketch.scorer import Scorer
from divscore.sketch.sketch import Sketch

# With fewer labelled items of a group its calibrated posterior looks too sure: coverage was 0.84–0.89 on portraits, and
# 0.99 with the linear score.
FEW_OF_A_GROUP = 4
FEW = 12  # labels a group, with three groups and more: a calibration of that many scores needs them
# Numbers that the same labels chose, for each group but one: penalty, calibration (2), prior and λ.
CHOSEN = 5
# So few items without a label are not predicted: the result would tell more about them than about the collection.
FEW_OTHERS = 20
# Squared mistakes that a small sample may not show by chance. Two imaginary items, one in and one outside the group,
# would be 0.5 for an even split, where portraits then had a coverage of 0.92; chosen after looking at that.
UNSEEN = 0.75
DRAWS = 1000  # of the bootstrap for three groups and more


@dataclass(frozen=True)
class LabelledEstimate:
    """An estimate whose interval allows for items without a label, and its interval if they are like the others."""

    estimate: Estimate
    if_random: Interval


@one_thread
def from_labels(sketch: Sketch, sample: LabelledSample, *, confidence: float = 0.95) -> LabelledEstimate:
    r"""Estimate shares from labelled items of a collection, with a prediction for all the others.

    The sketch is made with a fit on the labelled items (`crossfit`), on them and a control set, or on a control set
    alone (`rectified`). y_i is 1 if labelled item i is in the group, f its predicted share from a fit without it, and
    f_U the mean prediction of the N − n other items:

    .. math:: \hat\theta = \frac{n \bar y + (N - n)(\lambda \bar f_U + \bar r)}{N}, \quad r = y - \lambda f, \quad
              \lambda = \frac{cov(y, f)}{var(f)} \in [0, 1]

    No assumption is needed but that the sample is random: with a useless prediction λ = 0, and it is the sample's own
    share. Student's t interval from the variance of r, between the two items of a pair if pairs were drawn. It includes
    mistakes that a small sample may not show, and the limits allow for the labelled items themselves. If a group is
    never seen, or seen once by a fit that then does not know it, the interval is the exact binomial one. For more than
    two groups the disparity's interval is a Bayesian bootstrap of the residuals.

    Items without a label are rarely missing at random. The interval is the union of those with all of them in one
    group, over the groups.
    """
    known = sample.known()
    estimate = _estimate(sketch, known, confidence)
    if len(known) == len(sample) and not sample.missing:
        return LabelledEstimate(estimate, estimate.interval)
    cases = [
        estimate,
        *(_estimate(sketch, sample.completed(g), confidence) for g in range(len(sample.groups))),
    ]
    shares = tuple(_union(each) for each in zip(*(case.share_intervals for case in cases), strict=True))
    interval = _union([case.interval for case in cases])
    # Drawn items that cannot be looked at any more may all be of one group, too.
    part = len(sample) / (len(sample) + sample.missing)
    shares = tuple(replace(each, low=part * each.low, high=part * each.high + 1 - part) for each in shares)
    least = part * interval.low - (1 - part) * (len(shares) == 2)
    interval = replace(interval, low=least, high=part * interval.high + 1 - part)
    return LabelledEstimate(replace(estimate, share_intervals=shares, interval=interval), estimate.interval)


def _union(intervals: tuple[Interval, ...] | list[Interval]) -> Interval:
    low, high = min(each.low for each in intervals), max(each.high for each in intervals)
    return replace(intervals[0], low=low, high=high)


def _estimate(sketch: Sketch, sample: LabelledSample, confidence: float) -> Estimate:
    predictions, k = _Predictions.of(sketch, sample), len(sample.groups)
    if k == 2:
        # The group of the first item is estimated, so that swapping the names mirrors every number exactly.
        first = int(sample.labels[0])
        share, interval, _ = _share(sketch.count, sample, predictions, first, confidence)
        value = 2 * share - 1
        of_first = replace(interval, low=2 * interval.low - 1, high=2 * interval.high - 1)
        return Estimate.of_two(-value, of_first.mirrored()) if first else Estimate.of_two(value, of_first)
    values, each, residuals = zip(
        *(_share(sketch.count, sample, predictions, g, confidence) for g in range(k)), strict=True
    )
    shares = np.clip(values, 0.0, 1.0)
    shares = shares / shares.sum()
    replicates = shares + _resampled(np.stack(residuals, axis=1), sketch, sample)
    summary = summarise(shares, replicates, confidence)
    # Noise spreads the shares of equal groups, so the disparity has to reach down to what all shares together allow.
    level = 1 - (1 - confidence) / k
    joint = [_share(sketch.count, sample, predictions, g, level)[1] for g in range(k)]
    low = min(summary.interval.low, disparity_range(joint)[0])
    interval = replace(summary.interval, low=low, method=each[0].method)
    return replace(summary, share_intervals=each, interval=interval)


def _share(
    count: int, sample: LabelledSample, predictions: _Predictions, group: int, confidence: float
) -> tuple[float, Interval, FloatArray]:
    """Share of a group, its interval, and the residuals of the labelled items."""
    n = len(sample)
    y = (sample.labels == group).astype(float)
    members = int(y.sum())
    few = min(members, n - members) < FEW_OF_A_GROUP or (
        len(sample.groups) > 2 and n < FEW * len(sample.groups)
    )
    f, rest = predictions.of_group(group, linear=few)
    spread = float(f.var(ddof=1)) if n > 1 else 0.0
    power = min(max(float(np.cov(y, f)[0, 1]) / spread, 0.0), 1.0) if spread > 1e-12 else 0.0
    residual = y - power * f
    shift = float(residual.mean())
    value = (members + max(count - n, 0) * (power * rest + shift)) / max(count, n)
    # What the labelled items alone exclude: the group has at least its labelled members.
    least, most = members / max(count, n), 1.0 - (n - members) / max(count, n)
    method = "labelled sample, t" if sample.strata is None else "labelled pairs, t"
    centred = residual - shift
    if members in (0, n) or not predictions.knows(group):
        exact = clopper_pearson(members, n, confidence)
        low, high, method = exact.low, exact.high, "labelled sample, exact"
    else:
        degrees = n - 1
        if sample.strata is not None:
            _, stratum, sizes = np.unique(sample.strata, return_inverse=True, return_counts=True)
            centred = residual - (np.bincount(stratum, residual) / sizes)[stratum]
            degrees = int((sizes - 1).sum())
        groups, variance = len(predictions.known), float(centred @ centred) / degrees
        half = half_width(variance, n, count, confidence, degrees, groups=groups)
        low, high = value - half, value + half
    value = min(max(value, least), most)
    low, high = min(max(low, least), value), max(min(high, most), value)
    return value, Interval(low, high, confidence, method), centred


def half_width(
    variance: float,
    n: int,
    count: int,
    confidence: float,
    degrees: int | None = None,
    *,
    groups: int = 2,
    unseen: float = UNSEEN,
) -> float:
    """Half the width of an interval from n labelled items of `count`, with this variance of the residuals."""
    from scipy.special import stdtrit

    chosen = min(CHOSEN * (groups - 1), 3 * (n - 1) / 4)
    mistakes = variance * (n - 1) ** 2 / (n - 1 - chosen) + unseen
    t = float(stdtrit(degrees or n - 1, (1 + confidence) / 2))
    return t * math.sqrt(mistakes / n / n * max(1 - n / count, 0.0))


def residual_variance(sketch: Sketch, sample: LabelledSample) -> float:
    """Variance of what a fit does not predict of the difference between the largest and the smallest share."""
    known = sample.known()
    predictions, counts = _Predictions.of(sketch, known), known.counts
    pair = int(counts.argmax()), int(counts.argmin())
    one, other = (_share(sketch.count, known, predictions, group, 0.95)[2] for group in pair)
    return float((one - other).var(ddof=1)) if len(known) > 1 else 1.0


def _resampled(residuals: FloatArray, sketch: Sketch, sample: LabelledSample) -> FloatArray:
    """Deviations (draws, k) of the shares: the residuals and an imaginary item of each group, with random weights."""
    n, k = residuals.shape
    imagined = np.eye(k) - np.bincount(sample.labels, minlength=k) / n
    rows = np.concatenate([residuals - residuals.mean(axis=0), imagined - imagined.mean(axis=0)])
    weights = np.random.default_rng([sketch.seed, 7]).standard_exponential((DRAWS, n + k))
    weights /= weights.sum(axis=1, keepdims=True)
    # A few more than n rows, and Bayesian-bootstrap weights: the variance is that of n / (n − 1) · (n + k + 1) rows.
    scale = math.sqrt((n + k + 1) / max(n - 1, 1) * max(1 - n / sketch.count, 0.0))
    return np.asarray((weights @ rows) * scale)


@dataclass(frozen=True)
class _Predictions:
    """What a fit says about every labelled item without knowing its label, and about all other items on average."""

    posterior: FloatArray  # (n, k): leave-one-out
    linear: FloatArray  # (n, k): leave-one-out scores on the scale of a share
    posterior_rest: FloatArray  # (k,): means over the items that are not labelled
    linear_rest: FloatArray
    known: tuple[int, ...]  # groups that the fit knows

    @classmethod
    def of(cls, sketch: Sketch, sample: LabelledSample) -> _Predictions:
        """Score the labelled items with and without their own labels, and the collection from its sketch."""
        scorer, k, n = sketch.scorer, len(sample.groups), len(sample)
        if not scorer.calibration.informative or 0 < sketch.count - n < FEW_OTHERS:
            return cls(np.zeros((n, k)), np.zeros((n, k)), np.zeros(k), np.zeros(k), ())
        control, grid = scorer.control, scorer.grid
        column = [sample.groups.index(control.groups[at]) for at in scorer.order]
        counts = np.bincount(sample.labels, minlength=k)[column] + 0.5

        prior = counts / counts.sum()

        def predict(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
            joint = scorer.calibration.likelihoods(scores) * prior
            posterior, linear = np.zeros((2, len(scores), k))
            posterior[:, column] = joint / joint.sum(axis=1, keepdims=True)
            every = np.concatenate([scores, -scores.sum(axis=1, keepdims=True)], axis=1)
            linear[:, column] = ((scorer.groups - 1) * every + 1) / scorer.groups
            return posterior, linear

        exact = sample.units @ scorer.fit.weights[:-1] + scorer.fit.weights[-1]
        full = predict(grid.scores(grid.steps(exact)))  # like the collection's scores
        apart, linear = predict(grid.scores(grid.steps(_leave_one_out(scorer, sample, exact))))
        cells, weights = sketch.scores()
        everywhere = [weights @ each / weights.sum() for each in predict(cells)]
        others = max(sketch.count - n, 1)
        rest = [
            (sketch.count * mean - each.sum(axis=0)) / others
            for mean, each in zip(everywhere, full, strict=True)
        ]
        return cls(apart, linear, rest[0], rest[1], tuple(column))

    def knows(self, group: int) -> bool:
        """Whether the fit had examples of a group."""
        return group in self.known

    def of_group(self, group: int, *, linear: bool) -> tuple[FloatArray, float]:
        """Predictions for the labelled items, and the mean over the others."""
        own, rest = (self.linear, self.linear_rest) if linear else (self.posterior, self.posterior_rest)
        return own[:, group], float(rest[group])


def _leave_one_out(scorer: Scorer, sample: LabelledSample, scores: FloatArray) -> FloatArray:
    """Scores from a fit without the item itself; `scores` for items that were not among the fit's examples."""
    control = scorer.control
    rows = np.flatnonzero(np.isin(control.labels, control.fitted))
    place = {
        (control.groups[control.labels[row]], control.vectors[row].astype(np.float64).tobytes()): at
        for at, row in enumerate(rows)
    }
    names = [sample.groups[label] for label in sample.labels]
    keys = zip(names, (row.astype(np.float64).tobytes() for row in sample.vectors), strict=True)
    own = scores.copy()
    for at, key in enumerate(keys):
        if key in place:
            own[at] = scorer.fit.loo[place[key]]
    return own
