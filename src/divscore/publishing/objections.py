"""Objections of the public to a control set: a table that anybody can add a line to."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from divscore.publishing.about import NUMBER

__all__ = [
    "COLUMNS",
    "EMPTY",
    "OBJECTIONS",
    "WHOLE",
    "Carried",
    "Objection",
    "carry_over",
    "names_other_than_numbers",
    "read_objections",
]

OBJECTIONS = "objections.csv"
COLUMNS = ("id", "objection", "proposal", "by", "contact", "date", "status")
STATES = ("open", "accepted", "declined")
WHOLE = "*"  # an objection to the set as a whole
EMPTY = ",".join(COLUMNS) + "\n"
FORMULA = re.compile(r"[=+\-@\t\r]")
MARK = "\ufeff"  # with which spreadsheets begin a file


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


@dataclass(frozen=True)
class Carried:
    """The table for the next edition: how many lines name an example anew, which open ones have lost theirs."""

    text: str
    renamed: int = 0
    lost: tuple[str, ...] = ()


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


def carry_over(text: str, names: Mapping[str, str]) -> Carried:
    """Take objections into the next edition, where the examples may be called by other `names`.

    An empty name is that of an example which is no longer there. Lines without a new name stay as they are, to the
    letter, and so does a whole table that cannot be read.
    """
    records = _records(text)
    if not records:
        return Carried(text)
    kept, renamed, lost = [records[0][0]], 0, []
    for written, row in records[1:]:
        given = row[0].strip() if row else ""
        name = names.get(given, given) if given != WHOLE else given
        if given and not name and row[-1].strip() == "open":
            lost.append(given)
        changed = bool(name) and name != given
        renamed += changed
        kept.append(_line([name, *row[1:]], written) if changed else written)
    return Carried("".join(kept), renamed, tuple(lost))


def names_other_than_numbers(text: str) -> bool:
    """Whether an objection is to an example that is called by more than a number."""
    ids = [row[0].strip() for _, row in _records(text)[1:] if row]
    return any(name and name != WHOLE and not NUMBER.fullmatch(name) for name in ids)


def _records(text: str) -> list[tuple[str, list[str]]]:
    """Rows, the first of them the heading, each with the text that it was read from; none where it is no table."""
    mark = text[: text.startswith(MARK)]
    lines = list(io.StringIO(text.removeprefix(MARK), newline=""))
    found: list[tuple[str, list[str]]] = []
    begin = 0
    try:
        reader = csv.reader(lines, strict=True)
        for row in reader:
            found.append(("".join(lines[begin : reader.line_num]), row))
            begin = reader.line_num
    except csv.Error:
        return []
    if not found or tuple(found[0][1]) != COLUMNS:
        return []
    return [(mark + found[0][0], found[0][1]), *found[1:]]


def _line(row: list[str], written: str) -> str:
    """A row as text that ends as what was `written` before."""
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator=written[len(written.rstrip("\r\n")) :]).writerow(row)
    return stream.getvalue()


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
