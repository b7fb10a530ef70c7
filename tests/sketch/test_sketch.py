from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import oracles
import pytest
from conftest import draw_groups
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sketches import (
    GROUPS,
    SEEDS,
    D,
    assert_same_audit,
    assert_same_state,
    audited_laws,
    control_of,
    items,
    laws,
    lowered,
    merged,
    on_threads,
    overlap,
    pieces,
    sketch_of,
    spoilt,
)

from divscore.audit.audit import audit as audit_collection
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, unit_rows
from divscore.errors import InputError, MismatchError
from divscore.sketch import scorer as scorer_module
from divscore.sketch.many import sketch_blocks
from divscore.sketch.sample import ITEMS
from divscore.sketch.scorer import Grid, scorer_for
from divscore.sketch.sketch import JOINT_ITEMS, SKIPS, Sketch

# The laws hold for the numbers, whatever their trust.
audit = partial(audit_collection, show_untrusted=True)


@given(SEEDS, st.integers(0, 120), GROUPS)
@laws
def test_the_empty_sketch_is_the_identity(seed: int, n: int, groups: int) -> None:
    control = control_of(groups)
    sketch = sketch_of(control, spoilt(seed, n, groups))
    assert_same_state(merged([sketch, Sketch(control)]), sketch, tolerance=0)
    assert_same_state(merged([Sketch(control), sketch]), sketch, tolerance=0)


@given(SEEDS, st.integers(0, 120), st.integers(0, 120), st.integers(0, 120), GROUPS)
@laws
def test_merge_is_commutative_and_associative(seed: int, n: int, m: int, o: int, groups: int) -> None:
    control = control_of(groups)
    a, b, c = (
        sketch_of(control, spoilt(seed + i, size, groups)) for i, size in enumerate((n, m, o), start=1)
    )
    assert_same_state(merged([a, b]), merged([b, a]), tolerance=0)
    assert_same_state(merged([merged([a, b]), c]), merged([a, merged([b, c])]))


@given(SEEDS, st.integers(0, 150), st.integers(0, 150), GROUPS)
@laws
def test_add_then_remove_restores(seed: int, n: int, m: int, groups: int) -> None:
    control = control_of(groups)
    before = sketch_of(control, spoilt(seed, n, groups))
    extra = spoilt(seed + 1, m, groups)
    after = before.copy()
    after.add(extra)
    for part in pieces(extra[::-1], seed, 3):
        after.remove(part)
    assert_same_state(after, before)


def test_removing_everything_leaves_an_empty_sketch() -> None:
    rows = spoilt(3, 200)
    sketch = sketch_of(control_of(2), rows)
    sketch.remove(rows)
    assert_same_state(sketch, Sketch(control_of(2)), tolerance=0)
    with pytest.raises(InputError, match="empty"):
        _ = sketch.mean


@given(SEEDS, st.integers(20, 400), GROUPS, st.integers(1, 6), st.sampled_from([1, 2]))
@audited_laws
def test_any_split_gives_the_same_answer(seed: int, n: int, groups: int, parts: int, workers: int) -> None:
    control, rows = control_of(groups), items(seed, n, groups)
    whole = sketch_of(control, rows)
    batched = sketch_of(control, *pieces(rows, seed, parts), workers=workers)
    apart = [sketch_of(control, part) for part in pieces(rows, seed + 1, parts)]
    assert_same_state(batched, whole)
    assert_same_state(merged(apart), whole)
    assert_same_state(merged(apart[::-1]), whole)
    assert_same_audit(audit(merged(apart), control), audit(rows, control))


@given(SEEDS, st.integers(20, 400), GROUPS)
@audited_laws
def test_the_order_of_items_does_not_matter(seed: int, n: int, groups: int) -> None:
    control, rows = control_of(groups), spoilt(seed, n, groups)
    mixed = rows[np.random.default_rng(seed).permutation(n)]
    assert_same_state(sketch_of(control, mixed), sketch_of(control, rows))
    assert_same_audit(audit(mixed, control), audit(rows, control))


@given(SEEDS, st.integers(20, 300), GROUPS)
@audited_laws
def test_single_and_double_precision_agree(seed: int, n: int, groups: int) -> None:
    control, rows = control_of(groups), items(seed, n, groups)
    narrow = rows.astype(np.float32)
    assert_same_state(sketch_of(control, narrow), sketch_of(control, narrow.astype(float)), tolerance=0)
    # Rounding the vectors moves a few scores by one of 2049 steps (65 a score with three groups or more).
    left, right = audit(narrow, control), audit(rows, control)
    assert left.disparity == pytest.approx(right.disparity, abs=1e-3 if groups == 2 else 1e-2)
    assert left.divscore == pytest.approx(right.divscore, abs=1e-5)


def test_memory_layout_does_not_matter() -> None:
    control, rows = control_of(2), items(0, 300)
    wide = np.zeros((300, 2 * D))
    wide[:, ::2] = rows
    expected = sketch_of(control, rows)
    for other in (np.asfortranarray(rows), wide[:, ::2], rows[::-1][::-1], rows.tolist()):
        assert_same_state(sketch_of(control, other), expected)


@given(SEEDS, st.integers(10, 300), GROUPS, st.integers(2, 4))
@audited_laws
def test_duplicating_every_item_changes_no_estimate(seed: int, n: int, groups: int, times: int) -> None:
    control, rows = control_of(groups), items(seed, n, groups)
    left, right = audit(np.repeat(rows, times, axis=0), control), audit(rows, control)
    assert left.count == times * right.count
    assert left.disparity == pytest.approx(right.disparity, abs=1e-9)
    assert left.shares == pytest.approx(right.shares, abs=1e-9)
    assert left.divscore == pytest.approx(right.divscore, abs=1e-9)


@given(SEEDS, st.integers(20, 300), st.floats(0.3, 3), st.booleans())
@laws
def test_swapping_the_groups_mirrors_exactly(seed: int, n: int, gap: float, population: bool) -> None:
    vectors, names = draw_groups(seed, [14, 11], gap=gap)
    rows = items(seed + 1, n)
    other = {"a": "b", "b": "a"}
    control = ControlSet(vectors, names, attribute="letter")
    result = audit(rows, control, population=population)
    reordered = audit(
        rows, ControlSet(vectors, names, attribute="letter", order=("b", "a")), population=population
    )
    presented = audit(rows, control.with_order(("b", "a")), population=population)
    renamed = audit(
        rows, ControlSet(vectors, [other[x] for x in names], attribute="letter"), population=population
    )
    for swapped in (reordered, presented, renamed):
        np.testing.assert_equal(
            swapped.disparity, -result.disparity
        )  # NaN where the groups are not separable
        assert swapped.divscore == -result.divscore
        assert swapped.interval == result.interval.mirrored()
        assert swapped.trust == result.trust
    for name in control.groups:
        np.testing.assert_equal(reordered.shares[name], result.shares[name])
        np.testing.assert_equal(renamed.shares[other[name]], result.shares[name])
        assert reordered.share_intervals[name] == result.share_intervals[name]
        assert renamed.share_intervals[other[name]] == result.share_intervals[name]


@pytest.mark.slow
@given(SEEDS, st.permutations(["a", "b", "c"]))
@audited_laws
def test_the_order_of_three_groups_changes_nothing(seed: int, order: list[str]) -> None:
    control, rows = control_of(3), items(seed, 200, 3)
    left, right = audit(rows, control.with_order(order)), audit(rows, control)
    assert tuple(left.shares) == tuple(order)
    assert left.shares == right.shares
    assert left.share_intervals == right.share_intervals
    assert (left.disparity, left.interval) == (right.disparity, right.interval)
    assert left.divscore == pytest.approx(right.divscore, abs=1e-12)


def test_a_seed_reproduces_the_interval_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = items(5, 300)
    vectors, names = draw_groups(6, [15, 15])
    first = audit(rows, ControlSet(vectors, names, attribute="letter"), seed=7)
    monkeypatch.setattr(scorer_module, "_SCORERS", {})  # nothing is cached: all is fitted again
    again = audit(rows, ControlSet(vectors, names, attribute="letter"), seed=7)
    other = audit(rows, ControlSet(vectors, names, attribute="letter"), seed=8)
    assert (again.disparity, again.interval) == (first.disparity, first.interval)
    assert again.to_dict() == first.to_dict()
    assert other.disparity == first.disparity
    assert other.interval != first.interval


def test_sketches_of_other_seeds_or_control_sets_do_not_merge() -> None:
    rows = items(0, 50)
    sketch = sketch_of(control_of(2), rows)
    kept = sketch.copy()
    with pytest.raises(MismatchError, match=r"different seeds \(0 and 1\)"):
        sketch.merge(sketch_of(control_of(2), rows, seed=1))
    with pytest.raises(MismatchError, match="different control sets"):
        sketch.merge(sketch_of(control_of(3), rows))
    assert_same_state(sketch, kept, tolerance=0)


@given(SEEDS, st.integers(0, 100), GROUPS)
@laws
def test_removing_what_was_never_added_is_refused(seed: int, n: int, groups: int) -> None:
    control, rows = control_of(groups), spoilt(seed, n, groups)
    sketch = sketch_of(control, rows)
    kept = sketch.copy()
    with pytest.raises(InputError, match="nothing was removed"):
        sketch.remove(items(seed + 1, 5, groups))
    with pytest.raises(InputError, match="nothing was removed"):
        sketch.remove(np.concatenate([rows, rows, np.ones((1, D))]))
    with pytest.raises(InputError, match="nothing was removed"):
        sketch.remove(np.zeros((n + 1, D)))
    assert_same_state(sketch, kept, tolerance=0)


def test_a_copy_is_independent() -> None:
    sketch = sketch_of(control_of(2), items(0, 80))
    kept, clone = sketch.copy(), sketch.copy()
    clone.add(items(1, 40))
    clone.skip("unreadable", 3)
    assert_same_state(sketch, kept, tolerance=0)
    assert clone.count == 120
    assert clone.skipped["unreadable"] == 3


@pytest.mark.parametrize("groups", [2, 3])
def test_a_large_block_in_single_precision(groups: int) -> None:
    vectors, names = draw_groups(0, [20] * groups, d=20)
    control = ControlSet(vectors, names, attribute="letter")
    rows = items(1, 70_000, groups, d=20).astype(np.float32)
    rows[::1000] *= np.float32(1e25)
    rows[5], rows[7, 3] = 0.0, np.nan
    usable = np.delete(rows, [5, 7], axis=0)
    whole, threaded = sketch_of(control, rows), sketch_of(control, rows, workers=2)
    assert_same_state(threaded, whole, tolerance=0)
    np.testing.assert_allclose(whole.mean, unit_rows(usable).mean(axis=0), rtol=0, atol=1e-9)
    batched = merged(sketch_of(control, part) for part in np.array_split(rows, 9))  # in double precision
    assert_same_state(batched, whole, tolerance=1e-9 * whole.count)
    assert_same_audit(audit(batched, control), audit(whole, control))
    assert whole.skipped == {"zero": 1, "nonfinite": 1, "unreadable": 0, "empty": 0}


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("owners", [1, 5, 64, 150])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_several_sketches_in_one_pass(groups: int, owners: int, dtype: type) -> None:
    control, rows = control_of(groups), spoilt(owners, 9000, groups).astype(dtype)
    # The last collection gets nothing.
    owner = np.random.default_rng(0).integers(max(owners - 1, 1), size=len(rows))
    together = by_collection(
        control, owners, [(rows[:6000], owner[:6000], 1), (rows[6000:], owner[6000:], 2)]
    )
    for at in (*range(min(owners, 5)), owners - 1):
        assert_same_state(together[at], sketch_of(control, rows[owner == at]))
    assert sum(sketch.count for sketch in together) == sketch_of(control, rows).count
    together[0].remove(rows[:6000][owner[:6000] == 0])
    rest = sketch_of(control, rows[6000:][owner[6000:] == 0])
    assert_same_state(together[0], lowered(rest, together[0]))


def by_collection(
    control: ControlSet, owners: int, blocks: list[tuple[NDArray[Any], NDArray[np.intp], int]]
) -> list[Sketch]:
    names, scorer = [str(number) for number in range(owners)], scorer_for(control)
    stream = [(rows, (names, owner)) for rows, owner, _ in blocks]
    table = sketch_blocks(stream, control, scorer, mapper=on_threads(max(workers for *_, workers in blocks)))
    table.positions(names)  # those without rows too
    sketches = table.sketches(control, scorer)
    return [sketches[name] for name in names]


def test_several_sketches_of_a_large_block_in_single_precision() -> None:
    control, rows = control_of(2), spoilt(1, 40_000).astype(np.float32)
    owner = np.random.default_rng(0).integers(3, size=len(rows))
    together = by_collection(control, 3, [(rows, owner, 1)])
    for at in range(3):
        apart = sketch_of(control, rows[owner == at])
        # Single precision for the batch as a whole: a part of it is summed a little less precisely.
        assert_same_state(together[at], apart, tolerance=1e-8 * apart.count)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("left", [40, 300])
def test_after_a_large_removal_the_right_reason_is_given(groups: int, left: int) -> None:
    control = control_of(groups)
    gone, rest = items(1, 60_000, groups), items(2, left, groups)
    sketch = merged([sketch_of(control, gone), sketch_of(control, rest)])
    sketch.subtract(sketch_of(control, gone))
    assert sketch.count == left
    assert sketch.thinned
    told = audit(sketch, control)
    assert math.isnan(told.disparity)
    assert told.trust == "poor"
    said = " ".join(told.warnings)
    assert "many items were removed from this sketch" in said
    assert f"of the {left} that remain only {len(sketch.sample)} are in the sample" in said
    assert "copies" not in said
    copies = sketch_of(control, np.repeat(rest[:1], 20_000, axis=0))
    assert not copies.thinned
    assert "many copies of very few different items" in " ".join(audit(copies, control).warnings)
    a_few = merged([sketch_of(control, gone[:200]), sketch_of(control, rest)])
    a_few.subtract(sketch_of(control, gone[:200]))
    assert not a_few.thinned
    assert math.isfinite(audit(a_few, control).disparity)


def overlap_pair(x: FloatArray, y: FloatArray) -> float:
    return float(overlap(x[None], y[None])[0, 0])


@given(SEEDS, st.integers(5, 20), st.booleans(), st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_any_similarity_equals_the_double_sums(seed: int, n: int, general: bool, parts: int) -> None:
    vectors, names = draw_groups(seed, [6, 5], d=4)
    control = ControlSet(vectors, names, attribute="letter", similarity=overlap if general else "cosine")
    control = control.with_representatives([*control.rows(0)[:4], *control.rows(1)[1:]])
    rows, pair = items(seed + 1, n, d=4), overlap_pair if general else oracles.cosine
    sketch = sketch_of(control, *pieces(rows, seed, parts))
    sketch.add(rows)
    sketch.remove(rows)
    T = [control.vectors[control.rows(g, representatives=True)] for g in (0, 1)]
    result = audit(sketch, control)
    # The scale of the score is 1 / (u − l), and so is that of its rounding.
    gaps = [oracles.mean_within(t, pair) - oracles.mean_pairs(*T, pair) for t in T]
    scale = max(1.0, *(1 / abs(gap) for gap in gaps))
    assert result.divscore == pytest.approx(oracles.algorithm_1(rows, *T, pair), rel=1e-10, abs=1e-10 * scale)
    if general:
        means = [oracles.mean_pairs(rows, t[None], pair) for t in control.vectors[control.representative]]
        assert sketch.similarity_total / sketch.count == pytest.approx(means, abs=1e-10)


def test_a_similarity_that_fails_leaves_the_sketch_unchanged() -> None:
    def dot(A: FloatArray, B: FloatArray) -> FloatArray:
        return A @ B.T

    rng = np.random.default_rng(0)
    positive = rng.uniform(size=(20, D))
    control = ControlSet(positive, ["a", "b"] * 10, attribute="letter", similarity=dot)
    sketch = sketch_of(control, rng.uniform(size=(30, D)))
    kept = sketch.copy()
    with pytest.raises(InputError, match="expected numbers ≥ 0"):
        sketch.add(-positive)
    assert_same_state(sketch, kept, tolerance=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [2, 3])
def test_the_length_of_a_vector_does_not_matter(dtype: type, groups: int) -> None:
    control, rows = control_of(groups), items(2, 400, groups).astype(dtype)
    reach = 110 if dtype is np.float32 else 1000
    powers = np.random.default_rng(3).integers(-reach, reach, size=len(rows))
    scaled = np.ldexp(rows, powers[:, None])
    assert np.isfinite(scaled).all()
    assert scaled.dtype == dtype
    left, right = sketch_of(control, scaled), sketch_of(control, rows)
    assert left.count == right.count == 400
    np.testing.assert_allclose(left.total, right.total, rtol=0, atol=1e-9)
    tolerance = 1e-3 if groups == 2 else 1e-2  # rescaling rounds anew: a few scores move by a step
    assert audit(left, control).disparity == pytest.approx(audit(right, control).disparity, abs=tolerance)
    left.remove(scaled)
    assert left.count == 0


@pytest.mark.parametrize(("dtype", "huge", "tiny"), [(np.float32, 1e30, 1e-30), (np.float64, 1e200, 1e-200)])
def test_extreme_rows_are_scaled_and_bad_ones_counted(dtype: type, huge: float, tiny: float) -> None:
    control = control_of(2)
    rows = np.ones((9, D), dtype=dtype)
    rows[1, 0] = np.nan
    rows[2, 1] = np.inf
    rows[3, :2] = -np.inf, np.nan
    rows[4] = 0.0
    rows[5] = -0.0
    rows[6] = huge
    rows[7] = tiny
    rows[8], rows[8, 0] = tiny, huge
    sketch = sketch_of(control, rows)
    assert sketch.count == 4
    assert sketch.skipped == {"zero": 2, "nonfinite": 3, "unreadable": 0, "empty": 0}
    expected = 3 * np.ones(D) / np.sqrt(D) + np.eye(D)[0]
    np.testing.assert_allclose(sketch.total, expected, rtol=0, atol=1e-9)
    # Ones, huge and tiny ones point the same way and fall into the same cell.
    assert sorted(sketch.scores()[1].tolist()) == [1, 3]
    sketch.remove(rows)
    assert_same_state(sketch, Sketch(control), tolerance=0)


def test_the_smallest_and_largest_numbers() -> None:
    control = control_of(2)
    small, large = np.finfo(float).smallest_subnormal, np.finfo(float).max
    rows = np.vstack([np.full(D, small), np.full(D, large), np.full(D, -large)])
    sketch = sketch_of(control, rows)
    assert sketch.count == 3
    np.testing.assert_allclose(sketch.total, np.full(D, D**-0.5), rtol=0, atol=1e-12)


def test_integers_and_booleans_are_vectors_too() -> None:
    control = control_of(2)
    rows = np.random.default_rng(0).integers(0, 2, size=(50, D))
    rows[:, 0] = 1
    expected = sketch_of(control, rows.astype(float))
    for dtype in (np.int8, np.uint64, bool, np.float16):
        assert_same_state(sketch_of(control, rows.astype(dtype)), expected, tolerance=0)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [2, 4])
def test_bounded_samples_of_large_collections(groups: int) -> None:
    control = control_of(groups)
    left, right = items(1, 45_000, groups), items(2, 45_000, groups)
    whole = sketch_of(control, np.concatenate([left, right]))
    apart = merged([sketch_of(control, left), sketch_of(control, right)])
    batched = sketch_of(control, *np.array_split(np.concatenate([right, left]), 4))
    assert len(whole.sample) == ITEMS
    assert not whole.sample.complete
    assert whole.scores()[1].sum() == (90_000 if groups == 2 else JOINT_ITEMS)
    for other in (apart, batched):
        assert_same_state(other, whole, tolerance=1e-9 * whole.count)
        assert_same_audit(audit(other, control), audit(whole, control))


def test_a_bounded_sample_after_removal() -> None:
    control = control_of(3)
    kept, gone = items(1, 50_000, 3), items(2, 30_000, 3)
    sketch = sketch_of(control, kept, gone)
    sketch.remove(gone)
    fresh = sketch_of(control, kept)
    assert sketch.count == fresh.count
    # The limit stays; what is left is what `kept` alone leaves below it.
    assert len(sketch.scores()[0]) < len(fresh.scores()[0])
    assert_same_state(sketch, lowered(fresh, sketch), tolerance=1e-9 * sketch.count)
    # Half of 50,000 items estimates a share to within 5 σ = 5 · ½ / √25,000, rounded up.
    assert audit(sketch, control).shares == pytest.approx(audit(kept, control).shares, abs=0.025)


@pytest.mark.parametrize("groups", [2, 3])
def test_many_copies_of_few_items_claim_no_certainty(groups: int) -> None:
    control, few = control_of(groups), items(4, 30, groups)
    once = audit(few, control).interval
    often = audit(np.repeat(few, 3000, axis=0), control).interval
    # The control set's error, which is most of the interval, does not shrink with copies.
    assert often.width > once.width / 4


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("different", [1, 2, 4])
@pytest.mark.parametrize("copies", [10, 20_000])
def test_nothing_is_said_about_copies_of_fewer_than_five_items(
    groups: int, different: int, copies: int
) -> None:
    control, few = control_of(groups), items(4, different, groups)
    result = audit(np.repeat(few, copies, axis=0), control)
    assert math.isnan(result.disparity)
    assert math.isnan(result.divscore)
    assert result.trust == "poor"
    assert result.interval.method == "cannot tell"
    if different * copies >= 20:
        assert "many copies of very few different items" in " ".join(result.warnings)


@pytest.mark.parametrize("groups", [2, 3])
def test_one_item_that_is_most_of_a_large_collection(groups: int) -> None:
    control, rest = control_of(groups), items(1, 5_000, groups)
    for one in items(2, 4, groups)[:, None]:  # four hashes, most of which are not in the sample
        sketch = sketch_of(control, rest, np.repeat(one, 20_000, axis=0))
        assert sketch.few_distinct
        result = audit(sketch, control)
        assert math.isnan(result.disparity)
        assert "many copies of very few different items" in " ".join(result.warnings)
    twice = sketch_of(control, rest, rest, rest[:500])
    assert not twice.few_distinct


@pytest.mark.parametrize(("scores", "half"), [(1, 1024), (2, 32), (11, 7)])
def test_steps_stand_for_scores(scores: int, half: int) -> None:
    rng = np.random.default_rng(0)
    grid = Grid(rng.uniform(0.5, 2, size=scores), half)
    values = rng.uniform(-1, 1, size=(500, scores)) * grid.reach
    steps = grid.steps(values)
    assert steps.min() >= 0
    assert steps.max() <= 2 * half
    assert np.abs(grid.scores(steps) - values).max() <= (grid.reach / half).max() / 2 + 1e-12
    np.testing.assert_array_equal(grid.steps(grid.scores(steps)), steps)
    np.testing.assert_array_equal(grid.steps(1e6 * values), grid.steps(np.sign(values) * grid.reach))
    mirrored = grid.scores(grid.steps(-values))
    np.testing.assert_allclose(mirrored, -grid.scores(steps))


def test_skips_are_known_kinds() -> None:
    sketch = Sketch(control_of(2))
    assert tuple(sketch.skipped) == SKIPS
    assert repr(sketch) == "<Sketch of 0 items, letter>"
    with pytest.raises(KeyError):
        sketch.skip("other")
