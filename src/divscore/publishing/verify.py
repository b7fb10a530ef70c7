"""Verify a published control set: is it unchanged, do its files agree, who objects?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from divscore.control.controlfile import TABLE, load_control
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError
from divscore.files import PathLike, sha256
from divscore.publishing.about import ABOUT, About, read_about
from divscore.publishing.card import CROISSANT, README, SCHEMA, Description, counts_row
from divscore.publishing.edition import CHANGELOG, FILES, SUMS, edition_of, overall_digest, read_sums
from divscore.publishing.objections import OBJECTIONS, Objection, read_objections
from divscore.publishing.publication import Measured, NotMeasured, group_numbers, measured_from

LISTED = (TABLE, README, CROISSANT, ABOUT, CHANGELOG)


@dataclass(frozen=True)
class Verdict:
    """The result; `control` is None if the examples cannot be read as published, `others` are files without digest."""

    control: ControlSet | None
    edition: int
    digest: str
    files: int
    objections: tuple[Objection, ...]
    others: tuple[str, ...]
    problems: tuple[str, ...]


def stated(path: PathLike) -> tuple[About, Measured | NotMeasured]:
    """What a published folder states that cannot be computed from its examples."""
    folder = Path(path)
    measured: Measured | NotMeasured = NotMeasured(f"{CROISSANT} does not say")
    with suppress(OSError, ValueError):  # also FileError and InputError
        measured = measured_from(Description.read(folder).measured)
    return read_about(folder / ABOUT) if (folder / ABOUT).is_file() else About(), measured


def check_published(path: PathLike) -> Verdict:
    """Compare every file with its digest, and the files with each other."""
    folder = Path(path)
    sums = read_sums(folder)
    digests = {name: sha256(folder / name) for name in sums or LISTED if (folder / name).is_file()}
    changed: dict[str, str] = {}
    if sums is None:
        changed[SUMS] = (
            f"{SUMS} is missing or damaged, so edits cannot be detected; download the folder again"
        )
    else:
        changed |= {name: f"{name} is not listed in {SUMS}" for name in LISTED if name not in sums}
        changed |= {name: f"{name} is missing" for name in sums if name not in digests}
        edited = [name for name in sums if name in digests and digests[name] != sums[name]]
        changed |= {name: f"{name} was changed after it was published" for name in edited}
    problems = list(changed.values())
    control = None
    try:
        control = load_control(folder)
    except (DivscoreError, KeyError, ValueError) as error:
        problems.append(f"the examples cannot be used: {error}")
    groups = {} if control is None else group_numbers(control)

    described: int | None = None
    if CROISSANT in digests:
        try:
            description = Description.read(folder)
        except FileError as error:
            problems.append(str(error))
        else:
            described = description.edition
            stored = [file.get("sha256") for file in description.distribution]
            if TABLE in digests and TABLE not in changed and digests[TABLE] not in stored:
                problems.append(f"{CROISSANT} states another digest of {TABLE}")
            if description.schema != SCHEMA:
                problems.append(f"{CROISSANT} is not in the format {SCHEMA}")
            if control is not None and description.groups != groups:
                problems.append(f"{CROISSANT} states other groups or counts than {TABLE}")
            if control is not None and description.digest != control.digest:
                problems.append(f"{CROISSANT} states another digest of the control set")

    digest = overall_digest(digests)
    if README in digests:
        text = (folder / README).read_text(encoding="utf-8", errors="replace")
        rows = [counts_row(name, **numbers) for name, numbers in groups.items()]
        problems += [f"{README} should have the line {row}" for row in rows if row not in text.splitlines()]
        if control is not None and f"`{control.digest}`" not in text:
            problems.append(f"{README} states another digest of the control set")
        if not changed and f"`{digest}`" not in text:
            problems.append(
                f"{README} states another digest of the edition than its files have ({digest[:16]}…)"
            )

    edition = 0
    if CHANGELOG in digests:
        edition = edition_of((folder / CHANGELOG).read_text(encoding="utf-8", errors="replace"))
        if described not in (None, edition):
            problems.append(f"the last edition in {CHANGELOG} is {edition}, in {CROISSANT} {described}")
    objections, wrong = read_objections(folder / OBJECTIONS, None if control is None else control.ids)
    others = sorted(e.name for e in folder.iterdir() if e.name not in FILES and not e.name.startswith("."))
    return Verdict(
        control, edition, digest, len(digests), tuple(objections), tuple(others), (*problems, *wrong)
    )
