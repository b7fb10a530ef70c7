from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from divscore.errors import FileError
from divscore.web.store import FILE, MIGRATIONS, Store

SECOND = "ALTER TABLE sources ADD COLUMN colour TEXT; UPDATE sources SET colour = 'red'"


def test_an_older_file_is_copied_and_then_brought_up_to_date(tmp_path: Path) -> None:
    old = Store(tmp_path)
    old.write("INSERT INTO sources (path, name) VALUES ('a', 'b')")
    old.close()
    new = Store(tmp_path, (*MIGRATIONS, SECOND))
    (row,) = new.rows("SELECT * FROM sources")
    assert (row["name"], row["colour"]) == ("b", "red")
    assert new.number("PRAGMA user_version") == len(MIGRATIONS) + 1
    new.close()
    (copy,) = tmp_path.glob("divscore-schema*.db")
    with closing(sqlite3.connect(copy)) as earlier:
        assert earlier.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        assert earlier.execute("SELECT * FROM sources").fetchall() == [(1, "a", "b")]
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileError, match="later version of divscore"):
        Store(tmp_path)
    assert len(list(tmp_path.glob("divscore-schema*.db"))) == 1


def test_what_was_settled_and_saved_in_the_first_schema_stays(tmp_path: Path) -> None:
    old = Store(tmp_path, MIGRATIONS[:1])
    with old.writing() as database:
        database.executescript(
            """
            INSERT INTO sources VALUES (1, 'a', 'b');
            INSERT INTO projects (id, name, source, attribute, names, basis, purpose, size, seed, made)
                VALUES (1, '', 1, '', '[]', '', '', 2, 0, '');
            INSERT INTO items VALUES (1, 1, 0, '{}', '', NULL), (2, 1, 1, '{}', '', NULL);
            INSERT INTO changes VALUES ('k', 1, 'ann', 'sea', '', '');
            INSERT INTO labels VALUES (1, 'ann', 'sea', ''), (1, 'bob', 'wood', ''), (1, 'cy', 'skip', ''),
                (2, 'ann', 'sea', ''), (2, 'bob', 'sea', '');
            INSERT INTO settled VALUES (1, 'sea', 'eve', '', ''), (2, 'wood', 'eve', '', '');
            BEGIN;
            """
        )
    old.close()
    new = Store(tmp_path)
    (settled,) = new.rows("SELECT * FROM settled")  # people agree about the other one
    assert (settled["item"], json.loads(settled["labels"])) == (1, {"ann": "sea", "bob": "wood"})
    new.write("INSERT INTO changes VALUES ('k', 1, 'bob', 'wood', '', '')")
    assert new.number("SELECT count(*) FROM changes") == 2
    with pytest.raises(sqlite3.IntegrityError):
        new.write("INSERT INTO changes VALUES ('k', 2, 'bob', 'sea', '', '')")
    new.write("DELETE FROM projects")
    assert new.number("SELECT count(*) FROM changes") == 0
    new.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with pytest.raises(FileError, match="no such table"):
        Store(tmp_path, (*MIGRATIONS, "CREATE TABLE extra (a); INSERT INTO nowhere VALUES (1)"))
    store = Store(tmp_path)
    assert store.number("SELECT count(*) FROM sqlite_master WHERE name = 'extra'") == 0
    store.close()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(FileError, match="cannot be used"):
        Store(tmp_path)
    (tmp_path / FILE).unlink()
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("CREATE TABLE theirs (a)")
    with pytest.raises(FileError, match="another program"):
        Store(tmp_path)


def test_a_write_is_all_or_nothing_and_others_wait(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.row("PRAGMA journal_mode")[0] == "wal"  # type: ignore[index]
    with suppress(ZeroDivisionError), store.writing() as database:
        database.execute("INSERT INTO sources (path, name) VALUES ('x', 'x')")
        raise ZeroDivisionError
    assert store.number("SELECT count(*) FROM sources") == 0
    threads = [
        threading.Thread(
            target=lambda own=own: [
                store.write("INSERT INTO sources (path, name) VALUES (?, '')", f"{own} {at}")
                for at in range(20)
            ]
        )
        for own in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.number("SELECT count(*) FROM sources") == 160
    with pytest.raises(sqlite3.OperationalError):
        store.rows("DELETE FROM sources")  # readers do not write
    store.close()


def test_an_acknowledged_write_is_flushed(tmp_path: Path) -> None:
    """FULL: the log is flushed at every commit, and not at a checkpoint only."""
    store = Store(tmp_path)
    with store.writing() as database:
        assert database.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert database.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    store.close()
