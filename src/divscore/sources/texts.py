"""Texts: a column of text in which values repeat, kept as different names and codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Texts"]


class Texts(Sequence[str]):
    """Reads like a list of strings; `names` are the different ones, `codes` say which each row has.

    >>> column = Texts.of(["b", "a", "b"])
    >>> column.names, column.codes.tolist(), list(column)
    (['b', 'a'], [0, 1, 0], ['b', 'a', 'b'])
    """

    def __init__(self, names: list[str], codes: NDArray[np.intp]) -> None:
        self.names = names
        self.codes = codes

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Code a list of strings, names in the order of their first appearance."""
        position: dict[str, int] = {}
        codes = [position.setdefault(text, len(position)) for text in texts]
        return cls(list(position), np.array(codes, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self.names, self.codes[index])
        return self.names[int(self.codes[index])]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts({list(self)!r})"

    def where(self, keep: NDArray[np.bool_]) -> Texts:
        """Rows that a mask keeps."""
        return Texts(self.names, self.codes[keep])
