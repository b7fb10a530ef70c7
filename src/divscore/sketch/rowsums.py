"""Tables of numbers that grow by rows, and are added to row by row."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Positions", "add_rows", "with_room"]

MOST_SPARE = 4_096  # rows
PIECE = 256  # rows that stay in the cache
FEWEST_IN_A_ROW = 16  # rows for which a call of their own is worth while

Positions = NDArray[np.intp]


def with_room(held: NDArray[Any], rows: int, kind: Any = None) -> NDArray[Any]:
    """As many rows at least, the new ones zero; some more than needed, so that this is seldom done.

    Numbers of another `kind` are turned into it, in the same step: tables may be large.
    """
    kind = np.dtype(kind or held.dtype)
    missing = rows - len(held)
    if missing <= 0 and held.dtype == kind:
        return held
    more = max(missing, min(len(held), MOST_SPARE))
    room = np.zeros((len(held) + more, *held.shape[1:]), dtype=kind)
    room[: len(held)] = held
    return room


def add_rows(table: NDArray[Any], at: Positions, rows: NDArray[Any]) -> None:
    """Add rows to those at different positions, without a copy of them all: they may be tens of megabytes."""
    breaks = np.flatnonzero(np.diff(at) != 1) + 1
    edges = [0, *breaks.tolist(), len(at)]
    if len(edges) > len(at) // FEWEST_IN_A_ROW + 2:
        for start in range(0, len(at), PIECE):
            table[at[start : start + PIECE]] += rows[start : start + PIECE]
        return
    for start, stop in itertools.pairwise(edges):
        first = at[start] if stop > start else 0
        table[first : first + stop - start] += rows[start:stop]
