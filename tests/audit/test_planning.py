"""plan(): labels for an interval of a given width."""

from __future__ import annotations

import numpy as np
import pytest
from chance import sketch_of
from conftest import MakeControl, draw_groups

from divscore.audit.audit import audit
from divscore.audit.planning import SIMPLE, WITH, WITHOUT, plan, plan_labels
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.errors import ControlError, InputError


def noise(rng: np.random.Generator, n: int, d: int = 20) -> ControlSet:
    return ControlSet(rng.normal(size=(n, d)), rng.permutation(["a", "b"] * (n // 2)), attribute="letter")


@pytest.mark.slow
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
    with pytest.raises(ControlError, match="only 11 'a' in the pilot pool; planning needs 12 per group"):
        plan(make_control(0, [11, 20]))
    with pytest.raises(ControlError, match="do not separate the groups of letter"):
        plan(noise(np.random.default_rng(0), 60))


@pytest.mark.slow
def test_plans_for_more_groups_and_never_wider_with_more_labels(make_control: MakeControl) -> None:
    outlook = plan(make_control(0, [40] * 4, gap=2.5))
    assert outlook.groups == 4
    assert outlook.labels(outlook.width(200)) == 200
    width = audit(draw_groups(1, [125] * 4, gap=2.5)[0], make_control(0, [40] * 4, gap=2.5)).interval.width
    assert width == pytest.approx(outlook.width(160), rel=0.6)
    with pytest.raises(InputError, match=r"width 1.5 must be between 0 and 1 "):
        outlook.labels(1.5)
    for seed in range(4):  # a pilot in which the groups are hard to distinguish gives noisy widths
        widths = [each for _, each in plan(make_control(seed, [30, 30], gap=1.3)).points]
        assert widths == sorted(widths, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("gap", [1.5, 3.0])
def test_labels_of_the_collection(make_control: MakeControl, gap: float, groups: int) -> None:
    control = make_control(0, [80] * groups, gap=gap)
    rows, names = draw_groups(1, [400, *[200] * (groups - 1)], gap=gap)
    outlook = plan_labels(len(rows), sketch=sketch_of(rows, control))
    assert (outlook.attribute, outlook.groups, outlook.basis) == ("letter", groups, "the control set")
    order = tuple("abc"[:groups])
    for n in (40, 100):
        chosen = np.random.default_rng(n).choice(len(rows), n, replace=False)
        sample = LabelledSample.of(rows[chosen], names[chosen], order=order)
        for way, known in ((WITH, control), (WITHOUT, None)):
            width = audit(rows, known, sample=sample).interval.width
            assert outlook.width(n, way) == pytest.approx(width, rel=0.5)
            fitted = sketch_of(rows, labelled_control([sample], known))
            pilot = plan_labels(len(rows), pilots=[(fitted, sample, known is not None)])
            assert pilot.width(n, way) == pytest.approx(width, rel=0.4)
            assert pilot.basis == f"{n} labels"
        assert outlook.width(n, WITH) <= outlook.width(n, WITHOUT) <= outlook.width(n, SIMPLE)
    for way in outlook.variances:
        wanted = outlook.labels(0.15, way)
        assert outlook.width(wanted, way) <= 0.15 < outlook.width(wanted - 1, way)


def test_without_any_label_the_worst_case_is_planned() -> None:
    outlook = plan_labels(100_000)
    assert list(outlook.variances) == [SIMPLE]
    # 1.96 · √(1 / n) on either side.
    assert outlook.labels(0.1, SIMPLE) == pytest.approx(4 * 1.96**2 / 0.1**2, rel=0.03)
    assert plan_labels(50).labels(0.01, SIMPLE) == 50  # all of them
    with pytest.raises(InputError, match="width 2 must be between 0 and 2"):
        outlook.labels(2, SIMPLE)
    with pytest.raises(InputError, match="9 labels: at least 10"):
        outlook.width(9, SIMPLE)


def test_groups_that_do_not_separate_need_a_simple_sample() -> None:
    pool = noise(np.random.default_rng(3), 60)
    rows = np.random.default_rng(1).normal(size=(300, 20))
    assert list(plan_labels(300, sketch=sketch_of(rows, pool)).variances) == [SIMPLE]
