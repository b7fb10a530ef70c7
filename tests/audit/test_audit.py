from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from conftest import Draw, MakeControl, draw_groups
from scipy import stats

from divscore.audit.audit import ESTIMATORS, Audit, audit
from divscore.audit.planning import plan
from divscore.audit.trust import FEW_ITEMS, control_facts, coverage
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.control.similarity import FloatArray
from divscore.errors import ControlError, InputError, MismatchError, VectorError
from divscore.estimators.iid import clopper_pearson, iid
from divscore.estimators.interval import Interval, from_replicates
from divscore.estimators.self_training import self_training
from divscore.sketch.sketch import Sketch
from divscore.text import printable

ENTRY = {
    "name", "count", "skipped", "shares", "disparity", "interval", "divscore", "trust", "diagnostics", "warnings"
}  # fmt: skip
DIAGNOSTICS = {"relevance", "relevance_p", "score_fit", "score_fit_p", "skipped_shift", "theorem_error"}


@pytest.fixture(scope="module")
def control() -> ControlSet:
    vectors, names = draw_groups(0, [40, 40], gap=2.5)
    return ControlSet(vectors, names, attribute="letter")


@pytest.fixture(scope="module")
def collection() -> FloatArray:
    """300 "a" and 100 "b": d = 0.5."""
    return draw_groups(1, [300, 100], gap=2.5)[0]


def labelled_part(counts: tuple[int, int] = (45, 15)) -> tuple[FloatArray, list[str]]:
    vectors, names = draw_groups(2, counts, gap=2.5)
    return vectors, list(names)


def noise(rng: np.random.Generator, n: int, d: int = 20) -> ControlSet:
    return ControlSet(rng.normal(size=(n, d)), rng.permutation(["a", "b"] * (n // 2)), attribute="letter")


def assert_plain(result: Audit) -> dict[str, Any]:
    """The entry of DESIGN's JSON document, without NaN or infinity."""
    entry = result.to_dict()
    assert set(entry) >= ENTRY
    assert set(entry["diagnostics"]) >= DIAGNOSTICS
    assert set(entry["skipped"]) == {"zero", "nonfinite", "unreadable"}
    assert list(entry["shares"]) == list(result.control.groups)
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    low, high = entry["interval"]
    assert -1 <= low <= high <= 1
    return entry


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_by_name(estimator: str, control: ControlSet, collection: FloatArray) -> None:
    sample = labelled_part() if estimator in ("iid", "rectified") else None
    result = audit(collection, control, estimator=estimator, sample=sample, name="mine", seed=3)
    entry = assert_plain(result)
    assert (result.estimator, result.name, result.seed, result.count) == (estimator, "mine", 3, 400)
    assert entry["name"] == "mine"
    assert sum(result.shares.values()) == pytest.approx(1)
    # Groups 3.5 σ apart: even Algorithm 1 gets the sign and the size.
    assert result.disparity == pytest.approx(0.5, abs=0.25)
    assert result.interval.low <= result.disparity <= result.interval.high
    assert 0.5 in result.interval
    if estimator != "divscore":
        first, second = result.shares.values()
        assert first - second == pytest.approx(result.disparity)
    assert result.divscore == audit(collection, control).divscore


def test_the_estimator_is_as_good_as_labelling(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control)
    assert result.disparity == pytest.approx(0.5, abs=0.06)
    assert result.interval.width < 0.3
    assert result.interval.level == result.confidence == 0.95
    assert result.trust == "good"
    assert result.warnings == ()
    assert (result.most, result.least) == ("a", "b")


def test_self_training_is_algorithm_3(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control, estimator="self-training")
    assert result.disparity == self_training(collection, control).disparity
    assert (result.interval.low, result.interval.high) == (-1, 1)
    assert "no interval" in result.interval.method
    blocks = audit(iter(np.array_split(collection, 3)), control, estimator="self-training")
    assert blocks.disparity == result.disparity
    spoilt = np.vstack([collection, np.zeros(8), np.full(8, np.nan)])
    skipped = audit(spoilt, control, estimator="self-training")
    assert skipped.disparity == result.disparity
    assert skipped.skipped == {"zero": 1, "nonfinite": 1, "unreadable": 0}


def test_divscore_carries_the_theorem(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control, estimator="divscore")
    assert result.disparity == result.divscore
    assert "Theorem 3.3" in result.interval.method
    assert result.interval.level == pytest.approx(0.9, abs=1e-3)
    assert result.diagnostics.theorem_error > 1


def test_options_that_do_not_exist(control: ControlSet, collection: FloatArray) -> None:
    with pytest.raises(InputError, match="unknown estimator 'magic'; choose one of likelihood, divscore"):
        audit(collection, control, estimator="magic")
    for confidence in (0.0, 0.49, 1.0, 95, -1, math.nan):
        with pytest.raises(InputError, match=r"confidence .* must be at least 0\.5 and below 1"):
            audit(collection, control, confidence=confidence)
    with pytest.raises(InputError, match="unknown target 'world'; choose 'collection' or 'population'"):
        audit(collection, control, target="world")
    for estimator in ("iid", "rectified"):
        with pytest.raises(InputError, match=f"'{estimator}' needs a labelled random sample"):
            audit(collection, control, estimator=estimator)


def test_headlines(
    control: ControlSet, collection: FloatArray, make_control: MakeControl, draw: Draw
) -> None:
    limits = audit(collection, control).share_intervals["a"]
    expected = (
        f"Between {limits.low:.0%} and {limits.high:.0%} of these 400 items are a (an even split is 50%)."
    )
    assert audit(collection, control).headline == expected
    three = audit(draw(1, [20, 50, 200], gap=4)[0], make_control(0, [20, 20, 20], gap=4))
    assert "of these 270 items are c (an even split is 33%)" in three.headline


@pytest.mark.parametrize("seed", range(5))
def test_random_labels_cannot_tell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    result = audit(rng.normal(size=(300, 20)), noise(rng, 60))
    entry = assert_plain(result)
    assert math.isnan(result.disparity)
    assert entry["disparity"] is None
    assert entry["shares"] == {"a": None, "b": None}
    assert (result.interval.low, result.interval.high, result.interval.method) == (-1, 1, "cannot tell")
    assert result.trust == "poor"
    assert result.headline == "Cannot tell how letter is distributed among these 300 items."
    assert any(w.startswith("cannot tell: the 60 labelled examples do not separate") for w in result.warnings)


def test_three_groups_of_random_labels_cannot_tell() -> None:
    rng = np.random.default_rng(0)
    pool = ControlSet(rng.normal(size=(60, 20)), ["a", "b", "c"] * 20, attribute="letter")
    result = audit(rng.normal(size=(300, 20)), pool)
    entry = assert_plain(result)
    assert (result.interval.low, result.interval.high) == (0, 1)
    assert result.trust == "poor"
    assert "most" not in entry


def test_few_items(control: ControlSet, collection: FloatArray) -> None:
    few = audit(collection[: FEW_ITEMS - 1], control)
    assert few.trust == "poor"
    assert few.headline.startswith("Cannot tell")
    assert any(f"{FEW_ITEMS - 1} items are too few; at least {FEW_ITEMS}" in w for w in few.warnings)
    enough = audit(collection[:FEW_ITEMS], control)
    assert not any("too few" in w for w in enough.warnings)
    assert audit(collection[:1], control).count == 1


def test_few_labels_warn(make_control: MakeControl, collection: FloatArray) -> None:
    result = audit(collection, make_control(5, [9, 30], gap=2.5))
    assert any("the labelled examples include only 9 'a'" in w for w in result.warnings)


def test_skipped_items_warn_when_they_could_change_the_answer(
    control: ControlSet, collection: FloatArray
) -> None:
    sketch = Sketch(control)
    sketch.add(collection)
    sketch.skip("unreadable", 2)
    assert audit(sketch, control).warnings == ()
    sketch.skip("unreadable", 98)
    result = audit(sketch, control)
    # 100 of 500 unknown: d can move by 100 / 500 · (1 + |d|).
    assert result.diagnostics.skipped_shift == pytest.approx(0.2 * (1 + abs(result.disparity)))
    assert any("100 of 500 items were skipped (100 unreadable)" in w for w in result.warnings)
    assert result.to_dict()["skipped"]["unreadable"] == 100
    direct = audit(sketch, control, estimator="rectified", sample=labelled_part())
    assert any("were skipped" in w for w in direct.warnings)


def test_hand_picked_examples_warn(collection: FloatArray, make_control: MakeControl) -> None:
    result = audit(collection, make_control(0, [40, 40], gap=2.5, hand_picked=True))
    assert any("picked by hand" in w for w in result.warnings)


def test_harmless_shift_asks_for_caution(control: ControlSet, collection: FloatArray) -> None:
    # The same for all items, and across the direction that tells the groups apart.
    result = audit(collection + 1.2 * np.eye(8)[5], control)
    assert result.diagnostics.relevance_p < 0.001
    assert result.diagnostics.relevance > 3
    assert result.trust == "caution"
    assert any("look different from your labelled examples" in w for w in result.warnings)


def test_harmful_shift_is_poor(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection + 3.0 * (np.eye(8)[0] - np.eye(8)[1]), control)
    assert result.trust == "poor"
    assert result.diagnostics.misfit
    assert any("do not look like any mixture of the labelled groups" in w for w in result.warnings)
    assert any("'rectified'" in w for w in result.warnings)


def test_noisy_divscore_warns() -> None:
    rng = np.random.default_rng(1)
    result = audit(rng.normal(size=(100, 20)), noise(rng, 40), estimator="divscore")
    assert any("the DivScore is mostly noise" in w for w in result.warnings)


def test_several_groups(make_control: MakeControl, draw: Draw) -> None:
    counts = [60, 240, 100, 200]
    result = audit(draw(1, counts, gap=4)[0], make_control(0, [30] * 4, gap=4))
    entry = assert_plain(result)
    assert list(result.shares.values()) == pytest.approx([c / 600 for c in counts], abs=0.05)
    assert sum(result.shares.values()) == pytest.approx(1)
    assert result.disparity == max(result.shares.values()) - min(result.shares.values())
    assert (result.most, result.least) == (entry["most"], entry["least"]) == ("b", "a")
    assert 0 <= result.interval.low <= 0.3 <= result.interval.high <= 1
    assert result.marginals == ()


@pytest.mark.parametrize("estimator", ["divscore", "iid", "rectified"])
def test_other_estimators_of_several_groups(estimator: str, make_control: MakeControl, draw: Draw) -> None:
    rows, names = draw(1, [60, 240, 100], gap=4)
    pool = make_control(0, [30] * 3, gap=4)
    sample = (rows[:80], names[:80]) if estimator != "divscore" else None
    result = audit(rows, pool, estimator=estimator, sample=sample)
    assert_plain(result)
    if estimator == "divscore":  # its s_i do not sum to one, so they are not given out as shares
        assert all(np.isnan(share) for share in result.shares.values())
    else:
        assert sum(result.shares.values()) == pytest.approx(1)
    assert result.disparity == pytest.approx(0.45, abs=0.2)
    assert 0.45 in result.interval
    with pytest.raises(InputError, match="two groups"):
        audit(rows, pool, estimator="self-training")


def crossed(seed: int, counts: tuple[int, ...]) -> tuple[FloatArray, ControlSet, ControlSet]:
    vectors, names = draw_groups(seed, counts, gap=4)
    gender = [("female", "female", "male", "male")["abcd".index(n)] for n in names]
    tone = [("darker", "lighter", "darker", "lighter")["abcd".index(n)] for n in names]
    return (
        vectors,
        ControlSet(vectors, gender, attribute="gender"),
        ControlSet(vectors, tone, attribute="tone"),
    )


def test_intersections_and_their_marginals() -> None:
    _, gender, tone = crossed(0, (30, 30, 30, 30))
    joint = gender.cross(tone)
    assert joint.attribute == "gender × tone"
    assert joint.groups == ("female × darker", "female × lighter", "male × darker", "male × lighter")
    result = audit(draw_groups(1, (60, 180, 120, 240), gap=4)[0], joint)
    assert list(result.shares.values()) == pytest.approx([0.1, 0.3, 0.2, 0.4], abs=0.05)
    entry = assert_plain(result)
    assert [m["attribute"] for m in entry["marginals"]] == ["gender", "tone"]
    for at, marginal in enumerate(result.marginals):
        for name, share in marginal.shares.items():
            parts = [s for group, s in result.shares.items() if group.split(" × ")[at] == name]
            assert share == pytest.approx(sum(parts), abs=1e-12)
        first, second = marginal.shares.values()
        assert marginal.disparity == pytest.approx(first - second, abs=1e-12)
        assert marginal.interval.low <= marginal.disparity <= marginal.interval.high
    assert result.marginals[0].shares["female"] == pytest.approx(0.4, abs=0.05)
    assert result.marginals[1].disparity == pytest.approx(0.3 - 0.7, abs=0.1)


def test_an_intersection_with_an_empty_cell() -> None:
    _, gender, tone = crossed(0, (30, 30, 30, 0))
    joint = gender.cross(tone)
    assert joint.groups == ("female × darker", "female × lighter", "male × darker")
    result = audit(draw_groups(1, (60, 60, 60, 0), gap=4)[0], joint)
    assert result.marginals[0].shares["male"] == pytest.approx(result.shares["male × darker"])
    assert sum(result.marginals[1].shares.values()) == pytest.approx(1)


def test_only_the_same_vectors_cross() -> None:
    _, gender, _ = crossed(0, (10, 10, 10, 10))
    _, _, tone = crossed(1, (10, 10, 10, 10))
    with pytest.raises(MismatchError, match="same vectors"):
        gender.cross(tone)


def test_the_population_is_less_certain(control: ControlSet, collection: FloatArray) -> None:
    here = audit(collection, control)
    everywhere = audit(collection, control, target="population")
    assert everywhere.disparity == here.disparity
    assert everywhere.interval.width > here.interval.width
    # At least the binomial part, 2 · 1.96 · 2 √(p (1 − p) / N); a bootstrap of 100 is good to a fifth.
    assert everywhere.interval.width > 0.8 * 4 * 1.96 * math.sqrt(0.75 * 0.25 / 400)


def test_more_confidence_is_wider(control: ControlSet, collection: FloatArray) -> None:
    widths = [audit(collection, control, confidence=c).interval.width for c in (0.5, 0.8, 0.95, 0.99)]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 30), (3, 30), (15, 30), (30, 30), (7, 501)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_iid_is_clopper_pearson(hits: int, n: int, confidence: float, control: ControlSet) -> None:
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - tail, hits + 1, n - hits) if hits < n else 1.0
    exact = clopper_pearson(hits, n, confidence)
    assert (exact.low, exact.high) == pytest.approx((low, high), abs=1e-10)
    sample = LabelledSample.of(np.ones((n, 8)), ["a"] * hits + ["b"] * (n - hits), control)
    found = iid(sample, 2, confidence=confidence)
    assert found.disparity == pytest.approx(2 * hits / n - 1)
    assert (found.interval.low, found.interval.high) == pytest.approx((2 * low - 1, 2 * high - 1), abs=1e-10)


def test_iid_looks_at_the_sample_only(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control, estimator="iid", sample=labelled_part((30, 10)))
    assert result.shares == {"a": 0.75, "b": 0.25}
    assert result.trust == "good"


def test_rectified_corrects_a_control_set_of_another_domain(control: ControlSet) -> None:
    # A shift along the direction itself makes nearly everything look like "a"; the truth is d = −0.5.
    rows, names = draw_groups(1, [500, 1500], gap=2.5)
    rows = rows + 3.0 * (np.eye(8)[0] - np.eye(8)[1])
    misled = audit(rows, control)
    assert -0.5 not in misled.interval
    assert misled.disparity > 0.5
    assert misled.trust == "poor"
    chosen = np.random.default_rng(0).choice(2000, size=100, replace=False)
    result = audit(rows, control, estimator="rectified", sample=(rows[chosen], names[chosen]))
    assert -0.5 in result.interval
    assert result.trust == "good"
    assert any("use 'rectified'" in w for w in result.warnings)
    asked_otherwise = audit(rows, control, sample=(rows[chosen], names[chosen]))
    assert any("use 'rectified'" in w for w in asked_otherwise.warnings)


def test_rectified_profits_from_a_good_control_set(control: ControlSet) -> None:
    rows, names = draw_groups(1, [1500, 500], gap=2.5)
    sample = rows[:80], names[:80]
    result = audit(rows, control, estimator="rectified", sample=sample)
    assert 0.5 in result.interval
    assert result.interval.width < audit(rows, control, estimator="iid", sample=sample).interval.width
    assert not any("use 'rectified'" in w for w in result.warnings)


def test_rectified_needs_some_labels(control: ControlSet, collection: FloatArray) -> None:
    with pytest.raises(InputError, match="9 labelled items of the collection; 'rectified' needs at least 10"):
        audit(collection, control, estimator="rectified", sample=labelled_part((5, 4)))
    result = audit(collection[:50], control, estimator="iid", sample=labelled_part((40, 20)))
    assert any("60 labelled items for a collection of 50" in w for w in result.warnings)


def test_rectified_of_one_group_claims_no_certainty(control: ControlSet) -> None:
    rows, names = draw_groups(1, [990, 10], gap=2.5)
    only = np.flatnonzero(names == "a")[:50]
    result = audit(rows, control, estimator="rectified", sample=(rows[only], names[only]))
    # Clopper–Pearson of 50 in 50 reaches down to a share of 0.929.
    assert result.interval.low <= 2 * 0.9289 - 1
    assert result.interval.high == 1


def test_bad_samples(control: ControlSet, collection: FloatArray) -> None:
    rows, names = labelled_part()
    with pytest.raises(InputError, match="unknown group 'c'; this control set has 'a', 'b'"):
        audit(collection, control, estimator="iid", sample=(rows, ["c"] * len(rows)))
    with pytest.raises(InputError, match="60 vectors and 59 group names in the labelled sample"):
        audit(collection, control, estimator="iid", sample=(rows, names[1:]))
    with pytest.raises(VectorError, match="labelled sample's vectors have 7 dimensions, the control set's 8"):
        audit(collection, control, estimator="iid", sample=(rows[:, :7], names))
    with pytest.raises(InputError, match="the labelled sample is empty"):
        audit(collection, control, estimator="iid", sample=(np.empty((0, 8)), []))
    rows[3] = 0
    with pytest.raises(VectorError, match="row 3 of the labelled sample is zero or not finite"):
        audit(collection, control, estimator="rectified", sample=(rows, names))


def test_collections_come_in_several_forms(control: ControlSet, collection: FloatArray) -> None:
    sketch = Sketch(control)
    sketch.add(collection)
    expected = audit(collection, control)
    blocks = np.array_split(collection, 7)
    for form in (sketch, iter(blocks), (b for b in blocks), blocks, tuple(blocks), collection.tolist()):
        found = audit(form, control)
        assert found.count == 400
        assert found.interval == expected.interval
        assert found.disparity == pytest.approx(expected.disparity, abs=1e-12)
        assert found.divscore == pytest.approx(expected.divscore, abs=1e-12)


def test_what_cannot_be_audited(
    control: ControlSet, collection: FloatArray, make_control: MakeControl
) -> None:
    with pytest.raises(
        VectorError, match="have 5 dimensions, the control set's 8; both must come from the same"
    ):
        audit(collection[:, :5], control)
    for empty in (np.empty((0, 8)), iter([]), Sketch(control)):
        with pytest.raises(InputError, match="mine: no item has a usable vector; the collection is empty"):
            audit(empty, control, name="mine")
    with pytest.raises(InputError, match="skipped: 3 zero, 2 nonfinite"):
        audit(np.vstack([np.zeros((3, 8)), np.full((2, 8), np.inf)]), control)
    sketch = Sketch(control)
    sketch.add(collection)
    with pytest.raises(MismatchError, match="the sketch was made with another control set"):
        audit(sketch, make_control(1, [20, 20]))
    with pytest.raises(InputError, match="'self-training' needs every item; it cannot use a sketch"):
        audit(sketch, control, estimator="self-training")


def test_a_sketch_brings_its_own_seed(control: ControlSet, collection: FloatArray) -> None:
    sketch = Sketch(control, seed=9)
    sketch.add(collection)
    result = audit(sketch, control, seed=1)
    assert result.seed == 9
    assert result.interval == audit(collection, control, seed=9).interval


def test_results_do_not_change(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.disparity = 0.0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.interval.low = 0.0  # type: ignore[misc]


def test_similarities_of_one_name_are_not_confused(collection: FloatArray) -> None:
    vectors, names = draw_groups(0, [10, 10], gap=2.5)

    def kernel(width: float) -> Any:
        return lambda A, B: np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / width)

    wide, narrow = (ControlSet(vectors, names, attribute="letter", similarity=kernel(w)) for w in (50.0, 5.0))
    first = audit(collection[:50], wide).divscore
    assert audit(collection[:50], narrow).divscore != first
    assert audit(collection[:50], wide).divscore == first
    assert control_facts(narrow).reference != control_facts(wide).reference


def test_from_replicates() -> None:
    values = np.linspace(-0.2, 0.4, 101)
    found = from_replicates(0.1, values, 0.9, (-1.0, 1.0))
    assert (found.low, found.high) == pytest.approx((-0.17, 0.37))
    skewed = from_replicates(0.3, values, 0.9, (-1.0, 1.0))  # percentile −0.17 … 0.37, basic 0.23 … 0.77
    assert (skewed.low, skewed.high) == pytest.approx((-0.17, 0.77))
    clipped = from_replicates(0.95, 0.8 + values, 0.9, (-1.0, 1.0))
    assert clipped.high == 1
    assert found.mirrored() == Interval(-found.high, -found.low, 0.9, found.method)
    assert 0.1 in found
    assert 0.5 not in found


def test_coverage_of_the_representatives(make_control: MakeControl) -> None:
    pool = make_control(0, [30, 30])
    everyone = coverage(pool)
    assert [c.group for c in everyone] == ["a", "b"]
    assert all((c.representatives, c.labelled, c.farthest, c.uncovered) == (30, 30, 0, 0) for c in everyone)
    few = coverage(pool.with_representatives([*pool.rows(0)[:3], *pool.rows(1)]))
    units = pool.units[pool.rows(0)]
    nearest = (1 - units @ units[:3].T).min(axis=1)
    assert few[0].farthest == pytest.approx(nearest.max())
    assert few[0].median == pytest.approx(np.median(nearest[3:]))
    assert few[0].uncovered > 0
    assert few[1] == everyone[1]


def test_plans(make_control: MakeControl) -> None:
    pilot = make_control(0, [40, 40], gap=1.5)
    told: list[tuple[int, int]] = []
    outlook = plan(pilot, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (20, 20)
    assert outlook == plan(pilot)
    assert outlook.width(400) < outlook.width(100)
    assert outlook.labels(outlook.width(100)) == 100
    # The pilot's own audit is about as wide as promised.
    width = audit(draw_groups(1, [250, 250], gap=1.5)[0], pilot).interval.width
    assert width == pytest.approx(outlook.width(80), rel=0.5)
    for wrong in (0, 2, -1):
        with pytest.raises(InputError, match=f"width {wrong} must be between 0 and 2"):
            outlook.labels(wrong)
    with pytest.raises(InputError, match="at least 4"):
        outlook.width(3)
    with pytest.raises(ControlError, match="two groups; this pool has 3"):
        plan(make_control(0, [20, 20, 20]))
    with pytest.raises(ControlError, match="only 11 'a' in the pilot pool; planning needs 12 per group"):
        plan(make_control(0, [11, 20]))
    with pytest.raises(ControlError, match="do not separate the groups of letter"):
        plan(noise(np.random.default_rng(0), 60))


@pytest.mark.parametrize("estimator", ["likelihood", "divscore", "self-training"])
@pytest.mark.parametrize("size", [1, 4])
def test_nothing_is_said_of_single_items(estimator: str, size: int, control: ControlSet) -> None:
    rows = draw_groups(1, [size, 0], gap=4)[0]
    for few in (rows, np.repeat(rows[:1], 100, axis=0)):
        result = audit(few, control, estimator=estimator)
        assert result.trust == "poor"
        assert result.interval.width == 2
        entry = result.to_dict()
        assert entry["disparity"] is None
        assert entry["divscore"] is None
        assert set(entry["shares"].values()) == {None}
        assert any(w.startswith("cannot tell") for w in result.warnings)


def test_higher_confidence_gives_wider_intervals(control: ControlSet, collection: FloatArray) -> None:
    widths = [
        audit(collection, control, confidence=c).interval.width for c in (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
    ]
    assert widths == sorted(set(widths))


def test_groups_in_a_row_can_be_told(draw: Draw) -> None:
    # The middle group of three on one axis has no direction of its own.
    rng = np.random.default_rng(0)

    def row(counts: tuple[int, ...]) -> tuple[FloatArray, list[str]]:
        place = np.repeat([-3.0, 0.0, 3.0], counts)
        names = np.repeat(["young", "middle", "old"], counts).tolist()
        return np.column_stack([place, np.full(len(place), 4.0)]) + rng.normal(
            size=(len(place), 2)
        ) * 0.7, names

    vectors, names = row((60, 60, 60))
    control = ControlSet(vectors, names, attribute="age", order=("young", "middle", "old"))
    result = audit(row((100, 250, 150))[0], control)
    assert result.trust != "poor"
    assert list(result.shares.values()) == pytest.approx([0.2, 0.5, 0.3], abs=0.07)
    assert result.interval.width < 0.5


def test_one_labelled_item_is_no_basis(control: ControlSet, collection: FloatArray) -> None:
    assert audit(collection, control, estimator="iid", sample=(collection[:1], ["a"])).trust == "poor"


def test_the_control_set_keeps_its_own_copy() -> None:
    vectors, names = draw_groups(0, [20, 20])
    control = ControlSet(vectors, names, attribute="letter")
    digest = control.digest
    vectors[:] = 0
    assert control.vectors.any()
    assert ControlSet(control.vectors, names, attribute="letter").digest == digest
    with pytest.raises(ValueError, match="read-only"):
        control.vectors[0] = 0


def test_bad_items_of_a_collection_are_counted(control: ControlSet) -> None:
    rows = np.vstack(
        [draw_groups(1, [30, 30])[0], np.zeros((2, 8)), np.full((3, 8), np.nan), np.full(8, np.inf)]
    )
    result = audit(rows, control)
    assert result.count == 60
    assert result.skipped == {"zero": 2, "nonfinite": 4, "unreadable": 0}
    assert result.disparity == audit(rows[:60], control).disparity


@pytest.mark.parametrize("d", [1, 7, 9])
def test_wrong_dimension(d: int, control: ControlSet) -> None:
    with pytest.raises(
        VectorError, match=f"have {d} dimensions, the control set's 8; both must come from the s"
    ):
        audit(np.ones((30, d)), control)
    sketch = Sketch(control)
    sketch.add(np.ones((3, 8)))
    with pytest.raises(VectorError, match="same encoder"):
        sketch.add(np.ones((30, d)))
    with pytest.raises(VectorError, match="same encoder"):
        sketch.remove(np.ones((3, d)))
    assert sketch.count == 3


@pytest.mark.parametrize("rows", [np.empty((0, 8)), np.zeros((5, 8))])
def test_empty_collections(rows: FloatArray, control: ControlSet) -> None:
    with pytest.raises(InputError, match="collection: no item has a usable vector"):
        audit(rows, control)


@pytest.mark.parametrize(
    "name",
    [
        "a, b",
        "it's",
        'say "hi"',
        "two\nlines",
        "tab\tbed",
        "🙂👩🏾‍🦱",
        "<script>alert(1)</script>",
        "female × darker",
        "per%cent {x} \\n",
        "Ünïcödé",
        "00",
        "-1",
        "nan",
        "x" * 500,
    ],
)
def test_odd_group_names_survive(name: str) -> None:
    vectors, names = draw_groups(0, [20, 20], gap=4)
    groups = [name if n == "a" else "other" for n in names]
    control = ControlSet(vectors, groups, attribute=f"about {name}", order=(name, "other"))
    result = audit(draw_groups(1, [90, 30], gap=4)[0], control)
    assert control.groups == (name, "other")
    assert list(result.to_dict()["shares"]) == [name, "other"]
    assert result.shares[name] == pytest.approx(0.75, abs=0.1)
    assert printable(name) in result.headline
    assert len(result.headline.splitlines()) == 1
    assert result.marginals == ()
    with pytest.raises(InputError, match="unknown group"):
        control.group_of(name + "!")


@pytest.mark.parametrize("collection", [None, 5, "faces/"])
def test_collections_that_are_none(collection: Any, control: ControlSet) -> None:
    with pytest.raises(InputError, match="vectors"):
        audit(collection, control)


def test_a_sketch_survives_bad_batches(control: ControlSet) -> None:
    sketch = Sketch(control)
    rows = draw_groups(1, [30, 30])[0]
    sketch.add(rows)
    expected = audit(sketch, control)
    for bad in (rows[:, :3], [["x"]], rows[0], np.empty((2, 0))):
        with pytest.raises(VectorError):
            sketch.add(bad)
    sketch.add(np.empty((0, 8)))
    assert audit(sketch, control).to_dict() == expected.to_dict()
