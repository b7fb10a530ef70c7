"""Intervals from replicates."""

from __future__ import annotations

import numpy as np
import pytest

from divscore.estimators.interval import Interval, from_replicates


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
