"""Tasks: work that takes longer than a request, one task at a time, with progress and a way to stop it."""

from __future__ import annotations

import logging
import os
import queue
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from divscore.errors import Cancel, CancelledError, DivscoreError, check_cancelled
from divscore.jobs.pool import Progress, Warn

KEPT = 200  # finished tasks that can still be asked for
MOST_WAITING = 100
NICE = 10
State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
LOG = logging.getLogger("divscore.web")


@dataclass
class Task:
    """One piece of work: what it does, how far it is, and its result or error.

    `request` is the path and the body of the request that started it; whoever sends that again starts it again.
    """

    kind: str
    work: Work
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    request: tuple[str, dict[str, Any]] | None = None
    state: State = "queued"
    done: int = 0
    total: int | None = None
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    result: dict[str, Any] | None = None
    error: DivscoreError | Exception | None = None
    cancel: Cancel = field(default_factory=Cancel)
    version: int = 0  # grows with every change, for those who wait for one

    @property
    def finished(self) -> bool:
        """Whether nothing more will change."""
        return self.state in ("done", "failed", "cancelled", "interrupted")

    def warn(self, text: str) -> None:
        """Keep a message for the person who started it; what it says about caches is for those who see the terminal."""
        if text.startswith("the cache "):
            LOG.warning(text)
            return
        self.warnings.append(text)
        self.version += 1

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show how far a step is, as `jobs` reports it."""
        self.message, self.done, self.total = what, 0, total
        self.version += 1

        def advance(step: int) -> None:
            check_cancelled()
            self.done += step
            self.version += 1

        yield advance


Work = Callable[[Progress, Warn], dict[str, Any]]


def _give_way() -> None:
    """Let requests go first: somebody who labels waits for pictures, while the collection is encoded.

    On Linux the priority is the thread's, and what it starts inherits it; elsewhere it would be the whole server's.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class Tasks:
    """A queue of tasks and the one thread that works on it: two that encode at once would each take twice as long."""

    def __init__(
        self, begun: Callable[[Task], None] = lambda _: None, ended: Callable[[Task], None] = lambda _: None
    ) -> None:
        """`begun` and `ended` hear of every task; not of the end of those that the end of the server interrupts."""
        self._begun, self._ended = begun, ended
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._waiting: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="divscore-tasks", daemon=True)
        self._thread.start()

    def start(self, kind: str, work: Work, request: tuple[str, dict[str, Any]] | None = None) -> Task:
        """Put work in the queue."""
        task = Task(kind, work, request=request)
        with self._lock:
            if sum(each.state == "queued" for each in self._tasks.values()) >= MOST_WAITING:
                raise DivscoreError(f"{MOST_WAITING} jobs are waiting; wait until some are finished")
            self._tasks[task.id] = task
            finished = [name for name, each in self._tasks.items() if each.finished]
            for name in finished[: max(0, len(finished) - KEPT)]:
                del self._tasks[name]
        try:
            self._begun(task)
        except BaseException:
            self.forget(task)
            raise
        self._waiting.put(task)
        return task

    def remember(self, task: Task) -> None:
        """Show a task of an earlier server."""
        with self._lock:
            self._tasks[task.id] = task

    def forget(self, task: Task) -> None:
        """Do not show a task any more."""
        with self._lock:
            self._tasks.pop(task.id, None)

    def get(self, name: str) -> Task | None:
        """A task by its id."""
        return self._tasks.get(name)

    def list(self) -> list[Task]:
        """All tasks that are known, the newest last."""
        with self._lock:
            return [*self._tasks.values()]

    def stop(self, task: Task) -> None:
        """Cancel a task: at once if it waits, at its next step if it runs."""
        task.cancel.request()
        with self._lock:
            waiting = task.state == "queued"
            if waiting:
                task.state = "cancelled"
                task.version += 1
        if waiting:
            self._end(task)

    def _end(self, task: Task) -> None:
        if not (self.closed.is_set() and task.state == "cancelled"):
            self._ended(task)

    def close(self) -> None:
        """Stop everything; those who wait for a task see that it was cancelled."""
        self.closed.set()
        for task in self.list():
            if not task.finished:
                self.stop(task)
        self._waiting.put(None)
        self._thread.join(timeout=5.0)

    def _work(self) -> None:
        _give_way()
        while (task := self._waiting.get()) is not None:
            with self._lock:
                if task.state != "queued":
                    continue
                task.state = "running"
                task.version += 1
            try:
                task.result = task.cancel.run(lambda each: each.work(each.progress, each.warn), task)
                task.state = "done"
            except CancelledError:
                task.state = "cancelled"
            except DivscoreError as error:
                task.error, task.state = error, "failed"
            except Exception as error:  # a task that fails must not stop the others
                LOG.exception("a job failed")
                task.error, task.state = error, "failed"
            task.version += 1
            self._end(task)
