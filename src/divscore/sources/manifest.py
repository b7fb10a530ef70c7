"""Manifest: what `embed` says of a folder of parts that it wrote."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from divscore.audit.missing import Gaps, Missing
from divscore.errors import FileError
from divscore.sources.leftout import read_left_out
from divscore.sources.places import Location
from divscore.text import public

__all__ = ["FORMAT", "MANIFEST", "Manifest", "missing_beside", "read_manifest", "read_manifests"]

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
    missing: tuple[Missing, ...]
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
            why = "".join(f": {said}" for said in Gaps.among(self.missing).warning)
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


def missing_beside(files: Iterable[Location]) -> tuple[Missing, ...]:
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
