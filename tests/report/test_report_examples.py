"""Examples in a report: taken from the labelled source alone, and never a reason to lose the report."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from click.testing import CliRunner
from PIL import Image

from divscore import ControlSet
from divscore.cli import audit_command as command
from divscore.cli import main
from divscore.control.controlfile import save_control

WHY = "The representatives cannot be shown: the control set holds vectors and names"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Vectors of labelled items named as pictures are, and pictures of the same names that nobody labelled."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    rng = np.random.default_rng(5)

    def rows(a: int, b: int) -> np.ndarray:
        return rng.normal(size=(a + b, 12)) + 0.8 * np.repeat([1.0, -1.0], [a, b])[:, None]

    (tmp_path / "private").mkdir()
    ids = [f"{at:04}.jpg" for at in range(20)]
    ids += [f"../private/{at:04}.jpg" for at in range(20)] + [
        str(tmp_path / "private" / f"{at:04}.jpg") for at in range(20)
    ]
    for name in ids:
        Image.fromarray(rng.integers(0, 255, (80, 80, 3), dtype=np.uint8)).save(name)
    groups = ["a", "b"] * 30
    vectors = np.where(np.array(groups)[:, None] == "a", 0.8, -0.8) + rng.normal(size=(60, 12))
    np.savez("named.npz", vectors=vectors, id=ids, letter=groups)
    save_control(ControlSet(vectors, groups, attribute="letter", ids=ids), "saved")
    for name in ids[:20]:
        shutil.copy(name, "saved")
    np.save("items.npy", rows(450, 150))
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("control", ["named.npz", "saved", "published"])
def test_a_file_that_bears_a_name_is_not_what_was_labelled(files: Path, control: str) -> None:
    if control == "published":
        run("control", "publish", "saved", "-o", "published", "--ids", "keep", "--no-measure")
        shutil.copy("0000.jpg", "published")
    words = ["--attribute", "letter"] if control == "named.npz" else []
    run("audit", "items.npy", "--control", control, *words, "--report", "r.html", "--show-examples")
    text = Path("r.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert 'alt="Labelled' not in text
    assert WHY in text
    assert "give the labelled folder or table itself as --control" in text


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    tiny.image_model(tmp_path / "tiny.onnx")
    tiny.folder(tmp_path / "labelled", {"red": 30, "blue": 30}, seed=1)
    tiny.folder(tmp_path / "photos", {"red": 60, "blue": 40}, seed=2, sub_folders=False)
    return (
        *("audit", "photos", "--control", "labelled", "--encoder", "onnx", "--model", "tiny.onnx"),
        *("--no-cache", "--report", "r.html", "--show-examples"),
    )


def test_pictures_of_the_labelled_folder_are_shown(pictures: tuple[str, ...]) -> None:
    run(*pictures)
    text = Path("r.html").read_text(encoding="utf-8")
    assert text.count("<img ") == 48
    assert text.count('alt="Labelled example') == 48
    assert "48 of 60 representatives are shown" in text
    Path("labels.csv").write_text(
        "file,group\n"
        + "\n".join(
            f"labelled/{group}/{name},{group}"
            for group in ("red", "blue")
            for name in sorted(os.listdir(f"labelled/{group}"))
        ),
        encoding="utf-8",
    )
    run(*("labels.csv" if word == "labelled" else word for word in pictures))
    assert Path("r.html").read_text(encoding="utf-8").count("<img ") == 48


@pytest.mark.parametrize("gone", ["labelled", "labelled/red/0000.png"])
def test_what_cannot_be_read_again_does_not_lose_the_report(
    pictures: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    audit_source = command.audit_source

    def then_gone(*args: Any, **options: Any) -> Any:
        audits = audit_source(*args, **options)
        shutil.rmtree(gone) if os.path.isdir(gone) else os.remove(gone)
        return audits

    monkeypatch.setattr(command, "audit_source", then_gone)
    run(*pictures)
    text = Path("r.html").read_text(encoding="utf-8")
    assert "of these 100 pictures belong to the group" in text
    if gone == "labelled":
        assert "The representatives cannot be shown: they could not be read a second time (" in text
    else:
        assert "47 of 60 representatives are shown" in text
        assert "1 could not be read again" in text


def test_an_id_that_two_items_bear_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that could not be encoded left its id to one of another group."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    words = {"a": ["tide", "wave", "salt", "reef"], "b": ["ridge", "peak", "snow", "cliff"]}
    lines = [f"{at},{' '.join(rng.choice(words[g], 6))},{g}" for at, g in enumerate("ab" * 20)]
    Path("labelled.csv").write_text("\n".join(["id,text,group", *lines, "0,,b"]), encoding="utf-8")
    posts = [" ".join(rng.choice(words[g], 6)) for g in "aab" * 40]
    Path("posts.csv").write_text("\n".join(["text", *posts]), encoding="utf-8")
    run(
        *("audit", "posts.csv", "--control", "labelled.csv", "--no-cache"),
        *("--report", "r.html", "--show-examples"),
    )
    text = Path("r.html").read_text(encoding="utf-8")
    assert "39 of 40 representatives are shown" in text
    assert "1 could not be read again" in text
