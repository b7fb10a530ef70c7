"""Self-training (Algorithm 3, SS-ST): label the most certain items first and add them to the control set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet, checked_vectors
from divscore.control.similarity import FloatArray, unit_rows, usable_rows
from divscore.errors import InputError, VectorError

Rows = NDArray[np.intp]

SHRINK = 4
SMALLEST_TIER = 512


@dataclass(frozen=True)
class SelfTraining:
    """Result of Algorithm 3: numbers about the whole collection only.

    `counts` are the items counted for each of the two groups, `rounds` the passes of the while loop and
    `evaluations` the item scores that were computed (the plain algorithm computes all of them in every round).
    """

    disparity: float
    counts: tuple[int, int]
    rounds: int
    evaluations: int


@one_thread
def self_training(vectors: Any, control: ControlSet, *, k: int = 5) -> SelfTraining:
    """Estimate the disparity of a collection by self-training (Algorithm 3, SS-ST).

    Each round scores every remaining item, s(x) = sim(x, T_0) − sim(x, T_1), takes the k largest |s(x)|, counts
    them by the sign of s and adds them to T under this *predicted* group; the result is (n_0 − n_1) / |S|
    with the original |S|. T starts as the representatives of `control`. Ties go to the lowest index; an item
    with s(x) = 0 counts for neither group and joins neither.

    For cosine s(x) = x̂·(M_0 − M_1) with M_i the group means, and |x̂·(D − D')| ≤ ‖D − D'‖ bounds how far
    any score can have moved, so few items need a new one; the picks are those of the plain algorithm.

    >>> control = ControlSet([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> result = self_training([[1.0, 0.2], [0.9, 0.1], [0.8, 0.3], [0.1, 0.9]], control)
    >>> result.disparity, result.counts
    (0.5, (3, 1))
    """
    ranking = _ranking(vectors, control, k)
    total = ranking.left
    counts = np.zeros(2, dtype=np.int64)
    rounds = 0
    for _, scores in _rounds(ranking, k):
        counts += (int((scores > 0).sum()), int((scores < 0).sum()))
        # Once the best score is 0 all are, nothing joins T and the remaining rounds would change nothing.
        rounds += 1 if scores[0] else 1 + math.ceil(ranking.left / k)
    disparity = float(counts[0] - counts[1]) / total
    return SelfTraining(disparity, (int(counts[0]), int(counts[1])), rounds, ranking.evaluations)


class _Ranking(Protocol):
    """Items not yet labelled, ordered by how certain their group is."""

    evaluations: int

    @property
    def left(self) -> int:
        """Number of items not yet labelled."""

    def top(self, k: int) -> tuple[Rows, FloatArray]:
        """Rows of the k largest |s(x)|, largest first, with their s(x)."""

    def join(self, rows: Rows, scores: FloatArray) -> None:
        """Move items from the collection into the group that their score predicts."""


def _rounds(ranking: _Ranking, k: int) -> Iterator[tuple[Rows, FloatArray]]:
    """Yield what each round of Algorithm 3 picks, until no item or no non-zero score is left."""
    while ranking.left:
        rows, scores = ranking.top(min(k, ranking.left))
        ranking.join(rows, scores)
        yield rows, scores
        if not scores[0]:
            return


def _ranking(vectors: Any, control: ControlSet, k: int) -> _Ranking:
    if len(control.groups) != 2:
        raise InputError(f"self-training is for two groups; this control set has {control.groups}")
    if k < 1:
        raise InputError(f"k = {k}: self-training labels at least one item a round")
    matrix = checked_vectors(vectors, control)
    if not len(matrix):
        raise InputError("the collection is empty: there is nothing to estimate")
    bad = np.flatnonzero(~usable_rows(matrix))
    if bad.size:
        raise VectorError(f"row {bad[0]} is zero or not finite ({bad.size} such rows); remove these items")
    return _CosineRanking(matrix, control) if control.similarity.collapses else _PairRanking(matrix, control)


def _largest(sizes: FloatArray, k: int) -> Rows:
    """Positions of the k largest, largest first, ties to the lowest position."""
    least = np.partition(sizes, len(sizes) - k)[len(sizes) - k]
    reached = np.flatnonzero(sizes >= least)
    return reached[np.argsort(-sizes[reached], kind="stable")][:k]


@dataclass(frozen=True)
class _Tier:
    """The best items of the next wider tier, by their scores along a past `direction`."""

    rows: NDArray[np.float32]
    index: Rows
    direction: FloatArray
    ceiling: float

    def bound(self, direction: FloatArray) -> float:
        """The largest possible |s| of an item outside this tier.

        With D' = c D + r, r orthogonal to D: |x̂·D'| ≤ |c| |x̂·D| + ‖r‖. Growth along D costs nothing.
        """
        squared = float(self.direction @ self.direction)
        along = float(direction @ self.direction) / squared if squared else 0.0
        rest = direction - along * self.direction
        return abs(along) * self.ceiling + math.sqrt(float(rest @ rest))


class _CosineRanking:
    """Nested tiers of candidates: a round reads the smallest tier unless a bound requires a wider one.

    Tiers are float32 copies; items within the rounding error of the k-th best are scored again in float64, so the
    picks are exact.
    """

    def __init__(self, matrix: NDArray[Any], control: ControlSet) -> None:
        self.units = unit_rows(matrix)
        members = [control.units[control.rows(group, representatives=True)] for group in (0, 1)]
        self.sums = [rows.sum(axis=0) for rows in members]
        self.counts = [len(rows) for rows in members]
        self.alive = np.ones(len(matrix), dtype=bool)
        self.left = len(matrix)
        self.evaluations = 0
        everything = np.arange(len(matrix), dtype=np.intp)
        self.tiers = [_Tier(self.units.astype(np.float32), everything, np.zeros(matrix.shape[1]), 0.0)]

    def top(self, k: int) -> tuple[Rows, FloatArray]:
        direction = self.sums[0] / self.counts[0] - self.sums[1] / self.counts[1]
        # Twice the worst rounding error of a float32 dot product of this length, in any order of summation.
        norm = math.sqrt(float(direction @ direction))
        slack = (len(direction) + 4) * 2.0**-23 * norm + 1e-30
        level = len(self.tiers) - 1
        while True:
            sizes = self._sizes(self.tiers[level], direction)
            least = float(np.partition(sizes, -k)[-k]) if len(sizes) >= k else -1.0
            if level == 0 or least > 2 * slack + max(t.bound(direction) for t in self.tiers[1 : level + 1]):
                break
            level -= 1
        near = np.sort(self.tiers[level].index[sizes >= max(least - 2 * slack, 0.0)])
        if level == 0 or level < len(self.tiers) - 1:
            self._rebuild(level, sizes, direction, slack)
        scores = np.vecdot(self.units[near], direction)
        self.evaluations += len(near)
        best = _largest(np.abs(scores), k)
        return near[best], scores[best]

    def join(self, rows: Rows, scores: FloatArray) -> None:
        for group, chosen in enumerate((rows[scores > 0], rows[scores < 0])):
            if len(chosen):
                self.sums[group] = self.sums[group] + self.units[chosen].sum(axis=0)
                self.counts[group] += len(chosen)
        self.alive[rows] = False
        self.left -= len(rows)

    def _sizes(self, tier: _Tier, direction: FloatArray) -> NDArray[np.float32]:
        """|s| of the tier's items in float32, −1 for those already labelled."""
        self.evaluations += len(tier.index)
        sizes = np.abs(tier.rows @ direction.astype(np.float32))
        sizes[~self.alive[tier.index]] = -1.0
        return sizes

    def _rebuild(self, level: int, sizes: NDArray[np.float32], direction: FloatArray, slack: float) -> None:
        """Rebuild the tiers inside `level` from its new scores."""
        tier = self.tiers[level]
        if level == 0 and self.left < 0.75 * len(tier.index):
            kept = sizes >= 0
            tier = _Tier(tier.rows[kept], tier.index[kept], tier.direction, tier.ceiling)
            sizes = sizes[kept]
        self.tiers[level:] = [tier]
        while len(tier.index) > SHRINK * SMALLEST_TIER:
            order = np.argpartition(sizes, -(len(sizes) // SHRINK) - 1)
            inside, next_best = order[-(len(sizes) // SHRINK) :], order[-(len(sizes) // SHRINK) - 1]
            ceiling = float(sizes[next_best]) + slack
            tier, sizes = _Tier(tier.rows[inside], tier.index[inside], direction, ceiling), sizes[inside]
            self.tiers.append(tier)


class _PairRanking:
    """Any similarity: a sum of similarities for every item and group, updated when items join."""

    def __init__(self, matrix: NDArray[Any], control: ControlSet) -> None:
        self.vectors = matrix.astype(np.float64)
        self.similarity = control.similarity
        self.index = np.arange(len(matrix), dtype=np.intp)
        self.totals = np.zeros((len(matrix), 2))
        self.counts = np.zeros(2)
        self.evaluations = 0
        for group in (0, 1):
            self._add(group, control.vectors[control.rows(group, representatives=True)].astype(np.float64))

    @property
    def left(self) -> int:
        """Number of items not yet labelled."""
        return len(self.index)

    def top(self, k: int) -> tuple[Rows, FloatArray]:
        means = self.totals / self.counts
        scores = means[:, 0] - means[:, 1]
        self.evaluations += len(scores)
        best = _largest(np.abs(scores), k)
        return self.index[best], scores[best]

    def join(self, rows: Rows, scores: FloatArray) -> None:
        stay = ~np.isin(self.index, rows)
        self.index, self.totals = self.index[stay], self.totals[stay]
        for group, chosen in enumerate((rows[scores > 0], rows[scores < 0])):
            if len(chosen):
                self._add(group, self.vectors[chosen])

    def _add(self, group: int, joining: FloatArray) -> None:
        for start in range(0, len(self.index), 4096):
            part = slice(start, start + 4096)
            pairs = self.similarity.pairs(self.vectors[self.index[part]], joining)
            self.totals[part, group] += pairs.sum(axis=1)
        self.counts[group] += len(joining)
