"""Repetitions, shared by a few processes; who computes what makes no difference."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from divscore.experiments.draws import Material
from divscore.experiments.records import Batch

__all__ = ["batches", "repeat"]

T = TypeVar("T")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_material: Material | None = None
_sending = threading.Lock()  # held whenever a worker is not at work


def batches(
    work: Callable[..., Batch],
    material: Material,
    tasks: Sequence[tuple[Any, ...]],
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> tuple[Batch, dict[str, Any]]:
    """Repeat, put the batches together, and say how long it took."""
    start = time.perf_counter()
    batch = Batch.joined(repeat(work, material, tasks, workers=workers, progress=progress))
    return batch, {"seconds": round(time.perf_counter() - start, 1), "workers": workers}


def repeat(
    work: Callable[..., T],
    material: Material,
    tasks: Sequence[tuple[Any, ...]],
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[T]:
    """Call ``work(material, *task)`` for every task and return what it returns, in the order of the tasks.

    `work` takes its randomness from the task alone. Processes are spawned with one BLAS thread each and map the
    same vectors from a temporary file.
    """
    advance = progress or (lambda step: None)
    found = []
    if workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            found.append(work(material, *task))
            advance(1)
        return found
    call = functools.partial(_call, work)
    with _pool(material, min(workers, len(tasks))) as pool:
        # Not by map(): where it is left early it cancels what the pool, losing its workers, is about to mark as failed.
        for future in [pool.submit(call, task) for task in tasks]:
            found.append(future.result())
            advance(1)
    return found


@contextmanager
def _pool(material: Material, workers: int) -> Iterator[ProcessPoolExecutor]:
    before = {name: os.environ.get(name) for name in THREADS}
    with tempfile.TemporaryDirectory(prefix="divscore-") as folder:
        np.save(Path(folder) / "vectors.npy", material.vectors)
        columns = {f"column {name}": values for name, values in material.columns.items()}
        np.savez(Path(folder) / "columns.npz", allow_pickle=False, **columns)
        context = multiprocessing.get_context("spawn")
        # Nothing is ever sent: workers notice when this end is closed, by us or by our own end, however that comes.
        watched, lifeline = context.Pipe(duplex=False)
        # A process reads the number of threads when it imports numpy, so it must find it in its environment.
        os.environ.update(dict.fromkeys(THREADS, "1"))
        try:
            with ProcessPoolExecutor(workers, context, initializer=_open, initargs=(folder, watched)) as pool:
                try:
                    yield pool
                except BaseException:
                    lifeline.close()
                    pool.shutdown(cancel_futures=True)
                    raise
        finally:
            lifeline.close()
            watched.close()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _open(folder: str, watched: Connection) -> None:
    """In a worker: map the material; Ctrl-C and SIGTERM are the parent's business."""
    global _material
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _sending.acquire()
    threading.Thread(target=_end_when_told, args=(watched,), daemon=True).start()
    vectors = np.load(Path(folder) / "vectors.npy", mmap_mode="r", allow_pickle=False)
    with np.load(Path(folder) / "columns.npz", allow_pickle=False) as columns:
        named = {name.removeprefix("column "): columns[name] for name in columns.files}
    _material = Material(vectors, named)


def _call(work: Callable[..., T], task: tuple[Any, ...]) -> T:
    assert _material is not None
    _sending.release()
    try:
        return work(_material, *task)
    finally:
        _sending.acquire()


def _end_when_told(watched: Connection) -> None:
    """End in the middle of the work, but, while the parent lives, not of a message: it would wait for the rest."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([watched])
    while not _sending.acquire(timeout=0.1):
        if not parent.is_alive():
            break
    os._exit(1)
