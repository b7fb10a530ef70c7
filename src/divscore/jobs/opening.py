"""Open whatever a user names: vectors as they are, items through an encoder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from divscore.errors import FileError
from divscore.jobs.encode import EncodedSource, Encoding
from divscore.sources.items import Items, TableItems
from divscore.sources.open import open_located
from divscore.sources.places import folder_values
from divscore.sources.recognise import recognise
from divscore.sources.table import Request, Table

__all__ = ["open_any", "open_items", "open_source"]


def open_source(
    path: str | os.PathLike[str],
    encoding: Encoding,
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    taken: Sequence[str] = (),
    form: str = "",
    strict: bool = False,
) -> Items | Table:
    """Open a collection: a file of vectors, or items that are still to be encoded."""
    found = recognise(
        path,
        column=column,
        extra=tuple(extra),
        taken=taken,
        form=form,
        strict=strict,
        forced=encoding.forced and encoding.followed is None,
    )
    if isinstance(found, Items):
        return found
    if encoding.shortens:
        raise FileError(f"{found.found[0].label} has vectors already; --pca shortens only what is encoded")
    request = Request(column, tuple(dict.fromkeys(extra)), strict)
    return open_located(found.found, request, os.fspath(path), found.missing)


def open_any(
    path: str | os.PathLike[str], encoding: Encoding, *, strict: bool = False, **options: Any
) -> Table:
    """Open a collection as vectors; items are encoded while they are read."""
    source = open_source(path, encoding, strict=strict, **options)
    if isinstance(source, Items):
        encoding.fit(source)
        return EncodedSource(source, encoding, strict=strict)
    return source


def open_items(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    extra: Sequence[str] | None = (),
    form: str = "",
    strict: bool = False,
) -> Items:
    """Open a collection of items, vectors refused; `extra` None takes every column of text and numbers."""
    found = recognise(path, column=column, extra=extra or (), form=form, strict=strict, forced=True)
    if not isinstance(found, Items):
        raise FileError(f"{found.found[0].label} holds vectors, not items; there is nothing to encode")
    if extra is None:
        every = [name for name, kind in found.columns.items() if kind in {"text", "number", "bool", "date"}]
        every += [name for name in _folder_columns(found) if name not in found.columns]
        return open_items(
            path, column=getattr(found, "column", column), extra=every, form=form, strict=strict
        )
    return found


def _folder_columns(source: Items) -> list[str]:
    """Columns that the folders of all files of a table name."""
    if not isinstance(source, TableItems):
        return []
    first, *others = map(folder_values, source.locations)
    return [name for name in first if all(name in each for each in others)]
