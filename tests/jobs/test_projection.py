"""Projections: principal components that a control set and its collections share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny

from divscore.audit.audit import audit
from divscore.errors import FileError, InputError, MismatchError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.jobs.projection import Projection


def test_projection_is_shared_by_control_set_and_collection(
    tmp_path: Path, labelled: Path, photos: Path, model: Path
) -> None:
    with Encoding("onnx", model=model, pca=4) as some:
        control = read_control(labelled, some)
        assert control.dimension == 4
        assert some.projection is not None
        some.projection.save(tmp_path / "p.npz")
        source = tiny.encoded(photos, some)
        assert source.metadata["divscore.encoder"] == control.encoder
        result = audit((block.vectors for block in source), control)
    assert 0.4 in result.interval
    loaded = Projection.load(tmp_path / "p.npz")
    assert loaded.digest == some.projection.digest
    assert f"pca=4:{loaded.digest[:16]}" in str(control.encoder)
    with Encoding("onnx", model=model, pca=tmp_path / "p.npz") as again:
        assert read_control(labelled, again).digest == control.digest
    with (
        Encoding("ngrams", pca=tmp_path / "p.npz") as other,
        pytest.raises(MismatchError, match="was fitted on"),
    ):
        other.identity("text")


def test_principal_components() -> None:
    rng = np.random.default_rng(0)
    for shape in ((300, 20), (30, 80)):
        rows = rng.normal(size=shape) * np.geomspace(10, 0.1, shape[1]) + 3
        found = Projection.fit(rows, 5, "x")
        centred = rows - rows.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        np.testing.assert_allclose(np.abs(found.components.T @ axes[:5].T), np.eye(5), atol=1e-8)
        np.testing.assert_allclose(
            np.abs(found.apply(rows)), np.abs(centred @ axes[:5].T), rtol=1e-4, atol=1e-4
        )
    with pytest.raises(InputError, match="needs more than 40 items"):
        Projection.fit(rng.normal(size=(30, 80)), 40, "x")
    with pytest.raises(InputError, match="would not shorten"):
        Projection.fit(rng.normal(size=(300, 80)), 80, "x")
    with pytest.raises(InputError, match="vary in 2 directions"):
        Projection.fit(
            np.outer(rng.normal(size=300), np.ones(9)) + np.outer(rng.normal(size=300), np.eye(9)[0]), 3, "x"
        )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_files_that_are_no_projection(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.npz").write_bytes(content)
    with pytest.raises(FileError, match="is not a projection"):
        Projection.load(tmp_path / "p.npz")
    with pytest.raises(FileError, match="does not exist"):
        Projection.load(tmp_path / "none.npz")
