"""Tasks for worker processes; in a file of their own, so that workers load nothing else."""

from __future__ import annotations

import os
from pathlib import Path


def die_once(flag: str, task: int) -> int:
    if task == 3 and not os.path.exists(flag):
        Path(flag).touch()
        os._exit(1)
    return task


def die_always(task: int) -> int:
    if task == 2:
        os._exit(1)
    return task


def threads_of_linear_algebra(_: int) -> tuple[str | None, int]:
    return os.environ.get("OPENBLAS_NUM_THREADS"), os.getpid()
