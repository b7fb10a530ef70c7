"""Score fit: do the collection's scores look like a mixture of the groups' own scores?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.estimators.mixture import mixture_shares
from divscore.estimators.mixturefit import MixtureFit, mixture_fit
from divscore.sketch.calibration import fit_calibration
from divscore.sketch.scorer import Scorer
from divscore.sketch.sketch import Sketch

__all__ = ["ScoreFit", "score_fit"]

SIMULATIONS = 199
SHARE_STEPS = 32


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
    mixture, where it is known already. Collections that share their sample share simulations as well.
    """
    scorer = sketch.scorer
    found = found or mixture_fit(sketch)
    p = found.shares
    # The collection's scores are known by their cells only, so the pool's are put on the same grid: with three
    # groups or more its steps alone would look like a misfit.
    pool = _on_grid(scorer)
    sizes = np.bincount(scorer.labels)
    scale = _scale(sketch.count, p, sizes)
    scores = np.concatenate([found.scores, pool])
    seen = np.concatenate([found.counts / found.counts.sum(), np.zeros(len(pool))])
    fitted = np.concatenate([np.zeros(len(found.counts)), (p / sizes)[scorer.labels]])
    statistic = scale * float(_distance(scores, (seen - fitted)[None])[0])
    if sketch.shared:
        simulated = _simulated_nearby(scorer, *_nearby(p, sketch.count))
    else:
        simulated = scale * _simulate(scorer, pool, p, sketch.count)
    return ScoreFit(statistic, float((1 + (simulated >= statistic).sum()) / (1 + SIMULATIONS)))


def _on_grid(scorer: Scorer) -> FloatArray:
    return scorer.grid.decode(scorer.grid.encode(scorer.fit.loo))


def _scale(count: float, p: FloatArray, sizes: NDArray[np.intp]) -> float:
    return float(1.0 / np.sqrt(1.0 / count + (p**2 / sizes).sum()))


def _nearby(p: FloatArray, count: int) -> tuple[float, int]:
    """Return a share and a number of items near those of a collection of two groups.

    There are few different ones, so that thousands of collections share their simulations. The scaled statistic hardly
    depends on either.
    """
    return round(float(p[0]) * SHARE_STEPS) / SHARE_STEPS, round(2.0 ** (round(math.log2(count) * 4) / 4))


@lru_cache(maxsize=4096)
def _simulated_nearby(scorer: Scorer, share: float, count: int) -> FloatArray:
    p = np.array([share, 1.0 - share])
    return _scale(count, p, np.bincount(scorer.labels)) * _simulate(scorer, _on_grid(scorer), p, count)


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
