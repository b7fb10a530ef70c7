from __future__ import annotations

import math

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divscore.control.controlset import ControlSet
from divscore.control.divscore import (
    Reference,
    divscore,
    item_similarity,
    mean_similarity,
    similarity_sums,
    within_between,
)
from divscore.control.similarity import FloatArray, unit_rows
from divscore.errors import MismatchError, VectorError

shapes = st.tuples(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(2, 9), st.integers(1, 12))


def pool(
    rng: np.random.Generator, sizes: tuple[int, ...], d: int, similarity: object = "cosine"
) -> ControlSet:
    names = np.repeat([f"g{i}" for i in range(len(sizes))], sizes)
    vectors = rng.normal(size=(sum(sizes), d)) + 2 * rng.normal(size=(len(sizes), d)).repeat(sizes, axis=0)
    mix = rng.permutation(len(names))
    return ControlSet(vectors[mix], names[mix], attribute="group", similarity=similarity)


def overlap(A: FloatArray, B: FloatArray) -> FloatArray:
    """Gaussian kernel, which no mean vector can stand for."""
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / (2 * A.shape[1]))


def overlap_pair(x: FloatArray, y: FloatArray) -> float:
    return float(overlap(x[None], y[None])[0, 0])


def score(S: FloatArray, control: ControlSet) -> float:
    return divscore(item_similarity(S, control).mean(axis=0), within_between(control)).score


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_cosine_equals_the_double_sums(shape: tuple[int, int, int, int]) -> None:
    seed, a, b, d = shape
    rng = np.random.default_rng(seed)
    control, S = pool(rng, (a, b), d + 1), rng.normal(size=(7, d + 1))
    T = [control.vectors[control.rows(g)] for g in (0, 1)]
    reference = within_between(control)
    assert reference.u == pytest.approx([oracles.mean_within(t) for t in T], abs=1e-10)
    assert reference.lower == pytest.approx([oracles.mean_pairs(*T)] * 2, abs=1e-10)
    similarity = mean_similarity(unit_rows(S).mean(axis=0), control)
    assert similarity == pytest.approx([oracles.mean_pairs(S, t) for t in T], abs=1e-10)
    assert similarity == pytest.approx(item_similarity(S, control).mean(axis=0), abs=1e-10)
    if min(map(abs, reference.gap)) > 1e-3:
        expected = oracles.algorithm_1(S, *T)
        assert divscore(similarity, reference).score == pytest.approx(expected, rel=1e-9, abs=1e-10)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_any_similarity_equals_the_double_sums(shape: tuple[int, int, int, int]) -> None:
    seed, a, b, d = shape
    rng = np.random.default_rng(seed)
    control, S = pool(rng, (a, b), d, overlap), rng.normal(size=(5, d))
    T = [control.vectors[control.rows(g)] for g in (0, 1)]
    reference = within_between(control)
    assert reference.u == pytest.approx([oracles.mean_within(t, overlap_pair) for t in T], abs=1e-10)
    assert reference.lower == pytest.approx([oracles.mean_pairs(*T, overlap_pair)] * 2, abs=1e-10)
    assert item_similarity(S, control).mean(axis=0) == pytest.approx(
        [oracles.mean_pairs(S, t, overlap_pair) for t in T], abs=1e-10
    )


@given(shapes, st.sampled_from(["cosine", overlap]))
@settings(max_examples=40, deadline=None)
def test_swapping_the_groups_negates_exactly(shape: tuple[int, int, int, int], similarity: object) -> None:
    seed, a, b, d = shape
    rng = np.random.default_rng(seed)
    control, S = pool(rng, (a, b), d + 1, similarity), rng.normal(size=(6, d + 1))
    swapped = control.with_order(control.groups[::-1])
    assert score(S, swapped) == -score(S, control)
    assert within_between(swapped).gap_error == within_between(control).gap_error[::-1]


def test_only_representatives_count() -> None:
    rng = np.random.default_rng(0)
    control = pool(rng, (6, 6), 4)
    rows = np.concatenate([control.rows(0)[:3], control.rows(1)[:4]])
    small = ControlSet(
        control.vectors[np.sort(rows)],
        [control.groups[g] for g in control.labels[np.sort(rows)]],
        attribute="group",
    )
    S = rng.normal(size=(9, 4))
    assert score(S, control.with_representatives(rows)) == score(S, small)


def test_the_state_of_a_general_similarity() -> None:
    rng = np.random.default_rng(1)
    control = pool(rng, (5, 4), 3, overlap)
    control = control.with_representatives([*control.rows(0)[:3], *control.rows(1)[1:]])
    S = rng.normal(size=(8, 3))
    expected = item_similarity(S, control).mean(axis=0)
    everyone = overlap(S, control.vectors).mean(axis=0)
    assert mean_similarity(everyone, control) == pytest.approx(expected, abs=1e-12)
    assert mean_similarity(everyone[control.representative], control) == pytest.approx(expected, abs=1e-12)


def test_more_than_two_groups() -> None:
    rng = np.random.default_rng(2)
    control, S = pool(rng, (4, 6, 3), 5), rng.normal(size=(10, 5))
    T = [control.vectors[control.rows(g)] for g in range(3)]
    reference = within_between(control)
    for i in range(3):
        others = np.concatenate([T[j] for j in range(3) if j != i])
        assert reference.lower[i] == pytest.approx(oracles.mean_pairs(T[i], others), abs=1e-12)
    assert np.array(reference.between) == pytest.approx(np.array(reference.between).T, abs=0)
    result = divscore(item_similarity(S, control).mean(axis=0), reference)
    assert result.score == max(result.s) - min(result.s)


def test_score_is_one_number_per_composition() -> None:
    # On the control set's own group means Algorithm 1 is linear in the share, and may leave [−1, 1].
    control = ControlSet(np.eye(4)[[0, 0, 1, 1]], ["a", "a", "b", "b"], attribute="letter")
    for share in (0.0, 0.3, 1.0):
        mean = np.array([share, 1 - share, 0, 0])
        result = divscore(mean_similarity(mean, control), within_between(control))
        assert result.score == pytest.approx(2 * share - 1)


def test_jackknife_error_equals_leaving_one_out() -> None:
    control = pool(np.random.default_rng(3), (5, 7), 4)
    T = [control.vectors[control.rows(g)] for g in (0, 1)]
    for i in (0, 1):
        own, other = T[i], T[1 - i]
        first = [
            oracles.mean_within(np.delete(own, x, axis=0))
            - oracles.mean_pairs(np.delete(own, x, axis=0), other)
            for x in range(len(own))
        ]
        second = [
            oracles.mean_within(own) - oracles.mean_pairs(own, np.delete(other, y, axis=0))
            for y in range(len(other))
        ]
        variance = (len(own) - 1) * np.var(first) + (len(other) - 1) * np.var(second)
        assert within_between(control).gap_error[i] == pytest.approx(math.sqrt(variance), abs=1e-12)


def test_noisy_where_the_groups_are_alike() -> None:
    rng = np.random.default_rng(4)
    alike = ControlSet(rng.normal(size=(40, 20)), ["a", "b"] * 20, attribute="letter")
    apart = pool(rng, (20, 20), 20)
    two = ControlSet(np.eye(4), ["a", "a", "b", "b"], attribute="letter")
    assert any(within_between(alike).noisy)
    assert within_between(apart).noisy == (False, False)
    assert within_between(two).noisy == (True, True)


def test_no_gap_gives_no_number() -> None:
    control = ControlSet(np.ones((4, 2)), ["a", "a", "b", "b"], attribute="letter")
    reference = within_between(control)
    flat = Reference((1.0, 1.0), (1.0, 1.0), ((1.0, 1.0), (1.0, 1.0)), (0.0, 0.0))
    assert any(reference.noisy)
    assert math.isnan(divscore(np.array([1.0, 1.0]), flat).score)


def test_blocks_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    control = pool(np.random.default_rng(5), (9, 8), 3, overlap)
    whole = similarity_sums(control, np.arange(17))
    monkeypatch.setattr("divscore.control.divscore.BLOCK", 4)
    assert similarity_sums(control, np.arange(17)) == pytest.approx(whole, abs=1e-12)


def test_wrong_shapes() -> None:
    control = ControlSet(np.eye(4), ["a", "a", "b", "b"], attribute="letter")
    with pytest.raises(VectorError, match="4 dimensions"):
        mean_similarity(np.zeros(3), control)
    with pytest.raises(VectorError, match="the control set has 4"):
        item_similarity(np.eye(3), control)
    with pytest.raises(MismatchError, match="3 mean similarities for 2 groups"):
        divscore(np.ones(3), within_between(control))
