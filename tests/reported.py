"""Audits that the tests of reports share, as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pytest

from divscore import Audit, ControlSet, select_adaptive
from divscore.audit.audit import audit
from divscore.control.labelledsample import LabelledSample
from divscore.estimators.interval import Interval

matplotlib.use("Agg")
Several = Callable[[int], list[Audit]]


def audited(
    draw: Callable[..., Any], control: ControlSet, counts: Sequence[Sequence[int]], gap: float, **options: str
) -> list[Audit]:
    return [
        audit(draw(5 + at, each, gap=gap)[0], control, name=f"place {at}", **options)
        for at, each in enumerate(counts)
    ]


@pytest.fixture(scope="session")
def audits(draw: Callable[..., Any], make_control: Callable[..., ControlSet]) -> list[Audit]:
    """Two groups: mostly a, even, mostly b, and too small."""
    control = select_adaptive(make_control(1, (60, 60), gap=1.5), 30)
    return audited(draw, control, [(300, 100), (200, 200), (100, 300), (6, 6)], 1.5)


@pytest.fixture(scope="session")
def three(draw: Callable[..., Any], make_control: Callable[..., ControlSet]) -> list[Audit]:
    """Three groups: two uneven collections, an even one, and one that is too small."""
    made = [(100, 300, 50), (60, 60, 240), (100, 100, 100), (3, 3, 3)]
    return audited(draw, make_control(3, (40, 40, 40), gap=3.0), made, 3.0)


@pytest.fixture(scope="session")
def scored(draw: Callable[..., Any], make_control: Callable[..., ControlSet]) -> list[Audit]:
    """The paper's score of three groups, which gives no shares."""
    made = [(100, 300, 50), (100, 100, 100), (200, 100, 50)]
    return audited(draw, make_control(3, (40, 40, 40), gap=3.0), made, 3.0, estimator="divscore")


@pytest.fixture(scope="session")
def trained(draw: Callable[..., Any], make_control: Callable[..., ControlSet]) -> list[Audit]:
    """Self-training, which gives no interval."""
    made = [(50 + 50 * at, 300) for at in range(6)]
    return audited(draw, make_control(1, (60, 60), gap=2.5), made, 2.5, estimator="self-training")


@pytest.fixture(scope="session")
def by_labels(draw: Callable[..., Any], make_control: Callable[..., ControlSet]) -> dict[str, Audit]:
    """Sixty labels of the collection: alone with some missing, as pairs in two batches, and next to a control set."""
    rows, names = draw(5, (300, 100), gap=1.5)
    design: dict[str, Any] = {"order": ("a", "b"), "attribute": "letter", "drawn_from": 400}
    some = LabelledSample.of(
        rows[:60], ["" if at < 4 else name for at, name in enumerate(names[:60])], **design
    )
    pairs = LabelledSample.of(rows[:60], names[:60], strata=np.arange(60) // 2, batches=2, **design)
    control = make_control(1, (60, 60), gap=1.5)
    return {
        "crossfit": audit(rows, sample=some),
        "pairs": audit(rows, sample=pairs),
        "rectified": audit(rows, control, sample=pairs),
    }


@pytest.fixture(scope="session")
def crossed(draw: Callable[..., Any]) -> Audit:
    """An intersection of two attributes."""
    vectors, groups = draw(4, (50, 50, 50, 50), gap=3.0)
    gender = ControlSet(vectors, ["f" if g in "ab" else "m" for g in groups], attribute="gender")
    tone = ControlSet(vectors, ["dark" if g in "ac" else "light" for g in groups], attribute="tone")
    return audit(draw(9, (100, 50, 150, 100), gap=3.0)[0], gender.cross(tone), name="crossed")


@pytest.fixture(scope="session")
def several(audits: list[Audit]) -> Several:
    """Return a maker of many audits, all with different numbers, as a page of real ones has."""

    def make(number: int) -> list[Audit]:
        rng = np.random.default_rng(0)
        made = []
        for at in range(number):
            each = audits[at % 3]
            share, width = rng.uniform(0.2, 0.8), rng.uniform(0.02, 0.1)
            d = 2 * share - 1
            method = each.interval.method
            made.append(
                replace(
                    each,
                    name=f"collection {at:04d}",
                    count=int(rng.integers(20, 100_000)),
                    shares={"a": share, "b": 1 - share},
                    share_intervals={
                        "a": Interval(share - width, share + width, 0.95, method),
                        "b": Interval(1 - share - width, 1 - share + width, 0.95, method),
                    },
                    disparity=d,
                    interval=Interval(d - 2 * width, d + 2 * width, 0.95, method),
                    divscore=rng.normal(),
                    diagnostics=replace(
                        each.diagnostics, relevance=rng.uniform(0.5, 9), score_fit=rng.uniform(0.2, 1.5)
                    ),
                    warnings=(f"the collection differs ({rng.uniform():.3f} times): so it is",)
                    * (at % 3 == 0),
                )
            )
        return made

    return make
