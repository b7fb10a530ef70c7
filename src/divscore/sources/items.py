"""Items and ItemSource: texts and pictures that are still to be encoded, some at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ItemSource", "Items", "plain"]


@dataclass(frozen=True)
class Items:
    """A run of items: texts, or pictures as their addresses or bytes; what each is called, and its columns."""

    contents: Sequence[str | bytes]
    ids: Sequence[str]
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.contents)

    def slice(self, start: int, stop: int) -> Items:
        """Some of them."""
        values = {name: column[start:stop] for name, column in self.values.items()}
        return Items(self.contents[start:stop], self.ids[start:stop], values)


class ItemSource:
    """Items of a folder or a file, enumerated anew and in the same order at every iteration.

    `rows` is None where the number of items is not known beforehand. `unreadable` and `problems` speak of rows that
    the last iteration could not even hand on (a broken line of a table).
    """

    kind: Literal["image", "text"]

    def __init__(
        self, path: str, name: str, kind: Literal["image", "text"], columns: Mapping[str, str]
    ) -> None:
        self.path = path
        self.name = name
        self.kind = kind
        self.columns = dict(columns)
        self.rows: int | None = None
        self.extra: tuple[str, ...] = ()
        self.unreadable = 0
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Items]:
        raise NotImplementedError

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} "
        return f"<{type(self).__name__} {self.path}: {rows}{self.kind}s>"


def plain(name: str) -> str:
    """A file name as text that can be written anywhere: bytes that are no UTF-8 become escapes.

    >>> plain("a" + chr(0xDCFF))
    'a\\\\xff'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")
