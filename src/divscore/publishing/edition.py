"""Write a control set as a folder that can be made public, and again over an earlier edition of it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from divscore.control.controlfile import TABLE, load_control, plain, write_table
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError
from divscore.files import atomic_folder, sha256
from divscore.jobs.pool import PROJECTION
from divscore.publishing.about import (
    ABOUT,
    NUMBER,
    SUMS,
    About,
    counterparts,
    former_names,
    overall,
    public_ids,
    read_about,
    read_sums,
    sums_text,
    write_about,
)
from divscore.publishing.card import README, readme
from divscore.publishing.croissant import CROISSANT, PREFIX, described, read_description
from divscore.publishing.objections import EMPTY, OBJECTIONS, Carried, carry_over, names_other_than_numbers
from divscore.publishing.publication import (
    Measured,
    NotMeasured,
    Publication,
    measured_from,
    soundness,
    today,
)

__all__ = [
    "CHANGELOG",
    "GENERATED",
    "OURS",
    "Earlier",
    "Published",
    "changes",
    "edition_of",
    "is_published",
    "names_examples",
    "publish",
    "read_earlier",
    "with_entry",
]


# What changed from one edition of a published control set to the next.

CHANGELOG = "CHANGELOG.md"
TITLE = "# Changes\n"
EDITION = re.compile(r"^## Edition ([0-9]{1,9})\b", re.M)
ADDED, REMOVED, MOVED = "Added", "Removed", "Moved to another group"
NAMED = re.compile(rf"^- (?:{ADDED}|{REMOVED}|{MOVED}): [0-9]+ \((.+?)(?: and [0-9]+ more)?\)\.$", re.M)
LISTED = 30


def edition_of(text: str) -> int:
    """The latest edition that a changelog speaks of; 0 if none."""
    return max((int(number) for number in EDITION.findall(text)), default=0)


def names_examples(text: str) -> bool:
    """Whether an entry calls examples by more than numbers."""
    return any(not NUMBER.fullmatch(name) for listed in NAMED.findall(text) for name in listed.split(", "))


def with_entry(text: str, edition: int, day: str, lines: Sequence[str]) -> str:
    """A changelog with one more entry, above the others; what people wrote into it stays."""
    entry = "\n".join([f"## Edition {edition} ({day})", "", *(f"- {line}" for line in lines), ""])
    head, mark, rest = text.partition(TITLE)
    if not mark:
        return f"{TITLE}\n{entry}" + (f"\n{text.lstrip()}" if text.strip() else "")
    return f"{head}{mark}\n{entry}" + (f"\n{rest.lstrip()}" if rest.strip() else "")


def changes(
    new: ControlSet, old: ControlSet | None, facts: Sequence[str] = (), *, ids: str = "keep"
) -> list[str]:
    """Lines about what changed; `facts` are the answers about it that did, `ids` is what examples are called by now."""
    if old is None:
        counts = ", ".join(f"{n} of {plain(name)}" for name, n in new.counts.items())
        return [
            f"First edition: {len(new)} examples, {counts}.",
            f"Digest of the control set: `{new.digest}`.",
        ]
    lines = []
    if old.attribute != new.attribute:
        lines.append(f"Attribute: {plain(old.attribute)} → {plain(new.attribute)}.")
    if old.encoder != new.encoder:
        lines.append(
            f"Encoder: {plain(old.encoder or 'not recorded')} → {plain(new.encoder or 'not recorded')}."
        )
    lines += _examples(new, old, former_names(old, ids))
    if old.counts != new.counts:
        names = dict.fromkeys((*old.groups, *new.groups))
        told = ", ".join(f"{plain(n)} {old.counts.get(n, 0)} → {new.counts.get(n, 0)}" for n in names)
        lines.append(f"Groups: {told}.")
    if facts:
        lines.append(f"Other answers to: {', '.join(facts)}.")
    if old.digest == new.digest:
        lines.append(f"Digest of the control set, unchanged: `{new.digest}`.")
    else:
        lines.append(f"Digest of the control set: `{old.digest}` → `{new.digest}`.")
    return lines


def _examples(new: ControlSet, old: ControlSet, former: Sequence[str]) -> list[str]:
    pairs = counterparts(new, old)
    kept, found = {a for a, _ in pairs}, {b for _, b in pairs}
    group = [(a, b) for a, b in pairs if new.groups[new.labels[a]] != old.groups[old.labels[b]]]
    marked = sum(bool(new.representative[a] != old.representative[b]) for a, b in pairs)
    renamed = sum(new.ids[a] != old.ids[b] for a, b in pairs)
    lines = [
        _told(ADDED, [new.ids[row] for row in range(len(new)) if row not in kept]),
        _told(REMOVED, [former[row] for row in range(len(old)) if row not in found]),
        _told(MOVED, [new.ids[a] for a, _ in group]),
        f"Representatives: {marked} marked or unmarked." if marked else "",
        f"Renamed: {renamed}." if renamed else "",
    ]
    return [line for line in lines if line] or ["The examples are the same."]


def _told(what: str, ids: Sequence[str]) -> str:
    if not ids:
        return ""
    if not all(ids):  # some have no name that may be told
        return f"{what}: {len(ids)}."
    listed = ", ".join(plain(name) for name in ids[:LISTED])
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{what}: {len(ids)} ({listed}{more})."


# Earlier: the edition that lies in a folder already, and what of it the next one takes over.

NOTHING = About()


@dataclass(frozen=True)
class Earlier:
    """What was published before; `measured` holds for the control set with the digest and method `measured_on`."""

    control: ControlSet | None = None
    about: About = NOTHING
    changelog: str = ""
    objections: str = EMPTY
    first_day: str = ""
    edited_about: bool = False
    measured: Measured | None = None
    measured_on: tuple[object, object] = ("", "")

    def figures(self, found: Measured | NotMeasured, control: ControlSet) -> Measured | NotMeasured:
        """What was `found`, or else the figures of this edition if they are of the same control set."""
        if isinstance(found, Measured) or self.measured is None:
            return found
        return self.measured if self.measured_on == (control.digest, control.method) else found

    def answers(self, about: About) -> list[str]:
        """Questions that are answered differently now, as far as can be told."""
        changed = about.changed(self.about)
        return [*changed, f"others in {ABOUT}"] if self.edited_about else changed

    def carried(self, control: ControlSet) -> Carried:
        """The objections, to the examples as they are called now."""
        if self.control is None:
            return Carried(self.objections)
        now = {old: control.ids[new] for new, old in counterparts(control, self.control)}
        names = {name: now.get(row, "") for row, name in enumerate(self.control.ids)}
        return carry_over(self.objections, names)

    def still_named(self, objections: str) -> tuple[str, ...]:
        """Files of the next edition that would call examples by names where it has numbers."""
        found = {CHANGELOG: names_examples(self.changelog), OBJECTIONS: names_other_than_numbers(objections)}
        return tuple(name for name, named in found.items() if named)


def read_earlier(folder: Path) -> Earlier:
    """Read what is left of an edition, if perhaps damaged since."""
    try:
        control = load_control(folder, verify=False)
    except DivscoreError:
        control = None
    sums = read_sums(folder) or {}
    about = folder / ABOUT
    try:
        description = read_description(folder)
        whole = sums.get(CROISSANT) == sha256(folder / CROISSANT)
    except (DivscoreError, OSError):
        description, whole = {}, False
    return Earlier(
        control,
        read_about(about) if about.is_file() else NOTHING,
        _text(folder / CHANGELOG),
        _text(folder / OBJECTIONS, newline="") or EMPTY,
        _day(description.get("datePublished")),
        about.is_file() and sums.get(ABOUT) != sha256(about),
        _measured(description.get(f"{PREFIX}:measured")) if whole else None,
        (description.get(f"{PREFIX}:digest"), description.get(f"{PREFIX}:representativesMethod")),
    )


def _measured(values: object) -> Measured | None:
    try:
        found = measured_from(values)
    except InputError:
        return None
    return found if isinstance(found, Measured) else None


def _day(value: object) -> str:
    """A date such as 2026-01-31, or nothing."""
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else ""
    except ValueError:
        return ""


def _text(file: Path, newline: str | None = None) -> str:
    try:
        with file.open(encoding="utf-8", newline=newline) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not in UTF-8 ({error}); save it as UTF-8, it is kept as it is") from error


GENERATED = (TABLE, README, CROISSANT)  # written anew in every edition; nobody should edit them
OURS = {*GENERATED, ABOUT, CHANGELOG, OBJECTIONS, SUMS, PROJECTION}
NO_OBJECTIONS = Carried(EMPTY)
Measure = Callable[[ControlSet], Measured | NotMeasured]


@dataclass(frozen=True)
class Published:
    """What was written: the edition, and the overall digest.

    `renamed` examples go by another name than in the control set that was given. `carried` says that the figures are
    those of the edition before. `still_named` are files in which examples are called by names, though this edition
    calls them by numbers.
    """

    publication: Publication
    digest: str
    renamed: int
    carried: bool = False
    objections: Carried = NO_OBJECTIONS
    still_named: tuple[str, ...] = ()


def is_published(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a folder that `publish` wrote, if perhaps damaged since."""
    folder = Path(path)
    return (folder / SUMS).is_file() or ((folder / OBJECTIONS).is_file() and (folder / CHANGELOG).is_file())


def publish(
    control: ControlSet,
    folder: str | os.PathLike[str],
    *,
    about: About | None = None,
    measure: Measure = lambda control: NotMeasured("nobody asked for it"),
    ids: str = "names",
    projection: Path | None = None,
    replace: bool = False,
) -> Published:
    """Write `control` with everything about it into `folder`, whole or not at all.

    Parameters
    ----------
    control : ControlSet
        What to publish; its similarity must be the cosine, which every reader has.
    folder : path
        New, empty, or an earlier edition: then its objections stay, its changelog grows, and other files beside it
        stay too.
    about : About, optional
        What people know of it; that of the earlier edition by default.
    measure : callable
        Gives the figures of error and coverage. Where it gives none, those of the earlier edition stay if the control
        set is the same.
    ids : "names", "numbers" or "keep"
        What the examples are called, see `public_ids`.
    projection : path, optional
        The file that shortens vectors of collections as it did the set's.
    replace : bool
        Overwrite files of the earlier edition that were changed by hand.
    """
    target = Path(folder).resolve()
    _check_target(target, replace)
    if not control.similarity.collapses:
        raise InputError(
            f"this control set has the similarity '{control.similarity.name}', which no file can hold; only sets with "
            "cosine similarity can be published"
        )
    earlier = read_earlier(target) if is_published(target) else Earlier()
    public = control.with_ids(public_ids(control, ids, earlier.control))
    figures = measure(public)
    told = earlier.figures(figures, public)
    carried = earlier.carried(public)
    day = today()
    publication = Publication(
        public,
        earlier.about if about is None else about,
        soundness(public),
        told,
        edition_of(earlier.changelog) + 1,
        day,
        earlier.first_day or day,
    )
    changed = changes(public, earlier.control, earlier.answers(publication.about), ids=ids)
    log = with_entry(earlier.changelog, publication.edition, day, changed)
    digest = _write(publication, {CHANGELOG: log, OBJECTIONS: carried.text}, target, projection)
    return Published(
        publication,
        digest,
        renamed=sum(a != b for a, b in zip(control.ids, public.ids, strict=True)),
        carried=told is not figures,
        objections=carried,
        still_named=earlier.still_named(carried.text) if ids == "numbers" else (),
    )


def _write(
    publication: Publication, growing: Mapping[str, str], target: Path, projection: Path | None
) -> str:
    """Write all files, of which those that are `growing` take over what the earlier edition held."""
    control = publication.control
    with atomic_folder(target, OURS) as fresh:
        write_table(control, fresh / TABLE)
        if projection is not None:
            shutil.copyfile(projection, fresh / PROJECTION)
        description = described(publication, fresh / TABLE)
        texts = {
            ABOUT: write_about(publication.about, control),
            CROISSANT: json.dumps(description, indent=2, ensure_ascii=False) + "\n",
            CHANGELOG: growing[CHANGELOG],
        }
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        digest = overall(_digests(fresh), [README])
        (fresh / README).write_text(readme(publication, digest), encoding="utf-8")
        (fresh / SUMS).write_text(sums_text(_digests(fresh)), encoding="utf-8")
        (fresh / OBJECTIONS).write_text(growing[OBJECTIONS], encoding="utf-8", newline="")
    return digest


def _digests(folder: Path) -> dict[str, str]:
    return {file.name: sha256(file) for file in folder.iterdir()}


def _check_target(target: Path, replace: bool) -> None:
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a control set is published as a folder: give another name")
    if Path.cwd().is_relative_to(target):
        raise FileError(f"{target} is the folder you are in; go out of it first, it is replaced as a whole")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not is_published(target):
        raise FileError(
            f"{target} is a folder with other things in it; give a new folder, or one that holds an earlier edition"
        )
    changed = [name for name, digest in (read_sums(target) or {}).items() if _edited(target / name, digest)]
    if changed and not replace:
        raise FileError(
            f"{target}: {' and '.join(changed)} changed after the last edition and would be overwritten; move what "
            f"should stay to {ABOUT} or {CHANGELOG}, and give --replace"
        )


def _edited(file: Path, digest: str) -> bool:
    return file.name in GENERATED and file.is_file() and sha256(file) != digest
