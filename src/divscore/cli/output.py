"""`--out`: a folder that is found fit before a command's work, which may take hours, begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from divscore.cli.console import warn
from divscore.paper.folder import already_there, results_folder

__all__ = ["open_output"]


@contextmanager
def open_output(path: str, files: Sequence[str], *inner: str) -> Iterator[Path]:
    """Make ready a folder for some files, and folders in it; say which of the files are there and will be replaced."""
    with results_folder(path, *inner) as place:
        there = already_there(place, files)
        if there:
            warn(f"{place} has {', '.join(there)} already; replaced when the run is done")
        yield place
