"""Pools of processes that let go of their work at once, and do not outlive who started them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

__all__ = ["end_processes", "start_processes"]

SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def start_processes(workers: int) -> ProcessPoolExecutor:
    """Start a pool, with one thread each for linear algebra."""
    # Not forked: this process may have threads, such as the progress bar's.
    context = multiprocessing.get_context("spawn")
    with _environment(dict.fromkeys(SINGLE_THREADED, "1")):
        pool = ProcessPoolExecutor(workers, context, _start_worker)
        try:
            # Workers inherit the environment when they start, which is at the first tasks.
            for future in [pool.submit(os.getpid) for _ in range(workers)]:
                future.result()
        except BaseException:
            end_processes(pool)
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return pool


def end_processes(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool, which offers no such thing before Python 3.14."""
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.terminate()


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
