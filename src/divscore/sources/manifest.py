"""What `embed` wrote about its vectors: the manifest of a folder of parts, and a note in the metadata of a file.

Nothing is believed that `embed` would not have written: without it a collection would look complete.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from divscore.errors import FileError
from divscore.files import check_json, read_json
from divscore.sketch.missing import LONGEST, MOST_ROWS, Missing, MissingPart
from divscore.sources.places import Location
from divscore.text import brief, public

MANIFEST = "manifest.json"
FORMAT = "divscore.parts/1"
LARGEST = 256 << 20  # bytes: millions of parts
HEAD = 200  # bytes, among which a manifest of ours names its format
PART = ".arrow"
ASKED = 16  # most remote folders of a pattern that are asked for a manifest, as each may cost a request
READ_AT_ONCE = 16  # remote manifests, which answer slowly
ABOUT_KEY = "divscore.embedding"  # in the metadata of the schema
ENCODER_KEY = "divscore.encoder"  # the encoder that made the vectors
KINDS = ("unreadable", "empty")
MOST_VALUES = 1000  # of a column, with their kinds, that are counted one by one
AGAIN = "run 'divscore embed' again"

Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST_ROWS)]


class _MissingNote(msgspec.Struct):
    of: str
    reason: str
    rows: Count | None = None


class _PartNote(msgspec.Struct):
    # A file next to the manifest, or the manifest cannot be trusted.
    file: Annotated[str, msgspec.Meta(pattern=r"\A(?!\.)[^/\\\0]+\Z")]


class _FolderNote(msgspec.Struct):
    parts: list[_PartNote]
    finished: bool
    missing: list[_MissingNote] = []


class _Skipped(msgspec.Struct, forbid_unknown_fields=True):
    unreadable: Count
    empty: Count


class _FileNote(msgspec.Struct):
    items: Count
    vectors: Count
    several: Count
    skipped: _Skipped
    skipped_by: dict[str, dict[str, dict[str, Count]]]
    small: Count = 0  # files of earlier versions do not have it
    missing: list[_MissingNote] = []


def note_missing(missing: Iterable[MissingPart]) -> list[dict[str, Any]]:
    """What is missing from vectors, as `embed` writes it.

    >>> note_missing([MissingPart("posts/1.csv", "damaged"), MissingPart("posts/2.csv", "damaged", 40)])
    [{'of': 'posts/1.csv', 'reason': 'damaged'}, {'of': 'posts/2.csv', 'reason': 'damaged', 'rows': 40}]
    """
    return [
        {"of": each.part, "reason": each.reason, **({} if each.rows is None else {"rows": each.rows})}
        for each in missing
    ]


def _missing(notes: Iterable[_MissingNote], vectors: str) -> tuple[MissingPart, ...]:
    """What is missing from `vectors`; texts become as short and plain as a message has to be."""
    return tuple(
        MissingPart(
            brief(each.of[:LONGEST], LONGEST),
            f"{vectors} was embedded without it: {brief(each.reason[:LONGEST], LONGEST)}",
            each.rows,
        )
        for each in notes
    )


@dataclass(frozen=True)
class Manifest:
    """The files of a folder that are its parts, and what could not be embedded."""

    folder: str
    parts: tuple[str, ...]
    missing: tuple[MissingPart, ...]
    finished: bool

    def check(self) -> None:
        """Refuse a job that is not finished, and one without vectors."""
        label = _named(self.folder)
        if not self.finished:
            raise FileError(
                f"{label} is not finished: its job is running or was stopped. Run 'divscore embed' again"
            )
        if not self.parts:
            why = "".join(f" ({each})" for each in Missing.of(self.missing).warning)
            raise FileError(
                f"{label} has no vectors: no item could be encoded{why}. Fix the source, then {AGAIN}"
            )

    @property
    def places(self) -> list[str]:
        """Paths of the parts."""
        return [f"{self.folder.rstrip('/')}/{name}" for name in self.parts]


def read_manifest(folder: str, *, listed: bool = False) -> Manifest | None:
    """The manifest of a folder; None where there is none, or one that `embed` did not write.

    Where a listing already had it (`listed`), the file system is not asked again whether it exists.
    """
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    location = Location(place, place)
    if not listed and not location.exists():
        return None
    with location.reading("a manifest"), location.open() as stream:
        data = stream.read(LARGEST + 1)
    hint = f"it is damaged: {AGAIN}"
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        if FORMAT.encode() not in data[:HEAD]:
            return None
        raise FileError(f"{location.label} is cut off or not JSON; {hint}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    note = check_json(_FolderNote, content, location.label, hint=hint)
    names = tuple(part.file for part in note.parts)
    if len(set(names)) < len(names):
        raise FileError(f"{location.label} lists a part twice; {hint}")
    return Manifest(folder, names, _missing(note.missing, _named(folder)), note.finished)


def read_manifests(folders: Sequence[str], *, listed: bool = False) -> list[Manifest]:
    """The manifests that `embed` wrote among those of several folders."""
    remote = any("://" in each for each in folders)
    with ThreadPoolExecutor(READ_AT_ONCE if remote else 1) as pool:
        manifests = pool.map(lambda each: read_manifest(each, listed=listed), folders)
        return [each for each in manifests if each is not None]


def missing_beside(files: Iterable[Location]) -> tuple[MissingPart, ...]:
    """What is missing from the folders of `embed` that these files are parts of.

    A pattern finds the parts that exist and looks complete; a folder that is not finished is an error here as well.
    """
    names: dict[str, set[str]] = {}
    for file in files:
        folder, name = os.path.split(file.url)
        if name.endswith(PART):
            names.setdefault(folder or os.curdir, set()).add(name)
    remote = [folder for folder in names if "://" in folder]
    asked = [folder for folder in names if "://" not in folder] + (remote if len(remote) <= ASKED else [])
    manifests = [
        each
        for each in read_manifests(asked)
        if not each.finished or not names[each.folder].isdisjoint(each.parts)
    ]
    for each in manifests:
        each.check()
    return tuple(missing for each in manifests for missing in each.missing)


def part_of(file: str) -> str | None:
    """The folder of `embed` that a file is a part of; a part alone cannot be made again."""
    folder, name = os.path.split(file)
    manifest = read_manifest(folder or os.curdir) if name.endswith(PART) else None
    return manifest.folder if manifest is not None and name in manifest.parts else None


def _named(folder: str) -> str:
    return "this folder" if folder == os.curdir else public(folder).rstrip("/")


@dataclass(frozen=True)
class Embedded:
    """What a file notes about its items: how many, how many with several vectors, how many skipped by kind and value.

    `small` is the number of faces that were too small to count.
    `missing` are files that could not be opened, so nothing is known of their items.
    """

    items: int
    vectors: int
    several: int
    skipped: dict[str, int]
    skipped_by: Mapping[str, Mapping[str, Mapping[str, int]]]  # by column and value
    small: int = 0
    missing: tuple[MissingPart, ...] = ()

    @property
    def skipped_items(self) -> int:
        """Items without a vector."""
        return sum(self.skipped.values())


def read_embedded(metadata: Mapping[str, str], label: str) -> Embedded | None:
    """What a file's metadata says about its items; None where `embed` did not write it."""
    text = metadata.get(ABOUT_KEY)
    if text is None:
        return None
    where = f"{label}, metadata '{ABOUT_KEY}'"
    hint = f"it is damaged: {AGAIN}, or remove this metadata if skipped items need not be known"
    note = read_json(_FileNote, text, where, hint=hint)
    about = Embedded(
        note.items,
        note.vectors,
        note.several,
        msgspec.to_builtins(note.skipped),
        note.skipped_by,
        note.small,
        _missing(note.missing, label),
    )
    possible = about.several <= about.items and 0 <= about.items - about.skipped_items <= about.vectors
    if not possible or not all(_adds_up(values, about.skipped) for values in about.skipped_by.values()):
        raise FileError(f"{where}: its numbers do not add up; {hint}")
    return about


def _adds_up(values: Mapping[str, Mapping[str, int]], skipped: Mapping[str, int]) -> bool:
    """Whether the values of a column have no more skipped items than there are."""
    sums: Counter[str] = Counter()
    for kinds in values.values():
        sums.update(kinds)
    few = sum(map(len, values.values())) <= MOST_VALUES
    return few and all(count <= skipped.get(kind, -1) for kind, count in sums.items())
