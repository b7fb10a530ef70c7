"""The folder of results: found fit to write in before the work begins, and filled file by file when it is done."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from divscore.errors import FileError

__all__ = ["already_there", "results_folder", "write_texts"]


@contextmanager
def results_folder(path: str | os.PathLike[str], *inner: str) -> Iterator[Path]:
    """Make a folder, and folders in it, and try whether it takes files; what fails here fails before hours of work.

    Folders that were made here and are still empty go again if the work fails.
    """
    place = Path(path)
    made: list[Path] = []
    try:
        for folder in (place, *(place / name for name in inner)):
            _make(folder, made)
            _try(folder)
        yield place
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise


def already_there(place: Path, names: Sequence[str]) -> list[str]:
    """Those of some files that the folder has, and that will be replaced; a folder in the place of one is an error."""
    for name in names:
        if (place / name).is_dir():
            raise FileError(
                f"{place / name} is a folder, where a file of that name is to be written; move it"
            )
    return [name for name in names if (place / name).exists()]


def write_texts(place: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files into a folder, every one whole or not at all."""
    for name, text in texts.items():
        partial = place / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(place / name)
    return [place / name for name in texts]


def _make(folder: Path, made: list[Path]) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    nearest = missing[-1].parent if missing else folder
    if not nearest.is_dir():
        raise FileError(f"{nearest} is a file; name a folder")
    for each in reversed(missing):
        try:
            each.mkdir()
            made.append(each)
        except OSError as error:
            raise FileError(
                f"cannot make the folder {each} ({error.strerror}); name one where you may write"
            ) from error


def _try(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"cannot write into {folder} ({error.strerror}); name a folder where you may write"
        ) from error
