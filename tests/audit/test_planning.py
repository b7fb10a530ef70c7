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
    with pytest.raises(ControlError, match="two groups; this pool has 3"):
        plan(make_control(0, [20, 20, 20]))
    with pytest.raises(ControlError, match="only 11 'a' in the pilot pool; planning needs 12 per group"):
        plan(make_control(0, [11, 20]))
    with pytest.raises(ControlError, match="do not separate the groups of letter"):
        plan(noise(np.random.default_rng(0), 60))
