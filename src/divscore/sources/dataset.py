"""Folders of tables: a data set in many files is one collection."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from divscore.errors import FileError
from divscore.sources.address import filesystem_of
from divscore.sources.folder import is_picture
from divscore.sources.location import Location
from divscore.sources.open import SUFFIXES
from divscore.wording import public

__all__ = ["MANIFEST", "tables_in"]

MANIFEST = "manifest.json"  # what `embed` leaves beside the parts it wrote
FORMAT = "divscore.parts/1"
BESIDE = re.compile(r"(?!\.)[^/\\\0]+")
LARGEST = 256 << 20  # bytes of a manifest: millions of parts


def tables_in(folder: str) -> list[Location]:
    """Tables or arrays in a folder and those below it, in order; none where it holds pictures or neither.

    Names that begin with a dot or an underscore are left out, as data sets have them for their own purposes.
    """
    listed = _from_manifest(folder)
    if listed is not None:
        return listed
    found: dict[str, list[str]] = {}
    for name in _files(folder):
        if is_picture(name):
            return []
        suffix = os.path.splitext(name)[1].lower()
        if suffix in SUFFIXES:
            found.setdefault(suffix, []).append(name)
    if len(found) > 1:
        raise FileError(
            f"{public(folder)} holds files of several kinds ({', '.join(sorted(found))}); name those that are meant by "
            f"a pattern, such as '{public(folder).rstrip('/')}/**/*{sorted(found)[0]}'"
        )
    return [Location(name, name) for names in found.values() for name in sorted(names)]


def _files(folder: str) -> Iterator[str]:
    if "://" in folder:
        filesystem, root = filesystem_of(folder)
        with Location(folder, folder).reading("a remote folder"):
            names = filesystem.find(root)
        for name in names:
            if not _hidden(name.removeprefix(root.rstrip("/"))):
                yield str(filesystem.unstrip_protocol(name))
        return
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not _hidden(each))
        yield from (os.path.join(place, name) for name in sorted(names) if not _hidden(name))


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/") if part)


def _from_manifest(folder: str) -> list[Location] | None:
    """The parts that `embed` lists, if it wrote this folder."""
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    location = Location(place, place)
    if not location.exists():
        return None
    with location.reading("a manifest"), location.open() as stream:
        data = stream.read(LARGEST + 1)
    try:
        found = json.loads(data)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    names = _parts(found.get("parts"), location.label)
    if not found.get("finished"):
        raise FileError(
            f"{public(folder)} is being written, or its job was stopped: {len(names)} parts are there. "
            "Let 'divscore embed' finish"
        )
    return [Location(each, each) for each in (f"{folder.rstrip('/')}/{name}" for name in names)]


def _parts(listed: Any, label: str) -> list[str]:
    """Names of the files that a manifest lists; they lie beside it, or it is not to be trusted."""
    found = listed if isinstance(listed, list) else [None]
    names = [each.get("file") if isinstance(each, dict) else None for each in found]
    if not all(isinstance(name, str) and BESIDE.fullmatch(name) for name in names):
        raise FileError(
            f"{label} does not list the files that lie beside it; it is damaged: let 'divscore embed' make it again"
        )
    return [str(name) for name in names]
