"""`divscore control`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands import invoke, run
from pages import Outline
from pyarrow import parquet

from divscore.cli import main
from divscore.control.controlfile import load_control, save_control
from divscore.report.examples import look_up


def test_control_select_show_check(files):
    run("control", "select", "labelled.parquet", "--attribute", "letter", "-o", "C", "--size", "20")
    assert sorted(p.name for p in Path("C").iterdir()) == ["card.md", "control.parquet", "croissant.json"]
    assert "20 representatives" in run("control", "show", "C").stdout
    facts = json.loads(run("control", "show", "C", "--json").stdout)
    assert facts["groups"]["a"]["representatives"] == 10
    checked = CliRunner().invoke(main, ["control", "check", "C"])
    assert checked.exit_code == (1 if "! " in checked.stdout else 0)
    assert "verified" in checked.stdout
    found = json.loads(run("audit", "even.npy", "--control", "C", "--json", "-").stdout)
    assert found["control"]["representatives"] == 20


@pytest.mark.parametrize("method", ["adaptive", "random", "proportional", "dpp"])
def test_every_way_to_choose(files, method):
    run("control", "select", "labelled.parquet", "-o", method, "--method", method, "--size", "20")
    assert json.loads(run("control", "show", method, "--json").stdout)["representatives"] == 20


def test_alpha_auto(files):
    run("control", "select", "labelled.parquet", "-o", "C", "--size", "20", "--alpha", "auto")
    assert "α" in run("control", "show", "C").stdout


def test_check_refuses_an_edited_control_set(files):
    run("control", "select", "labelled.parquet", "-o", "C", "--size", "20")
    table = parquet.read_table("C/control.parquet")
    groups = table["group"].to_pylist()
    groups[0] = "b"
    at = table.column_names.index("group")
    parquet.write_table(table.set_column(at, table.schema.field("group"), [groups]), "C/control.parquet")
    assert "divscore:" in run("control", "check", "C", code=2).stderr


def test_representatives_can_be_listed(tmp_path, make_control):
    control = make_control(3, (12, 12))
    save_control(control, tmp_path / "C")
    told = CliRunner().invoke(main, ["control", "show", str(tmp_path / "C"), "--examples"]).stdout
    for at, name in enumerate(control.groups):
        ids = ", ".join(control.ids[row] for row in control.rows(at, representatives=True))
        assert f"{name}, representatives: {ids}" in told
    assert (
        "representatives: " not in CliRunner().invoke(main, ["control", "show", str(tmp_path / "C")]).stdout
    )


def test_a_small_pool_gives_as_many_representatives_as_it_can(people: Path, tmp_path: Path) -> None:
    lines = (people / "pool.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "small.csv").write_text("\n".join([lines[0], *lines[1:13], *lines[101:121]]) + "\n")
    asked = ("control", "select", tmp_path / "small.csv", "--attribute", "sex", "-o", tmp_path / "C")
    assert "24 representatives of 32" in run(*asked).stderr
    refused = invoke(*asked, "--size", "50")
    assert refused.exit_code == 2
    assert "use a smaller size" in refused.stderr


def test_a_control_set_remembers_its_encoder(people: Path, tmp_path: Path) -> None:
    run(
        "control",
        "select",
        people / "pool.csv",
        "--attribute",
        "sex",
        "-o",
        tmp_path / "C",
        "-E",
        "dimension=256",
    )
    found = json.loads(run("audit", people / "list.txt", "--control", tmp_path / "C", "--json", "-").stdout)
    assert "256" in found["encoder"]
    other = invoke("audit", people / "list.txt", "--control", tmp_path / "C", "-E", "dimension=128")
    assert other.exit_code == 2
    assert "was encoded by 'text/1 dimension=128 table=" in other.stderr
    assert "', the control set by 'text/1 dimension=256 table=" in other.stderr


def test_a_stale_projection_goes(pictures: Path, tmp_path: Path) -> None:
    asked = (
        "control",
        "select",
        pictures / "labelled",
        "-o",
        tmp_path / "C",
        "--size",
        "20",
        "--encoder",
        "onnx",
    )
    common = ("--model", pictures / "tiny.onnx", "--no-cache")
    run(*asked, *common, "--pca", "4")
    run(*asked, *common)
    assert not (tmp_path / "C" / "projection.npz").exists()
    run("audit", pictures / "photos", "--control", tmp_path / "C", *common)


def test_projection_travels_with_the_control_set(pictures: Path, tmp_path: Path) -> None:
    common = ("--encoder", "onnx", "--model", pictures / "tiny.onnx", "--no-cache")
    run(
        "control", "select", pictures / "labelled", "--attribute", "colour", "-o", tmp_path / "C", "--size", "20",
        "--pca", "4", *common,
    )  # fmt: skip
    assert (tmp_path / "C" / "projection.npz").is_file()
    audited = run("audit", pictures / "photos", "--control", tmp_path / "C", "--json", "-", *common[2:])
    assert " pca=4:" in json.loads(audited.stdout)["encoder"]
    embedded = ("embed", pictures / "photos", "-o", tmp_path / "p.arrow", *common)
    run(*embedded, "--pca", tmp_path / "C" / "projection.npz")
    stored = run("audit", tmp_path / "p.arrow", "--control", tmp_path / "C", "--json", "-")
    one, other = (json.loads(done.stdout)["collections"][0]["interval"] for done in (audited, stored))
    assert one == other
    done = run(*embedded[:3], tmp_path / "q.arrow", *common, "--pca", "3")
    assert "q.arrow.pca.npz" in done.stderr
    wrong = invoke("audit", tmp_path / "q.arrow", "--control", tmp_path / "C")
    assert wrong.exit_code == 2
    assert "use the same encoder for both" in wrong.stderr
    both = run(
        "audit", pictures / "photos", "--control", pictures / "labelled", "--pca", "5", "--json", "-", *common
    )
    assert " pca=5:" in json.loads(both.stdout)["encoder"]


# Looking at representatives

ONNX = ("--encoder", "onnx", "--no-cache", "--model")


def test_labelled_examples_are_shown_as_an_audit_reads_them(pictures: Path, tmp_path: Path) -> None:
    root = shutil.copytree(pictures / "labelled", tmp_path / "labelled")
    (root / "red" / "0000.png").write_bytes(b"no picture")
    common = (*ONNX, pictures / "tiny.onnx")
    facts = json.loads(run("control", "show", root, *common, "--json").stdout)
    assert facts["groups"]["red"]["labelled"] == facts["groups"]["red"]["representatives"] == 39
    assert facts["groups"]["red"]["skipped"] == 1
    shown = run("control", "show", root, "--verbose", *common)
    assert "79 labelled examples, 79 representatives (all)" in shown.stdout
    assert "red, 39, 1, 39, " in re.sub(r" +", ", ", shown.stdout)
    assert "red/0000.png: is not an image of a known format" in shown.stderr
    lines = [f"{path},{int(path.parent.name == 'red')}" for path in sorted(root.rglob("*.png"))]
    (tmp_path / "labels.csv").write_text("\n".join(["file,colour", *lines]))
    for source in (tmp_path / "labels.csv", tmp_path):
        words = (source, "--attribute", "colour", "--rename", "1=red", "--rename", "0=blue", *common)
        assert json.loads(run("control", "show", *words, "--json").stdout)["digest"] == run_digest(
            root, common
        )


def run_digest(root: Path, common: tuple[object, ...]) -> str:
    words = ("control", "show", root, "--attribute", "colour", *common, "--json")
    return str(json.loads(run(*words).stdout)["digest"])


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "photos", "--control", "POOL"),
        ("sketch", "photos", "--control", "POOL", "-o", "OUT"),
        ("control", "select", "POOL", "-o", "OUT"),
        ("control", "show", "POOL"),
        ("plan", "POOL", "--width", "0.3"),
        ("compare", "POOL", "--labels", "20", "--repetitions", "2"),
    ],
)
def test_labels_get_names_and_skipped_examples_are_listed(
    pictures: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    root = shutil.copytree(pictures / "labelled", tmp_path / "pool")
    (root / "red").rename(root / "0")
    (root / "blue").rename(root / "1")
    (root / "0" / "0000.png").write_bytes(b"no picture")
    places = {"POOL": root, "OUT": tmp_path / "out", "photos": pictures / "photos"}
    words = (*(places.get(word, word) for word in command), *ONNX, pictures / "tiny.onnx", "--verbose")
    assert "give their names with --rename 0=…,1=…" in run(*words, code=2).stderr
    told = run(*words, "--rename", "0=red,1=blue").stderr
    assert "encoded 40 of 40 'blue', 39 of 40 'red'" in told
    assert f"{root}, 0/0000.png: is not an image of a known format" in told
    assert "takes LABEL=NAME" in run(*words, "--rename", "red", code=2).stderr
    assert "gives '0' two names" in run(*words, "--rename", "0=a,0=b", code=2).stderr


def test_representatives_can_be_looked_at(pictures: Path, tmp_path: Path) -> None:
    root = shutil.copytree(pictures / "labelled", tmp_path / "labelled")
    common = (*ONNX, pictures / "tiny.onnx")
    made = run("control", "select", root, "-o", tmp_path / "C", "--size", "12", *common)
    assert "control show" in made.stderr
    assert "--html" in made.stderr
    control = load_control(tmp_path / "C")
    assert control.origins is not None
    first, second = (Path(control.origins[row]) for row in control.rows(0, representatives=True)[:2])
    first.unlink()
    second.write_bytes(b"no picture")
    page = tmp_path / "r.html"
    run("control", "show", tmp_path / "C", "--html", page)
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    assert len(outline.all("img")) == 10
    assert all(str(each["src"]).startswith("data:image/jpeg;base64,") for each in outline.all("img"))
    assert not outline.all("script")
    assert "script-src 'none'" in str(outline.all("meta")[1]["content"])
    assert outline.words.count("not found") == 3
    assert "2 representatives were not found" in outline.words
    assert str(tmp_path) not in text
    run("control", "show", root, "--html", page, *common)
    assert (
        Outline(page.read_text(encoding="utf-8")).words.count("Every labelled example is a representative")
        == 78
    )


def test_texts_can_be_looked_at_and_stay_text(people: Path, tmp_path: Path) -> None:
    lines = (people / "pool.csv").read_text(encoding="utf-8").splitlines()
    hostile = [lines[0], *(f"<script>{line.replace(',', '</script>,')}" for line in lines[1:])]
    (tmp_path / "pool.csv").write_text("\n".join(hostile), encoding="utf-8")
    select = ("control", "select", tmp_path / "pool.csv", "--size", "20", "--alpha", "1", "-o")
    run(*select, tmp_path / "C")
    run("control", "show", tmp_path / "C", "--html", tmp_path / "r.html")
    outline = Outline((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert not outline.all("script")
    assert len(outline.all("blockquote")) == 20
    assert "<script>" in outline.words
    run(*select, tmp_path / "D", "--no-origins")
    assert load_control(tmp_path / "D").origins is None
    run("control", "show", tmp_path / "D", "--html", tmp_path / "r.html")
    outline = Outline((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "the control set has vectors and names" in outline.words
    wrong = run("control", "show", tmp_path / "C", "--html", tmp_path / "C" / "control.parquet", code=2)
    assert "ends in .html" in wrong.stderr


@pytest.mark.parametrize("method", ["adaptive", "random", "proportional", "dpp"])
def test_the_page_says_why(people: Path, tmp_path: Path, method: str) -> None:
    asked = (people / "pool.csv", "-o", tmp_path / "C", "--size", "20", "--method", method, "--alpha", "3")
    run("control", "select", *asked)
    run("control", "show", tmp_path / "C", "--html", tmp_path / "r.html")
    words = Outline((tmp_path / "r.html").read_text(encoding="utf-8")).words
    if method in ("adaptive", "dpp"):
        assert words.count("Typical: number") + words.count("For variety: only number") == 20
        assert words.count("For variety") > 0
    else:
        assert words.count("Drawn at random; number") == 20
    assert words.count("have no representative near") == 2


def test_secret_addresses_are_not_fetched(monkeypatch: pytest.MonkeyPatch, make_control: Any) -> None:
    control = make_control(3, (12, 12)).with_origins([f"https://me:key@host/{n}.jpg?s=1" for n in range(24)])
    monkeypatch.setattr("divscore.report.examples.read_picture", lambda content: pytest.fail(content))
    assert look_up(control, range(24), None) == {}
