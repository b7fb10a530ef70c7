"""The errors that divscore raises, as one tree.

DivscoreError
├── InputError (also ValueError)           the input cannot be used
│   ├── VectorError                        vectors of the wrong shape, type or dimension
│   ├── ControlError                       labelled examples that cannot be used as a control set
│   ├── MismatchError                      two inputs that do not belong together
│   └── FileError                          a file that is missing, damaged or of the wrong format
└── MissingExtraError (also ImportError)   an optional dependency is not installed

CancelledError (BaseException) ends a thread if its result is no longer wanted; see `Cancel`.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_THREAD = threading.local()
# Options whose argument in Python has another name.
IN_PYTHON = {
    "force": "force=True",
    "format": "form=",
    "labelled-sample": "sample=",
    "no-cache": "cache=False",
    "strict": "strict=True",
    "verbose": "verbose=True",
}
OPTION = re.compile(
    r"'divscore [^']*'|--rename (?P<labels>[^\s=,]+=…(?:,[^\s=,]+=…)*)|--encoder (?P<encoder>\w+)"
    r"|--(?P<option>[a-z]+(?:-[a-z]+)*)"
)


class DivscoreError(Exception):
    """Any error that divscore raises on purpose."""


class InputError(DivscoreError, ValueError):
    """The input cannot be used; the message says what to use instead."""


class VectorError(InputError):
    """Vectors of the wrong shape, type or dimension."""


class ControlError(InputError):
    """Labelled examples that cannot be used as a control set."""


class MismatchError(InputError):
    """Two inputs that do not belong together, such as a sketch and another control set."""


class FileError(InputError):
    """A file that is missing, damaged or of the wrong format."""


class MissingExtraError(DivscoreError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtraError:
        """For something that needs the packages of an extra of divscore."""
        return cls(f"{what}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """How to install the packages of an extra, whether or not divscore itself came from a package index.

    >>> install_command("s3")
    'pip install s3fs'
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needed = requires("divscore") or []
    except PackageNotFoundError:  # run from its source, without being installed
        return f"pip install '.[{extra}]' where you cloned divscore"
    of_extra = re.compile(rf"([\w.-]+).*;.*\bextra == ['\"]{extra}['\"]")
    packages = [match[1] for match in map(of_extra.match, needed) if match]
    return " ".join(["pip install", *(packages or [f"'.[{extra}]' where you cloned divscore"])])


def python_words(text: str) -> str:
    """A message in the words of Python: options become arguments, but not inside a command.

    >>> python_words("leave out --max-change, or run 'divscore audit --by feed'")
    "leave out max_change=, or run 'divscore audit --by feed'"
    >>> python_words("give them with --rename 0=…,1=…")
    'give them with rename={0: "…", 1: "…"}'
    >>> python_words("leave out --encoder, or use --encoder ngrams")
    'leave out encoder=, or use encoder="ngrams"'
    """

    def argument(match: re.Match[str]) -> str:
        if labels := match["labels"]:
            pairs = [f'{_literal(pair.removesuffix("=…"))}: "…"' for pair in labels.split(",")]
            return f"rename={{{', '.join(pairs)}}}"
        if encoder := match["encoder"]:
            return f'encoder="{encoder}"'
        option = match["option"]
        return IN_PYTHON.get(option, f"{option.replace('-', '_')}=") if option else match[0]

    return OPTION.sub(argument, text)


def _literal(label: str) -> str:
    if label in ("true", "false"):
        return label.capitalize()
    return label if re.fullmatch(r"-?\d+(\.\d+)?", label) else f'"{label}"'


def warn_in_python(text: str) -> None:
    """Warn in the words of Python; the warning points to the line that called divscore."""
    package, level = f"{__name__.partition('.')[0]}.", 2
    for depth, (frame, _) in enumerate(walk_stack(sys._getframe())):
        if str(frame.f_globals.get("__name__")).startswith(package):
            level = depth + 2
    warnings.warn(python_words(text), stacklevel=level)


@contextmanager
def in_python() -> Iterator[None]:
    """Raise errors in the words of Python: everything below the public functions speaks those of the command line."""
    try:
        yield
    except DivscoreError as error:
        error.args = (python_words(str(error)),)
        raise


class CancelledError(BaseException):
    """The result of this thread is no longer wanted. Like KeyboardInterrupt, ``except Exception`` must not catch it."""


class Cancel:
    """Stops work in other threads: only the main thread receives Ctrl-C."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    def request(self) -> None:
        """Let everything that was started by `run` end at its next `check_cancelled`."""
        self._requested.set()

    def run(self, function: Callable[[T], R], task: T) -> R:
        """Call a function in this thread; once cancellation is requested, `check_cancelled` raises inside it."""
        outer = getattr(_THREAD, "requested", None)
        _THREAD.requested = self._requested
        try:
            check_cancelled()
            return function(task)
        finally:
            _THREAD.requested = outer


def check_cancelled() -> None:
    """Raise CancelledError if this thread was asked to stop; long loops call this regularly."""
    requested: threading.Event | None = getattr(_THREAD, "requested", None)
    if requested is not None and requested.is_set():
        raise CancelledError
