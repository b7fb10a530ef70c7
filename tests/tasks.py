"""Tasks for worker processes; in a file of their own, so that workers load nothing else."""

from __future__ import annotations

import os
import time
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


def die_alone(flag: str, task: int) -> int:
    """Die at the second task, when the first is done, and only once."""
    if task == 1 and not os.path.exists(flag):
        time.sleep(0.2)
        Path(flag).touch()
        os._exit(1)
    return task


def last_for_ever(folder: str, task: int) -> int:
    if task:
        Path(folder, str(os.getpid())).touch()
        time.sleep(30)
    return task
