"""Scorer: what a control set makes of a vector, fitted once and shared by every sketch.

It turns a vector into *cells*: coarse, fixed steps on its score, the only form in which scores of items are
ever kept. Two kinds: fine cells of the fitted directions for the estimate, and coarse cells of the directions
refitted under Bayesian-bootstrap weights for the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows

__all__ = [
    "REPLICATES",
    "Calibration",
    "Directions",
    "Grid",
    "Scorer",
    "balanced_weights",
    "coarse_half",
    "features",
    "fine_half",
    "fit_calibration",
    "fit_directions",
    "keep_scorer",
    "preference",
    "refit_directions",
    "scorer_for",
    "targets",
]


# Directions along which the groups differ: balanced ridge regression with leave-one-out scores.
#
# Everything here works on the features ``φ(x) = (x̂, 1)``, whose inner product ``1 + x̂·ŷ`` is the paper's own
# similarity (Eq. 2), and on k groups through k − 1 targets: +1 for an item's own group and −1/(k − 1) for the
# others. The k-th score is minus the sum of these, so it is not kept.

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
    found = [solve(kernel, y, row, penalty) for row in v]
    coefficients = np.stack([c for c, _ in found])
    directions = phi.T @ coefficients if solve is _dual else coefficients
    return directions, np.stack([loo for _, loo in found])


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


# From a score to a likelihood ratio: balanced multinomial logistic regression on leave-one-out scores.

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


# Grid: fixed steps on scores, the only form in which scores of items are ever kept.


@dataclass(frozen=True)
class Grid:
    """Equal steps on each of several scores, symmetric about zero; the outermost take everything beyond."""

    reach: FloatArray  # (…, q): the score at the outermost step
    half: int  # steps on each side of zero

    @property
    def side(self) -> int:
        """Steps on one score."""
        return 2 * self.half + 1

    @property
    def cells(self) -> int:
        """Cells altogether, over the q scores jointly."""
        return int(self.side ** self.reach.shape[-1])

    def encode(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """Cell numbers (…) of scores (…, q)."""
        steps = scores * (self.half / self.reach).astype(scores.dtype)
        np.rint(steps, out=steps)
        np.minimum(steps, self.half, out=steps)
        np.maximum(steps, -self.half, out=steps)
        cell = steps[..., 0].astype(np.int64)
        cell += self.half
        for axis in range(1, steps.shape[-1]):
            cell = cell * self.side + steps[..., axis].astype(np.int64) + self.half
        return cell

    def decode(self, cells: NDArray[np.int64]) -> FloatArray:
        """Scores (m, q) at the centres of cells; only for a grid of one reach."""
        steps = []
        for _ in range(self.reach.shape[-1]):
            cells, step = np.divmod(cells, self.side)
            steps.append(step)
        return (np.stack(steps[::-1], axis=-1) - self.half) * (self.reach / self.half)


def fine_half(groups: int) -> int:
    """Steps on each side of zero for the estimate."""
    return 1024 if groups == 2 else min(32, int(2.0 ** (44 / (groups - 1)) / 2) - 1)


def coarse_half(groups: int) -> int:
    """Steps on each side of zero for the interval.

    Cell, replicate and level together must fit into 63 bits, also with twelve groups.
    """
    return 64 if groups == 2 else min(12, int((2.0 ** (50 / (groups - 1)) - 1) / 2))


REPLICATES = 200
LEVELS = 25  # leading zeros of 24 bits
AT_ONCE = 256  # rows whose scores by all refitted directions stay in the cache
SMALLEST, LARGEST = np.float32(1e-30), np.float32(1e30)  # squared lengths that single precision can bear


@dataclass(frozen=True, eq=False)
class Scorer:
    """Directions, calibrations and grids fitted on a control set; immutable.

    Groups are held in the order of their first example (`order` maps back to the control set's own), so that
    swapping the names of two groups mirrors every later number exactly.
    """

    control: ControlSet
    seed: int
    order: NDArray[np.intp]
    labels: NDArray[np.intp]
    fit: Directions
    calibration: Calibration
    grid: Grid

    @property
    def groups(self) -> int:
        """How many groups."""
        return len(self.order)

    @property
    def scores(self) -> int:
        """How many scores a vector gets: one fewer than groups."""
        return self.groups - 1

    @property
    def stride(self) -> int:
        """Keys that one collection takes in a scan: levels of cells, where levels matter."""
        return self.grid.cells * (LEVELS if self.groups > 2 else 1)

    @cached_property
    def weights32(self) -> NDArray[np.float32]:
        """Directions in single precision, one a row: cells never need more."""
        return np.ascontiguousarray(self.fit.weights[:-1].T, dtype=np.float32)

    @cached_property
    def intercept32(self) -> NDArray[np.float32]:
        """What the constant feature adds to each score."""
        return np.asarray(self.fit.weights[-1], dtype=np.float32)

    @cached_property
    def replicates(self) -> Replicates:
        """The same fit under `REPLICATES` sets of exponential weights on the labelled items."""
        return _replicates(self)

    @staticmethod
    def level(scores: NDArray[np.float32]) -> NDArray[np.uint8]:
        """A random-looking level that depends on the vector alone; half of all vectors have level 0, a quarter 1, ….

        It decides which vectors enter a bounded sample, so that adding, removing and merging agree on it.
        """
        bits = np.ascontiguousarray(scores).view(np.uint32)
        mixed = bits[:, 0] * np.uint32(0x9E3779B1)
        for column in range(1, bits.shape[1]):
            mixed = (mixed ^ bits[:, column]) * np.uint32(0x9E3779B1)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(0x85EBCA6B)
        # Leading zeros of the upper 24 bits, read off the exponent of the exact float; zero has exponent zero.
        mixed >>= np.uint32(8)
        exponent = mixed.astype(np.float32).view(np.int32) >> 23
        return np.asarray(np.minimum(127 + 23 - exponent, LEVELS - 1), dtype=np.uint8)


@dataclass(frozen=True)
class Replicates:
    """Refitted directions, calibrations and grids; number 0 is the fit itself, on the coarse grid."""

    weights: FloatArray  # (d + 1, R · q)
    calibration: Calibration  # of R
    grid: Grid  # reach (R, q)
    count: int

    @cached_property
    def steps(self) -> FloatArray:
        """Weights (R · q, d + 1) that give a score in steps of its grid, one direction a row."""
        return np.ascontiguousarray((self.weights * (self.grid.half / self.grid.reach).ravel()).T)

    @cached_property
    def steps32(self) -> NDArray[np.float32]:
        """The same in single precision, without the constant, one direction a column."""
        return np.ascontiguousarray(self.steps[:, :-1].T, dtype=np.float32)

    @cached_property
    def grid_likelihoods(self) -> FloatArray:
        """Likelihoods (R, side, 2) at every cell of every direction; two groups only."""
        cells = np.arange(self.grid.side)
        scores = np.stack([self.scores(at, cells) for at in range(self.count)])
        return self.calibration.likelihoods(scores)

    def codes(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        """Steps (m, R · q) of usable vectors (m, d) on the grids, from 0; as double precision would give them.

        Single precision does nearly all of the work. Where it comes too near to the edge between two steps to be
        sure, the step is found anew in double precision. Its error is at most about √d · 2⁻²⁴ · (‖w‖ + half) steps
        if roundings are independent and sums as large as they can be; a third of that was the most found.
        """
        half, dimension = np.float32(self.grid.half), rows.shape[1]
        near = 2.0 * math.sqrt(dimension) * 2.0**-24 * (np.linalg.norm(self.steps[:, :-1], axis=1) + half)
        sure = (0.5 - near).astype(np.float32)
        constant = self.steps[:, -1].astype(np.float32)
        found = np.empty((len(rows), len(self.steps)), dtype=np.uint8)
        score = np.empty((AT_ONCE, len(self.steps)), dtype=np.float32)
        step = np.empty_like(score)
        for start in range(0, len(rows), AT_ONCE):
            block, inverse = _single(rows[start : start + AT_ONCE])
            s, t = score[: len(block)], step[: len(block)]
            np.matmul(block, self.steps32, out=s)
            s *= inverse[:, None]
            s += constant
            np.rint(s, out=t)
            s -= t
            np.abs(s, out=s)
            unsure = np.flatnonzero((s > sure).ravel())
            if unsure.size:
                row, column = np.divmod(unsure, s.shape[1])
                t[row, column] = self._exact(rows[start + row], column)
            np.clip(t, -half, half, out=t)
            t += half
            found[start : start + len(block)] = t
        return found

    def _exact(self, rows: NDArray[Any], column: NDArray[np.intp]) -> FloatArray:
        """Step of each row on one grid, in double precision."""
        weights = self.steps[column]
        return np.asarray(np.rint(np.vecdot(unit_rows(rows), weights[:, :-1]) + weights[:, -1]))

    def scores(self, replicate: int, cells: NDArray[np.int64]) -> FloatArray:
        """Scores (m, q) at the centres of one replicate's cells."""
        return Grid(self.grid.reach[replicate], self.grid.half).decode(cells)


def _single(rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows in single precision and their inverse lengths; those too long or short for it have length one."""
    with np.errstate(over="ignore", invalid="ignore"):
        block = np.ascontiguousarray(rows, dtype=np.float32)
        square = np.vecdot(block, block)
    odd = ~((square > SMALLEST) & (square < LARGEST))
    if odd.any():
        block = block.copy()
        block[odd], square[odd] = unit_rows(rows[odd]), 1.0
    return block, np.reciprocal(np.sqrt(square))


_FITTED: dict[tuple[str, int], Scorer] = {}


def scorer_for(control: ControlSet, seed: int = 0) -> Scorer:
    """Fit a scorer, or return the one fitted before for the same control set."""
    key = control.digest, seed
    fitted = _FITTED.get(key)
    if fitted is None:
        fitted = _fit(control, seed)
        keep_scorer(fitted)
    return fitted


def keep_scorer(scorer: Scorer) -> None:
    """Make `scorer_for` return this one, which was perhaps fitted by another process."""
    key = scorer.control.digest, scorer.seed
    if key not in _FITTED:
        if len(_FITTED) >= 8:
            _FITTED.pop(next(iter(_FITTED)), None)
        _FITTED[key] = scorer


def _fit(control: ControlSet, seed: int) -> Scorer:
    _, first = np.unique(control.labels, return_index=True)
    order = np.argsort(first)
    labels = np.argsort(order)[control.labels].astype(np.intp)
    k = len(order)
    fit = fit_directions(control.units, labels, k)
    calibration = fit_calibration(fit.loo[None], labels, k, np.ones((1, len(labels))))[0]
    grid = Grid(2.0 * np.abs(fit.loo).max(axis=0), fine_half(k))
    return Scorer(control, seed, order, labels, fit, calibration, grid)


def _exponential_weights(rng: np.random.Generator, replicates: int, items: int) -> FloatArray:
    """Weights (replicates, items): each item's go through the exponential distribution evenly, in random order.

    A single odd example often makes the tail of the interval; drawn freely, whether it weighs much in two of a hundred
    replicates or in six would be chance, and so would be the interval.
    """
    order = rng.permuted(np.tile(np.arange(replicates)[:, None], items), axis=0)
    even = (order + rng.random((replicates, items))) / replicates
    return np.maximum(-np.log1p(-even), 1e-6)


def _replicates(scorer: Scorer) -> Replicates:
    control, fit, k = scorer.control, scorer.fit, scorer.groups
    n = len(control)
    rng = np.random.default_rng([scorer.seed, 1])
    weights = _exponential_weights(rng, REPLICATES, n)
    at_once = max(1, 400_000 // (n * (k - 1)))
    directions, loos, calibrations = [fit.weights[None]], [fit.loo[None]], []
    for start in range(0, REPLICATES, at_once):
        some = weights[start : start + at_once]
        found, loo = refit_directions(control.units, scorer.labels, k, some, fit.penalty)
        directions.append(found)
        loos.append(loo)
        calibrations.append(fit_calibration(loo, scorer.labels, k, some))
    point = scorer.calibration
    calibration = Calibration(
        np.concatenate([point.intercept[None], *(c.intercept for c in calibrations)]),
        np.concatenate([point.slope[None], *(c.slope for c in calibrations)]),
        np.concatenate([point.informative[None], *(c.informative for c in calibrations)]),
    )
    stacked = np.concatenate(directions)
    reach = np.stack([1.5 * np.abs(loo).max(axis=0) for block in loos for loo in block])
    flat = np.ascontiguousarray(np.moveaxis(stacked, 0, 1).reshape(stacked.shape[1], -1))
    return Replicates(flat, calibration, Grid(reach, coarse_half(k)), REPLICATES + 1)
