"""Processes: an executor whose workers may be killed, or ended, at any moment; nobody waits for them then.

Python's own pool hands all results over in one pipe, and waits for ever for the rest of a result whose sender was
killed. Here every worker has a pipe of its own, and a thread that asks it: the end of either is an answer.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import queue
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from multiprocessing.resource_tracker import ensure_running
from typing import Any, TypeVar

__all__ = ["LostWorkerError", "Processes"]

R = TypeVar("R")
SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
END_SECONDS = 5.0  # that an idle worker may take to end
TRIES = 3  # of handing a task to a worker that turns out to be dead
# Not forked: this process may have threads, such as the progress bar's.
_SPAWN = multiprocessing.get_context("spawn")
_STARTING = threading.Lock()  # the environment is everybody's


class LostWorkerError(BrokenExecutor):
    """The worker of this one task was killed; another takes its place, and other tasks are none the worse."""


class Processes(Executor):
    """Runs tasks in processes of their own, with one thread each for linear algebra.

    Workers start when there is work for them, do not outlive who started them, and leave Ctrl-C to it. The task that
    a killed worker was at raises `LostWorkerError`.

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
        _POOLS.add(self)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Hand in a call for the next worker that is free."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and let the workers go when they are done; without `wait`, when this process ends."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self.dismiss()

    def dismiss(self) -> None:
        """Let idle workers go, when there is no more work."""
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
        worker = self._ask(asked)
        try:
            answer = worker.pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise LostWorkerError(self._bury(worker)) from error
        worker.proved = True
        self._idle.put(worker)
        result, raised, trace = ForkingPickler.loads(answer)
        if raised is not None:
            raise raised from _ThereError(trace)
        return result

    def _ask(self, asked: memoryview) -> _Worker:
        """Send a call to a worker; one that died while it was idle never began with it."""
        for again in range(TRIES):
            worker = self._take()
            try:
                worker.pipe.send_bytes(asked)
                return worker
            except OSError as error:
                why = self._bury(worker)
                if again + 1 == TRIES:
                    raise LostWorkerError(why) from error
        raise AssertionError

    def _take(self) -> _Worker:
        """An idle worker, or a new one: there are no more threads than workers may be."""
        with suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                with self._changing:
                    alive = worker.process.exitcode is None
                if alive:
                    return worker
                self._bury(worker)
        with self._changing:
            if self._ended:
                raise LostWorkerError("the workers were ended")
            worker = _Worker(*self._begin)
            self._workers.add(worker)
            return worker

    def _bury(self, worker: _Worker) -> str:
        """Forget a worker that has died; how it did."""
        with self._changing:
            code = worker.dismiss()
            self._workers.discard(worker)
        return f"a worker ended with code {code}{'' if worker.proved else ' before it did anything'}"


# Workers of pools that nobody shut down must not be waited for when this process ends.
_POOLS: weakref.WeakSet[Processes] = weakref.WeakSet()


@atexit.register
def _dismiss_all() -> None:
    for pool in list(_POOLS):
        pool.dismiss()


class _ThereError(Exception):
    """Where in a worker an error was raised, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Worker:
    """A process and the one pipe to it."""

    def __init__(self, begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
        self.proved = False  # that it can work at all
        self.pipe, there = _SPAWN.Pipe()
        self.process: SpawnProcess = _SPAWN.Process(target=_serve, args=(there, begin, arguments))
        try:
            # A process looks for its number of threads when it imports numpy, which may be the first thing it does.
            with _STARTING, _environment(dict.fromkeys(SINGLE_THREADED, "1")), _undisturbed():
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            there.close()

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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
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
        except BaseException:  # an error that does not travel
            told = traceback.format_exception_only(error)[-1].strip()
            answer = ForkingPickler.dumps((None, RuntimeError(told), trace))
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
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What starts here is not interrupted by Ctrl-C until it says so: it would tell of it at length."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    ensure_running()  # or else it would end the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
