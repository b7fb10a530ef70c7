"""Folders of pictures, and pictures named by a pattern."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from divscore.errors import FileError
from divscore.sources.address import filesystem_of
from divscore.sources.items import Items, ItemSource, plain
from divscore.sources.pictures import IMAGE_SUFFIXES
from divscore.sources.places import Location, quoted
from divscore.text import public

__all__ = ["FolderItems", "PictureFiles", "is_picture"]

RUN = 1024
COLUMNS = {"file": "text", "folder": "text"}


def is_picture(name: str) -> bool:
    """Whether a file's suffix is that of a picture."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


class FolderItems(ItemSource):
    """Every picture in a folder and the folders below it, in the order of their names.

    Each folder is entered once, so that links that lead back do no harm; hidden files and folders are left out.
    The column ``folder`` is where a picture lies inside the folder, ``file`` its path there.
    """

    def __init__(self, path: str, extra: Sequence[str] = ()) -> None:
        super().__init__(public(path), _folder_name(path), "image", COLUMNS)
        self._root = path
        self.extra = _checked(extra, self.path)
        self.other: Counter[str] = Counter()  # files that are no pictures, by suffix
        self.rows = sum(1 for _ in self._files())
        if not self.rows:
            files = self.other.total()
            seen = f"; of its {files:,} files none is" if files else "; it has no files that are"
            raise FileError(
                f"{self.path} holds no pictures{seen} a picture by its suffix ({', '.join(sorted(IMAGE_SUFFIXES))}); "
                "for a table or a file of vectors name the file itself"
            )

    def __iter__(self) -> Iterator[Items]:
        run: list[tuple[str, str]] = []
        for each in self._files():
            run.append(each)
            if len(run) == RUN:
                yield self._items(run)
                run = []
        if run:
            yield self._items(run)

    def _items(self, run: list[tuple[str, str]]) -> Items:
        names = [plain(inside) for _, inside in run]
        folders = [str(PurePosixPath(name).parent) for name in names]
        columns = {"file": names, "folder": [self.name if each == "." else each for each in folders]}
        return Items([address for address, _ in run], names, {name: columns[name] for name in self.extra})

    def _files(self) -> Iterator[tuple[str, str]]:
        """Address of each picture, and its path inside the folder with forward slashes."""
        self.other, self.problems = Counter(), []
        for address, inside in _remote(self._root) if "://" in self._root else self._local():
            if is_picture(inside):
                yield address, inside
            else:
                self.other[os.path.splitext(inside)[1].lower()] += 1

    def _local(self) -> Iterator[tuple[str, str]]:
        entered: set[tuple[int, int]] = set()
        waiting = [(self._root, "")]
        while waiting:
            folder, inside = waiting.pop()
            try:
                about = os.stat(folder)
                if (about.st_dev, about.st_ino) in entered:
                    continue
                entered.add((about.st_dev, about.st_ino))
                with os.scandir(folder) as listing:
                    entries = sorted((e for e in listing if not e.name.startswith(".")), key=lambda e: e.name)
            except OSError as error:
                if not inside:
                    raise FileError(f"{plain(folder)} could not be listed: {error.strerror}") from error
                self.problems.append(f"{plain(folder)} could not be listed: {error.strerror}")
                continue
            below = [(entry.path, f"{inside}{entry.name}/") for entry in entries if _is_folder(entry)]
            yield from ((e.path, inside + e.name) for e in entries if not _is_folder(e))
            waiting.extend(reversed(below))


class PictureFiles(ItemSource):
    """Pictures that were named one by one or by a pattern."""

    def __init__(self, pattern: str, found: Sequence[Location], extra: Sequence[str] = ()) -> None:
        shown = public(pattern)
        super().__init__(shown, found[0].name if len(found) == 1 else shown, "image", COLUMNS)
        self.extra = _checked(extra, shown)
        self.found = found
        self.rows = len(found)

    def __iter__(self) -> Iterator[Items]:
        for start in range(0, len(self.found), RUN):
            run = [location.url for location in self.found[start : start + RUN]]
            names = [plain(public(address)) for address in run]
            columns = {"file": names, "folder": [str(PurePosixPath(name).parent) for name in names]}
            yield Items(run, names, {name: columns[name] for name in self.extra})


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _remote(url: str) -> Iterator[tuple[str, str]]:
    filesystem, root = filesystem_of(url)
    with Location(url, url).reading("a remote folder"):
        found: list[Any] = sorted(filesystem.find(root))
    for path in found:
        inside = path.removeprefix(root.rstrip("/")).lstrip("/")
        if not any(part.startswith(".") for part in inside.split("/")):
            yield filesystem.unstrip_protocol(path), inside


def _folder_name(path: str) -> str:
    text = public(path).rstrip("/") if "://" in path else os.path.abspath(path)
    return plain(os.path.basename(text)) or public(path)


def _checked(extra: Sequence[str], path: str) -> tuple[str, ...]:
    unknown = [name for name in extra if name not in COLUMNS]
    if unknown:
        raise FileError(
            f"{path} is a folder of pictures and has no column {quoted(unknown[:1])}; it has 'folder'"
        )
    return tuple(extra)
