"""What the paper proves and measures of a control set: γ, γ^(T), Lemma 3.2, Theorem 3.3."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.divscore import item_similarity, similarity_sums, within_between
from divscore.control.similarity import as_matrix
from divscore.errors import InputError

__all__ = [
    "Separability",
    "TheoremBound",
    "control_size",
    "gamma_control",
    "gamma_control_own",
    "lemma_probability",
    "separability",
    "theorem",
]


@dataclass(frozen=True)
class Separability:
    """γ of a labelled pool (Definition 3.1), with and without the pairs of an example with itself."""

    gamma: float
    mu_same: float
    mu_diff: float
    gamma_with_self: float
    mu_same_with_self: float


@dataclass(frozen=True)
class TheoremBound:
    """Theorem 3.3 for given sizes: |score − d(S)| ≤ `additive_error` with at least this `probability`."""

    delta: float
    additive_error: float
    probability: float

    @property
    def remark(self) -> str:
        """What to make of the bound, in words."""
        if math.isinf(self.additive_error):
            return "γ is not positive, the groups are not separable and the theorem does not apply"
        worst = "a worst-case bound for every similarity with this γ; observed errors are far smaller"
        if self.additive_error >= 2:
            return f"{worst}. At {self.additive_error:.3g} it says nothing: disparities differ by 2 at most"
        return worst


def separability(control: ControlSet) -> Separability:
    r"""Measure γ = μ_same − μ_diff on the whole labelled pool (Definition 3.1).

    .. math:: \mu_{same} = E[sim(x, y) \mid z_x = z_y], \quad \mu_{diff} = E[sim(x, y) \mid z_x \ne z_y]

    Averages are over *pairs*: all pairs of one group count alike, so a larger group weighs more (the mean of
    the groups' means is another number). The authors' published γ keeps the pairs of an example with
    itself: `gamma_with_self`. `gamma` leaves them out, as its expectation asks. O(n d) for cosine.

    >>> pool = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> separability(pool)
    Separability(gamma=1.0, mu_same=2.0, mu_diff=1.0, gamma_with_self=1.0, mu_same_with_self=2.0)
    """
    n = len(control)
    sums = similarity_sums(control, np.arange(n))
    within = float(sums[np.arange(n), control.labels].sum())
    itself = _self_pairs(control)
    counts = np.bincount(control.labels)
    pairs = int((counts * counts).sum())
    mu_diff = (float(sums.sum()) - within) / (n * n - pairs)
    mu_same = within / (pairs - n)
    mu_same_with_self = (within + itself) / pairs
    return Separability(mu_same - mu_diff, mu_same, mu_diff, mu_same_with_self - mu_diff, mu_same_with_self)


def gamma_control(control: ControlSet, vectors: Any = None, labels: Iterable[Any] | None = None) -> float:
    r"""γ^(T) of the representatives, measured on examples that are not among them (Section 5).

    .. math:: \gamma^{(T)} = E_i [E_{x \sim p_i} sim(x, T_i) - E_{x \sim p_i} sim(x, T_{1-i})]

    The paper prints p_{1−i} in the second term; the average over i would then be zero for every T, so p_i is
    meant, as in γ_i^(y). `vectors` with their `labels` (group names, or positions in `control.groups`) are a
    held-out sample; without them the rest of the pool is. An adaptive T took the most typical examples out of
    that rest, so γ^(T) tends to come out lower there than on a separate sample. With k > 2 groups T_{1−i} is
    all other representatives. γ^(T) takes the place of γ in Theorem 3.3.

    >>> pool = ControlSet(np.repeat(np.eye(2), 3, axis=0), ["a"] * 3 + ["b"] * 3, attribute="letter")
    >>> gamma_control(pool.with_representatives([0, 1, 3, 4]))
    1.0
    >>> gamma_control(pool, [[1, 0], [1, 1], [0, 1]], ["a", "a", "b"])
    0.75
    """
    if vectors is None:
        rest = np.flatnonzero(~control.representative)
        vectors, groups = control.vectors[rest], control.labels[rest]
    elif labels is None:
        raise InputError("held-out vectors need the labels of their groups")
    else:
        groups = _positions(control, labels)
    matrix = as_matrix(vectors, "the held-out vectors")
    if len(matrix) != len(groups):
        raise InputError(f"{len(matrix)} held-out vectors with {len(groups)} labels")
    k = len(control.groups)
    counts = np.bincount(groups, minlength=k)
    if not counts.all():
        name = control.groups[int(counts.argmin())]
        raise InputError(f"no held-out example of group '{name}'; give some, or use gamma_control_own")
    similarity = item_similarity(matrix, control)
    sizes = np.array([len(control.rows(i, representatives=True)) for i in range(k)])
    means = np.stack([similarity[groups == i].mean(axis=0) for i in range(k)])
    gaps = [means[i, i] - np.average(np.delete(means[i], i), weights=np.delete(sizes, i)) for i in range(k)]
    return float(np.mean(gaps))


def gamma_control_own(control: ControlSet) -> float:
    """γ^(T) measured on the representatives themselves: the mean of u_i − l_i of Algorithm 1.

    Larger than `gamma_control` for an adaptive set, whose members were chosen for a large γ_i^(x).

    >>> pool = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> gamma_control_own(pool)
    1.0
    """
    gap = within_between(control).gap
    return math.fsum(gap) / len(gap)


def lemma_probability(delta: float, mu_diff: float, gamma: float, size: int) -> float:
    r"""Probability of Lemma 3.2 for one item and a random control set of `size`, half of it of each group.

    sim(x, T_i) − sim(x, T_{1−i}) lies in μ_same − μ_diff ± δ (μ_same + μ_diff) with probability at least

    .. math:: 1 - 2 e^{-\delta^2 \mu_{diff} |T| / 6} (1 + e^{-\delta^2 \gamma |T| / 6}),

    cut at 0, where the lemma says nothing.

    >>> round(lemma_probability(0.5, mu_diff=0.96, gamma=0.084, size=200), 5)
    0.999
    """
    _positive(delta=delta, mu_diff=mu_diff, size=size)
    rate = delta * delta * size / 6
    return max(0.0, 1 - 2 * math.exp(-rate * mu_diff) * (1 + math.exp(-rate * max(gamma, 0.0))))


def theorem(
    size_control: int, size_collection: int, mu_same: float, mu_diff: float, gamma: float | None = None
) -> TheoremBound:
    r"""Error bound of Theorem 3.3 for d̂(S) / (μ_same − μ_diff) as estimate of d(S).

    .. math:: \delta = \sqrt{\frac{6 \log(20 |S|)}{|T| \min(\mu_{diff}, \gamma)}}, \quad
              error = \delta \frac{\mu_{same} + \mu_{diff}}{\mu_{same} - \mu_{diff}}

    with probability at least 0.9 − 1/(200 |S|). Assumes a control set drawn at random, half of it of each
    group, from the collection's own conditional distributions (Assumption 3.1). `gamma` defaults to
    μ_same − μ_diff; give γ^(T) for an adaptive set. A worst-case bound, union over all items: observed errors
    are far smaller. Infinite where γ ≤ 0.

    >>> bound = theorem(100, 500, mu_same=1.0465, mu_diff=0.9623)  # PPB-2017, skin tone
    >>> round(bound.delta, 2), round(bound.additive_error, 1), round(bound.probability, 5)
    (2.56, 61.1, 0.89999)
    """
    _positive(size_control=size_control, size_collection=size_collection, mu_diff=mu_diff)
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

    rounded up to an even number. As worst-case as the theorem: far fewer examples do in practice.

    >>> size = control_size(0.1, 500, mu_same=1.18, mu_diff=0.83)
    >>> size, theorem(size, 500, 1.18, 0.83).additive_error <= 0.1
    (520734, True)
    """
    _positive(additive_error=additive_error)
    one = theorem(1, size_collection, mu_same, mu_diff, gamma).additive_error
    if math.isinf(one):
        raise InputError("no control set is large enough: γ must be positive (μ_same > μ_diff)")
    return 2 * math.ceil((one / additive_error) ** 2 / 2)


def _self_pairs(control: ControlSet) -> float:
    if control.similarity.collapses:
        return 2.0 * len(control)
    rows = control.vectors.astype(np.float64)
    return sum(float(control.similarity.pairs(row[None], row[None])[0, 0]) for row in rows)


def _positions(control: ControlSet, labels: Iterable[Any]) -> NDArray[np.intp]:
    values = list(labels)
    k = len(control.groups)
    if all(isinstance(value, (int, np.integer)) for value in values):
        if any(not 0 <= value < k for value in values):
            raise InputError(f"positions of groups must be 0 to {k - 1}; groups are {control.groups}")
        return np.array(values, dtype=np.intp)
    return np.array([control.group_of(str(value)) for value in values], dtype=np.intp)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"{name} = {value}: it must be positive")
