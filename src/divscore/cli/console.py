"""What commands share with the terminal: clean errors, progress and warnings on stderr."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from divscore.errors import DivscoreError

__all__ = ["clean_errors", "progress_bar", "say", "warn"]

F = TypeVar("F", bound=Callable[..., Any])


class CleanError(click.ClickException):
    """One line on stderr, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the message alone."""
        click.echo(f"divscore: {self.format_message()}", err=True)


def clean_errors(command: F) -> F:
    """Turn the library's errors into one clean line."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except DivscoreError as error:
            raise CleanError(str(error)) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise CleanError(f"{where}{error.strerror or error}") from error

    return wrapped  # type: ignore[return-value]


def say(text: str) -> None:
    """Data: to standard output."""
    click.echo(text)


def warn(text: str) -> None:
    """Talk: to standard error."""
    click.echo(text, err=True)


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while a person watches; the yielded function advances it."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.advance(task, step)
