"""Objections of the public to a control set: a table that anybody can add a line to."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from pathlib import Path

__all__ = ["COLUMNS", "EMPTY", "OBJECTIONS", "WHOLE", "Objection", "read_objections"]

OBJECTIONS = "objections.csv"
COLUMNS = ("id", "objection", "proposal", "by", "contact", "date", "status")
STATES = ("open", "accepted", "declined")
WHOLE = "*"  # an objection to the set as a whole
EMPTY = ",".join(COLUMNS) + "\n"
FORMULA = re.compile(r"[=+\-@\t\r]")


@dataclass(frozen=True)
class Objection:
    """One line: to which example, what is wrong, what to do, by whom, since when, and what became of it."""

    line: int
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


def read_objections(path: Path, ids: Collection[str] | None) -> tuple[list[Objection], list[str]]:
    """Read the table and say what is wrong in it; `ids` are those of the examples, where they are known."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        return [], [f"{path.name} is missing; put it back with the line {EMPTY.strip()}"]
    except (csv.Error, UnicodeDecodeError) as error:
        return [], [f"{path.name} cannot be read ({error}); expected a comma-separated table in UTF-8"]
    if not rows or tuple(rows[0][1]) != COLUMNS:
        return [], [f"{path.name} begins with other columns; its first line must be {EMPTY.strip()}"]
    found, wrong = [], []
    for line, row in rows[1:]:
        if not any(row):
            continue
        where = f"{path.name}, line {line}"
        if len(row) != len(COLUMNS):
            wrong.append(
                f"{where}: {len(row)} fields, expected {len(COLUMNS)}; put texts with commas in quotes"
            )
            continue
        objection = Objection(line, *(value.strip() for value in row))
        found.append(objection)
        wrong += [f"{where}: {problem}" for problem in _problems(objection, row, ids)]
    return found, wrong


def _problems(objection: Objection, row: list[str], ids: Collection[str] | None) -> list[str]:
    found = []
    if not objection.id:
        found.append(f"no id; give that of an example, or {WHOLE} for the whole set")
    elif ids is not None and objection.is_open and objection.id not in {WHOLE, *ids}:
        found.append(f"no example is called '{objection.id}'")
    if not objection.objection:
        found.append("no objection; say what is wrong")
    if objection.status not in STATES:
        found.append(f"status '{objection.status}'; expected {', '.join(STATES)}")
    try:
        date.fromisoformat(objection.date)
    except ValueError:
        found.append(f"date '{objection.date}'; expected one such as 2026-01-31")
    for name, value in zip(COLUMNS, row, strict=True):
        if FORMULA.match(value) and not (name == "id" and ids is not None and value in ids):
            found.append(
                f"{name} begins with {value[0]!r}, which spreadsheets run as a formula; put an apostrophe before it"
            )
    return found
