"""likelihood: its error, coverage and width, measured over seeded repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from chance import fewest, most, sketch_of
from conftest import Draw, Portraits, draw_groups

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators import checks
from divscore.estimators.checks import SEPARABLE_P
from divscore.estimators.interval import Estimate
from divscore.estimators.likelihood import likelihood
from divscore.sketch import scorer
from divscore.sketch.scorer import FEW

PREVALENCES = np.linspace(0, 1, 7)


def protocol(
    vectors: np.ndarray, groups: np.ndarray, labels: int, splits: int
) -> Iterator[tuple[float, Estimate]]:
    """The paper's protocol: balanced labels, collections of seven compositions from the rest."""
    first, second = np.unique(groups)
    size = min(480, *(int((groups == g).sum()) - labels // 2 for g in (first, second)))
    for split in range(splits):
        rng = np.random.default_rng(split)
        a, b = (rng.permutation(np.flatnonzero(groups == g)) for g in (first, second))
        chosen = np.concatenate([a[: labels // 2], b[: labels // 2]])
        control = ControlSet(vectors[chosen], groups[chosen], attribute="attribute")
        for f in PREVALENCES:
            n = round(f * size)
            rows = np.concatenate(
                [
                    rng.choice(a[labels // 2 :], n, replace=False),
                    rng.choice(b[labels // 2 :], size - n, replace=False),
                ]
            )
            yield 2 * n / size - 1, likelihood(sketch_of(vectors[rows], control))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "labels", "splits", "error", "width"),
    [
        # METHOD's figures are 0.047 and 0.24 (gender, 50), 0.097 and 0.54 (skin tone, 50), 0.016 and 0.12 (gender,
        # 200); a quarter more is allowed for fewer splits.
        ("gender", 50, 12, 0.060, 0.30),
        ("skin_tone", 50, 6, 0.121, 0.68),
        ("gender", 200, 3, 0.021, 0.15),
    ],
)
def test_the_papers_protocol(
    attribute: str, labels: int, splits: int, error: float, width: float, ppb: Portraits
) -> None:
    found = list(protocol(ppb.vectors, getattr(ppb, attribute), labels, splits))
    errors = [abs(estimate.disparity - truth) for truth, estimate in found]
    covered = [truth in estimate.interval for truth, estimate in found]
    widths = [estimate.interval.width for _, estimate in found]
    assert np.mean(errors) <= error
    assert np.mean(widths) <= width
    # The collections of one split share its labels, so they count for fewer: 0.88 rather than the binomial limit.
    assert np.mean(covered) >= 0.88


@pytest.mark.slow
@pytest.mark.parametrize("gap", [1.2, 2.5])
@pytest.mark.parametrize("population", [False, True])
def test_coverage_on_normal_groups(gap: float, population: bool) -> None:
    reps, covered, widths = 24, 0, []
    for rep in range(reps):
        vectors, names = draw_groups(2 * rep, [30, 30], d=10, gap=gap)
        share = np.random.default_rng(rep).uniform()
        # The population's own share, or this very collection's.
        n = np.random.default_rng(rep + 500).binomial(500, share)
        truth = 2 * share - 1 if population else 2 * n / 500 - 1
        sketch = sketch_of(
            draw_groups(2 * rep + 1, [n, 500 - n], d=10, gap=gap)[0],
            ControlSet(vectors, names, attribute="letter"),
        )
        interval = likelihood(sketch, population=population).interval
        covered += truth in interval
        widths.append(interval.width)
    assert covered >= fewest(reps, 0.95)
    assert np.mean(widths) < (1.0 if gap == 1.2 else 0.4)


@pytest.mark.slow
def test_coverage_of_three_groups() -> None:
    reps, covered, each = 20, 0, 0
    for rep in range(reps):
        vectors, names = draw_groups(2 * rep, [30, 30, 30], gap=2.0)
        counts = np.random.default_rng(rep).multinomial(500, np.random.default_rng(rep).dirichlet(np.ones(3)))
        sketch = sketch_of(
            draw_groups(2 * rep + 1, counts, gap=2.0)[0], ControlSet(vectors, names, attribute="l")
        )
        found = likelihood(sketch)
        covered += (counts.max() - counts.min()) / 500 in found.interval
        each += sum(c / 500 in i for c, i in zip(counts, found.share_intervals, strict=True))
    assert covered >= fewest(reps, 0.95)
    assert each >= 0.88 * 3 * reps  # the three shares of one collection are not independent


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "d"), [(50, 20), (50, 100), (200, 20)])
def test_random_labels_claim_nothing(labels: int, d: int) -> None:
    reps, honest, conclusive = 35, 0, 0
    for rep in range(reps):
        rng = np.random.default_rng(rep)
        groups = rng.permutation(["a", "b"] * (labels // 2))
        control = ControlSet(rng.normal(size=(labels, d)), groups, attribute="letter")
        interval = likelihood(sketch_of(rng.normal(size=(200, d)), control)).interval
        honest += rng.uniform(-1, 1) in interval
        conclusive += interval.method != "cannot tell"
    assert honest >= fewest(reps, 0.95)
    assert conclusive <= most(reps, SEPARABLE_P)


@pytest.mark.parametrize(
    ("labels", "d", "gap", "groups"),
    [
        (FEW + 2, 20, 0.8, 2),
        (FEW + 2, 500, 5.0, 2),
        (1_200, 100, 1.5, 2),
        (FEW + 4, 60, 3.0, 4),
        (1_200, 40, 2.0, 4),
    ],
)
def test_many_labels_give_the_intervals_of_refits_one_by_one(
    labels: int, d: int, gap: float, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, names = draw_groups(labels, [labels // groups] * groups, d, gap)
    collection = draw_groups(7, [500, 200, 150, 100][:groups], d, gap)[0]
    results = []
    for few in (FEW, labels):
        monkeypatch.setattr(scorer, "FEW", few)
        monkeypatch.setattr(checks, "FEW", few)
        scorer._SCORERS.clear()
        results.append(audit(collection, ControlSet(vectors, names, attribute="letter")))
    scorer._SCORERS.clear()
    nearly, exact = results
    assert nearly.trust == exact.trust == "good"
    assert nearly.disparity == pytest.approx(exact.disparity, abs=1e-6)
    assert nearly.diagnostics.separability_p == exact.diagnostics.separability_p
    if groups == 2:  # with more, items between two steps of the coarse grid go either way with the last bit
        assert nearly.diagnostics.score_fit_p == pytest.approx(exact.diagnostics.score_fit_p, abs=0.015)
    intervals = (
        [result.interval for result in results],
        *zip(*(result.share_intervals.values() for result in results), strict=True),
    )
    for near, full in intervals:
        assert near.width == pytest.approx(full.width, rel=0.03)
        assert near.low == pytest.approx(full.low, abs=0.03 * full.width)
        assert near.high == pytest.approx(full.high, abs=0.03 * full.width)


def test_swapped_groups_mirror_the_audit_of_many_labels() -> None:
    vectors, names = draw_groups(5, [FEW // 2 + 1] * 2, gap=1.5)
    collection = draw_groups(6, [300, 100], gap=1.5)[0]
    one, other = (
        audit(collection, ControlSet(vectors, named, attribute="letter"))
        for named in (names, np.where(names == "a", "b", "a"))
    )
    assert one.disparity == -other.disparity
    assert one.interval == other.interval.mirrored()
    assert one.share_intervals["a"] == other.share_intervals["b"]
    assert one.diagnostics == other.diagnostics


def test_the_population_is_less_certain(control: ControlSet, collection: FloatArray) -> None:
    here = audit(collection, control)
    everywhere = audit(collection, control, population=True)
    assert everywhere.disparity == here.disparity
    assert everywhere.interval.width > here.interval.width
    # At least the binomial part, 2 · 1.96 · 2 √(p (1 − p) / N); a bootstrap of 100 is good to a fifth.
    assert everywhere.interval.width > 0.8 * 4 * 1.96 * math.sqrt(0.75 * 0.25 / 400)


def test_higher_confidence_gives_wider_intervals(control: ControlSet, collection: FloatArray) -> None:
    widths = [
        audit(collection, control, confidence=c).interval.width for c in (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
    ]
    assert widths == sorted(set(widths))


def test_groups_in_a_row_can_be_told(draw: Draw) -> None:
    # The middle group of three on one axis has no direction of its own.
    rng = np.random.default_rng(0)

    def row(counts: tuple[int, ...]) -> tuple[FloatArray, list[str]]:
        place = np.repeat([-3.0, 0.0, 3.0], counts)
        names = np.repeat(["young", "middle", "old"], counts).tolist()
        return np.column_stack([place, np.full(len(place), 4.0)]) + rng.normal(
            size=(len(place), 2)
        ) * 0.7, names

    vectors, names = row((60, 60, 60))
    control = ControlSet(vectors, names, attribute="age", order=("young", "middle", "old"))
    result = audit(row((100, 250, 150))[0], control)
    assert result.trust != "poor"
    assert list(result.shares.values()) == pytest.approx([0.2, 0.5, 0.3], abs=0.07)
    assert result.interval.width < 0.5
