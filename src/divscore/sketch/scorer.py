"""Scorer: what a control set makes of a vector, fitted once and shared by every sketch.

1. *Directions* along which the groups differ: balanced ridge regression with leave-one-out scores, on the features
   ``φ(x) = (x̂, 1)``. Their inner product ``1 + x̂·ŷ`` is the paper's own similarity (Eq. 2). With k groups there are
   k − 1 targets: +1 for an item's own group and −1/(k − 1) for the others; the k-th score is minus the sum of these.
2. *Calibration* from a score to likelihood ratios: balanced multinomial logistic regression on leave-one-out scores.
3. *Grid*: fixed steps on a score, the only form in which a sketch counts scores.
4. *Replicates*: directions and calibrations fitted again under Bayesian-bootstrap weights. They take most of the time,
   and only an interval needs them, so they are fitted when the first audit asks for them. With more than `FEW` labelled
   examples an inverse for each would take minutes: `refit_from` then solves all of them together, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations_with_replacement
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
FEW = 400  # labelled examples up to which every refit is solved on its own


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
        if n <= FEW:
            directions, loo = refit_directions(
                self.control.units, self.labels, self.groups, weights, fit.penalty
            )
        else:
            directions, loo = refit_from(fit, self.control.units, self.labels, self.groups, weights)
        calibrations = self.recalibrated(loo, weights)
        reach = 1.5 * np.concatenate([np.abs(each).max(axis=1) for each in (fit.loo[None], loo)])
        return Replicates(
            np.concatenate([fit.weights[None], directions]),
            Calibration.stacked([self.calibration[None], calibrations]),
            Grid(reach, COARSE),
        )

    def recalibrated(self, scores: FloatArray, weights: FloatArray) -> Calibration:
        """Calibrations of other scores (B, n, k − 1) of the labelled items, under other weights (B, n)."""
        near = self.calibration if len(self.labels) > FEW else None
        return fit_calibration(scores, self.labels, self.groups, weights, near)

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
    calibration = Calibration(np.zeros(1), np.zeros((1, 1)), np.zeros((2, 2)))
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


def decomposed(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Singular value decomposition ``U S Rᵀ``; of many rows from the squares of the matrix, several times as fast.

    Squares lose singular values below 1e-8 of the largest. Under the penalties they would count for nothing.
    """
    n, p = matrix.shape
    if n <= FEW:
        return np.linalg.svd(matrix, full_matrices=False)
    power, vectors = np.linalg.eigh(matrix.T @ matrix if p < n else matrix @ matrix.T)
    size = np.sqrt(np.maximum(power, 0.0))
    inverse = np.where(size > 1e-8 * size.max(), 1.0 / np.maximum(size, 1e-300), 0.0)
    if p < n:
        return (matrix @ vectors) * inverse, size, vectors.T
    return vectors, size, (vectors * inverse).T @ matrix


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
    U, S, Rt = decomposed(root * phi)
    projected, squares = U.T @ (root * y), U**2
    best: tuple[float, Directions] | None = None
    for penalty, away in zip(PENALTIES[::-1], AWAY[::-1], strict=True):
        shrink = S**2 / (S**2 + penalty)
        fitted = U @ (shrink[:, None] * projected) / root
        left = (squares @ shrink)[:, None]
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


def inverse_root(matrix: FloatArray) -> FloatArray:
    """``L⁻¹`` of a positive definite matrix ``L Lᵀ``: its inverse is ``L⁻ᵀ L⁻¹``, at a quarter of the time of `inv`."""
    from scipy.linalg import lapack

    with one_thread:  # of scipy's BLAS too, which may be loaded only now
        root, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        return np.asarray(lapack.dtrtri(root, lower=1, overwrite_c=1)[0])


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
            half = inverse_root(kernel + np.diag(penalty / v))
            alpha = half.T @ (half @ y)
            directions.append(alpha)
            scores.append(y - alpha / np.vecdot(half.T, half.T)[:, None])
        else:
            # (Φᵀ V Φ + λ I) w = Φᵀ V y; leverage from the inverse.
            root = np.sqrt(v)[:, None]
            weighted = root * phi
            half = inverse_root(weighted.T @ weighted + penalty * identity)
            w = half.T @ (half @ (weighted.T @ (root * y)))
            turned = weighted @ half.T
            leverage = np.vecdot(turned, turned)[:, None]
            directions.append(w)
            scores.append(y - (y - phi @ w) / np.maximum(1.0 - leverage, 1e-9))
    return phi.T @ np.stack(directions) if dual else np.stack(directions), np.stack(scores)


STEPS, PRECISE = 60, 3e-3  # of conjugate gradients: at most, and the part of the first error that may remain
ROUNDS, SETTLED = 20, 5e-3  # for the average inverse: at most, and the change that may remain
PAIRS = 3_000  # examples up to which leave-one-out residuals depend on the weights of all others


def refit_from(
    fit: Directions, units: FloatArray, labels: NDArray[np.intp], groups: int, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Fit again under other item weights (B, n), starting from `fit`: nearly what `refit_directions` returns.

    Replicate b solves ``(Φᵀ V_b Φ + λ I) w = Φᵀ V_b y``. Let ``D = Φᵀ E Φ + λ I = L Lᵀ`` be an average of these
    matrices and ``X = Φ L⁻ᵀ``. The step from the fit (weights V, residuals r) to the refit is ``L⁻ᵀ z`` with
    ``(I + Xᵀ (V_b − E) X) z = Xᵀ (V_b − V) r``: a few conjugate gradients, as products for many replicates at once.

    E gives D the average inverse. An item i changes an inverse A⁻¹ that lacks it by the factor ``1 / (1 + v_i g_i)``
    along φ_i, with ``g_i = φ_iᵀ A⁻¹ φ_i``. If s_i is the average factor, ``E_i = (1 / s_i − 1) / g_i`` and
    ``g_i = |X_i|² / s_i``, which two or three rounds solve. Leave-one-out residuals are residuals times ``1 + v_bi
    g_bi``. To first order ``g_bi = g_i − Σ_j τ_bj (X_i·X_j)² / s_i²``, ``τ = (v − E) / s (1 + v g)``. With more than
    `PAIRS` examples the sum changes residuals by less than 1 %, and it would take long.
    """
    phi, y, basis = features(units), targets(labels, groups), None
    if len(phi) < phi.shape[1]:
        U, S, basis = decomposed(phi)
        phi = U * S
    residual = y - phi @ (fit.weights if basis is None else basis @ fit.weights)
    own, v = (balanced_weights(labels, groups, each) for each in (np.ones(len(labels)), weights))
    # The first g is that of the fit itself, from its leave-one-out residuals.
    ratio = np.linalg.norm(y - fit.loo, axis=1) / np.maximum(np.linalg.norm(residual, axis=1), 1e-300)
    g, change = np.clip(ratio - 1.0, 1e-12, 1e6) / own, 1.0
    for number in range(ROUNDS):
        s = (1.0 / (1.0 + v * g)).mean(axis=0)
        average = (1.0 / s - 1.0) / g
        root = np.sqrt(average)[:, None] * phi
        inverse = inverse_root(root.T @ root + fit.penalty * np.eye(phi.shape[1]))
        X = phi @ inverse.T
        before, g = g, np.vecdot(X, X) / s
        earlier, change = change, float(np.abs(g - before).sum() / g.sum())
        rate = min(change / earlier, 0.95)
        if number and change * rate < SETTLED:
            g += (g - before) * rate / (1.0 - rate)  # the end of a series that shrinks at this rate
            break
    X, residual = X.astype(np.float32), residual.astype(np.float32)  # precise enough from here on, and faster
    growth = 1.0 + v * g
    if len(y) <= PAIRS:
        squares = (X @ X.T) ** 2
        np.fill_diagonal(squares, 0.0)
        tau = ((v - average) / (s * growth)).astype(np.float32)
        growth -= v * (tau @ squares) / s**2
    q = y.shape[1]
    directions, scores = np.empty((len(v), phi.shape[1], q)), np.empty((len(v), *y.shape))
    at_once = max(1, 1_000_000 // (len(y) * q))
    for first in range(0, len(v), at_once):
        some = slice(first, first + at_once)
        # A column is one direction of one replicate.
        part, error = np.repeat(v[some].T, q, axis=1), np.tile(residual, len(v[some]))
        rest = X.T @ ((part - own[:, None]).astype(np.float32) * error)
        part = (part - average[:, None]).astype(np.float32)
        z, move, size = np.zeros_like(rest), rest, (rest**2).sum(axis=0)
        enough = PRECISE**2 * size
        for _ in range(STEPS):
            along = X @ move
            bend = move + X.T @ (part * along)
            step = size / np.maximum((move * bend).sum(axis=0), 1e-30)
            z += step * move
            error -= step * along
            rest = rest - step * bend
            last, size = size, (rest**2).sum(axis=0)
            if (size <= enough).all():
                break
            move = rest + size / np.maximum(last, 1e-30) * move
        error *= np.repeat(growth[some].T, q, axis=1)
        directions[some] = (inverse.T @ z).reshape(len(z), -1, q).swapaxes(0, 1)
        scores[some] = y - error.reshape(len(y), -1, q).swapaxes(0, 1)
    return fit.weights + (directions if basis is None else basis.T @ directions), scores


# -------------------------------------------------------------------------------------------------- calibration

# Of the mean loss. Ten times as much shrinks the slope enough to bias disparities by 0.06.
SLOPE_PENALTY = 1e-3
LARGEST_LOG_RATIO = 30.0


@dataclass(frozen=True)
class Calibration:
    """Log likelihood ratios against the last group: ``log r_c(s) = a_c + Σ_j b_cj s_j``.

    Arrays may carry a leading axis of replicates. A fit is `informative` where, for every two groups, the
    difference of their scores points the right way; otherwise it says nothing about how these two are divided.
    """

    intercept: FloatArray  # (…, k − 1)
    slope: FloatArray  # (…, k − 1 ratios, k − 1 scores)
    means: FloatArray  # (…, k, k): mean scores, by group of the items and group of the score

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Whether all groups are ordered correctly."""
        return np.asarray(self.ordered(np.eye(self.means.shape[-1])).all(axis=(-1, -2)))

    def ordered(self, member: FloatArray) -> NDArray[np.bool_]:
        """Whether the scores of two sets of groups differ in the right direction, (…, K, K); `member` is (K, k)."""
        mean = (member / member.sum(axis=1, keepdims=True)) @ self.means @ member.T
        own = np.diagonal(mean, axis1=-2, axis2=-1)
        gap = own[..., :, None] - mean  # by how much a set scores higher for itself
        return np.asarray((gap > -np.swapaxes(gap, -1, -2)) | np.eye(len(member), dtype=bool))

    @classmethod
    def stacked(cls, parts: Sequence[Calibration]) -> Calibration:
        """Put replicates one after the other."""
        fields = zip(*((each.intercept, each.slope, each.means) for each in parts), strict=True)
        return cls(*map(np.concatenate, fields))

    def __getitem__(self, replicate: int | None) -> Calibration:
        return Calibration(self.intercept[replicate], self.slope[replicate], self.means[replicate])

    def likelihoods(self, scores: FloatArray) -> FloatArray:
        """Likelihoods (…, m, k) of scores (…, m, k − 1) up to a factor an item, the largest of each item being 1."""
        ratio = scores @ np.swapaxes(self.slope, -1, -2) + self.intercept[..., None, :]
        ratio = np.clip(ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        full = np.concatenate([ratio, np.zeros((*ratio.shape[:-1], 1))], axis=-1)
        return np.asarray(np.exp(full - full.max(axis=-1, keepdims=True)))


def fit_calibration(
    scores: FloatArray,
    labels: NDArray[np.intp],
    groups: int,
    weights: FloatArray,
    near: Calibration | None = None,
) -> Calibration:
    """Fit replicates (B, n, k − 1) of scores at once by Newton's method; groups weigh the same.

    With two groups this is Platt's calibration. The regression is on standardised scores, with a penalty of
    ``SLOPE_PENALTY / 2`` on the squared slopes. It is faster from a calibration that is `near` to most replicates.
    """
    at_once = max(1, 400_000 // (len(labels) * (groups - 1)))
    if len(scores) > at_once:
        parts = (slice(start, start + at_once) for start in range(0, len(scores), at_once))
        return Calibration.stacked(
            [fit_calibration(scores[part], labels, groups, weights[part], near) for part in parts]
        )
    v = balanced_weights(labels, groups, weights) / len(labels)
    centre = np.einsum("bn,bnq->bq", v, scores)
    spread = np.sqrt(np.einsum("bn,bnq->bq", v, (scores - centre[:, None]) ** 2)) + 1e-12
    z = (scores - centre[:, None]) / spread[:, None]
    member = (labels[:, None] == np.arange(groups - 1)).astype(float)
    coefficients, far = np.empty((len(scores), groups - 1, groups)), np.ones(len(scores), dtype=bool)
    if near is not None:
        coefficients[:, :, 0] = near.intercept + centre @ near.slope.T
        coefficients[:, :, 1:] = near.slope * spread[:, None]
        far = ~_settle(coefficients, z, member, v)
    if far.any():
        design = np.concatenate([np.ones((int(far.sum()), len(labels), 1)), z[far]], axis=2)
        coefficients[far] = _newton(design, member, v[far])
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
    return Calibration(intercept, slope, mean)


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


def _settle(theta: FloatArray, z: FloatArray, member: FloatArray, v: FloatArray) -> NDArray[np.bool_]:
    """Improve coefficients (B, k − 1, k) in place by a few steps; returns where they have settled.

    Newton's method, but the second derivatives at the second step serve all later ones.
    """
    B, n, q = z.shape
    design = np.ones((B, q + 1, n))  # items last: every operation is on long rows
    design[:, 1:] = z.swapaxes(1, 2)
    transposed = design.swapaxes(1, 2)
    penalty = np.r_[1e-9, np.full(q, SLOPE_PENALTY)]
    for number in range(8):
        prob = np.exp(np.clip(theta @ design, -300.0, 300.0))
        prob /= 1.0 + prob.sum(axis=1, keepdims=True)
        gradient = ((prob - member.T) * v[:, None]) @ transposed + penalty * theta
        if number < 2:
            hessian = np.empty((B, q, q + 1, q, q + 1))
            for c, e in combinations_with_replacement(range(q), 2):
                curvature = v * prob[:, c] * ((c == e) - prob[:, e])
                block = (curvature[:, None] * design) @ transposed
                hessian[:, c, :, e], hessian[:, e, :, c] = block, block.swapaxes(1, 2)
            inverse = np.linalg.inv(hessian.reshape(B, q * (q + 1), -1) + np.diag(np.tile(penalty, q)))
        step = (inverse @ gradient.reshape(B, -1, 1)).reshape(theta.shape)
        theta -= step
        settled = (np.abs(step) < 1e-4).all(axis=(1, 2))
        if settled.all():
            break
    return np.asarray(settled)
