"""Sketches of drawn collections, and what it means that two are the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import draw_groups
from hypothesis import settings
from hypothesis import strategies as st

from divscore.audit.audit import Audit
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.jobs.engine import Engine
from divscore.sketch.sample import Sampled
from divscore.sketch.scan import Mapper
from divscore.sketch.sketch import Sketch

SEEDS = st.integers(0, 2**32 - 1)
GROUPS = st.sampled_from([2, 3, 4])
D = 8

laws = settings(max_examples=25, deadline=None)
audited_laws = settings(max_examples=8, deadline=None)  # an audit with four groups takes a third of a second


@functools.cache
def control_of(groups: int) -> ControlSet:
    vectors, names = draw_groups(groups, [12 + 3 * g for g in range(groups)])
    return ControlSet(vectors, names, attribute="letter")


def items(seed: int, n: int, groups: int = 2, d: int = D) -> FloatArray:
    """A collection of uneven composition."""
    rng = np.random.default_rng(seed)
    return draw_groups(seed, rng.multinomial(n, rng.dirichlet(np.ones(groups))), d)[0]


def spoilt(seed: int, n: int, groups: int = 2, d: int = D) -> FloatArray:
    """A collection in which one item in five is zero or not finite."""
    rows, rng = items(seed, n, groups, d), np.random.default_rng(seed)
    kind = rng.integers(10, size=n)
    rows[kind == 0] = 0.0
    rows[kind == 1, rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    return rows


def sketch_of(control: ControlSet, *batches: Any, seed: int = 0, workers: int = 1) -> Sketch:
    sketch = Sketch(control, seed=seed)
    for batch in batches:
        sketch.add(batch, workers=workers)
    return sketch


def on_threads(workers: int) -> Mapper:
    """The same as `map`, on threads."""

    def mapper(task: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterator[Any]:
        with Engine(workers) as engine:
            yield from (result for _, result in engine.map(task, chunks))

    return mapper


def pieces(rows: FloatArray, seed: int, count: int) -> list[FloatArray]:
    """Split rows anywhere, empty pieces included."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(rows) + 1, size=count - 1))
    return np.split(rows, cuts)


def merged(sketches: Iterable[Sketch]) -> Sketch:
    first, *rest = (sketch.copy() for sketch in sketches)
    for sketch in rest:
        first.merge(sketch)
    return first


def assert_same_sample(left: Sampled, right: Sampled) -> None:
    """To the last byte."""
    assert left.limit == right.limit
    for name in ("hash", "rows", "step", "copies"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def assert_same_state(left: Sketch, right: Sketch, tolerance: float = 1e-9) -> None:
    assert left.count == right.count
    assert left.skipped == right.skipped
    for mine, other in zip(left.scores(), right.scores(), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert_same_sample(left.sample, right.sample)
    np.testing.assert_allclose(left.total, right.total, rtol=0, atol=tolerance)
    np.testing.assert_allclose(left.similarity_total, right.similarity_total, rtol=0, atol=tolerance)


def lowered(sketch: Sketch, other: Sketch) -> Sketch:
    """A copy of a sketch with the limits of another: they stay low when items are removed."""
    sketch, at = sketch.copy(), np.zeros(1, dtype=np.intp)
    other = other.copy()
    sketch.table.sample.lower(other.table.sample.limit, at)
    if sketch.table.joint is not None and other.table.joint is not None:
        sketch.table.joint.lower(other.table.joint.limit, at)
    return sketch


def assert_same_audit(left: Audit, right: Audit, tolerance: float = 1e-9) -> None:
    assert left.shares == pytest.approx(right.shares, abs=tolerance)
    assert left.disparity == pytest.approx(right.disparity, abs=tolerance)
    assert left.divscore == pytest.approx(right.divscore, abs=tolerance)
    assert left.interval == right.interval
    assert left.share_intervals == right.share_intervals
    assert left.trust == right.trust
    # A p-value magnifies what rounding is left in a mean.
    assert left.diagnostics.to_dict() == pytest.approx(right.diagnostics.to_dict(), abs=1e3 * tolerance)


def overlap(A: FloatArray, B: FloatArray) -> FloatArray:
    """Gaussian kernel, which no mean vector can stand for."""
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / (2 * A.shape[1]))
