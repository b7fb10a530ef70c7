from __future__ import annotations

import numpy as np
import pytest

from divscore.errors import ControlError, InputError
from divscore.paper.labelleddata import LabelledData


def data(count: int = 8) -> LabelledData:
    vectors = np.random.default_rng(0).normal(size=(count, 4))
    gender = np.array(["female", "male"] * (count // 2))
    ids = tuple(f"{i}.jpg" for i in range(count))
    return LabelledData("some", vectors, {"gender": gender}, ids, "faces/1")


def test_control_set_of_some_rows() -> None:
    control = data().control(np.array([5, 0, 2, 1]), "gender", ("male", "female"))
    assert control.groups == ("male", "female")
    assert control.ids == ("5.jpg", "0.jpg", "2.jpg", "1.jpg")
    assert (control.encoder, control.attribute) == ("faces/1", "gender")
    assert np.array_equal(control.vectors, data().vectors[[5, 0, 2, 1]])
    with pytest.raises(InputError, match="has no column 'age'; it has 'gender'"):
        data().control(np.array([0, 1]), "age")
    with pytest.raises(ControlError, match="all 2 labelled examples belong to group 'female'"):
        data().control(np.array([0, 2]), "gender")


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="2 vectors, 2 ids, 3 'gender'; expected one of each"):
        LabelledData("some", np.eye(2), {"gender": np.array(["a", "b", "c"])}, ("x", "y"))
