"""JSON lines: one object a line, the vector a list of numbers in one of its fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.byterange import check_records, open_piece
from divscore.sources.cuts import BOM, mark_lines, pieces_of
from divscore.sources.places import Location, NoRowsError
from divscore.sources.table import Block, Piece, Request, VectorSource

__all__ = ["JsonLinesSource", "vector_or_reason"]

SAMPLE = 200


class JsonLinesSource(VectorSource):
    """Vectors in a field of a .jsonl or .ndjson file."""

    def __init__(self, location: Location, request: Request) -> None:
        super().__init__(location, request)
        first = [record for *_, record in islice(self._records(), SAMPLE)]
        if not first:
            raise NoRowsError(f"{location.label} holds 0 rows; expected at least one vector")
        sample = [record for record in first if isinstance(record, dict)]
        if not sample:
            raise FileError(
                f"{location.label} has no JSON object in its first lines; expected one a line, "
                'such as {"id": "a", "embedding": [0.1, 0.2]}'
            )
        self.columns = _kinds(sample)
        self._column = self._choose(self.columns) if request.vectors else ""
        self._require(self.columns)
        if not request.vectors:
            return
        lengths = (len(r[self._column]) for r in sample if _kind(r.get(self._column)) == "vector")
        self.dimension = next(lengths)

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Runs of lines."""
        return pieces_of(self.location, mark_lines, rows)

    def _blocks(self) -> Iterator[Block]:
        step = self.request.rows_within(self.dimension) if self.request.vectors else self.request.batch_rows
        rows: list[NDArray[Any]] = []
        numbers: list[int] = []
        values: dict[str, list[str]] = {name: [] for name in self.request.extra}
        for line, number, record in self._records(self.request.piece):
            row = self._vector(record)
            if isinstance(row, str):
                self._refuse([line], lambda _, why=row: why, "line")  # type: ignore[misc]
                continue
            rows.append(row)
            numbers.append(number)
            for name, column in values.items():
                column.append(_text(record.get(name)))
            if len(rows) == step:
                yield Block(np.stack(rows, dtype=np.float64), values, numbers=numbers)
                rows, numbers, values = [], [], {name: [] for name in self.request.extra}
        if rows:
            yield Block(np.stack(rows, dtype=np.float64), values, numbers=numbers)

    def _vector(self, record: Any) -> NDArray[Any] | str:
        if isinstance(record, Exception):
            return f"is not JSON ({record})"
        if not isinstance(record, dict):
            return f"is a JSON {type(record).__name__}, not an object"
        if not self.request.vectors:
            return np.empty(0)
        if self._column not in record:
            return f"lacks the field '{self._column}'"
        return vector_or_reason(record[self._column], self.dimension)

    def _records(self, piece: Piece | None = None) -> Iterator[tuple[int, int, Any]]:
        """Yield a line's number, that of its record and what it holds; blank lines are passed over."""
        first, before = (piece.first, piece.line) if piece else (0, 0)
        number = first
        with self.location.reading("JSON lines"), open_piece(self.location, piece) as stream:
            for at, line in enumerate(stream, start=before + 1):
                text = line.removeprefix(BOM).strip() if at == 1 else line.strip()
                if text:
                    yield at, number, _parse(text)
                    number += 1
        check_records(self.location, piece, number - first)


def vector_or_reason(value: Any, dimension: int) -> NDArray[Any] | str:
    """Return a parsed JSON value as a vector, or say why it is none."""
    if value is None:
        return "has no vector (null)"
    if not isinstance(value, list):
        return f"has {str(value)[:40]!r} where a list of numbers should be"
    if len(value) != dimension:
        return f"has a vector of length {len(value)}, not {dimension}"
    try:
        row = np.array(value)
    except ValueError:
        return "has a nested list where a list of numbers should be"
    if row.ndim != 1 or row.dtype.kind not in "fiu":
        return "has a vector with entries that are not numbers"
    return row


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _kinds(sample: list[dict[str, Any]]) -> dict[str, str]:
    """Tell the kind of each field from the first record that fills it."""
    kinds: dict[str, str] = {}
    for record in sample:
        for name, value in record.items():
            if kinds.get(name, "other") == "other":
                kinds[name] = _kind(value)
    return kinds


def _kind(value: Any) -> str:
    if isinstance(value, list):
        row = vector_or_reason(value, len(value))
        return "vector" if value and not isinstance(row, str) else "other"
    kinds = {str: "text", bool: "bool", int: "number", float: "number"}
    return kinds.get(type(value), "other")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    # JSON may spell half a character, which no other format can hold.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
