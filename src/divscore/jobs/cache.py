"""Cache: vectors of items that were encoded before, by content and encoder, in one SQLite file an encoder.

SQLite, because it survives a killed process, lets several read while one writes, and keeps its index on disk.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError

__all__ = ["EMPTY", "READ", "UNREADABLE", "Cache", "Entry", "Outcome", "default_cache"]


# Outcome: what became of a run of items.

# Why an item has no vector: it could not be read, or nothing to encode was in it (no face, no known word).
READ, UNREADABLE, EMPTY = "", "unreadable", "empty"


@dataclass(frozen=True)
class Entry:
    """What became of one item: its vectors (usually one), or the kind of its failure and the reason."""

    vectors: NDArray[np.float32]
    found: int = 1
    kind: str = READ
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a run of items; vector j belongs to item ``owner[j]``.

    `keys` are the fingerprints of the contents, empty where an item could not be read; `fresh` marks what was
    encoded now and not remembered.
    """

    vectors: NDArray[np.float32]
    owner: NDArray[np.intp]
    found: NDArray[np.intp]
    kinds: Sequence[str]
    reasons: Sequence[str]
    keys: Sequence[bytes]
    fresh: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def of(
        cls, entries: Sequence[Entry], keys: Sequence[bytes], fresh: NDArray[np.bool_], dimension: int
    ) -> Outcome:
        """Put the items' entries together in their order."""
        counts = [len(entry.vectors) for entry in entries]
        none = np.empty((0, dimension), dtype=np.float32)
        return cls(
            np.concatenate([none, *(entry.vectors for entry in entries)]),
            np.repeat(np.arange(len(entries)), counts),
            np.array([entry.found for entry in entries], dtype=np.intp),
            [entry.kind for entry in entries],
            [entry.reason for entry in entries],
            keys,
            fresh,
        )

    def entry(self, item: int) -> Entry:
        """What became of one of them."""
        rows = self.vectors[self.owner == item]
        return Entry(rows, int(self.found[item]), self.kinds[item], self.reasons[item])

    def fresh_entries(self) -> dict[bytes, Entry]:
        """What is worth remembering, by fingerprint; what could not be read may be readable another time."""
        worth = [
            i for i in np.flatnonzero(self.fresh).tolist() if self.keys[i] and self.kinds[i] != UNREADABLE
        ]
        return {self.keys[item]: self.entry(item) for item in worth}


CREATE = """CREATE TABLE IF NOT EXISTS items (
    key BLOB PRIMARY KEY, kind TEXT NOT NULL, reason TEXT NOT NULL, found INTEGER NOT NULL, vectors BLOB NOT NULL
) WITHOUT ROWID"""
ASKED_AT_ONCE = 500
WAIT_SECONDS = 30.0


def default_cache() -> Path:
    """The folder for divscore in the user's cache folder: $DIVSCORE_CACHE, or as the platform has it."""
    if named := os.environ.get("DIVSCORE_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "divscore" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "divscore"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "divscore"


class Cache:
    """Entries by fingerprint of the content; usable from several threads and processes at once."""

    def __init__(self, folder: str | os.PathLike[str], identity: str, dimension: int) -> None:
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        name = re.sub(r"\W.*", "", identity) or "encoder"
        self.path = Path(folder) / f"{name}-{digest}.sqlite"
        self.dimension = dimension
        self.trouble = ""  # why it is no longer used: a cache must not stop the work
        self._mine = threading.local()

    def prepare(self) -> None:
        """Make the file, or say why it cannot be used."""
        try:
            # Descriptors of faces are nobody else's business.
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = self._connection()
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(CREATE)
            connection.commit()
        except (OSError, sqlite3.Error) as error:
            raise FileError(
                f"the cache {self.path} cannot be used ({error}); choose another folder with --cache, delete the "
                "file, or go without it with --no-cache"
            ) from error

    def lookup(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """Entries that are there."""
        try:
            return self._lookup(list(dict.fromkeys(key for key in keys if key)))
        except (sqlite3.Error, ValueError) as error:
            self.trouble = str(error)
            return {}

    def _lookup(self, wanted: Sequence[bytes]) -> dict[bytes, Entry]:
        known: dict[bytes, Entry] = {}
        for start in range(0, len(wanted), ASKED_AT_ONCE):
            some = wanted[start : start + ASKED_AT_ONCE]
            marks = ",".join("?" * len(some))
            asked = f"SELECT key, kind, reason, found, vectors FROM items WHERE key IN ({marks})"
            for key, kind, reason, found, blob in self._connection().execute(asked, some):
                vectors = np.frombuffer(blob, dtype="<f4").reshape(-1, self.dimension).astype(np.float32)
                known[key] = Entry(vectors, found, kind, reason)
        return known

    def add(self, entries: Mapping[bytes, Entry]) -> None:
        """Remember entries, all or none."""
        if not entries or self.trouble:
            return
        rows = [
            (key, entry.kind, entry.reason, entry.found, np.asarray(entry.vectors, dtype="<f4").tobytes())
            for key, entry in entries.items()
        ]
        try:
            with self._connection() as connection:
                connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            self.trouble = str(error)

    def close(self) -> None:
        """Close this thread's connection."""
        if hasattr(self._mine, "connection"):
            self._mine.connection.close()
            del self._mine.connection

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._mine, "connection"):
            self._mine.connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS)
            # A power cut may lose the last entries, never damage the file; entries can be made again.
            self._mine.connection.execute("PRAGMA synchronous=NORMAL")
        connection: sqlite3.Connection = self._mine.connection
        return connection
