from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiments import GENDER, SMALL, drawn, portraits

from divscore.errors import InputError
from divscore.paper.draws import Attribute, Settings, balanced_split, collect, compose, random_split


def test_a_split_takes_every_row_once() -> None:
    labelled, rest = random_split(50, 20, np.random.default_rng(0))
    assert len(labelled) == 20
    assert sorted([*labelled, *rest]) == list(range(50))


def test_a_balanced_split_labels_as_many_of_each_group_however_rare() -> None:
    labels = np.repeat([0, 1], [30, 970])
    labelled, rest = balanced_split(labels, 20, np.random.default_rng(0))
    assert np.bincount(labels[labelled]).tolist() == [10, 10]
    assert sorted([*labelled, *rest]) == list(range(1000))


def test_collections_have_the_composition_asked_for_without_repeats() -> None:
    labels = np.repeat([0, 1, 2], 100)
    rows = compose(labels, np.arange(300), (0.5, 0.3, 0.2), 80, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [40, 24, 16]
    assert len(set(rows.tolist())) == 80


def test_a_collection_is_as_large_as_its_rarer_group_allows() -> None:
    labels = np.repeat([0, 1], [30, 400])
    rng = np.random.default_rng(0)
    assert len(compose(labels, np.arange(430), (1.0, 0.0), 500, rng)) == 30
    assert np.bincount(labels[compose(labels, np.arange(430), (0.25, 0.75), 500, rng)]).tolist() == [30, 90]


def test_the_truth_is_that_of_the_collection() -> None:
    found = collect(portraits(), GENDER, np.arange(40), "forty", np.random.default_rng(0))
    women = (portraits().columns["gender"][:40] == "female").mean()
    assert found.truth == pytest.approx(2 * women - 1)


def test_a_control_set_of_some_rows() -> None:
    data, rows = portraits(), np.array([5, 0, 2, 1])
    control = Attribute("skin tone", "skin_tone", ("lighter", "darker")).control(data, rows)
    assert (control.attribute, control.groups) == ("skin tone", ("lighter", "darker"))
    assert control.ids == ("5.jpg", "0.jpg", "2.jpg", "1.jpg")
    assert np.array_equal(control.vectors, data.vectors[rows])
    assert np.array_equal(np.array(control.groups)[control.labels], data.columns["skin_tone"][rows])


def test_labelled_parts_are_nested_and_balanced() -> None:
    labelled, _ = drawn()
    assert labelled.balanced(20).counts == {"female": 10, "male": 10}
    small, large = labelled.balanced(10), labelled.balanced(30)
    assert {v.tobytes() for v in small.vectors} < {v.tobytes() for v in large.vectors}
    assert len(labelled.balanced(1000)) == labelled.largest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": 400}, "400 labels of 600 items leave too few"),
        ({"size": 90}, "a control set of 90 from 80 labels"),
    ],
)
def test_settings_that_cannot_run_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, **wrong).check(600)


def test_the_papers_settings() -> None:
    faces = Settings()
    assert (faces.repetitions, faces.labels, faces.size, faces.alpha, faces.k) == (100, 200, 50, 1.0, 5)
    assert faces.shares == tuple(f / 10 for f in range(11))
