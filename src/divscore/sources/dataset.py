"""Folders of tables: a data set in many files is one collection."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence

from divscore.errors import FileError
from divscore.sources.address import filesystem_of
from divscore.sources.files import Files
from divscore.sources.folder import is_picture
from divscore.sources.manifest import MANIFEST, Manifest, read_manifest, read_manifests
from divscore.sources.open import SUFFIXES
from divscore.sources.places import Location
from divscore.text import public

__all__ = ["tables_in"]


def tables_in(folder: str) -> Files:
    """Tables or arrays in a folder and those below it, in order; none where it holds pictures or neither.

    Names that begin with a dot or an underscore are left out, as data sets have them for their own purposes. Where
    `embed` wrote the folder, or one below it, its manifest says which files there are meant, and what is missing.
    """
    own = read_manifest(folder)
    if own is not None:
        return _files_of([own], [])
    names, marked = [], []
    for name in _files(folder):
        if is_picture(name):
            return Files([])
        if os.path.splitext(name)[1].lower() in SUFFIXES:
            names.append(name)
        elif os.path.basename(name) == MANIFEST and os.path.dirname(name) != folder.rstrip("/"):
            marked.append(os.path.dirname(name))
    jobs = {each.folder: each for each in read_manifests(marked, seen=True)}
    outermost = [jobs[name] for name in sorted(jobs) if not _inside(os.path.dirname(name), jobs)]
    others = [name for name in names if not _inside(os.path.dirname(name), jobs)] if jobs else names
    files = _files_of(outermost, others)
    kinds = sorted({os.path.splitext(each.url)[1].lower() for each in files.found})
    if len(kinds) > 1:
        raise FileError(
            f"{public(folder)} holds files of several kinds ({', '.join(kinds)}); name those that are meant by "
            f"a pattern, such as '{public(folder).rstrip('/')}/**/*{kinds[0]}'"
        )
    return files


def _files_of(jobs: Sequence[Manifest], others: Sequence[str]) -> Files:
    """Files that no job wrote, the parts that manifests list, and what is missing."""
    for each in jobs:
        each.check()
    places = [*sorted(others), *(place for each in jobs for place in each.places)]
    return Files(
        [Location(each, each) for each in places], tuple(lost for each in jobs for lost in each.missing)
    )


def _inside(folder: str, jobs: Container[str]) -> bool:
    """Whether a folder is a job's own, or lies in such a one, in which nothing but its parts is meant."""
    while folder not in jobs:
        above = os.path.dirname(folder)
        if above == folder or not above:
            return False
        folder = above
    return True


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
