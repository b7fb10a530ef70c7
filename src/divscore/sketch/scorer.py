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

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.sketch.sample import RowHash

REPLICATES = 200
FINE, COARSE = 1024, 64  # steps on each side of zero, for the estimate and for the interval
SCORERS = 8  # scorers that a process keeps
# Numbers in a strip of rows. From 9,216 on OpenBLAS starts threads of its own for a product with a vector, which costs
# more than it brings. The same everywhere: sums over strips of another length are rounded otherwise, and a worker with
# one thread must give the same bits as a process with several.
STRIP = 9_000


@dataclass(frozen=True)
class Grid:
    """Equal steps on each of q scores, symmetric about zero; the outermost take everything outside."""

    reach: FloatArray  # (…, q): the score at the outermost step
    half: int  # steps on each side of zero

    @property
    def side(self) -> int:
        """Number of steps on one score."""
        return 2 * self.half + 1

    def steps(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the steps (…, q) of scores (…, q), whole numbers from 0."""
        steps = scores * (self.half / self.reach).astype(scores.dtype)
        np.rint(steps, out=steps)
        np.minimum(steps, self.half, out=steps)
        np.maximum(steps, -self.half, out=steps)
        steps += self.half
        return steps

    def scores(self, steps: NDArray[Any]) -> FloatArray:
        """Return the scores (…, q) at the centres of steps (…, q)."""
        return np.asarray((steps - np.float64(self.half)) * (self.reach / self.half))

    def rounded(self, scores: FloatArray) -> FloatArray:
        """Return scores as a sketch knows them."""
        return self.scores(self.steps(scores))


@dataclass(frozen=True)
class Replicates:
    """Refitted directions and calibrations, R of them; number 0 is the fit itself."""

    weights: FloatArray  # (R, d + 1, q)
    calibration: Calibration  # of R
    grid: Grid  # reach (R, q)

    @property
    def count(self) -> int:
        """R."""
        return len(self.weights)

    @cached_property
    def grid_likelihoods(self) -> FloatArray:
        """Likelihoods (R, side, 2) at every step of every direction; two groups only."""
        steps = np.arange(self.grid.side, dtype=np.float64)[:, None, None]
        return self.calibration.likelihoods(np.swapaxes(self.grid.scores(steps), 0, 1))

    def __getstate__(self) -> Mapping[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Scorer:
    """Directions, calibration, grid and row hash of a control set; immutable.

    Groups are in the order of their first example (`order` maps back to the control set's own), so that swapping the
    names of two groups mirrors every later number exactly.
    """

    control: ControlSet
    seed: int
    order: NDArray[np.intp]
    labels: NDArray[np.intp]
    fit: Directions
    calibration: Calibration
    grid: Grid
    row_hash: RowHash

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.order)

    @property
    def scores(self) -> int:
        """Number of scores of a vector: one fewer than groups."""
        return self.groups - 1

    @cached_property
    def weights32(self) -> NDArray[np.float32]:
        """Directions in single precision, one a row: steps never need more."""
        return np.ascontiguousarray(self.fit.weights[:-1].T, dtype=np.float32)

    @cached_property
    def intercept32(self) -> NDArray[np.float32]:
        """What the constant feature adds to each score."""
        return np.asarray(self.fit.weights[-1], dtype=np.float32)

    @cached_property
    def replicates(self) -> Replicates:
        """The same fit under `REPLICATES` sets of exponential weights on the labelled items."""
        return _replicates(self)

    @property
    def strip(self) -> int:
        """Rows of a strip, a multiple of four."""
        return max(8, min(64, STRIP // self.control.dimension // 4 * 4))

    def row_dots(self, block: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Dot product of every row with `weights`, independent of the other rows.

        Removing an item must find the cell that counted it. A product of a whole block with a vector does not promise
        that: BLAS sums the rows left over from its inner loop in another order. Strips of full length promise it on
        most machines, and `np.vecdot`, which is slower, on all.
        """
        if not self._steady:
            return np.asarray(np.vecdot(block, weights))
        (n, d), rows = block.shape, self.strip
        whole = n // rows * rows
        dots: NDArray[np.float32] = np.matmul(block[:whole].reshape(-1, rows, d), weights).reshape(-1)
        if whole == n:
            return dots
        last = np.zeros((rows, d), dtype=np.float32)
        last[: n - whole] = block[whole:]
        return np.concatenate([dots, np.matmul(last, weights)[: n - whole]], dtype=np.float32)

    def weighted_sum(self, block: NDArray[Any], weights: NDArray[Any]) -> FloatArray:
        """Sum of rows times their weights: in the rows' own precision within a strip, in double between strips."""
        (n, d), rows = block.shape, self.strip
        whole = n // rows * rows
        strips = weights[:whole].reshape(-1, 1, rows) @ block[:whole].reshape(-1, rows, d)
        total: FloatArray = strips.sum(axis=(0, 1), dtype=np.float64)
        if whole < n:
            total += weights[whole:] @ block[whole:]
        return total

    @cached_property
    def _steady(self) -> bool:
        """Whether BLAS gives a row of a strip the same result in every place; measured on random rows."""
        rows, d = self.strip, self.control.dimension
        if rows * d > STRIP:
            return False
        rng = np.random.default_rng(d)
        block = rng.standard_normal((rows, d), dtype=np.float32)
        weights = rng.standard_normal(d, dtype=np.float32)
        dots = block @ weights
        return all(
            np.array_equal(np.roll(block, s, axis=0) @ weights, np.roll(dots, s)) for s in range(1, rows)
        )

    def __getstate__(self) -> Mapping[str, Any]:
        """Send the fit, and the replicates if they exist; the rest follows from them, or from the machine."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        if "replicates" in self.__dict__:
            state["replicates"] = self.replicates
        return state


# The one cache of the package: fitted scorers by digest of the control set and seed, the oldest first.
_SCORERS: dict[tuple[str, int], Scorer] = {}
_LOCK = Lock()


def scorer_for(control: ControlSet, seed: int = 0) -> Scorer:
    """Fit a scorer, or return the one that this process has for the same control set and seed."""
    known = _SCORERS.get((control.digest, seed))
    return known if known is not None else shared_scorer(_fit(control, seed))


def shared_scorer(scorer: Scorer) -> Scorer:
    """Return this process's scorer for the same control set and seed: this one, if it has none."""
    with _LOCK:
        known = _SCORERS.setdefault((scorer.control.digest, scorer.seed), scorer)
        while len(_SCORERS) > SCORERS:
            del _SCORERS[next(iter(_SCORERS))]
    return known


def _fit(control: ControlSet, seed: int) -> Scorer:
    _, first = np.unique(control.labels, return_index=True)
    order = np.argsort(first)
    labels = np.argsort(order)[control.labels].astype(np.intp)
    k = len(order)
    fit = fit_directions(control.units, labels, k)
    calibration = fit_calibration(fit.loo[None], labels, k, np.ones((1, len(labels))))[0]
    grid = Grid(2.0 * np.abs(fit.loo).max(axis=0), FINE)
    return Scorer(control, seed, order, labels, fit, calibration, grid, RowHash.of(control.vectors))


def _replicates(scorer: Scorer) -> Replicates:
    control, fit, k = scorer.control, scorer.fit, scorer.groups
    n = len(control)
    rng = np.random.default_rng([scorer.seed, 1])
    weights = _exponential_weights(rng, REPLICATES, n)
    at_once = max(1, 400_000 // (n * (k - 1)))
    directions, scores, calibrations = [fit.weights[None]], [fit.loo[None]], []
    for start in range(0, REPLICATES, at_once):
        some = weights[start : start + at_once]
        refitted, loo = refit_directions(control.units, scorer.labels, k, some, fit.penalty)
        directions.append(refitted)
        scores.append(loo)
        calibrations.append(fit_calibration(loo, scorer.labels, k, some))
    point = scorer.calibration
    calibration = Calibration(
        np.concatenate([point.intercept[None], *(c.intercept for c in calibrations)]),
        np.concatenate([point.slope[None], *(c.slope for c in calibrations)]),
        np.concatenate([point.informative[None], *(c.informative for c in calibrations)]),
    )
    reach = np.concatenate([1.5 * np.abs(loo).max(axis=1) for loo in scores])
    return Replicates(np.concatenate(directions), calibration, Grid(reach, COARSE))


def _exponential_weights(rng: np.random.Generator, replicates: int, items: int) -> FloatArray:
    """Weights (replicates, items): each item's go through the exponential distribution evenly, in random order.

    A single odd example often makes the tail of the interval. Drawn freely, chance would decide whether it weighs much
    in two of a hundred replicates or in six, and with it the interval.
    """
    order = rng.permuted(np.tile(np.arange(replicates)[:, None], items), axis=0)
    even = (order + rng.random((replicates, items))) / replicates
    return np.maximum(-np.log1p(-even), 1e-6)


# --------------------------------------------------------------------------------------------------- directions

PENALTIES: FloatArray = 10.0 ** np.arange(-3.0, 2.01, 0.25)
# With few labels the criterion's own noise would choose: on 60 splits of PPB with 50 labels, free choice covered 0.91
# and this weak preference for a middling penalty, which fades as 1/n, 0.96, with a tenth less error.
USUAL_PENALTY = 10.0**-0.25
PREFERENCE = 5.0


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
    phi, y = features(units), targets(labels, groups)
    v = balanced_weights(labels, groups, np.ones(len(labels)))
    root = np.sqrt(v)[:, None]
    U, S, Rt = np.linalg.svd(root * phi, full_matrices=False)
    projected = U.T @ (root * y)
    best: tuple[float, Directions] | None = None
    for penalty in PENALTIES[::-1]:
        shrink = S**2 / (S**2 + penalty)
        fitted = U @ (shrink[:, None] * projected) / root
        left = (U**2 @ shrink)[:, None]
        loo = y - (y - fitted) / np.maximum(1.0 - left, 1e-9)
        spread = _log_spread(loo, labels, groups) + preference(float(penalty), len(labels))
        if best is None or spread < best[0]:
            weights = Rt.T @ ((S / (S**2 + penalty))[:, None] * projected)
            best = spread, Directions(weights, loo, float(penalty))
    assert best is not None
    return best[1]


def preference(penalty: float, labelled: int) -> float:
    """What is added to the logarithm of the spread for a penalty far from the usual one."""
    return float(PREFERENCE / labelled * np.log10(penalty / USUAL_PENALTY) ** 2)


def refit_directions(
    units: FloatArray, labels: NDArray[np.intp], groups: int, weights: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """Fit again under other item weights (B, n), at the same penalty.

    Returns directions (B, d + 1, k − 1) and leave-one-out scores (B, n, k − 1), by whichever of the dual
    (n × n) and the primal ((d + 1) × (d + 1)) system is smaller.
    """
    phi, y = features(units), targets(labels, groups)
    v = balanced_weights(labels, groups, weights)
    solve = _dual if phi.shape[0] <= phi.shape[1] else _primal
    kernel = phi @ phi.T if solve is _dual else phi
    solved = [solve(kernel, y, row, penalty) for row in v]
    coefficients = np.stack([c for c, _ in solved])
    directions = phi.T @ coefficients if solve is _dual else coefficients
    return directions, np.stack([loo for _, loo in solved])


def _dual(kernel: FloatArray, y: FloatArray, v: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
    """Solve (K + λ V⁻¹) α = y; the leave-one-out residual is α_i over the inverse's diagonal."""
    inverse = np.linalg.inv(kernel + np.diag(penalty / v))
    alpha = inverse @ y
    return alpha, y - alpha / np.diag(inverse)[:, None]


def _primal(phi: FloatArray, y: FloatArray, v: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
    """Solve (Φᵀ V Φ + λ I) w = Φᵀ V y; leverage from the inverse."""
    weighted = v[:, None] * phi
    inverse = np.linalg.inv(phi.T @ weighted + penalty * np.eye(phi.shape[1]))
    w = inverse @ (weighted.T @ y)
    leverage = np.vecdot(phi @ inverse, weighted)[:, None]
    return w, y - (y - phi @ w) / np.maximum(1.0 - leverage, 1e-9)


def _log_spread(loo: FloatArray, labels: NDArray[np.intp], groups: int) -> float:
    """Logarithm of the within-group variance over the squared distance of the group means, as the targets see it."""
    means = np.stack([loo[labels == g].mean(axis=0) for g in range(groups)])
    within = float(np.mean([((loo[labels == g] - means[g]) ** 2).sum(axis=1).mean() for g in range(groups)]))
    aligned = float((means * targets(np.arange(groups), groups)).sum())
    return float(np.log(within + 1e-300) - 2 * np.log(aligned)) if aligned > 0 else np.inf


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

    def __getitem__(self, replicate: int) -> Calibration:
        return Calibration(self.intercept[replicate], self.slope[replicate], self.informative[replicate])

    def log_ratio(self, scores: FloatArray) -> FloatArray:
        """Log likelihood ratios (…, m, k − 1) of scores (…, m, k − 1)."""
        ratio = scores @ np.swapaxes(self.slope, -1, -2) + self.intercept[..., None, :]
        return np.clip(ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)

    def likelihoods(self, scores: FloatArray) -> FloatArray:
        """Likelihoods (…, m, k) up to a factor an item, the largest of each item being 1."""
        ratio = self.log_ratio(scores)
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
    return Calibration(intercept, slope, _informative(scores, labels, groups, v))


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


def _informative(
    scores: FloatArray, labels: NDArray[np.intp], groups: int, v: FloatArray
) -> NDArray[np.bool_]:
    last = -scores.sum(axis=2, keepdims=True)
    full = np.concatenate([scores, last], axis=2)
    mean = np.stack(
        [
            np.einsum("bn,bnq->bq", v[:, labels == g], full[:, labels == g])
            / v[:, labels == g].sum(axis=1)[:, None]
            for g in range(groups)
        ],
        axis=1,
    )  # (B, group of the items, score of the group)
    own = np.einsum("bgg->bg", mean)
    verdict = np.ones(len(scores), dtype=bool)
    for g, h in combinations(range(groups), 2):
        verdict &= own[:, g] - mean[:, g, h] > mean[:, h, g] - own[:, h]
    return verdict
