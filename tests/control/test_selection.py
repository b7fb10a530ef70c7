from __future__ import annotations

import itertools

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divscore.control.controlset import ControlSet
from divscore.control.selection import choose_alpha, element_gamma, select_adaptive, select_dpp, select_random
from divscore.control.similarity import FloatArray
from divscore.errors import ControlError, InputError


def pool(
    seed: int, sizes: tuple[int, ...] = (12, 15), d: int = 5, similarity: object = "cosine"
) -> ControlSet:
    rng = np.random.default_rng(seed)
    names = np.repeat([f"g{i}" for i in range(len(sizes))], sizes)
    vectors = rng.normal(size=(sum(sizes), d)) + rng.normal(size=(len(sizes), d)).repeat(sizes, axis=0)
    mix = rng.permutation(len(names))
    return ControlSet(vectors[mix], names[mix], attribute="group", similarity=similarity)


def kernel(A: FloatArray, B: FloatArray) -> FloatArray:
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / 8)


def kernel_pair(x: FloatArray, y: FloatArray) -> float:
    return float(kernel(x[None], y[None])[0, 0])


def marked(control: ControlSet) -> list[int]:
    return [len(control.rows(g, representatives=True)) for g in range(len(control.groups))]


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.sampled_from([0, 0.1, 1, 3]), st.booleans())
def test_adaptive_equals_algorithm_2(seed: int, quota: int, alpha: float, general: bool) -> None:
    U = pool(seed, similarity=kernel if general else "cosine")
    sim = kernel_pair if general else oracles.cosine
    chosen = select_adaptive(U, 2 * quota, alpha=alpha)
    for group in (0, 1):
        rows = U.rows(group)
        expected = oracles.algorithm_2(U.vectors[rows], U.vectors[U.rows(1 - group)], quota, alpha, sim)
        assert chosen.rows(group, representatives=True).tolist() == sorted(rows[expected].tolist())


@pytest.mark.parametrize("similarity", ["cosine", kernel])
def test_element_gamma_equals_the_double_sums(similarity: object) -> None:
    U = pool(1, similarity=similarity)
    sim = oracles.cosine if similarity == "cosine" else kernel_pair
    gamma = element_gamma(U)
    for group in (0, 1):
        own, other = U.vectors[U.rows(group)], U.vectors[U.rows(1 - group)]
        expected = [oracles.element_gamma(own, other, x, sim) for x in range(len(own))]
        assert gamma[U.rows(group)] == pytest.approx(expected, abs=1e-10)


def test_gamma_of_many_groups_is_against_all_the_others() -> None:
    U = pool(2, (4, 7, 5))
    for group in range(3):
        own, other = U.vectors[U.labels == group], U.vectors[U.labels != group]
        expected = [oracles.element_gamma(own, other, x) for x in range(len(own))]
        assert element_gamma(U)[U.rows(group)] == pytest.approx(expected, abs=1e-10)
    assert marked(select_adaptive(U, 10)) == [3, 3, 3]


def test_ties_go_to_the_lowest_index() -> None:
    U = ControlSet(np.eye(2).repeat(5, axis=0), ["a"] * 5 + ["b"] * 5, attribute="letter")
    for control in (select_adaptive(U, 6), select_adaptive(U, 6, alpha=0), select_dpp(U, 6)):
        assert np.flatnonzero(control.representative).tolist() == [0, 1, 2, 5, 6, 7]


def test_redundancy_keeps_near_copies_out() -> None:
    U = pool(3, (20, 20), 10)
    copies = np.concatenate([U.vectors, U.vectors * 1.001])
    names = np.array(U.groups, dtype=object)[np.tile(U.labels, 2)]
    twice = ControlSet(copies, names, attribute="group")
    for control in (select_adaptive(twice, 20, alpha=3), select_dpp(twice, 20)):
        rows = np.flatnonzero(control.representative) % len(U)
        assert len(set(rows.tolist())) == 20
    assert (
        len(set((np.flatnonzero(select_adaptive(twice, 20, alpha=0).representative) % len(U)).tolist())) == 10
    )


def test_dpp_takes_the_largest_determinant_at_each_step() -> None:
    U = pool(4, (9, 8), 6)
    gamma = element_gamma(U)
    control = select_dpp(U, 8)
    for group in (0, 1):
        rows = U.rows(group)
        quality = np.exp(gamma[rows] / (2 * gamma[rows].std()))
        L = quality[:, None] * quality * U.similarity.pairs(U.vectors[rows], U.vectors[rows]) / 2
        picked: list[int] = []
        for _ in range(4):
            gains = [
                -np.inf if x in picked else np.linalg.det(L[np.ix_([*picked, x], [*picked, x])])
                for x in range(len(rows))
            ]
            picked.append(int(np.argmax(gains)))
        assert control.rows(group, representatives=True).tolist() == sorted(rows[picked].tolist())


def test_dpp_goes_on_where_no_volume_is_left() -> None:
    assert marked(select_dpp(pool(5, (12, 12), 2), 20)) == [10, 10]


@given(st.integers(0, 2**32 - 1), st.integers(6, 12))
@settings(max_examples=30, deadline=None)
def test_random_sets(seed: int, size: int) -> None:
    U = pool(seed, (8, 10, 9))
    balanced = select_random(U, size, seed=seed) if size <= 24 else U
    assert sum(marked(balanced)) == size
    assert max(marked(balanced)) - min(marked(balanced)) <= 1
    assert marked(balanced) == sorted(marked(balanced), reverse=True)
    again = select_random(U, size, seed=seed)
    assert np.array_equal(balanced.representative, again.representative)


def test_proportional_sets_follow_the_pool() -> None:
    U = pool(6, (60, 20))
    shares = [marked(select_random(U, 20, balanced=False, seed=seed))[0] for seed in range(60)]
    assert np.mean(shares) == pytest.approx(15, abs=1)
    assert len(set(shares)) > 3


def test_proportional_sets_need_two_of_each_group() -> None:
    with pytest.raises(ControlError, match="'g1' has 2 of 2002"):
        select_random(pool(7, (2000, 2)), 4, balanced=False)


def test_selection_keeps_the_pool_and_says_how() -> None:
    U = pool(8)
    for control, method in (
        (select_random(U, 6), "random balanced"),
        (select_random(U, 6, balanced=False), "random proportional"),
        (select_adaptive(U, 6), "adaptive, α = 1"),
        (select_dpp(U, 6), "dpp"),
    ):
        assert len(control) == len(U)
        assert control.method == method


def test_alpha_by_cross_validation() -> None:
    U = pool(9, (30, 25), 8)
    alpha = choose_alpha(U, 12)
    assert alpha in (0, 0.1, 0.3, 1, 3)
    assert choose_alpha(U, 12, candidates=[3, 1, 0.3, 0.1, 0]) == alpha
    auto = select_adaptive(U, 12, alpha="auto")
    assert auto.method == f"adaptive, α = {alpha:g}"
    assert np.array_equal(auto.representative, select_adaptive(U, 12, alpha=alpha).representative)
    assert choose_alpha(U, 12, candidates=[0.7]) == 0.7


def test_alpha_ties_go_to_the_smaller() -> None:
    # The whole pool is chosen whatever α is, so every candidate has the same error.
    U = pool(10, (8, 8))
    assert choose_alpha(U, 16, candidates=[3, 0.5, 1]) == 0.5


def test_alpha_for_many_groups_and_any_similarity() -> None:
    assert choose_alpha(pool(11, (9, 8, 10), similarity=kernel), 9) in (0, 0.1, 0.3, 1, 3)


def test_alpha_matters_where_redundancy_hurts() -> None:
    # One tight cluster of group a has the largest γ and stands for a small part of its group.
    rng = np.random.default_rng(0)
    a = np.concatenate(
        [rng.normal(0, 0.02, (30, 6)) + np.eye(6)[0], rng.normal(0, 0.3, (30, 6)) + np.eye(6)[1]]
    )
    b = rng.normal(0, 0.3, (60, 6)) + np.eye(6)[2]
    U = ControlSet(np.concatenate([a, b]), ["a"] * 60 + ["b"] * 60, attribute="letter")
    assert choose_alpha(U, 40) > 0


@pytest.mark.parametrize("select", [select_random, select_adaptive, select_dpp])
def test_impossible_sizes(select: object) -> None:
    U = pool(12, (4, 9))
    for size, message in itertools.product([10, 30], ["of group 'g0', which has 4"]):
        with pytest.raises(InputError, match=message):
            select(U, size)  # type: ignore[operator]
    for size in (-1, 0, 3):
        with pytest.raises(InputError, match="need at least 4"):
            select(U, size)  # type: ignore[operator]


def test_other_bad_input() -> None:
    U = pool(13)
    for alpha in (-0.1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="alpha"):
            select_adaptive(U, 6, alpha=alpha)
    with pytest.raises(InputError, match="'automatic'"):
        select_adaptive(U, 6, alpha="automatic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="from 4"):
        select_random(U, 200, balanced=False)
    with pytest.raises(InputError, match="two folds"):
        choose_alpha(U, 6, folds=1)
    with pytest.raises(ControlError, match="too small to choose α"):
        choose_alpha(pool(14, (2, 9)), 4)
