"""Lost: items without a vector by the values of each column."""

from __future__ import annotations

from collections import Counter

__all__ = ["Lost"]

MOST_VALUES = 1000


class Lost:
    """Items without a vector by the values of each column, for audits --by that column later."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._by: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in columns}

    def add(self, kind: str, values: list[str]) -> None:
        """Count one, given its values."""
        for name, value in zip(self._columns, values, strict=True):
            found = self._by.get(name)
            if found is not None:
                found[value, kind] += 1
                if len(found) > MOST_VALUES:
                    del self._by[name]  # nearly every item its own: no column to audit by

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Numbers by column, value and kind."""
        told: dict[str, dict[str, dict[str, int]]] = {}
        for name, found in self._by.items():
            for (value, kind), number in found.items():
                told.setdefault(name, {}).setdefault(value, {})[kind] = number
        return told
