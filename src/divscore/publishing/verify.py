"""Verify a published control set: is it what was published, do its files agree, who objects?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from divscore.control.controlfile import TABLE, load_control
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError
from divscore.files import sha256
from divscore.publishing.about import ABOUT, SUMS, About, overall, read_about, read_sums
from divscore.publishing.card import README, counts_row
from divscore.publishing.croissant import CROISSANT, PREFIX, SCHEMA, read_description
from divscore.publishing.edition import CHANGELOG, OURS, edition_of
from divscore.publishing.objections import OBJECTIONS, Objection, read_objections
from divscore.publishing.publication import Measured, NotMeasured, group_numbers, measured_from

__all__ = ["Verdict", "check_published", "stated"]

LISTED = (TABLE, README, CROISSANT, ABOUT, CHANGELOG)


@dataclass(frozen=True)
class Verdict:
    """What was found; `control` is None where the examples cannot be read as published."""

    control: ControlSet | None
    edition: int
    digest: str
    files: int
    objections: tuple[Objection, ...]
    beside: tuple[str, ...]
    problems: tuple[str, ...]


def check_published(path: str | os.PathLike[str]) -> Verdict:
    """Compare every file with its digest, and what the files say of each other."""
    folder = Path(path)
    sums = read_sums(folder)
    edits = _edits(folder, sums)
    digests = {name: sha256(folder / name) for name in sums or LISTED if (folder / name).is_file()}
    problems = list(edits.values())
    control = None
    try:
        control = load_control(folder)
    except (DivscoreError, KeyError, ValueError) as error:
        problems.append(f"the examples cannot be used: {error}")
    digest = overall(digests, [README])
    if CROISSANT in digests:
        problems += _croissant_problems(folder, control, None if TABLE in edits else digests.get(TABLE))
    if README in digests:
        problems += _readme_problems(folder, control, None if edits else digest)
    edition, disagreement = _edition(folder)
    objections, wrong = read_objections(folder / OBJECTIONS, None if control is None else control.ids)
    return Verdict(
        control,
        edition,
        digest,
        len(digests),
        tuple(objections),
        tuple(sorted(e.name for e in folder.iterdir() if e.name not in OURS and not e.name.startswith("."))),
        (*problems, *disagreement, *wrong),
    )


def stated(path: str | os.PathLike[str]) -> tuple[About, Measured | NotMeasured]:
    """What a published folder says that cannot be computed from its examples."""
    folder = Path(path)
    try:
        measured = measured_from(read_description(folder).get(f"{PREFIX}:measured"))
    except ValueError:
        measured = NotMeasured(f"{CROISSANT} does not say")
    return read_about(folder / ABOUT) if (folder / ABOUT).is_file() else About(), measured


def _edits(folder: Path, sums: dict[str, str] | None) -> dict[str, str]:
    """What became of each file, where it is not as it was published."""
    if sums is None:
        return {SUMS: f"{SUMS} is missing or damaged: edits cannot be found; fetch the folder again"}
    found = {name: f"{name} is not listed in {SUMS}" for name in LISTED if name not in sums}
    for name, digest in sums.items():
        if not (folder / name).is_file():
            found[name] = f"{name} is missing"
        elif sha256(folder / name) != digest:
            found[name] = f"{name} was changed after it was published"
    return found


def _croissant_problems(folder: Path, control: ControlSet | None, table: str | None) -> list[str]:
    """`table` is the digest that the table should have, None where that was changed."""
    try:
        found = read_description(folder)
    except FileError as error:
        return [str(error)]
    wrong = []
    files = found.get("distribution")
    sums = [f.get("sha256") for f in files if isinstance(f, dict)] if isinstance(files, list) else []
    if table is not None and table not in sums:
        wrong.append(f"{CROISSANT} states another digest of {TABLE}")
    if found.get(f"{PREFIX}:schema") != SCHEMA:
        wrong.append(f"{CROISSANT} is not in the form {SCHEMA}")
    if control is not None:
        if found.get(f"{PREFIX}:groups") != group_numbers(control):
            wrong.append(f"{CROISSANT} states other groups or counts than {TABLE} has")
        if found.get(f"{PREFIX}:digest") != control.digest:
            wrong.append(f"{CROISSANT} states another digest of the control set")
    return wrong


def _readme_problems(folder: Path, control: ControlSet | None, digest: str | None) -> list[str]:
    """`digest` is None where a file was changed, so that a digest over it must be another."""
    try:
        lines = (folder / README).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        return [f"{README} cannot be read ({error})"]
    wrong = []
    if control is not None:
        rows = [counts_row(name, **numbers) for name, numbers in group_numbers(control).items()]
        wrong += [
            f"{README} lacks the line {row}, which {TABLE} asks for" for row in rows if row not in lines
        ]
        if not any(f"`{control.digest}`" in line for line in lines):
            wrong.append(f"{README} states another digest of the control set")
    if digest is not None and not any(f"`{digest}`" in line for line in lines):
        wrong.append(f"{README} states another digest of the edition than its files have ({digest[:16]}…)")
    return wrong


def _edition(folder: Path) -> tuple[int, list[str]]:
    """The edition that changelog and description agree on."""
    try:
        logged = edition_of((folder / CHANGELOG).read_text(encoding="utf-8"))
        described = read_description(folder).get(f"{PREFIX}:edition")
    except (OSError, ValueError):
        return 0, []  # said already
    known = type(described) is int and 0 < described < 10**9
    if not known or logged != described:
        told = f"is of edition {described}" if known else "does not say of which it is"
        return logged, [f"{CHANGELOG} ends with edition {logged}, {CROISSANT} {told}"]
    return logged, []
