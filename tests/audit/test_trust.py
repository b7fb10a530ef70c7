"""Trust: one word, and the warnings behind it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from chance import sketch_of
from conftest import MakeControl, draw_groups, labelled_part

from divscore.audit.audit import audit
from divscore.audit.planning import WITH, plan_labels
from divscore.audit.trust import ALLOWED, FEW_ITEMS, TOO_WIDE, control_facts, coverage, uncovered_rows
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators.shift import UNLIKE
from divscore.sketch.sketch import Sketch


def noise(rng: np.random.Generator, n: int, d: int = 20) -> ControlSet:
    return ControlSet(rng.normal(size=(n, d)), rng.permutation(["a", "b"] * (n // 2)), attribute="letter")


@pytest.mark.parametrize("seed", range(5))
def test_random_labels_cannot_tell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    result = audit(rng.normal(size=(300, 20)), noise(rng, 60))
    entry = result.to_dict()
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
    entry = result.to_dict()
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
    (warning,) = result.warnings
    assert "look different from your labelled examples" in warning
    labels = plan_labels(400, sketch=sketch_of(collection + 1.2 * np.eye(8)[5], control), alone=False)
    number = 10 * math.ceil(labels.labels(0.15, WITH) / 10)
    assert 30 < number < 200
    assert f"{ALLOWED} To settle it, label {number} random items" in warning
    assert "'divscore audit … --labelled-sample to-label.csv'" in warning
    # The paper's own score has no interval that allows for anything.
    assert ALLOWED not in audit(collection + 1.2 * np.eye(8)[5], control, estimator="divscore").warnings[0]


def test_harmful_shift_is_poor(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection + 3.0 * (np.eye(8)[0] - np.eye(8)[1]), control)
    assert result.trust == "poor"
    assert result.diagnostics.score_fit > UNLIKE
    assert (result.interval_if_similar.low, result.interval_if_similar.high) == (-1, 1)  # hidden, too
    text = " ".join(result.warnings)
    assert text.startswith(TOO_WIDE)
    assert re.search(r"divscore sample COLLECTION --size \d+ -o to-label.csv", text)
    assert ALLOWED not in text


def test_noisy_divscore_warns() -> None:
    rng = np.random.default_rng(1)
    result = audit(rng.normal(size=(100, 20)), noise(rng, 40), estimator="divscore")
    assert any("the DivScore is mostly noise" in w for w in result.warnings)


def test_similarities_of_one_name_are_not_confused(collection: FloatArray) -> None:
    vectors, names = draw_groups(0, [10, 10], gap=2.5)

    def kernel(width: float) -> Any:
        return lambda A, B: np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / width)

    wide, narrow = (ControlSet(vectors, names, attribute="letter", similarity=kernel(w)) for w in (50.0, 5.0))
    first = audit(collection[:50], wide).divscore
    assert audit(collection[:50], narrow).divscore != first
    assert audit(collection[:50], wide).divscore == first
    assert control_facts(narrow).reference != control_facts(wide).reference


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
    rows = uncovered_rows(pool.with_representatives([*pool.rows(0)[:3], *pool.rows(1)]))
    assert len(rows) == pytest.approx(30 * few[0].uncovered)
    # The farthest ones, all of the first group.
    assert set(rows.tolist()) == set(pool.rows(0)[np.argsort(nearest)[-len(rows) :]].tolist())


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
