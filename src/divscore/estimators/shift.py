"""A collection that differs from the labelled examples: what was found, and what an estimate has to allow for.

- Reweighting: labelled examples that look like the collection count more, which moves the estimate.
- Allowance: a difference that shows where it does no harm is likely to be as large where it does. Along the directions
  that separate the groups it cannot be seen, so the interval becomes wider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators.checks import (
    CheckResult,
    GroupMoments,
    group_moments,
    largest_gap,
    relevance,
    score_fit,
    separable,
)
from divscore.estimators.interval import even_normal
from divscore.estimators.mixture import MixtureFit, mixture_fit, mixture_shares, sampled_scores
from divscore.sketch.scorer import COARSE, Calibration, Grid, Scorer, fit_calibration, refit_directions
from divscore.sketch.sketch import Sketch

# Shifts that may explain scores that fit no mixture, in standard deviations; fewer, on fewer items, with many groups.
TRIED: FloatArray = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0])
SOME_TRIED, SOME_ITEMS = TRIED[[1, 4, 7, 9, 10, 12]], 512
# A misfit that no shift explains: the scores may then come from any composition. Of 64 portrait collections with one,
# on which this limit was chosen, 50 had an interval that says nothing anyway.
UNLIKE, ANY_SHIFT = 2.5, 10.0
# Weights of the labelled examples: how far they may go, the axes they may depend on, the penalty on the logistic
# regression (of the mean loss, for vectors of length about 1), and the least share of a group that it assumes.
LARGEST_WEIGHT, AXES, PENALTY, LEAST_SHARE = 10.0, 64, 0.1, 0.05
DIRECTIONS = 32  # along which the difference of a collection is kept, to compare it with that of another


@dataclass(frozen=True)
class Difference:
    """How a collection differs from the labelled examples.

    The score fit is the one after reweighting, if there was any. Groups are in the scorer's order.
    """

    relevance: CheckResult
    score_fit: CheckResult
    shift: float  # standard deviations by which all scores may be off; 0 if nothing was found
    moved: FloatArray  # (k,): what reweighting adds to the shares
    outline: FloatArray  # (DIRECTIONS,): the difference outside the groups' plane, up to a factor

    @property
    def found(self) -> bool:
        """Whether the collection differs by more than chance."""
        return self.relevance.rejects or self.score_fit.rejects


@one_thread
def find_difference(sketch: Sketch, mixture: MixtureFit | None = None) -> Difference:
    r"""Test a collection, reweight if it looks different, and estimate by how much its scores may be off.

    Suppose that all vectors of the collection are off by ``s ~ N(0, t² C)``, C the covariance within a group. Outside
    the plane of the group means this shows: the relevance is ``R = 1 + t²/c`` with ``c = Σ_g p_g/N + p_g²/n_g``, the
    noise that the test already knows. Along the directions that separate the groups it does not: it moves the scores by
    t standard deviations, which looks like another composition. Only if the scores fit no mixture, they show a shift of
    their own: u, the one without which they would fit best.

    .. math:: shift^2 = t^2 + u^2, \quad t^2 = (R - 1)_+ c
    """
    mixture, moments = mixture or mixture_fit(sketch), sketch.control.once(group_moments)
    looks = relevance(sketch.mean, sketch.count, moments, mixture.named)
    fitted, moved = mixture, np.zeros_like(mixture.shares)
    if looks.rejects and separable(sketch.scorer):
        fitted, moved = reweighted(sketch, mixture)
    fit = score_fit(sketch, fitted)
    found = Difference(looks, fit, 0.0, moved, _outline(sketch, moments))
    if not found.found:
        return found
    p = mixture.named
    noise = float((p / sketch.count + p**2 / moments.counts).sum())
    t = math.sqrt(max(looks.statistic - 1, 0.0) * noise)
    u = _explaining_shift(sketch.scorer, fitted) if fit.rejects else 0.0
    return replace(found, shift=math.hypot(t, ANY_SHIFT if fit.statistic > UNLIKE else u))


def _explaining_shift(scorer: Scorer, mixture: MixtureFit) -> float:
    """The shift of all scores, in standard deviations, without which they would fit a mixture best."""
    q = scorer.groups - 1
    root = _within_root(scorer, mixture.pool)
    sizes = TRIED if q == 1 else SOME_TRIED
    scores, counts = mixture.scores, mixture.counts
    if q > 1:  # in the order of their hashes, so the first are a random part
        scores, counts = scores[:SOME_ITEMS], counts[:SOME_ITEMS]
    best = math.inf, 0.0
    total = np.bincount(scorer.labels, mixture.weights)
    for size, axis, sign in ((0.0, 0, 1), *product(sizes.tolist(), range(q), (1, -1))):
        back = scores - sign * size * root[:, axis]
        shares = mixture_shares(mixture.calibration.likelihoods(back), counts)
        expected = (shares / total)[scorer.labels] * mixture.weights
        best = min(best, (largest_gap(back, counts, mixture.pool, expected), size))
    return best[1]


def reweighted(sketch: Sketch, mixture: MixtureFit) -> tuple[MixtureFit, FloatArray]:
    """Fit again with the labelled examples weighted by how much they look like the collection.

    The new direction scores the sampled items only. So the second result, what it changes in the shares, is the
    difference to the old direction on the same items.
    """
    scorer = sketch.scorer
    weights = _resemblance(sketch, mixture.shares)
    directions, loo = refit_directions(
        scorer.control.units, scorer.labels, scorer.groups, weights[None], scorer.fit.penalty
    )
    calibration = fit_calibration(loo, scorer.labels, scorer.groups, weights[None])[0]
    if not calibration.informative:
        return mixture, np.zeros_like(mixture.shares)
    scores, copies = sampled_scores(sketch, np.concatenate([scorer.fit.weights[None], directions]))
    before, after = (
        _mixture(scorer, scores[:, at], copies, how, pool)
        for at, (how, pool) in enumerate([(scorer.calibration, scorer.fit.loo), (calibration, loo[0])])
    )
    return replace(after, weights=weights), after.shares - before.shares


def _mixture(
    scorer: Scorer, scores: FloatArray, copies: FloatArray, calibration: Calibration, pool: FloatArray
) -> MixtureFit:
    # Steps absorb the last bits of the scores, which depend on the processor.
    grid = Grid(1.5 * np.abs(pool).max(axis=0), COARSE)
    scores = grid.scores(grid.steps(scores))
    likelihoods = calibration.likelihoods(scores)
    shares = mixture_shares(likelihoods, copies)
    named, even = shares[np.argsort(scorer.order)], np.ones(len(pool))
    return MixtureFit(scores, copies, likelihoods, shares, named, grid, calibration, pool, even)


def _resemblance(sketch: Sketch, shares: FloatArray) -> FloatArray:
    """Weights (n,) of the labelled examples: the density of the collection over theirs, by logistic regression.

    The groups' examples count as the estimated shares. Otherwise a collection of mostly one group would look different
    for that alone, and examples that resemble this group would count more in the other: a bias towards an even split.
    The weights depend on the main axes of the labelled examples only; along others they do not vary, so no weight could
    make them resemble the collection.
    """
    scorer, (units, copies) = sketch.scorer, sketch.units()
    centre, axes = scorer.control.once(_main_axes)
    ours, theirs = ((rows - centre) @ axes for rows in (scorer.control.units, units))
    x = np.concatenate([ours, theirs]) / math.sqrt(max(float((ours**2).sum(axis=1).mean()), 1e-300))
    x = np.hstack([x, np.ones((len(x), 1))])
    p = np.maximum(shares, LEAST_SHARE)
    groups = p / p.sum() / np.bincount(scorer.labels)
    weights = np.concatenate([groups[scorer.labels], copies / copies.sum()]) / 2
    member = np.arange(len(x)) >= len(ours)
    penalty = np.append(np.full(x.shape[1] - 1, PENALTY), 1e-9)
    coefficients = np.zeros(x.shape[1])
    for _ in range(25):  # Newton's method; a handful of steps suffice
        chance = 1.0 / (1.0 + np.exp(-np.clip(x @ coefficients, -30.0, 30.0)))
        slope = x.T @ (weights * (chance - member)) + penalty * coefficients
        bend = (x * (weights * chance * (1.0 - chance))[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(bend, slope)
        coefficients -= step
        if np.abs(step).max() < 1e-8:
            break
    reach = math.log(LARGEST_WEIGHT)
    return np.asarray(np.exp(np.clip(x[: len(ours)] @ coefficients, -reach, reach)))


def _main_axes(control: ControlSet) -> tuple[FloatArray, FloatArray]:
    """Mean of the labelled unit vectors, and the axes (d, r) along which they vary most."""
    units = control.units
    centre = units.mean(axis=0)
    centred = units - centre
    small = len(centred) < centred.shape[1]
    values, vectors = np.linalg.eigh(centred @ centred.T if small else centred.T @ centred)
    kept = np.flatnonzero(values > 1e-9 * max(values[-1], 1e-300))[::-1][:AXES]
    axes = centred.T @ vectors[:, kept] / np.sqrt(values[kept]) if small else vectors[:, kept]
    return centre, axes


def _outline(sketch: Sketch, moments: GroupMoments) -> FloatArray:
    """The difference outside the plane of the group means, along random directions that only the seed chooses."""
    off = sketch.mean - moments.means[0]
    off = off - moments.plane @ (moments.plane.T @ off)
    signs = np.random.default_rng([sketch.seed, 10]).integers(2, size=(DIRECTIONS, len(off))) * 2.0 - 1.0
    seen = signs @ off
    return np.asarray(seen / max(float(np.linalg.norm(seen)), 1e-300))


def random_shifts(scorer: Scorer, draws: int) -> FloatArray:
    """Shifts (draws, k − 1) of the scores, with the scores' own covariance within the groups, in random order."""
    rng, even = np.random.default_rng([scorer.seed, 9]), even_normal(draws)
    normal = np.stack([rng.permutation(even) for _ in range(scorer.groups - 1)], axis=1)
    return np.asarray(normal @ _within_root(scorer, scorer.fit.loo).T)


def _within_root(scorer: Scorer, pool: FloatArray) -> FloatArray:
    """A root (q, q) of the covariance of scores (n, q) within the groups; its columns are the axes."""
    q = pool.shape[1]
    within = np.zeros((q, q))
    for g in range(scorer.groups):
        within += np.cov(pool[scorer.labels == g].T, bias=True).reshape(q, q) / scorer.groups
    values, vectors = np.linalg.eigh(within)
    return np.asarray(vectors * np.sqrt(np.clip(values, 0.0, None)))
