"""Objections of the public to a control set: a table to which anybody can add a line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

OBJECTIONS = "objections.csv"
STATES = ("open", "accepted", "declined")
WHOLE = "*"  # an objection to the whole set
FORMULA = re.compile(r"[=+\-@\t\r]")
BOM = "\ufeff"  # spreadsheets write it at the start of a file


class Objection(NamedTuple):
    """One line of the table."""

    id: str
    objection: str
    proposal: str
    by: str
    contact: str
    date: str
    status: str

    @property
    def is_open(self) -> bool:
        """Whether nobody has decided yet."""
        return self.status == "open"


COLUMNS = Objection._fields
EMPTY = ",".join(COLUMNS) + "\n"


@dataclass(frozen=True)
class Carried:
    """The table for the next edition, and the examples that its lines are about.

    `renamed` lines have a new id; the examples of the open objections in `removed` are no longer in the set.
    """

    text: str = EMPTY
    ids: tuple[str, ...] = ()
    renamed: int = 0
    removed: tuple[str, ...] = ()


def _rows(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Rows of a table, each with the number of its last line and the text that it was read from."""
    lines = list(io.StringIO(text.removeprefix(BOM), newline=""))
    reader, begin = csv.reader(lines, strict=True), 0
    for row in reader:
        yield reader.line_num, "".join(lines[begin : reader.line_num]), row
        begin = reader.line_num


def read_objections(path: Path, ids: Collection[str] | None) -> tuple[list[Objection], list[str]]:
    """The objections and the problems of a table; `ids` are those of the examples, if known."""
    try:
        rows = list(_rows(path.read_bytes().decode("utf-8")))
    except FileNotFoundError:
        return [], [f"{path.name} is missing; restore it with the line {EMPTY.strip()}"]
    except (csv.Error, UnicodeDecodeError) as error:
        return [], [f"{path.name} cannot be read ({error}); expected a comma-separated table in UTF-8"]
    if not rows or tuple(rows[0][2]) != COLUMNS:
        return [], [f"{path.name} has other columns; its first line must be {EMPTY.strip()}"]
    objections: list[Objection] = []
    problems: list[str] = []
    for line, _, row in rows[1:]:
        where = f"{path.name}, line {line}"
        if any(row) and len(row) != len(COLUMNS):
            problems.append(f"{where}: {len(row)} fields, expected {len(COLUMNS)}; quote texts with commas")
        if not any(row) or len(row) != len(COLUMNS):
            continue
        each = Objection(*(value.strip() for value in row))
        objections.append(each)
        if not each.id:
            problems.append(f"{where}: no id; give the id of an example, or {WHOLE} for the whole set")
        elif ids is not None and each.is_open and each.id not in {WHOLE, *ids}:
            problems.append(f"{where}: no example has the id '{each.id}'")
        if not each.objection:
            problems.append(f"{where}: no objection; say what is wrong")
        if each.status not in STATES:
            problems.append(f"{where}: status '{each.status}'; expected {', '.join(STATES)}")
        try:
            date.fromisoformat(each.date)
        except ValueError:
            problems.append(f"{where}: date '{each.date}'; expected one such as 2026-01-31")
        problems += [
            f"{where}: {name} begins with {value[0]!r}, which spreadsheets run as a formula; put an apostrophe "
            "before it"
            for name, value in zip(COLUMNS, row, strict=True)
            if FORMULA.match(value) and not (name == "id" and ids is not None and value in ids)
        ]
    return objections, problems


def carry_over(text: str, names: Mapping[str, str]) -> Carried:
    """Take objections into the next edition, in which the examples have other `names`.

    An empty name means that the example was removed. Lines without a new name stay as they are, to the letter, and
    so does a table that cannot be read.
    """
    try:
        rows = list(_rows(text))
    except csv.Error:
        return Carried(text)
    if not rows or tuple(rows[0][2]) != COLUMNS:
        return Carried(text)
    kept, ids, renamed, removed = [text[: text.startswith(BOM)] + rows[0][1]], [], 0, []
    for _, written, row in rows[1:]:
        old = row[0].strip() if row else ""
        new = old if old == WHOLE else names.get(old, old)
        if old and not new and row[-1].strip() == "open":
            removed.append(old)
        if new and new != old:
            renamed += 1
            stream = io.StringIO(newline="")
            end = written[len(written.rstrip("\r\n")) :]
            csv.writer(stream, lineterminator=end).writerow([new, *row[1:]])
            written = stream.getvalue()
        kept.append(written)
        ids.append(new or old)
    about = tuple(name for name in ids if name not in ("", WHOLE))
    return Carried("".join(kept), about, renamed, tuple(removed))
