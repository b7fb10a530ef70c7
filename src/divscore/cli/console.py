"""The terminal: data on stdout, progress and messages on stderr, errors as one clean line."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from divscore.errors import DivscoreError, FileError
from divscore.files import refuse_url, write_errors, write_file
from divscore.text import FEW, brief, listed, printable, without_secrets

CODES = {"pass": 0, "fail": 1, "inconclusive": 3}  # exit codes of a gate by verdict
LINE_SECONDS = 30.0
LEAST_BAR, MOST_BAR = 5, 40  # columns
SPEED = 8  # columns reserved for a speed that grows
FIRST_SECONDS = 1.0  # before that, no speed is shown
LATELY, STEPS = 3.0, 8  # seconds that count for the speed, and at least so many steps
MOMENT = 0.1  # seconds at the beginning in which everything is done at once

_BARS: list[Any] = []  # consoles that show a bar now


class _Terminated(BaseException):
    """SIGTERM: like Ctrl-C, not an error that anything on the way should catch."""


@contextmanager
def boundary() -> Iterator[None]:
    """Turn errors of the library into one clean line, and let SIGTERM end a command as Ctrl-C does.

    Workers stop, and temporary and empty folders are removed.
    """

    def terminate(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the clean-up
        raise _Terminated

    # Only the main thread may handle signals.
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if main else None
    try:
        yield
    except (DivscoreError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError):
            text = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
        warn(f"divscore: {text}")
        raise click.exceptions.Exit(2) from error
    except (KeyboardInterrupt, _Terminated) as error:
        warn("stopped")
        number = signal.SIGTERM if isinstance(error, _Terminated) else signal.SIGINT
        raise click.exceptions.Exit(128 + number) from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def say(text: str) -> None:
    """Data: to standard output."""
    try:
        with write_errors("standard output"):
            click.echo(text)
    except FileError as error:
        if not isinstance(error.__cause__, BrokenPipeError):
            raise
        # The reader, such as `head`, has closed the pipe; the exit code stays the same.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def warn(text: str) -> None:
    """Talk: one line to standard error, in which names from the input cannot control the terminal.

    Others may read the logs, so passwords and signatures in addresses are not shown.
    """
    line = printable(without_secrets(text))
    if sys.stderr.isatty():
        line = "\n".join(
            textwrap.wrap(line, shutil.get_terminal_size().columns, break_on_hyphens=False) or [""]
        )
    if _BARS:
        _BARS[-1].print(line, markup=False, highlight=False, soft_wrap=True)  # above the bar
    else:
        click.echo(line, err=True)


def warn_of_gate(results: Sequence[tuple[str, str, str]], texts: Mapping[str, str], failed: str = "") -> None:
    """Name the collections that do not pass a gate; of many, the first ones and how many there are.

    `results` are names with a verdict and a reason, which may be empty; `texts` says what "fail" and "inconclusive"
    mean, `failed` what the last line says of failures.
    """
    names = {word: [name for name, own, _ in results if own == word] for word in texts}
    for name, word, reason in results:
        if word in names and len(names[word]) <= FEW:
            warn(f"{name}: {texts[word]}{reason}")
    many = [word for word in texts if len(names[word]) > FEW]
    for word in many:
        warn(f"{listed(names[word])}: {texts[word]}")
    if many and failed:
        counts = [
            f"{len(own):,}{of} {'is' if len(own) == 1 else 'are'}"
            for own, of in ((names["fail"], f" of {len(results):,} collections"), (names["inconclusive"], ""))
        ]
        warn(f"{counts[0]} {failed}; {counts[1]} inconclusive")


def write_json(path: str, text: str) -> None:
    """Write a result; '-' is standard output."""
    if path == "-":
        say(text)
        return
    write_file(path, f"{text}\n")
    warn(f"wrote {path}")


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar with rate and time left on a terminal, else a line every half minute; the function advances it."""
    speed = _Speed(time.monotonic())
    if not sys.stderr.isatty():
        reported = speed.start

        def advance(step: int) -> None:
            nonlocal reported
            now = time.monotonic()
            speed.advance(step, now)
            if now - reported < LINE_SECONDS:
                return
            reported = now
            rate = speed.rate(now)
            of = left = ""
            if total is not None:
                of = f" of {total:,}"
                left = f", {_left((total - speed.done) / rate)} left" if rate else ""
            warn(f"{printable(what)}: {speed.done:,}{of}, {_rate(rate)}{left}")

        yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Pace(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_pace(speed, total, time.monotonic()), style="progress.data.speed")

    console = Console(stderr=True)
    name = brief(what, max(MOST_BAR, console.width) // 4)
    longest = _Speed(0.0, total or 0)
    room = console.width - len(_pace(longest, total, 3600.0)) - len(name) - SPEED
    parts = (
        # A name may contain brackets, which are no markup.
        TextColumn("{task.description}", style="", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(max(LEAST_BAR, min(MOST_BAR, room))),
        Pace(table_column=Column(no_wrap=True)),
    )
    with Progress(*parts, console=console, transient=True) as bar:
        task = bar.add_task(name, total=total)
        _BARS.append(console)

        def move(step: int) -> None:
            speed.advance(step, time.monotonic())
            bar.advance(task, step)

        try:
            yield move
        finally:
            _BARS.remove(console)


class _Speed:
    """Items a second, lately: those that the cache or an earlier run had at once tell nothing about the others."""

    def __init__(self, start: float, done: int = 0) -> None:
        self.start, self.done = start, done
        self._first: float | None = None
        self._steps: deque[tuple[float, int]] = deque()  # when, and what was done then

    def advance(self, step: int, now: float) -> None:
        """Count some more items."""
        self.done += step
        while len(self._steps) > STEPS and self._steps[1][0] <= now - LATELY:
            self._steps.popleft()
        self._first = now if self._first is None else self._first
        if now - self._first < MOMENT:
            self._steps.clear()
        self._steps.append((now, self.done))

    def rate(self, now: float) -> float:
        """Items a second since the oldest step that counts, or since the start if there is only one."""
        since, before = next(iter(tuple(self._steps)), (self.start, 0))
        if before == self.done:
            since, before = self.start, 0
        return (self.done - before) / max(now - since, 1e-9)


def _pace(speed: _Speed, total: int | None, now: float) -> str:
    """What is done, speed, elapsed time and time left, as far as they are known."""
    seconds, done = now - speed.start, speed.done
    rate = speed.rate(now) if seconds >= FIRST_SECONDS else None
    of = left = ""
    if total is not None:
        of = f"/{total:,}"
        left = f", {timedelta(seconds=int(max(0.0, total - done) / rate))} left" if rate else ""
    return f"{done:,}{of} {_rate(rate)} {timedelta(seconds=int(seconds))} elapsed{left}"


def _left(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _rate(rate: float | None) -> str:
    if not rate:
        return "–/s"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


@contextmanager
def open_output(path: str, files: Sequence[str], inner: str = "") -> Iterator[Path]:
    """Create a folder before work that may take hours begins; warn about files in it that will be replaced."""
    from divscore.paper.results import output_folder

    refuse_url(path, "a folder of results")
    with output_folder(path, inner, files=files) as place:
        existing = [name for name in files if (place / name).exists()]
        if existing:
            warn(f"{place} already has {', '.join(existing)}; they are replaced when the run is done")
        yield place
