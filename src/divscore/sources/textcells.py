"""Cells of a text table: what kind of column they make, and the numbers they spell."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.sources.jsonlines import vector_or_reason

__all__ = ["first_length", "from_lists", "from_numbers", "kind_of_cells", "number_of"]


def kind_of_cells(cells: list[str]) -> str:
    """Tell the kind of a column from its first cells."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled:
        return "text"
    if all(cell.lower() in {"true", "false"} for cell in filled):
        return "bool"
    if first_length(filled):
        return "vector"
    # A stray word among numbers makes that row unreadable; it must not drop the column from the vector.
    numbers = sum(number_of(cell) is not None for cell in filled)
    return "number" if 2 * numbers >= len(filled) else "text"


def first_length(cells: list[str]) -> int:
    """How many numbers the first vector among some cells has; 0 if there is none."""
    for cell in cells:
        value = _list(cell)
        if value and not isinstance(vector_or_reason(value, len(value)), str):
            return len(value)
    return 0


def _list(cell: str) -> list[Any] | None:
    if not cell.lstrip().startswith("["):
        return None
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def number_of(cell: str) -> float | None:
    """The number that a cell spells, if it does."""
    try:
        return float(cell)
    except ValueError:
        return None


def from_numbers(column: Any) -> tuple[NDArray[Any], dict[int, str]]:
    """Numbers of a column of text, and the cells that are none."""
    import pyarrow as pa

    with contextlib.suppress(pa.ArrowInvalid):
        return column.cast(pa.float64()).to_numpy(), {}
    cells = column.to_pylist()
    numbers = [number_of(cell) for cell in cells]
    wrong = {row: cells[row] for row, number in enumerate(numbers) if number is None}
    return np.array(numbers, dtype=np.float64), wrong


def from_lists(cells: list[str], dimension: int) -> tuple[NDArray[Any], dict[int, str]]:
    """Vectors of the cells that hold one, and what is wrong with the others."""
    with contextlib.suppress(ValueError, RecursionError):
        matrix = np.array(json.loads(f"[{','.join(cells)}]"))
        if matrix.shape == (len(cells), dimension) and matrix.dtype.kind in "fiu":
            return matrix.astype(np.float64, copy=False), {}
    good, reasons = [], {}
    for row, cell in enumerate(cells):
        value = _list(cell)
        vector = "has no vector (an empty cell)" if not cell.strip() else vector_or_reason(value, dimension)
        if value is None and cell.strip():
            vector = f"has {cell[:40]!r} where a JSON list of numbers should be"
        if isinstance(vector, str):
            reasons[row] = vector
        else:
            good.append(vector)
    return (np.stack(good, dtype=np.float64) if good else np.empty((0, dimension))), reasons
