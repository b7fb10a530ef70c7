"""`divscore control`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import invoke, run
from pyarrow import parquet

from divscore.cli import main
from divscore.control.controlfile import save_control


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
    assert (
        "was encoded by 'ngrams/1 dimension=128', the control set by 'ngrams/1 dimension=256'" in other.stderr
    )


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
