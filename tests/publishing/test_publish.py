"""Control sets made public: the folder, its descriptions, edits, objections and editions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import draw_groups
from hypothesis import given
from hypothesis import strategies as st

from divscore import publishing
from divscore.audit.audit import audit
from divscore.cli import main
from divscore.control.controlfile import is_control, load_control, plain, save_control
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.publishing.about import QUESTIONS, About, public_ids, read_about, write_about
from divscore.publishing.edition import changes, edition_of, is_published, publish, read_earlier, with_entry
from divscore.publishing.objections import EMPTY, OBJECTIONS, carry_over, read_objections
from divscore.publishing.publication import Measured, NotMeasured, measure, measured_from
from divscore.publishing.verify import check_published, stated

FILES = [
    "CHANGELOG.md", "README.md", "SHA256SUMS", "about.toml", "control.parquet", "croissant.json", "objections.csv",
]  # fmt: skip
ABOUT = About(
    title="Letters",
    publisher="The letter desk",
    contact="letters@example.org",
    license="cc-by-4.0",
    definition="Which letter it is.\n\nAs printed.",
    basis="perceived",
    labelled_by="two readers",
    labelled_how="each read every item; see https://example.org/how_to.",
    source="a printed page",
    items="https://example.org/letters",
    left_out="all other letters",
    consent="letters need not be asked",
    biases="one typeface",
    uses="pages of text",
    unsuitable="people",
    maintenance="once a year",
    citation="Letters, 2026",
    language="en, fr",
)


def make(counts: tuple[int, ...] = (30, 30), **options: Any) -> ControlSet:
    vectors, names = draw_groups(3, counts)
    control = ControlSet(vectors.astype(np.float32), names, attribute="letter", encoder="test/1", **options)
    rows = [row for group in range(len(counts)) for row in control.rows(group)[:10]]
    return control.with_representatives(rows, "adaptive, α = 1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    publish(make(), tmp_path / "set", about=ABOUT)
    return tmp_path / "set"


def run(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "croissant.json").read_text())
    return found


# The folder


def test_the_folder_holds_everything_and_is_a_control_set(folder: Path) -> None:
    assert sorted(e.name for e in folder.iterdir()) == FILES
    assert [e.name for e in folder.parent.iterdir()] == ["set"]
    assert is_control(folder)
    assert is_published(folder)
    assert load_control(folder).digest == make().digest
    assert check_published(folder).problems == ()


def test_an_audit_is_the_same_before_and_after(folder: Path) -> None:
    collection, _ = draw_groups(4, (60, 140))
    before, after = (audit(collection, control, seed=1) for control in (make(), load_control(folder)))
    assert before.to_dict() == after.to_dict()


def test_a_save_that_fails_leaves_the_earlier_edition(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    broken = make(ids=[*map(str, range(59)), "\udcff"])
    with pytest.raises(FileError, match="is not valid text"):
        publish(broken, folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert [e.name for e in folder.parent.iterdir()] == ["set"]


def test_folders_with_other_things_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("x")
    (tmp_path / "file").write_text("x")
    save_control(make(), tmp_path / "saved")
    for name, words in [
        ("photos", "with other things"),
        ("saved", "with other things"),
        ("file", "is a file"),
    ]:
        with pytest.raises(FileError, match=words):
            publish(make(), tmp_path / name)
    monkeypatch.chdir(tmp_path / "photos")
    with pytest.raises(FileError, match="the folder you are in"):
        publish(make(), ".")
    assert sorted(e.name for e in tmp_path.iterdir()) == ["file", "photos", "saved"]


def test_only_what_every_reader_can_compute_is_published(tmp_path: Path) -> None:
    control = make(similarity=lambda a, b: np.maximum(a @ b.T, 0.0))
    with pytest.raises(InputError, match="cosine"):
        publish(control, tmp_path / "set")
    assert not list(tmp_path.iterdir())


# Descriptions


def test_mlcroissant_validates_it_and_reads_the_records(folder: Path) -> None:
    pytest.importorskip("mlcroissant", reason="needs divscore[publish]")
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
    import subprocess
    import sys

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
    assert found["divscore:measured"] == {"not_measured": "nobody asked for it"}
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


def front_matter(folder: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, header, _ = text.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(header)
    return found


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


# What people know


def test_every_question_has_a_field() -> None:
    assert [f.name for f in fields(About)] == list(QUESTIONS)


@pytest.mark.parametrize("about", [About(), ABOUT, About(definition='"""\n\\ "x"\nend\\', source="\x00\x7f")])
def test_answers_are_read_as_written(about: About, tmp_path: Path) -> None:
    file = tmp_path / "about.toml"
    file.write_text(write_about(about, make()), encoding="utf-8")
    once = read_about(file)
    assert (once == about) or "\x00" in about.source
    file.write_text(write_about(once, make()), encoding="utf-8")
    assert read_about(file) == once


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("license = cc0", "not in TOML"),
        ("colour = 'red'", "answers 'colour', which is not asked"),
        ("consent = true", "consent = True; expected text"),
        ("language = 'English'", "expected codes"),
    ],
)
def test_answers_that_cannot_be_used(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "about.toml").write_text(text)
    with pytest.raises(FileError, match=words):
        read_about(tmp_path / "about.toml")
    with pytest.raises(FileError, match="--template"):
        read_about(tmp_path / "none.toml")


# Names of examples


def test_folders_are_not_published() -> None:
    ids = [f"/home/jane/set/{n % 7}/x{n}.png" for n in range(60)]
    assert public_ids(make(ids=ids), "names") == [f"x{n}.png" for n in range(60)]
    assert public_ids(make(ids=[f"c:\\jane\\{n}" for n in range(60)]), "names") == [str(n) for n in range(60)]
    assert public_ids(make(ids=ids), "keep") == ids
    numbers = public_ids(make(ids=ids), "numbers")
    assert numbers[0] == "example-0001"
    assert len(set(numbers)) == 60


def test_the_same_file_name_in_two_folders() -> None:
    control = make()
    names = [control.groups[label] for label in control.labels]
    by_group = make(ids=[f"jane/{g}/{names[:n].count(g)}.png" for n, g in enumerate(names)])
    found = public_ids(by_group, "names")
    assert sorted(found) == sorted(f"{g}/{n}.png" for g in "ab" for n in range(30))
    deep = public_ids(make(ids=[f"{n}/same.png" for n in range(60)]), "names")
    assert len(set(deep)) == 60
    assert not any("/" in name for name in deep)


def test_numbers_stay_with_their_examples(tmp_path: Path) -> None:
    control = make()
    publish(control, tmp_path / "set", ids="numbers")
    first = dict(zip(control.ids, load_control(tmp_path / "set").ids, strict=True))
    kept = [row for row in range(60) if row not in {0, 5}]
    more = np.vstack([control.vectors[kept][::-1], np.ones((1, control.dimension), np.float32)])
    names = [*[control.groups[control.labels[row]] for row in kept][::-1], "a"]
    ids = [*[control.ids[row] for row in kept][::-1], "new"]
    publish(
        ControlSet(more, names, attribute="letter", ids=ids, encoder="test/1"),
        tmp_path / "set",
        ids="numbers",
    )
    second = load_control(tmp_path / "set").ids
    assert second == (*(first[control.ids[row]] for row in kept[::-1]), "example-0061")


# From names to numbers

PEOPLE = tuple(f"Alice Smith {n}.jpg" for n in range(60))


def named_then_numbered(folder: Path, *lines: str) -> str:
    """Publish 60 examples by name, object, and publish 56 of them by number; the later changelog entry."""
    control = make(ids=PEOPLE)
    publish(control, folder)
    object_to(folder, *lines)
    names = [control.groups[label] for label in control.labels][:56]
    publish(
        ControlSet(control.vectors[:56], names, attribute="letter", ids=PEOPLE[:56], encoder="test/1"),
        folder,
        ids="numbers",
    )
    return (folder / "CHANGELOG.md").read_text().split("## Edition 1")[0]


def test_numbers_after_names_do_not_name_who_was_removed(tmp_path: Path) -> None:
    entry = named_then_numbered(tmp_path / "set")
    assert "- Removed: 4.\n" in entry
    assert "- Renamed: 56." in entry
    for file in (tmp_path / "set").iterdir():
        assert b"Alice" not in file.read_bytes(), file.name


def test_folders_of_removed_examples_are_not_told_either(tmp_path: Path) -> None:
    control = make(ids=[f"/home/jane/{n}.jpg" for n in range(60)])
    publish(control, tmp_path / "set", ids="keep")
    names = [control.groups[label] for label in control.labels][:59]
    fewer = ControlSet(
        control.vectors[:59], names, attribute="letter", ids=control.ids[:59], encoder="test/1"
    )
    publish(fewer, tmp_path / "set")
    log = (tmp_path / "set" / "CHANGELOG.md").read_text()
    assert "Removed: 1 (59.jpg)." in log
    assert "jane" not in log


def test_objections_stay_with_their_examples(tmp_path: Path) -> None:
    named_then_numbered(
        tmp_path / "set",
        'Alice Smith 3.jpg,"not a letter, surely",remove,A. Reader,,2026-01-31,open',
        "*,one typeface only,,,,2026-02-01,open",
        "Alice Smith 4.jpg,fine now,,,,2026-02-01,declined",
    )
    assert (tmp_path / "set" / OBJECTIONS).read_text() == EMPTY + (
        'example-0004,"not a letter, surely",remove,A. Reader,,2026-01-31,open\n'
        "*,one typeface only,,,,2026-02-01,open\n"
        "example-0005,fine now,,,,2026-02-01,declined\n"
    )
    assert check_published(tmp_path / "set").problems == ()


def test_carrying_over_changes_nothing_else() -> None:
    head, rest = "\ufeff" + EMPTY.replace("\n", "\r\n"), "b,x,,,,2026-01-31,open"
    kept = ' c ,"two\r\nlines ""quoted""",,,,2026-01-31,open\r\n\r\nshort,row\n'
    found = carry_over(
        f"{head}a,x,,,,2026-01-31,open\r\n{kept}{rest}", {"a": "A", "c": "c", "b": "", "d": "D"}
    )
    assert found.text == f"{head}A,x,,,,2026-01-31,open\r\n{kept}{rest}"
    assert (found.renamed, found.lost) == (1, ("b",))
    for text in ("", "id;text\na;b\n", EMPTY + 'a,"x\n'):
        assert carry_over(text, {"a": "A"}).text == text


def test_what_names_and_objections_were_left_is_said(tmp_path: Path) -> None:
    control = make(ids=PEOPLE)
    save_control(control, tmp_path / "C")
    names = [control.groups[label] for label in control.labels]
    for number, rows in enumerate((range(59), range(58))):
        few = ControlSet(
            control.vectors[list(rows)],
            [names[row] for row in rows],
            attribute="letter",
            ids=[PEOPLE[row] for row in rows],
            encoder="test/1",
        )
        save_control(few, tmp_path / f"few{number}")
    target = tmp_path / "P"
    run("control", "publish", tmp_path / "C", "-o", target, "--no-measure")
    run("control", "publish", tmp_path / "few0", "-o", target, "--no-measure")
    object_to(target, "Alice Smith 58.jpg,x,,,,2026-01-31,open", "Alice Smith 1.jpg,x,,,,2026-01-31,open")
    said = run(
        "control", "publish", tmp_path / "few1", "-o", target, "--ids", "numbers", "--no-measure"
    ).stderr
    assert "objections.csv: lines that call their example by its new id now: 1." in said
    assert "1 open to examples that are no longer in the set ('Alice Smith 58.jpg')" in said
    assert "still stand in CHANGELOG.md and objections.csv" in said


def test_ids_that_are_whole_texts_are_told(tmp_path: Path) -> None:
    texts = [f"He said that he would come at {n} but did not." for n in range(60)]
    save_control(make(ids=texts), tmp_path / "T")
    save_control(make(ids=PEOPLE), tmp_path / "N")
    words = "60 of 60 ids look like whole texts"
    for name, ids, told in (("T", "names", True), ("T", "numbers", False), ("N", "names", False)):
        target = tmp_path / f"{name}-{ids}"
        done = run("control", "publish", tmp_path / name, "-o", target, "--ids", ids, "--no-measure")
        assert (words in done.stderr) == told


# Measured error and coverage


def test_error_and_coverage_are_measured() -> None:
    steps: list[int] = []
    found = measure(make((60, 60)), repetitions=3, progress=steps.append)
    assert isinstance(found, Measured)
    assert len(steps) == 3
    assert 0 < found.error < 0.5
    assert 0.7 <= found.coverage <= 1
    assert found.answers == 33
    assert found.examples == 120
    assert found.divscore_error is not None
    assert f"off by {found.error:.3f}" in found.sentences
    stored = json.loads(json.dumps(found.to_dict()))
    assert measured_from(stored).to_dict() == found.to_dict()


def test_too_few_examples_are_told() -> None:
    found = measure(make((12, 40)))
    assert isinstance(found, NotMeasured)
    assert "only 12 of 'a'" in found.sentences
    assert measured_from(found.to_dict()) == found


FIGURES = Measured(
    examples=60, labels=30, repetitions=20, answers=220, smallest=30, largest=30, error=0.1, error_se=0.01,
    coverage=0.95, coverage_se=None, width=0.4, cannot_tell=3, seed=0, divscore_error=0.2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("error", "x"),
        ("error", None),
        ("error", float("nan")),
        pytest.param("error", 10**400, id="huge"),
        ("coverage", 1.5),
        ("width", []),
        ("answers", 2.5),
        ("answers", -1),
        ("seed", True),
        ("colour", 1),
        ("not_measured", [["x"]]),
    ],
)
def test_figures_that_were_not_measured_are_refused(name: str, value: Any) -> None:
    assert measured_from(FIGURES.to_dict()) == FIGURES
    with pytest.raises(InputError, match="cannot be read"):
        measured_from({**FIGURES.to_dict(), name: value})


def test_figures_are_carried_over_to_the_same_control_set(tmp_path: Path) -> None:
    save_control(make(ids=PEOPLE), tmp_path / "C")
    publish(make(ids=PEOPLE), tmp_path / "P", measure=lambda control: FIGURES)
    command = ("control", "publish", tmp_path / "C", "-o", tmp_path / "P", "--no-measure", "--ids", "numbers")
    said = run(*command).stderr
    assert "those of the edition before: the control set is the same" in said
    assert "not measured" not in said
    assert described(tmp_path / "P")["divscore:measured"] == FIGURES.to_dict()
    assert "off by 0.100" in (tmp_path / "P" / "README.md").read_text()


def test_figures_of_another_control_set_are_not(tmp_path: Path) -> None:
    reason = {"not_measured": "nobody asked for it"}
    for number, other in enumerate((make((31, 30)), make().with_representatives(range(60)))):
        folder = tmp_path / f"{number}"
        publish(make(), folder, measure=lambda control: FIGURES)
        assert not publish(other, folder).carried
        assert described(folder)["divscore:measured"] == reason
    publish(make(), tmp_path / "edited", measure=lambda control: FIGURES)
    file = tmp_path / "edited" / "croissant.json"
    file.write_text(file.read_text().replace('"error": 0.1', '"error": 0.0001'))
    assert not publish(make(), tmp_path / "edited", replace=True).carried
    better = replace(FIGURES, error=0.05)
    publish(make(), tmp_path / "again", measure=lambda control: FIGURES)
    assert publish(make(), tmp_path / "again", measure=lambda control: better).publication.measured == better


# Check


def test_every_edit_is_named(folder: Path) -> None:
    for name in ("README.md", "about.toml", "CHANGELOG.md", "croissant.json", "control.parquet"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole.replace(b"e", b"E", 1))
        assert f"{name} was changed after it was published" in check_published(folder).problems
        (folder / name).unlink()
        assert f"{name} is missing" in check_published(folder).problems
        (folder / name).write_bytes(whole)
        assert check_published(folder).problems == ()


def rewritten(folder: Path, name: str, old: str, new: str) -> None:
    """Edit a file and cover it up in the list of digests."""
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    sums = (folder / "SHA256SUMS").read_text()
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(re.sub(rf".*  {re.escape(name)}\n", f"{digest}  {name}\n", sums))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("README.md", "| a | 30 | 10 |", "| a | 31 | 10 |", r"lacks the line \| a \| 30 \| 10 \|"),
        ("croissant.json", '"labelled": 30', '"labelled": 31', "states other groups or counts"),
        ("croissant.json", '"sha256": "', '"sha256": "0', "states another digest of control.parquet"),
        ("about.toml", "two readers", "ten readers", "README.md states another digest of the edition"),
        ("CHANGELOG.md", "Edition 1", "Edition 7", "ends with edition 7, croissant.json is of edition 1"),
    ],
)
def test_edits_that_were_covered_up(folder: Path, name: str, old: str, new: str, words: str) -> None:
    rewritten(folder, name, old, new)
    problems = "\n".join(check_published(folder).problems)
    assert "was changed" not in problems
    assert re.search(words, problems)


def test_another_table_with_its_own_digest_is_noticed(folder: Path) -> None:
    save_control(make((40, 30)), folder)
    problems = check_published(folder).problems
    assert "control.parquet was changed after it was published" in problems
    assert any("lacks the line | a | 40 | 10 |" in problem for problem in problems)


def test_without_digests_nothing_is_vouched_for(folder: Path) -> None:
    for text in (None, "", "not a list\n", "0" * 64 + "  ../../secret\n"):
        (folder / "SHA256SUMS").unlink(missing_ok=True)
        if text is not None:
            (folder / "SHA256SUMS").write_text(text)
        assert "SHA256SUMS is missing or damaged" in check_published(folder).problems[0]
    assert is_published(folder)


def object_to(folder: Path, *lines: str) -> None:
    (folder / OBJECTIONS).write_text(EMPTY + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_open_objections_are_listed_and_no_edit(folder: Path) -> None:
    object_to(
        folder,
        '3,"not a letter, surely",remove,A. Reader,,2026-01-31,open',
        "*,one typeface only,,,,2026-02-01,open",
        "4,fine now,,,,2026-02-01,declined",
    )
    verdict = check_published(folder)
    assert verdict.problems == ()
    assert [(o.id, o.objection) for o in verdict.objections if o.is_open] == [
        ("3", "not a letter, surely"),
        ("*", "one typeface only"),
    ]
    said = run("control", "check", folder).stdout
    assert "objections: 2 open of 3" in said
    assert "2026-01-31  '3': not a letter, surely (remove)" in said
    assert "2026-02-01  the whole set: one typeface only" in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("3,x,,,,2026-01-31", "6 fields, expected 7"),
        ("99,x,,,,2026-01-31,open", "no example is called '99'"),
        (",x,,,,2026-01-31,open", "no id"),
        ("3,,,,,2026-01-31,open", "no objection"),
        ("3,x,,,,yesterday,open", "date 'yesterday'"),
        ("3,x,,,,2026-01-31,maybe", "status 'maybe'"),
        ('3,"=HYPERLINK(1)",,,,2026-01-31,open', "objection begins with '='"),
        ("3,x,,@me,,2026-01-31,open", "by begins with '@'"),
        ('3,"x,,,,2026-01-31,open', "cannot be read"),
    ],
)
def test_lines_that_are_not_well_formed(folder: Path, line: str, words: str) -> None:
    object_to(folder, line)
    assert words in "\n".join(check_published(folder).problems)
    assert "! " in run("control", "check", folder, code=1).stdout


def test_a_table_of_objections_that_is_none(folder: Path) -> None:
    file = folder / OBJECTIONS
    for content, words in [
        (b"id;text\n", "other columns"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"", "other columns"),
    ]:
        file.write_bytes(content)
        assert words in read_objections(file, ())[1][0]
    file.unlink()
    assert "is missing" in check_published(folder).problems[0]
    file.write_bytes(b"\xef\xbb\xbf" + EMPTY.replace("\n", "\r\n").encode())  # as spreadsheets save it
    assert check_published(folder).problems == ()


def test_objections_cannot_command_the_terminal(folder: Path) -> None:
    object_to(folder, "3,\x1b[2Jboo,,,,2026-01-31,open")
    said = run("control", "check", folder).stdout
    assert "\x1b" not in said
    assert "\\x1b[2Jboo" in said


# Folders of strangers


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("croissant.json", DEEP, "croissant.json cannot be read"),
        ("croissant.json", "[]", "does not describe a data set"),
        ("about.toml", f"title = {DEEP}", "about.toml was changed"),
        ("about.toml", f"title = {'1' * 5000}", "about.toml was changed"),
        ("CHANGELOG.md", f"## Edition {'1' * 5000}\n", "CHANGELOG.md was changed"),
    ],
)
def test_damaged_files_end_in_words(folder: Path, name: str, text: str, words: str) -> None:
    (folder / name).write_text(text)
    assert words in run("control", "check", folder, code=1).stdout
    wrong = name == "about.toml"
    done = run("control", "card", folder, code=2 if wrong else 0)
    assert done.stderr.count("not in TOML") == wrong
    assert wrong or "## Control set: letter" in done.stdout
    save_control(make(), folder.parent / "C")
    command = ("control", "publish", folder.parent / "C", "-o", folder, "--replace", "--no-measure")
    assert "Traceback" not in run(*command, code=2 if wrong else 0).output


@pytest.mark.parametrize(
    "values",
    [[], "x", 3, None, {"not_measured": 5}, {**FIGURES.to_dict(), "error": "x"}, {"error": 0.1}],
)
def test_a_card_without_figures_that_can_be_read(folder: Path, values: Any) -> None:
    found = described(folder)
    found["divscore:measured"] = values
    (folder / "croissant.json").write_text(json.dumps(found))
    assert "not measured: croissant.json does not say" in run("control", "card", folder).stdout


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strange") / "set"
    publish(make(), folder, about=ABOUT, measure=lambda control: FIGURES)
    return folder


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a document, from the outermost to the innermost."""
    yield ()
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from ((key, *place) for place in places(part))


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value in one place."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = put(copy[place[0]], place[1:], new)
    return copy


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([10**400, "\ud800", "\x1b[2J"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "sha256", "error", "not_measured"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.data())
def test_any_value_anywhere_in_the_description_is_survived(strange: Path, data: st.DataObject) -> None:
    file = strange / "croissant.json"
    whole = file.read_text(encoding="utf-8")
    found = json.loads(whole)
    # Half of the tries go to what is read back, which is a small part of the document.
    read = [p for p in places(found) if p and p[0] in OF_INTEREST]
    place = data.draw(st.sampled_from(read) | st.sampled_from(list(places(found))))
    file.write_text(json.dumps(put(found, place, data.draw(VALUES))), encoding="utf-8")
    try:
        for problem in check_published(strange).problems:
            problem.encode()
        plain(stated(strange)[1].sentences).encode()
        earlier = read_earlier(strange)
        assert earlier.first_day in ("", found["datePublished"]) or place == ("datePublished",)
        assert earlier.measured is None or len(earlier.measured.sentences) < 2000
    finally:
        file.write_text(whole, encoding="utf-8")


OF_INTEREST = {
    "datePublished", "distribution", "divscore:schema", "divscore:edition", "divscore:groups", "divscore:digest",
    "divscore:representativesMethod", "divscore:measured",
}  # fmt: skip


# Editions


def test_the_next_edition_keeps_objections_and_tells_what_changed(folder: Path) -> None:
    object_to(folder, "3,x,,,,2026-01-31,accepted")
    (folder / "LICENSE").write_text("mine")
    written = (folder / OBJECTIONS).read_bytes()
    control = make()
    names = [control.groups[label] for label in control.labels]
    names[2] = "b" if names[2] == "a" else "a"
    keep = [row for row in range(60) if row != 3]
    vectors = np.vstack([control.vectors[keep], np.ones((1, control.dimension), np.float32)])
    changed = ControlSet(
        vectors,
        [*(names[row] for row in keep), "b"],
        attribute="letter",
        ids=[*(control.ids[row] for row in keep), "fresh"],
        encoder="test/1",
    )
    second = publish(changed, folder)
    assert second.publication.edition == 2
    assert second.publication.about == ABOUT
    assert (folder / OBJECTIONS).read_bytes() == written
    assert (folder / "LICENSE").read_text() == "mine"
    log = (folder / "CHANGELOG.md").read_text()
    assert edition_of(log) == 2
    assert log.index("## Edition 2") < log.index("## Edition 1")
    assert "- Added: 1 (fresh)." in log
    assert "- Removed: 1 (3)." in log
    assert "- Moved to another group: 1 (2)." in log
    assert f"`{control.digest}` → `{changed.digest}`" in log
    verdict = check_published(folder)
    assert verdict.problems == ()
    assert verdict.beside == ("LICENSE",)
    assert described(folder)["version"] == "2.0.0"


def test_other_answers_are_told(folder: Path) -> None:
    publish(make(), folder, about=About(license="mit"))
    entry = (folder / "CHANGELOG.md").read_text().split("## Edition 1")[0]
    assert "The examples are the same." in entry
    assert "Other answers to: title, publisher, contact, license" in entry
    text = (folder / "about.toml").read_text()
    (folder / "about.toml").write_text(text.replace('"mit"', '"cc0-1.0"'))
    publish(make(), folder)
    assert "others in about.toml" in (folder / "CHANGELOG.md").read_text().split("## Edition 2")[0]
    assert front_matter(folder)["license"] == "cc0-1.0"


def test_files_edited_by_hand_are_not_overwritten_in_silence(folder: Path) -> None:
    with (folder / "README.md").open("a") as stream:
        stream.write("My own words.\n")
    with pytest.raises(FileError, match=r"README.md changed after the last edition .*--replace"):
        publish(make(), folder)
    assert "My own words." in (folder / "README.md").read_text()
    publish(make(), folder, replace=True)
    assert "My own words." not in (folder / "README.md").read_text()


def test_what_people_add_to_the_changelog_stays() -> None:
    first = with_entry("", 1, "2026-01-01", ["one"])
    second = with_entry(first.replace("- one", "- one\n- by hand"), 2, "2026-02-01", ["two"])
    assert second == (
        "# Changes\n\n## Edition 2 (2026-02-01)\n\n- two\n\n## Edition 1 (2026-01-01)\n\n- one\n- by hand\n"
    )
    assert with_entry("mine\n", 1, "2026-01-01", ["one"]).endswith("- one\n\nmine\n")


def test_an_encoder_that_changed() -> None:
    old, new = make(), make()
    new.encoder = "test/2"
    lines = changes(new, old)
    assert "Encoder: test/1 → test/2." in lines
    assert "The examples are the same." in lines


# Commands


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_control(make(ids=[f"/home/jane/{n}.png" for n in range(60)]), "C")
    assert "fill it in" in run("control", "publish", "C", "--template", "about.toml").stderr
    assert read_about("about.toml") == About()
    assert "exists already" in run("control", "publish", "C", "--template", "about.toml", code=2).stderr
    assert "-o FOLDER" in run("control", "publish", "C", code=2).stderr
    Path("about.toml").write_text('license = "mit"\n')
    done = run("control", "publish", "C", "-o", "P", "--about", "about.toml")
    assert done.stdout == f"edition 1 in P, digest {check_published('P').digest}\n"
    assert "60 of 60 examples are called by names without their folders" in done.stderr
    assert "Not stated: contact, definition, basis" in done.stderr
    assert "jane" not in Path("P/control.parquet").read_bytes().decode("latin-1")
    measured = described(Path("P"))["divscore:measured"]
    assert measured["repetitions"] == 20
    assert measured["examples"] == 60
    assert "published: edition 1, 5 files" in run("control", "check", "P").stdout
    assert "60 labelled examples" in run("control", "show", "P").stdout
    np.save("x.npy", draw_groups(4, (60, 140))[0].astype(np.float32))
    same = [run("audit", "x.npy", "--control", c, "--json", "-").stdout for c in ("C", "P")]
    first, second = (json.loads(text) for text in same)
    assert first["collections"] == second["collections"]
    assert first["control"] == second["control"]


def test_a_damaged_publication_exits_with_1(folder: Path) -> None:
    data = (folder / "control.parquet").read_bytes()
    (folder / "control.parquet").write_bytes(data[:100])
    said = run("control", "check", folder, code=1).stdout
    assert "! control.parquet was changed after it was published" in said
    assert "! the examples cannot be used" in said


def test_a_card_for_another_card(tmp_path: Path, folder: Path) -> None:
    save_control(make(), tmp_path / "C")
    said = run("control", "card", tmp_path / "C").stdout
    assert said.startswith("## Control set: letter\n")
    for words in ("| a | 30 | 10 |", make().digest, "γ^(T) = ", "off by 0.", "**Labelled by:** *not stated*"):
        assert words in said
    run("control", "card", folder, "-o", tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    assert "**Labelled by:** two readers" in text
    assert "not measured: nobody asked for it" in text
    assert "--no-measure" in run("control", "card", tmp_path / "C", "--no-measure").stdout


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    save_control(make(), tmp_path / "C")
    card = ("control", "card", tmp_path / "C", "--no-measure", "-o")
    template = ("control", "publish", tmp_path / "C", "--template")
    for command, target in (
        (card, tmp_path / "none" / "card.md"),
        (card, tmp_path / "C"),
        (template, tmp_path / "none" / "a.toml"),
    ):
        assert f"cannot write {target}: " in run(*command, target, code=2).stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["C"]


def test_a_projection_goes_with_the_set(tmp_path: Path) -> None:
    from divscore.jobs.projection import Projection

    save_control(make(), tmp_path / "C")
    Projection.fit(np.random.default_rng(1).normal(size=(40, 12)), 8, "test/1").save(
        tmp_path / "C/projection.npz"
    )
    run("control", "publish", tmp_path / "C", "-o", tmp_path / "P", "--no-measure")
    assert (tmp_path / "P/projection.npz").read_bytes() == (tmp_path / "C/projection.npz").read_bytes()
    assert check_published(tmp_path / "P").files == 6
    (tmp_path / "C/projection.npz").unlink()
    run("control", "publish", tmp_path / "C", "-o", tmp_path / "P", "--no-measure")
    assert not (tmp_path / "P/projection.npz").exists()


def test_faces_are_told_to_be_biometric(tmp_path: Path) -> None:
    control = make()
    control.encoder = "faces/1 weights=abc"
    publish(control, tmp_path / "set")
    assert "face descriptors" in (tmp_path / "set" / "README.md").read_text()
    assert "face descriptors" in " ".join(described(tmp_path / "set")["rai:personalSensitiveInformation"])


def test_publishing_needs_no_extra() -> None:
    code = Path(publishing.__file__).parent
    assert not [
        file for file in code.glob("*.py") if re.search(r"import (mlcroissant|yaml)", file.read_text())
    ]


def test_select_does_not_write_over_a_published_set(folder: Path, tmp_path: Path) -> None:
    save_control(make(), tmp_path / "pool")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    told = run("control", "select", tmp_path / "pool", "-o", folder, code=2)
    assert "is a published control set; write to another folder" in told.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_publishing_says_what_and_warns_of_groups_that_cannot_be_told_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    noise = ControlSet(rng.normal(size=(60, 8)), ["a", "b"] * 30, attribute="letter")
    save_control(noise, tmp_path / "noise")
    told = run("control", "publish", tmp_path / "noise", "-o", tmp_path / "out", "--no-measure").stderr
    assert "published: letter (30 a, 30 b)" in told
    assert "! the groups cannot be told apart" in told
    save_control(make(), tmp_path / "good")
    told = run("control", "publish", tmp_path / "good", "-o", tmp_path / "fine", "--no-measure").stderr
    assert "cannot be told apart" not in told
