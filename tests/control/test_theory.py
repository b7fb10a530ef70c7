from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_random
from divscore.control.similarity import FloatArray
from divscore.control.theory import (
    control_size,
    gamma_control,
    gamma_control_own,
    lemma_probability,
    separability,
    theorem,
)
from divscore.errors import InputError

PPB = Path(__file__).parents[3] / "shared" / "data" / "ppb2017.parquet"
needs_ppb = pytest.mark.skipif(not PPB.exists(), reason=f"the authors' PPB-2017 features are not at {PPB}")
ATTRIBUTES = ["gender", "skin_tone"]


def ppb(attribute: str) -> ControlSet:
    import pyarrow.parquet as parquet

    table = parquet.read_table(PPB, columns=["embedding", attribute])
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    return ControlSet(vectors, table[attribute].to_pylist(), attribute=attribute)


def kernel(A: FloatArray, B: FloatArray) -> FloatArray:
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / 8)


def small(seed: int, sizes: tuple[int, ...], similarity: object = "cosine") -> ControlSet:
    rng = np.random.default_rng(seed)
    names = np.repeat([f"g{i}" for i in range(len(sizes))], sizes)
    vectors = rng.normal(size=(len(names), 4)) + rng.normal(size=(len(sizes), 4)).repeat(sizes, axis=0)
    return ControlSet(vectors, names, attribute="group", similarity=similarity)


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(2, 8), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_gamma_equals_the_double_sums(seed: int, a: int, b: int, third: bool, general: bool) -> None:
    pool = small(seed, (a, b, 3) if third else (a, b), kernel if general else "cosine")
    result = separability(pool)
    sim = (lambda x, y: float(kernel(x[None], y[None])[0, 0])) if general else oracles.cosine
    labels = pool.labels.tolist()
    assert result.gamma == pytest.approx(oracles.gamma_pairs(pool.vectors, labels, False, sim), abs=1e-10)
    assert result.gamma_with_self == pytest.approx(
        oracles.gamma_pairs(pool.vectors, labels, True, sim), abs=1e-10
    )
    assert result.gamma == result.mu_same - result.mu_diff
    assert result.gamma_with_self == result.mu_same_with_self - result.mu_diff


def test_gamma_of_a_control_set_equals_the_double_sums() -> None:
    pool = small(1, (9, 7))
    control = select_random(pool, 7)
    T = [pool.vectors[control.rows(g, representatives=True)] for g in (0, 1)]
    rest = [pool.vectors[np.setdiff1d(pool.rows(g), control.rows(g, representatives=True))] for g in (0, 1)]
    gaps = [oracles.mean_pairs(rest[i], T[i]) - oracles.mean_pairs(rest[i], T[1 - i]) for i in (0, 1)]
    assert gamma_control(control) == pytest.approx(np.mean(gaps), abs=1e-10)
    own = [oracles.mean_within(T[i]) - oracles.mean_pairs(*T) for i in (0, 1)]
    assert gamma_control_own(control) == pytest.approx(np.mean(own), abs=1e-10)


def test_held_out_groups_by_name_or_position() -> None:
    pool, sample = small(2, (6, 6, 5)), small(3, (4, 3, 5))
    names = [sample.groups[g] for g in sample.labels]
    by_name = gamma_control(pool, sample.vectors, names)
    assert by_name == gamma_control(pool, sample.vectors, sample.labels)
    gaps = []
    for i in range(3):
        x, others = sample.vectors[sample.labels == i], pool.vectors[pool.labels != i]
        gaps.append(oracles.mean_pairs(x, pool.vectors[pool.labels == i]) - oracles.mean_pairs(x, others))
    assert by_name == pytest.approx(np.mean(gaps), abs=1e-10)


@needs_ppb
@pytest.mark.parametrize(
    ("attribute", "with_self", "without"), [("gender", 0.3544, 0.3531), ("skin_tone", 0.0842, 0.0827)]
)
def test_the_authors_gamma(attribute: str, with_self: float, without: float) -> None:
    result = separability(ppb(attribute))
    assert round(result.gamma_with_self, 4) == with_self
    assert round(result.gamma, 4) == without


@needs_ppb
def test_the_authors_bound_for_skin_tone() -> None:
    measured = separability(ppb("skin_tone"))
    bound = theorem(100, 500, measured.mu_same_with_self, measured.mu_diff)
    assert bound.delta == pytest.approx(2.562, abs=5e-4)
    assert bound.additive_error == pytest.approx(61.1, abs=0.05)
    assert "says nothing" in bound.remark


@needs_ppb
@pytest.mark.parametrize(
    ("attribute", "held_out", "own"), [("gender", 0.46, 0.60), ("skin_tone", 0.10, 0.14)]
)
def test_gamma_of_adaptive_control_sets(attribute: str, held_out: float, own: float) -> None:
    whole = ppb(attribute)
    names = np.array(whole.groups, dtype=object)[whole.labels]
    measured = []
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(whole))
        labelled, rest = order[:200], order[200:]
        pool = ControlSet(whole.vectors[labelled], names[labelled], attribute=attribute)
        control = select_adaptive(pool, 50, alpha=1.0)
        measured.append(
            (gamma_control(control, whole.vectors[rest], names[rest]), gamma_control_own(control))
        )
    assert np.mean(measured, axis=0) == pytest.approx([held_out, own], abs=0.03)


def test_theorem_as_printed() -> None:
    bound = theorem(50, 1000, mu_same=1.2, mu_diff=0.8)
    delta = math.sqrt(6 * math.log(20 * 1000) / (50 * 0.4))
    assert bound.delta == pytest.approx(delta)
    assert bound.additive_error == pytest.approx(delta * 2.0 / 0.4)
    assert bound.probability == pytest.approx(0.9 - 1 / 200_000)
    assert theorem(50, 1000, 1.2, 0.8, gamma=0.6).delta == pytest.approx(delta * math.sqrt(0.4 / 0.6))
    assert theorem(50, 1000, 1.2, 0.1).delta == pytest.approx(delta * math.sqrt(0.4 / 0.1))
    assert "worst-case" in bound.remark
    assert "worst-case" in theorem(10**7, 1000, 1.2, 0.8).remark


def test_theorem_where_the_groups_cannot_be_told_apart() -> None:
    bound = theorem(50, 1000, mu_same=0.9, mu_diff=0.9)
    assert math.isinf(bound.additive_error)
    assert "not separable" in bound.remark
    with pytest.raises(InputError, match="γ must be positive"):
        control_size(0.1, 1000, 0.9, 0.9)


@given(st.floats(0.01, 5), st.integers(1, 10**6), st.floats(0.1, 1), st.floats(0.01, 0.9))
def test_control_size_is_the_smallest_that_does(error: float, size: int, mu_diff: float, gap: float) -> None:
    needed = control_size(error, size, mu_diff + gap, mu_diff)
    assert needed % 2 == 0
    assert theorem(needed, size, mu_diff + gap, mu_diff).additive_error <= error * (1 + 1e-9)
    if needed > 2:
        assert theorem(needed - 2, size, mu_diff + gap, mu_diff).additive_error > error * (1 - 1e-9)


def test_lemma_probability() -> None:
    expected = 1 - 2 * math.exp(-0.25 * 0.8 * 300 / 6) * (1 + math.exp(-0.25 * 0.4 * 300 / 6))
    assert lemma_probability(0.5, 0.8, 0.4, 300) == pytest.approx(expected)
    assert lemma_probability(0.01, 0.8, 0.4, 10) == 0
    # The theorem's δ makes the union over |S| items hold with its probability.
    bound = theorem(100, 500, 1.2, 0.8)
    assert 500 * (1 - lemma_probability(bound.delta, 0.8, 0.4, 100)) <= 1 - bound.probability + 1e-9


def test_lemma_holds_for_drawn_control_sets() -> None:
    rng = np.random.default_rng(0)
    pool = small(4, (400, 400))
    result = separability(pool)
    delta, size = 0.6, 60
    share = []
    for seed in range(20):
        control = select_random(pool, size, seed=seed)
        x = pool.vectors[rng.choice(pool.rows(0), size=1)]
        T = [control.vectors[control.rows(g, representatives=True)] for g in (0, 1)]
        gap = oracles.mean_pairs(x, T[0]) - oracles.mean_pairs(x, T[1])
        share.append(abs(gap - result.gamma) <= delta * (result.mu_same + result.mu_diff))
    assert np.mean(share) >= lemma_probability(delta, result.mu_diff, result.gamma, size)


def test_bad_input() -> None:
    pool = small(5, (4, 4))
    with pytest.raises(InputError, match="no held-out example of group 'g0'"):
        gamma_control(pool)
    with pytest.raises(InputError, match="need the labels"):
        gamma_control(pool, pool.vectors)
    with pytest.raises(InputError, match="8 held-out vectors with 1"):
        gamma_control(pool, pool.vectors, ["g0"])
    with pytest.raises(InputError, match="unknown group"):
        gamma_control(pool, pool.vectors, ["x"] * 8)
    with pytest.raises(InputError, match="0 to 1"):
        gamma_control(pool, pool.vectors, [2] * 8)
    with pytest.raises(InputError, match="size_control = 0"):
        theorem(0, 10, 1.2, 0.8)
    with pytest.raises(InputError, match="delta"):
        lemma_probability(0, 0.8, 0.4, 10)
    with pytest.raises(InputError, match="additive_error"):
        control_size(0, 10, 1.2, 0.8)
