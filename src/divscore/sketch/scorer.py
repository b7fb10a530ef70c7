"""Scorer: what a control set makes of a vector, fitted once and shared by every sketch.

It turns a vector into *cells*: coarse, fixed steps on its score, the only form in which scores of items are
ever kept. Two kinds: fine cells of the fitted directions for the estimate, and coarse cells of the directions
refitted under Bayesian-bootstrap weights for the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows
from divscore.sketch.calibration import Calibration, fit_calibration
from divscore.sketch.direction import Directions, fit_directions, refit_directions
from divscore.sketch.grid import Grid, coarse_half, fine_half

__all__ = ["REPLICATES", "Scorer", "keep_scorer", "scorer_for"]

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
