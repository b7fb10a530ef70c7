"""Cache: vectors of items that were encoded before, by content, in one SQLite file an encoder.

SQLite survives a killed process, lets several processes read while one writes, and keeps its index on disk.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.registry import ENCODERS
from divscore.errors import FileError
from divscore.files import PathLike

# Why an item was skipped: it could not be read, or there was nothing in it to encode (no face, no known word).
UNREADABLE, EMPTY = "unreadable", "empty"


class ItemVectors(NamedTuple):
    """Vectors of one item, usually one; or the kind and the reason why it was skipped.

    `detected` is the number of things, such as faces, that the item shows, even if only one is encoded; `small` is the
    number of further ones that are too small to count.
    """

    vectors: NDArray[np.float32]
    detected: int = 1
    kind: str = ""
    reason: str = ""
    small: int = 0

    @classmethod
    def none(cls, kind: str, reason: str, small: int = 0) -> ItemVectors:
        """Skip an item."""
        return cls(np.empty((0, 0), dtype=np.float32), 0, kind, reason, small)


def stack_vectors(results: Iterable[ItemVectors], dimension: int) -> NDArray[np.float32]:
    """Vectors of all items as one array."""
    none = np.empty((0, dimension), dtype=np.float32)
    return np.concatenate([none, *(result.vectors for result in results if len(result.vectors))])


CREATE = """CREATE TABLE IF NOT EXISTS items (
    key BLOB PRIMARY KEY, kind TEXT NOT NULL, reason TEXT NOT NULL, found INTEGER NOT NULL, vectors BLOB NOT NULL,
    small INTEGER NOT NULL
) WITHOUT ROWID"""
QUERY_KEYS = 500  # SQLite limits the number of marks in a query
WAIT_SECONDS = 30.0  # for another process that writes


def default_cache() -> Path:
    """Folder of the caches: $DIVSCORE_CACHE, or the platform's usual one."""
    if named := os.environ.get("DIVSCORE_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "divscore" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "divscore"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "divscore"


class Cache:
    """Vectors of items by the fingerprint of their content; threads and processes can share a file."""

    def __init__(self, folder: PathLike, identity: str, dimension: int) -> None:
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        name = re.sub(r"\W.*", "", identity) or "encoder"
        version = ENCODERS[name].version if name in ENCODERS else 1
        number = f"-{version}" if version > 1 else ""
        self.path = Path(folder) / f"{name}{number}-{digest}.sqlite"
        form = re.compile(rf"{name}-(?:(\d+)-)?[0-9a-f]{{16}}\.sqlite")
        files = ((file, form.fullmatch(file.name)) for file in sorted(Path(folder).glob(f"{name}-*.sqlite")))
        self.outdated = [file for file, match in files if match and int(match[1] or 1) < version]
        self.dimension = dimension
        self.trouble = ""  # why it is no longer used: a cache must not stop the work
        self.stored = 0  # items that this run added
        self._thread = threading.local()
        try:
            # Descriptors of faces are private.
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = self._connection()
            connection.execute("PRAGMA journal_mode=WAL")  # others can read while one process writes
            connection.execute(CREATE)
            connection.commit()
        except (OSError, sqlite3.Error) as error:
            raise FileError(
                f"the cache {self.path} cannot be used ({error}); choose another folder with --cache, delete the "
                "file, or use --no-cache"
            ) from error

    def lookup(self, keys: Sequence[bytes]) -> dict[bytes, ItemVectors]:
        """Return what is stored of these."""
        known: dict[bytes, ItemVectors] = {}
        try:
            for start in range(0, len(keys), QUERY_KEYS):
                batch = keys[start : start + QUERY_KEYS]
                marks = ",".join("?" * len(batch))
                query = f"SELECT key, kind, reason, found, vectors, small FROM items WHERE key IN ({marks})"
                for key, kind, reason, detected, blob, small in self._connection().execute(query, batch):
                    vectors = np.frombuffer(blob, dtype="<f4").reshape(-1, self.dimension).astype(np.float32)
                    known[key] = ItemVectors(vectors, detected, kind, reason, small)
        except (sqlite3.Error, ValueError) as error:
            self.trouble = str(error)
            return {}
        return known

    def add(self, results: Mapping[bytes, ItemVectors]) -> None:
        """Store results, all or none."""
        if not results or self.trouble:
            return
        rows = [
            (
                *(key, item.kind, item.reason, item.detected),
                *(np.asarray(item.vectors, dtype="<f4").tobytes(), item.small),
            )
            for key, item in results.items()
        ]
        try:
            with self._connection() as connection:
                connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
            self.stored += len(rows)
        except sqlite3.Error as error:
            self.trouble = str(error)

    def close(self) -> None:
        """Close this thread's connection; it opens again when needed."""
        if hasattr(self._thread, "connection"):
            self._thread.connection.close()
            del self._thread.connection

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._thread, "connection"):
            self._thread.connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS)
            # A power cut may lose the last rows but not damage the file; the rows can be made again.
            self._thread.connection.execute("PRAGMA synchronous=NORMAL")
        connection: sqlite3.Connection = self._thread.connection
        return connection
