"""Tasks for worker processes; in a file of their own, so that workers load nothing else."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy  # noqa: F401 - it brings its BLAS
from threadpoolctl import threadpool_info


def die_once(flag: str, task: int) -> int:
    if task == 3 and not os.path.exists(flag):
        Path(flag).touch()
        os._exit(1)
    return task


def die_always(task: int) -> int:
    if task == 2:
        os._exit(1)
    return task


def die_answering(flag: str, task: int) -> bytes:
    """Die in the middle of the second answer, and only once."""
    if task == 1 and not os.path.exists(flag):
        Path(flag).touch()
        Connection._send = _send_half  # type: ignore[attr-defined]
    return bytes([task]) * 3_000_000


def _send_half(pipe: Connection, message: bytes) -> None:
    os.write(pipe.fileno(), message[: len(message) // 2])
    os._exit(1)


class OddError(Exception):
    """An error that can be sent and not be received."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def fail_oddly(_: int) -> int:
    raise OddError("this ", "and that")


def threads_of_linear_algebra(_: int) -> tuple[set[int], int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}, os.getpid()


def last_for_ever(folder: str, task: int) -> int:
    if task:
        Path(folder, str(os.getpid())).touch()
        time.sleep(300)
    return task
