"""Which labelled examples represent their groups: at random, adaptively (Algorithm 2), or by a DPP."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.control.theory import Reference, item_similarity, similarity_sums
from divscore.errors import ControlError, InputError

ALPHAS = (0.0, 0.1, 0.3, 1.0, 3.0)
PREVALENCES = tuple(f / 10 for f in range(1, 10))
DRAWS = 100
# As large as a real collection: in small ones sampling noise dominates and favours the widest u − l.
RESAMPLE = 500

Rows = NDArray[np.intp]


@one_thread
def select_random(pool: ControlSet, size: int, *, balanced: bool = True, seed: int = 0) -> ControlSet:
    """Draw `size` representatives at random: equally many of each group, or as many as the pool has.

    Balanced: size // k a group, the remainder to the first groups. Proportional (``balanced=False``): a
    draw without replacement from the whole pool, repeated while a group has fewer than two.

    >>> pool = ControlSet(np.eye(10), ["a"] * 4 + ["b"] * 6, attribute="letter")
    >>> control = select_random(pool, 5, seed=1)
    >>> [len(control.rows(group, representatives=True)) for group in (0, 1)]
    [3, 2]
    """
    rng = np.random.default_rng(seed)
    k = len(pool.groups)
    if balanced:
        quotas = [size // k + (group < size % k) for group in range(k)]
        _check_quotas(pool, quotas, size)
        picks = [rng.choice(pool.rows(g), size=n, replace=False) for g, n in enumerate(quotas)]
        return pool.with_representatives(np.concatenate(picks), method="random balanced")
    if not 2 * k <= size <= len(pool):
        raise InputError(f"size {size} must be from {2 * k} (two per group) to {len(pool)} (the whole pool)")
    for _ in range(DRAWS):
        rows = rng.choice(len(pool), size=size, replace=False)
        if np.bincount(pool.labels[rows], minlength=k).min() >= 2:
            return pool.with_representatives(rows, method="random proportional")
    rare = min(pool.counts, key=lambda name: pool.counts[name])
    raise ControlError(
        f"{DRAWS} random draws of {size} had fewer than two of a group: '{rare}' has {pool.counts[rare]} of "
        f"{len(pool)} examples; use a larger size, or draw equally many of each group"
    )


@one_thread
def select_adaptive(
    pool: ControlSet, size: int, *, alpha: float | Literal["auto"] = 1.0, seed: int = 0
) -> ControlSet:
    r"""Choose typical but not redundant representatives, size // k a group (Algorithm 2).

    Each group i takes, one after the other, the example that maximises

    .. math:: \gamma_i^{(x)} - \alpha \max_{y \in T_i} sim(x, y)

    with γ_i^(x) as in `element_gamma`, redundancy 0 for the first pick and ties to the lowest index: the same
    pool always gives the same set. O(size · n · d). ``alpha="auto"`` calls `choose_alpha`, and only that uses
    `seed`. The chosen examples are not a random sample of their groups.

    >>> vectors = [[1, 0], [1, 0], [2, 1], [0, 1], [0, 1], [-1, 1]]
    >>> pool = ControlSet(vectors, ["a", "a", "a", "b", "b", "b"], attribute="letter")
    >>> np.flatnonzero(select_adaptive(pool, 4, alpha=0).representative).tolist()
    [0, 1, 3, 5]
    >>> np.flatnonzero(select_adaptive(pool, 4, alpha=10).representative).tolist()
    [0, 2, 3, 5]
    """
    if isinstance(alpha, str):
        if alpha != "auto":
            raise InputError(f"alpha '{alpha}': give a number ≥ 0 or 'auto'")
        alpha = choose_alpha(pool, size, seed=seed)
    weight, quota = _checked_alpha(alpha), size // len(pool.groups)
    _check_quotas(pool, [quota] * len(pool.groups), size)
    gamma, picked = element_gamma(pool), []
    for group in range(len(pool.groups)):
        rows = pool.rows(group)
        redundancy = np.zeros(len(rows))
        free = np.ones(len(rows), dtype=bool)
        for _ in range(quota):
            best = int(np.where(free, gamma[rows] - weight * redundancy, -np.inf).argmax())
            picked.append(int(rows[best]))
            free[best] = False
            # Only the latest pick can raise the maximum: no matrix of all pairs is needed.
            redundancy = np.maximum(redundancy, _similarity_with(pool, rows, picked[-1]))
    return pool.with_representatives(picked, method=f"adaptive, α = {weight:g}")


@one_thread
def select_dpp(pool: ControlSet, size: int, *, seed: int = 0) -> ControlSet:
    """Choose representatives by a determinantal point process, size // k a group (mentioned in Section 5).

    Greedy maximum of log det L over the group's subsets, with L = diag(q) S diag(q), S the similarity halved
    (for cosine an example then has 1 with itself) and quality q_x = exp(γ_i^(x) / 2σ), σ the group's standard
    deviation of γ: the sum of γ/σ plus the log volume that the examples span. The incremental Cholesky
    factors of Chen, Zhang & Zhou (2018) make a pick O(n (d + picks)). Deterministic, ties to the lowest
    index: `seed` has no effect and exists for the common signature.
    Once the remaining examples add no volume, those with the largest γ follow.

    >>> vectors = [[1, 0], [1, 0], [2, 1], [0, 1], [0, 1], [-1, 1]]
    >>> pool = ControlSet(vectors, ["a", "a", "a", "b", "b", "b"], attribute="letter")
    >>> np.flatnonzero(select_dpp(pool, 4).representative).tolist()
    [0, 2, 3, 5]
    """
    quota = size // len(pool.groups)
    _check_quotas(pool, [quota] * len(pool.groups), size)
    gammas, picked = element_gamma(pool), []
    for group in range(len(pool.groups)):
        rows = pool.rows(group)
        gamma = gammas[rows]
        # Relative to the largest γ, so that no quality overflows; a common factor does not change the order.
        quality = np.exp((gamma - gamma.max()) / (2 * (float(gamma.std()) or 1.0)))
        volume = quality**2  # the squared Cholesky pivot of each example
        floor = 1e-10 * float(volume.max())
        factors = np.zeros((quota, len(rows)))
        free = np.ones(len(rows), dtype=bool)
        for step in range(quota):
            gain = np.where(free, volume, -np.inf)
            best = int(gain.argmax() if gain.max() > floor else np.where(free, gamma, -np.inf).argmax())
            picked.append(int(rows[best]))
            free[best] = False
            pivot = math.sqrt(max(float(volume[best]), floor))
            kernel = quality[best] * quality * _similarity_with(pool, rows, picked[-1]) / 2
            factors[step] = (kernel - factors[:step, best] @ factors[:step]) / pivot
            volume = np.maximum(volume - factors[step] ** 2, 0.0)
    return pool.with_representatives(picked, method="dpp")


def element_gamma(pool: ControlSet) -> FloatArray:
    r"""γ_i^(x) of every labelled example x, i its group (Algorithm 2, line 4).

    .. math:: \gamma_i^{(x)} = \frac{1}{|U_i| - 1} \sum_{y \in U_i \setminus x} sim(x, y)
              - \frac{1}{|U \setminus U_i|} \sum_{y \in U \setminus U_i} sim(x, y)

    For two groups U ∖ U_i is the paper's U_{1−i}; with more it is all examples of all other groups.
    O(n d) for cosine.

    >>> pool = ControlSet([[1, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"], attribute="letter")
    >>> element_gamma(pool)
    array([1., 1., 1., 1.])
    """
    own, others = _mean_similarities(pool)
    return own - others


def _mean_similarities(pool: ControlSet) -> tuple[FloatArray, FloatArray]:
    """Of every labelled example to the others of its group, and to all other groups."""
    n = len(pool)
    sums = similarity_sums(pool, np.arange(n))
    own = sums[np.arange(n), pool.labels]
    size = np.bincount(pool.labels)[pool.labels]
    sums[np.arange(n), pool.labels] = 0.0
    return own / (size - 1), sums.sum(axis=1) / (n - size)


@dataclass(frozen=True)
class Standing:
    """How a representative stands among the labelled examples.

    `own` and `others` are its mean similarities to its own group and to the other groups; `redundancy` is its
    similarity to the nearest other representative of its group. `rank` is 1 for the group's largest γ^(x), which is
    own − others.
    """

    row: int
    own: float
    others: float
    redundancy: float
    rank: int


def standings(control: ControlSet, rows: Iterable[int] | None = None) -> list[Standing]:
    """Numbers that explain why representatives were chosen: all or those of `rows`, by group and by rank.

    >>> vectors = [[1, 0], [1, 0], [2, 1], [0, 1], [0, 1], [-1, 1]]
    >>> pool = ControlSet(vectors, ["a", "a", "a", "b", "b", "b"])
    >>> [(each.row, each.rank) for each in standings(select_adaptive(pool, 4, alpha=10))]
    [(0, 1), (2, 3), (5, 1), (3, 2)]
    """
    own, others = _mean_similarities(control)
    wanted = None if rows is None else set(rows)
    listed: list[Standing] = []
    for group in range(len(control.groups)):
        every, chosen = control.rows(group), control.rows(group, representatives=True)
        order = every[np.argsort(others[every] - own[every], kind="stable")].tolist()
        rank = {row: at for at, row in enumerate(order, start=1)}
        asked = [row for row in order if control.representative[row] and (wanted is None or row in wanted)]
        for row in asked:
            redundancy = float(_similarity_with(control, chosen[chosen != row], row).max())
            listed.append(Standing(row, float(own[row]), float(others[row]), redundancy, rank[row]))
    return listed


def choose_alpha(
    pool: ControlSet, size: int, *, candidates: Sequence[float] = ALPHAS, folds: int = 5, seed: int = 0
) -> float:
    """Choose α of Algorithm 2 by cross-validation on the labelled pool.

    For each fold the set is selected on the other folds, and Algorithm 1 scores resamples of the held-out fold
    (with replacement) with a share f = 0.1, …, 0.9 of a group. The α with the smallest mean
    |score − disparity| wins, ties to the smaller. If the training folds are too small for `size`, every
    group gives as many as the smallest has.

    >>> rng = np.random.default_rng(0)
    >>> means = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], 20, axis=0)
    >>> pool = ControlSet(means + rng.normal(size=(40, 3)) / 2, ["a"] * 20 + ["b"] * 20, attribute="letter")
    >>> choose_alpha(pool, 10) in (0, 0.1, 0.3, 1, 3)
    True
    """
    alphas = sorted(_checked_alpha(alpha) for alpha in candidates)
    k, smallest = len(pool.groups), min(pool.counts.values())
    if not alphas or folds < 2:
        raise InputError("choosing α needs at least one candidate and two folds")
    _check_quotas(pool, [size // k] * k, size)
    if smallest < 3:
        raise ControlError(f"a group of {smallest} examples is too small to choose α; give a number")
    rng = np.random.default_rng(seed)
    fold = np.empty(len(pool), dtype=np.intp)
    for group in range(k):  # every group is spread evenly over the folds
        rows = rng.permutation(pool.rows(group))
        fold[rows] = np.arange(len(rows)) % min(folds, smallest)
    names = np.array(pool.groups, dtype=object)
    errors = np.zeros(len(alphas))
    for held_out in range(int(fold.max()) + 1):
        rows, test = np.flatnonzero(fold != held_out), np.flatnonzero(fold == held_out)
        training = ControlSet(
            pool.vectors[rows],
            names[pool.labels[rows]],
            attribute=pool.attribute,
            order=pool.groups,
            similarity=pool.similarity,
        )
        # Collections of artificial prevalence, each with its true disparity; the same for every α.
        draws: list[tuple[Rows, float]] = []
        for lead, f in product(range(k if k > 2 else 1), PREVALENCES):
            shares = np.full(k, (1 - f) / (k - 1))
            shares[lead] = f
            counts = np.maximum(np.rint(RESAMPLE * shares).astype(int), 1)
            drawn = [rng.choice(np.flatnonzero(pool.labels[test] == g), size=counts[g]) for g in range(k)]
            actual = counts / counts.sum()
            truth = actual[0] - actual[1] if k == 2 else actual.max() - actual.min()
            draws.append((np.concatenate(drawn), float(truth)))
        available = min(size, k * min(training.counts.values()))
        for a, alpha in enumerate(alphas):
            control = select_adaptive(training, available, alpha=alpha)
            reference = Reference.of(control)
            similarity = item_similarity(pool.vectors[test], control)
            for items, disparity in draws:
                error = abs(reference.score(similarity[items].mean(axis=0)).score - disparity)
                errors[a] += error if math.isfinite(error) else math.inf
    return alphas[int(errors.argmin())]


def _similarity_with(pool: ControlSet, rows: Rows, chosen: int) -> FloatArray:
    if pool.similarity.collapses:
        similarity: FloatArray = 1.0 + np.vecdot(pool.units[rows], pool.units[chosen])
        return similarity
    vectors = pool.vectors[rows].astype(np.float64)
    return pool.similarity.pairs(vectors, pool.vectors[[chosen]].astype(np.float64))[:, 0]


def _checked_alpha(alpha: float) -> float:
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise InputError(f"alpha = {alpha}: the weight of redundancy must be a number ≥ 0")
    return float(alpha)


def _check_quotas(pool: ControlSet, quotas: list[int], size: int) -> None:
    k = len(pool.groups)
    for (name, count), quota in zip(pool.counts.items(), quotas, strict=True):
        if quota < 2:
            raise InputError(f"size {size} gives group '{name}' {quota}; {k} groups need at least {2 * k}")
        if quota > count:
            raise InputError(
                f"size {size} needs {quota} examples of group '{name}', which has {count}; use a smaller size"
            )
