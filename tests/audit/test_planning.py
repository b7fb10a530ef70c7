"""plan(): labels for an interval of a given width."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import MakeControl, draw_groups

from divscore.audit.audit import audit
from divscore.audit.planning import plan
from divscore.control.controlset import ControlSet
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
