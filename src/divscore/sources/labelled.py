"""Read labelled examples: a table with a column of group names, or a saved control set."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlfile import is_control, load_control
from divscore.control.controlset import MAX_GROUPS, ControlSet
from divscore.errors import FileError, MismatchError
from divscore.sources.places import quoted
from divscore.sources.recognise import open_table
from divscore.sources.table import Table

__all__ = ["ENCODER_KEY", "GROUP", "attributes_of", "groups_of", "guess_attribute", "read_pool"]

# Where a table of vectors says in its schema's metadata what made them.
ENCODER_KEY = "divscore.encoder"
GROUP = "group"


def read_pool(
    path: str | os.PathLike[str],
    *,
    attribute: str | None = None,
    column: str | None = None,
    order: Sequence[str] | None = None,
) -> ControlSet:
    """Read labelled examples; every one of them must be usable.

    Parameters
    ----------
    path : path
        A file of vectors with a column of group names, or the folder of a saved control set.
    attribute : str, optional
        The column of group names; several joined by ``×`` or ``*`` give their intersections. By default the
        column named ``group``, or else the only text column with 2–12 different values.
    column : str, optional
        The column of vectors, where several could be meant.
    order : sequence of names, optional
        Fixes the sign for two groups: disparity = share(first) − share(second).
    """
    if is_control(path):
        return _from_control(path, attribute, order)
    source = open_table(path, column=column)
    if source.missing:
        raise FileError(f"{source.missing[0].reason}; labelled examples would be missing")
    if not source.columns:
        raise FileError(
            f"{source.path} has no columns, so none with the names of groups; give labelled examples as "
            ".npz, Parquet, Arrow, CSV or JSON lines"
        )
    names = attributes_of(source, attribute) if attribute else [guess_attribute(source)]
    identity = next((name for name in source.columns if name.lower() == "id" and name not in names), None)
    extra = (*names, *([] if identity is None else [identity]))
    labelled = source.select(extra=extra, strict=True)
    vectors, values = _read(labelled)
    ids = None if identity is None else values[identity]
    encoder = labelled.metadata.get(ENCODER_KEY)
    single = order if len(names) == 1 else None
    sets = [
        ControlSet(
            vectors, groups_of(labelled, n, values[n]), attribute=n, order=single, ids=ids, encoder=encoder
        )
        for n in names
    ]
    crossed = reduce(ControlSet.cross, sets)
    return crossed if order is None or len(names) == 1 else crossed.with_order(order)


def _from_control(
    path: str | os.PathLike[str], attribute: str | None, order: Sequence[str] | None
) -> ControlSet:
    control = load_control(path)
    if attribute is not None and re.sub(r"\s*[×*]\s*", "×", attribute) != control.attribute.replace(
        " × ", "×"
    ):
        raise MismatchError(
            f"{os.fspath(path)} is a control set for '{control.attribute}', but '{attribute}' was asked for; "
            f"leave --attribute out or say '{control.attribute}'"
        )
    return control if order is None else control.with_order(order)


def attributes_of(source: Table, attribute: str) -> list[str]:
    """Columns that an attribute names: one, or several for their intersections."""
    if attribute in source.columns:
        return [attribute]
    names = [name.strip() for name in re.split("[×*]", attribute)]
    unknown = [name for name in names if name not in source.columns]
    if unknown:
        raise FileError(
            f"{source.label} has no column {quoted(unknown[:1])} of group names; "
            f"give --attribute one of {quoted(source.columns)}"
        )
    return names


def guess_attribute(source: Table, besides: Sequence[str] = ()) -> str:
    """Name the column of groups when nobody said; `besides` are known to be something else."""
    if GROUP in source.columns:
        return GROUP
    texts = tuple(
        n for n, kind in source.columns.items() if kind == "text" and n.lower() != "id" and n not in besides
    )
    seen: dict[str, set[str]] = {name: set() for name in texts}
    for block in source.select(extra=texts, vectors=False, pictures=None) if texts else ():
        for name, values in block.values.items():
            seen[name].update(values)
    fitting = [name for name, values in seen.items() if 2 <= len(values - {""}) <= MAX_GROUPS]
    if len(fitting) == 1:
        return fitting[0]
    listed = (
        ", ".join(f"'{name}' ({len(values)} values)" for name, values in seen.items()) or "no text columns"
    )
    raise FileError(
        f"{source.label}: cannot tell which column names the groups; expected one named '{GROUP}', or "
        f"a single text column with 2 to {MAX_GROUPS} different values, got {listed}. "
        "Name it with --attribute"
    )


def _read(source: Table) -> tuple[NDArray[Any], dict[str, list[str]]]:
    blocks = list(source)
    if not blocks:
        raise FileError(f"{source.label} holds no labelled examples")
    vectors = np.concatenate([block.vectors for block in blocks])
    names = source.request.extra
    return vectors, {name: [text for block in blocks for text in block.values[name]] for name in names}


def groups_of(source: Table, name: str, values: list[str]) -> list[Any]:
    """Group of every example; numbers stay numbers, which ControlSet refuses with good advice."""
    empty = next((row for row, value in enumerate(values) if not value.strip()), None)
    if empty is not None:
        raise FileError(
            f"{source.label}, row {empty}: no group in column '{name}'; "
            "every labelled example needs one: fill it in or leave the row out"
        )
    if source.columns[name] == "bool":
        return [value.lower() == "true" for value in values]
    return [_number(value) for value in values] if source.columns[name] == "number" else values


def _number(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
