"""The checks: false alarms and what they detect."""

from __future__ import annotations

import numpy as np
import pytest
from chance import most, sketch_of
from conftest import Portraits, draw_groups

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray
from divscore.estimators.checks import (
    CheckResult,
    clusters,
    group_moments,
    relevance,
    score_fit,
    separable,
)
from divscore.estimators.mixture import mixture_fit
from divscore.sketch.scorer import Calibration, scorer_for


def relevance_of(vectors: FloatArray, control: ControlSet) -> CheckResult:
    sketch = sketch_of(vectors, control)
    return relevance(sketch.mean, sketch.count, group_moments(control), mixture_fit(sketch).named)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(30, 8), (40, 100)])
def test_false_alarms_of_relevance(n: int, d: int) -> None:
    reps, alarms, statistics = 50, 0, []
    for rep in range(reps):
        vectors, names = draw_groups(2 * rep, [n, n], d=d)
        share = np.random.default_rng(rep).uniform(0.1, 0.9)
        counts = np.random.default_rng(rep).multinomial(400, [share, 1 - share])
        control = ControlSet(vectors, names, attribute="letter")
        found = relevance_of(draw_groups(2 * rep + 1, counts, d=d)[0], control)
        alarms += found.p_value < 0.05
        statistics.append(found.statistic)
    assert 1 <= alarms <= most(reps, 0.05)
    assert np.mean(statistics) == pytest.approx(1.0, abs=0.2)


@pytest.mark.slow
def test_relevance_sees_a_shift() -> None:
    alarms = 0
    for rep in range(20):
        vectors, names = draw_groups(2 * rep, [30, 30])
        shifted = draw_groups(2 * rep + 1, [200, 200])[0] + 0.8 * np.eye(8)[5]
        alarms += relevance_of(shifted, ControlSet(vectors, names, attribute="letter")).p_value < 0.01
    assert alarms >= 18


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "reps", "n", "size"), [(2, 50, 30, 500), (3, 12, 80, 2000)])
def test_false_alarms_of_score_fit(groups: int, reps: int, n: int, size: int) -> None:
    alarms, statistics = 0, []
    for rep in range(reps):
        vectors, names = draw_groups(10_000 + rep, [n] * groups)
        counts = np.random.default_rng(rep).multinomial(
            size, np.random.default_rng(rep).dirichlet(np.ones(groups))
        )
        fit = score_fit(
            sketch_of(draw_groups(rep, counts)[0], ControlSet(vectors, names, attribute="letter"))
        )
        alarms += fit.p_value < 0.05
        statistics.append(fit.statistic)
    assert alarms <= most(reps, 0.05)
    # Steps of the joint grid that are taken for a misfit would push it beyond 1.
    assert np.mean(statistics) < 0.95


@pytest.mark.slow
def test_score_fit_sees_a_misfit() -> None:
    alarms = 0
    for rep in range(12):
        vectors, names = draw_groups(2 * rep, [40, 40], gap=2.5)
        between = draw_groups(2 * rep + 1, [250, 250], gap=0.0)[0] + 1.25 * (np.eye(8)[0] + np.eye(8)[1])
        alarms += score_fit(sketch_of(between, ControlSet(vectors, names, attribute="letter"))).p_value < 0.05
    assert alarms >= 11


def named_clusters(control: ControlSet) -> list[list[str]]:
    scorer = scorer_for(control)
    return sorted(sorted(control.groups[scorer.order[g]] for g in each) for each in scorer.once(clusters))


@pytest.mark.parametrize("seed", range(3))
def test_groups_that_look_the_same_become_one_cluster(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = rng.permutation(list("abcdef") * 25)
    family = {"a": 0, "c": 0, "e": 0, "b": 1, "f": 1, "d": 2}
    vectors = rng.normal(size=(150, 10)) + 3.0 * np.eye(10)[[family[name] for name in names]]
    control = ControlSet(vectors, names, attribute="letter")
    assert named_clusters(control) == [["a", "c", "e"], ["b", "f"], ["d"]]
    assert not separable(scorer_for(control))


def test_groups_that_differ_stay_apart() -> None:
    vectors, names = draw_groups(0, [30] * 4, gap=3.0)
    control = ControlSet(vectors, names, attribute="letter")
    assert named_clusters(control) == [["a"], ["b"], ["c"], ["d"]]
    assert separable(scorer_for(control))


@pytest.mark.parametrize("groups", [2, 4])
def test_noise_is_one_cluster(groups: int) -> None:
    rng = np.random.default_rng(groups)
    names = rng.permutation(list("abcd"[:groups]) * 30)
    control = ControlSet(rng.normal(size=(len(names), 10)), names, attribute="letter")
    assert named_clusters(control) == [list("abcd"[:groups])]


def test_sets_of_groups_are_ordered_by_what_they_have_together() -> None:
    # a and b are confused with each other, but not with c.
    means = np.array([[0.2, 0.3, -0.5], [0.3, 0.2, -0.5], [-0.5, -0.5, 1.0]])
    fit = Calibration(np.zeros(2), np.zeros((2, 2)), means)
    assert not fit.informative
    np.testing.assert_array_equal(fit.ordered(np.eye(3))[0], [True, False, True])
    assert fit.ordered(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).all()


@pytest.mark.slow
def test_relevance_rejects_every_country(ppb: Portraits) -> None:
    found: dict[tuple[str, int], CheckResult] = {}
    for split in range(2):
        order = np.random.default_rng(split).permutation(len(ppb.vectors))
        pool, rest = order[:200], order[200:]
        control = ControlSet(ppb.vectors[pool], ppb.gender[pool], attribute="gender")
        for country in np.unique(ppb.country):
            found[country, split] = relevance_of(ppb.vectors[rest[ppb.country[rest] == country]], control)
        assert relevance_of(ppb.vectors[rest[:400]], control).statistic < 1.5
    assert len(found) >= 12
    assert max(r.p_value for r in found.values()) < 0.01
    assert min(r.statistic for r in found.values()) > 2.5
