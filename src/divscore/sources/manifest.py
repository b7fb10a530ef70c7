"""Manifest: what `embed` says of a folder of parts that it wrote."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from divscore.errors import FileError
from divscore.sketch.missing import LONGEST, MOST_ROWS, Missing, MissingPart
from divscore.sources.places import Location
from divscore.text import brief, public

__all__ = [
    "ABOUT_KEY",
    "ENCODER_KEY",
    "FORMAT",
    "KINDS",
    "MANIFEST",
    "MOST_VALUES",
    "Embedded",
    "Manifest",
    "missing_beside",
    "note_left_out",
    "read_embedded",
    "read_left_out",
    "read_manifest",
    "read_manifests",
]


# What `embed` notes of the files and parts that it had to do without, in a manifest or in a file of vectors.


def note_left_out(missing: Iterable[MissingPart]) -> list[dict[str, Any]]:
    """What is missing from vectors, for whoever reads them later.

    >>> note_left_out([MissingPart("posts/1.csv", "damaged"), MissingPart("posts/2.csv", "damaged", 40)])
    [{'of': 'posts/1.csv', 'reason': 'damaged'}, {'of': 'posts/2.csv', 'reason': 'damaged', 'rows': 40}]
    """
    return [
        {"of": each.part, "reason": each.reason, **({} if each.rows is None else {"rows": each.rows})}
        for each in missing
    ]


def read_left_out(listed: Any, vectors: str) -> tuple[MissingPart, ...] | None:
    """Parts of the source that are noted as missing from `vectors`; None where `embed` did not write the list.

    Their texts become as short and plain as a message has to be.

    >>> read_left_out([{"of": "posts/1.csv", "reason": "damaged"}], "posts.arrow")
    (MissingPart(part='posts/1.csv', reason='posts.arrow was embedded without it: damaged', rows=None),)
    """
    found = []
    for each in listed if isinstance(listed, list) else [None]:
        told = each if isinstance(each, dict) else {}
        part, reason, rows = told.get("of"), told.get("reason"), told.get("rows")
        if not isinstance(part, str) or not isinstance(reason, str):
            return None
        if rows is not None and (type(rows) is not int or not 0 <= rows < MOST_ROWS):
            return None
        why = brief(reason[:LONGEST], LONGEST)
        found.append(
            MissingPart(brief(part[:LONGEST], LONGEST), f"{vectors} was embedded without it: {why}", rows)
        )
    return tuple(found)


MANIFEST = "manifest.json"
FORMAT = "divscore.parts/1"
BESIDE = re.compile(r"(?!\.)[^/\\\0]+")
LARGEST = 256 << 20  # bytes: millions of parts
HEAD = 200  # bytes, among which a manifest of ours names its format
PART = ".arrow"
ASKED = 16  # most remote folders of a pattern that are asked for a manifest, as each may cost a request
READ_AT_ONCE = 16  # remote manifests, whose answers are waited for


@dataclass(frozen=True)
class Manifest:
    """Names of the files that are parts, and what could not be embedded."""

    folder: str
    parts: tuple[str, ...]
    missing: tuple[MissingPart, ...]
    finished: bool

    def check(self) -> None:
        """Refuse what is no collection: one that is not finished, or that has nothing in it."""
        label = _named(self.folder)
        if not self.finished:
            raise FileError(
                f"{label} is being written, or its job was stopped: of its {len(self.parts):,} parts some may not be "
                "there. Let 'divscore embed' finish"
            )
        if not self.parts:
            why = "".join(f": {said}" for said in Missing.of(self.missing).warning)
            raise FileError(
                f"{label} has no vectors, as nothing could be embedded{why}. Mend the source, and let 'divscore embed' "
                "make it again"
            )

    @property
    def places(self) -> list[str]:
        """Paths of the parts."""
        return [f"{self.folder.rstrip('/')}/{name}" for name in self.parts]


def read_manifest(folder: str, *, seen: bool = False) -> Manifest | None:
    """What a folder's manifest says; None where there is none, or one of somebody else's.

    Nothing of it is believed that `embed` would not have written: a damaged one is an error, as the collection would
    look whole without it. Where it was `seen` in a listing, nobody is asked again whether it is there.
    """
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    location = Location(place, place)
    if not seen and not location.exists():
        return None
    with location.reading("a manifest"), location.open() as stream:
        data = stream.read(LARGEST + 1)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        if FORMAT.encode() not in data[:HEAD]:
            return None
        raise FileError(_damaged(location, "is cut off or not JSON")) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    parts = _parts(found.get("parts"))
    if parts is None:
        raise FileError(_damaged(location, "does not list the files that lie beside it, each once"))
    missing = read_left_out(found.get("missing", []), _named(folder))
    if missing is None:
        raise FileError(_damaged(location, "does not say what is missing as 'divscore embed' does"))
    finished = found.get("finished")
    if not isinstance(finished, bool):
        raise FileError(_damaged(location, "does not say whether its job is finished"))
    return Manifest(folder, parts, missing, finished)


def read_manifests(folders: Sequence[str], *, seen: bool = False) -> list[Manifest]:
    """The manifests of ours among those of several folders."""
    remote = any("://" in each for each in folders)
    with ThreadPoolExecutor(READ_AT_ONCE if remote else 1) as pool:
        found = pool.map(lambda each: read_manifest(each, seen=seen), folders)
        return [each for each in found if each is not None]


def missing_beside(files: Iterable[Location]) -> tuple[MissingPart, ...]:
    """What is missing from the folders that `embed` wrote, of which these files are parts.

    A pattern finds the parts that there are and looks whole; a folder that is not finished is an error here as well.
    """
    names: dict[str, set[str]] = {}
    for file in files:
        folder, name = os.path.split(file.url)
        if name.endswith(PART):
            names.setdefault(folder or os.curdir, set()).add(name)
    here = [folder for folder in names if "://" not in folder]
    there = [folder for folder in names if "://" in folder]
    asked = [*here, *(there if len(there) <= ASKED else ())]
    meant = [
        each
        for each in read_manifests(asked)
        if not each.finished or not names[each.folder].isdisjoint(each.parts)
    ]
    for each in meant:
        each.check()
    return tuple(missing for each in meant for missing in each.missing)


def _named(folder: str) -> str:
    return "this folder" if folder == os.curdir else public(folder).rstrip("/")


def _damaged(location: Location, how: str) -> str:
    return f"{location.label} {how}; it is damaged: let 'divscore embed' make it again"


def _parts(listed: Any) -> tuple[str, ...] | None:
    """Names of the files that are listed; they lie beside the manifest, or it is not to be trusted."""
    found = listed if isinstance(listed, list) else [None]
    names = [each.get("file") if isinstance(each, dict) else None for each in found]
    if not all(isinstance(name, str) and BESIDE.fullmatch(name) for name in names):
        return None
    return tuple(map(str, names)) if len(set(names)) == len(names) else None


# Embedded: what a file that `embed` wrote says about the items that its vectors are made from.

ABOUT_KEY = "divscore.embedding"  # in the metadata of the schema
ENCODER_KEY = "divscore.encoder"  # the encoder that made the vectors
KINDS = ("unreadable", "empty")
MOST_VALUES = 1000  # of a column, with their kinds, that are told apart

ByValue = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Embedded:
    """How many items and vectors, how many items with several; those without, by kind and by the values of columns.

    `missing` are files that could not be opened, so that nothing is known of their items.
    """

    items: int
    vectors: int
    several: int
    skipped: dict[str, int]
    skipped_by: dict[str, ByValue]
    missing: tuple[MissingPart, ...] = ()

    @property
    def lost(self) -> int:
        """Items without a vector."""
        return sum(self.skipped.values())


def read_embedded(metadata: Mapping[str, str], label: str) -> Embedded | None:
    """What a file's metadata says; None where `embed` did not write it.

    Nothing is believed that `embed` would not have written: items without a vector would be forgotten, or invented.
    """
    text = metadata.get(ABOUT_KEY)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(_damaged_embedded(label)) from error
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    counts: dict[str, Any] = {name: told.get(name) for name in ("items", "vectors", "several")}
    skipped: Any = told.get("skipped")
    by = told.get("skipped_by")
    missing = read_left_out(told.get("missing", []), label)
    if not _numbers(counts, counts) or not _numbers(skipped, KINDS) or not isinstance(by, dict):
        raise FileError(_damaged_embedded(label))
    if missing is None:
        raise FileError(_damaged_embedded(label, "which files it is made without"))
    about = Embedded(**counts, skipped=skipped, skipped_by=by, missing=missing)
    possible = about.several <= about.items and 0 <= about.items - about.lost <= about.vectors
    if not possible or not all(_accounted(values, skipped) for values in by.values()):
        raise FileError(_damaged_embedded(label))
    return about


def _damaged_embedded(label: str, what: str = "which items have no vector") -> str:
    return (
        f"{label} does not say {what} as 'divscore embed' does (its metadata '{ABOUT_KEY}'); it is damaged: let "
        "'divscore embed' make it again, or remove that metadata, and nothing is known of what it lacks"
    )


def _numbers(told: Any, names: Any) -> bool:
    """Whether these are counts under these names and no others."""
    if not isinstance(told, dict) or told.keys() != set(names):
        return False
    return all(type(number) is int and 0 <= number < MOST_ROWS for number in told.values())


def _accounted(values: Any, skipped: Mapping[str, int]) -> bool:
    """Whether items are told by the values of a column: as many as have no vector, or fewer."""
    if not isinstance(values, dict):
        return False
    sums: Counter[str] = Counter()
    pairs = 0
    for kinds in values.values():
        if not isinstance(kinds, dict) or not set(KINDS) >= kinds.keys() or not _numbers(kinds, kinds):
            return False
        sums.update(kinds)
        pairs += len(kinds)
    return pairs <= MOST_VALUES and all(sums[kind] <= skipped[kind] for kind in KINDS)
