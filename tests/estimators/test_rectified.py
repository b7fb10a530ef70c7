"""rectified: a labelled sample corrects the control set."""

from __future__ import annotations

import numpy as np
import pytest
from chance import fewest, sketch_of
from conftest import draw_groups, labelled_part

from divscore.audit.audit import audit
from divscore.control.controlset import ControlSet, LabelledSample
from divscore.control.similarity import FloatArray
from divscore.errors import InputError
from divscore.estimators.iid import iid
from divscore.estimators.rectified import rectified


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "shift"), [((1000, 1000), 0.0), ((500, 1500), 3.0), ((1960, 40), 0.0), ((40, 1960), 3.0)]
)
def test_coverage_of_rectified(counts: tuple[int, int], shift: float) -> None:
    vectors, names = draw_groups(0, [30, 30], gap=2.0)
    control = ControlSet(vectors, names, attribute="letter")
    rows, groups = draw_groups(1, counts, gap=2.0)
    rows = rows + shift * (np.eye(8)[0] - np.eye(8)[1])
    sketch, truth = sketch_of(rows, control), (counts[0] - counts[1]) / 2000
    reps, covered, errors, widths, plain = 70, 0, [], [], []
    for rep in range(reps):
        chosen = np.random.default_rng(rep).choice(2000, size=50, replace=False)
        sample = LabelledSample.of(rows[chosen], groups[chosen], control)
        found = rectified(sketch, sample)
        covered += truth in found.interval
        errors.append(found.disparity - truth)
        widths.append(found.interval.width)
        plain.append(iid(sample, 2).interval.width)
    assert covered >= fewest(reps, 0.95)
    # Unbiased up to its own Monte-Carlo error, and the share of clipping where a group is nearly absent.
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(reps) + 0.01
    assert np.mean(widths) <= 1.05 * np.mean(plain)


def test_rectified_corrects_a_control_set_of_another_domain(control: ControlSet) -> None:
    # A shift along the direction itself makes nearly everything look like "a"; the truth is d = −0.5.
    rows, names = draw_groups(1, [500, 1500], gap=2.5)
    rows = rows + 3.0 * (np.eye(8)[0] - np.eye(8)[1])
    misled = audit(rows, control, show_untrusted=True)
    assert -0.5 not in misled.interval
    assert misled.disparity > 0.5
    assert misled.trust == "poor"
    chosen = np.random.default_rng(0).choice(2000, size=100, replace=False)
    result = audit(rows, control, estimator="rectified", sample=(rows[chosen], names[chosen]))
    assert -0.5 in result.interval
    assert result.trust == "good"
    assert any("use 'rectified'" in w for w in result.warnings)
    asked_otherwise = audit(rows, control, sample=(rows[chosen], names[chosen]))
    assert any("use 'rectified'" in w for w in asked_otherwise.warnings)


def test_rectified_profits_from_a_good_control_set(control: ControlSet) -> None:
    rows, names = draw_groups(1, [1500, 500], gap=2.5)
    sample = rows[:80], names[:80]
    result = audit(rows, control, estimator="rectified", sample=sample)
    assert 0.5 in result.interval
    assert result.interval.width < audit(rows, control, estimator="iid", sample=sample).interval.width
    assert not any("use 'rectified'" in w for w in result.warnings)


def test_rectified_needs_some_labels(control: ControlSet, collection: FloatArray) -> None:
    with pytest.raises(InputError, match="9 labelled items of the collection; 'rectified' needs at least 10"):
        audit(collection, control, estimator="rectified", sample=labelled_part((5, 4)))
    result = audit(collection[:50], control, estimator="iid", sample=labelled_part((40, 20)))
    assert any("60 labelled items for a collection of 50" in w for w in result.warnings)


def test_rectified_of_one_group_claims_no_certainty(control: ControlSet) -> None:
    rows, names = draw_groups(1, [990, 10], gap=2.5)
    only = np.flatnonzero(names == "a")[:50]
    result = audit(rows, control, estimator="rectified", sample=(rows[only], names[only]))
    # Clopper–Pearson of 50 in 50 reaches down to a share of 0.929.
    assert result.interval.low <= 2 * 0.9289 - 1
    assert result.interval.high == 1
