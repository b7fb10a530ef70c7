"""Labelled items of a draw as a control set for other collections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import draw_groups
from webapp import write_texts

from divscore.errors import ControlError, InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.labels import labelled_examples
from divscore.jobs.pool import read_control
from divscore.jobs.sampling import sample_source


def test_texts_are_those_that_the_table_of_the_draw_gives(tmp_path: Path) -> None:
    truth = write_texts(tmp_path / "posts.csv", {"sea": 60, "wood": 90})
    draw = sample_source(
        str(tmp_path / "posts.csv"), 40, attribute="place", groups=["wood", "sea"], cache=False
    )
    names = [truth[name] for name in draw.ids]
    names[3], names[7] = "unsure", ""
    draw = draw.labelled(names)
    with Encoding() as encoding:
        ours = labelled_examples(str(tmp_path / "posts.csv"), draw, encoding)
    draw.save(tmp_path / "draw.csv")
    with Encoding() as encoding:
        table = read_control(tmp_path / "draw.csv", encoding)
    assert ours.digest == table.digest
    assert ours.ids == table.ids
    assert ours.origins == table.origins
    assert ours.groups == ("wood", "sea")
    assert len(ours) == 38


def test_pictures_inside_a_table(tmp_path: Path, model: Path, labelled: Path) -> None:
    files = sorted(labelled.rglob("*.png"))
    data = [{"bytes": path.read_bytes(), "path": None} for path in files]
    table = pa.table({"id": [f"{path.parent.name}-{path.name}" for path in files], "image": data})
    pq.write_table(table, tmp_path / "pictures.parquet")
    options: dict[str, Any] = {"encoder": "onnx", "model": str(model), "cache": False}
    draw = sample_source(str(tmp_path / "pictures.parquet"), 30, groups=["red", "blue"], **options)
    draw = draw.labelled([name.partition("-")[0] for name in draw.ids])
    with Encoding("onnx", model=str(model)) as encoding:
        control = labelled_examples(str(tmp_path / "pictures.parquet"), draw, encoding)
    assert sum(control.counts.values()) == 30
    assert control.origins is None
    assert control.encoder is not None


def test_vectors(tmp_path: Path) -> None:
    vectors, names = draw_groups(0, [50, 50])
    np.save(tmp_path / "items.npy", vectors)
    draw = sample_source(str(tmp_path / "items.npy"), 20, groups=["a", "b"], cache=False)
    draw = draw.labelled(names[draw.rows].tolist())
    with Encoding() as encoding:
        control = labelled_examples(str(tmp_path / "items.npy"), draw, encoding)
        np.testing.assert_array_equal(control.vectors, vectors[draw.rows])
        with pytest.raises(InputError, match="no item of the draw has a group"):
            labelled_examples(str(tmp_path / "items.npy"), draw.labelled([None] * 20), encoding)
        with pytest.raises(ControlError, match="at least two groups"):
            labelled_examples(str(tmp_path / "items.npy"), draw.labelled(["a"] * 20), encoding)
