"""Collections that differ from the labelled examples: what is found, reweighted and allowed for."""

from __future__ import annotations

import numpy as np
import pytest
from chance import fewest, sketch_of
from conftest import draw_groups

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators.interval import Estimate
from divscore.estimators.likelihood import likelihood
from divscore.estimators.mixture import mixture_fit
from divscore.estimators.shift import (
    LARGEST_WEIGHT,
    UNLIKE,
    _resemblance,
    find_difference,
    random_shifts,
    reweighted,
)


def labelled(seed: int, counts: list[int], d: int, gap: float) -> ControlSet:
    vectors, names = draw_groups(seed, counts, d, gap)
    return ControlSet(vectors, names, attribute="letter")


def other_place(rows: FloatArray, seed: int = 0, size: float = 0.5) -> FloatArray:
    """The same items, all moved by one random vector."""
    return rows + size * np.random.default_rng(seed).normal(size=rows.shape[1])


def test_without_a_difference_nothing_changes(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control)
    assert (result.trust, result.diagnostics.shift) == ("good", 0.0)
    assert result.interval_if_similar == result.interval
    assert not result.differs


def test_a_difference_widens_every_interval() -> None:
    for counts in ([60, 60], [60, 60, 60]):
        control = labelled(0, counts, 16, 3.0)
        rows = draw_groups(1, [200, 100, 100][: len(counts)], 16, 3.0)[0]
        result = audit(other_place(rows, size=0.3), control)
        assert result.trust == "caution"
        assert result.diagnostics.shift > 0.2
        assert result.interval.width > 1.1 * result.interval_if_similar.width
        assert result.if_similar is not None
        for interval, similar in zip(
            result.share_intervals.values(), result.if_similar.share_intervals, strict=True
        ):
            assert interval.width > similar.width


def test_laws_hold_with_a_difference() -> None:
    vectors, names = draw_groups(0, [60, 60], 16, 2.5)
    rows = other_place(draw_groups(1, [300, 100], 16, 2.5)[0])
    control = ControlSet(vectors, names, attribute="letter")
    result = audit(rows, control)
    assert result.trust == "caution"
    turned = audit(rows, ControlSet(vectors, np.where(names == "a", "b", "a"), attribute="letter"))
    assert turned.disparity == -result.disparity
    assert turned.interval == result.interval.mirrored()
    assert turned.interval_if_similar == result.interval_if_similar.mirrored()
    again = audit(rows, ControlSet(vectors.copy(), names.copy(), attribute="letter"))
    assert (again.disparity, again.interval) == (result.disparity, result.interval)
    # The order of the items, and how they come, changes rounding at most.
    mixed = rows[np.random.default_rng(0).permutation(len(rows))]
    for other in (mixed, [mixed[:150], mixed[150:]]):
        moved = audit(other, control)
        assert moved.disparity == pytest.approx(result.disparity, abs=1e-9)
        assert moved.interval.low == pytest.approx(result.interval.low, abs=1e-9)
        assert moved.interval.high == pytest.approx(result.interval.high, abs=1e-9)


def test_the_shift_is_measured_outside_the_groups_plane() -> None:
    control = labelled(0, [200, 200], 40, 2.5)
    rows = draw_groups(1, [200, 200], 40, 2.5)[0]
    away = np.random.default_rng(3).normal(size=40)
    away[:2] = 0  # the groups differ along these
    found = [find_difference(sketch_of(rows + size * away, control)) for size in (0.2, 0.4)]
    assert not any(each.score_fit.rejects for each in found)
    assert [each.shift for each in found] == pytest.approx([0.2, 0.4], rel=0.25)


def test_shifts_have_the_spread_of_the_scores_within_groups() -> None:
    for counts in ([40, 60], [40, 60, 50]):
        scorer = sketch_of(np.eye(8), labelled(0, counts, 8, 2.0)).scorer
        drawn = random_shifts(scorer, 2000)
        within = np.mean(
            [
                np.cov(scorer.fit.loo[scorer.labels == g].T, bias=True).reshape(drawn.shape[1], -1)
                for g in range(len(counts))
            ],
            axis=0,
        )
        assert np.cov(drawn.T, bias=True).reshape(within.shape) == pytest.approx(
            within, abs=0.06 * within.max()
        )


def test_scores_like_no_mixture_say_nothing(control: ControlSet, collection: FloatArray) -> None:
    sketch = sketch_of(collection + 3.0 * (np.eye(8)[0] - np.eye(8)[1]), control)
    assert find_difference(sketch).score_fit.statistic > UNLIKE
    assert likelihood(sketch).interval.width == 2


def test_a_shift_along_the_groups_direction_is_allowed_for_if_the_scores_show_it() -> None:
    # Two groups that hardly overlap: the scores have two modes, and both are off.
    vectors, names = draw_groups(0, [100, 100], 8, 4.0)
    rows = draw_groups(1, [300, 100], 8, 4.0)[0] - 0.6 * (np.eye(8)[0] - np.eye(8)[1])
    estimate = likelihood(sketch_of(rows, ControlSet(vectors, names, attribute="letter")))
    assert estimate.if_similar is not None
    assert 0.5 in estimate.interval
    assert estimate.interval.width > 2 * estimate.if_similar.interval.width


# Reweighting


def test_composition_alone_does_not_change_the_weights() -> None:
    control = labelled(0, [100, 100], 16, 2.5)
    sketch = sketch_of(draw_groups(1, [360, 40], 16, 2.5)[0], control)
    fit = mixture_fit(sketch)
    assert abs(reweighted(sketch, fit)[1]).max() < 0.01

    def pull(weights: FloatArray) -> float:
        """How much more examples count that look like the larger group, within each group."""
        scorer = sketch.scorer
        rows = [scorer.labels == g for g in (0, 1)]
        return float(
            np.mean([np.corrcoef(np.log(weights[own]), scorer.fit.loo[own, 0])[0, 1] for own in rows])
        )

    # If the groups counted alike, the larger one would look like the difference itself.
    assert abs(pull(_resemblance(sketch, fit.shares))) < 0.3
    assert abs(pull(_resemblance(sketch, np.array([0.5, 0.5])))) > 0.8


def test_weights_are_limited() -> None:
    control = labelled(0, [40, 40], 8, 2.5)
    sketch = sketch_of(draw_groups(1, [200, 200], 8, 2.5)[0] + 6 * np.eye(8)[5], control)
    weights = _resemblance(sketch, np.array([0.5, 0.5]))
    assert 1 / LARGEST_WEIGHT <= weights.min() < weights.max() <= LARGEST_WEIGHT


def two_places(rng: np.random.Generator, women: int, men: int, place: float) -> FloatArray:
    """In place 1 the groups differ along axis 0, in place 0 along axis 1; axis 2 tells the places apart."""
    group = np.repeat([1.0, -1.0], [women, men])
    here = rng.random(women + men) < place
    rows = 0.7 * rng.normal(size=(women + men, 8)) + 2 * np.eye(8)[7]
    rows[:, 0] += np.where(here, 1.2 * group, -0.8)
    rows[:, 1] += np.where(here, -0.8, 1.2 * group)
    rows[:, 2] += np.where(here, 2.0, -2.0)
    return rows


def test_labelled_examples_like_the_collection_count_more() -> None:
    before, after = [], []
    for rep in range(8):
        rng = np.random.default_rng(rep)
        names = ["a"] * 100 + ["b"] * 100
        control = ControlSet(two_places(rng, 100, 100, 0.5), names, attribute="letter")
        estimate = likelihood(sketch_of(two_places(rng, 300, 100, 1.0), control))
        assert estimate.if_similar is not None
        before.append(abs(estimate.if_similar.disparity - 0.5))
        after.append(abs(estimate.disparity - 0.5))
    assert np.mean(after) < 0.8 * np.mean(before)


# Coverage


def shifted(rep: int, counts: np.ndarray, groups: int, size: float) -> Estimate:
    control = labelled(2 * rep, [50] * groups, 20, 2.5)
    rows = draw_groups(2 * rep + 1, counts.tolist(), 20, 2.5)[0]
    return likelihood(sketch_of(other_place(rows, rep, size), control))


@pytest.mark.slow
def test_coverage_of_shifted_collections() -> None:
    reps, covered, similar = 60, 0, 0
    for rep in range(reps):
        share = np.random.default_rng(rep).integers(40, 361)
        estimate = shifted(rep, np.array([share, 400 - share]), 2, 0.5)
        assert estimate.if_similar is not None
        truth = 2 * share / 400 - 1
        covered += truth in estimate.interval
        similar += truth in estimate.if_similar.interval
    assert covered >= fewest(reps, 0.95)
    assert similar < covered - 5  # what the allowance is for


@pytest.mark.slow
def test_coverage_of_three_shifted_groups() -> None:
    reps, covered, each, similar = 15, 0, 0, 0
    for rep in range(reps):
        counts = np.random.default_rng(rep).multinomial(400, np.random.default_rng(rep).dirichlet(np.ones(3)))
        estimate = shifted(rep, counts, 3, 0.5)
        assert estimate.if_similar is not None
        truth = (counts.max() - counts.min()) / 400
        covered += truth in estimate.interval
        each += sum(c / 400 in i for c, i in zip(counts, estimate.share_intervals, strict=True))
        similar += sum(c / 400 in i for c, i in zip(counts, estimate.if_similar.share_intervals, strict=True))
    assert covered >= fewest(reps, 0.95)
    assert each >= 0.9 * 3 * reps
    assert similar < each
