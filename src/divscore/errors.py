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

__all__ = [
    "ControlError",
    "DivscoreError",
    "FileError",
    "InputError",
    "MismatchError",
    "MissingExtraError",
    "VectorError",
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
