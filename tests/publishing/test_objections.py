from __future__ import annotations

from pathlib import Path

import pytest
from published import object_to, published_set, run

from divscore.publishing.edition import check_published
from divscore.publishing.objections import EMPTY, OBJECTIONS, carry_over, read_objections


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published_set(tmp_path)


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
        ("99,x,,,,2026-01-31,open", "no example has the id '99'"),
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


def test_carrying_over_changes_nothing_else() -> None:
    head, rest = "\ufeff" + EMPTY.replace("\n", "\r\n"), "b,x,,,,2026-01-31,open"
    kept = ' c ,"two\r\nlines ""quoted""",,,,2026-01-31,open\r\n\r\nshort,row\n'
    found = carry_over(
        f"{head}a,x,,,,2026-01-31,open\r\n{kept}{rest}", {"a": "A", "c": "c", "b": "", "d": "D"}
    )
    assert found.text == f"{head}A,x,,,,2026-01-31,open\r\n{kept}{rest}"
    assert (found.renamed, found.removed) == (1, ("b",))
    for text in ("", "id;text\na;b\n", EMPTY + 'a,"x\n'):
        assert carry_over(text, {"a": "A"}).text == text
