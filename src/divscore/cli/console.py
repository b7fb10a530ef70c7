"""What commands share with the terminal: clean errors, progress and warnings on stderr."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from divscore.errors import DivscoreError
from divscore.files import write_file
from divscore.paper.results import already_there, results_folder
from divscore.text import brief, printable, without_secrets

__all__ = [
    "clean_errors",
    "json_option",
    "open_output",
    "progress_bar",
    "say",
    "stops_cleanly",
    "warn",
    "write_json",
]


F = TypeVar("F", bound=Callable[..., Any])
LINE_SECONDS = 30.0
LEAST_BAR, MOST_BAR = 5, 40  # columns
SPEED = 8  # columns that a speed may grow by
FIRST_SECONDS = 1.0  # in which a speed is that of the first block, not of the work

json_option = click.option(
    "--json",
    "json_path",
    metavar="FILE|-",
    help="Write the result as JSON; '-' prints it instead of the table.",
)

_BARS: list[Any] = []  # consoles that show a bar at present


class CleanError(click.ClickException):
    """One line on stderr, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the message alone."""
        warn(f"divscore: {self.format_message()}")


def clean_errors(command: F) -> F:
    """Turn the library's errors into one clean line."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except DivscoreError as error:
            raise CleanError(str(error)) from error
        except KeyboardInterrupt:
            warn("stopped")
            raise click.exceptions.Exit(130) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise CleanError(f"{where}{error.strerror or error}") from error

    return wrapped  # type: ignore[return-value]


class _Stopped(BaseException):
    """Somebody asked the process to end; like Ctrl-C, no error that anything on the way should catch."""


def stops_cleanly(command: F) -> F:
    """Let SIGTERM end a command as Ctrl-C does: workers stop, and temporary and empty folders go."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another must not break off the tidying up
        raise _Stopped

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return command(*args, **kwargs)  # only the main thread may handle signals
        before = signal.signal(signal.SIGTERM, stop)
        try:
            return command(*args, **kwargs)
        except _Stopped:
            warn("stopped")
            raise click.exceptions.Exit(128 + signal.SIGTERM) from None
        finally:
            signal.signal(signal.SIGTERM, before)

    return wrapped  # type: ignore[return-value]


def say(text: str) -> None:
    """Data: to standard output."""
    try:
        click.echo(text)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has had enough; the exit code stays what it is.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def warn(text: str) -> None:
    """Talk: one line to standard error, in which names from the outside cannot command the terminal.

    Logs are read by others than who typed the command, so addresses are told without what opens them.
    """
    line = printable(without_secrets(text))
    if sys.stderr.isatty():
        line = "\n".join(
            textwrap.wrap(line, shutil.get_terminal_size().columns, break_on_hyphens=False) or [""]
        )
    if _BARS:
        _BARS[-1].print(line, markup=False, highlight=False, soft_wrap=True)  # above the bar, not into it
    else:
        click.echo(line, err=True)


def write_json(path: str, text: str) -> None:
    """Write a result; '-' is standard output."""
    if path == "-":
        say(text)
    else:
        write_file(path, f"{text}\n")


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar with rate and time left on stderr while a person watches, or else a line now and then.

    The yielded function advances it.
    """
    if not sys.stderr.isatty():
        yield _Lines(what, total).advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class Name(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.description)

    class Pace(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_pace(task.completed, task.total, task.elapsed or 0.0), style="progress.data.speed")

    console = Console(stderr=True)
    name = brief(what, max(MOST_BAR, console.width) // 4)
    room = console.width - len(_pace(total or 0, total, 3600.0)) - len(name) - SPEED
    parts = (
        Name(table_column=Column(no_wrap=True)),
        BarColumn(max(LEAST_BAR, min(MOST_BAR, room))),
        Pace(table_column=Column(no_wrap=True)),
    )
    with Progress(*parts, console=console, transient=True) as bar:
        task = bar.add_task(name, total=total)
        _BARS.append(console)
        try:
            yield lambda step: bar.advance(task, step)
        finally:
            _BARS.remove(console)


class _Lines:
    """Progress for a log file: a line every half minute."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.total, self.done = what, total, 0
        self.start = self.told = time.monotonic()

    def advance(self, step: int) -> None:
        self.done += step
        now = time.monotonic()
        if now - self.told < LINE_SECONDS:
            return
        self.told = now
        rate = self.done / (now - self.start)
        of = "" if self.total is None else f" of {self.total:,}"
        left = (
            "" if self.total is None or not rate else f", {(self.total - self.done) / rate / 60:.0f} min left"
        )
        warn(f"{printable(self.what)}: {self.done:,}{of}, {_rate(rate)}{left}")


def _pace(done: float, total: float | None, seconds: float) -> str:
    """Speed since the start, time gone and time left; in the first second, and without a total, less is known."""
    rate = done / seconds if seconds >= FIRST_SECONDS else None
    left = "" if total is None or not rate else f", {_clock(max(0.0, total - done) / rate)} left"
    of = "" if total is None else f"/{total:,.0f}"
    return f"{done:,.0f}{of} {_rate(rate)} {_clock(seconds)} gone{left}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))


def _rate(rate: float | None) -> str:
    if not rate:
        return "–/s"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


# `--out`: a folder that is found fit before a command's work, which may take hours, begins.


@contextmanager
def open_output(path: str, files: Sequence[str], *inner: str) -> Iterator[Path]:
    """Make ready a folder for some files, and folders in it; say which of the files are there and will be replaced."""
    with results_folder(path, *inner) as place:
        there = already_there(place, files)
        if there:
            warn(f"{place} has {', '.join(there)} already; replaced when the run is done")
        yield place
