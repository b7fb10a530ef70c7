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
from divscore.control.similarity import FloatArray, unit_rows
from divscore.control.theory import (
    Reference,
    control_size,
    gamma_control,
    item_similarity,
    lemma_probability,
    mean_similarity,
    separability,
    similarity_sums,
    theorem,
)
from divscore.errors import InputError, MismatchError, VectorError

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


shapes = st.tuples(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(2, 9), st.integers(1, 12))


def pool(
    rng: np.random.Generator, sizes: tuple[int, ...], d: int, similarity: object = "cosine"
) -> ControlSet:
    names = np.repeat([f"g{i}" for i in range(len(sizes))], sizes)
    vectors = rng.normal(size=(sum(sizes), d)) + 2 * rng.normal(size=(len(sizes), d)).repeat(sizes, axis=0)
    mix = rng.permutation(len(names))
    return ControlSet(vectors[mix], names[mix], attribute="group", similarity=similarity)


def kernel_pair(x: FloatArray, y: FloatArray) -> float:
    return float(kernel(x[None], y[None])[0, 0])


def score(S: FloatArray, control: ControlSet) -> float:
    return Reference.of(control).score(item_similarity(S, control).mean(axis=0)).score


@given(shapes)
def test_cosine_equals_the_double_sums(shape: tuple[int, int, int, int]) -> None:
    seed, a, b, d = shape
    rng = np.random.default_rng(seed)
    control, S = pool(rng, (a, b), d + 1), rng.normal(size=(7, d + 1))
    T = [control.vectors[control.rows(g)] for g in (0, 1)]
    reference = Reference.of(control)
    assert reference.u == pytest.approx([oracles.mean_within(t) for t in T], abs=1e-10)
    assert reference.lower == pytest.approx([oracles.mean_pairs(*T)] * 2, abs=1e-10)
    similarity = mean_similarity(unit_rows(S).mean(axis=0), control)
    assert similarity == pytest.approx([oracles.mean_pairs(S, t) for t in T], abs=1e-10)
    assert similarity == pytest.approx(item_similarity(S, control).mean(axis=0), abs=1e-10)
    if min(map(abs, reference.gap)) > 1e-3:
        expected = oracles.algorithm_1(S, *T)
        assert reference.score(similarity).score == pytest.approx(expected, rel=1e-9, abs=1e-10)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_any_similarity_equals_the_double_sums(shape: tuple[int, int, int, int]) -> None:
    seed, a, b, d = shape
    rng = np.random.default_rng(seed)
    control, S = pool(rng, (a, b), d, kernel), rng.normal(size=(5, d))
    T = [control.vectors[control.rows(g)] for g in (0, 1)]
    reference = Reference.of(control)
    assert reference.u == pytest.approx([oracles.mean_within(t, kernel_pair) for t in T], abs=1e-10)
    assert reference.lower == pytest.approx([oracles.mean_pairs(*T, kernel_pair)] * 2, abs=1e-10)
    assert item_similarity(S, control).mean(axis=0) == pytest.approx(
        [oracles.mean_pairs(S, t, kernel_pair) for t in T], abs=1e-10
    )


@given(shapes, st.sampled_from(["cosine", kernel]))
def test_swapping_the_groups_negates_exactly(shape: tuple[int, int, int, int], similarity: object) -> None:
    seed, a, b, d = shape
    rng = np.random.default_rng(seed)
    control, S = pool(rng, (a, b), d + 1, similarity), rng.normal(size=(6, d + 1))
    swapped = control.with_order(control.groups[::-1])
    assert score(S, swapped) == -score(S, control)
    assert Reference.of(swapped).gap_error == Reference.of(control).gap_error[::-1]


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
    control = pool(rng, (5, 4), 3, kernel)
    control = control.with_representatives([*control.rows(0)[:3], *control.rows(1)[1:]])
    S = rng.normal(size=(8, 3))
    expected = item_similarity(S, control).mean(axis=0)
    state = kernel(S, control.vectors[control.representative]).mean(axis=0)
    assert mean_similarity(state, control) == pytest.approx(expected, abs=1e-12)


def test_more_than_two_groups() -> None:
    rng = np.random.default_rng(2)
    control, S = pool(rng, (4, 6, 3), 5), rng.normal(size=(10, 5))
    T = [control.vectors[control.rows(g)] for g in range(3)]
    reference = Reference.of(control)
    for i in range(3):
        others = np.concatenate([T[j] for j in range(3) if j != i])
        assert reference.lower[i] == pytest.approx(oracles.mean_pairs(T[i], others), abs=1e-12)
    result = reference.score(item_similarity(S, control).mean(axis=0))
    assert result.score == max(result.s) - min(result.s)


def test_score_is_one_number_per_composition() -> None:
    # On the control set's own group means Algorithm 1 is linear in the share, and may leave [−1, 1].
    control = ControlSet(np.eye(4)[[0, 0, 1, 1]], ["a", "a", "b", "b"], attribute="letter")
    for share in (0.0, 0.3, 1.0):
        mean = np.array([share, 1 - share, 0, 0])
        result = Reference.of(control).score(mean_similarity(mean, control))
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
        assert Reference.of(control).gap_error[i] == pytest.approx(math.sqrt(variance), abs=1e-12)


def test_noisy_where_the_groups_are_alike() -> None:
    rng = np.random.default_rng(4)
    alike = ControlSet(rng.normal(size=(40, 20)), ["a", "b"] * 20, attribute="letter")
    apart = pool(rng, (20, 20), 20)
    two = ControlSet(np.eye(4), ["a", "a", "b", "b"], attribute="letter")
    assert any(Reference.of(alike).noisy)
    assert Reference.of(apart).noisy == (False, False)
    assert Reference.of(two).noisy == (True, True)


def test_no_gap_gives_no_number() -> None:
    control = ControlSet(np.ones((4, 2)), ["a", "a", "b", "b"], attribute="letter")
    reference = Reference.of(control)
    flat = Reference((1.0, 1.0), (1.0, 1.0), (0.0, 0.0))
    assert any(reference.noisy)
    assert math.isnan(flat.score(np.array([1.0, 1.0])).score)


def test_blocks_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    control = pool(np.random.default_rng(5), (9, 8), 3, kernel)
    whole = similarity_sums(control, np.arange(17))
    monkeypatch.setattr("divscore.control.theory.BLOCK", 4)
    assert similarity_sums(control, np.arange(17)) == pytest.approx(whole, abs=1e-12)


def test_wrong_shapes() -> None:
    control = ControlSet(np.eye(4), ["a", "a", "b", "b"], attribute="letter")
    with pytest.raises(VectorError, match=r"shape \(3,\), expected \(4,\)"):
        mean_similarity(np.zeros(3), control)
    with pytest.raises(VectorError, match="have 3 dimensions, the control set's 4"):
        item_similarity(np.eye(3), control)
    with pytest.raises(MismatchError, match="3 mean similarities for 2 groups"):
        Reference.of(control).score(np.ones(3))


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(2, 8), st.booleans(), st.booleans())
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
    assert Reference.of(control).gamma == pytest.approx(np.mean(own), abs=1e-10)


def test_gamma_on_held_out_examples_of_three_groups() -> None:
    pool, sample = small(2, (6, 6, 5)), small(3, (4, 3, 5))
    names = [sample.groups[g] for g in sample.labels]
    measured = gamma_control(pool, sample.vectors, names)
    gaps = []
    for i in range(3):
        x, others = sample.vectors[sample.labels == i], pool.vectors[pool.labels != i]
        gaps.append(oracles.mean_pairs(x, pool.vectors[pool.labels == i]) - oracles.mean_pairs(x, others))
    assert measured == pytest.approx(np.mean(gaps), abs=1e-10)


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
            (gamma_control(control, whole.vectors[rest], names[rest]), Reference.of(control).gamma)
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


def test_theorem_where_the_groups_cannot_be_told_apart() -> None:
    bound = theorem(50, 1000, mu_same=0.9, mu_diff=0.9)
    assert math.isinf(bound.additive_error)
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
    with pytest.raises(InputError, match="need the names of their groups"):
        gamma_control(pool, pool.vectors)
    with pytest.raises(InputError, match="8 held-out vectors with 1"):
        gamma_control(pool, pool.vectors, ["g0"])
    with pytest.raises(InputError, match="unknown group"):
        gamma_control(pool, pool.vectors, ["x"] * 8)
    with pytest.raises(InputError, match="size_control = 0"):
        theorem(0, 10, 1.2, 0.8)
    with pytest.raises(InputError, match="delta"):
        lemma_probability(0, 0.8, 0.4, 10)
    with pytest.raises(InputError, match="additive_error"):
        control_size(0, 10, 1.2, 0.8)
