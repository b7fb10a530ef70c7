"""The paper's double sums and loops, written down as printed; slow on purpose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from divscore.control.similarity import FloatArray

Pair = Callable[[FloatArray, FloatArray], float]


def cosine(x: FloatArray, y: FloatArray) -> float:
    return float(1.0 + x @ y / (np.sqrt(x @ x) * np.sqrt(y @ y)))


def mean_pairs(A: FloatArray, B: FloatArray, sim: Pair = cosine) -> float:
    return sum(sim(x, y) for x in A for y in B) / (len(A) * len(B))


def mean_within(A: FloatArray, sim: Pair = cosine) -> float:
    n = len(A)
    return sum(sim(A[a], A[b]) for a in range(n) for b in range(n) if a != b) / (n * (n - 1))


def algorithm_1(S: FloatArray, T0: FloatArray, T1: FloatArray, sim: Pair = cosine) -> float:
    l = mean_pairs(T0, T1, sim)
    u0, u1 = mean_within(T0, sim), mean_within(T1, sim)
    s0 = (mean_pairs(S, T0, sim) - l) / (u0 - l)
    s1 = (mean_pairs(S, T1, sim) - l) / (u1 - l)
    return s0 - s1


def element_gamma(own: FloatArray, other: FloatArray, x: int, sim: Pair = cosine) -> float:
    same = sum(sim(own[x], own[y]) for y in range(len(own)) if y != x) / (len(own) - 1)
    return same - sum(sim(own[x], y) for y in other) / len(other)


def algorithm_2(
    own: FloatArray, other: FloatArray, quota: int, alpha: float, sim: Pair = cosine
) -> list[int]:
    """Positions that one group's loop picks, in order."""
    gamma = [element_gamma(own, other, x, sim) for x in range(len(own))]
    picked: list[int] = []
    while len(picked) < quota:
        best, best_value = -1, -np.inf
        for x in range(len(own)):
            if x in picked:
                continue
            redundancy = max((sim(own[x], own[y]) for y in picked), default=0.0)
            if gamma[x] - alpha * redundancy > best_value:
                best, best_value = x, gamma[x] - alpha * redundancy
        picked.append(best)
    return picked


def gamma_pairs(vectors: FloatArray, labels: list[int], with_self: bool, sim: Pair = cosine) -> float:
    """μ_same − μ_diff over all ordered pairs of the pool."""
    same, diff = [], []
    for a in range(len(vectors)):
        for b in range(len(vectors)):
            if a != b or with_self:
                (same if labels[a] == labels[b] else diff).append(sim(vectors[a], vectors[b]))
    return float(np.mean(same) - np.mean(diff))


def algorithm_3(
    S: FloatArray, T0: FloatArray, T1: FloatArray, k: int, sim: Pair = cosine
) -> tuple[float, list[int]]:
    """Double sums: the disparity and the order of picks."""
    T, n, left, picks = [list(T0), list(T1)], [0, 0], list(range(len(S))), []
    while left:
        s = {
            x: float(np.mean([sim(S[x], y) for y in T[0]]) - np.mean([sim(S[x], y) for y in T[1]]))
            for x in left
        }
        chosen = sorted(left, key=lambda x: (-abs(s[x]), x))[:k]
        for x in chosen:
            if s[x] != 0:
                group = 0 if s[x] > 0 else 1
                n[group] += 1
                T[group].append(S[x])
        left = [x for x in left if x not in chosen]
        picks += chosen
    return (n[0] - n[1]) / len(S), picks


def algorithm_3_matrix(
    units: FloatArray, T0: FloatArray, T1: FloatArray, k: int
) -> tuple[tuple[int, int], list[int]]:
    """Every score anew in every round, s(x) = x̂·(M0 − M1): the counts and the order of picks."""
    sums, sizes, counts = [T0.sum(axis=0), T1.sum(axis=0)], [len(T0), len(T1)], [0, 0]
    left, picks = np.arange(len(units)), []
    while len(left):
        s = np.vecdot(units[left], sums[0] / sizes[0] - sums[1] / sizes[1])
        best = np.lexsort((left, -np.abs(s)))[:k]
        for group, chosen in enumerate((best[s[best] > 0], best[s[best] < 0])):
            if len(chosen):
                sums[group] = sums[group] + units[left[chosen]].sum(axis=0)
                sizes[group] += len(chosen)
                counts[group] += len(chosen)
        picks += left[best].tolist()
        left = np.delete(left, best)
    return (counts[0], counts[1]), picks
