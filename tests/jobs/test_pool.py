"""Labelled examples: pictures in folders, or in a table next to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny

from divscore.audit.audit import audit
from divscore.control.controlfile import save_control
from divscore.control.selection import select_random
from divscore.errors import ControlError
from divscore.jobs.encode import Encoding
from divscore.jobs.opening import open_any
from divscore.jobs.pool import read_control


def test_a_folder_of_pictures_is_audited_from_sub_folders(photos: Path, labelled: Path, model: Path) -> None:
    with Encoding("onnx", model=model) as some:
        control = read_control(labelled, some, attribute="colour")
        assert control.counts == {"blue": 40, "red": 40}
        assert control.attribute == "colour"
        assert control.encoder.startswith("onnx/1 ")
        assert control.ids[0] == "blue/0000.png"
        result = audit((block.vectors for block in open_any(photos, some)), control)
    assert result.count == 200
    assert 0.4 in result.interval  # 140 blue, 60 red
    assert abs(result.disparity - 0.4) < 0.1


def test_labels_in_a_table_beside_the_pictures(labelled: Path, model: Path, tmp_path: Path) -> None:
    rows = [
        f"../{path.relative_to(labelled.parent)},{path.parent.name},{i % 2}x"
        for i, path in enumerate(sorted(labelled.rglob("*.png")))
    ]
    root = labelled.parent / "by-table"
    root.mkdir(exist_ok=True)
    (root / "labels.csv").write_text("file,colour,other\n" + "\n".join(rows) + "\n")
    with Encoding("onnx", model=model) as some:
        folders = read_control(labelled, some, attribute="colour")
        control = read_control(root, some, attribute="colour")
        both = read_control(root, some, attribute="colour×other")
    np.testing.assert_array_equal(control.vectors, folders.vectors)
    assert control.groups == folders.groups
    assert control.digest == folders.digest
    assert both.groups == ("blue × 0x", "blue × 1x", "red × 0x", "red × 1x")


def test_labelled_examples_that_cannot_be_encoded_are_counted_by_group(
    hostile_pictures: Path, model: Path
) -> None:
    (hostile_pictures / "blue" / "loop").unlink()
    with Encoding("onnx", model=model) as some:
        control = read_control(hostile_pictures, some)
    assert control.counts == {"blue": 21, "red": 10}
    assert control.skipped == {"blue": 2, "red": 4}
    assert control.attribute == "group"


def test_unevenly_left_out_examples_warn(labelled: Path, model: Path, tmp_path: Path) -> None:
    with Encoding("onnx", model=model) as some:
        control = read_control(labelled, some)
        vectors = np.concatenate([control.vectors[:30], control.vectors[40:70]])
    control.skipped = {"red": 12}
    warned = [text for text in audit(vectors, control).warnings if "more often than of others" in text]
    assert warned
    assert "23% of 'red', 0% of 'blue'" in warned[0]
    control.skipped = {"red": 2, "blue": 1}
    assert not [text for text in audit(vectors, control).warnings if "more often than of others" in text]
    save_control(select_random(control, 20), tmp_path / "C")
    with Encoding("onnx", model=model) as some:
        assert read_control(tmp_path / "C", some).skipped == {"red": 2, "blue": 1}


def test_pools_that_cannot_be(tmp_path: Path, labelled: Path, model: Path) -> None:
    root = tiny.folder(tmp_path / "flat", {"red": 3}, 1, sub_folders=False)
    with Encoding("onnx", model=model) as some:
        with pytest.raises(ControlError, match=r"lies beside the sub-folders; .* flat/female and flat/male"):
            read_control(root, some)
        with pytest.raises(ControlError, match="names pictures without their groups"):
            read_control(f"{labelled}/*/*.png", some)
        one = tiny.folder(tmp_path / "one", {"red": 3}, 1)
        with pytest.raises(ControlError, match="all 3 labelled examples belong to group 'red'"):
            read_control(one, some)


def test_another_encoder_is_an_error_that_says_so(
    tmp_path: Path, labelled: Path, photos: Path, model: Path
) -> None:
    from click.testing import CliRunner

    from divscore.cli import main

    common = ["--no-cache", "--model", str(model), "--workers", "1"]
    run = CliRunner().invoke
    made = run(
        main,
        [
            "control",
            "select",
            str(labelled),
            "-o",
            str(tmp_path / "C"),
            "--size",
            "20",
            "--encoder",
            "onnx",
            *common[:3],
        ],
    )
    assert made.exit_code == 0, made.output
    # The control set says which encoder with which settings; only the model's place has to be told.
    fine = run(main, ["audit", str(photos), "--control", str(tmp_path / "C"), "--json", "-", *common])
    assert fine.exit_code == 0, fine.output
    assert json.loads(fine.stdout)["encoder"].startswith("onnx/1 ")
    other = run(
        main, ["audit", str(photos), "--control", str(tmp_path / "C"), "-E", "normalise=none", *common]
    )
    assert other.exit_code == 2
    assert "was encoded by 'onnx/1" in other.stderr
    assert "use the same encoder for both" in other.stderr
    missing = run(main, ["audit", str(photos), "--control", str(tmp_path / "C"), "--no-cache"])
    assert missing.exit_code == 2
    assert "the encoder 'onnx' needs --model" in missing.stderr
