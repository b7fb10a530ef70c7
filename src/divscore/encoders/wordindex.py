"""WordVectors: which words a file has, where they are, and how a vector is taken from it."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.digest import digest_of
from divscore.errors import FileError

__all__ = ["Data", "Row", "WordVectors", "Words"]

Data = bytes | mmap.mmap
Row = Callable[[int, int], NDArray[Any]]  # from a word's number, and the byte where its numbers begin


class Words:
    """Where each word begins, and its hash: 16 bytes a word. Python's own hash serves, as it stays in the process."""

    def __init__(self) -> None:
        self.hashes = array("q")
        self.starts = array("q")

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, word: bytes, start: int) -> None:
        """Add the next word."""
        self.hashes.append(hash(word))
        self.starts.append(start)


class WordVectors:
    """Finds a word's vector in a file; of words that are there twice the first counts.

    Words are compared as UTF-8, so that a word which is not valid UTF-8 does no harm and is never found.
    """

    def __init__(
        self, data: Data, words: Words, dimension: int, row: Row, files: Iterable[str], label: str
    ) -> None:
        hashes = np.frombuffer(words.hashes, dtype=np.int64)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._starts = np.frombuffer(words.starts, dtype=np.int64)
        self._data, self._row, self._label = data, row, label
        self.dimension = dimension
        self.digest = digest_of(files)

    def __len__(self) -> int:
        return len(self._starts)

    def take(self, word: str) -> NDArray[np.float32] | None:
        """A word's vector, or None."""
        sought = word.encode("utf-8", "replace")
        wanted = hash(sought)
        at = int(np.searchsorted(self._hashes, wanted))
        while at < len(self._hashes) and self._hashes[at] == wanted:
            number = int(self._order[at])
            start = int(self._starts[number])
            if self._data[start : start + len(sought) + 1] == sought + b" ":
                return self._checked(word, self._row(number, start + len(sought) + 1))
            at += 1
        return None

    def _checked(self, word: str, found: NDArray[Any]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            vector = found.astype(np.float32)
        if vector.shape != (self.dimension,) or not np.isfinite(vector).all():
            raise FileError(
                f"{self._label}: what follows '{word}' is not {self.dimension} finite numbers; the file is damaged: "
                "make or fetch it again"
            )
        return vector
