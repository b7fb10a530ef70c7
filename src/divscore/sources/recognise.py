"""Tell items from vectors: what a path, a pattern or standard input holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from divscore.errors import FileError
from divscore.sources.dataset import tables_in
from divscore.sources.files import Files
from divscore.sources.folder import FolderItems, PictureFiles, is_picture
from divscore.sources.items import ItemSource
from divscore.sources.locate import is_folder, locate_files
from divscore.sources.places import Location
from divscore.sources.tableitems import TableItems, item_column

__all__ = ["ARRAYS", "recognise"]

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
) -> ItemSource | Files:
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
    return TableItems(found, chosen, extra=extra, strict=strict, pattern=text, unopened=files.unopened)


def _item_column(found: Sequence[Location], pattern: str, **asked: Any) -> str | None:
    """Ask the first files, as some of many may be damaged."""
    errors = []
    for at in range(min(TRIED, len(found))):
        try:
            return item_column(found[at:], pattern, **asked)
        except FileError as error:
            errors.append(error)
    raise errors[0]
