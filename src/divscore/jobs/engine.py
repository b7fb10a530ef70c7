"""Engine: tasks in, results out in the order of the tasks, whoever works on them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
)
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from divscore.errors import Cancel, DivscoreError
from divscore.jobs.processes import LostWorkerError, Processes

__all__ = ["Engine", "KilledWorkersError"]

T = TypeVar("T")
R = TypeVar("R")
RESTARTS = 2
FIRST = 8  # tasks handed in while nothing is known of the size of their results, where it may be large
HELD_BYTES = 1 << 30  # of results that wait for their turn


class KilledWorkersError(DivscoreError):
    """A task over which several workers died, one after the other."""


KILLED = (KilledWorkersError, LostWorkerError)


class Engine:
    """Runs tasks in this thread, in threads, in processes, or wherever a given Executor runs them.

    At most ``2 · workers + 2`` tasks are handed in beyond those whose results were taken, so memory stays
    bounded however many tasks there are. A context manager that lets its own workers go at the end, and at once
    where that end is an exception.

    >>> with Engine(2) as engine:
    ...     [result for task, result in engine.run(abs, [-3, 2, -1])]
    [3, 2, 1]

    Parameters
    ----------
    workers : int
        How many at work; one means this thread, or as many as the given executor is known to have.
    processes : bool
        Processes in place of threads, for work that holds Python's lock.
    executor : concurrent.futures.Executor, optional
        Someone else's workers; they are not shut down here.
    """

    def __init__(
        self, workers: int = 1, *, processes: bool = False, executor: Executor | None = None
    ) -> None:
        self.workers = max(1, workers)
        self.processes = processes
        self._given = executor
        self._own: Executor | None = None
        self._cancel = Cancel()
        if executor is not None and self.workers == 1:
            self.workers = int(getattr(executor, "_max_workers", 0)) or os.cpu_count() or 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
        self.close()

    def close(self) -> None:
        """Let this engine's own workers go."""
        self._let_go()

    def abandon(self) -> None:
        """End this engine's workers: processes at once, threads at their next `check_cancelled`."""
        if isinstance(self._own, Processes):
            self._own.end()
        self._cancel.request()
        self._let_go()
        self._cancel = Cancel()

    @property
    def inline(self) -> bool:
        """Whether all work is done in this thread."""
        return self.workers == 1 and self._given is None

    @property
    def local(self) -> bool:
        """Whether all work is done by threads of this process."""
        return self._given is None and not self.processes

    @property
    def own(self) -> bool:
        """Whether the workers are this engine's own, and end when it abandons them."""
        return self._given is None

    @property
    def executor(self) -> Executor:
        """The workers, started when first asked for."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = self._start()
        return self._own

    def run(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        large: bool = False,
        killed: Callable[[T, str], R] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """Yield every task with its result, in the order of the tasks.

        What `function` raises is raised here, in its turn. Tasks that were lost with a worker are handed in again.

        Parameters
        ----------
        function : callable
            What is done with a task, by whichever worker.
        tasks : iterable
            What is told of a task in messages is its text.
        large : bool
            Results may be large: their ``nbytes`` decide how many are on the way at a time.
        killed : callable
            Gives the result of a task over which several workers died, from the task and the reason; an error
            without it.
        """
        if self.inline:
            for task in tasks:
                yield task, function(task)
            return
        source = iter(tasks)
        waiting: deque[tuple[T, Future[R]]] = deque()
        most = 2 * self.workers + 2
        window = min(FIRST, most) if large else most
        try:
            while True:
                for task in islice(source, max(0, window - len(waiting))):
                    waiting.append((task, self._hand_in(function, task)))
                if not waiting:
                    return
                try:
                    result = self._first(function, waiting)
                except KILLED:
                    result = self._alone(function, waiting, killed)
                if large:
                    window = max(2, min(most, HELD_BYTES // max(1, int(getattr(result, "nbytes", 0)))))
                yield waiting.popleft()[0], result
        finally:
            for _, future in waiting:
                future.cancel()

    def _alone(
        self,
        function: Callable[[T], R],
        waiting: deque[tuple[T, Future[R]]],
        killed: Callable[[T, str], R] | None,
    ) -> R:
        """Try a task once more when the others are done: all that a dead worker had before it were blamed alike."""
        for other, future in islice(waiting, 1, None):
            with suppress(*KILLED):
                self.result(future, other)
        task = waiting[0][0]
        try:
            return self.result(self._hand_in(function, task), task)
        except KILLED as error:
            if not isinstance(error, KilledWorkersError):
                error = KilledWorkersError(
                    f"{task}: {RESTARTS + 2} workers died over it, one after the other ({error}); is there enough "
                    "memory? Try --workers 1, which shows what happens"
                )
            if killed is None:
                raise error from None
            return killed(task, str(error))

    def result(self, future: Future[R], what: object) -> R:
        """Wait for what was handed to this engine's executor; `what` it was is for messages."""
        return future.result()

    def _submit(self, function: Callable[[T], R], task: T) -> Future[R]:
        if self.local:
            return self.executor.submit(self._cancel.run, function, task)
        return self.executor.submit(function, task)

    def _hand_in(self, function: Callable[[T], R], task: T) -> Future[R]:
        """Submit; where workers died meanwhile, the task is one of those that were lost with them."""
        try:
            return self._submit(function, task)
        except BrokenExecutor as error:
            lost: Future[R] = Future()
            lost.set_exception(error)
            return lost

    def _first(self, function: Callable[[T], R], waiting: deque[tuple[T, Future[R]]]) -> R:
        """Result of the first of the waiting tasks; one that went down with its worker is started again."""
        task, future = waiting[0]
        for again in range(RESTARTS + 1):
            try:
                return self.result(future, task)
            except CancelledError as error:
                raise DivscoreError(
                    f"the workers dropped {task}: were they stopped? Start them, and the command, again"
                ) from error
            except LostWorkerError:
                if again == RESTARTS:
                    raise
                future = self._hand_in(function, task)
            except BrokenExecutor as error:
                raise DivscoreError(
                    f"the workers died, the last of them over {task}; is there enough memory? "
                    "Try --workers 1, which shows what happens"
                ) from error
        raise AssertionError

    def _let_go(self) -> None:
        if self._own is not None:
            self._own.shutdown(wait=True, cancel_futures=True)
            self._own = None

    def _start(self) -> Executor:
        if not self.processes:
            return ThreadPoolExecutor(self.workers)
        return Processes(self.workers)
