"""ProcessPool: an executor with workers that can be killed at any moment; nobody waits for a dead one.

Python's own pool sends all results through one pipe and waits forever for the rest of a result when its sender is
killed. Here every worker has its own pipe and a thread that talks to it: the end of either is an answer.
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

from divscore.blas import one_thread

R = TypeVar("R")
CLOSE_SECONDS = 5.0  # for an idle worker to end
ATTEMPTS = 3  # to give a call to a worker that turns out to be dead
# Not forked: this process may have threads, such as the progress bar's.
_SPAWN = multiprocessing.get_context("spawn")


class WorkerDiedError(BrokenExecutor):
    """The worker of this call died; a new worker takes its place, and other calls are not affected."""


class ProcessPool(Executor):
    """Runs calls in processes.

    Workers start when there is work for them, end with the process that started them, and ignore Ctrl-C. The call
    that a killed worker was running raises `WorkerDiedError`.
    """

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers)  # one waits for each worker
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers: set[_Worker] = set()
        self._changing = threading.Lock()  # while a worker starts or ends
        self._killed = False
        _POOLS.add(self)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Queue a call for the next free worker."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls and end the workers when they are done; without `wait`, when this process ends."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self.close_idle()

    def close_idle(self) -> None:
        """End the workers; all must be idle."""
        with self._changing:
            for worker in self._workers:
                worker.pipe.close()  # all of them, before waiting for the first
            for worker in self._workers:
                worker.close()
            self._workers.clear()

    def kill(self) -> None:
        """Kill all workers, whatever they are doing."""
        with self._changing:
            self._killed = True
            for worker in self._workers:
                worker.process.kill()

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        worker = self._start(ForkingPickler.dumps((function, args, kwargs)))
        try:
            answer = worker.pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerDiedError(self._remove(worker)) from error
        self._idle.put(worker)
        result, raised, trace = ForkingPickler.loads(answer)
        if raised is not None:
            raise raised from _WorkerTraceback(trace)
        return result

    def _start(self, call: memoryview) -> _Worker:
        """Send a call to a worker and wait until it begins; one that died while idle never does."""
        for _ in range(ATTEMPTS):
            worker = self._free_worker()
            try:
                worker.pipe.send_bytes(call)
                worker.pipe.recv_bytes()
                return worker
            except (EOFError, OSError) as error:
                died, reason = error, self._remove(worker)
        raise WorkerDiedError(f"{reason} before it did anything") from died

    def _free_worker(self) -> _Worker:
        """Return an idle worker or a new one; there are never more threads than workers allowed."""
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        with self._changing:
            if self._killed:
                raise WorkerDiedError("the workers were killed")
            worker = _Worker()
            self._workers.add(worker)
            return worker

    def _remove(self, worker: _Worker) -> str:
        """Forget a dead worker and say how it ended."""
        with self._changing:
            code = worker.close()
            self._workers.discard(worker)
        return f"a worker ended with code {code}"


# Nobody waits at the end of this process for the workers of a pool that was never shut down.
_POOLS: weakref.WeakSet[ProcessPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close_idle()


class _WorkerTraceback(Exception):  # noqa: N818 - it is not raised, only shown as a cause
    """Where in a worker an error was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Worker:
    """A process and the one pipe to it."""

    def __init__(self) -> None:
        self.pipe, there = _SPAWN.Pipe()
        self.process: SpawnProcess = _SPAWN.Process(target=_serve, args=(there,))
        try:
            with _interrupts_blocked():
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            there.close()

    def close(self) -> int | None:
        """End an idle or dead worker and return its exit code."""
        self.pipe.close()
        self.process.join(CLOSE_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def _serve(pipe: Connection) -> None:
    """In a worker: run calls until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            call = pipe.recv_bytes()
            pipe.send_bytes(b"")  # it begins
            pipe.send_bytes(_answer(call))


def _answer(call: bytes) -> memoryview:
    try:
        function, args, kwargs = ForkingPickler.loads(call)
        with one_thread:  # workers share the cores already
            result = function(*args, **kwargs)
        return ForkingPickler.dumps((result, None, ""))
    except BaseException as error:
        trace = "".join(traceback.format_exception(error)).rstrip()
        try:
            answer = ForkingPickler.dumps((None, error, trace))
            ForkingPickler.loads(answer)
        except BaseException:  # the error itself cannot be pickled
            message = traceback.format_exception_only(error)[-1].strip()
            answer = ForkingPickler.dumps((None, RuntimeError(message), trace))
        return answer


def _end_with_parent() -> None:
    """A parent that was killed cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process that starts here ignores Ctrl-C until it can handle it; it would print a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    ensure_running()  # starting the resource tracker later would end the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
