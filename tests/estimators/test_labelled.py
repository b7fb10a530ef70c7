"""crossfit and rectified: labels of the collection itself, without any assumption."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from chance import fewest, sketch_of
from conftest import draw_groups, labelled_part
from hypothesis import given
from hypothesis import strategies as st

from divscore import Sketch
from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample, labelled_control
from divscore.control.similarity import FloatArray
from divscore.errors import ControlError, InputError, MismatchError
from divscore.estimators.iid import iid
from divscore.estimators.labelled import from_labels


def crossfitted(rows: FloatArray, sample: LabelledSample) -> Sketch:
    """The collection as a fit on the labelled items alone sees it."""
    return sketch_of(rows, labelled_control([sample], None))


def paired(rows: FloatArray, control: ControlSet, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a sample of pairs with similar scores, and their strata."""
    rng = np.random.default_rng(seed)
    sketch = Sketch(control)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    strata = np.array_split(np.argsort(units @ sketch.scorer.fit.weights[:-1, 0]), size // 2)
    chosen = np.concatenate([rng.choice(stratum, 2, replace=False) for stratum in strata])
    return chosen, np.repeat(np.arange(size // 2), 2)


# Coverage: the interval holds without any assumption about the fit


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 1.5, 3.0])  # useless, weak and good features
@pytest.mark.parametrize("counts", [(500, 500), (900, 100), (30, 970)])
def test_coverage_of_crossfit(counts: tuple[int, int], gap: float) -> None:
    rows, groups = draw_groups(1, counts, gap=gap)
    truth, reps, covered, errors, widths, plain = (counts[0] - counts[1]) / 1000, 80, 0, [], [], []
    for rep in range(reps):
        chosen = np.random.default_rng(rep).choice(1000, size=60, replace=False)
        sample = LabelledSample.of(rows[chosen], groups[chosen], order=("a", "b"))
        found = from_labels(crossfitted(rows, sample), sample).estimate
        covered += truth in found.interval
        errors.append(found.disparity - truth)
        widths.append(found.interval.width)
        plain.append(iid(sample).interval.width)
    assert covered >= fewest(reps, 0.95)
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(reps) + 0.01
    assert np.mean(widths) <= (0.6 if gap == 3.0 and min(counts) > 30 else 1.1) * np.mean(plain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "shift"), [((1000, 1000), 0.0), ((500, 1500), 3.0), ((1960, 40), 0.0), ((40, 1960), 3.0)]
)
@pytest.mark.parametrize("pairs", [False, True])
def test_coverage_of_rectified(counts: tuple[int, int], shift: float, pairs: bool) -> None:
    vectors, names = draw_groups(0, [30, 30], gap=2.0)
    control = ControlSet(vectors, names, attribute="letter")
    rows, groups = draw_groups(1, counts, gap=2.0)
    rows = rows + shift * (np.eye(8)[0] - np.eye(8)[1])
    truth, reps, covered, errors, widths, plain = (counts[0] - counts[1]) / 2000, 70, 0, [], [], []
    for rep in range(reps):
        chosen, strata = paired(rows, control, 50, rep)
        if not pairs:
            chosen, strata = np.random.default_rng(rep).choice(2000, size=50, replace=False), None
        sample = LabelledSample.of(rows[chosen], groups[chosen], control=control, strata=strata)
        found = from_labels(sketch_of(rows, labelled_control([sample], control)), sample).estimate
        covered += truth in found.interval
        errors.append(found.disparity - truth)
        widths.append(found.interval.width)
        plain.append(iid(sample).interval.width)
    assert covered >= fewest(reps, 0.95)
    # Unbiased up to its own Monte-Carlo error, and the share of clipping where a group is nearly absent.
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(reps) + 0.01
    assert np.mean(widths) <= 1.05 * np.mean(plain)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(400, 300, 200, 100), (250, 250, 250, 250)])
def test_coverage_with_four_groups(counts: tuple[int, ...]) -> None:
    rows, groups = draw_groups(1, counts, gap=2.5)
    truth, reps = np.array(counts) / 1000, 80
    covered, inside, errors = 0, np.zeros(4), []
    for rep in range(reps):
        chosen = np.random.default_rng(rep).choice(1000, size=100, replace=False)
        sample = LabelledSample.of(rows[chosen], groups[chosen], order=("a", "b", "c", "d"))
        found = from_labels(crossfitted(rows, sample), sample).estimate
        covered += (counts[0] - counts[3]) / 1000 in found.interval
        inside += [share in interval for share, interval in zip(truth, found.share_intervals, strict=True)]
        errors.append(np.abs(found.shares - truth).mean())
        assert found.shares.sum() == pytest.approx(1)
    assert covered >= fewest(reps, 0.95)
    assert (inside >= fewest(reps, 0.95)).all()
    assert np.mean(errors) <= 0.03


# Few labels of a group


def test_a_group_that_was_never_seen(collection: FloatArray) -> None:
    _, names = draw_groups(1, [300, 100], gap=2.5)
    only = np.flatnonzero(names == "a")[:60]
    sample = LabelledSample.of(collection[only], names[only], order=("a", "b"))
    result = audit(collection, sample=sample)
    # Clopper–Pearson of 60 in 60; at least 60 of 400 are a.
    assert result.shares["a"] == 1
    assert result.share_intervals["a"].low == pytest.approx(0.025 ** (1 / 60))
    assert result.trust == "good"
    assert (result.labels.counts if result.labels else {}) == {"a": 60, "b": 0}
    with pytest.raises(
        ControlError, match="all 60 labelled items belong to group 'a'; name the other groups"
    ):
        audit(collection, sample=(collection[only], names[only]))


def test_one_or_two_of_a_group_and_three_groups() -> None:
    rows, names = draw_groups(5, (500, 480, 20), gap=3.0)
    for seen in (1, 2):
        chosen = np.concatenate([np.flatnonzero(names == "c")[:seen], np.flatnonzero(names != "c")[:60]])
        sample = LabelledSample.of(rows[chosen], names[chosen], order=("a", "b", "c"))
        result = audit(rows, sample=sample)
        assert result.shares["a"] == pytest.approx(0.5, abs=0.06)  # c was not left to chance
        assert 0.02 in result.share_intervals["c"]
        assert result.share_intervals["a"].width < 0.2


def test_the_labelled_items_themselves_bound_the_shares() -> None:
    rows, names = draw_groups(1, [30, 30], gap=2.5)
    sample = LabelledSample.of(rows[:58], names[:58], order=("a", "b"))
    found = from_labels(crossfitted(rows, sample), sample).estimate
    members = int((names[:58] == "a").sum())
    assert found.share_intervals[0].low >= members / 60 - 1e-12
    assert found.share_intervals[0].high <= (members + 2) / 60 + 1e-12
    everything = LabelledSample.of(rows, names)
    whole = from_labels(crossfitted(rows, everything), everything).estimate
    assert (whole.disparity, whole.interval.low, whole.interval.high) == pytest.approx((0, 0, 0), abs=1e-12)


@pytest.mark.slow
def test_coverage_with_twelve_equal_groups() -> None:
    rng, reps = np.random.default_rng(0), 60
    labels = rng.permutation(np.repeat(np.arange(12), 50))
    rows, names = (
        rng.normal(size=(600, 16)) + 2.5 * np.eye(16)[labels],
        np.array(list("abcdefghijkl"))[labels],
    )
    covered, inside = 0, 0.0
    for rep in range(reps):
        chosen = np.random.default_rng(rep).choice(600, size=100, replace=False)
        sample = LabelledSample.of(rows[chosen], names[chosen], order=tuple("abcdefghijkl"))
        found = from_labels(crossfitted(rows, sample), sample).estimate
        covered += 0.0 in found.interval
        inside += float(np.mean([1 / 12 in interval for interval in found.share_intervals]))
    assert covered >= fewest(reps, 0.95)
    assert inside / reps >= 0.9


def test_a_few_items_without_a_label_are_not_predicted() -> None:
    rows, names = draw_groups(2, (200, 99), gap=3.0)
    for n in (298, 290):
        found = from_labels(
            crossfitted(rows, sample := LabelledSample.of(rows[:n], names[:n], order=("a", "b"))), sample
        ).estimate
        members = int((names[:n] == "a").sum())
        assert found.shares[0] == pytest.approx(members / n)
        assert found.share_intervals[0].low == pytest.approx(members / 299)
        assert found.share_intervals[0].high == pytest.approx((members + 299 - n) / 299)


# Items without a label


def test_items_without_a_label_are_bounded_not_dropped(collection: FloatArray) -> None:
    _, names = draw_groups(1, [300, 100], gap=2.5)
    labels = [str(name) for name in names[:80]]
    complete = audit(collection, sample=(collection[:80], labels))
    labels[10:16] = ["", "unsure", "?", "Unsure ", None, float("nan")]  # type: ignore[list-item]
    result = audit(collection, sample=(collection[:80], labels))
    assert result.labels is not None
    assert (result.labels.labelled, result.labels.without_label) == (74, 6)
    assert result.interval.low < complete.interval.low < complete.interval.high < result.interval.high
    assert result.labels.interval_if_random.width < result.interval.width
    assert "6 of 80 sampled items have no label" in " ".join(result.warnings)
    with pytest.raises(InputError, match="no item of the labelled sample has a group"):
        audit(collection, sample=(collection[:80], [""] * 80))


def test_drawn_items_that_are_missing_are_bounded_too(collection: FloatArray) -> None:
    _, names = draw_groups(1, [300, 100], gap=2.5)
    complete = LabelledSample.of(collection[:80], names[:80], order=("a", "b"))
    result, other = (
        audit(collection, sample=replace(complete, missing=20)),
        audit(collection, sample=complete),
    )
    # A fifth of the sample may be anything.
    assert result.share_intervals["a"].low == pytest.approx(0.8 * other.share_intervals["a"].low)
    assert result.interval.high == pytest.approx(0.8 * other.interval.high + 0.2)
    assert result.interval.low == pytest.approx(0.8 * other.interval.low - 0.2)
    assert "20 of 100 sampled items have no label" in " ".join(result.warnings)
    assert (result.disparity, result.labels and result.labels.without_label) == (other.disparity, 20)


def test_half_of_the_labels_say_nearly_nothing(collection: FloatArray) -> None:
    _, names = draw_groups(1, [300, 100], gap=2.5)
    labels = [name if at % 5 < 2 else "" for at, name in enumerate(names[:80])]
    result = audit(collection, sample=(collection[:80], labels))
    assert result.trust == "poor"
    assert "label the other 48 items of the sample" in result.warnings[0]


# Laws


@given(seed=st.integers(0, 50), pairs=st.booleans())
def test_swapping_the_names_mirrors_everything(seed: int, pairs: bool) -> None:
    rows, names = draw_groups(seed, (150, 90), gap=1.5)
    swapped = np.where(names == "a", "b", "a")
    strata = np.arange(40) // 2 if pairs else None
    results = []
    for labels in (names, swapped):
        sample = LabelledSample.of(rows[:40], labels[:40], order=("a", "b"), strata=strata)
        results.append(from_labels(crossfitted(rows, sample), sample).estimate)
    one, other = results
    assert one.disparity == -other.disparity
    assert one.interval == other.interval.mirrored()


def test_the_order_of_the_collection_changes_nothing() -> None:
    rows, names = draw_groups(3, (150, 90), gap=1.5)
    sample = LabelledSample.of(rows[:40], names[:40])
    control = labelled_control([sample], None)
    one, other = (from_labels(sketch_of(part, control), sample).estimate for part in (rows, rows[::-1]))
    assert one.disparity == pytest.approx(other.disparity, abs=1e-9)
    again = from_labels(sketch_of(rows, control), sample).estimate
    assert (again.disparity, again.interval) == (one.disparity, one.interval)


def test_a_useless_fit_gives_the_sample_itself() -> None:
    rng = np.random.default_rng(0)
    rows, names = rng.normal(size=(500, 8)), np.array(["a", "b"])[rng.integers(0, 2, 500)]
    sample = LabelledSample.of(rows[:60], names[:60])
    found = from_labels(crossfitted(rows, sample), sample).estimate
    assert found.disparity == pytest.approx(iid(sample).disparity, abs=0.1)
    assert found.interval.width <= 1.1 * iid(sample).interval.width


# What an audit makes of it


def test_rectified_corrects_a_control_set_of_another_domain(control: ControlSet) -> None:
    # A shift along the direction itself makes nearly everything look like "a"; the truth is d = −0.5.
    rows, names = draw_groups(1, [500, 1500], gap=2.5)
    rows = rows + 3.0 * (np.eye(8)[0] - np.eye(8)[1])
    misled = audit(rows, control, show_untrusted=True)
    assert misled.disparity > 0.2
    chosen = np.random.default_rng(0).choice(2000, size=100, replace=False)
    result = audit(rows, control, sample=(rows[chosen], names[chosen]))
    assert result.estimator == "rectified"
    assert -0.5 in result.interval
    assert result.trust == "good"
    assert not math.isnan(result.divscore)
    without = audit(rows, sample=(rows[chosen], names[chosen]))
    assert (without.estimator, without.trust) == ("crossfit", "good")
    assert -0.5 in without.interval


def test_disagreement_is_an_alarm(control: ControlSet) -> None:
    rows, names = draw_groups(1, [500, 1500], gap=2.5)
    rows = rows + 3.0 * (np.eye(8)[0] - np.eye(8)[1])
    for estimator in ("likelihood", "rectified"):
        chosen = np.random.default_rng(0).choice(2000, size=100, replace=False)
        result = audit(rows, control, estimator=estimator, sample=(rows[chosen], names[chosen]))
        assert any("use 'rectified'" in w for w in result.warnings)


def test_rectified_profits_from_a_good_control_set(control: ControlSet) -> None:
    rows, names = draw_groups(1, [1500, 500], gap=2.5)
    sample = rows[:80], names[:80]
    result = audit(rows, control, estimator="rectified", sample=sample)
    assert 0.5 in result.interval
    assert result.interval.width < audit(rows, control, estimator="iid", sample=sample).interval.width
    assert not any("use 'rectified'" in w for w in result.warnings)


def test_too_few_labels_say_nothing(control: ControlSet, collection: FloatArray) -> None:
    result = audit(collection, control, sample=labelled_part((5, 4)))
    assert result.trust == "poor"
    assert "9 items of the collection have labels; at least 10 are needed" in result.warnings[0]
    result = audit(collection[:50], control, estimator="iid", sample=labelled_part((40, 20)))
    assert any("60 labelled items for a collection of 50" in w for w in result.warnings)


def test_rectified_of_one_group_claims_no_certainty(control: ControlSet) -> None:
    rows, names = draw_groups(1, [990, 10], gap=2.5)
    only = np.flatnonzero(names == "a")[:50]
    result = audit(rows, control, estimator="rectified", sample=(rows[only], names[only]))
    # Clopper–Pearson of 50 in 50 reaches down to a share of 0.929.
    assert result.interval.low <= 2 * 0.9289 - 1
    assert result.interval.high == 1


def test_later_labels_and_a_changed_collection_are_reported(collection: FloatArray) -> None:
    _, names = draw_groups(1, [300, 100], gap=2.5)
    options = {"order": ("a", "b"), "attribute": "letter"}
    plain = LabelledSample.of(collection[:60], names[:60], **options, drawn_from=400)
    result = audit(collection, sample=plain)
    assert (result.trust, result.warnings, result.control.attribute) == ("good", (), "letter")
    more = LabelledSample.of(collection[:60], names[:60], **options, batches=2)
    assert "labels were added after a first batch" in audit(collection, sample=more).warnings[0]
    grown = LabelledSample.of(collection[:60], names[:60], **options, drawn_from=300)
    result = audit(collection, sample=grown)
    assert result.trust == "caution"
    assert "had 300 items when the sample was drawn, and has 400 now" in result.warnings[0]


def test_items_that_were_labelled_several_times_are_noticed(collection: FloatArray) -> None:
    _, names = draw_groups(1, [300, 100], gap=2.5)
    twice = np.arange(40) // 2
    result = audit(collection, sample=(collection[twice], names[twice]))
    assert "20 of 40 labelled items repeat another" in " ".join(result.warnings)


def test_names_that_differ_in_case_and_spaces_are_one_group() -> None:
    sample = LabelledSample.of(np.eye(4), ["Female ", "female", "MALE", "male"], order=("female", "male"))
    assert sample.counts.tolist() == [2, 2]
    with pytest.raises(ControlError, match=r"has the group 'woman', but the groups are 'female', 'male'"):
        LabelledSample.of(np.eye(2), ["woman", "male"], order=("female", "male"))
    renamed = LabelledSample.of(
        np.eye(2), ["woman", "male"], order=("female", "male"), rename={"woman": "female"}
    )
    assert renamed.labels.tolist() == [0, 1]


def test_what_does_not_fit_together(control: ControlSet, collection: FloatArray) -> None:
    one = LabelledSample.of(collection[:4], ["a", "b", "a", "b"])
    other = LabelledSample.of(collection[:4], ["a", "c", "a", "c"])
    with pytest.raises(MismatchError, match="different groups: 'a', 'b' and 'a', 'c'"):
        labelled_control([one, other], None)
    with pytest.raises(InputError, match="'likelihood' needs labelled examples"):
        audit(collection)
    with pytest.raises(InputError, match="'rectified' needs labelled examples"):
        audit(collection, estimator="rectified", sample=labelled_part())
