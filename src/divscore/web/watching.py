"""Watcher: audits live collections again when they have changed, and are still for a moment."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

from divscore.errors import InputError
from divscore.files import is_url
from divscore.text import printable
from divscore.web.collecting import AuditWish, NewCollection, add_collection, audit_collection
from divscore.web.tasks import Task
from divscore.web.workspace import Workspace

SECONDS = 1.0
SHARE = 10  # looking for changes takes at most so much of the time, as one in …


def signature(path: str) -> int | None:
    """A number that changes with the names, sizes and times of the files of a source; None for a remote one."""
    if is_url(path):
        return None
    state = hashlib.blake2b(digest_size=6)
    for name, about in _files(path):
        state.update(f"{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return int.from_bytes(state.digest(), "big")


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    if not os.path.isdir(path):
        yield path, os.stat(path)
        return
    folders = [path]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.is_dir():
                    folders.append(entry.path)
                else:
                    yield entry.path, entry.stat()


class Watcher:
    """A thread that looks at the live collections of a workspace."""

    def __init__(self, space: Workspace, *, seconds: float = SECONDS) -> None:
        self.space, self.seconds = space, seconds
        self._seen: dict[int, int] = {}  # what a collection was when it was last looked at
        self._tasks: dict[int, Task] = {}
        self._audited: dict[int, int] = {}  # what it was when it was last audited, or tried to be
        self._thread = threading.Thread(target=self._run, name="divscore-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch, until the workspace is closed."""
        self._thread.start()

    def _run(self) -> None:
        while True:
            begin = time.monotonic()
            self.look()
            taken = time.monotonic() - begin
            if self.space.tasks.closed.wait(max(self.seconds, SHARE * taken)):
                return

    def look(self) -> None:
        """Audit what has changed since its last audit, but not since the last look: a copy may be under way."""
        for row in self.space.store.rows("SELECT * FROM collections WHERE live = 1"):
            number = int(row["id"])
            try:
                state = row["version"]
                if row["source"] is not None:
                    state = signature(self.space.source_path(row["source"]))
            except OSError:
                continue  # a file that was there a moment ago; the next look knows more
            still, self._seen[number] = self._seen.get(number) == state, state
            busy = number in self._tasks and not self._tasks[number].finished
            if state is None or not still or busy or state == self._last(number):
                continue
            if row["source"] is None and not state:
                continue  # nothing was added yet
            self._audited[number] = state
            work = partial(audit_collection, self.space, row, AuditWish(), version=state)
            self._tasks[number] = self.space.tasks.start("audit", work)

    def _last(self, number: int) -> int | None:
        if number not in self._audited:
            row = self.space.store.row(
                "SELECT version FROM audits WHERE collection = ? ORDER BY id DESC LIMIT 1", number
            )
            if row is None or row["version"] is None:
                return None
            self._audited[number] = row["version"]
        return self._audited[number]


def watch_sources(space: Workspace, paths: Sequence[str], sources: Sequence[int]) -> None:
    """Make a live collection of each of these sources, for the only control set that was named."""
    if not paths:
        return
    controls = space.named_controls
    if len(controls) != 1:
        raise InputError(
            f"--watch needs one --control, got {len(controls)}; name the control set to audit with"
        )
    for path, source in zip(paths, sources, strict=True):
        known = space.store.row(
            "SELECT id FROM collections WHERE source = ? AND control = ? AND live = 1", source, controls[0]
        )
        if known is None:
            name = printable(os.path.basename(os.path.abspath(path)))[:200]
            add_collection(space, NewCollection(name=name, control=controls[0], source=source, live=True))
