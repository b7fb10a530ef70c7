"""Scorer: what a control set makes of a vector, fitted once and shared by every sketch.

1. *Directions* along which the groups differ: balanced ridge regression with leave-one-out scores, on the features
   ``φ(x) = (x̂, 1)``. Their inner product ``1 + x̂·ŷ`` is the paper's own similarity (Eq. 2). With k groups there are
   k − 1 targets: +1 for an item's own group and −1/(k − 1) for the others; the k-th score is minus the sum of these.
2. *Calibration* from a score to likelihood ratios: balanced multinomial logistic regression on leave-one-out scores.
3. *Grid*: fixed steps on a score, the only form in which a sketch counts scores.
4. *Replicates*: directions and calibrations fitted again under Bayesian-bootstrap weights. They take most of the time,
   and only an interval needs them, so they are fitted when the first audit asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet, Memo
from divscore.control.similarity import FloatArray
from divscore.sketch.sample import RowHash

REPLICATES = 200
FINE, COARSE = 1024, 64  # steps on each side of zero, for the estimate and for the interval
SCORERS = 8  # scorers that a process keeps


@dataclass(frozen=True)
class Grid:
    """Equal steps on each of q scores, symmetric about zero; the outermost take everything outside."""

    reach: FloatArray  # (…, q): the score at the outermost step
    half: int  # steps on each side of zero

    def steps(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the steps (…, q) of scores (…, q), whole numbers from 0 to 2 · half."""
        steps = scores * (self.half / self.reach).astype(scores.dtype)
        np.rint(steps, out=steps)
        np.minimum(steps, self.half, out=steps)
        np.maximum(steps, -self.half, out=steps)
        steps += self.half
        return steps

    def scores(self, steps: NDArray[Any]) -> FloatArray:
        """Return the scores (…, q) at the centres of steps (…, q)."""
        return np.asarray((steps - np.float64(self.half)) * (self.reach / self.half))


@dataclass(frozen=True)
class Replicates:
    """Refitted directions and calibrations, R of them; number 0 is the fit itself."""

    weights: FloatArray  # (R, d + 1, q)
    calibration: Calibration  # of R
    grid: Grid  # reach (R, q)

    @cached_property
    def grid_likelihoods(self) -> FloatArray:
        """Likelihoods (R, steps, 2) at every step of every direction; two groups only."""
        steps = np.arange(2.0 * self.grid.half + 1)[:, None, None]
        return self.calibration.likelihoods(np.swapaxes(self.grid.scores(steps), 0, 1))


@dataclass(frozen=True, eq=False)
class Scorer(Memo):
    """Directions, calibration, grid and row hash of a control set; immutable.

    Groups are in the order of their first example (`order` maps back to the control set's own), so that swapping the
    names of two groups mirrors every later number exactly.
    """

    control: ControlSet
    seed: int
    groups: int  # how many
    order: NDArray[np.intp]
    labels: NDArray[np.intp]
    fit: Directions
    calibration: Calibration
    grid: Grid
    row_hash: RowHash

    @cached_property
    @one_thread
    def replicates(self) -> Replicates:
        """The same fit under `REPLICATES` sets of exponential weights on the labelled items."""
        fit, n = self.fit, len(self.labels)
        rng = np.random.default_rng([self.seed, 1])
        # The weights of each item go through the exponential distribution evenly, in random order. A single odd example
        # often makes the tail of the interval: drawn freely, chance would decide whether it weighs much in two of a
        # hundred replicates or in six, and with it the interval.
        order = rng.permuted(np.tile(np.arange(REPLICATES)[:, None], n), axis=0)
        even = (order + rng.random((REPLICATES, n))) / REPLICATES
        weights = np.maximum(-np.log1p(-even), 1e-6)
        directions, scores, calibrations = [fit.weights[None]], [fit.loo[None]], [self.calibration[None]]
        at_once = max(1, 400_000 // (n * (self.groups - 1)))
        for start in range(0, REPLICATES, at_once):
            some = weights[start : start + at_once]
            refitted, loo = refit_directions(self.control.units, self.labels, self.groups, some, fit.penalty)
            directions.append(refitted)
            scores.append(loo)
            calibrations.append(fit_calibration(loo, self.labels, self.groups, some))
        calibration = Calibration(
            np.concatenate([each.intercept for each in calibrations]),
            np.concatenate([each.slope for each in calibrations]),
            np.concatenate([each.informative for each in calibrations]),
        )
        reach = np.concatenate([1.5 * np.abs(loo).max(axis=1) for loo in scores])
        return Replicates(np.concatenate(directions), calibration, Grid(reach, COARSE))

    def __getstate__(self) -> dict[str, Any]:
        """Send the fit, and the replicates if they exist; the rest follows from them, or from the machine."""
        names = {field.name for field in fields(self)} | {"replicates"}
        return {name: value for name, value in self.__dict__.items() if name in names}


# The one cache of the package: fitted scorers by digest of the control set and seed, the oldest first.
_SCORERS: dict[tuple[str, int], Scorer] = {}
_LOCK = Lock()


@one_thread
def scorer_for(control: ControlSet, seed: int = 0) -> Scorer:
    """Fit a scorer, or return the one that this process has for the same control set and seed."""
    known = _SCORERS.get((control.digest, seed))
    if known is not None:
        return known
    row_hash = RowHash.of(control.vectors)
    if len(control.fitted) < 2:
        return shared_scorer(_without_groups(control, seed, row_hash))
    # Normally all examples; a sample of a collection may have a group with only one.
    rows = np.flatnonzero(np.isin(control.labels, control.fitted))
    _, first = np.unique(control.labels[rows], return_index=True)
    order, k = control.fitted[np.argsort(first)], len(first)
    labels = np.argsort(np.argsort(first))[np.searchsorted(control.fitted, control.labels[rows])].astype(
        np.intp
    )
    fit = fit_directions(control.units[rows], labels, k)
    calibration = fit_calibration(fit.loo[None], labels, k, np.ones((1, len(labels))))[0]
    grid = Grid(2.0 * np.abs(fit.loo).max(axis=0), FINE)
    return shared_scorer(Scorer(control, seed, k, order, labels, fit, calibration, grid, row_hash))


def _without_groups(control: ControlSet, seed: int, row_hash: RowHash) -> Scorer:
    """A scorer that says nothing about groups, as fewer than two have examples: it scores the similarity to all."""
    mean = control.units.mean(axis=0)
    weights = np.append(mean, 0.0)[:, None]
    fit = Directions(weights, control.units @ mean[:, None], USUAL_PENALTY)
    calibration = Calibration(np.zeros(1), np.zeros((1, 1)), np.array(False))
    empty = np.zeros(0, dtype=np.intp)
    return Scorer(control, seed, 2, empty, empty, fit, calibration, Grid(np.full(1, 2.0), FINE), row_hash)


def shared_scorer(scorer: Scorer) -> Scorer:
    """Return this process's scorer for the same control set and seed: this one, if it has none."""
    with _LOCK:
        known = _SCORERS.setdefault((scorer.control.digest, scorer.seed), scorer)
        while len(_SCORERS) > SCORERS:
            del _SCORERS[next(iter(_SCORERS))]
    return known


# --------------------------------------------------------------------------------------------------- directions

PENALTIES: FloatArray = 10.0 ** np.arange(-3.0, 2.01, 0.25)
# With few labels the criterion's own noise would choose: on 60 splits of PPB with 50 labels, free choice covered 0.91
# and this weak preference for a middling penalty, which fades as 1/n, 0.96, with a tenth less error.
USUAL_PENALTY = 10.0**-0.25
PREFERENCE = 5.0
AWAY: FloatArray = np.log10(PENALTIES / USUAL_PENALTY) ** 2


@dataclass(frozen=True)
class Directions:
    """Fitted directions and the scores that each labelled item gets from a fit without itself."""

    weights: FloatArray  # (d + 1, k − 1): the last row is the intercept
    loo: FloatArray  # (n, k − 1)
    penalty: float


def features(units: FloatArray) -> FloatArray:
    """Append the constant that stands for the 1 in ``1 + x̂·ŷ``."""
    return np.hstack([units, np.ones((len(units), 1))])


def targets(labels: NDArray[np.intp], groups: int) -> FloatArray:
    """Regression targets of the first k − 1 groups."""
    own = labels[:, None] == np.arange(groups - 1)
    return np.where(own, 1.0, -1.0 / (groups - 1))


def balanced_weights(labels: NDArray[np.intp], groups: int, weights: FloatArray) -> FloatArray:
    """Rescale weights (…, n) so that every group weighs the same and all together weigh n."""
    balanced = np.empty_like(weights)
    for group in range(groups):
        mask = labels == group
        total = weights[..., mask].sum(axis=-1, keepdims=True)
        balanced[..., mask] = weights[..., mask] / total * (len(labels) / groups)
    return balanced


def fit_directions(units: FloatArray, labels: NDArray[np.intp], groups: int) -> Directions:
    """Ridge regression with the penalty that separates the groups best, leave-one-out.

    One singular value decomposition serves all penalties: with ``V^½ Φ = U S Rᵀ`` the leave-one-out residual
    of item i is ``(y_i − f_i) / (1 − h_i)``, ``h_i = Σ_j U_ij² S_j² / (S_j² + λ)``. The penalty is the one
    with the smallest within-group variance over squared distance of the group means (its logarithm, plus
    ``PREFERENCE / n`` times the squared decades from `USUAL_PENALTY`).
    """
    phi, y, signs = features(units), targets(labels, groups), targets(np.arange(groups), groups)
    v = balanced_weights(labels, groups, np.ones(len(labels)))
    root = np.sqrt(v)[:, None]
    U, S, Rt = np.linalg.svd(root * phi, full_matrices=False)
    projected = U.T @ (root * y)
    best: tuple[float, Directions] | None = None
    for penalty, away in zip(PENALTIES[::-1], AWAY[::-1], strict=True):
        shrink = S**2 / (S**2 + penalty)
        fitted = U @ (shrink[:, None] * projected) / root
        left = (U**2 @ shrink)[:, None]
        loo = y - (y - fitted) / np.maximum(1.0 - left, 1e-9)
        parts = [loo[labels == g] for g in range(groups)]
        means = np.stack([part.mean(axis=0) for part in parts])
        within = float(
            np.mean(
                [((part - mean) ** 2).sum(axis=1).mean() for part, mean in zip(parts, means, strict=True)]
            )
        )
        aligned = float((means * signs).sum())  # the distance of the means, as the targets see it
        spread = float(np.log(within + 1e-300) - 2 * np.log(aligned)) if aligned > 0 else np.inf
        spread += PREFERENCE / len(labels) * away
        if best is None or spread < best[0]:
            weights = Rt.T @ ((S / (S**2 + penalty))[:, None] * projected)
            best = spread, Directions(weights, loo, float(penalty))
    assert best is not None
    return best[1]


def refit_directions(
    units: FloatArray, labels: NDArray[np.intp], groups: int, weights: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """Fit again under other item weights (B, n), at the same penalty.

    Returns directions (B, d + 1, k − 1) and leave-one-out scores (B, n, k − 1), by whichever of the dual
    (n × n) and the primal ((d + 1) × (d + 1)) system is smaller.
    """
    phi, y = features(units), targets(labels, groups)
    dual = len(phi) <= phi.shape[1]
    kernel, identity = phi @ phi.T if dual else phi, np.eye(phi.shape[1])
    directions, scores = [], []
    for v in balanced_weights(labels, groups, weights):
        if dual:
            # (K + λ V⁻¹) α = y; the leave-one-out residual is α_i over the inverse's diagonal.
            inverse = np.linalg.inv(kernel + np.diag(penalty / v))
            alpha = inverse @ y
            directions.append(alpha)
            scores.append(y - alpha / np.diag(inverse)[:, None])
        else:
            # (Φᵀ V Φ + λ I) w = Φᵀ V y; leverage from the inverse.
            weighted = v[:, None] * phi
            inverse = np.linalg.inv(phi.T @ weighted + penalty * identity)
            w = inverse @ (weighted.T @ y)
            leverage = np.vecdot(phi @ inverse, weighted)[:, None]
            directions.append(w)
            scores.append(y - (y - phi @ w) / np.maximum(1.0 - leverage, 1e-9))
    return phi.T @ np.stack(directions) if dual else np.stack(directions), np.stack(scores)


# -------------------------------------------------------------------------------------------------- calibration

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

    def __getitem__(self, replicate: int | None) -> Calibration:
        return Calibration(self.intercept[replicate], self.slope[replicate], self.informative[replicate])

    def likelihoods(self, scores: FloatArray) -> FloatArray:
        """Likelihoods (…, m, k) of scores (…, m, k − 1) up to a factor an item, the largest of each item being 1."""
        ratio = scores @ np.swapaxes(self.slope, -1, -2) + self.intercept[..., None, :]
        ratio = np.clip(ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
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
    # Mean scores (B, group of the items, score of the group), the last score being minus the sum of the others.
    full = np.concatenate([scores, -scores.sum(axis=2, keepdims=True)], axis=2)
    members = [labels == g for g in range(groups)]
    mean = np.stack(
        [
            np.einsum("bn,bnq->bq", v[:, own], full[:, own]) / v[:, own].sum(axis=1)[:, None]
            for own in members
        ],
        axis=1,
    )
    informative = np.ones(len(scores), dtype=bool)
    for g, h in combinations(range(groups), 2):
        informative &= mean[:, g, g] - mean[:, g, h] > mean[:, h, g] - mean[:, h, h]
    return Calibration(intercept, slope, informative)


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
