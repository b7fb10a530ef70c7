"""Repetitions, shared by a few processes; who computes what makes no difference."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from divscore.jobs.processes import Processes
from divscore.paper.draws import Material
from divscore.paper.records import Batch

__all__ = ["batches", "repeat"]

T = TypeVar("T")

_material: Material | None = None


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
        for future in [pool.submit(call, task) for task in tasks]:
            found.append(future.result())
            advance(1)
    return found


@contextmanager
def _pool(material: Material, workers: int) -> Iterator[Processes]:
    with tempfile.TemporaryDirectory(prefix="divscore-") as folder:
        np.save(Path(folder) / "vectors.npy", material.vectors)
        columns = {f"column {name}": values for name, values in material.columns.items()}
        np.savez(Path(folder) / "columns.npz", allow_pickle=False, **columns)
        with Processes(workers, _open, (folder,)) as pool:
            try:
                yield pool
            except BaseException:
                pool.end()
                pool.shutdown(cancel_futures=True)
                raise


def _open(folder: str) -> None:
    """In a worker: map the material."""
    global _material
    vectors = np.load(Path(folder) / "vectors.npy", mmap_mode="r", allow_pickle=False)
    with np.load(Path(folder) / "columns.npz", allow_pickle=False) as columns:
        named = {name.removeprefix("column "): columns[name] for name in columns.files}
    _material = Material(vectors, named)


def _call(work: Callable[..., T], task: tuple[Any, ...]) -> T:
    assert _material is not None
    return work(_material, *task)
