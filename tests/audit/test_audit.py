from __future__ import annotations

import dataclasses
import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import Draw, MakeControl, draw_groups, labelled_part

from divscore.audit.audit import ESTIMATORS, LABELLED, Audit, audit
from divscore.control import similarity
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.errors import InputError, MismatchError, VectorError
from divscore.estimators.self_training import self_training
from divscore.sketch.sketch import Sketch
from divscore.text import printable

ENTRY = {
    "name", "count", "skipped", "shares", "disparity", "interval", "divscore", "trust", "diagnostics", "warnings"
}  # fmt: skip
DIAGNOSTICS = {"relevance", "relevance_p", "score_fit", "score_fit_p", "skipped_shift", "theorem_error"}


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
    sample = labelled_part() if estimator in LABELLED else None
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
    if estimator != "crossfit":  # which leaves the control set aside
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
    with pytest.raises(InputError, match="target takes shares by group"):
        audit(collection, control, target="world")
    for estimator in LABELLED:
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
    assert "of these 270 items are a (an even split is 33%)" in three.headline


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


def test_bad_samples(control: ControlSet, collection: FloatArray) -> None:
    rows, names = labelled_part()
    with pytest.raises(InputError, match="has the group 'c', but the groups are 'a', 'b'"):
        audit(collection, control, estimator="iid", sample=(rows, ["c"] * len(rows)))
    with pytest.raises(InputError, match="60 vectors and 59 labels in the labelled sample"):
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


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array", "lil_matrix", "bsr_array"])
def test_sparse_vectors_are_audited_like_dense_ones(
    kind: str, control: ControlSet, collection: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = np.where(np.abs(collection) > 0.5, collection, 0)
    expected = audit(dense, control).to_dict()
    vectors = getattr(scipy.sparse, kind)(dense)
    assert audit(vectors, control).to_dict() == expected
    assert audit([vectors], control).to_dict() == expected
    assert audit(vectors, control, workers=2, strict=True).to_dict() == expected
    assert audit(vectors, control, estimator="self-training").disparity == pytest.approx(
        audit(dense, control, estimator="self-training").disparity
    )
    monkeypatch.setattr(similarity, "DENSE_BYTES", 8 * 8 * 30)  # thirty rows
    blocks = audit(vectors, control)
    assert (blocks.count, blocks.trust) == (expected["count"], expected["trust"])
    assert blocks.disparity == pytest.approx(expected["disparity"], abs=1e-6)
    sketch = Sketch(control)
    sketch.add(vectors)
    sketch.add(vectors)
    sketch.remove(vectors)
    assert audit(sketch, control).disparity == pytest.approx(expected["disparity"], abs=1e-6)
    with pytest.raises(InputError, match="nothing was removed"):
        sketch.remove(scipy.sparse.vstack([vectors, vectors]))
    assert sketch.count == len(dense)
    other = ControlSet(vectors, ["a", "b"] * (len(dense) // 2), attribute="letter")
    np.testing.assert_array_equal(other.vectors, dense)
    with pytest.raises(VectorError, match="dimensions"):
        audit(vectors.tocsr()[:, :3], control)


def test_a_large_sparse_collection_takes_little_memory() -> None:
    rng = np.random.default_rng(0)
    d, rows = 5_000, 40_000  # 1.6 GB, if it were dense
    labelled = scipy.sparse.random(20, d, 0.2, random_state=rng, format="csr")
    control = ControlSet(labelled, ["a", "b"] * 10, attribute="letter")
    vectors = scipy.sparse.random(rows, d, 0.001, random_state=rng, format="csr")
    sketch = Sketch(control)
    tracemalloc.start()
    sketch.add(vectors)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sketch.count + sum(sketch.skipped.values()) == rows
    assert peak < 300 << 20


@pytest.mark.parametrize("collection", [None, 5])
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
