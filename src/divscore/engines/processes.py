"""Processes: an executor whose workers may be killed, or ended, at any moment; nobody waits for them then.

Python's own pool hands all results over in one pipe, and waits for ever for the rest of a result whose sender was
killed. Here every worker has a pipe of its own, and a thread that asks it: the end of either is an answer.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

__all__ = ["LostWorkerError", "Processes"]

R = TypeVar("R")
SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
END_SECONDS = 5.0  # that an idle worker may take to end
# Not forked: this process may have threads, such as the progress bar's.
_SPAWN = multiprocessing.get_context("spawn")


class LostWorkerError(BrokenExecutor):
    """The worker of this one task was killed; another takes its place, and other tasks are none the worse."""


class Processes(Executor):
    """Runs tasks in processes of their own, with one thread each for linear algebra.

    Workers start when there is work for them, do not outlive who started them, and leave Ctrl-C to it. The task that
    a killed worker had raises `LostWorkerError`.

    Parameters
    ----------
    workers : int
        At most so many processes at a time.
    begin : callable, optional
        What a worker calls first, with `arguments`.
    """

    def __init__(
        self, workers: int, begin: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
    ) -> None:
        self._begin = begin, arguments
        self._threads = ThreadPoolExecutor(workers)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers: set[_Worker] = set()
        self._changing = threading.Lock()  # held while a worker starts or ends
        self._ended = False

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Hand in a call for the next worker that is free."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and let the workers go when they are done; without `wait`, when this process ends."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            with self._changing:
                for worker in self._workers:
                    worker.pipe.close()  # all of them, before the first is waited for
                for worker in self._workers:
                    worker.dismiss()
                self._workers.clear()

    def end(self) -> None:
        """End all workers in the middle of their work."""
        with self._changing:
            self._ended = True
            for worker in self._workers:
                worker.process.kill()

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked = ForkingPickler.dumps((function, args, kwargs))
        worker = self._take()
        try:
            answer = worker.ask(asked)
        except (EOFError, OSError) as error:
            with self._changing:
                code = worker.dismiss()
                self._workers.discard(worker)
            raise LostWorkerError(f"a worker ended with code {code}") from error
        self._idle.put(worker)
        result, raised, trace = ForkingPickler.loads(answer)
        if raised is not None:
            raise raised from _ThereError(trace)
        return result

    def _take(self) -> _Worker:
        """An idle worker, or a new one: there are no more threads than workers may be."""
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        with self._changing:
            if self._ended:
                raise LostWorkerError("the workers were ended")
            # A process looks for its number of threads when it imports numpy, which may be the first thing it does.
            with _environment(dict.fromkeys(SINGLE_THREADED, "1")):
                worker = _Worker(*self._begin)
            self._workers.add(worker)
            return worker


class _ThereError(Exception):
    """Where in a worker an error was raised, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Worker:
    """A process and the one pipe to it."""

    def __init__(self, begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
        self.pipe, there = _SPAWN.Pipe()
        try:
            self.process: SpawnProcess = _SPAWN.Process(
                target=_serve, args=(there, begin, arguments), daemon=True
            )
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            there.close()

    def ask(self, asked: memoryview) -> bytes:
        """Send a call and wait for its outcome, or for the end of the worker."""
        self.pipe.send_bytes(asked)
        return self.pipe.recv_bytes()

    def dismiss(self) -> int | None:
        """Let an idle worker end, or see that one has ended; the code it ended with."""
        self.pipe.close()
        self.process.join(END_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def _serve(pipe: Connection, begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """In a worker: do what is asked, until the other end is closed."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_outcome(pipe.recv_bytes()))


def _outcome(asked: bytes) -> memoryview:
    try:
        function, args, kwargs = ForkingPickler.loads(asked)
        return ForkingPickler.dumps((function(*args, **kwargs), None, ""))
    except BaseException as error:
        trace = "".join(traceback.format_exception(error)).rstrip()
        try:
            answer = ForkingPickler.dumps((None, error, trace))
            ForkingPickler.loads(answer)
        except Exception:  # an error that does not travel
            answer = ForkingPickler.dumps((None, RuntimeError(f"{type(error).__name__}: {error}"), trace))
        return answer


def _end_with_parent() -> None:
    """One who was killed cannot tell its workers to stop in the middle of their work."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
