"""iid: a labelled random sample alone."""

from __future__ import annotations

import numpy as np
import pytest
from chance import fewest
from conftest import labelled_part
from scipy import stats

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample
from divscore.control.similarity import FloatArray
from divscore.estimators.iid import clopper_pearson, iid


@pytest.mark.parametrize("n", [10, 50, 137])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_exact_coverage_of_iid(n: int, confidence: float) -> None:
    intervals = [clopper_pearson(hits, n, confidence) for hits in range(n + 1)]
    for p in np.linspace(0.01, 0.99, 99):
        chance = stats.binom.pmf(np.arange(n + 1), n, p)
        assert sum(c for c, i in zip(chance, intervals, strict=True) if p in i) >= confidence - 1e-12


@pytest.mark.slow
def test_coverage_of_iid_with_three_groups() -> None:
    rng, reps, covered = np.random.default_rng(0), 130, 0
    for _ in range(reps):
        shares = rng.dirichlet(np.ones(3))
        labels = np.repeat(np.arange(3), rng.multinomial(80, shares))
        interval = iid(LabelledSample(np.ones((80, 1)), labels, ("a", "b", "c"))).interval
        covered += shares.max() - shares.min() in interval
    assert covered >= fewest(reps, 0.95)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 30), (3, 30), (15, 30), (30, 30), (7, 501)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_iid_is_clopper_pearson(hits: int, n: int, confidence: float, control: ControlSet) -> None:
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - tail, hits + 1, n - hits) if hits < n else 1.0
    exact = clopper_pearson(hits, n, confidence)
    assert (exact.low, exact.high) == pytest.approx((low, high), abs=1e-10)
    sample = LabelledSample.of(np.ones((n, 8)), ["a"] * hits + ["b"] * (n - hits), control=control)
    found = iid(sample, confidence=confidence)
    assert found.disparity == pytest.approx(2 * hits / n - 1)
    assert (found.interval.low, found.interval.high) == pytest.approx((2 * low - 1, 2 * high - 1), abs=1e-10)


def test_iid_looks_at_the_sample_only(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control, estimator="iid", sample=labelled_part((30, 10)))
    assert result.shares == {"a": 0.75, "b": 0.25}
    assert result.trust == "good"


def test_one_labelled_item_is_no_basis(control: ControlSet, collection: FloatArray) -> None:
    assert audit(collection, control, estimator="iid", sample=(collection[:1], ["a"])).trust == "poor"
