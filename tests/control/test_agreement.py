from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divscore.control.agreement import agreement, cohen, fleiss

LABELS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=40)


def test_cohen_by_hand() -> None:
    """50 items, 20 + 15 equal: p_o = 0.7, p_e = 0.5 · 0.6 + 0.5 · 0.4 = 0.5, κ = 0.4."""
    first = np.repeat([0, 0, 1, 1], [20, 5, 10, 15])
    second = np.repeat([0, 1, 0, 1], [20, 5, 10, 15])
    assert cohen(first, second, 2) == pytest.approx(0.4)
    assert cohen(first, first, 2) == 1
    assert cohen(np.array([0, 1]), np.array([1, 0]), 2) == -1
    assert cohen(np.zeros(5, int), np.zeros(5, int), 2) is None  # chance agrees always


def test_fleiss_by_hand() -> None:
    """Ten items, fourteen annotators, five labels: a worked table, κ = 0.210."""
    table = """0 0 0 0 14 / 0 2 6 4 2 / 0 0 3 5 6 / 0 3 9 2 0 / 2 2 8 1 1
    / 7 7 0 0 0 / 3 2 6 3 0 / 2 5 3 2 2 / 6 5 2 1 0 / 0 2 2 3 7"""
    counts = np.array([[int(cell) for cell in row.split()] for row in table.split("/")])
    same = (counts**2).sum(axis=1)
    mean = float(((same - 14) / (14 * 13)).mean())
    chance = float(((counts.sum(axis=0) / 140) ** 2).sum())
    assert (round(mean, 3), round(chance, 3)) == (0.378, 0.213)
    assert fleiss(counts) == pytest.approx(0.20993, abs=1e-5)
    assert fleiss(np.array([[3, 0], [3, 0]])) is None
    # 3 of 3, 3 of 3, 2 of 3: mean (1 + 1 + 1/3) / 3 = 7/9; chance (5/9)² + (4/9)² = 41/81; κ = 22/40.
    assert fleiss(np.array([[3, 0], [0, 3], [2, 1]])) == pytest.approx(22 / 40)


@given(LABELS)
def test_kappa_is_at_most_one_symmetric_and_blind_to_names_and_order(pairs: list[list[int]]) -> None:
    first, second = np.array(pairs).T
    value = cohen(first, second, 4)
    assert value == cohen(second, first, 4)
    shuffled = np.random.default_rng(0).permutation(len(pairs))
    assert value == cohen(first[shuffled], second[shuffled], 4)
    assert value == cohen((first + 1) % 4, (second + 1) % 4, 4)
    if value is not None:
        assert -1 <= value <= 1
        assert (value == 1) == (first == second).all()


@given(LABELS)
def test_fleiss_of_two_is_close_to_cohen_of_two(pairs: list[list[int]]) -> None:
    """Both have the same p_o; Fleiss' chance uses the mean of both annotators' shares, so it is never smaller."""
    first, second = np.array(pairs).T
    counts = np.stack([np.bincount(row, minlength=4) for row in np.array(pairs)])
    ours, theirs = fleiss(counts), cohen(first, second, 4)
    if ours is not None and theirs is not None:
        assert ours <= theirs + 1e-12


def test_the_number_of_annotators_decides() -> None:
    two = [{"x": "a", "y": "a"}, {"x": "b", "y": "b"}, {"x": "a"}]
    found = agreement(two, ["a", "b"])
    assert found is not None
    assert (found.name, found.value, found.items) == ("Cohen", 1.0, 2)
    three = agreement([*two, {"z": "a", "x": "b"}], ["a", "b"])
    assert three is not None
    assert (three.name, three.items) == ("Fleiss", 3)
    assert agreement([{"x": "a"}, {"y": "a"}], ["a", "b"]) is None
