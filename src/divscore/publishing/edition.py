"""A control set as a folder that can be made public: written, written again over an earlier edition, and checked."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path

from divscore.control.controlfile import TABLE, load_control, write_table
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError
from divscore.files import PathLike, atomic_folder, sha256
from divscore.jobs.pool import PROJECTION
from divscore.publishing.about import ABOUT, About, read_about, write_about
from divscore.publishing.card import CROISSANT, README, SCHEMA, Description, counts_row, described, readme
from divscore.publishing.objections import EMPTY, OBJECTIONS, Carried, Objection, carry_over, read_objections
from divscore.publishing.publication import (
    Measured,
    NotMeasured,
    Publication,
    group_numbers,
    measured_from,
    soundness,
)
from divscore.text import escape_markdown

CHANGELOG = "CHANGELOG.md"
SUMS = "SHA256SUMS"  # in the format of `sha256sum --check`
GENERATED = (TABLE, README, CROISSANT)  # written again in every edition; nobody should edit them
DIGESTED = (*GENERATED, ABOUT, CHANGELOG)  # always in SUMS
FILES = {*DIGESTED, OBJECTIONS, SUMS, PROJECTION}
Measure = Callable[[ControlSet], Measured | NotMeasured]


@dataclass(frozen=True)
class Published:
    """What was written: the edition, and the overall digest.

    `renamed` examples have another id than in the given control set. `carried` says that the figures come from the
    edition before. `still_named` are files with names of examples, although this edition has numbers.
    """

    publication: Publication
    digest: str
    renamed: int
    carried: bool
    objections: Carried
    still_named: tuple[str, ...]


def is_published(path: PathLike) -> bool:
    """Whether `path` is a folder that `publish` wrote, even if it was damaged since."""
    folder = Path(path)
    return (folder / SUMS).is_file() or ((folder / OBJECTIONS).is_file() and (folder / CHANGELOG).is_file())


def publish(
    control: ControlSet,
    folder: PathLike,
    *,
    about: About | None = None,
    measure: Measure = lambda control: NotMeasured("it was not requested"),
    ids: str = "names",
    projection: Path | None = None,
    replace: bool = False,
) -> Published:
    """Write `control` with all its descriptions into `folder`, completely or not at all.

    The folder is new, empty, or an earlier edition: then its objections and other files stay, its changelog grows, and
    `about` is by default that of the earlier edition. `measure` returns the figures of error and coverage; if it has
    none, those of the earlier edition stay if the control set is the same. `ids` chooses the public ids of the examples
    (see `public_ids`). `projection` is the file that shortens vectors of collections in the same way as the set's.
    `replace` overwrites files of the earlier edition that were edited by hand.
    """
    target = Path(folder).resolve()
    _check_target(target, replace)
    if not control.similarity.collapses:
        raise InputError(
            f"this control set has the similarity '{control.similarity.name}', which no file can store; only sets with "
            "cosine similarity can be published"
        )
    earlier = Earlier.read(target) if is_published(target) else Earlier()
    # Where the owner keeps the examples, or their texts, is nobody else's business.
    public = control.with_ids(public_ids(control, ids, earlier.control)).with_origins(None)
    about = earlier.about if about is None else about
    measured = measure(public)
    if isinstance(measured, NotMeasured) and earlier.measured_on == (public.digest, public.method):
        measured = earlier.measured or measured
    names: dict[str, str] = {}  # of the examples in the objections, now; empty if they were removed
    if earlier.control is not None:
        names = dict.fromkeys(earlier.control.ids, "")
        names |= {earlier.control.ids[b]: public.ids[a] for a, b in _counterparts(public, earlier.control)}
    objections = carry_over(earlier.objections, names)
    edition, day = edition_of(earlier.changelog) + 1, datetime.now(UTC).date().isoformat()
    publication = Publication(
        public, about, soundness(public), measured, edition, day, earlier.first_day or day
    )
    answers = about.changed(earlier.about) + ([f"others in {ABOUT}"] if earlier.edited_about else [])
    entry = changes(public, earlier.control, answers, ids=ids)
    changelog = with_entry(earlier.changelog, edition, day, entry)

    with atomic_folder(target, FILES) as fresh:
        write_table(public, fresh / TABLE)
        if projection is not None:
            shutil.copyfile(projection, fresh / PROJECTION)
        description = json.dumps(described(publication, fresh / TABLE), indent=2, ensure_ascii=False)
        texts = {ABOUT: write_about(about, public), CROISSANT: f"{description}\n", CHANGELOG: changelog}
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        digest = overall_digest({file.name: sha256(file) for file in fresh.iterdir()})
        (fresh / README).write_text(readme(publication, digest), encoding="utf-8")
        sums = _sums({file.name: sha256(file) for file in fresh.iterdir()})
        (fresh / SUMS).write_text(sums, encoding="utf-8")
        (fresh / OBJECTIONS).write_text(objections.text, encoding="utf-8", newline="")

    listed = [name for entry in NAMED.findall(earlier.changelog) for name in entry.split(", ")]
    named = {CHANGELOG: listed, OBJECTIONS: objections.ids} if ids == "numbers" else {}
    return Published(
        publication,
        digest,
        renamed=sum(a != b for a, b in zip(control.ids, public.ids, strict=True)),
        carried=measured is earlier.measured,
        objections=objections,
        still_named=tuple(file for file, names in named.items() if not all(map(NUMBER.fullmatch, names))),
    )


def _check_target(target: Path, replace: bool) -> None:
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a control set is published as a folder: give another name")
    if Path.cwd().is_relative_to(target):
        raise FileError(f"{target} is the current folder, which would be replaced; leave it first")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not is_published(target):
        raise FileError(f"{target} has other files; give a new folder, or one with an earlier edition")
    sums = {name: digest for name, digest in (read_sums(target) or {}).items() if (target / name).is_file()}
    edited = [name for name in GENERATED if name in sums and sha256(target / name) != sums[name]]
    if edited and not replace:
        raise FileError(
            f"{target}: {' and '.join(edited)} changed after the last edition and would be overwritten; move what you "
            f"want to keep to {ABOUT} or {CHANGELOG}, then pass --replace"
        )


# The edition that is already in a folder.


@dataclass(frozen=True)
class Earlier:
    """What was published before; `measured` is of the control set with the digest and method `measured_on`."""

    control: ControlSet | None = None
    about: About = About()  # noqa: RUF009 - frozen
    changelog: str = ""
    objections: str = EMPTY
    first_day: str = ""
    edited_about: bool = False
    measured: Measured | None = None
    measured_on: tuple[str, str] = ("", "")

    @classmethod
    def read(cls, folder: Path) -> Earlier:
        """Read what can still be read of an edition."""
        control, description, measured = None, Description(), None
        with suppress(DivscoreError):
            control = load_control(folder, verify=False)
        sums, about = read_sums(folder) or {}, folder / ABOUT
        try:
            description = Description.read(folder)
            date.fromisoformat(description.first_day)
            if sums.get(CROISSANT) == sha256(folder / CROISSANT):
                measured = measured_from(description.measured)
        except (OSError, ValueError):  # also FileError and InputError
            description = Description()
        texts = {CHANGELOG: "", OBJECTIONS: EMPTY}  # with their line ends
        for file in texts:
            try:
                texts[file] = (folder / file).read_bytes().decode("utf-8") or texts[file]
            except FileNotFoundError:
                continue
            except UnicodeDecodeError as error:
                raise FileError(f"{folder / file} is not in UTF-8 ({error}); save it as UTF-8") from error
        return cls(
            control,
            read_about(about) if about.is_file() else About(),
            texts[CHANGELOG].replace("\r\n", "\n"),
            texts[OBJECTIONS],
            description.first_day,
            about.is_file() and sums.get(ABOUT) != sha256(about),
            measured if isinstance(measured, Measured) else None,
            (description.digest, description.method),
        )


# Public ids of examples: no folders of somebody's machine, and the same id in every edition.

CHOICES = ("names", "numbers", "keep")
NUMBER = re.compile(r"example-([0-9]{1,9})")
SENTENCE = 6  # words; names of files and of people have fewer


def public_ids(control: ControlSet, choice: str, earlier: ControlSet | None = None) -> list[str]:
    """Ids for publishing: names without folders, numbers such as "example-0001", or the owner's ids ("keep").

    Examples that have a number in the `earlier` edition keep it.
    """
    if choice == "keep":
        return list(control.ids)
    if choice == "numbers":
        known = zip(_fingerprints(earlier), earlier.ids, strict=True) if earlier else ()
        numbered = {mark: name for mark, name in known if NUMBER.fullmatch(name)}
        fresh = count(1 + max((int(name.split("-")[1]) for name in numbered.values()), default=0))
        return [numbered.get(mark) or f"example-{next(fresh):04}" for mark in _fingerprints(control)]
    names = _without_folders(control)
    # The same name in several folders: the group distinguishes them, and it is public anyway.
    twice = Counter(names)
    groups = [control.groups[label] for label in control.labels]
    names = [f"{g}/{n}" if twice[n] > 1 else n for n, g in zip(names, groups, strict=True)]
    twice, taken = Counter(names), set(names)
    for row, name in enumerate(names):
        if twice[name] > 1 or not name:
            name = f"example-{row + 1:04}"
            while name in taken:
                name += "-2"
            taken.add(name)
            names[row] = name
    return names


def whole_texts(control: ControlSet) -> int:
    """The number of ids that look like whole texts."""
    return sum(len(name.split()) >= SENTENCE for name in control.ids)


def _without_folders(control: ControlSet) -> list[str]:
    return [name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] for name in control.ids]


def _fingerprints(control: ControlSet) -> list[str]:
    """One for each example's vector; equal vectors are numbered."""
    seen: defaultdict[bytes, count[int]] = defaultdict(count)
    rows = (row.tobytes() for row in control.vectors.astype("<f8"))
    return [f"{row.hex()}:{next(seen[row])}" for row in rows]


def _counterparts(new: ControlSet, old: ControlSet) -> list[tuple[int, int]]:
    """Rows of the examples that are in both editions.

    Vectors of the same encoder identify examples whatever their ids; across encoders only the ids can.
    """
    comparable = old.encoder == new.encoder and old.dimension == new.dimension
    mine, theirs = (_fingerprints(control) if comparable else control.ids for control in (new, old))
    rows = {key: row for row, key in enumerate(theirs)}
    return [(row, rows[key]) for row, key in enumerate(mine) if key in rows]


# The changelog.

TITLE = "# Changes\n"
EDITION = re.compile(r"^## Edition ([0-9]{1,9})\b", re.M)
ADDED, REMOVED, MOVED = "Added", "Removed", "Moved to another group"
NAMED = re.compile(rf"^- (?:{ADDED}|{REMOVED}|{MOVED}): [0-9]+ \((.+?)(?: and [0-9]+ more)?\)\.$", re.M)
LISTED = 30


def edition_of(text: str) -> int:
    """The latest edition in a changelog; 0 if none."""
    return max((int(number) for number in EDITION.findall(text)), default=0)


def with_entry(text: str, edition: int, day: str, lines: Sequence[str]) -> str:
    """A changelog with one more entry, above the others; lines that people added stay."""
    entry = "\n".join([f"## Edition {edition} ({day})", "", *(f"- {line}" for line in lines), ""])
    head, title, rest = text.partition(TITLE)
    if not title:
        head, rest = "", text
    return f"{head}{TITLE}\n{entry}" + (f"\n{rest.lstrip()}" if rest.strip() else "")


def changes(
    new: ControlSet, old: ControlSet | None, answers: Sequence[str] = (), *, ids: str = "keep"
) -> list[str]:
    """Lines about what changed; `answers` are the questions with new answers, `ids` is as in `publish`."""
    if old is None:
        counts = ", ".join(f"{n} of {escape_markdown(name)}" for name, n in new.counts.items())
        return [
            f"First edition: {len(new)} examples, {counts}.",
            f"Digest of the control set: `{new.digest}`.",
        ]
    lines = []
    if old.attribute != new.attribute:
        lines.append(f"Attribute: {escape_markdown(old.attribute)} → {escape_markdown(new.attribute)}.")
    if old.encoder != new.encoder:
        before, after = (escape_markdown(control.encoder or "not recorded") for control in (old, new))
        lines.append(f"Encoder: {before} → {after}.")

    pairs = _counterparts(new, old)
    kept, matched = {a for a, _ in pairs}, {b for _, b in pairs}
    moved = [new.ids[a] for a, b in pairs if new.groups[new.labels[a]] != old.groups[old.labels[b]]]
    # Removed examples must not appear by a name that this edition would not publish.
    former = {
        "keep": list(old.ids),
        "names": _without_folders(old),
        "numbers": [name if NUMBER.fullmatch(name) else "" for name in old.ids],
    }[ids]
    marked = sum(bool(new.representative[a] != old.representative[b]) for a, b in pairs)
    renamed = sum(new.ids[a] != old.ids[b] for a, b in pairs)
    examples = [
        _examples(ADDED, [new.ids[row] for row in range(len(new)) if row not in kept]),
        _examples(REMOVED, [former[row] for row in range(len(old)) if row not in matched]),
        _examples(MOVED, moved),
        f"Representatives: {marked} marked or unmarked." if marked else "",
        f"Renamed: {renamed}." if renamed else "",
    ]
    lines += [line for line in examples if line] or ["The examples are the same."]

    if old.counts != new.counts:
        names = dict.fromkeys((*old.groups, *new.groups))
        counts = ", ".join(
            f"{escape_markdown(n)} {old.counts.get(n, 0)} → {new.counts.get(n, 0)}" for n in names
        )
        lines.append(f"Groups: {counts}.")
    if answers:
        lines.append(f"New answers to: {', '.join(answers)}.")
    same = old.digest == new.digest
    digest = f", unchanged: `{new.digest}`" if same else f": `{old.digest}` → `{new.digest}`"
    return [*lines, f"Digest of the control set{digest}."]


def _examples(what: str, ids: Sequence[str]) -> str:
    if not ids or not all(ids):  # some have no name that may be published
        return f"{what}: {len(ids)}." if ids else ""
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{what}: {len(ids)} ({', '.join(escape_markdown(name) for name in ids[:LISTED])}{more})."


# Digests that reveal edits: one per file, and one over all.

SUM_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\\x00-\x1f]+)")


def overall_digest(digests: Mapping[str, str]) -> str:
    """SHA-256 of the lines of `SUMS` without the card, which states it and so cannot be part of it."""
    rest = {name: digest for name, digest in digests.items() if name != README}
    return hashlib.sha256(_sums(rest).encode()).hexdigest()


def _sums(digests: Mapping[str, str]) -> str:
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_sums(folder: Path) -> dict[str, str] | None:
    """Digests by file name; None if the list is missing or damaged."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    matches = [SUM_LINE.fullmatch(line) for line in lines]
    return {match[2]: match[1] for match in matches if match} if matches and all(matches) else None


# `control check`: is a published folder unchanged, do its files agree, who objects?


@dataclass(frozen=True)
class FolderVerdict:
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


def check_published(path: PathLike) -> FolderVerdict:
    """Compare every file with its digest, and the files with each other."""
    folder = Path(path)
    sums = read_sums(folder)
    digests = {name: sha256(folder / name) for name in sums or DIGESTED if (folder / name).is_file()}
    changed: dict[str, str] = {}
    if sums is None:
        changed[SUMS] = (
            f"{SUMS} is missing or damaged, so edits cannot be detected; download the folder again"
        )
    else:
        changed |= {name: f"{name} is not listed in {SUMS}" for name in DIGESTED if name not in sums}
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

    latest: int | None = None  # edition, by the description
    if CROISSANT in digests:
        try:
            description = Description.read(folder)
        except FileError as error:
            problems.append(str(error))
        else:
            latest = description.edition
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
        if latest not in (None, edition):
            problems.append(f"the last edition in {CHANGELOG} is {edition}, in {CROISSANT} {latest}")
    objections, wrong = read_objections(folder / OBJECTIONS, None if control is None else control.ids)
    others = sorted(e.name for e in folder.iterdir() if e.name not in FILES and not e.name.startswith("."))
    return FolderVerdict(
        control, edition, digest, len(digests), tuple(objections), tuple(others), (*problems, *wrong)
    )
