"""Processes that a process started, as /proc tells of them."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """Of a process, by whichever of its threads they were started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            found += [int(each) for each in path.read_text().split()]
    return found


def alive(pid: int) -> bool:
    """Whether a process is there, and more than an entry in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
