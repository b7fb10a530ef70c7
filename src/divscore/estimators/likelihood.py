"""`likelihood`: the default estimator.

A direction is fitted on the labelled pool, its leave-one-out scores are calibrated into likelihood ratios, and the
estimated shares are those under which the collection's scores are most likely. The interval comes from refitting
everything under Bayesian-bootstrap weights, so it includes the control set's own error, usually the larger part.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.control.similarity import FloatArray
from divscore.estimators.checks import clusters, membership
from divscore.estimators.interval import (
    SMALL_SAMPLE,
    Estimate,
    Interval,
    Refits,
    bounds,
    disparity,
    from_replicates,
    range_interval,
)
from divscore.estimators.mixture import excess_variance, mixture_fit, mixture_shares, sampled_scores
from divscore.estimators.shift import Difference, find_difference, random_shifts
from divscore.sketch.scorer import Replicates, Scorer
from divscore.sketch.sketch import Sketch


@one_thread
def likelihood(
    sketch: Sketch,
    *,
    confidence: float = 0.95,
    population: bool = False,
    difference: Difference | None = None,
) -> Estimate:
    """Estimate shares from a sketch.

    The share p of a two-group collection maximises ``Σ_x log(p r(x) + 1 − p)``, r(x) the calibrated likelihood
    ratio of x's score. If a refitted direction does not separate two groups, its replicate gives all that they have
    together to a random one of them. Groups that the fit itself does not separate have one share, their sum; if it
    separates none, there is no estimate. With `population` the interval is about the source that the items were drawn
    from (wider), not about exactly these items.

    If the collection differs from the labelled examples (`difference`, if it is known already), the estimate is the
    reweighted one and the interval allows for a random shift of all scores; `if_similar` is what they would be without.
    """
    scorer = sketch.scorer
    sets = scorer.once(clusters)
    if len(sets) < 2 or sketch.few_distinct or sketch.thinned:
        return cannot_tell(scorer.groups, confidence)
    member, merged = membership(sets, scorer.groups), len(sets) < scorer.groups
    fit = mixture_fit(sketch)
    difference = difference or find_difference(sketch, fit)
    rng = np.random.default_rng([scorer.seed, 2])
    still, shifted = (each @ member.T for each in _replicate_shares(sketch, difference.shift))
    draws = len(still) - 1
    noise = excess_variance(fit.likelihoods, fit.counts, fit.shares)
    if population:
        noise = noise + (np.diag(fit.shares) - np.outer(fit.shares, fit.shares)) / fit.counts.sum()
    noise = member @ noise @ member.T
    values, vectors = np.linalg.eigh(noise)
    root = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    own = rng.standard_normal((draws, len(sets))) @ root
    rates = _unseen_errors(scorer, member, draws, rng)
    ordered = scorer.replicates.calibration.ordered(member)[1:]
    useless = np.asarray(~ordered.all(axis=(1, 2)))
    lucky = rng.integers(len(sets), size=int(useless.sum()))
    places = [tuple(sorted(scorer.order[list(each)].tolist())) for each in sets]
    back = np.array(sorted(range(len(sets)), key=places.__getitem__))
    named = tuple(places[at] for at in back) if merged else ()

    def estimate_from(shares: FloatArray, deviation: FloatArray) -> Estimate:
        replicates = _mistaken(shares + deviation + own, rates)
        replicates[useless] = _undivided(replicates[useless], ordered[useless], lucky, scorer.seed)
        estimate = summarise(shares[back], replicates[:, back], confidence, named)
        if sketch.small_sample:
            each = tuple(replace(interval, method=SMALL_SAMPLE) for interval in estimate.share_intervals)
            interval = replace(estimate.interval, method=SMALL_SAMPLE)
            estimate = replace(estimate, share_intervals=each, interval=interval)
        return estimate

    shares, deviation = member @ fit.shares, still[1:] - still[0]
    estimate = similar = estimate_from(shares, deviation)
    if difference.found:
        shares = np.maximum(shares + member @ difference.moved, 0.0)
        shares = shares / shares.sum()
        estimate = estimate_from(shares, shifted[1:] - still[0])
    similar = replace(similar, replicates=None)
    if merged:
        return replace(estimate, if_similar=similar)
    # What a later audit with the same control set and seed can be paired with: the refits alone, and in the difference
    # of the largest and the smallest group the noise of the collection's own items and the effect of a shift.
    shared = np.where(useless[:, None], np.nan, _mistaken(shares + deviation, rates))[:, back]
    pair = (0, 1) if len(shares) == 2 else (int(estimate.shares.argmax()), int(estimate.shares.argmin()))
    contrast = np.eye(len(shares))[pair[0]] - np.eye(len(shares))[pair[1]]
    alone = math.sqrt(max(float(contrast @ noise[np.ix_(back, back)] @ contrast), 0.0))
    effect = float(((shifted - still)[1:, back] @ contrast)[~useless].std()) if not useless.all() else 0.0
    refits = Refits(
        disparity(shared),
        alone,
        shared @ contrast if len(shares) > 2 else None,
        effect,
        difference.outline if effect else None,
    )
    return replace(estimate, if_similar=similar, refits=refits)


def summarise(
    shares: FloatArray, replicates: FloatArray, confidence: float, sets: tuple[tuple[int, ...], ...] = ()
) -> Estimate:
    """Turn replicates of the shares into intervals for each share and for the disparity.

    Shares of `sets` are sums over m groups each, and any group of a set may have all or nothing of its sum. So the
    disparity is at least that of even divisions (max s/m − min s/m), and at most the largest sum.
    """
    k = len(shares)
    each = tuple(
        from_replicates(float(shares[g]), replicates[:, g], confidence, (0.0, 1.0)) for g in range(k)
    )
    series = np.concatenate([shares[None], replicates])
    if sets:
        even = series / [len(members) for members in sets]
        least = range_interval(even, even, confidence, (0.0, 1.0))
        most = range_interval(series, np.zeros_like(series), confidence, (0.0, 1.0))
        interval = replace(most, low=least.low)
        return Estimate(shares, each, math.nan, interval, replicates, clusters=sets)
    value = float(disparity(shares))
    if k > 2:
        interval = range_interval(series, series, confidence, bounds(k))
        return Estimate(shares, each, value, interval, replicates)
    interval = from_replicates(value, disparity(replicates), confidence, bounds(k))
    return Estimate(shares, each, value, interval, replicates)


def cannot_tell(groups: int, confidence: float) -> Estimate:
    """No estimate: every composition is possible."""
    whole = Interval(0.0, 1.0, confidence, "cannot tell")
    low, high = bounds(groups)
    shares = np.full(groups, np.nan)
    return Estimate(shares, (whole,) * groups, float("nan"), Interval(low, high, confidence, "cannot tell"))


def _replicate_shares(sketch: Sketch, shift: float) -> tuple[FloatArray, FloatArray]:
    """Shares (R, k) by every refitted direction, on the sampled items; row 0 is the fit itself.

    The second result is with all scores of a replicate off by a random shift of `shift` standard deviations.
    """
    scorer = sketch.scorer
    scores, copies = sampled_scores(sketch, scorer.replicates.weights)
    still = _solved(scorer.replicates, scores, copies)
    if not shift:
        return still, still
    count, q = scores.shape[1:]
    moved = shift * random_shifts(scorer, count - 1)
    return still, _solved(scorer.replicates, scores + np.concatenate([np.zeros((1, q)), moved]), copies)


def _solved(replicates: Replicates, scores: FloatArray, copies: FloatArray) -> FloatArray:
    """The most likely shares (R, k) of scores (m, R, q)."""
    # Steps absorb the last bits of the product, which depend on the threads of BLAS. With one score, counting on 129
    # steps is also eight times as fast as the mixture of the scores themselves.
    grid, (_, count, q) = replicates.grid, scores.shape
    steps = grid.steps(scores)
    if q == 1:
        side = 2 * grid.half + 1
        cells = steps[..., 0].astype(np.intp) + np.arange(count) * side
        items = np.repeat(copies, count)
        counts = np.bincount(cells.ravel(), items, minlength=count * side).reshape(count, side)
        return mixture_shares(replicates.grid_likelihoods, counts.astype(np.float64, copy=False))
    likelihoods = replicates.calibration.likelihoods(grid.scores(steps).swapaxes(0, 1))
    return mixture_shares(likelihoods, copies)


def _undivided(
    replicates: FloatArray, ordered: NDArray[np.bool_], lucky: NDArray[np.intp], seed: int
) -> FloatArray:
    """Replicates (B, k) in which groups that are not `ordered` correctly (B, k, k) give all they have to one of them.

    The `lucky` one (B,) if it is among them, or else one that the seed chooses.
    """
    together = ~(ordered & np.swapaxes(ordered, 1, 2)) | np.eye(replicates.shape[1], dtype=bool)
    for _ in range(4):  # of up to 12 groups, each reaches all that it is connected with
        together = together @ together
    rank = np.random.default_rng([seed, 11]).random(replicates.shape)
    rank[np.arange(len(lucky)), lucky] = 2.0
    heir = np.where(together, rank[:, None], -1.0).argmax(axis=2)
    divided = (np.eye(replicates.shape[1])[heir] * replicates[..., None]).sum(axis=1)
    whole = together.all(axis=(1, 2))
    divided[whole] = np.eye(replicates.shape[1])[lucky[whole]]
    return np.asarray(divided)


def _unseen_errors(
    scorer: Scorer, member: FloatArray, replicates: int, rng: np.random.Generator
) -> FloatArray:
    """Rates (replicates, k) of mistakes that a few labelled examples cannot show.

    If none of 25 examples is mistaken for another group, weights on those 25 show no mistakes either, but one in 25
    may be. If k of a group's n examples are mistaken (leave-one-out, as probabilities), Jeffreys' posterior of the
    rate, Beta(k + ½, n − k + ½), has more variance than the Bayesian bootstrap's k (n − k) / n² (n + 1). The difference
    vanishes as soon as a few are mistaken. It is added as rates ε_g from a gamma distribution with shape ½, minus its
    mean: shares p become p_g (1 + ε_g) − Σ_h≠g p_h ε_h / (groups − 1). `member` (k, groups) says which groups count as
    one.
    """
    k, labels = len(member), member.argmax(axis=0)[scorer.labels]
    likelihoods = scorer.calibration.likelihoods(scorer.fit.loo) @ member.T
    own = likelihoods[np.arange(len(labels)), labels] / likelihoods.sum(axis=1)
    n = np.bincount(labels, minlength=k).astype(float)
    mistaken = np.bincount(labels, weights=1.0 - own, minlength=k)
    posterior = (mistaken + 0.5) * (n - mistaken + 0.5) / ((n + 1) ** 2 * (n + 2))
    missing = np.maximum(posterior - mistaken * (n - mistaken) / (n**2 * (n + 1)), 0.0)
    return np.asarray(np.sqrt(2.0 * missing) * (rng.standard_gamma(0.5, size=(replicates, k)) - 0.5))


def _mistaken(shares: FloatArray, rates: FloatArray) -> FloatArray:
    """Shares (B, k) that allow for mistakes at these rates."""
    moved = shares * rates
    return np.asarray(shares + moved - (moved.sum(axis=1, keepdims=True) - moved) / (shares.shape[1] - 1))
