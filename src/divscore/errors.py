"""What can go wrong, as one tree.

DivscoreError
├── InputError (also ValueError)     what the caller gave cannot be used
│   ├── VectorError                  vectors of the wrong shape, type or dimension
│   ├── ControlError                 a labelled set that cannot calibrate anything
│   ├── MismatchError                things that do not belong together (sketch, control set, similarity)
│   └── FileError                    a file that is missing, damaged or of an unexpected form
└── MissingExtraError (also ImportError)   an optional part is not installed
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = [
    "ControlError",
    "DivscoreError",
    "FileError",
    "Halt",
    "HaltedError",
    "InputError",
    "MismatchError",
    "MissingExtraError",
    "VectorError",
    "heed",
]


class DivscoreError(Exception):
    """Any error that divscore raises on purpose."""


class InputError(DivscoreError, ValueError):
    """What the caller gave cannot be used; the message says what to give instead."""


class VectorError(InputError):
    """Vectors of the wrong shape, type or dimension."""


class ControlError(InputError):
    """A labelled set that cannot serve as control set."""


class MismatchError(InputError):
    """Two things that do not belong together, such as a sketch and another control set."""


class FileError(InputError):
    """A file that is missing, damaged or of an unexpected form."""


class MissingExtraError(DivscoreError, ImportError):
    """An optional part of divscore is not installed."""


# Halt: asks work in other threads to end, as the system tells the main thread alone of Ctrl-C.

T = TypeVar("T")
R = TypeVar("R")
_HERE = threading.local()


class HaltedError(BaseException):
    """The work of this thread is no longer wanted; like Ctrl-C, no error that anything on the way should catch."""


class Halt:
    """A request that any number of threads heed."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        """Let what was begun by `call` end at the next `heed`."""
        self._asked.set()

    def call(self, function: Callable[[T], R], task: T) -> R:
        """Call a function in this thread; `heed` raises in it from when it was asked to end."""
        before = getattr(_HERE, "asked", None)
        _HERE.asked = self._asked
        try:
            heed()
            return function(task)
        finally:
            _HERE.asked = before


def heed() -> None:
    """End here if the work of this thread is no longer wanted; long loops call this every now and then."""
    asked: threading.Event | None = getattr(_HERE, "asked", None)
    if asked is not None and asked.is_set():
        raise HaltedError
