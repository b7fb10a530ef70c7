from __future__ import annotations

import json
from typing import Any

import pytest
from published import FIGURES, make

from divscore.errors import InputError
from divscore.publishing.publication import Measured, NotMeasured, measure, measured_from


def test_error_and_coverage_are_measured() -> None:
    steps: list[int] = []
    found = measure(make((60, 60)), repetitions=3, progress=steps.append)
    assert isinstance(found, Measured)
    assert len(steps) == 3
    assert 0 < found.error < 0.5
    assert 0.7 <= found.coverage <= 1
    assert found.answers == 33
    assert found.examples == 120
    assert found.divscore_error is not None
    assert f"off by {found.error:.3f}" in found.sentences
    stored = json.loads(json.dumps(found.to_dict()))
    assert measured_from(stored).to_dict() == found.to_dict()


def test_too_few_examples_are_told() -> None:
    found = measure(make((12, 40)))
    assert isinstance(found, NotMeasured)
    assert "only 12 of 'a'" in found.sentences
    assert measured_from(found.to_dict()) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("error", "x"),
        ("error", None),
        ("error", float("nan")),
        pytest.param("error", 10**400, id="huge"),
        ("coverage", 1.5),
        ("width", []),
        ("answers", 2.5),
        ("answers", -1),
        ("seed", True),
        ("not_measured", [["x"]]),
    ],
)
def test_figures_that_were_not_measured_are_refused(name: str, value: Any) -> None:
    assert measured_from(FIGURES.to_dict()) == FIGURES
    with pytest.raises(InputError, match="cannot be read"):
        measured_from({**FIGURES.to_dict(), name: value})
