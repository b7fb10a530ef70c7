"""Engine: tasks in, results out in the order of the tasks, whoever works on them."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from divscore.errors import DivscoreError

__all__ = ["Engine"]

T = TypeVar("T")
R = TypeVar("R")
RESTARTS = 3
SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Engine:
    """Runs tasks in this thread, in threads, in processes, or wherever a given Executor runs them.

    At most ``2 · workers + 2`` tasks are handed in beyond those whose results were taken, so memory stays
    bounded however many tasks there are. A context manager that lets its own workers go at the end.

    >>> with Engine(2) as engine:
    ...     [result for task, result in engine.run(abs, [-3, 2, -1])]
    [3, 2, 1]

    Parameters
    ----------
    workers : int
        How many at work; one means this thread.
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
        if executor is not None:
            self.workers = int(getattr(executor, "_max_workers", 0)) or max(self.workers, os.cpu_count() or 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let this engine's own workers go."""
        if self._own is not None:
            self._own.shutdown(wait=True, cancel_futures=True)
            self._own = None

    @property
    def inline(self) -> bool:
        """Whether all work is done in this thread."""
        return self.workers == 1 and self._given is None

    @property
    def local(self) -> bool:
        """Whether all work is done by threads of this process."""
        return self._given is None and not self.processes

    @property
    def executor(self) -> Executor:
        """The workers, started when first asked for."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = self._start()
        return self._own

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Yield every task with its result, in the order of the tasks.

        What `function` raises is raised here, in its turn. Tasks that were lost with a worker are handed in again.
        """
        if self.inline:
            for task in tasks:
                yield task, function(task)
            return
        source = iter(tasks)
        waiting: deque[tuple[T, Future[R]]] = deque()
        try:
            while True:
                for task in source:
                    waiting.append((task, self._submit(function, task)))
                    if len(waiting) >= 2 * self.workers + 2:
                        break
                if not waiting:
                    return
                result = self._first(function, waiting)
                yield waiting.popleft()[0], result
        finally:
            for _, future in waiting:
                future.cancel()

    def _submit(self, function: Callable[[T], R], task: T) -> Future[R]:
        return self.executor.submit(function, task)

    def _first(self, function: Callable[[T], R], waiting: deque[tuple[T, Future[R]]]) -> R:
        """Result of the first of the waiting tasks; those that went down with a worker are started again."""
        for again in range(RESTARTS + 1):
            try:
                return self._result(waiting[0][1])
            except CancelledError as error:
                raise DivscoreError(
                    f"the workers dropped {waiting[0][0]}: were they stopped? Start them, and the command, again"
                ) from error
            except BrokenExecutor as error:
                if self._given is not None or again == RESTARTS:
                    raise DivscoreError(
                        f"workers died {again + 1} times, the last time over {waiting[0][0]}; is there enough memory? "
                        "Try --workers 1, which shows what happens"
                    ) from error
                self.close()
                lost = [at for at, (_, future) in enumerate(waiting) if not _finished(future)]
                for at in lost:
                    waiting[at] = waiting[at][0], self._submit(function, waiting[at][0])
        raise AssertionError

    def _result(self, future: Future[R]) -> R:
        return future.result()

    def _start(self) -> Executor:
        if not self.processes:
            return ThreadPoolExecutor(self.workers)
        # Not forked: this process may have threads, such as the progress bar's.
        context = multiprocessing.get_context("spawn")
        with _environment(dict.fromkeys(SINGLE_THREADED, "1")):
            pool = ProcessPoolExecutor(self.workers, context, _start_worker)
            # Workers inherit the environment when they start, which is at the first tasks.
            for future in [pool.submit(os.getpid) for _ in range(self.workers)]:
                future.result()
        return pool


def _finished(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    """In a worker process: Ctrl-C is the parent's business, and a parent that was killed is not outlived."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
