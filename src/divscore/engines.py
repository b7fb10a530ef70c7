"""Where the passes run: blocks in, sketches out, in this thread or several.

Partial results are folded in the order of the blocks, so the answer does not depend on who computed what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control import ControlSet
from divscore.scan import Scan, scan
from divscore.sketch import Sketch, fold

__all__ = ["Coded", "sketch_blocks"]

Coded = tuple[Sequence[str], NDArray[np.intp]]


@dataclass(frozen=True)
class _Job:
    rows: NDArray[Any]
    owner: NDArray[np.intp] | None
    sketches: list[Sketch]
    scan: Future[Scan]


def sketch_blocks(
    blocks: Iterable[tuple[Any, Coded | None]],
    control: ControlSet,
    *,
    name: str = "collection",
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Sketch]:
    """Sketch every collection of a stream of blocks in one pass.

    A block is (vectors, (names, codes)): row i belongs to the collection ``names[codes[i]]``; or (vectors, None) if
    all rows belong to `name`.
    At most `workers` + 1 blocks are held at a time.
    """
    sketches: dict[str, Sketch] = {}
    waiting: deque[_Job] = deque()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for job in _jobs(blocks, control, name, seed, sketches, pool):
            waiting.append(job)
            if len(waiting) > workers:
                _finish(waiting.popleft(), progress)
        while waiting:
            _finish(waiting.popleft(), progress)
    return sketches


def _jobs(
    blocks: Iterable[tuple[Any, Coded | None]],
    control: ControlSet,
    name: str,
    seed: int,
    sketches: dict[str, Sketch],
    pool: ThreadPoolExecutor,
) -> Iterator[_Job]:
    seen = 0
    for vectors, coded in blocks:
        names: Sequence[str] = [name]
        owner = None
        if coded is not None:
            present, owner = np.unique(coded[1], return_inverse=True)
            names = [coded[0][at] for at in present]
        for each in names:
            if each not in sketches:
                sketches[each] = Sketch(control, seed=seed)
        mine = [sketches[each] for each in names]
        if not mine:
            continue
        rows = mine[0].checked(vectors)
        owner = owner if len(mine) > 1 else None
        scorer = mine[0].scorer
        future = pool.submit(scan, rows, scorer, owner, len(mine), seen=seen)
        seen += len(rows)
        yield _Job(rows, owner, mine, future)


def _finish(job: _Job, progress: Callable[[int], None] | None) -> None:
    fold(job.sketches, job.rows, job.owner, job.scan.result())
    if progress is not None:
        progress(len(job.rows))
