"""Large text files are divided where a record ends: piece by piece the same rows are read as from end to end."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from divscore import ControlSet
from divscore.errors import FileError
from divscore.jobs.sketching import sketch_source
from divscore.sources import cuts, open_table
from divscore.sources.cuts import BOM, mark_lines, mark_table, much_text, pieces_of, warn_of_dividing
from divscore.sources.places import Location
from divscore.sources.recognise import open_file
from divscore.sources.table import Piece, Request, Table

ROWS = Request(vectors=False)
# Whatever means something to a reader of tables, and some characters that mean nothing.
SOUP = st.lists(
    st.sampled_from(
        ["a", "é", " ", ",", ";", "\t", '"', '""', ',"', '",', '"\n', "\n", "\r\n", "\r", "\ufeff"]
    )
    | st.just("a,b\n"),
    max_size=60,
).map("".join)
CELLS = st.text(st.sampled_from('ab ,;\t"\n\ré'), max_size=6)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=30)


def opened(path: str, piece: Piece | None = None) -> Table:
    columns = tuple(open_file(Location(path, path), ROWS).columns)
    return open_file(Location(path, path), replace(ROWS, extra=columns, piece=piece))


def rows_of(source: Table) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for block in source:
        found += zip(block.numbers, *block.values.values(), strict=True)
    return found


def check_pieces(name: str, content: bytes, rows: int | None, window: int) -> int:
    """Compare pieces with the whole; returns how many there were."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "PIECE_BYTES", window)
        path = os.path.join(folder, name)
        Path(path).write_bytes(content)
        try:
            whole = opened(path)
        except FileError:  # no rows, or no usable header
            assume(False)
        wanted = rows_of(whole)
        pieces = whole.pieces(rows)
        if not pieces:
            return 0
        assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
        assert pieces[-1].stop == len(content)
        parts = [opened(path, piece) for piece in pieces]
        read = [rows_of(part) for part in parts]
        assert [row for some in read for row in some] == wanted
        assert sorted(p for part in parts for p in part.problems) == sorted(whole.problems)
        counts = [len(some) + part.unreadable for some, part in zip(read, parts, strict=True)]
        assert counts == [piece.rows for piece in pieces]
        assert min(counts) > 0
        assert [piece.first for piece in pieces] == [sum(counts[:at]) for at in range(len(counts))]
        if rows is not None and b"\r" not in content.replace(b"\r\n", b""):
            assert max(counts) <= rows
        return len(pieces)


WINDOWS = st.sampled_from([7, 20, 50, 1 << 20])
LIMITS = st.none() | st.integers(1, 7)


@given(
    st.sampled_from(["x,y\n", "x;y\r\n", '"x","y"\n', '\n\r\n"x\n",y\n', "x\n"]),
    SOUP,
    st.booleans(),
    LIMITS,
    WINDOWS,
)
@example("x,y\n", 'a,b"c\na,"b\nc"\na,""\n"a"b"c,d\n"a""",b\n', False, 1, 50)
@example("x,y\n", 'a,b\n\ufeffa,b\n\ufeff"a,b\n', False, 1, 50)
@example('"x",y\n', "a,b\na,b\n", True, 1, 50)
@example("x,y\n", 'a,b"c\na,"b""\nc"\na,b\n', False, 1, 50)
@example("x,y\n", 'a,b\na,b\n"a,b\n\na,', False, 1, 50)
@example("x,y\n", 'a,5" b\n"a,","b\n"\n"a\n","\n,"\na,""b""\n', False, 1, 50)
def test_any_table_is_read_by_pieces_as_from_end_to_end(
    header: str, soup: str, mark: bool, rows: int | None, window: int
) -> None:
    check_pieces("a.csv", (BOM if mark else b"") + (header + soup).encode(), rows, window)


def ends_by_the_byte(text: bytes) -> list[int]:
    """Where rows end, by the rules for quotes as they are said: one byte after another."""
    ends, quoted, starting, at = [], False, True, 0
    while at < len(text):
        char = text[at : at + 1]
        if quoted and text[at : at + 2] == b'""':
            at += 1
        elif quoted:
            quoted = char != b'"'
        elif char == b'"' and starting:
            quoted = True
        elif char == b"\n":
            ends.append(at + 1)
        starting = not quoted and char in b",\n\r"
        at += 1
    return ends


@settings(max_examples=200)
@given(SOUP)
@example('a,5" b\n"a","b"\n"a,","b\n"\n')
@example('""\n"""\n"""\n""""\na""\n,""a"\n')
@example('"a"b"\n"a""\n"\n","\n",\n"\n')
def test_quotes_mean_what_readers_take_them_for(soup: str) -> None:
    text = soup.encode()
    assert mark_table(text, False, False, ",").ends.tolist() == ends_by_the_byte(text)


@given(TABLES, st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n"]), st.booleans(), LIMITS, WINDOWS)
def test_tables_as_programs_write_them(
    table: list[list[str]], delimiter: str, end: str, every: bool, rows: int | None, window: int
) -> None:
    quoting = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(
        [["x", "y"], *table]
    )
    name = "a.tsv" if delimiter == "\t" else "a.csv"
    count = check_pieces(name, stream.getvalue().encode(), rows, window)
    if rows is not None and window > 1 << 10 and (every or end == "\r\n"):
        assert count == -(-len(table) // rows)


LINES = st.lists(
    st.sampled_from(
        ["", " ", "\t\r", '{"text": "a"}', ' {"text": "é\\n"}', "{oops", "[1]", "\x0c", "\ufeff"]
    ),
    max_size=30,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(), LIMITS, WINDOWS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_lines_are_read_by_pieces_as_from_end_to_end(
    name: str, lines: list[str], end: str, closed: bool, mark: bool, rows: int | None, window: int
) -> None:
    content = end.join(lines).encode() + (end.encode() if closed else b"")
    if name == "a.txt":
        content = content.replace(b"{oops", b"\xff")
    check_pieces(name, (BOM if mark else b"") + content, rows, window)


def test_what_is_not_divided(tmp_path: Path) -> None:
    """A file as large as one piece, one without a place to divide it, and what has to be fetched or was handed in."""
    source = tmp_path / "a.csv"
    source.write_text("x,y\n" + "a,b\n" * 3)
    assert opened(str(source)).pieces() == []
    assert len(opened(str(source)).pieces(3)) == 1
    assert len(opened(str(source)).pieces(2)) == 2
    assert open_file(Location("-", str(source)), ROWS).pieces(2) == []
    assert open_file(Location(f"file://{source}", f"file://{source}"), ROWS).pieces(2) == []
    source.write_text("x,y\r" + "a,b\r" * 3)
    assert len(opened(str(source)).pieces(2)) == 1


@pytest.mark.parametrize("rows", [None, 2])
def test_what_is_not_here_is_not_opened(tmp_path: Path, rows: int | None) -> None:
    """Opening would fetch it whole; here, where there is nothing to fetch, it would fail."""
    absent = f"file://{tmp_path}/absent.txt"
    assert pieces_of(Location(absent, absent), mark_lines, rows) == []


def test_a_record_larger_than_a_piece_is_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.csv"
    source.write_text("x,y\n" + "a,b\n" * 9 + 'a,"' + "b\n" * 40 + '"\n' + "a,b\n" * 9)
    monkeypatch.setattr(cuts, "PIECE_BYTES", 50)
    assert opened(str(source)).pieces() == []
    monkeypatch.setattr(cuts, "PIECE_BYTES", 100)
    assert [piece.rows for piece in opened(str(source)).pieces()] == [9, 4, 6]


def test_messages_name_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{at},{at + 1.5},n{at}" for at in range(60)]
    lines[7], lines[20], lines[33], lines[34], lines[50] = "7", "oops,1,n", "0,0,n", "1,2,3,4", "0,0,n"
    lines[10:10] = ["", ""]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,name", *lines, ""]))
    control = ControlSet(np.eye(2).repeat(10, axis=0), ["a"] * 10 + ["b"] * 10, attribute="letter")
    whole = sketch_source(open_table(tmp_path / "a.csv"), control, verbose=True)
    monkeypatch.setattr(cuts, "PIECE_BYTES", 100)
    monkeypatch.setattr(cuts, "WORTH_PARSING", 100)
    monkeypatch.setattr(cuts, "SLOW_TO_DIVIDE", 100)
    source = open_table(tmp_path / "a.csv")
    cut = sketch_source(source, control, verbose=True)
    assert (whole.partitions, cut.partitions) == (1, len(source.pieces()))
    assert cut.partitions > 5
    assert (cut.rows, cut.unreadable) == (whole.rows, whole.unreadable) == (57, 3)
    assert sorted(cut.problems) == sorted(whole.problems)
    told = sorted(int(problem.split(", line ")[1].split(":")[0]) for problem in cut.problems)
    assert told == [9, 24, 37, 38, 54]  # with the header and two blank lines
    # One large file is parsed by processes like several, and that it is looked through is said.
    assert much_text(source)
    said: list[str] = []
    warn_of_dividing("a.csv", [source.location], said.append)
    assert said == ["a.csv: scanning for row boundaries in 0.0 GB of text"]
    monkeypatch.setattr(cuts, "WORTH_PARSING", 10_000)
    assert not much_text(source)
