"""`divscore embed` and `divscore encoders`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import invoke, run

from divscore.encoders.registry import ENCODERS
from divscore.errors import install_command
from divscore.jobs.cache import default_cache


def test_embedding_first_gives_the_same_audit(people: Path, tmp_path: Path) -> None:
    done = run("embed", people / "feeds.csv", "-o", tmp_path / "feeds.arrow", "--json")
    facts = json.loads(done.stdout)
    assert (facts["items"], facts["vectors"], facts["skipped"]["empty"]) == (401, 400, 1)
    assert "wrote" in done.stderr
    assert (
        (tmp_path / "feeds.arrow.skipped.csv").read_text().splitlines()[1].startswith("400,empty,is empty,")
    )
    common = ("--control", people / "pool.csv", "--attribute", "sex", "--json", "-")
    for by in ((), ("--by", "feed")):
        direct = json.loads(run("audit", people / "feeds.csv", *common, *by).stdout)
        stored = json.loads(run("audit", tmp_path / "feeds.arrow", *common, *by).stdout)
        for one, other in zip(direct["collections"], stored["collections"], strict=True):
            assert one["interval"] == other["interval"]
            assert one["divscore"] == other["divscore"]
            assert one["skipped"] == other["skipped"]
            assert one["diagnostics"]["skipped_shift"] == other["diagnostics"]["skipped_shift"]
        assert direct["collections"][0]["skipped"]["empty"] == 1


def test_encoders_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("encoders").stdout
    facts = {fact["name"]: fact for fact in json.loads(run("encoders", "--json").stdout)}
    assert list(facts) == list(ENCODERS)
    assert all(name in shown for name in ENCODERS)
    assert facts["ngrams"]["ready"] == "yes"
    assert facts["vgg16"]["ready"] == "give --model"
    for name in ("text", "tokens"):
        assert any("Apache-2.0, trained on" in model for model in facts[name]["contains"])
        assert f"{name}: the table of word pieces was made from all-MiniLM-L6-v2" in " ".join(shown.split())
    monkeypatch.setattr("divscore.encoders.registry.find_spec", lambda name: None)
    facts = {fact["name"]: fact for fact in json.loads(run("encoders", "--json").stdout)}
    assert facts["faces"]["ready"] == install_command("faces")


def test_an_interrupted_job_says_how_to_go_on(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("divscore.cli.embed_command.run_embed", stop)
    done = invoke(
        "embed",
        pictures / "photos",
        "-o",
        tmp_path / "x.arrow",
        "--encoder",
        "onnx",
        "--model",
        pictures / "tiny.onnx",
    )
    assert done.exit_code == 130
    assert "the same command resumes" in done.stderr


def test_the_cache_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DIVSCORE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_cache() == tmp_path / "divscore"
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"


def test_standard_input_serves_every_command(people: Path, tmp_path: Path) -> None:
    text = (people / "feeds.csv").read_text(encoding="utf-8")
    facts = json.loads(run("embed", "-", "-o", tmp_path / "x.arrow", "--json", input=text).stdout)
    assert facts["vectors"] == 400
    pool = (people / "pool.csv").read_text(encoding="utf-8")
    done = run(
        "audit", people / "list.txt", "--control", "-", "--attribute", "sex", "--json", "-", input=pool
    )
    assert json.loads(done.stdout)["control"]["labelled"] == 200


def test_one_item_is_not_called_items(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("Anna\n")
    said = run("embed", tmp_path / "one.txt", "-o", tmp_path / "x.arrow").stderr
    assert said == f"wrote {tmp_path / 'x.arrow'}: 1 vector of 1 item\n"
