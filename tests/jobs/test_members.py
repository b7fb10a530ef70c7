from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from webapp import text_control, write_texts

from divscore.control.controlfile import save_control
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError, VectorError
from divscore.jobs.auditing import audit_source
from divscore.jobs.encode import Encoding
from divscore.jobs.members import Member, Members, forget_others
from divscore.jobs.pool import read_control
from divscore.sketch.sketch import Sketch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a control set of texts, C."""
    text_control(tmp_path, 40)
    return tmp_path


def test_the_audit_of_more_than_a_block_is_that_of_a_table(folder: Path) -> None:
    write_texts(folder / "posts.csv", {"sea": 1500, "wood": 3000}, seed=1)
    with open(folder / "posts.csv", encoding="utf-8", newline="") as stream:
        texts = [row["text"] for row in csv.DictReader(stream)]
    members = Members(folder / "C", "text", folder / "vectors")
    kept = [member for start in range(0, 4500, 700) for member in members.put(texts[start : start + 700])]
    other = Members(folder / "C", "text", folder / "vectors")  # another process
    ours = other.audit(other.sketch(kept), "posts").to_dict(replicates=True)
    assert ours == audit_source(str(folder / "posts.csv"), str(folder / "C"), cache=False).to_dict(
        replicates=True
    )


def test_texts_without_content_are_skipped_and_counted(folder: Path) -> None:
    members = Members(folder / "C", "text", folder / "vectors")
    kept = members.put(["wave and salt", "", "wave and salt"])
    assert [member.skip for member in kept] == ["", "empty", ""]
    assert kept[0] == kept[2]
    sketch = members.sketch(kept)
    assert (sketch.count, sketch.skipped["empty"]) == (2, 1)
    assert members.sketch([kept[1]]).count == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_are_exactly_those_that_were_given(tmp_path: Path, dtype: type) -> None:
    rng = np.random.default_rng(0)
    pool = ControlSet(
        rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0), ["a"] * 20 + ["b"] * 20
    )
    save_control(pool, tmp_path / "C")
    vectors = rng.normal(size=(500, 8)).astype(dtype)
    members = Members(tmp_path / "C", "vectors", tmp_path / "vectors")
    sketch, batch = members.sketch(members.put(vectors.tolist())), Sketch(pool)
    batch.add(vectors)
    assert sketch.total.tobytes() == batch.total.tobytes()
    for one, two in zip((*sketch.scores(), *sketch.units()), (*batch.scores(), *batch.units()), strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(VectorError, match="3 dimensions"):
        members.put([[1.0, 2.0, 3.0]])
    assert members.put([]) == []


def test_pictures_one_by_one_and_those_that_cannot_be_read(
    tmp_path: Path, model: Path, labelled: Path, photos: Path
) -> None:
    encoder: dict[str, Any] = {"name": "onnx", "model": str(model)}
    with Encoding(**encoder) as encoding:
        save_control(read_control(labelled, encoding), tmp_path / "C")
    members = Members(tmp_path / "C", "image", tmp_path / "vectors", **encoder)
    files = [path.read_bytes() for path in sorted(photos.iterdir())]
    kept = [member for data in files for member in members.put([data])]
    cut, none = members.put([files[0][: len(files[0]) // 2], b""])
    assert (cut.skip, none.skip) == ("unreadable", "unreadable")
    sketch = members.sketch([*kept, cut, none])
    assert (sketch.count, sketch.skipped["unreadable"]) == (200, 2)
    audit = members.audit(sketch, "photos")[0]
    (batch,) = audit_source(str(photos), str(tmp_path / "C"), encoder="onnx", model=str(model), cache=False)
    assert audit.shares == pytest.approx(batch.shares, abs=1e-6)  # a model may round a batch differently


def test_vectors_that_are_gone_are_an_error_and_not_a_smaller_collection(folder: Path) -> None:
    members = Members(folder / "C", "text", folder / "vectors")
    one, two = members.put(["wave and salt", "oak and moss"])
    forget_others(folder / "vectors", [one.digest])
    assert members.sketch([one]).count == 1
    with pytest.raises(FileError, match="1 vectors are no longer in"):
        members.sketch([one, two])
    with pytest.raises(FileError, match="no longer"):
        members.sketch([Member("00" * 16)])


def test_a_control_set_of_texts_takes_no_pictures(folder: Path) -> None:
    with pytest.raises(InputError):
        Members(folder / "C", "image", folder / "vectors")
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    save_control(ControlSet(np.eye(4), ["a", "a", "b", "b"]), folder / "D")
    with pytest.raises(InputError, match="does not say which encoder"):
        Members(folder / "D", "image", folder / "vectors")
