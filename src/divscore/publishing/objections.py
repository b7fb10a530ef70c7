"""Objections of the public to a control set: a table to which anybody can add a line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

OBJECTIONS = "objections.csv"
COLUMNS = ("id", "objection", "proposal", "by", "contact", "date", "status")
STATES = ("open", "accepted", "declined")
WHOLE = "*"  # an objection to the whole set
EMPTY = ",".join(COLUMNS) + "\n"
FORMULA = re.compile(r"[=+\-@\t\r]")
BOM = "\ufeff"  # spreadsheets write it at the start of a file


@dataclass(frozen=True)
class Objection:
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


@dataclass(frozen=True)
class Carried:
    """The table for the next edition, and the examples that its lines are about.

    `renamed` lines have a new id; the examples of the open objections in `removed` are no longer in the set.
    """

    text: str = EMPTY
    ids: tuple[str, ...] = ()
    renamed: int = 0
    removed: tuple[str, ...] = ()


def read_objections(path: Path, ids: Collection[str] | None) -> tuple[list[Objection], list[str]]:
    """The objections and the problems of a table; `ids` are those of the examples, if known."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        return [], [f"{path.name} is missing; restore it with the line {EMPTY.strip()}"]
    except (csv.Error, UnicodeDecodeError) as error:
        return [], [f"{path.name} cannot be read ({error}); expected a comma-separated table in UTF-8"]
    if not rows or tuple(rows[0][1]) != COLUMNS:
        return [], [f"{path.name} has other columns; its first line must be {EMPTY.strip()}"]
    objections, problems = [], []
    for line, row in rows[1:]:
        wrong = []
        if any(row) and len(row) == len(COLUMNS):
            objections.append(Objection(*(value.strip() for value in row)))
            wrong = _problems(objections[-1], row, ids)
        elif any(row):
            wrong = [f"{len(row)} fields, expected {len(COLUMNS)}; quote texts with commas"]
        problems += [f"{path.name}, line {line}: {problem}" for problem in wrong]
    return objections, problems


def _problems(objection: Objection, row: list[str], ids: Collection[str] | None) -> list[str]:
    problems = []
    if not objection.id:
        problems.append(f"no id; give the id of an example, or {WHOLE} for the whole set")
    elif ids is not None and objection.is_open and objection.id not in {WHOLE, *ids}:
        problems.append(f"no example has the id '{objection.id}'")
    if not objection.objection:
        problems.append("no objection; say what is wrong")
    if objection.status not in STATES:
        problems.append(f"status '{objection.status}'; expected {', '.join(STATES)}")
    try:
        date.fromisoformat(objection.date)
    except ValueError:
        problems.append(f"date '{objection.date}'; expected one such as 2026-01-31")
    for name, value in zip(COLUMNS, row, strict=True):
        if FORMULA.match(value) and not (name == "id" and ids is not None and value in ids):
            problems.append(
                f"{name} begins with {value[0]!r}, which spreadsheets run as a formula; put an apostrophe before it"
            )
    return problems


def carry_over(text: str, names: Mapping[str, str]) -> Carried:
    """Take objections into the next edition, in which the examples have other `names`.

    An empty name means that the example was removed. Lines without a new name stay as they are, to the letter, and
    so does a table that cannot be read.
    """
    lines = list(io.StringIO(text.removeprefix(BOM), newline=""))
    rows: list[tuple[str, list[str]]] = []  # each with the text it was read from
    try:
        reader, begin = csv.reader(lines, strict=True), 0
        for row in reader:
            rows.append(("".join(lines[begin : reader.line_num]), row))
            begin = reader.line_num
    except csv.Error:
        return Carried(text)
    if not rows or tuple(rows[0][1]) != COLUMNS:
        return Carried(text)
    kept, ids, renamed, removed = [text[: text.startswith(BOM)] + rows[0][0]], [], 0, []
    for written, row in rows[1:]:
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
