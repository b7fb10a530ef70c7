"""Labelled examples: a saved control set, or vectors, texts or pictures with the names of their groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from divscore.control.controlfile import is_control
from divscore.control.controlset import CROSS, ControlSet
from divscore.errors import ControlError, FileError
from divscore.jobs.encode import EncodedSource, Encoding
from divscore.jobs.projection import Projection
from divscore.sources import Items, Table, open_pictures, open_table
from divscore.sources import open as open_collection
from divscore.sources.labelled import GROUP, attributes_of, groups_of, guess_attribute, read_pool
from divscore.sources.places import Location, is_folder
from divscore.text import printable

__all__ = ["PROJECTION", "Progress", "Warn", "no_progress", "no_warning", "open_labelled", "read_control"]

PROJECTION = "projection.npz"  # inside the folder of a control set
LABELS = "labels.csv"
# A name and a total (or None) in, a context manager out; it gives a function that is called with finished items.
Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
Warn = Callable[[str], None]


@contextmanager
def no_progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    yield lambda number: None


def no_warning(text: str) -> None:
    """Say nothing."""


def read_control(
    path: str | os.PathLike[str],
    encoding: Encoding,
    *,
    attribute: str | None = None,
    column: str | None = None,
    order: Sequence[str] | None = None,
    form: str = "",
    likely_column: str | None = None,
    fit_with: Sequence[Items] = (),
    progress: Progress = no_progress,
    warn: Warn = no_warning,
) -> ControlSet:
    """Read labelled examples: a saved control set, or vectors, texts or pictures with the names of their groups.

    Images are in one sub-folder for each group, or next to a ``labels.csv``. The column named `likely_column` has the
    items if it exists. `encoding` then follows the examples: what it encodes next is comparable with them.
    Examples that cannot be encoded are skipped and counted by group in ``ControlSet.skipped``.
    """
    if not is_control(path):
        path = _with_labels(path)
        column = column or _item_column_named(path, likely_column, form)
        items = _pool_items(path, encoding, attribute, column, form)
        if items is not None:
            encoding.fit(items.source, *fit_with)
            control = _encoded_pool(items, encoding, order, progress)
            if control.skipped:
                counts = ", ".join(
                    f"{control.counts[name]} of {control.counts[name] + control.skipped.get(name, 0)} "
                    f"'{printable(name)}'"
                    for name in control.groups
                )
                warn(f"{os.fspath(path)}: encoded {counts}; the encoder found nothing in the others")
            return control
    control = read_pool(path, attribute=attribute, column=column, order=order)
    saved = Path(path) / PROJECTION
    encoding.expect(control.encoder, Projection.load(saved) if saved.is_file() else None)
    return control


def open_labelled(
    path: str | os.PathLike[str],
    encoding: Encoding,
    *,
    attribute: str | None = None,
    likely_column: str | None = None,
) -> Items | None:
    """The items themselves that `read_control` encoded; None where it read vectors or a saved control set."""
    if is_control(path):
        return None
    path = _with_labels(path)
    column = _item_column_named(path, likely_column, "")
    items = _pool_items(path, encoding, attribute, column, "")
    return None if items is None else items.source


class _PoolItems:
    """Items of a pool, and which columns tell their groups."""

    def __init__(self, source: Items, names: Sequence[str], labels: Table | None) -> None:
        self.source = source
        self.names = names  # the attributes
        self.labels = labels


def _pool_items(
    path: str | os.PathLike[str], encoding: Encoding, attribute: str | None, column: str | None, form: str
) -> _PoolItems | None:
    if is_folder(path):
        folders = open_pictures(path)
        if folders.unlisted:
            raise ControlError(f"{folders.unlisted[0]}; a group would be missing: fix it")
        for run in folders:
            _by_folder(folders.path, run.ids, folders.name)
        return _PoolItems(folders, [attribute or GROUP], None)
    guessed = attribute.replace("*", "×").split("×") if attribute else [GROUP]
    taken = [name.strip() for name in guessed]
    source = open_collection(path, column=column, taken=taken, form=form, forced=encoding.forced)
    if source.kind == "vectors":
        return None
    if source.table is None:
        raise ControlError(
            f"{os.fspath(path)} names pictures without their groups; name the folder with one sub-folder for each "
            f"group, or a table such as {LABELS} with the columns file and group"
        )
    if source.missing:
        raise FileError(f"{source.missing[0].reason}; labelled examples would be missing")
    if attribute:
        names = attributes_of(source.table, attribute)
    else:
        names = [guess_attribute(source.table, besides=[source.column])]
    return _PoolItems(source.select(names), names, source.table)


def _encoded_pool(
    items: _PoolItems, encoding: Encoding, order: Sequence[str] | None, progress: Progress
) -> ControlSet:
    source = EncodedSource(items.source, encoding, single=True)
    with progress("labelled examples", source.rows) as advance:
        source.on_items = advance
        blocks = list(source)
    if not blocks:
        raise ControlError(
            f"{source.path}: none of the labelled examples could be encoded; {'; '.join(source.problems[:3])}"
        )
    vectors = np.concatenate([block.vectors for block in blocks])
    ids = [name for block in blocks for name in block.ids]
    columns = {
        name: [text for block in blocks for text in block.values[name]] for name in source.request.extra
    }
    identity = source.metadata["divscore.encoder"]
    single = order if len(items.names) == 1 else None
    sets = []
    for name in items.names:
        groups: list[Any] = (
            _by_folder(source.path, ids, source.name)
            if items.labels is None
            else groups_of(items.labels, name, columns[name])
        )
        sets.append(ControlSet(vectors, groups, attribute=name, order=single, ids=ids, encoder=identity))
    control = reduce(ControlSet.cross, sets)
    if order is not None and len(sets) > 1:
        control = control.with_order(order)
    control.skipped = _skipped(source, control, items.labels is None)
    encoding.expect(identity)
    return control


def _by_folder(path: str, ids: Sequence[str], root: str) -> list[str]:
    """The group of a picture is the sub-folder it lies in."""
    for name in ids:
        if "/" not in name:
            raise ControlError(
                f"{path}: {name} lies beside the sub-folders; labelled pictures need one sub-folder a group, such as "
                f"{root}/female and {root}/male, or a {LABELS} with the columns file and group"
            )
    return [name.split("/", 1)[0] for name in ids]


def _skipped(source: EncodedSource, control: ControlSet, folders: bool) -> dict[str, int]:
    counts = dict.fromkeys(control.groups, 0)
    for (_, values), number in source.skips.items():
        group = values[0].split("/", 1)[0] if folders else CROSS.join(values)
        counts[group] = counts.get(group, 0) + number
    return {name: number for name, number in counts.items() if number}


def _item_column_named(path: str | os.PathLike[str], name: str | None, form: str) -> str | None:
    """The collection's column of items, where the labelled examples have one of the same name."""
    if name is None or is_folder(path):
        return None
    columns = open_table(path, vectors=False, form=form).columns
    return name if columns.get(name) in {"text", "picture"} else None


def _with_labels(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The table inside a folder of labelled pictures, where there is one."""
    text = os.fspath(path)
    if text == "-" or not is_folder(text):
        return path
    inside = f"{text.rstrip('/')}/{LABELS}"
    return inside if Location(inside, inside).exists() else path
