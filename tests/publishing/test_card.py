from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import ABOUT, FIGURES, described, front_matter, make, published_set, run

from divscore import publishing
from divscore.control.controlfile import load_control, save_control
from divscore.control.controlset import ControlSet
from divscore.publishing.about import About
from divscore.publishing.edition import check_published, publish


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published_set(tmp_path)


@pytest.mark.slow
def test_mlcroissant_validates_it_and_reads_the_records(folder: Path) -> None:
    pytest.importorskip("mlcroissant", reason="the extra 'publish' is not installed")
    ran = read_by_mlcroissant(folder)
    assert ran["warnings"] == []
    control = make()
    assert ran["ids"] == list(control.ids)
    assert ran["groups"] == [control.groups[label] for label in control.labels]
    assert ran["representative"] == control.representative.tolist()
    np.testing.assert_array_equal(np.array(ran["embedding"], np.float32), control.vectors)
    metadata = ran["metadata"]
    assert metadata["conformsTo"] == [
        "http://mlcommons.org/croissant/1.0",
        "http://mlcommons.org/croissant/RAI/1.0",
    ]
    assert metadata["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    assert metadata["rai:dataCollection"] == "a printed page"
    assert metadata["rai:annotatorDemographics"] == "two readers"
    assert "one typeface" in metadata["rai:dataBiases"]
    assert "all other letters" in metadata["rai:dataLimitations"]
    assert "Not for: people" in metadata["rai:dataUseCases"]
    assert metadata["rai:dataReleaseMaintenancePlan"].startswith("once a year")


def read_by_mlcroissant(folder: Path) -> dict[str, Any]:
    """In a process of its own: mlcroissant and what it imports warn of things that are not ours."""

    code = """
import json, logging, sys
import mlcroissant as mlc
data = mlc.Dataset(sys.argv[1])
records = list(data.records("examples"))
text = lambda value: value.decode() if isinstance(value, bytes) else value
print(json.dumps({
    "warnings": sorted(data.metadata.ctx.issues.warnings),
    "metadata": data.metadata.to_json(),
    "ids": [text(r["examples/id"]) for r in records],
    "groups": [text(r["examples/group"]) for r in records],
    "representative": [bool(r["examples/representative"]) for r in records],
    "embedding": [[float(x) for x in r["examples/embedding"]] for r in records],
}, default=str))
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder / "croissant.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_the_vocabulary_lacks_has_words_of_ours(folder: Path) -> None:
    found = described(folder)
    control = make()
    assert found["divscore:attributeDefinition"] == ABOUT.definition
    assert found["divscore:labelBasis"] == "perceived"
    assert found["divscore:groupsLeftOut"] == "all other letters"
    assert found["divscore:encoder"] == "test/1"
    assert found["divscore:digest"] == control.digest
    assert found["divscore:groups"]["a"] == {"labelled": 30, "representatives": 10}
    assert found["divscore:measured"] == {"not_measured": "it was not requested"}
    assert 0 < found["divscore:gamma"] < 2
    (file,) = found["distribution"]
    assert file["sha256"] == hashlib.sha256((folder / "control.parquet").read_bytes()).hexdigest()


def test_nothing_is_claimed_that_nobody_stated(tmp_path: Path) -> None:
    publish(make(), tmp_path / "set")
    found = described(tmp_path / "set")
    for name in ("rai:dataCollection", "rai:annotatorDemographics", "rai:dataUseCases", "license", "citeAs"):
        assert name not in found
    assert not [name for name in found if name in {"divscore:labelBasis", "divscore:consent"}]
    text = (tmp_path / "set" / "README.md").read_text()
    assert text.count("*not stated*") >= 13
    assert "license: unknown" in text


def test_the_header_is_what_the_hub_reads(folder: Path) -> None:
    assert front_matter(folder) == {
        "pretty_name": "Letters",
        "license": "cc-by-4.0",
        "language": ["en", "fr"],
        "tags": ["divscore", "control-set", "audit", "diversity"],
        "size_categories": ["n<1K"],
        "configs": [
            {"config_name": "default", "data_files": [{"split": "control", "path": "control.parquet"}]}
        ],
    }


@pytest.mark.parametrize(
    ("license", "header"),
    [
        ("", {"license": "unknown"}),
        ("MIT", {"license": "mit"}),
        ("https://example.org/terms", {"license": "other", "license_link": "https://example.org/terms"}),
        ("Ask us: yes", {"license": "other", "license_name": "ask-us-yes"}),
    ],
)
def test_terms_of_use_that_the_hub_does_not_know(
    license: str, header: dict[str, str], tmp_path: Path
) -> None:
    publish(make(), tmp_path / "set", about=About(license=license))
    assert header.items() <= front_matter(tmp_path / "set").items()


EVIL = (
    "<script>alert(1)</script> | [x](javascript:1) ![y](//z) `q` \n# head\n---\nlicense: mit # \x1b[31m @all "
    "www.evil.org"
)


def test_names_cannot_break_the_card(tmp_path: Path) -> None:
    control = ControlSet(
        make().vectors,
        ["=1+1", EVIL] * 30,
        attribute=EVIL,
        ids=[f"{EVIL}{n}" for n in range(60)],
        encoder=EVIL,
    )
    publish(control, tmp_path / "set", about=About(title=EVIL, definition=EVIL, license=EVIL, contact=EVIL))
    assert check_published(tmp_path / "set").problems == ()
    assert load_control(tmp_path / "set").groups == control.groups
    header = front_matter(tmp_path / "set")
    assert header["license"] == "other"
    assert "<script>" in header["pretty_name"]
    text = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    body = text.split("---\n", 2)[2]
    for file in (body, (tmp_path / "set" / "CHANGELOG.md").read_text(encoding="utf-8")):
        assert not re.search(r"(?<!\\)<(?!https?://)", file)
        assert "\x1b" not in file
        assert not re.search(r"^(# head|---|license: mit)", file, re.M)
    assert not re.search(r"(?<!\\)\]\((?!objections\.csv\)|#use\))", body)


def test_rendered_the_card_holds_no_foreign_element(tmp_path: Path) -> None:
    markdown = pytest.importorskip("markdown_it")
    control = ControlSet(make().vectors, ["plain", EVIL] * 30, attribute=EVIL)
    publish(
        control,
        tmp_path / "set",
        about=About(**{f.name: EVIL for f in fields(About) if f.name != "language"}),
    )
    text = (tmp_path / "set" / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    html = markdown.MarkdownIt("gfm-like", {"linkify": False}).render(text)
    assert "<script" not in html
    assert "<img" not in html
    assert set(re.findall(r'href="([^"]*)"', html)) <= {"#use", "objections.csv"}
    assert html.count("<h1>") == 1


def test_addresses_in_answers_stay_links(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert "see <https://example.org/how_to>." in text
    assert "Which letter it is. As printed." in text


def test_a_card_for_another_card(tmp_path: Path, folder: Path) -> None:
    save_control(make(), tmp_path / "C")
    said = run("control", "card", tmp_path / "C", "--no-measure").stdout
    assert said.startswith("## Control set: letter\n")
    for words in (
        "| a | 30 | 10 |",
        make().digest,
        "γ^(T) = ",
        "--no-measure",
        "**Labelled by:** *not stated*",
    ):
        assert words in said
    publish(make(), folder, measure=lambda control: FIGURES)
    run("control", "card", folder, "-o", tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    assert "**Labelled by:** two readers" in text
    assert "off by 0.100" in text


def test_faces_are_told_to_be_biometric(tmp_path: Path) -> None:
    control = make()
    control.encoder = "faces/2 weights=abc"
    publish(control, tmp_path / "set")
    assert "face descriptors" in (tmp_path / "set" / "README.md").read_text()
    assert "face descriptors" in " ".join(described(tmp_path / "set")["rai:personalSensitiveInformation"])


def test_publishing_needs_no_extra() -> None:
    for file in Path(publishing.__file__).parent.glob("*.py"):
        assert not re.search(r"import (mlcroissant|yaml)", file.read_text())
