"""Blocks in, sketches out, in this thread or several.

Blocks are folded in their order, so the answer does not depend on who computed what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.sketch.many import Sketches
from divscore.sketch.scan import Scan, scan

__all__ = ["Coded", "tabulate_blocks"]

Coded = tuple[Sequence[str], NDArray[np.intp]]


@dataclass(frozen=True)
class _Job:
    rows: NDArray[Any]
    owner: NDArray[np.intp] | None
    at: NDArray[np.intp]
    scan: Future[Scan]


def tabulate_blocks(
    blocks: Iterable[tuple[Any, Coded | None]],
    control: ControlSet,
    *,
    name: str = "collection",
    seed: int = 0,
    workers: int = 1,
    seen: int = 0,
    shared: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Sketches:
    """Sketch every collection of a stream of blocks in one pass.

    A block is (vectors, (names, codes)): row i belongs to the collection ``names[codes[i]]``; or (vectors, None) if
    all rows belong to `name`. `seen` rows of the same collections came before, in other passes. With `shared`,
    one sample of items serves the intervals of all collections.
    At most `workers` + 1 blocks are held at a time; one worker means this thread.
    """
    sketches = Sketches(control, seed=seed, shared=shared)
    waiting: deque[_Job] = deque()
    with ThreadPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        for job in _jobs(blocks, name, seen, sketches, pool):
            waiting.append(job)
            if pool is None or len(waiting) > workers:
                _finish(sketches, waiting.popleft(), progress)
        while waiting:
            _finish(sketches, waiting.popleft(), progress)
    return sketches


def _jobs(
    blocks: Iterable[tuple[Any, Coded | None]],
    name: str,
    seen: int,
    sketches: Sketches,
    pool: ThreadPoolExecutor | None,
) -> Iterator[_Job]:
    for vectors, coded in blocks:
        names: Sequence[str] = [name]
        owner = None
        if coded is not None:
            present, owner = _numbered(coded[1])
            names = coded[0] if len(present) == len(coded[0]) else [coded[0][at] for at in present.tolist()]
            if len(set(names)) < len(names):  # a dictionary may hold a text twice
                places = {each: at for at, each in enumerate(dict.fromkeys(names))}
                owner = np.array([places[each] for each in names], dtype=np.intp)[owner]
                names = list(places)
        if not names:
            continue
        rows = sketches.checked(vectors)
        owner = owner if len(names) > 1 else None
        task = partial(scan, rows, sketches.scorer, owner, len(names), seen=seen, shared=sketches.shared)
        future = pool.submit(task) if pool is not None else _done(task())
        seen += len(rows)
        yield _Job(rows, owner, sketches.positions(names), future)


def _numbered(codes: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Codes that occur, in order, and the position of each row's among them."""
    present = np.flatnonzero(np.bincount(codes))
    places = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.intp)
    places[present] = np.arange(len(present))
    return present, places[codes]


def _done(found: Scan) -> Future[Scan]:
    future: Future[Scan] = Future()
    future.set_result(found)
    return future


def _finish(sketches: Sketches, job: _Job, progress: Callable[[int], None] | None) -> None:
    sketches.fold(job.at, job.rows, job.owner, job.scan.result())
    if progress is not None:
        progress(len(job.rows))
