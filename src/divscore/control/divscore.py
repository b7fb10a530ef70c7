"""DivScore (Algorithm 1): the paper's disparity score from mean similarities with a control set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, as_matrix, unit_rows
from divscore.errors import MismatchError, VectorError

__all__ = [
    "DivScore",
    "Reference",
    "divscore",
    "item_similarity",
    "mean_similarity",
    "similarity_sums",
    "within_between",
]

BLOCK = 1024


@dataclass(frozen=True)
class Reference:
    """What Algorithm 1 (lines 1–3) knows of a control set, one entry a group.

    `u` is the mean similarity within a group's representatives, self-pairs left out; `lower` their mean
    similarity with all representatives of other groups, for two groups the paper's l in both places;
    `between` holds l of every two groups, with u on its diagonal; `gap_error` is the standard error of
    u_i − l_i by the delete-one jackknife, infinite where a group has only two representatives.
    """

    u: tuple[float, ...]
    lower: tuple[float, ...]
    between: tuple[tuple[float, ...], ...]
    gap_error: tuple[float, ...]

    @property
    def gap(self) -> tuple[float, ...]:
        """u_i − l_i of every group: the denominators of Algorithm 1."""
        return tuple(u - l for u, l in zip(self.u, self.lower, strict=True))

    @property
    def noisy(self) -> tuple[bool, ...]:
        """Where u_i − l_i is below twice its standard error: the score is then noise."""
        return tuple(gap < 2 * error or gap <= 0 for gap, error in zip(self.gap, self.gap_error, strict=True))


@dataclass(frozen=True)
class DivScore:
    """The score of Algorithm 1, unclipped, with the numbers it was made of (one entry a group)."""

    score: float
    s: tuple[float, ...]
    similarity: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    noisy: tuple[bool, ...]


def within_between(control: ControlSet) -> Reference:
    r"""Similarity within and between the groups of representatives (Algorithm 1, lines 1–3).

    .. math:: u_i = \frac{1}{n_i (n_i - 1)} \sum_{x \ne y \in T_i} sim(x, y), \quad
              l = \frac{1}{n_0 n_1} \sum_{x \in T_0, y \in T_1} sim(x, y)

    With more than two groups l_i averages over the representatives of all other groups. The similarity is
    taken to be symmetric. For cosine the cost is O(m d), because sums of similarities are dot products.

    >>> control = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> reference = within_between(control)
    >>> reference.u, reference.lower, reference.between[0][1]
    ((2.0, 2.0), (1.0, 1.0), 1.0)
    """
    rows = np.flatnonzero(control.representative)
    labels = control.labels[rows]
    sums = similarity_sums(control, rows)
    groups = range(len(control.groups))
    between = [[_mean_pair(sums, labels, i, j) for j in groups] for i in groups]
    lower = [_mean_others(between[i], labels, i) for i in groups]
    return Reference(
        u=tuple(between[i][i] for i in groups),
        lower=tuple(lower),
        between=tuple(tuple(row) for row in between),
        gap_error=tuple(_gap_error(sums, labels, i) for i in groups),
    )


def divscore(mean_similarity: FloatArray, reference: Reference) -> DivScore:
    r"""Score a collection from its mean similarity with each group of representatives (Algorithm 1).

    .. math:: s_i = \frac{sim(S, T_i) - l_i}{u_i - l_i}, \quad score = s_0 - s_1

    With more than two groups the score is max s_i − min s_i (the paper's footnote on non-binary attributes).
    Assumes a domain-relevant control set (Assumption 3.1). The score is not clipped to [−1, 1]; it is NaN
    where u_i = l_i, since nothing then tells the groups apart.

    >>> control = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> collection = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> float(divscore(item_similarity(collection, control).mean(axis=0), within_between(control)).score)
    0.5
    """
    similarity = tuple(float(value) for value in mean_similarity)
    if len(similarity) != len(reference.u):
        raise MismatchError(f"{len(similarity)} mean similarities for {len(reference.u)} groups")
    s = tuple(
        (value - l) / gap if gap else math.nan
        for value, l, gap in zip(similarity, reference.lower, reference.gap, strict=True)
    )
    if any(math.isnan(value) for value in s):
        score = math.nan
    else:
        score = s[0] - s[1] if len(s) == 2 else max(s) - min(s)
    return DivScore(score, s, similarity, reference.lower, reference.u, reference.noisy)


def mean_similarity(mean_unit: FloatArray, control: ControlSet) -> FloatArray:
    """Mean similarity sim(S, T_i) with each group, from a collection's mean state (Algorithm 1, lines 4, 6).

    Cosine: `mean_unit` is the mean unit vector of S, and sim(S, T_i) = 1 + mean(Ŝ)·mean(T̂_i).
    Any other similarity: the mean similarity of S with each representative, or with each labelled example,
    in the order of the pool.

    >>> control = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> mean_similarity(np.array([0.75, 0.25]), control)
    array([1.75, 1.25])
    """
    state = np.asarray(mean_unit, dtype=np.float64)
    marked = np.flatnonzero(control.representative)
    if control.similarity.collapses:
        if state.shape != (control.dimension,):
            raise VectorError(f"a mean of {state.shape} numbers for {control.dimension} dimensions")
        similarity: FloatArray = 1.0 + np.vecdot(_group_means(control), state)
        return similarity
    if state.shape == (len(control),):
        state = state[marked]
    elif state.shape != marked.shape:
        raise VectorError(f"{state.shape} mean similarities for {len(marked)} representatives")
    labels = control.labels[marked]
    return np.array([state[labels == g].mean() for g in range(len(control.groups))])


def item_similarity(vectors: Any, control: ControlSet) -> FloatArray:
    """Similarity sim(x, T_i) of every vector with every group of representatives, one row a vector."""
    matrix = as_matrix(vectors)
    if matrix.shape[1] != control.dimension:
        raise VectorError(f"{matrix.shape[1]} dimensions; the control set has {control.dimension}")
    if control.similarity.collapses:
        return 1.0 + unit_rows(matrix) @ _group_means(control).T
    marked = np.flatnonzero(control.representative)
    share = np.zeros((len(marked), len(control.groups)))
    share[np.arange(len(marked)), control.labels[marked]] = 1.0
    share /= share.sum(axis=0)
    targets = control.vectors[marked].astype(np.float64)
    blocks = (control.similarity.pairs(block, targets) @ share for _, block in _blocks(matrix))
    return np.concatenate([np.empty((0, len(control.groups))), *blocks])


def similarity_sums(control: ControlSet, rows: NDArray[np.intp]) -> FloatArray:
    """Sum over y of sim(x, y), y ≠ x, for each example x of `rows` and each group of y among `rows`."""
    labels = control.labels[rows]
    sums = np.empty((len(rows), len(control.groups)))
    if control.similarity.collapses:
        units = control.units[rows]
        for group in range(sums.shape[1]):
            own = labels == group
            sums[:, group] = own.sum() + np.vecdot(units, units[own].sum(axis=0))
        sums[np.arange(len(rows)), labels] -= 1.0 + np.vecdot(units, units)
        return sums
    vectors = control.vectors[rows].astype(np.float64)
    for start, block in _blocks(vectors):
        pairs = control.similarity.pairs(block, vectors)
        here = np.arange(len(block))
        pairs[here, start + here] = 0.0
        for group in range(sums.shape[1]):
            sums[start : start + len(block), group] = pairs[:, labels == group].sum(axis=1)
    return sums


def _blocks(matrix: NDArray[Any]) -> Iterator[tuple[int, FloatArray]]:
    for start in range(0, len(matrix), BLOCK):
        yield start, matrix[start : start + BLOCK].astype(np.float64)


def _group_means(control: ControlSet) -> FloatArray:
    groups = range(len(control.groups))
    return np.stack([control.units[control.rows(g, representatives=True)].mean(axis=0) for g in groups])


def _mean_pair(sums: FloatArray, labels: NDArray[np.intp], i: int, j: int) -> float:
    # From the group that comes first in the pool, so that the rounding does not depend on the groups' order.
    first, second = sorted((i, j), key=lambda group: int((labels == group).argmax()))
    own = labels == first
    partners = int((labels == second).sum()) - (i == j)
    return float(sums[own, second].sum()) / (int(own.sum()) * partners)


def _mean_others(between: list[float], labels: NDArray[np.intp], i: int) -> float:
    others = [j for j in range(len(between)) if j != i]
    if len(others) == 1:
        return between[others[0]]
    counts = [int((labels == j).sum()) for j in others]
    return sum(between[j] * n for j, n in zip(others, counts, strict=True)) / sum(counts)


def _gap_error(sums: FloatArray, labels: NDArray[np.intp], i: int) -> float:
    own = labels == i
    n, m = int(own.sum()), int((~own).sum())
    if n < 3:
        return math.inf
    same, cross, back = sums[own, i], np.delete(sums[own], i, axis=1).sum(axis=1), sums[~own, i]
    without_own = (same.sum() - 2 * same) / ((n - 1) * (n - 2)) - (cross.sum() - cross) / ((n - 1) * m)
    without_other = -(back.sum() - back) / (n * (m - 1))
    return math.sqrt((n - 1) * float(without_own.var()) + (m - 1) * float(without_other.var()))
