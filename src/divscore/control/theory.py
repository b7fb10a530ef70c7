"""What the paper measures and proves of a control set: Algorithm 1, γ, γ^(T), Lemma 3.2, Theorem 3.3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet, checked_vectors
from divscore.control.similarity import FloatArray, as_matrix, unit_rows
from divscore.errors import InputError, MismatchError, VectorError

BLOCK = 1024  # rows of a matrix of pairs that are in memory at a time


@dataclass(frozen=True)
class DivScore:
    """The score of Algorithm 1, not clipped, and s_i of every group."""

    score: float
    s: tuple[float, ...]


@dataclass(frozen=True)
class Reference:
    r"""What Algorithm 1 (lines 1–3) computes from the representatives, one entry a group.

    .. math:: u_i = \frac{1}{n_i (n_i - 1)} \sum_{x \ne y \in T_i} sim(x, y), \quad
              l = \frac{1}{n_0 n_1} \sum_{x \in T_0, y \in T_1} sim(x, y)

    `u` is the mean similarity within a group, without self-pairs; `lower` the mean similarity with all representatives
    of other groups, for two groups the paper's l twice; `gap_error` the standard error of u_i − l_i by the delete-one
    jackknife, infinite if a group has only two representatives.
    """

    u: tuple[float, ...]
    lower: tuple[float, ...]
    gap_error: tuple[float, ...]

    @classmethod
    def of(cls, control: ControlSet) -> Reference:
        """Compute u, l and their errors; the similarity is assumed symmetric. O(m d) for cosine.

        >>> control = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
        >>> reference = Reference.of(control)
        >>> reference.u, reference.lower
        ((2.0, 2.0), (1.0, 1.0))
        """
        rows = np.flatnonzero(control.representative)
        labels = control.labels[rows]
        sums = similarity_sums(control, rows)
        sizes = np.bincount(labels)
        groups = range(len(control.groups))
        # The same sum from either side differs in the last digit. Starting from the group that comes first in the
        # pool makes the result independent of the order of the groups.
        first = [int((labels == group).argmax()) for group in groups]
        pairs = np.empty((len(groups), len(groups)))
        for i in groups:
            for j in groups:
                one, other = (i, j) if first[i] <= first[j] else (j, i)
                pairs[i, j] = sums[labels == one, other].sum() / (sizes[one] * (sizes[other] - (i == j)))
        lower = [
            float(pairs[i, 1 - i]) if len(groups) == 2 else _mean_others(pairs[i], sizes, i) for i in groups
        ]
        errors = []
        for i in groups:
            own = labels == i
            n, m = int(own.sum()), int((~own).sum())
            if n < 3:
                errors.append(math.inf)
                continue
            # u_i − l_i without each own example, then without each other one. In closed form: leaving out x takes its
            # own pairs out of the sums, within a group twice, because they count in both orders.
            same, cross, back = sums[own, i], np.delete(sums[own], i, axis=1).sum(axis=1), sums[~own, i]
            without_own = (same.sum() - 2 * same) / ((n - 1) * (n - 2)) - (cross.sum() - cross) / (
                (n - 1) * m
            )
            without_other = -(back.sum() - back) / (n * (m - 1))
            variance = (n - 1) * float(without_own.var()) + (m - 1) * float(without_other.var())
            errors.append(math.sqrt(variance))
        return cls(tuple(float(pairs[i, i]) for i in groups), tuple(lower), tuple(errors))

    @property
    def gap(self) -> tuple[float, ...]:
        """u_i − l_i of every group: the denominators of Algorithm 1."""
        return tuple(u - l for u, l in zip(self.u, self.lower, strict=True))

    @property
    def gamma(self) -> float:
        """γ^(T) measured on the representatives themselves: the mean of u_i − l_i.

        Larger than `gamma_control` for an adaptive set, because its members were chosen for a large γ_i^(x).
        """
        return math.fsum(self.gap) / len(self.gap)

    @property
    def noisy(self) -> tuple[bool, ...]:
        """Whether u_i − l_i is below twice its standard error; the score is then noise."""
        return tuple(gap < 2 * error or gap <= 0 for gap, error in zip(self.gap, self.gap_error, strict=True))

    def score(self, similarity: FloatArray) -> DivScore:
        r"""Score a collection from its mean similarity sim(S, T_i) with each group (Algorithm 1).

        .. math:: s_i = \frac{sim(S, T_i) - l_i}{u_i - l_i}, \quad score = s_0 - s_1

        With more than two groups the score is max s_i − min s_i (the paper's footnote on non-binary attributes).
        Assumes a domain-relevant control set (Assumption 3.1). The score is not clipped to [−1, 1]; it is NaN if
        u_i = l_i, because the groups are then indistinguishable.

        >>> control = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
        >>> collection = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> Reference.of(control).score(item_similarity(collection, control).mean(axis=0)).score
        0.5
        """
        if len(similarity) != len(self.u):
            raise MismatchError(f"{len(similarity)} mean similarities for {len(self.u)} groups")
        s = tuple(
            (float(value) - l) / gap if gap else math.nan
            for value, l, gap in zip(similarity, self.lower, self.gap, strict=True)
        )
        if any(math.isnan(value) for value in s):
            return DivScore(math.nan, s)
        return DivScore(s[0] - s[1] if len(s) == 2 else max(s) - min(s), s)


def _mean_others(row: FloatArray, sizes: NDArray[np.intp], i: int) -> float:
    return float(np.average(np.delete(row, i), weights=np.delete(sizes, i)))


def mean_similarity(state: FloatArray, control: ControlSet) -> FloatArray:
    """Mean similarity sim(S, T_i) with each group, from a collection's mean (Algorithm 1, lines 4 and 6).

    Cosine: `state` is the mean unit vector of S, and sim(S, T_i) = 1 + mean(Ŝ)·mean(T̂_i). Any other similarity: the
    mean similarity of S with each representative, in the order of the pool.

    >>> control = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> mean_similarity(np.array([0.75, 0.25]), control)
    array([1.75, 1.25])
    """
    expected = control.dimension if control.similarity.collapses else int(control.representative.sum())
    if state.shape != (expected,):
        raise VectorError(f"a mean of shape {state.shape}, expected {(expected,)}")
    if control.similarity.collapses:
        similarity: FloatArray = 1.0 + np.vecdot(_group_means(control), state)
        return similarity
    labels = control.labels[control.representative]
    return np.array([state[labels == g].mean() for g in range(len(control.groups))])


def item_similarity(vectors: Any, control: ControlSet) -> FloatArray:
    """Similarity sim(x, T_i) of every vector with every group of representatives, one row a vector."""
    matrix = checked_vectors(vectors, control, "the vectors")
    if control.similarity.collapses:
        return 1.0 + unit_rows(matrix) @ _group_means(control).T
    marked = np.flatnonzero(control.representative)
    share = np.eye(len(control.groups))[control.labels[marked]]
    share /= share.sum(axis=0)
    targets = control.vectors[marked].astype(np.float64)
    blocks = (control.similarity.pairs(block, targets) @ share for _, block in _blocks(matrix))
    return np.concatenate([np.empty((0, len(control.groups))), *blocks])


def similarity_sums(control: ControlSet, rows: NDArray[np.intp]) -> FloatArray:
    """Sum over y of sim(x, y), y ≠ x, for each example x of `rows` and each group of y among `rows`."""
    labels = control.labels[rows]
    sums = np.empty((len(rows), len(control.groups)))
    if control.similarity.collapses:
        # Σ_y sim(x, y) = n + x̂·Σ ŷ: no matrix of pairs is needed.
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


@dataclass(frozen=True)
class Separability:
    """γ of a labelled pool (Definition 3.1), without and with the pairs of an example with itself."""

    gamma: float
    mu_same: float
    mu_diff: float
    gamma_with_self: float
    mu_same_with_self: float


def separability(control: ControlSet) -> Separability:
    r"""Measure γ = μ_same − μ_diff on the whole labelled pool (Definition 3.1).

    .. math:: \mu_{same} = E[sim(x, y) \mid z_x = z_y], \quad \mu_{diff} = E[sim(x, y) \mid z_x \ne z_y]

    Averages are over *pairs*: all pairs of one group count alike, so a larger group weighs more (the mean of
    the groups' means is another number). The authors' published γ includes the pairs of an example with
    itself: `gamma_with_self`. `gamma` excludes them, as its expectation requires. O(n d) for cosine.

    >>> pool = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> separability(pool)
    Separability(gamma=1.0, mu_same=2.0, mu_diff=1.0, gamma_with_self=1.0, mu_same_with_self=2.0)
    """
    n = len(control)
    sums = similarity_sums(control, np.arange(n))
    within = float(sums[np.arange(n), control.labels].sum())
    itself = 2.0 * n
    if not control.similarity.collapses:
        rows = control.vectors.astype(np.float64)[:, None]
        itself = sum(float(control.similarity.pairs(row, row)[0, 0]) for row in rows)
    counts = np.bincount(control.labels)
    pairs = int((counts * counts).sum())
    mu_diff = (float(sums.sum()) - within) / (n * n - pairs)
    mu_same = within / (pairs - n)
    mu_same_with_self = (within + itself) / pairs
    return Separability(mu_same - mu_diff, mu_same, mu_diff, mu_same_with_self - mu_diff, mu_same_with_self)


def gamma_control(control: ControlSet, vectors: Any = None, groups: Iterable[str] | None = None) -> float:
    r"""γ^(T) of the representatives, measured on examples that are not among them (Section 5).

    .. math:: \gamma^{(T)} = E_i [E_{x \sim p_i} sim(x, T_i) - E_{x \sim p_i} sim(x, T_{1-i})]

    The paper prints p_{1−i} in the second term; the average over i would then be zero for every T, so p_i is
    meant, as in γ_i^(y). `vectors` with the names of their `groups` are a held-out sample; by default the rest of the
    pool is. An adaptive T took the most typical examples out of that rest, so γ^(T) tends to be lower there than on a
    separate sample. With k > 2 groups T_{1−i} is all other representatives. γ^(T) replaces γ in Theorem 3.3.

    >>> pool = ControlSet(np.repeat(np.eye(2), 3, axis=0), ["a"] * 3 + ["b"] * 3, attribute="letter")
    >>> gamma_control(pool.with_representatives([0, 1, 3, 4]))
    1.0
    >>> gamma_control(pool, [[1, 0], [1, 1], [0, 1]], ["a", "a", "b"])
    0.75
    """
    if vectors is None:
        rest = np.flatnonzero(~control.representative)
        vectors, labels = control.vectors[rest], control.labels[rest]
    elif groups is None:
        raise InputError("held-out vectors need the names of their groups")
    else:
        labels = np.array([control.group_of(str(name)) for name in groups], dtype=np.intp)
    matrix = as_matrix(vectors, "the held-out vectors")
    if len(matrix) != len(labels):
        raise InputError(f"{len(matrix)} held-out vectors with {len(labels)} group names")
    k = len(control.groups)
    counts = np.bincount(labels, minlength=k)
    if not counts.all():
        name = control.groups[int(counts.argmin())]
        raise InputError(f"no held-out example of group '{name}'; add some")
    similarity = item_similarity(matrix, control)
    sizes = np.bincount(control.labels[control.representative], minlength=k)
    means = np.stack([similarity[labels == i].mean(axis=0) for i in range(k)])
    return float(np.mean([means[i, i] - _mean_others(means[i], sizes, i) for i in range(k)]))


@dataclass(frozen=True)
class TheoremBound:
    """Theorem 3.3 for given sizes: |score − d(S)| ≤ `additive_error` with at least this `probability`."""

    delta: float
    additive_error: float
    probability: float


def theorem(
    size_control: int, size_collection: int, mu_same: float, mu_diff: float, gamma: float | None = None
) -> TheoremBound:
    r"""Error bound of Theorem 3.3 for d̂(S) / (μ_same − μ_diff) as estimate of d(S).

    .. math:: \delta = \sqrt{\frac{6 \log(20 |S|)}{|T| \min(\mu_{diff}, \gamma)}}, \quad
              error = \delta \frac{\mu_{same} + \mu_{diff}}{\mu_{same} - \mu_{diff}}

    with probability at least 0.9 − 1/(200 |S|). Assumes a control set drawn at random, half of it from each
    group, from the collection's own conditional distributions (Assumption 3.1). `gamma` defaults to
    μ_same − μ_diff; give γ^(T) for an adaptive set. A worst-case bound, union over all items: observed errors
    are far smaller. Infinite if γ ≤ 0.

    >>> bound = theorem(100, 500, mu_same=1.0465, mu_diff=0.9623)  # PPB-2017, skin tone
    >>> round(bound.delta, 2), round(bound.additive_error, 1), round(bound.probability, 5)
    (2.56, 61.1, 0.89999)
    """
    _check_positive(size_control=size_control, size_collection=size_collection, mu_diff=mu_diff)
    gap = mu_same - mu_diff
    least = min(mu_diff, gap if gamma is None else gamma)
    probability = 0.9 - 1 / (200 * size_collection)
    if gap <= 0 or least <= 0:
        return TheoremBound(math.inf, math.inf, probability)
    delta = math.sqrt(6 * math.log(20 * size_collection) / (size_control * least))
    return TheoremBound(delta, delta * (mu_same + mu_diff) / gap, probability)


def control_size(
    additive_error: float, size_collection: int, mu_same: float, mu_diff: float, gamma: float | None = None
) -> int:
    r"""Size of control set for which Theorem 3.3 bounds the error by `additive_error`: O(log |S|).

    .. math:: |T| = \frac{6 \log(20 |S|)}{\min(\mu_{diff}, \gamma)}
              \left( \frac{\mu_{same} + \mu_{diff}}{(\mu_{same} - \mu_{diff}) \, error} \right)^2

    rounded up to an even number. As worst-case as the theorem: far fewer examples suffice in practice.

    >>> size = control_size(0.1, 500, mu_same=1.18, mu_diff=0.83)
    >>> size, theorem(size, 500, 1.18, 0.83).additive_error <= 0.1
    (520734, True)
    """
    _check_positive(additive_error=additive_error)
    one = theorem(1, size_collection, mu_same, mu_diff, gamma).additive_error
    if math.isinf(one):
        raise InputError("no control set is large enough: γ must be positive (μ_same > μ_diff)")
    return 2 * math.ceil((one / additive_error) ** 2 / 2)


def lemma_probability(delta: float, mu_diff: float, gamma: float, size: int) -> float:
    r"""Probability of Lemma 3.2 for one item and a random control set of `size`, half of it from each group.

    sim(x, T_i) − sim(x, T_{1−i}) lies in μ_same − μ_diff ± δ (μ_same + μ_diff) with probability at least

    .. math:: 1 - 2 e^{-\delta^2 \mu_{diff} |T| / 6} (1 + e^{-\delta^2 \gamma |T| / 6}),

    cut at 0, where the lemma says nothing.

    >>> round(lemma_probability(0.5, mu_diff=0.96, gamma=0.084, size=200), 5)
    0.999
    """
    _check_positive(delta=delta, mu_diff=mu_diff, size=size)
    rate = delta * delta * size / 6
    return max(0.0, 1 - 2 * math.exp(-rate * mu_diff) * (1 + math.exp(-rate * max(gamma, 0.0))))


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"{name} = {value}: it must be positive")
