"""Tell items from vectors: what a path, a pattern or standard input holds."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from typing import Any

from divscore.errors import FileError
from divscore.sources.items import FolderItems, Items, PictureFiles, TableItems, is_picture, item_column
from divscore.sources.manifest import MANIFEST, Manifest, read_manifest, read_manifests
from divscore.sources.open import SUFFIXES, is_folder, locate_files
from divscore.sources.places import Files, Location, filesystem_of
from divscore.text import public

__all__ = ["ARRAYS", "recognise", "tables_in"]


# Folders of tables: a data set in many files is one collection.


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


ARRAYS = frozenset({".npy", ".npz"})
TRIED = 5


def recognise(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    taken: Sequence[str] = (),
    form: str = "",
    strict: bool = False,
    forced: bool = False,
) -> Items | Files:
    """Open a folder, a pattern or a file of items; where it holds vectors, return the files that were found.

    Parameters
    ----------
    path : path
        A folder of pictures, pictures, a table, a text file, ``-``; a quoted pattern; local or remote.
    column : str, optional
        The column of texts, of paths of pictures or of vectors.
    extra : sequence of str
        Further columns to read, as text.
    taken : sequence of str
        Columns that cannot be the items, such as the groups.
    form : str
        Read a file as if it had this suffix.
    strict : bool
        Make the first unreadable row an error.
    forced : bool
        Encode items even where the table also has vectors.
    """
    text = os.fspath(path)
    if text != "-" and is_folder(text):
        files = tables_in(text)
        if not files.found:
            return FolderItems(text, extra)
    else:
        files = locate_files(text, form)
    found = files.found
    pictures = [is_picture(location.url) and not form for location in found]
    if all(pictures):
        return PictureFiles(text, found, extra)
    if any(pictures):
        other = next(location for location, picture in zip(found, pictures, strict=True) if not picture)
        raise FileError(f"'{text}' names pictures and other files ({other.label}); audit one kind at a time")
    if found[0].suffix in ARRAYS:
        return files
    chosen = _item_column(found, text, column=column, taken=(*taken, *extra), forced=forced)
    if chosen is None:
        return files
    return TableItems(found, chosen, extra=extra, strict=strict, pattern=text, missing=files.missing)


def _item_column(found: Sequence[Location], pattern: str, **asked: Any) -> str | None:
    """Ask the first files, as some of many may be damaged."""
    errors = []
    for at in range(min(TRIED, len(found))):
        try:
            return item_column(found[at:], pattern, **asked)
        except FileError as error:
            errors.append(error)
    raise errors[0]
