"""The methods against the paper as printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from experiments import SMALL, drawn
from oracles import algorithm_1, algorithm_3

from divscore.audit.audit import audit
from divscore.control.selection import select_adaptive
from divscore.paper.draws import Collection, Settings
from divscore.paper.experiment import ask
from divscore.paper.methods import all_methods
from divscore.paper.records import Answer


def asked(key: str, collections: list[Collection] | None = None) -> list[tuple[Answer, Collection]]:
    labelled, usual = drawn()
    some = usual if collections is None else collections
    (method,) = [m for m in all_methods(SMALL) if m.key == key]
    return list(zip(ask([method], labelled, some, "f"), some, strict=True))


def few() -> list[np.ndarray]:
    control = drawn()[0].balanced(20)
    return [control.vectors[control.rows(g)].astype(float) for g in (0, 1)]


def test_iid_measure_is_the_difference_of_shares_in_its_sample() -> None:
    for answer, collection in asked("iid"):
        sample = collection.groups[collection.order[:20]]
        assert answer.value == pytest.approx((sample == "female").mean() - (sample == "male").mean())
        assert answer.low <= answer.value <= answer.high


def test_divscore_random_balanced_is_algorithm_1() -> None:
    for answer, collection in asked("random-balanced"):
        assert answer.value == pytest.approx(algorithm_1(collection.vectors.astype(float), *few()), abs=1e-9)


def test_divscore_adaptive_is_the_audits_divscore() -> None:
    control = select_adaptive(drawn()[0].pool, 20, alpha=SMALL.alpha)
    for answer, collection in asked("adaptive"):
        assert answer.value == pytest.approx(audit(collection.vectors, control).divscore, abs=1e-9)


def test_ss_st_is_algorithm_3() -> None:
    small = [replace(c, vectors=c.vectors[:25]) for c in drawn()[1][:2]]
    for answer, collection in asked("ss-st", small):
        assert answer.value == pytest.approx(algorithm_3(collection.vectors.astype(float), *few(), k=5)[0])


@pytest.mark.parametrize("key", ["likelihood", "likelihood-few"])
def test_likelihood_is_the_audits_default(key: str) -> None:
    control = drawn()[0].pool if key == "likelihood" else drawn()[0].balanced(20)
    for answer, collection in asked(key):
        result = audit(collection.vectors, control, seed=0)
        expected = (result.disparity, result.interval.low, result.interval.high)
        assert (answer.value, answer.low, answer.high) == pytest.approx(expected)


def test_random_proportional_is_undefined_for_one_group() -> None:
    answers = [answer for answer, _ in asked("random-proportional")]
    assert [a.defined for a in answers] == [False, True, False]
    collection = drawn()[1][1]
    sample, names = collection.sample(20)
    parts = [sample[np.array(names) == g].astype(float) for g in ("female", "male")]
    assert answers[1].value == pytest.approx(algorithm_1(collection.vectors.astype(float), *parts), abs=1e-9)


def test_every_method_has_its_cost() -> None:
    cost = {m.key: (m.labels, m.sampled) for m in all_methods(Settings())}
    assert cost["random-balanced"] == cost["likelihood-few"] == cost["ss-st"] == (50, 0)
    assert cost["adaptive"] == cost["likelihood"] == cost["all"] == cost["ss-st-all"] == (200, 0)
    assert cost["iid"] == cost["random-proportional"] == (0, 50)
    assert cost["rectified"] == (200, 50)


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        (Settings(labels=10, size=10), "DivScore-Adaptive, 10 of 10"),
        (Settings(), "DivScore-Adaptive, 100 of 200"),
    ],
)
def test_no_method_chooses_more_labels_than_there_are(settings: Settings, title: str) -> None:
    assert {m.key: m.title for m in all_methods(settings)}["adaptive-wide"] == title
