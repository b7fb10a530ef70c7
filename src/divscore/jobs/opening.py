"""Open whatever a user names: vectors as they are, items through an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from divscore.errors import FileError
from divscore.jobs.encode import EncodedSource, Encoding
from divscore.sources import Items, Table
from divscore.sources import open as open_collection

__all__ = ["open_any", "open_items", "open_source"]


def open_source(
    path: Any,
    encoding: Encoding,
    *,
    column: str | None = None,
    extra: Sequence[str] = (),
    taken: Sequence[str] = (),
    form: str = "",
    strict: bool = False,
) -> Items | Table:
    """Open a collection: a file of vectors, or items that are still to be encoded."""
    source = open_collection(
        path,
        column=column,
        extra=extra,
        taken=taken,
        form=form,
        strict=strict,
        forced=encoding.forced and encoding.followed is None,
    )
    if source.kind == "vectors" and encoding.shortens:
        raise FileError(f"{source.path} has vectors already; --pca shortens only what is encoded")
    return source


def open_any(path: Any, encoding: Encoding, *, strict: bool = False, **options: Any) -> Table:
    """Open a collection as vectors; items are encoded while they are read."""
    source = open_source(path, encoding, strict=strict, **options)
    if isinstance(source, Items):
        encoding.fit(source)
        return EncodedSource(source, encoding, strict=strict)
    return source


def open_items(
    path: Any,
    *,
    column: str | None = None,
    extra: Sequence[str] | None = (),
    form: str = "",
    strict: bool = False,
) -> Items:
    """Open a collection of items, vectors refused; `extra` None takes every column of text and numbers."""
    source = open_collection(path, column=column, extra=extra or (), form=form, strict=strict, forced=True)
    if source.kind == "vectors":
        raise FileError(f"{source.path} has vectors, not items; there is nothing to encode")
    return source.select(source.readable) if extra is None else source
