"""What the content of a sketch file must be like: a checksum only tells that it is as somebody wrote it.

Every check raises a ValueError that says what is wrong; the reader of the file says which file it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.files import FileRows
from divscore.sketch.grid import coarse_half, fine_half
from divscore.sketch.scorer import LEVELS, REPLICATES
from divscore.sketch.state import SKIPS

__all__ = ["check_codes", "check_header", "check_numbers", "check_shapes"]

MOST = 1 << 48  # items of anything; sums of a few such numbers stay exact
MOST_GROUPS = 64
AT_ONCE = 1 << 22  # bytes of codes that are looked at together
WIDTHS = {"levels": LEVELS, "skipped": len(SKIPS), "floors": 2, "sizes": 2}

Arrays = Mapping[str, NDArray[Any]]


def check_header(header: Mapping[str, Any]) -> None:
    """Check the facts that all collections of the file share, and their names."""
    for key in ("control", "attribute"):
        _demand(isinstance(header[key], str), f"{key} is no text")
    for key, least, most in (("seed", 0, 1 << 64), ("groups", 2, MOST_GROUPS)):
        value = header[key]
        _demand(
            isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
            f"{key} is {str(value)[:40]!r}, expected a number from {least}",
        )
    groups = header["groups"]
    expected = {
        "rows": REPLICATES + 1,
        "side": 2 * coarse_half(groups) + 1,
        "cells": (2 * fine_half(groups) + 1) ** (groups - 1),
    }
    for key, value in expected.items():
        _demand(
            header[key] == value, f"{key} is {str(header[key])[:40]!r}, expected {value} for {groups} groups"
        )
    names = header["collections"]
    _demand(
        isinstance(names, list) and len(names) > 0 and all(isinstance(name, str) for name in names),
        "no list of names",
    )
    _demand(len(set(names)) == len(names), "two collections of the same name")


def check_shapes(
    shapes: Mapping[str, Any], each: Mapping[str, str], long: Mapping[str, str], names: int
) -> None:
    """Check that arrays have as many rows as there are collections, and as many columns as they must."""
    _demand(isinstance(shapes, dict), "no list of arrays")
    for key in (*each, *long):
        shape = shapes[key]
        ranks = 2 if key in each else 1
        _demand(
            isinstance(shape, list)
            and len(shape) == ranks
            and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST for n in shape),
            f"{key} has no such shape",
        )
        if key in each:
            _demand(shape[0] == names, "numbers of collections that do not add up")
            _demand(shape[1] == WIDTHS.get(key, shape[1]), f"{key} has {shape[1]} columns")


def check_numbers(header: Mapping[str, Any], found: Arrays) -> None:
    """Check that the numbers of every collection are possible and agree with each other."""
    for key in ("levels", "skipped", "sizes", "item_times", "cell_counts"):
        least = 1 if key in ("item_times", "cell_counts") else 0
        _demand(_within(found[key], least, MOST), f"{key} has a number below {least}, or far too large a one")
    floors, levels = found["floors"], found["levels"]
    _demand(_within(floors, 0, LEVELS - 1), "a floor that is no level")
    for key in ("totals", "similarities"):
        _demand(bool(np.isfinite(found[key]).all()), f"{key} has a number that is not finite")
    counts = levels.sum(axis=1)
    # Each item adds a unit vector; what rounding leaves after many were removed is far below one.
    _demand(
        bool((np.abs(found["totals"]) <= 2.0 * counts[:, None] + 1.0).all()), "totals larger than their items"
    )
    sizes = found["sizes"]
    for at, key in enumerate(("cell_keys", "item_levels")):
        _demand(
            int(sizes[:, at].astype(object).sum()) == len(found[key]), "numbers of items that do not add up"
        )
    _check_cells(header, found, np.repeat(np.arange(len(sizes)), sizes[:, 0]))
    owner = np.repeat(np.arange(len(sizes)), sizes[:, 1])
    _check_levels(levels, floors[:, 1], owner, found["item_levels"].astype(np.int64), found["item_times"])


def _check_cells(header: Mapping[str, Any], found: Arrays, owner: NDArray[np.intp]) -> None:
    keys, counts, floors = found["cell_keys"], found["cell_counts"], found["floors"]
    two = header["groups"] == 2
    _demand(_within(keys, 0, header["cells"] * (1 if two else LEVELS) - 1), "a cell that does not exist")
    same = owner[1:] == owner[:-1]
    _demand(bool((keys[1:][same] > keys[:-1][same]).all()), "cells out of order")
    if two:
        _demand(not floors[:, 0].any(), "a floor of cells with two groups")
        summed = np.zeros(len(floors), dtype=np.int64)
        np.add.at(summed, owner, counts)
        _demand(bool((summed == found["levels"].sum(axis=1)).all()), "counts that do not add up")
        return
    _check_levels(found["levels"], floors[:, 0], owner, keys // header["cells"], counts)


def _check_levels(
    levels: NDArray[Any],
    floors: NDArray[Any],
    owner: NDArray[np.intp],
    level: NDArray[np.int64],
    counts: NDArray[Any],
) -> None:
    """Items that are held, from the floor upwards, must be those that the levels count."""
    _demand(_within(level, 0, LEVELS - 1), "a level that does not exist")
    summed = np.zeros_like(levels)
    np.add.at(summed, (owner, level), counts)
    kept = np.arange(LEVELS) >= floors[:, None]
    _demand(bool((summed == np.where(kept, levels, 0)).all()), "counts that do not add up")


def check_codes(codes: FileRows, rows: int, width: int, side: int) -> None:
    """Check that every score of every sampled item lies on its grid."""
    at_once = max(1, AT_ONCE // max(width, 1))
    for start in range(0, rows, at_once):
        block = codes[start : min(start + at_once, rows)]
        _demand(not block.size or int(block.max()) < side, "a score beyond its grid")


def _within(numbers: NDArray[Any], least: int, most: int) -> bool:
    return not numbers.size or (int(numbers.min()) >= least and int(numbers.max()) <= most)


def _demand(fine: bool, otherwise: str) -> None:
    if not fine:
        raise ValueError(otherwise)
