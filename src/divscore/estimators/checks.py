"""Domain relevance: does the collection look like a mixture of the control set's groups?

Assumption 3.1 of the paper says that inside each group the collection is distributed as the control set is.
Under it the mean of the collection lies on the segment (with k groups: in the simplex) between the group
means, up to sampling noise of both. The squared distance off it, over its expectation, is the statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators.mixture import MixtureFit, mixture_fit, mixture_shares
from divscore.sketch.scorer import PENALTIES, Grid, Scorer, features, fit_calibration, preference
from divscore.sketch.sketch import Sketch

__all__ = [
    "SEPARABLE_P",
    "GroupMoments",
    "Relevance",
    "ScoreFit",
    "Separation",
    "group_moments",
    "relevance",
    "score_fit",
    "separable",
    "separation",
]


@dataclass(frozen=True)
class Relevance:
    """The statistic (about 1 when the assumption holds) and how often chance alone gives as much."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class GroupMoments:
    """Means of the groups' unit vectors, and what their covariances C_g say about sampling noise."""

    counts: FloatArray  # (k,)
    means: FloatArray  # (k, d)
    plane: FloatArray  # (d, r): orthonormal basis of the differences of means
    trace: FloatArray  # (k,): trace of C_g, outside the plane
    cross: FloatArray  # (k, k): trace of C_g C_h, outside the plane, without bias


def group_moments(control: ControlSet) -> GroupMoments:
    """Moments of a control set's whole pool."""
    parts = [control.units[control.rows(g)] for g in range(len(control.groups))]
    counts = np.array([len(p) for p in parts], dtype=float)
    means = np.stack([p.mean(axis=0) for p in parts])
    left, size, _ = np.linalg.svd((means - means.mean(axis=0)).T, full_matrices=False)
    plane = left[:, size > 1e-12 * max(float(size[0]), 1e-300)]
    centred = [p - m for p, m in zip(parts, means, strict=True)]
    # The residual has no component in the plane of the means, so its noise must not have one either.
    centred = [c - (c @ plane) @ plane.T for c in centred]
    trace = np.array([(c**2).sum() / (len(c) - 1) for c in centred])
    k = len(parts)
    cross = np.array(
        [[_trace_of_product(centred[g], centred[h], g == h) for h in range(k)] for g in range(k)]
    )
    return GroupMoments(counts, means, plane, trace, cross)


def relevance(mean: FloatArray, count: int, moments: GroupMoments, shares: FloatArray) -> Relevance:
    """Test whether a collection with this mean unit vector can be a mixture of the groups.

    At the true shares p (`shares`, as estimated) the mean is off the mixture by noise of covariance ``Σ_g c_g C_g``,
    ``c_g = p_g / N + p_g² / n_g``: the collection's sampling noise and the control set's. The nearest mixture is
    nearer still, because the estimated group means carry the same noise; that part is known and taken off. The
    estimated shares are uncertain, so the nearest mixture's own are tried as well, with nothing taken off, and
    the milder verdict counts. The squared distance is compared with a χ² of matching mean and variance
    (Satterthwaite). Traces of squared covariances are corrected for bias, which with n < d is several times the
    trace itself.
    """
    from scipy.special import chdtrc

    nearest = _nearest_mixture(mean, moments.means)
    residual = mean - nearest @ moments.means
    squared = float(residual @ residual)
    found = []
    for p, absorbed in ((nearest, 0.0), (shares, _absorbed(shares, moments))):
        expected, degrees = _noise(p, count, moments)
        if expected <= absorbed:
            return Relevance(1.0, 1.0)
        statistic = squared / (expected - absorbed)
        found.append(Relevance(statistic, float(chdtrc(degrees, statistic * degrees))))
    return max(found, key=lambda r: (r.p_value, -r.statistic))


def _noise(shares: FloatArray, count: int, moments: GroupMoments) -> tuple[float, float]:
    """Expected squared length of the noise, and the degrees of freedom of the χ² that it resembles."""
    part = shares / count + shares**2 / moments.counts
    expected = float(part @ moments.trace)
    squared = float(part @ moments.cross @ part)
    dimension = moments.means.shape[1]
    return expected, max(1.0, min(expected**2 / squared, dimension) if squared > 0 else dimension)


def _absorbed(shares: FloatArray, moments: GroupMoments) -> float:
    """Part of the squared noise that lies, for being the means' own, in the plane of the estimated means."""
    pull = shares * moments.trace / moments.counts
    pull = pull - pull.mean()
    centred = moments.means - moments.means.mean(axis=0)
    return float(pull @ np.linalg.pinv(centred @ centred.T, hermitian=True) @ pull)


def _nearest_mixture(mean: FloatArray, means: FloatArray) -> FloatArray:
    """Shares of the point of the simplex nearest to `mean`: drop negative shares until there are none."""
    free = np.arange(len(means))
    while True:
        origin, rest = means[free[-1]], means[free[:-1]]
        found, *_ = np.linalg.lstsq((rest - origin).T, mean - origin, rcond=None)
        shares = np.append(found, 1.0 - found.sum())
        if shares.min() >= 0:
            break
        free = np.delete(free, int(shares.argmin()))
    full = np.zeros(len(means))
    full[free] = shares
    return full


def _trace_of_product(a: FloatArray, b: FloatArray, same: bool) -> float:
    """Trace of the product of two covariances, estimated from centred rows, without bias."""
    n, m = len(a), len(b)
    if n * m <= a.shape[1] ** 2:
        plain = float(((a @ b.T) ** 2).sum())
    else:
        plain = float(((a.T @ a) * (b.T @ b)).sum())
    plain /= (n - 1) * (m - 1)
    if not same or n < 4:
        return plain
    trace = float((a**2).sum()) / (n - 1)
    # Bai and Saranadasa (1996), Eq. 3.8.
    return max((n - 1) ** 2 / ((n - 2) * (n + 1)) * (plain - trace**2 / (n - 1)), 0.0)


# Score fit: do the collection's scores look like a mixture of the groups' own scores?

SIMULATIONS = 199
COARSE_STEPS = 32  # on each side of zero


@dataclass(frozen=True)
class ScoreFit:
    """Scaled Kolmogorov–Smirnov distance, and how often chance alone gives as much."""

    statistic: float
    p_value: float


def score_fit(sketch: Sketch, found: MixtureFit | None = None) -> ScoreFit:
    """Compare the scores of a collection with the best mixture of the groups' leave-one-out scores.

    The statistic is ``√n_eff · sup |F_S − Σ_g p_g F_g|`` with ``1/n_eff = 1/N + Σ_g p_g²/n_g``, the largest over
    the k − 1 scores. Its distribution under the assumption is simulated: labelled scores drawn again from each
    group, calibrated anew, a collection drawn from their mixture, shares estimated anew. `found` is the best
    mixture, where it is known already.
    """
    scorer = sketch.scorer
    found = found or mixture_fit(sketch)
    p = found.shares
    # Both are put on one grid, or its steps alone would look like a misfit. With three groups or more it is a coarse
    # one: scores of a group without a direction of its own hardly vary, and leave-one-out noise would be a misfit.
    grid = scorer.grid if scorer.groups == 2 else Grid(scorer.grid.reach, COARSE_STEPS)
    pool = grid.rounded(scorer.fit.loo)
    sizes = np.bincount(scorer.labels)
    scale = _scale(sketch.count, p, sizes)
    scores = np.concatenate([grid.rounded(found.scores), pool])
    seen = np.concatenate([found.counts / found.counts.sum(), np.zeros(len(pool))])
    fitted = np.concatenate([np.zeros(len(found.counts)), (p / sizes)[scorer.labels]])
    statistic = scale * float(_distance(scores, (seen - fitted)[None])[0])
    simulated = scale * _simulate(scorer, pool, p, sketch.count)
    return ScoreFit(statistic, float((1 + (simulated >= statistic).sum()) / (1 + SIMULATIONS)))


def _scale(count: float, p: FloatArray, sizes: NDArray[np.intp]) -> float:
    return float(1.0 / np.sqrt(1.0 / count + (p**2 / sizes).sum()))


def _simulate(scorer: Scorer, pool: FloatArray, p: FloatArray, count: int) -> FloatArray:
    """Distances between simulated collections and simulated labelled scores, all on the pool's scores."""
    again, likelihoods = _labelled_again(scorer)
    rng = np.random.default_rng([scorer.seed, 3])
    sizes = np.bincount(scorer.labels)
    chance = (p / sizes)[scorer.labels]
    drawn = rng.multinomial(min(count, 1_000_000), chance / chance.sum(), size=SIMULATIONS).astype(float)
    shares = mixture_shares(likelihoods, drawn)
    weights = again * (shares / sizes)[:, scorer.labels]
    return _distance(pool, drawn / drawn.sum(axis=1, keepdims=True) - weights)


@lru_cache(maxsize=8)
def _labelled_again(scorer: Scorer) -> tuple[FloatArray, FloatArray]:
    """Draw the labelled scores again from each group, and calibrate anew; the same for every collection."""
    rng = np.random.default_rng([scorer.seed, 5])
    pool = np.clip(scorer.fit.loo, -scorer.grid.reach, scorer.grid.reach)
    labels, k = scorer.labels, scorer.groups
    again = np.zeros((SIMULATIONS, len(pool)))
    for g in range(k):
        mine = np.flatnonzero(labels == g)
        again[:, mine] = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=SIMULATIONS)
    calibration = fit_calibration(np.broadcast_to(pool, (SIMULATIONS, *pool.shape)), labels, k, again)
    return again, calibration.likelihoods(pool)


def _distance(scores: FloatArray, difference: FloatArray) -> FloatArray:
    """Kolmogorov–Smirnov distances (S,) of signed weights (S, m) on scores (m, q): the largest over the q axes."""
    worst = np.zeros(len(difference))
    for axis in range(scores.shape[1]):
        order = np.argsort(scores[:, axis], kind="stable")
        at = scores[order, axis]
        last = np.append(at[1:] != at[:-1], True)  # distribution functions are read after the last of a tie
        worst = np.maximum(worst, np.abs(np.cumsum(difference[:, order], axis=1))[:, last].max(axis=1))
    return worst


# Can the groups be told apart at all? A permutation test on leave-one-out scores.

SEPARABLE_P = 0.02
PERMUTATIONS = 199


@dataclass(frozen=True)
class Separation:
    """How well examples of two groups are told apart without their labels; of the pair told worst.

    `auc` is the chance that an example scores higher for its own group than one of the other group does;
    `p_value` says how often shuffled labels separate as well.
    """

    auc: float
    p_value: float


@lru_cache(maxsize=8)
def separation(scorer: Scorer) -> Separation:
    """Test every pair of groups; the worst decides.

    The statistic is the one by which the penalty is chosen (distance of the groups' mean leave-one-out scores
    over their spread), with the penalty chosen anew for every shuffle. A rank test on the scores would not do:
    leave-one-out scores of one fit depend on each other, and on pure noise it finds a difference at the 1 %
    level in 5 to 9 % of pools.
    """
    worst = Separation(1.0, 0.0)
    loo = scorer.fit.loo
    full = np.hstack([loo, -loo.sum(axis=1, keepdims=True)])
    for g, h in combinations(range(scorer.groups), 2):
        first, second = scorer.labels == g, scorer.labels == h
        score = full[:, g] - full[:, h]
        pair = first | second
        rng = np.random.default_rng([scorer.seed, 6, g, h])
        p_value = _permutation_p(scorer.control.units[pair], first[pair], rng)
        found = Separation(_auc(score[first], score[second]), p_value)
        worst = max(worst, found, key=lambda s: (s.p_value, -s.auc))
    return worst


def separable(scorer: Scorer) -> bool:
    """Whether an estimate means anything."""
    return bool(scorer.calibration.informative) and separation(scorer).p_value <= SEPARABLE_P


def _permutation_p(units: FloatArray, first: NDArray[np.bool_], rng: np.random.Generator) -> float:
    """Share of shuffled labellings that separate two groups as well as the real one, itself included.

    All labellings share one singular value decomposition: groups are balanced by their targets, ±n/(2 n_g).
    """
    n = len(first)
    U, S, _ = np.linalg.svd(features(units), full_matrices=False)
    member = np.stack([first, *(rng.permutation(first) for _ in range(PERMUTATIONS))], axis=1)
    y = np.where(member, n / (2 * first.sum()), -n / (2 * (n - first.sum())))
    projected = U.T @ y
    best = np.full(PERMUTATIONS + 1, np.inf)
    for penalty in PENALTIES:
        shrink = S**2 / (S**2 + penalty)
        loo = y - (y - U @ (shrink[:, None] * projected)) / np.maximum(1 - U**2 @ shrink, 1e-9)[:, None]
        best = np.minimum(best, _log_spread(loo, member) + preference(float(penalty), n))
    return float((best <= best[0]).mean()) if np.isfinite(best[0]) else 1.0


def _log_spread(loo: FloatArray, member: NDArray[np.bool_]) -> FloatArray:
    """Variance within the two groups over the squared distance of their means, for every labelling."""
    inside = (loo * member).sum(axis=0) / member.sum(axis=0)
    outside = (loo * ~member).sum(axis=0) / (~member).sum(axis=0)
    within = ((loo - np.where(member, inside, outside)) ** 2).mean(axis=0)
    gap = np.maximum(inside - outside, 1e-300)
    return np.where(inside > outside, np.log(within + 1e-300) - 2 * np.log(gap), np.inf)


def _auc(own: FloatArray, rest: FloatArray) -> float:
    """Chance that a number of `own` exceeds one of `rest`, ties counting half."""
    ordered = np.sort(rest)
    below = np.searchsorted(ordered, own, side="left") + np.searchsorted(ordered, own, side="right")
    return float(below.sum()) / (2 * len(own) * len(rest))
