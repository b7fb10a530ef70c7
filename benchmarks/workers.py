"""Independent splits, shared by a few processes, in order."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from record import progress

__all__ = ["each"]

T = TypeVar("T")


def each(
    task: Callable[..., list[T]], items: Sequence[Any], jobs: int, what: str, **settings: Any
) -> list[T]:
    """Run ``task(item, **settings)`` for every item and join what it returns.

    Processes are spawned, so that each reads the number of BLAS threads before it imports numpy.
    """
    call = functools.partial(task, **settings)
    found: list[T] = []
    if jobs <= 1:
        for done, item in enumerate(items, 1):
            found += call(item)
            progress(what, done, len(items))
        return found
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done, rows in enumerate(pool.map(call, items), 1):
            found += rows
            progress(what, done, len(items))
    return found
