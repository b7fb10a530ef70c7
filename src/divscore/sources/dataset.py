"""Folders of tables: a data set in many files is one collection."""

from __future__ import annotations

import os
from collections.abc import Iterator

from divscore.errors import FileError
from divscore.sources.address import filesystem_of
from divscore.sources.files import Files
from divscore.sources.folder import is_picture
from divscore.sources.location import Location
from divscore.sources.manifest import read_manifest
from divscore.sources.open import SUFFIXES
from divscore.wording import public

__all__ = ["tables_in"]


def tables_in(folder: str) -> Files:
    """Tables or arrays in a folder and those below it, in order; none where it holds pictures or neither.

    Names that begin with a dot or an underscore are left out, as data sets have them for their own purposes. Where
    `embed` wrote the folder, its manifest says which files are meant, and what is missing.
    """
    listed = _from_manifest(folder)
    if listed is not None:
        return listed
    found: dict[str, list[str]] = {}
    for name in _files(folder):
        if is_picture(name):
            return Files([])
        suffix = os.path.splitext(name)[1].lower()
        if suffix in SUFFIXES:
            found.setdefault(suffix, []).append(name)
    if len(found) > 1:
        raise FileError(
            f"{public(folder)} holds files of several kinds ({', '.join(sorted(found))}); name those that are meant by "
            f"a pattern, such as '{public(folder).rstrip('/')}/**/*{sorted(found)[0]}'"
        )
    return Files([Location(name, name) for names in found.values() for name in sorted(names)])


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


def _from_manifest(folder: str) -> Files | None:
    """The parts that `embed` lists, if it wrote this folder."""
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    if not manifest.finished:
        raise FileError(
            f"{public(folder)} is being written, or its job was stopped: {len(manifest.parts)} parts are there. "
            "Let 'divscore embed' finish"
        )
    places = (f"{folder.rstrip('/')}/{name}" for name in manifest.parts)
    return Files([Location(each, each) for each in places], manifest.missing)
