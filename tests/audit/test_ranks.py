"""Shares by rank."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import MakeControl, draw_groups

from divscore.audit.audit import audit
from divscore.audit.ranks import rank_weighted


def test_they_are_the_mean_over_all_orders_within_the_blocks(make_control: MakeControl) -> None:
    control = make_control(0, [60, 60], gap=5.0)
    rows, names = draw_groups(1, [40, 60], gap=5.0)
    order = np.random.default_rng(2).permutation(100)
    rows, names = rows[order], names[order]
    depths = (20, 50, 100)
    firsts = [(depth, audit(rows[:depth], control)) for depth in depths]
    first = next(iter(firsts[-1][1].shares))
    share, interval = rank_weighted(firsts)[first]

    weights = 1 / np.log2(np.arange(1, 101) + 1)
    rng, marks = np.random.default_rng(0), names == first
    orders = []
    for _ in range(4000):
        mixed = np.concatenate([rng.permutation(block) for block in np.split(marks, depths[:-1])])
        orders.append(np.average(mixed, weights=weights))
    # The groups are far apart, so each audit is close to the truth, and the order is most of the interval.
    assert share == pytest.approx(np.mean(orders), abs=0.02)
    assert interval.width / 2 >= 1.96 * np.std(orders) * 0.97
    assert np.mean([each in interval for each in orders]) >= 0.94
    assert interval.level == 0.95


def test_of_equal_shares_it_is_that_share(make_control: MakeControl) -> None:
    whole = audit(draw_groups(1, [40, 60], gap=5.0)[0], make_control(0, [60, 60], gap=5.0))
    for name, (share, interval) in rank_weighted([(20, whole), (50, whole), (100, whole)]).items():
        assert share == pytest.approx(whole.shares[name])
        assert 0 <= interval.low <= whole.share_intervals[name].low
        assert whole.share_intervals[name].high <= interval.high <= 1
