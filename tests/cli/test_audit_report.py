"""`divscore audit --report`: the files it writes, and the labelled examples it may show."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from commands import invoke
from commands import run as run_command
from pages import Outline, assert_inert, downloaded
from PIL import Image

from divscore import ControlSet
from divscore.cli import audit_command as command
from divscore.control.controlfile import save_control
from divscore.report.examples import thumbnail

AUDIT = ("audit", "mostly_a.npy", "--control", "labelled.npz", "--attribute", "letter")
WORDS = {"a": ["tide", "wave", "salt", "reef"], "b": ["ridge", "peak", "snow", "cliff"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder: labelled vectors, and vectors of a collection."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    rng = np.random.default_rng(5)

    def rows(a, b):
        return rng.normal(size=(a + b, 12)) + 0.8 * np.repeat([1.0, -1.0], [a, b])[:, None]

    np.savez("labelled.npz", vectors=rows(60, 60), letter=["a"] * 60 + ["b"] * 60)
    np.save("mostly_a.npy", rows(450, 150))
    return tmp_path / "work"


def refused(*words):
    done = invoke(*map(str, words))
    assert done.exit_code == 2, done.output
    return done.stderr


def test_the_command_writes_html_and_markdown(folder):
    done = invoke(
        *AUDIT, "--max-disparity", "0.2", "--report", "r.html", "--report", "r.md", "--show-examples"
    )
    assert done.exit_code == 1
    assert "wrote r.html" in done.stderr
    text = Path("r.html").read_text(encoding="utf-8")
    words = Outline(text).words
    assert "divscore audit mostly_a.npy --control labelled.npz --attribute letter" in words
    assert "The representatives cannot be shown: the control set has vectors" in words
    assert str(folder) not in text
    assert "limit: 40% to 60%" in words
    assert Path("r.md").read_text(encoding="utf-8").startswith("# Between ")
    assert sorted(os.listdir()) == ["labelled.npz", "mostly_a.npy", "r.html", "r.md"]


def test_wrong_outputs_are_refused_before_anything_is_read(folder):
    absent = ("audit", "absent.npy", "--control", "absent.npz")
    assert "'.pdf'; expected a file that ends in .html or .md" in refused(*absent, "--report", "r.pdf")
    assert "the folder no does not exist" in refused(*absent, "--report", "no/r.html")
    assert "--json no/x.json: the folder no does not exist" in refused(*absent, "--json", "no/x.json")
    assert "is a folder" in refused(*absent, "--json", ".")
    for words in (("--show-examples",), ("--title", "Feeds"), ("--note", "A trial.")):
        assert f"{words[0]} needs a report; add --report FILE.html" in refused(*absent, *words)


def test_title_and_note_reach_the_report(folder, monkeypatch):
    contexts = []
    monkeypatch.setattr("divscore.cli.audit_command.write_report", lambda *given: contexts.append(given[2]))
    run_command(*AUDIT, "--report", "r.html", "--title", "Feeds, 2026", "--note", "A trial.")
    assert [(context.title, context.note) for context in contexts] == [("Feeds, 2026", "A trial.")]


def test_the_json_is_mentioned_like_the_report(folder):
    done = run_command(*AUDIT, "--json", "x.json", "--report", "x.html")
    assert [line for line in done.stderr.splitlines() if line.startswith("wrote")] == [
        "wrote x.json",
        "wrote x.html",
    ]
    assert "wrote" not in run_command(*AUDIT, "--json", "-").stderr


def test_no_output_overwrites_another_file(folder):
    os.symlink("x.html", "link.html")
    for words in (
        ("--json", "x.html", "--report", "x.html"),
        ("--json", "./x.html", "--report", folder / "x.html"),
        ("--report", "x.html", "--report", "link.html"),
        ("--json", "mostly_a.npy"),
        ("--json", "labelled.npz"),
    ):
        assert "would overwrite" in refused(*AUDIT, *words)
        assert not os.path.exists("x.html")
    run_command(*AUDIT, "--json", "x.json", "--report", "x.html")
    assert json.loads(Path("x.json").read_text())["schema"] == "divscore.audit/1"


def test_the_demo_writes_its_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "demo/report.html" in run_command("demo", "--out", "demo").stdout
    text = Path("demo/report.html").read_text()
    assert_inert(text)
    assert "divscore demo --out demo" in Outline(text).words
    assert downloaded(text)["attribute"] == "sex"


# Labelled examples


def texts(rng, groups):
    return [f"{' '.join(rng.choice(WORDS[g], 6))} <b onclick=x>{at}</b>" for at, g in enumerate(groups)]


def test_texts_are_shown_on_request_and_stay_text(folder):
    rng = np.random.default_rng(2)
    lines = [f'"{text}",{g}' for text, g in zip(texts(rng, "ab" * 30), "ab" * 30, strict=True)]
    Path("labelled.csv").write_text("\n".join(["text,group", *lines]))
    Path("posts.csv").write_text("\n".join(["text", *(f'"{text}"' for text in texts(rng, "aab" * 40))]))
    base = ("audit", "posts.csv", "--control", "labelled.csv", "--no-cache")
    run_command(*base, "--report", "plain.html")
    assert "onclick" not in Path("plain.html").read_text()
    run_command(*base, "--report", "shown.html", "--report", "shown.md", "--show-examples")
    text = Path("shown.html").read_text()
    assert_inert(text)
    outline = Outline(text)
    assert len([attrs for attrs in outline.all("li") if attrs == {"dir": "auto"}]) == 48
    assert "<b onclick=x>" in outline.words
    assert "48 of 60 representatives are shown" in outline.words
    assert "120 texts" in outline.words
    assert "&lt;b onclick=x&gt;" in Path("shown.md").read_text()


def test_an_id_of_two_items_is_no_problem(folder):
    """An empty text of another group, which is not encoded, has the id of a representative: the text decides."""
    rng = np.random.default_rng(2)
    lines = [f"{at},{' '.join(rng.choice(WORDS[g], 6))},{g}" for at, g in enumerate("ab" * 20)]
    Path("labelled.csv").write_text("\n".join(["id,text,group", *lines, "0,,b"]))
    Path("posts.csv").write_text(
        "\n".join(["text", *(" ".join(rng.choice(WORDS[g], 6)) for g in "aab" * 40)])
    )
    run_command(
        *("audit", "posts.csv", "--control", "labelled.csv", "--no-cache"),
        *("--report", "r.html", "--show-examples"),
    )
    text = Path("r.html").read_text(encoding="utf-8")
    assert "All 40 representatives are shown" in text


@pytest.mark.parametrize("control", ["named.npz", "saved", "published"])
def test_a_file_with_the_name_of_an_example_is_not_shown(folder, control):
    """Nobody labelled these pictures; they only have the ids of labelled vectors."""
    rng = np.random.default_rng(5)
    (folder.parent / "private").mkdir()
    names = [f"{at:04}.jpg" for at in range(4)]
    ids = [
        *names,
        *(f"../private/{name}" for name in names),
        *(str(folder.parent / "private" / n[1:]) for n in names),
    ]
    for name in ids:
        Image.fromarray(rng.integers(0, 255, (80, 80, 3), dtype=np.uint8)).save(name)
    ids += [f"other {at}" for at in range(48)]
    groups = ["a", "b"] * 30
    vectors = np.where(np.array(groups)[:, None] == "a", 0.8, -0.8) + rng.normal(size=(60, 12))
    np.savez("named.npz", vectors=vectors, id=ids, letter=groups)
    save_control(ControlSet(vectors, groups, attribute="letter", ids=ids), "saved")
    shutil.copy("0000.jpg", "saved")
    if control == "published":
        run_command("control", "publish", "saved", "-o", "published", "--ids", "keep", "--no-measure")
        shutil.copy("0000.jpg", "published")
    words = ["--attribute", "letter"] if control == "named.npz" else []
    run_command(
        "audit", "mostly_a.npy", "--control", control, *words, "--report", "r.html", "--show-examples"
    )
    text = Path("r.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert "The representatives cannot be shown: the control set has vectors" in text


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.image_model(tmp_path / "tiny.onnx")
    tiny.folder(tmp_path / "labelled", {"red": 30, "blue": 30}, seed=1)
    tiny.folder(tmp_path / "photos", {"red": 60, "blue": 40}, seed=2, sub_folders=False)
    return (
        *("audit", "photos", "--control", "labelled", "--encoder", "onnx", "--model", "tiny.onnx"),
        *("--no-cache", "--report", "r.html", "--show-examples"),
    )


def test_pictures_of_the_labelled_folder_or_table_are_shown(pictures):
    run_command(*pictures)
    text = Path("r.html").read_text(encoding="utf-8")
    assert text.count("<img ") == text.count('alt="Labelled example') == 48
    assert "48 of 60 representatives are shown" in text
    lines = [
        f"labelled/{group}/{name},{group}"
        for group in ("red", "blue")
        for name in sorted(os.listdir(f"labelled/{group}"))
    ]
    Path("labels.csv").write_text("\n".join(["file,group", *lines]), encoding="utf-8")
    run_command(*("labels.csv" if word == "labelled" else word for word in pictures))
    assert Path("r.html").read_text(encoding="utf-8").count("<img ") == 48


def test_pictures_of_a_selected_control_set_are_shown(pictures):
    select = ("control", "select", "labelled", "-o", "C", "--size", "20", *pictures[4:9])
    run_command(*select)
    audit = tuple("C" if word == "labelled" else word for word in pictures)
    run_command(*audit)
    assert Path("r.html").read_text(encoding="utf-8").count("<img ") == 20
    run_command(*select, "--no-origins")
    run_command(*audit)
    text = Path("r.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert "The representatives cannot be shown: the control set has vectors" in text


def test_pictures_inside_a_table_are_shown(pictures):
    data = [path.read_bytes() for path in sorted(Path("labelled").rglob("*.png"))]
    groups = [path.parent.name for path in sorted(Path("labelled").rglob("*.png"))]
    pq.write_table(pa.table({"image": data, "group": groups}), "inside.parquet")
    run_command(*("inside.parquet" if word == "labelled" else word for word in pictures))
    assert Path("r.html").read_text(encoding="utf-8").count("<img ") == 48


@pytest.mark.parametrize("gone", ["labelled", "labelled/red/0000.png"])
def test_examples_that_cannot_be_read_again_do_not_stop_the_report(pictures, monkeypatch, gone):
    audit_source = command.audit_source

    def then_gone(*args, **options):
        audits = audit_source(*args, **options)
        shutil.rmtree(gone) if os.path.isdir(gone) else os.remove(gone)
        return audits

    monkeypatch.setattr(command, "audit_source", then_gone)
    run_command(*pictures)
    text = Path("r.html").read_text(encoding="utf-8")
    assert "of these 100 pictures" in text
    found = 0 if gone == "labelled" else 47
    assert f"{found} of 60 representatives are shown" in text
    assert f"{48 - found} were not found again" in text


def test_thumbnails_are_small_and_have_no_metadata(tmp_path):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 200, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    path = tmp_path / "a.jpg"
    picture.save(path, exif=exif, comment=b"secret comment")
    assert b"secret" in path.read_bytes()
    small = thumbnail(path.read_bytes())
    assert b"secret" not in small
    assert b"Exif" not in small
    assert max(Image.open(io.BytesIO(small)).size) <= 64
    assert len(small) < 8_000
