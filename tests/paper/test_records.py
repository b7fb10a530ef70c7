"""Summaries, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from experiments import answer

from divscore.paper.records import points, ratio, summarise


def test_errors_bias_and_spread_by_hand() -> None:
    found = summarise(
        [answer(0.1, 0.0, 0), answer(-0.3, 0.0, 1), answer(1.4, 1.0, 0, 1.0), answer(1.2, 1.0, 1, 1.0)]
    )
    assert found is not None
    assert found.mae == pytest.approx((0.1 + 0.3 + 0.4 + 0.2) / 4)
    assert found.clipped == pytest.approx((0.1 + 0.3) / 4)
    assert found.bias == pytest.approx(0.1)
    assert found.worst_bias == pytest.approx(0.3)
    assert found.spread == pytest.approx(math.sqrt((0.08 + 0.02) / 2))
    assert found.largest == pytest.approx(0.4)
    assert found.mae_se == pytest.approx(np.std([0.25, 0.25], ddof=1))
    assert found.coverage is None


def test_cannot_tell_counts_as_zero_but_not_where_that_is_right_by_design() -> None:
    unsure = [answer(math.nan, 0.4, low=-1.0, high=1.0), answer(0.3, 0.4, low=0.35, high=0.5)]
    found = summarise(unsure)
    assert found is not None
    assert (found.mae, found.cannot_tell, found.coverage) == (pytest.approx(0.25), 1, 1.0)
    (point,) = points([replace(a, sweep="size") for a in unsure])
    assert (point.answers, point.excluded, point.mae) == (2, 0, pytest.approx(0.25))
    (point,) = points([replace(a, sweep="size", truth=0.0) for a in unsure])
    assert (point.answers, point.excluded, point.mae) == (1, 1, pytest.approx(0.3))


def test_undefined_answers_are_excluded_and_counted() -> None:
    found = summarise([answer(math.nan), answer(0.2)])
    assert found is not None
    assert (found.answers, found.excluded, found.mae) == (1, 1, pytest.approx(0.2))
    assert summarise([answer(math.nan)]) is None


def test_a_ratio_compares_the_same_draws_only() -> None:
    ours = [answer(0.1, at=at, repetition=r) for at in (0.0, 0.5) for r in (0, 1)]
    rival = [answer(0.3, at=0.5, repetition=r) for r in (0, 1)] + [answer(math.nan, at=0.0)]
    found = ratio(rival, [replace(a, value=9.0) if a.at == 0.0 else a for a in ours])
    assert (found.rival, found.ours, found.value) == pytest.approx((0.3, 0.1, 3.0))
    assert found.se == pytest.approx(0.0, abs=1e-12)
