from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import draw_groups
from published import ABOUT, FIGURES, described, front_matter, make, object_to, published_set, run, some

from divscore.audit.audit import audit
from divscore.control.controlfile import is_control, load_control, save_control
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.publishing.about import About, read_about
from divscore.publishing.edition import (
    changes,
    check_published,
    edition_of,
    is_published,
    public_ids,
    publish,
    with_entry,
)
from divscore.publishing.objections import EMPTY, OBJECTIONS

FILES = [
    "CHANGELOG.md", "README.md", "SHA256SUMS", "about.toml", "control.parquet", "croissant.json", "objections.csv",
]  # fmt: skip
PEOPLE = tuple(f"Alice Smith {n}.jpg" for n in range(60))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published_set(tmp_path)


# The folder


def test_the_folder_holds_everything_and_is_a_control_set(folder: Path) -> None:
    assert sorted(e.name for e in folder.iterdir()) == FILES
    assert [e.name for e in folder.parent.iterdir()] == ["set"]
    assert is_control(folder)
    assert is_published(folder)
    assert load_control(folder).digest == make().digest
    assert check_published(folder).problems == ()


def test_where_the_examples_are_is_not_published(tmp_path: Path) -> None:
    texts = [f"/home/alice/letters/{at}.jpg" if at % 2 else f"private words {at}" for at in range(60)]
    publish(make(origins=texts), tmp_path / "set", about=ABOUT)
    assert load_control(tmp_path / "set").origins is None
    for file in (tmp_path / "set").iterdir():
        data = file.read_bytes()
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            assert table.column_names == ["id", "group", "representative", "embedding"]
            data += repr(table.drop_columns("embedding").to_pydict()).encode()
        assert b"alice" not in data
        assert b"private words" not in data
        assert b"origin" not in data


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
        ("photos", "has other files"),
        ("saved", "has other files"),
        ("file", "is a file"),
    ]:
        with pytest.raises(FileError, match=words):
            publish(make(), tmp_path / name)
    monkeypatch.chdir(tmp_path / "photos")
    with pytest.raises(FileError, match="the current folder"):
        publish(make(), ".")
    assert sorted(e.name for e in tmp_path.iterdir()) == ["file", "photos", "saved"]


def test_only_what_every_reader_can_compute_is_published(tmp_path: Path) -> None:
    control = make(similarity=lambda a, b: np.maximum(a @ b.T, 0.0))
    with pytest.raises(InputError, match="cosine"):
        publish(control, tmp_path / "set")
    assert not list(tmp_path.iterdir())


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


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_control(make(ids=[f"/home/jane/{n}.png" for n in range(60)]), "C")
    assert "fill it in" in run("control", "publish", "C", "--template", "about.toml").stderr
    assert read_about("about.toml") == About()
    assert "already exists" in run("control", "publish", "C", "--template", "about.toml", code=2).stderr
    assert "-o FOLDER" in run("control", "publish", "C", code=2).stderr
    Path("about.toml").write_text('license = "mit"\n')
    done = run("control", "publish", "C", "-o", "P", "--about", "about.toml")
    assert done.stdout == f"edition 1 in P, digest {check_published('P').digest}\n"
    assert "60 of 60 examples have names without folders as ids" in done.stderr
    assert "Not stated: contact, definition, basis" in done.stderr
    assert "jane" not in Path("P/control.parquet").read_bytes().decode("latin-1")
    measured = described(Path("P"))["divscore:measured"]
    assert measured["repetitions"] == 20
    assert measured["examples"] == 60
    assert "published: edition 1, 5 files" in run("control", "check", "P").stdout
    assert "60 labelled examples" in run("control", "show", "P").stdout


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
    assert "! the groups cannot be distinguished" in told
    save_control(make(), tmp_path / "good")
    told = run("control", "publish", tmp_path / "good", "-o", tmp_path / "fine", "--no-measure").stderr
    assert "cannot be distinguished" not in told


# Ids of examples


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


def test_numbers_after_names_do_not_name_who_was_removed(tmp_path: Path) -> None:
    control = make(ids=PEOPLE)
    publish(control, tmp_path / "set")
    object_to(
        tmp_path / "set",
        'Alice Smith 3.jpg,"not a letter, surely",remove,A. Reader,,2026-01-31,open',
        "*,one typeface only,,,,2026-02-01,open",
        "Alice Smith 4.jpg,fine now,,,,2026-02-01,declined",
    )
    publish(some(control, list(range(56))), tmp_path / "set", ids="numbers")
    assert (tmp_path / "set" / OBJECTIONS).read_text() == EMPTY + (
        'example-0004,"not a letter, surely",remove,A. Reader,,2026-01-31,open\n'
        "*,one typeface only,,,,2026-02-01,open\n"
        "example-0005,fine now,,,,2026-02-01,declined\n"
    )
    entry = (tmp_path / "set" / "CHANGELOG.md").read_text().split("## Edition 1")[0]
    assert "- Removed: 4.\n" in entry
    assert "- Renamed: 56." in entry
    for file in (tmp_path / "set").iterdir():
        assert b"Alice" not in file.read_bytes(), file.name
    assert check_published(tmp_path / "set").problems == ()


def test_folders_of_removed_examples_are_not_told_either(tmp_path: Path) -> None:
    control = make(ids=[f"/home/jane/{n}.jpg" for n in range(60)])
    publish(control, tmp_path / "set", ids="keep")
    publish(some(control, list(range(59))), tmp_path / "set")
    log = (tmp_path / "set" / "CHANGELOG.md").read_text()
    assert "Removed: 1 (59.jpg)." in log
    assert "jane" not in log


def test_what_names_and_objections_were_left_is_said(tmp_path: Path) -> None:
    control = make(ids=PEOPLE)
    target = tmp_path / "P"
    publish(control, target)
    publish(some(control, list(range(59))), target)
    save_control(some(control, list(range(58))), tmp_path / "fewer")
    object_to(target, "Alice Smith 58.jpg,x,,,,2026-01-31,open", "Alice Smith 1.jpg,x,,,,2026-01-31,open")
    said = run(
        "control", "publish", tmp_path / "fewer", "-o", target, "--ids", "numbers", "--no-measure"
    ).stderr
    assert "objections.csv: 1 line updated to new ids." in said
    assert "1 open objection to examples that are no longer in the set ('Alice Smith 58.jpg')" in said
    assert "are still in CHANGELOG.md and objections.csv" in said


def test_ids_that_are_whole_texts_are_told(tmp_path: Path) -> None:
    texts = [f"He said that he would come at {n} but did not." for n in range(60)]
    save_control(make(ids=texts), tmp_path / "T")
    save_control(make(ids=PEOPLE), tmp_path / "N")
    words = "60 of 60 ids look like whole texts"
    for name, ids, told in (("T", "names", True), ("T", "numbers", False), ("N", "names", False)):
        target = tmp_path / f"{name}-{ids}"
        done = run("control", "publish", tmp_path / name, "-o", target, "--ids", ids, "--no-measure")
        assert (words in done.stderr) == told


# Editions


def test_figures_are_carried_over_to_the_same_control_set(tmp_path: Path) -> None:
    save_control(make(ids=PEOPLE), tmp_path / "C")
    publish(make(ids=PEOPLE), tmp_path / "P", measure=lambda control: FIGURES)
    command = ("control", "publish", tmp_path / "C", "-o", tmp_path / "P", "--no-measure", "--ids", "numbers")
    said = run(*command).stderr
    assert "come from the edition before: the control set is the same" in said
    assert "not measured" not in said
    assert described(tmp_path / "P")["divscore:measured"] == FIGURES.to_dict()
    assert "off by 0.100" in (tmp_path / "P" / "README.md").read_text()


def test_figures_of_another_control_set_are_not(tmp_path: Path) -> None:
    reason = {"not_measured": "it was not requested"}
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
    assert verdict.others == ("LICENSE",)
    assert described(folder)["version"] == "2.0.0"


def test_other_answers_are_told(folder: Path) -> None:
    publish(make(), folder, about=About(license="mit"))
    entry = (folder / "CHANGELOG.md").read_text().split("## Edition 1")[0]
    assert "The examples are the same." in entry
    assert "New answers to: title, publisher, contact, license" in entry
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
