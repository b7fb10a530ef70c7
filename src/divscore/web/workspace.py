"""Workspace: a project folder with its database, sources, control sets and running tasks; what every router uses."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints
from starlette.exceptions import HTTPException

from divscore.errors import DivscoreError, FileError
from divscore.files import is_url, lock_file
from divscore.jobs.pool import Progress, Warn
from divscore.text import public
from divscore.web.guard import Keys
from divscore.web.store import FILE, Store, moment, now
from divscore.web.tasks import Task, Tasks, Work

if TYPE_CHECKING:
    from divscore.audit.audits import Audits
    from divscore.control.controlset import ControlSet
    from divscore.jobs.encode import Encoding
    from divscore.jobs.members import Members

CONTROLS, VECTORS, PUBLISHED = "control-sets", "vectors", "published"  # folders in a project folder
OWN = {CONTROLS, VECTORS, PUBLISHED, FILE, f"{FILE}-wal", f"{FILE}-shm"}
SESSION_DAYS = 30
MOST_COUNTED = 256 << 20  # bytes of a table that is read to count its items
MOST_LISTED = 200  # sources that are found in the project folder
CLOCK = 2 * 10**9  # nanoseconds: the coarsest clock of a file system
KEPT_CONTROLS = 4  # control sets in memory

Id = Annotated[int, Field(ge=1, le=2**53)]
PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"  # no control characters
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=PLAIN)]
Line = Annotated[str, StringConstraints(max_length=2000)]
Shares = Annotated[dict[Name, FiniteFloat], Field(max_length=12)]


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Given(BaseModel):
    """What a client sends. A field that nobody knows is refused: a misspelt target would be no target."""

    model_config = ConfigDict(extra="forbid")


class WithTarget(Given):
    """What the shares are compared with, in place of an even split; one group may be left out and gets the rest."""

    target: Shares | None = None
    target_source: Line = ""

    def stored_target(self, groups: Sequence[str]) -> str | None:
        """The target as the database keeps it, checked against the groups; None is an even split."""
        from divscore.audit.target import Target

        if self.target_source.strip() and not self.target:
            raise HTTPException(422, "target_source needs a target; give the share of each group in target")
        return json.dumps(asdict(Target.of(self.target, groups, self.target_source))) if self.target else None


class Started(BaseModel):
    """A job that was started."""

    job: str
    url: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The request cannot be fulfilled",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


@dataclass
class Described:
    """What is known of a source once it was opened."""

    state: Literal["reading", "ready", "failed"] = "reading"
    kind: Literal["image", "text", "vectors", "unknown"] = "unknown"
    items: int | None = None
    counting: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    problem: str = ""


class Workspace:
    """A project folder that one server works in."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sources: Sequence[str] = (),
        controls: Sequence[str] = (),
        *,
        encoder: str | None = None,
        model: str | None = None,
        cache: bool = True,
    ) -> None:
        for path in (*sources, *controls):  # before anything is created
            if not is_url(path) and not os.path.exists(path):
                raise FileError(f"{path} does not exist; give the path of a folder or a table")
        self._encoder: dict[str, Any] = {"name": encoder, "model": model}
        self._cache = cache
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = lock_file(self.folder / f"{FILE}.lock")
        self._lock.__enter__()
        try:
            self.store = Store(self.folder)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        self.tasks = Tasks(self._job_begun, self._job_ended)
        for row in self.store.rows("SELECT * FROM jobs ORDER BY made"):
            request = (row["path"], json.loads(row["body"]))
            self.tasks.remember(Task(row["kind"], _no_work, row["id"], request, state="interrupted"))
        self.start: dict[str, Any] = {}  # what the command line said about the first project
        self.described: dict[int, Described] = {}
        self._controls: dict[int, ControlSet] = {}
        self._members: dict[tuple[int, str], Members] = {}
        # Items that clients send are encoded one request at a time, and requests for anything else do not wait for it.
        self.encoder = ThreadPoolExecutor(1, "divscore-encoder")
        self._guard = threading.Lock()
        self.keys = Keys(
            session=self._session,
            keep=self._keep_session,
            paired=self._paired,
            extension=lambda origin: (
                self.store.row("SELECT 1 FROM pairings WHERE extension = ?", origin) is not None
            ),
        )
        # What nobody saved of pages is not kept.
        self.store.write(
            "DELETE FROM collections WHERE id IN (SELECT collection FROM pages WHERE audit IS NULL)"
        )
        self.forget_vectors()
        self.sources = [self._source(path) for path in sources]
        self._found: dict[str, int] = {}  # sources in the project folder
        self._listed = 0  # when the folder had changed last, as it was listed last
        self._finding = threading.Lock()
        self.named_controls = [self.add_control(path) for path in controls]
        self.find_sources(first=self.sources)

    def close(self) -> None:
        """Finish what is written, and let others use the folder."""
        self.tasks.close()
        self.encoder.shutdown(cancel_futures=True)
        self.store.close()
        self._lock.__exit__(None, None, None)

    def _keep_session(self, mark: str) -> None:
        self.store.write("INSERT INTO sessions VALUES (?, ?)", mark, now())

    def _session(self, mark: str) -> bool:
        oldest = moment(datetime.now(UTC) - timedelta(days=SESSION_DAYS))
        row = self.store.row("SELECT 1 FROM sessions WHERE token = ? AND made > ?", mark, oldest)
        return row is not None

    def _paired(self, mark: str) -> str | None:
        row = self.store.row("SELECT extension FROM pairings WHERE token = ?", mark)
        return None if row is None else str(row["extension"])

    # Sources: paths are named at the start, or are in the project folder; a browser knows their numbers only.

    def _inside(self) -> list[str]:
        from divscore.sources.pictures import IMAGE_SUFFIXES
        from divscore.sources.recognise import FORMATS

        found = []
        for entry in sorted(self.folder.iterdir())[:MOST_LISTED]:
            hidden = entry.name.startswith((".", "_")) or entry.name in OWN or entry.suffix == ".db"
            if not hidden and (entry.is_dir() or entry.suffix.lower() in (*FORMATS, *IMAGE_SUFFIXES)):
                found.append(str(entry))
        return found

    def find_sources(self, first: Sequence[int] = ()) -> None:
        """Take in what was copied into the project folder; a folder that did not change is not listed again."""
        with self._finding:
            try:
                changed = self.folder.stat().st_mtime_ns
            except OSError:  # the folder is gone: so is what was in it
                return
            if changed == self._listed:
                return
            # Two changes within one tick of the clock of a file system have the same time.
            self._listed = changed if time.time_ns() - changed > CLOCK else 0
            paths = [path for path in self._inside() if path not in self._found]
            new = {path: self._source(path) for path in paths[: MOST_LISTED - len(self._found)]}
            self._found |= new
            self.sources += new.values()
            numbers = list(dict.fromkeys((*first, *new.values())))
        if numbers:
            threading.Thread(
                target=self._describe, args=(numbers,), name="divscore-sources", daemon=True
            ).start()

    def _source(self, path: str) -> int:
        place = path if is_url(path) else os.path.abspath(path)
        name = public(path).rstrip("/").rpartition("/")[2] if is_url(path) else os.path.basename(place)
        # A name that is not valid text cannot be stored as text.
        stored, shown = os.fsencode(place).hex(), clean(name or place)
        with self.store.writing() as database:
            database.execute("INSERT OR IGNORE INTO sources (path, name) VALUES (?, ?)", (stored, shown))
            row = database.execute("SELECT id FROM sources WHERE path = ?", (stored,)).fetchone()
        return int(row["id"])

    def source_path(self, number: int) -> str:
        """Where a source is; only those of this start can be opened."""
        row = (
            self.store.row("SELECT path FROM sources WHERE id = ?", number)
            if number in self.sources
            else None
        )
        if row is None:
            raise HTTPException(
                404,
                f"there is no source {number}; sources are named at the start or lie in the project folder",
            )
        return os.fsdecode(bytes.fromhex(row["path"]))

    def _describe(self, numbers: Sequence[int]) -> None:
        """Open each source, which may take a while, when the page is already shown."""
        from divscore.jobs.labelplan import count_items
        from divscore.sources import open as open_collection

        for number in numbers:
            known = self.described.setdefault(number, Described())
            if self.tasks.closed.is_set():
                return
            try:
                source = open_collection(self.source_path(number))
                known.kind, known.items = source.kind, source.rows
                known.columns = {clean(name): kind for name, kind in source.columns.items()}
                known.counting = sum(each.size() for each in source.locations) <= MOST_COUNTED
                known.state = "ready"
                if known.counting:
                    known.items = count_items(source)
            except (DivscoreError, OSError) as error:
                known.state, known.problem = "failed", self.in_page(str(error))
            known.counting = False

    # Control sets: folders that the command line names, or that were made here.

    def add_control(self, path: str, *, name: str = "", project: int | None = None) -> int:
        """Remember a saved control set."""
        from divscore.control.controlfile import load_control

        place = os.path.abspath(path)
        control = load_control(place)
        known = name or os.path.basename(place.rstrip("/"))
        values = (clean(known), os.fsencode(place).hex(), control.attribute, now(), project)
        with self.store.writing() as database:
            database.execute(
                "INSERT OR IGNORE INTO controls (name, path, attribute, made, project) VALUES (?, ?, ?, ?, ?)",
                values,
            )
            row = database.execute("SELECT id FROM controls WHERE path = ?", values[1:2]).fetchone()
        return int(row["id"])

    def save_control(
        self, control: ControlSet, name: str, encoding: Encoding, *, project: int | None = None
    ) -> int:
        """Write a control set that was made here, as `divscore control select` does, and remember it."""
        from divscore.control.controlfile import save_control
        from divscore.jobs.pool import PROJECTION

        (self.folder / CONTROLS).mkdir(mode=0o700, exist_ok=True)
        number = 1 + self.store.number("SELECT coalesce(max(id), 0) FROM controls")
        while (folder := self.folder / CONTROLS / str(number)).exists():
            number += 1
        save_control(control, folder)
        if encoding.projection is not None:
            encoding.projection.save(folder / PROJECTION)
        return self.add_control(str(folder), name=name, project=project)

    def control_path(self, number: int) -> str:
        """The folder of a control set."""
        return os.fsdecode(bytes.fromhex(self.one("controls", number)["path"]))

    def control(self, number: int) -> ControlSet:
        """A control set, kept in memory once it was read."""
        from divscore.control.controlfile import load_control

        path = self.control_path(number)
        with self._guard:
            if number not in self._controls:
                self._controls[number] = load_control(path)
                for old in list(self._controls)[:-KEPT_CONTROLS]:
                    del self._controls[old]
            return self._controls[number]

    def members(self, control: int, kind: Any) -> Members:
        """What keeps the vectors of items that clients send; its `put` runs on `encoder` only."""
        from divscore.jobs.members import Members

        with self._guard:
            if (control, kind) not in self._members:
                self._members[control, kind] = Members(
                    self.control_path(control), kind, self.folder / VECTORS, **self._encoder
                )
            return self._members[control, kind]

    def forget_vectors(self) -> None:
        """Remove vectors of items that no collection has any more: they are personal. Runs where items are encoded."""
        if (self.folder / VECTORS).is_dir():
            from divscore.jobs.members import forget_others

            rows = self.store.rows("SELECT DISTINCT digest FROM members")
            forget_others(self.folder / VECTORS, [row["digest"] for row in rows])

    def forget_control(self, number: int) -> None:
        """Remove a control set from the list, and from the disk if it was made here."""
        path = Path(self.control_path(number))
        self.store.write("DELETE FROM controls WHERE id = ?", number)
        self._controls.pop(number, None)
        for key in [key for key in self._members if key[0] == number]:
            del self._members[key]
        if path.parent == (self.folder / CONTROLS).absolute():
            with suppress(OSError):
                shutil.rmtree(path)

    # What a page shows

    def may_show(self, path: str, *folders: str) -> bool:
        """Whether a file is in a source of this start, in the project folder, or in one of these folders.

        A control set may come from anybody: what it names elsewhere is not opened, and no address is fetched.
        """
        if "://" in path:
            return False
        named = [place for number in self.sources if not is_url(place := self.source_path(number))]
        # The pictures that a table names are beside it. Links inside a source are followed: it was named by a person.
        roots = [place if os.path.isdir(place) else os.path.dirname(place) for place in named]
        own = [os.path.realpath(folder) for folder in (str(self.folder), *folders)]
        return _inside_any(os.path.abspath(path), roots) or _inside_any(os.path.realpath(path), own)

    def in_page(self, text: str) -> str:
        """A message for the page: with names of sources and folders instead of their paths, no hints at options."""
        places = [*map(self.source_path, self.sources), str(self.folder.absolute())]
        places += [self.control_path(row["id"]) for row in self.store.rows("SELECT id FROM controls")]
        for place in sorted({place for place in places if place.count("/") > 1}, key=len, reverse=True):
            text = text.replace(public(place), os.path.basename(place.rstrip("/")))
            text = text.replace(f"{os.path.dirname(place)}/", "")
        return in_page(text)

    # Everything else

    def one(self, table: str, number: int) -> Any:
        """A row by its number, or 404."""
        row = self.store.row(f"SELECT * FROM {table} WHERE id = ?", number)
        if row is None:
            raise HTTPException(404, f"there is no {table.removesuffix('s')} {number}")
        return row

    @contextmanager
    def encoding(self) -> Iterator[Encoding]:
        """What turns items into vectors, with the user's cache: as the command line has it."""
        from divscore.jobs.encode import Encoding

        workers = min(4, os.cpu_count() or 1)
        with Encoding(**self._encoder, cache=self._cache, workers=workers) as encoding:
            yield encoding

    def begin(
        self, kind: str, work: Work, path: str | None = None, given: BaseModel | None = None
    ) -> Started:
        """Start a job; `path` and `given` are those of the request, for those who repeat it after an interruption."""
        body = {} if given is None else given.model_dump(mode="json", exclude_unset=True)
        task = self.tasks.start(kind, work, None if path is None else (path, body))
        return Started(job=task.id, url=f"/api/v1/jobs/{task.id}")

    def _job_begun(self, task: Task) -> None:
        """Keep a job until it ends, and forget an interrupted one that did the same."""
        if task.request is None:
            return
        path, body = task.request[0], json.dumps(task.request[1])
        for each in self.tasks.list():
            if each.state == "interrupted" and each.request == task.request:
                self.tasks.forget(each)
        with self.store.writing() as database:
            database.execute("DELETE FROM jobs WHERE path = ? AND body = ?", (path, body))
            database.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?)", (task.id, task.kind, path, body, now())
            )

    def _job_ended(self, task: Task) -> None:
        if task.request is not None:
            with suppress(sqlite3.ProgrammingError):  # the store is closed: it then counts as interrupted
                self.store.write("DELETE FROM jobs WHERE id = ?", task.id)

    def forget_job(self, task: Task) -> None:
        """Show an interrupted job no longer."""
        self.tasks.forget(task)
        self._job_ended(task)

    def keep_audit(
        self,
        audits: Audits,
        *,
        inputs: Sequence[tuple[str, str]] = (),
        note: str = "",
        project: int | None = None,
        labels: str | None = None,
        collection: int | None = None,
        version: int | None = None,
        name: str | None = None,
        limit: float | None = None,
    ) -> int:
        """Store an audit: the JSON of the command line, and its report; `labels` is the mark of those it is made of."""
        report = self.report_of(audits, inputs=inputs, note=note, limit=limit)
        document = audits.to_json(replicates=True, limit=limit)
        return self.store.write(
            "INSERT INTO audits (project, labels, collection, name, at, version, document, report) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(project, labels, collection, clean(name or audits.audits[0].name)),
            *(now(), version, document, clean(report)),
        )

    @staticmethod
    def report_of(
        audits: Audits,
        *,
        inputs: Sequence[tuple[str, str]] = (),
        note: str = "",
        limit: float | None = None,
    ) -> str:
        """The HTML report of an audit."""
        from divscore.report.page import render_html
        from divscore.report.summary import Context, Input

        # A page may be shown to others: it names files, and not where they are.
        named = [(role, public(path) if is_url(path) else os.path.basename(path)) for role, path in inputs]
        read = [Input(role, name) for role, name in named]
        return render_html(
            audits.audits, Context(inputs=read, missing=audits.missing, note=note, limit=limit)
        )


def _inside_any(path: str, folders: Sequence[str]) -> bool:
    return any(path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def _no_work(progress: Progress, warn: Warn) -> dict[str, Any]:
    return {}  # of a job that an earlier server did not finish, which only a new request starts again


def clean(text: str) -> str:
    """Text that can be stored and sent: half characters, as broken files have them, become question marks."""
    return text.encode("utf-8", "replace").decode()


def in_page(text: str) -> str:
    """A message without hints at options of the command line, which a page does not have.

    >>> in_page("1,260 of 1,270 items encoded; 10 showed no face (--verbose lists them)")
    '1,260 of 1,270 items encoded; 10 showed no face'
    """
    return clean(re.sub(r"\s*\(--[\w-]+ [^)]*\)", "", text))


def read_target(stored: str | None) -> tuple[dict[str, float] | None, str]:
    """The shares of a stored target, and where they come from."""
    known = json.loads(stored) if stored else {}
    return known.get("shares"), known.get("source", "")


def etag(*parts: object) -> str:
    """A mark of a version of something."""
    return f'"{hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]}"'


def workspace_of(request: Request) -> Workspace:
    """The workspace of the app that answers a request."""
    space: Workspace = request.app.state.workspace
    return space


Space = Annotated[Workspace, Depends(workspace_of)]
