"""`likelihood`: the default estimator.

A direction is fitted on the labelled pool, its leave-one-out scores are calibrated into likelihood ratios, and the
shares of the collection are those under which its scores are most likely. The interval comes from refitting it all
under Bayesian-bootstrap weights, so it carries the control set's own error, which usually is the larger part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divscore.mixture import excess_variance, mixture_shares
from divscore.similarity import FloatArray
from divscore.sketch import Sketch

__all__ = ["Likelihood", "likelihood"]


@dataclass(frozen=True)
class Likelihood:
    """Shares of the groups, in the control set's order, and what they might have been."""

    shares: FloatArray  # (k,)
    replicates: FloatArray  # (B, k)
    informative: bool  # whether the groups can be told apart at all


def likelihood(sketch: Sketch, *, target: str = "collection") -> Likelihood:
    """Estimate shares from a sketch.

    The share p of a two-group collection maximises ``Σ_x log(p r(x) + 1 − p)``, r(x) the calibrated likelihood
    ratio of x's score. A replicate whose refitted direction does not separate the groups says nothing and
    counts as all-one-group, each with equal chance. `target` is the composition of this collection, or of
    the "population" it was drawn from (wider).
    """
    scorer = sketch.scorer
    cells, counts = sketch.cells.table(0)
    likelihoods = scorer.calibration.likelihoods(scorer.grid.decode(cells))
    shares = mixture_shares(likelihoods, counts.astype(float))
    rng = np.random.default_rng([scorer.seed, 2])
    spread = _replicate_shares(sketch)
    deviation = spread[1:] - spread[0]
    noise = excess_variance(likelihoods, counts.astype(float), shares)
    if target == "population":
        noise = noise + (np.diag(shares) - np.outer(shares, shares)) / counts.sum()
    own = rng.standard_normal((len(deviation), len(shares))) @ _root(noise)
    replicates = shares + deviation + own
    back = np.argsort(scorer.order)
    lost = ~scorer.replicates.calibration.informative[1:]
    replicates[lost] = np.eye(len(shares))[rng.integers(len(shares), size=int(lost.sum()))]
    return Likelihood(shares[back], replicates[:, back], bool(scorer.calibration.informative))


def _replicate_shares(sketch: Sketch) -> FloatArray:
    """Shares (R, k) by every refitted direction, on the sampled items; row 0 is the fit itself."""
    replicates, counted = sketch.scorer.replicates, sketch.replicate_cells
    if sketch.scorer.groups == 2:
        cells = np.arange(replicates.grid.side)
        scores = np.stack([replicates.scores(at, cells) for at in range(replicates.count)])
        return mixture_shares(replicates.calibration.likelihoods(scores), counted.dense().astype(float))
    found = []
    for at in range(replicates.count):
        cells, counts = counted.table(at)
        likelihoods = replicates.calibration[at].likelihoods(replicates.scores(at, cells))
        found.append(mixture_shares(likelihoods, counts.astype(float)))
    return np.array(found)


def _root(covariance: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T)
