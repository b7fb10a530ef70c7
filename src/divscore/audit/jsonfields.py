"""Fields: an object of a JSON file whose values are asked for by name and kind."""

from __future__ import annotations

import json
from typing import Any

from divscore.errors import FileError
from divscore.text import printable

__all__ = ["Fields"]

SLACK = 1e-6
KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    (int, float): "a number",
}


class Fields:
    """An object, the file that it stands in, and the place there; every error names both.

    >>> Fields({"confidence": 95}, "a.json").real("confidence", 0, 1)
    Traceback (most recent call last):
    divscore.errors.FileError: a.json: 'confidence' holds 95, expected 0 to 1
    """

    def __init__(self, held: Any, where: str, place: str = "") -> None:
        self.where, self.place = where, place
        if not isinstance(held, dict):
            raise self.wrong("expected an object")
        self.held: dict[str, Any] = held

    def has(self, key: str) -> bool:
        """Whether there is anything but null."""
        return self.held.get(key) is not None

    def of(self, key: str) -> Fields:
        """The object that a key holds."""
        return Fields(self._get(key, dict), self.where, f"{self.place}{key}: ")

    def text(self, key: str) -> str:
        """Any text."""
        return str(self._get(key, str))

    def text_or_none(self, key: str) -> str | None:
        """A text, or nothing."""
        return self.text(key) if self.has(key) else None

    def values(self, key: str) -> list[Any]:
        """A list, whatever is in it."""
        return list(self._get(key, list))

    def whole(self, key: str) -> int:
        """Any whole number."""
        return int(self._get(key, int))

    def size(self, key: str, most: int) -> int:
        """A whole number of things, fewer than `most`."""
        found = self.whole(key)
        if not 0 <= found < most:
            raise self.wrong(f"'{key}' is out of range")
        return found

    def real(self, key: str, low: float, high: float) -> float:
        """A number within limits."""
        return self.number(self._get(key, (int, float)), key, low, high)

    def number(self, value: Any, key: str, low: float, high: float) -> float:
        """The same, for one of several numbers that a key holds."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(f"'{key}' holds {_shown(value)}, expected a number")
        if not low - SLACK <= value <= high + SLACK:
            raise self.wrong(f"'{key}' holds {_shown(value)}, expected {low:g} to {high:g}")
        return float(value)

    def wrong(self, what: str) -> FileError:
        """An error that says where it is."""
        return FileError(f"{self.where}: {self.place}{what}")

    def _get(self, key: str, kind: Any) -> Any:
        if key not in self.held:
            raise self.wrong(f"'{key}' is missing; write it again with 'divscore audit … --json FILE'")
        value = self.held[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.wrong(f"'{key}' holds {_shown(value)}, expected {KINDS[kind]}")
        return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 40 else f"{text[:40]}…"
