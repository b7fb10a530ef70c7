"""Store: the one SQLite file of a project folder, with everything that people decided and every audit.

A write is answered after it is on the disk (`synchronous=FULL`), so it survives a killed process. All writes go through
one connection, in short transactions; each thread reads through its own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from divscore.errors import FileError

FILE = "divscore.db"
WAIT_SECONDS = 10.0  # for another process that reads or copies the file
MARK = 0x64697673  # "divs": tells the file from other SQLite files

# One script for each version of the schema: the last one leads to the version that this program writes.
MIGRATIONS = (
    """
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE sessions (
    token TEXT PRIMARY KEY, made TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE projects (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, source INTEGER NOT NULL REFERENCES sources,
    choice TEXT, attribute TEXT NOT NULL, names TEXT NOT NULL, basis TEXT NOT NULL, purpose TEXT NOT NULL,
    control INTEGER REFERENCES controls, size INTEGER NOT NULL, seed INTEGER NOT NULL, made TEXT NOT NULL,
    shown TEXT NOT NULL DEFAULT '', encoder TEXT, plan TEXT);
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL REFERENCES projects ON DELETE CASCADE,
    number INTEGER NOT NULL, design TEXT NOT NULL, form TEXT NOT NULL, content BLOB,
    UNIQUE (project, number));
CREATE TABLE changes (
    key TEXT PRIMARY KEY, item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, annotator TEXT NOT NULL,
    label TEXT, at TEXT NOT NULL, received TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX changes_of_item ON changes (item);
CREATE TABLE labels (
    item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, annotator TEXT NOT NULL, label TEXT,
    at TEXT NOT NULL, PRIMARY KEY (item, annotator)) WITHOUT ROWID;
CREATE TABLE settled (
    item INTEGER PRIMARY KEY REFERENCES items ON DELETE CASCADE, label TEXT NOT NULL, person TEXT NOT NULL,
    reason TEXT NOT NULL, at TEXT NOT NULL);

CREATE TABLE controls (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, path TEXT NOT NULL UNIQUE, attribute TEXT NOT NULL,
    made TEXT NOT NULL, project INTEGER REFERENCES projects ON DELETE SET NULL);
CREATE TABLE choices (
    id INTEGER PRIMARY KEY AUTOINCREMENT, control INTEGER NOT NULL REFERENCES controls ON DELETE CASCADE,
    name TEXT NOT NULL, size INTEGER NOT NULL, alpha REAL NOT NULL, added TEXT NOT NULL, dropped TEXT NOT NULL,
    made TEXT NOT NULL);

CREATE TABLE collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, control INTEGER NOT NULL REFERENCES controls,
    source INTEGER REFERENCES sources, choice TEXT, kind TEXT NOT NULL, live INTEGER NOT NULL, made TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 0, sketch BLOB, sketched INTEGER NOT NULL DEFAULT -1);
CREATE TABLE members (
    collection INTEGER NOT NULL REFERENCES collections ON DELETE CASCADE, id TEXT NOT NULL, digest TEXT NOT NULL,
    skip TEXT NOT NULL, rank INTEGER, sha256 TEXT, PRIMARY KEY (collection, id)) WITHOUT ROWID;
CREATE TABLE audits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER REFERENCES projects ON DELETE SET NULL,
    collection INTEGER REFERENCES collections ON DELETE SET NULL, name TEXT NOT NULL, at TEXT NOT NULL,
    version INTEGER, document TEXT NOT NULL, report TEXT NOT NULL);

CREATE TABLE pairings (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, extension TEXT NOT NULL, token TEXT NOT NULL UNIQUE,
    made TEXT NOT NULL);
CREATE TABLE pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, collection INTEGER NOT NULL REFERENCES collections ON DELETE CASCADE,
    about TEXT NOT NULL, skipped TEXT NOT NULL, made TEXT NOT NULL, audit INTEGER REFERENCES audits ON DELETE SET NULL,
    evidence BLOB);
""",
    # An answer is that of some labels, and so is what was settled: both say of which. Keys are those of one annotator.
    """
ALTER TABLE audits ADD COLUMN labels TEXT;
ALTER TABLE settled ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
UPDATE settled SET labels = (
    SELECT json_group_object(annotator, label) FROM labels
    WHERE labels.item = settled.item AND label IS NOT NULL AND label != 'skip');
DELETE FROM settled WHERE (
    SELECT count(DISTINCT label) FROM labels
    WHERE labels.item = settled.item AND label IS NOT NULL AND label != 'skip') < 2;

ALTER TABLE changes RENAME TO old_changes;
DROP INDEX changes_of_item;
CREATE TABLE changes (
    key TEXT NOT NULL, item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, annotator TEXT NOT NULL,
    label TEXT, at TEXT NOT NULL, received TEXT NOT NULL, PRIMARY KEY (annotator, key)) WITHOUT ROWID;
CREATE INDEX changes_of_item ON changes (item);
INSERT INTO changes SELECT * FROM old_changes;
DROP TABLE old_changes;
""",
    # What shares are held to, and the column of the parts of a collection; jobs under way, which a server that ends
    # leaves behind, to be started again.
    """
ALTER TABLE projects ADD COLUMN target TEXT;
ALTER TABLE projects ADD COLUMN parts TEXT;
ALTER TABLE collections ADD COLUMN target TEXT;
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, body TEXT NOT NULL, made TEXT NOT NULL) WITHOUT ROWID;
""",
)


def now() -> str:
    """The present time as text that sorts by time."""
    return moment(datetime.now(UTC))


def moment(time: datetime) -> str:
    """A time as text that sorts by time."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")


class Store:
    """The database of a project folder; `migrations` are those of this version of divscore, except in tests."""

    def __init__(self, folder: str | os.PathLike[str], migrations: Sequence[str] = MIGRATIONS) -> None:
        self.path = Path(folder) / FILE
        self._threads = threading.local()
        self._lock = threading.RLock()
        try:
            # Labels may be about people: nobody else on this machine should read them.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._writer = self._connect()
            self._migrate(migrations)
        except (OSError, sqlite3.Error) as error:
            raise FileError(
                f"{self.path} cannot be used ({error}); is it a file of divscore, and can you write to its folder?"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _migrate(self, migrations: Sequence[str]) -> None:
        """Bring the file to this version, after a copy was made of an older one."""
        version = int(self._writer.execute("PRAGMA user_version").fetchone()[0])
        mark = int(self._writer.execute("PRAGMA application_id").fetchone()[0])
        tables = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if mark != MARK and tables:
            raise FileError(f"{self.path} is a database of another program; choose another project folder")
        if version > len(migrations):
            raise FileError(
                f"{self.path} was written by a later version of divscore (schema {version}, this one knows "
                f"{len(migrations)}); update divscore"
            )
        self._writer.execute("PRAGMA journal_mode=WAL")
        if version == len(migrations):
            return
        if version:
            stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            copy = self.path.with_name(f"{self.path.stem}-schema{version}-{stamp}.db")
            with closing(sqlite3.connect(copy)) as target:
                self._writer.backup(target)
            copy.chmod(0o600)
        # A script commits whatever is open, so each one is a transaction of its own, with its version inside.
        for number, script in enumerate(migrations[version:], start=version + 1):
            marks = f"PRAGMA application_id={MARK}; PRAGMA user_version={number};"
            try:
                self._writer.executescript(f"BEGIN IMMEDIATE; {script}; {marks} COMMIT;")
            except sqlite3.Error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, on the disk when the block ends without an error; others wait, so keep it short."""
        with self._lock:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    def write(self, query: str, *values: Any) -> int:
        """Run one statement as a transaction; return the id of the row that it inserted."""
        with self.writing() as database:
            return int(database.execute(query, values).lastrowid or 0)

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self._reader().execute(query, values).fetchall()

    def row(self, query: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query."""
        row: sqlite3.Row | None = self._reader().execute(query, values).fetchone()
        return row

    def number(self, query: str, *values: Any) -> int:
        """The one whole number that a query gives."""
        return int(self._reader().execute(query, values).fetchone()[0])

    def _reader(self) -> sqlite3.Connection:
        if not hasattr(self._threads, "connection"):
            self._threads.connection = self._connect()
            self._threads.connection.execute("PRAGMA query_only=ON")
        connection: sqlite3.Connection = self._threads.connection
        return connection

    def close(self) -> None:
        """Finish: the log is folded into the file, which can then be copied alone."""
        with self._lock:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writer.close()
