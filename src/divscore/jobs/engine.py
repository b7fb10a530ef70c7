"""Engine: the one ordered executor. Tasks in, results out in the same order, from any kind of worker.

Engines: a cluster or local workers, whichever a call has.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, Self, TypeVar

from divscore.errors import Cancel, DivscoreError
from divscore.jobs.processes import ProcessPool, WorkerDiedError

T = TypeVar("T")
R = TypeVar("R")
FIRST = 8  # tasks in flight until the size of a large result is known
RESULT_BYTES = 1 << 30  # of large results that wait for their turn
MEMORY_HINT = "Is there enough memory? Try --workers 1 to see what happens"


class DeadlyTaskError(DivscoreError):
    """A task on which several workers died, one after the other."""


DIED = (DeadlyTaskError, WorkerDiedError)


class Engine:
    """Runs tasks in this thread, in threads, in processes, or on the workers of another Executor.

    A context manager that stops its own workers at the end: after their work, or at once if the end is an exception.

    >>> with Engine(2) as engine:
    ...     [result for task, result in engine.map(abs, [-3, 2, -1])]
    [3, 2, 1]

    One worker is this thread, or as many as the `executor` has: somebody else's workers, which are not shut down here.
    `processes` are for work that holds Python's lock.
    """

    attempts = 3  # for a task that dies with its worker; the last attempt runs alone

    def __init__(
        self, workers: int = 1, *, processes: bool = False, executor: Executor | None = None
    ) -> None:
        self.workers = max(1, workers)
        self.processes = processes
        self._executor = executor
        self._own: ThreadPoolExecutor | ProcessPool | None = None
        self._cancel = Cancel()
        self.own = executor is None  # the workers belong to this engine and end with it
        self.inline = self.own and self.workers == 1  # all work is done in this thread
        self.local = self.own and (self.inline or not processes)  # in this process
        if executor is not None and self.workers == 1:
            self.workers = int(getattr(executor, "_max_workers", 0)) or os.cpu_count() or 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abandon()
        self.close()

    def close(self) -> None:
        """Stop this engine's own workers when they are done."""
        if self._own is not None:
            self._own.shutdown(wait=True, cancel_futures=True)
            self._own = None

    def abandon(self) -> None:
        """Stop this engine's own workers at once: kill processes, cancel threads at their next `check_cancelled`."""
        if isinstance(self._own, ProcessPool):
            self._own.kill()
        self._cancel.request()  # a thread cannot be killed
        Engine.close(self)
        self._cancel = Cancel()

    def map(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        known: Callable[[T], R | None] = lambda task: None,
        killed: Callable[[T, str], R] | None = None,
        large: bool = False,
    ) -> Iterator[tuple[T, R]]:
        """Yield every task with its result, in the order of the tasks.

        At most ``2 · workers + 2`` tasks are in flight, so memory stays bounded however many there are. An exception
        of `function` is raised when its task's turn comes. A task that died with its worker is tried again, in the
        end alone, when all other tasks in flight are done: so only a task that kills workers by itself is blamed.
        Messages name a task by its ``str``.

        `known` returns the result of a task that needs no worker, or None. `killed` returns the result of a task on
        which several workers died, from the task and the reason; without it such a task is an error. Where results may
        be `large`, their ``nbytes`` limit how many are in flight.
        """
        if self.inline:
            for task in tasks:
                result = known(task)
                yield task, function(task) if result is None else result
            return
        source = iter(tasks)
        work = self._prepare(function)
        in_flight: deque[tuple[T, Future[R]]] = deque()
        most = 2 * self.workers + 2
        # The window bounds memory: results that wait for their turn are at most this many.
        window = min(FIRST, most) if large else most
        try:
            while True:
                for task in islice(source, max(0, window - len(in_flight))):
                    result = known(task)
                    future: Future[R] = Future() if result is not None else self._submit(work, task)
                    if result is not None:
                        future.set_result(result)
                    in_flight.append((task, future))
                if not in_flight:
                    return
                task = in_flight[0][0]
                result = self._first(work, in_flight, killed)
                if large:
                    window = max(2, min(most, RESULT_BYTES // max(1, int(getattr(result, "nbytes", 0)))))
                in_flight.popleft()
                yield task, result
        except BrokenExecutor as error:
            raise DivscoreError(f"all workers died; the last task was {task}. {MEMORY_HINT}") from error
        finally:
            for _, future in in_flight:
                future.cancel()

    def _first(
        self, work: Any, in_flight: deque[tuple[T, Future[R]]], killed: Callable[[T, str], R] | None
    ) -> R:
        """Wait for the result of the first task; try it again if its worker died."""
        task, future = in_flight[0]
        for attempt in range(1, self.attempts + 1):
            try:
                return self._wait(work, task, future)
            except DIED as error:
                died = error
            except CancelledError as error:
                raise DivscoreError(
                    f"the workers dropped {task}: were they stopped? Start them, then run the command again"
                ) from error
            if attempt == self.attempts:
                break
            if attempt + 1 == self.attempts:
                # Alone, so that no other task can be what kills the worker.
                for other, waiting in islice(in_flight, 1, None):
                    with suppress(*DIED):
                        self._wait(work, other, waiting)
            future = self._submit(work, task)
        if not isinstance(died, DeadlyTaskError):
            died = DeadlyTaskError(
                f"{task}: {self.attempts} workers died on it, one after the other ({died}). {MEMORY_HINT}"
            )
        if killed is None:
            raise died
        return killed(task, str(died))

    def _prepare(self, function: Callable[[T], R]) -> Any:
        """Return what is submitted for every task of one `map`."""
        return function

    def _submit(self, work: Any, task: T) -> Future[Any]:
        if self._executor is not None:
            return self._executor.submit(work, task)
        if self._own is None:
            self._own = (ProcessPool if self.processes else ThreadPoolExecutor)(self.workers)
        if self.processes:
            return self._own.submit(work, task)
        return self._own.submit(self._cancel.run, work, task)

    def _wait(self, work: Any, task: object, future: Future[R]) -> R:
        return future.result()


class Engines:
    """The workers of one call, started when first needed: a cluster, or else threads or processes.

    Connects to a cluster at once: a wrong address is an error before anything else is done.
    """

    def __init__(
        self, workers: int = 1, address: str | None = None, notify: Callable[[str], None] = lambda line: None
    ) -> None:
        self.cluster: Engine | None = None
        if address is not None:
            from divscore.jobs.cluster import ClusterEngine

            self.cluster = ClusterEngine(address, notify=notify)
        self.workers = workers if self.cluster is None else self.cluster.workers
        self._started: dict[bool, Engine] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(at_once=kind is not None)

    def close(self, at_once: bool = False) -> None:
        """Stop the workers: after their work, or `at_once`; a cluster is only disconnected."""
        for engine in (self.cluster, *self._started.values()):
            if engine is not None:
                if at_once:
                    engine.abandon()
                engine.close()
        self._started.clear()

    def start(self, *, processes: bool) -> Engine:
        """The cluster, or else processes for work that holds Python's lock, or threads."""
        if self.cluster is not None:
            return self.cluster
        processes = processes and self.workers > 1
        return self._started.setdefault(processes, Engine(self.workers, processes=processes))
