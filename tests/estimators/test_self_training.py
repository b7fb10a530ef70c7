from __future__ import annotations

import dataclasses

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows
from divscore.errors import InputError, VectorError
from divscore.estimators import self_training as module
from divscore.estimators.self_training import SelfTraining, self_training


def control_of(vectors: FloatArray, labels: np.ndarray, similarity: object = "cosine") -> ControlSet:
    return ControlSet(vectors, np.where(labels == 0, "a", "b"), attribute="letter", similarity=similarity)


def picks_of(S: FloatArray, control: ControlSet, k: int) -> list[int]:
    return [int(row) for rows, _ in module._rounds(module._ranking(S, control, k), k) for row in rows]


def mixture(kind: str, n: int, d: int, seed: int = 0) -> tuple[FloatArray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    side = np.where(z == 0, 1.0, -1.0)[:, None]
    if kind == "isotropic":
        return rng.normal(size=(n, d)) + side * (np.arange(d) < 2), z
    if kind == "low rank":
        return rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.5 * side * rng.normal(size=d), z
    if kind == "cone":
        return rng.normal(size=(n, d)) + 3 + 0.3 * side * rng.normal(size=d), z
    if kind == "duplicates":
        few = rng.normal(size=(40, d)) + (np.arange(40) % 2 * 2 - 1)[:, None] * 0.3
        which = rng.integers(40, size=n)
        return few[which], which % 2
    grid = rng.integers(-1, 2, size=(n, d)).astype(float)
    grid[:, 0] = side[:, 0]
    return grid, z


@pytest.mark.parametrize("kind", ["isotropic", "low rank", "cone", "duplicates", "grid"])
@pytest.mark.parametrize("k", [1, 5, 64])
def test_picks_equal_those_of_the_plain_algorithm(kind: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST_TIER", 16)
    X, z = mixture(kind, 2040, 50)
    control, S = control_of(X[:40], z[:40]), X[40:]
    counts, order = oracles.algorithm_3_matrix(
        unit_rows(S), control.units[control.labels == 0], control.units[control.labels == 1], k
    )
    assert picks_of(S, control, k) == order
    result = self_training(S, control, k=k)
    assert result.counts == counts
    assert result.disparity == (counts[0] - counts[1]) / len(S)
    assert result.rounds == -(-len(S) // k)


def test_far_fewer_scores_than_the_plain_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST_TIER", 64)
    X, z = mixture("low rank", 8040, 50)
    result = self_training(X[40:], control_of(X[:40], z[:40]))
    assert result.evaluations < sum(range(0, 8001, 5)) / 5


@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.integers(2, 6), st.integers(1, 7))
def test_equals_the_double_sums(seed: int, n: int, d: int, k: int) -> None:
    X, z = mixture("isotropic", n + 8, d, seed)
    z[:8] = [0, 1] * 4
    control, S = control_of(X[:8], z[:8]), X[8:]
    disparity, order = oracles.algorithm_3(S, X[:8][z[:8] == 0], X[:8][z[:8] == 1], k)
    assert picks_of(S, control, k) == order
    assert self_training(S, control, k=k).disparity == disparity


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_any_similarity_equals_the_double_sums(seed: int, n: int, k: int) -> None:
    def kernel(A: FloatArray, B: FloatArray) -> FloatArray:
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / 8)

    X, z = mixture("isotropic", n + 8, 4, seed)
    z[:8] = [0, 1] * 4
    control, S = control_of(X[:8], z[:8], kernel), X[8:]
    T = [X[:8][z[:8] == g] for g in (0, 1)]
    disparity, order = oracles.algorithm_3(S, *T, k, lambda x, y: float(kernel(x[None], y[None])[0, 0]))
    assert picks_of(S, control, k) == order
    assert self_training(S, control, k=k).disparity == disparity


def test_swapping_the_groups_negates_exactly() -> None:
    X, z = mixture("cone", 440, 20)
    control = control_of(X[:40], z[:40])
    result, other = self_training(X[40:], control), self_training(X[40:], control.with_order(("b", "a")))
    assert other.disparity == -result.disparity
    assert other.counts == result.counts[::-1]


def test_a_score_of_zero_counts_for_neither_group() -> None:
    control = ControlSet(np.eye(3)[[0, 0, 1, 1]], ["a", "a", "b", "b"], attribute="letter")
    S = np.array([[1.0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]])
    result = self_training(S, control, k=2)
    assert result.counts == (3, 1)
    assert result.disparity == pytest.approx(2 / 7)
    assert result.rounds == 4


def test_groups_with_equal_means_give_zero_at_once() -> None:
    control = ControlSet(np.eye(2)[[0, 1, 0, 1]], ["a", "a", "b", "b"], attribute="letter")
    result = self_training(np.ones((5000, 2)), control, k=5)
    assert (result.disparity, result.counts, result.rounds) == (0.0, (0, 0), 1000)
    assert result.evaluations < 20_000


def test_only_representatives_start_the_training() -> None:
    X, z = mixture("isotropic", 260, 10)
    pool = control_of(X[:60], z[:60])
    rows = np.sort(np.concatenate([pool.rows(0)[:5], pool.rows(1)[:5]]))
    assert self_training(X[60:], pool.with_representatives(rows)) == self_training(
        X[60:], control_of(X[rows], z[rows])
    )


def test_the_result_names_no_item() -> None:
    assert {field.name for field in dataclasses.fields(SelfTraining)} == {
        "disparity",
        "counts",
        "rounds",
        "evaluations",
    }


def test_bad_input() -> None:
    two = ControlSet(np.eye(4), ["a", "a", "b", "b"], attribute="letter")
    three = ControlSet(np.eye(6), ["a", "a", "b", "b", "c", "c"], attribute="letter")
    with pytest.raises(InputError, match="two groups"):
        self_training(np.eye(6), three)
    with pytest.raises(InputError, match="k = 0"):
        self_training(np.eye(4), two, k=0)
    with pytest.raises(InputError, match="empty"):
        self_training(np.empty((0, 4)), two)
    with pytest.raises(VectorError, match="3 dimensions"):
        self_training(np.eye(3), two)
    with pytest.raises(VectorError, match="row 1 is zero"):
        self_training(np.diag([1.0, 0, 1, 1]), two)
