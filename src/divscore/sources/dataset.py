"""Folders of tables: a data set in many files is one collection."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from divscore.errors import FileError
from divscore.sources.folder import is_picture
from divscore.sources.location import Location, filesystem_of
from divscore.sources.open import SUFFIXES

__all__ = ["MANIFEST", "tables_in"]

MANIFEST = "manifest.json"  # what `embed` leaves beside the parts it wrote
FORMAT = "divscore.parts/1"


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
            f"{folder} holds files of several kinds ({', '.join(sorted(found))}); name those that are meant by a "
            f"pattern, such as '{folder.rstrip('/')}/**/*{sorted(found)[0]}'"
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
    location = Location(f"{folder.rstrip('/')}/{MANIFEST}", f"{folder.rstrip('/')}/{MANIFEST}")
    found: Any = None
    try:
        with location.open() as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    if not found.get("finished"):
        raise FileError(
            f"{folder} is being written, or its job was stopped: {len(found.get('parts', []))} parts are there. "
            "Let 'divscore embed' finish"
        )
    names = [f"{folder.rstrip('/')}/{part['file']}" for part in found["parts"]]
    return [Location(name, name) for name in names]
