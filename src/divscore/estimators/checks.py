"""Checks of an estimate's assumptions.

- relevance: can the mean of the collection be that of a mixture of the control set's groups?
- score fit: do its scores look like a mixture of the groups' scores?
- separation: do the labelled examples separate the groups at all?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators.mixture import MixtureFit, mixture_fit, mixture_shares
from divscore.sketch.scorer import AWAY, FEW, PENALTIES, PREFERENCE, Grid, Scorer, decomposed, features
from divscore.sketch.sketch import Sketch

ALARM = 0.01  # level of the tests


@dataclass(frozen=True)
class CheckResult:
    """A statistic, and how often chance alone gives as much."""

    statistic: float
    p_value: float

    @property
    def rejects(self) -> bool:
        """Whether it is more than chance."""
        return self.p_value < ALARM


@dataclass(frozen=True)
class GroupMoments:
    """Means of the groups' unit vectors, and traces of their covariances C_g, which give the sampling noise."""

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
    cross = np.empty((len(parts), len(parts)))
    squares: dict[int, FloatArray] = {}
    for (g, a), (h, b) in product(enumerate(centred), repeat=2):
        n, m = len(a), len(b)
        if n * m <= a.shape[1] ** 2:
            plain = float(((a @ b.T) ** 2).sum())
        else:
            for group in {g, h} - squares.keys():
                squares[group] = centred[group].T @ centred[group]
            plain = float((squares[g] * squares[h]).sum())
        plain /= (n - 1) * (m - 1)
        if g == h and n >= 4:
            # Bai and Saranadasa (1996), Eq. 3.8.
            excess = plain - (float((a**2).sum()) / (n - 1)) ** 2 / (n - 1)
            plain = max((n - 1) ** 2 / ((n - 2) * (n + 1)) * excess, 0.0)
        cross[g, h] = plain
    return GroupMoments(counts, means, plane, trace, cross)


@one_thread
def relevance(mean: FloatArray, count: int, moments: GroupMoments, shares: FloatArray) -> CheckResult:
    """Test whether a collection with this mean unit vector can be a mixture of the groups (Assumption 3.1).

    If inside each group the collection is distributed as the control set is, its mean lies on the segment (with k
    groups: in the simplex) between the group means, up to noise. The statistic is the squared distance from it over
    its expectation, about 1 if the assumption holds.

    At the true shares p (`shares`, as estimated) the noise has covariance ``Σ_g c_g C_g``, ``c_g = p_g / N + p_g² /
    n_g``: the collection's sampling noise and the control set's. The nearest mixture is closer still, because the
    estimated group means contain the same noise; that part is known and subtracted. The estimated shares are
    uncertain, so the nearest mixture's own shares are tried as well, with nothing subtracted, and the milder result
    counts. The squared distance is compared with a χ² of matching mean and variance (Satterthwaite). Traces of squared
    covariances are corrected for bias, which with n < d is several times the trace itself.
    """
    from scipy.special import chdtrc

    # The nearest mixture: drop the most negative share until there is none.
    free = np.arange(len(moments.means))
    while True:
        origin, others = moments.means[free[-1]], moments.means[free[:-1]]
        fitted, *_ = np.linalg.lstsq((others - origin).T, mean - origin, rcond=None)
        fitted = np.append(fitted, 1.0 - fitted.sum())
        if fitted.min() >= 0:
            break
        free = np.delete(free, int(fitted.argmin()))
    nearest = np.zeros(len(moments.means))
    nearest[free] = fitted
    residual = mean - nearest @ moments.means
    dimension = len(mean)
    # The part of the squared noise that lies in the plane of the estimated means, because it is their own.
    pull = shares * moments.trace / moments.counts
    pull = pull - pull.mean()
    centred = moments.means - moments.means.mean(axis=0)
    in_plane = float(pull @ np.linalg.pinv(centred @ centred.T, hermitian=True) @ pull)
    results = []
    for p, subtracted in ((nearest, 0.0), (shares, in_plane)):
        part = p / count + p**2 / moments.counts
        expected, squared = float(part @ moments.trace), float(part @ moments.cross @ part)
        if expected <= subtracted:
            return CheckResult(1.0, 1.0)
        degrees = max(1.0, min(expected**2 / squared, dimension) if squared > 0 else dimension)
        statistic = float(residual @ residual) / (expected - subtracted)
        results.append(CheckResult(statistic, float(chdtrc(degrees, statistic * degrees))))
    return max(results, key=lambda result: (result.p_value, -result.statistic))


SIMULATIONS = 199
COARSE_STEPS = 32  # on each side of zero


@one_thread
def score_fit(sketch: Sketch, mixture: MixtureFit | None = None) -> CheckResult:
    """Compare the scores of a collection with the best mixture of the groups' leave-one-out scores.

    The statistic is ``√n_eff · sup |F_S − Σ_g p_g F_g|`` with ``1/n_eff = 1/N + Σ_g p_g²/n_g``, the largest over
    the k − 1 scores: a scaled Kolmogorov–Smirnov distance. Its distribution under the assumption is simulated: redraw
    the labelled scores of each group, recalibrate, draw a collection from their mixture, estimate its shares. `mixture`
    is the best mixture, if it is known already. Where its labelled examples have weights, n_g is their effective
    number; the simulation is the one without weights.
    """
    scorer = sketch.scorer
    mixture = mixture or mixture_fit(sketch)
    p, labels = mixture.shares, scorer.labels
    # Both are put on one grid, or its steps alone would look like a misfit. With three groups or more the grid is
    # coarse: scores of a group without its own direction hardly vary, and leave-one-out noise would be a misfit.
    grid = mixture.grid if scorer.groups == 2 else Grid(mixture.grid.reach, COARSE_STEPS)
    pool = grid.scores(grid.steps(mixture.pool))
    expected = (p / np.bincount(labels, mixture.weights))[labels] * mixture.weights
    gap = largest_gap(grid.scores(grid.steps(mixture.scores)), mixture.counts, pool, expected)
    statistic = math.sqrt(effective_size(sketch, mixture)) * gap
    redrawn, likelihoods = scorer.once(_redrawn_labels)
    rng = np.random.default_rng([scorer.seed, 3])
    sizes, count = np.bincount(labels), mixture.counts.sum()
    chance = (p / sizes)[labels]
    drawn = rng.multinomial(min(int(count), 1_000_000), chance / chance.sum(), size=SIMULATIONS).astype(float)
    shares = mixture_shares(likelihoods, drawn)
    weights = redrawn * (shares / sizes)[:, labels]
    even = Grid(scorer.grid.reach, grid.half)
    pool = even.scores(even.steps(scorer.fit.loo))
    scale = float(1.0 / np.sqrt(1.0 / count + (p**2 / sizes).sum()))
    simulated = scale * _distance(pool, drawn / drawn.sum(axis=1, keepdims=True) - weights)
    return CheckResult(statistic, float((1 + (simulated >= statistic).sum()) / (1 + SIMULATIONS)))


def largest_gap(scores: FloatArray, counts: FloatArray, pool: FloatArray, weights: FloatArray) -> float:
    """Kolmogorov–Smirnov distance of scores (m, q) with counts from a pool (n, q) with weights that add up to 1."""
    both = np.concatenate([counts / counts.sum(), -weights])
    return float(_distance(np.concatenate([scores, pool]), both[None])[0])


def effective_size(sketch: Sketch, mixture: MixtureFit) -> float:
    """How many items a distribution function would come from that is as uncertain as the difference of both sides."""
    labels, w = sketch.scorer.labels, mixture.weights
    sizes = np.bincount(labels, w) ** 2 / np.bincount(labels, w**2)
    return float(1.0 / (1.0 / mixture.counts.sum() + (mixture.shares**2 / sizes).sum()))


def _redrawn_labels(scorer: Scorer) -> tuple[FloatArray, FloatArray]:
    """Redraw the labelled scores of each group and recalibrate; the same for every collection."""
    rng = np.random.default_rng([scorer.seed, 5])
    pool = np.clip(scorer.fit.loo, -scorer.grid.reach, scorer.grid.reach)
    labels, k = scorer.labels, scorer.groups
    redrawn = np.zeros((SIMULATIONS, len(pool)))
    for g in range(k):
        own = np.flatnonzero(labels == g)
        redrawn[:, own] = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), size=SIMULATIONS)
    calibration = scorer.recalibrated(np.broadcast_to(pool, (SIMULATIONS, *pool.shape)), redrawn)
    return redrawn, calibration.likelihoods(pool)


def _distance(scores: FloatArray, difference: FloatArray) -> FloatArray:
    """Kolmogorov–Smirnov distances (S,) of signed weights (S, m) on scores (m, q): the largest over the q axes."""
    worst = np.zeros(len(difference))
    for axis in range(scores.shape[1]):
        order = np.argsort(scores[:, axis], kind="stable")
        at = scores[order, axis]
        last = np.append(at[1:] != at[:-1], True)  # compare distribution functions after the last of a tie
        worst = np.maximum(worst, np.abs(np.cumsum(difference[:, order], axis=1))[:, last].max(axis=1))
    return worst


SEPARABLE_P = 0.02
CONFUSED = 0.05  # of the refits: with more, a 95 % interval would reach from nothing to all
PERMUTATIONS = 199


@dataclass(frozen=True)
class Separation:
    """How well the scores separate the two groups that are hardest to separate.

    `auc` is the chance that an example scores higher for its own group than an example of the other group;
    `p_value` says how often shuffled labels separate as well.
    """

    auc: float
    p_value: float
    pair: tuple[int, int]  # positions in the control set's groups


Groups = tuple[int, ...]  # positions in the scorer's order


def separation(scorer: Scorer) -> Separation:
    """Test every pair of groups by permutation; the result is the worst pair's.

    It takes a while and is the same for every collection: ``scorer.once(separation)``.
    """
    tests = scorer.once(_pairs)
    worst = max(tests, key=lambda pair: (tests[pair][0], -tests[pair][1]))
    p_value, auc = tests[worst]
    first, second = sorted(int(scorer.order[g]) for (g,) in worst)
    return Separation(auc, p_value, (first, second))


@one_thread
def clusters(scorer: Scorer) -> tuple[Groups, ...]:
    """The groups, those that the labelled examples do not separate together in one cluster.

    The two clusters that are hardest to separate are merged and tested again, until all are separate. Of several groups
    two are also merged if too many refits confuse them: an interval for how they are divided would be the whole range.
    Whoever cannot distinguish A from B may still know how many are one of the two. Ask ``scorer.once(clusters)``.
    """
    found: list[Groups] = [(g,) for g in range(scorer.groups)]
    tests = dict(scorer.once(_pairs))
    while len(found) > 1:
        pairs, member = list(combinations(range(len(found)), 2)), membership(found, scorer.groups)
        ordered = scorer.calibration.ordered(member)
        difficulty = []
        for i, j in pairs:
            pair = found[i], found[j]
            if pair not in tests:
                tests[pair] = _tested(scorer, *pair)
            p_value, auc = tests[pair]
            difficulty.append((p_value if ordered[i, j] else 1.0, -auc))
        hardest = max(range(len(pairs)), key=difficulty.__getitem__)
        if difficulty[hardest][0] <= SEPARABLE_P:
            if scorer.groups == 2:
                break
            confused = 1.0 - scorer.replicates.calibration.ordered(member)[1:].mean(axis=0)
            hardest = max(range(len(pairs)), key=lambda at: float(confused[pairs[at]]))
            if confused[pairs[hardest]] <= CONFUSED:
                break
        merged = [found[at] for at in pairs[hardest]]
        found = sorted(
            [tuple(sorted(merged[0] + merged[1])), *(each for each in found if each not in merged)]
        )
    return tuple(found)


def membership(sets: Sequence[Groups], groups: int) -> FloatArray:
    """Which groups (columns) are in which set (rows): 1 or 0."""
    return np.array([[float(g in each) for g in range(groups)] for each in sets])


@one_thread
def separable(scorer: Scorer) -> bool:
    """Whether the labelled examples separate all groups."""
    return len(scorer.once(clusters)) == scorer.groups


def _pairs(scorer: Scorer) -> dict[tuple[Groups, Groups], tuple[float, float]]:
    """Test every two groups."""
    return {((g,), (h,)): _tested(scorer, (g,), (h,)) for g, h in combinations(range(scorer.groups), 2)}


@one_thread
def _tested(scorer: Scorer, a: Groups, b: Groups) -> tuple[float, float]:
    """How often shuffled labels separate two sets of groups as well, and how well the scores do.

    The statistic is the one that chooses the penalty (distance of the mean leave-one-out scores over their spread),
    with a new choice for every shuffle. A rank test on the scores would be wrong: leave-one-out scores of one fit
    depend on each other, and on pure noise it finds a difference at the 1 % level in 5 to 9 % of pools.
    """
    pair = np.isin(scorer.labels, a + b)
    first = np.isin(scorer.labels[pair], a)
    n, ones = len(first), int(first.sum())
    rng = np.random.default_rng([scorer.seed, 6, a[0], b[0]])
    # The real labelling and shuffled ones, a row each, share one singular value decomposition: targets of
    # ±n/(2 n_g) balance the groups. Many examples need neither double precision nor every penalty.
    kind, every = ("f8", 1) if n <= FEW else ("f4", 2)
    U, S, _ = decomposed(features(scorer.control.units[pair]))
    shrink = S[:, None] ** 2 / (S[:, None] ** 2 + PENALTIES[::every])
    growth = 1 / np.maximum(1 - U**2 @ shrink, 1e-9)
    U, shrink, growth = U.astype(kind), shrink.astype(kind), growth.astype(kind)
    member = np.stack([first, *(rng.permutation(first) for _ in range(PERMUTATIONS))]).astype(kind)
    y = n / (2 * ones) * member - n / (2 * (n - ones)) * (1 - member)
    projected = y @ U
    best = np.full(PERMUTATIONS + 1, np.inf)
    for at, away in enumerate(AWAY[::every]):
        loo = (projected * shrink[:, at]) @ U.T
        loo *= growth[:, at]
        loo += (1 - growth[:, at]) * y
        # Variance within the two sets over the squared distance of their means, for every labelling.
        own, total, square = (
            sums.astype(float) for sums in (np.vecdot(loo, member), loo.sum(axis=1), np.vecdot(loo, loo))
        )
        inside, outside = own / ones, (total - own) / (n - ones)
        within = square - ones * inside**2 - (n - ones) * outside**2
        gap = np.maximum(inside - outside, 1e-300)
        spread = np.log(np.maximum(within / n, 0) + 1e-300) - 2 * np.log(gap)
        best = np.minimum(best, np.where(inside > outside, spread, np.inf) + PREFERENCE / n * away)
    p_value = float((best <= best[0]).mean()) if np.isfinite(best[0]) else 1.0
    # Pairs of examples that are ranked correctly, ties counting half.
    full = np.hstack([scorer.fit.loo, -scorer.fit.loo.sum(axis=1, keepdims=True)])
    score = (full[:, a].sum(axis=1) - full[:, b].sum(axis=1))[pair]
    own, rest = score[first], np.sort(score[~first])
    below = np.searchsorted(rest, own, side="left") + np.searchsorted(rest, own, side="right")
    return p_value, float(below.sum()) / (2 * len(own) * len(rest))
