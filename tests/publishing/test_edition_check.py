from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import ABOUT, FIGURES, described, make, published_set, run

from divscore.control.controlfile import save_control
from divscore.publishing.edition import Earlier, check_published, is_published, publish, stated
from divscore.text import escape_markdown


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published_set(tmp_path)


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
        ("README.md", "| a | 30 | 10 |", "| a | 31 | 10 |", r"should have the line \| a \| 30 \| 10 \|"),
        ("croissant.json", '"labelled": 30', '"labelled": 31', "states other groups or counts"),
        ("croissant.json", '"sha256": "', '"sha256": "0', "states another digest of control.parquet"),
        ("about.toml", "two readers", "ten readers", "README.md states another digest of the edition"),
        ("CHANGELOG.md", "Edition 1", "Edition 7", "last edition in CHANGELOG.md is 7, in croissant.json 1"),
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
    assert any("should have the line | a | 40 | 10 |" in problem for problem in problems)


def test_without_digests_nothing_is_vouched_for(folder: Path) -> None:
    for text in (None, "", "not a list\n", "0" * 64 + "  ../../secret\n"):
        (folder / "SHA256SUMS").unlink(missing_ok=True)
        if text is not None:
            (folder / "SHA256SUMS").write_text(text)
        assert "SHA256SUMS is missing or damaged" in check_published(folder).problems[0]
    assert is_published(folder)


def test_a_damaged_publication_exits_with_1(folder: Path) -> None:
    data = (folder / "control.parquet").read_bytes()
    (folder / "control.parquet").write_bytes(data[:100])
    said = run("control", "check", folder, code=1).stdout
    assert "! control.parquet was changed after it was published" in said
    assert "! the examples cannot be used" in said


# Folders of strangers

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("croissant.json", DEEP, "croissant.json is not valid JSON"),
        ("croissant.json", "[]", "croissant.json: expected an object, got a list"),
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
    assert done.stderr.count("not valid TOML") == wrong
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


OF_INTEREST = {
    "datePublished", "distribution", "divscore:schema", "divscore:edition", "divscore:groups", "divscore:digest",
    "divscore:representativesMethod", "divscore:measured",
}  # fmt: skip
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
        escape_markdown(stated(strange)[1].sentences).encode()
        earlier = Earlier.read(strange)
        assert earlier.first_day in ("", found["datePublished"]) or place == ("datePublished",)
        assert earlier.measured is None or len(earlier.measured.sentences) < 2000
    finally:
        file.write_text(whole, encoding="utf-8")
