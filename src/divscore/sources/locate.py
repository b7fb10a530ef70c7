"""Find what a user names: one file, the files of a pattern, standard input; and tell a folder."""

from __future__ import annotations

import glob
import os
import sys
import tempfile
import weakref
from typing import Any

from divscore.errors import FileError
from divscore.sources.address import file_in, filesystem_of, is_pattern, over_http
from divscore.sources.files import Files
from divscore.sources.manifest import missing_beside
from divscore.sources.places import Location
from divscore.sources.sniff import form_of
from divscore.text import public

__all__ = ["is_folder", "locate", "locate_all", "locate_files"]

COPIED_AT_ONCE = 1 << 20


def locate(path: str | os.PathLike[str], form: str = "") -> Location:
    """Find one file; ``-`` is standard input, kept in a temporary file so that it can be read twice."""
    text = os.fspath(path)
    if text == "-":
        return _keep_standard_input(form)
    location = Location(text, text, form)
    location.check()
    return location


def locate_all(pattern: str | os.PathLike[str], form: str = "") -> list[Location]:
    """Find the files of a pattern in sorted order, or the one file of a plain path."""
    text = os.fspath(pattern)
    if not _is_pattern(text):
        return [locate(text, form)]
    if "://" in text:
        filesystem, path = filesystem_of(text)
        with Location(text, text).reading("a remote folder"):
            found = [filesystem.unstrip_protocol(name) for name in filesystem.glob(path)]
    else:
        found = [name for name in glob.glob(text, recursive=True) if os.path.isfile(name)]
    if not found:
        raise FileError(f"no file matches '{public(text)}'; check the pattern, and the folder it starts from")
    # Not checked yet: a bad file is one among others, not the end.
    return [Location(name, name, form) for name in sorted(found)]


def locate_files(pattern: str | os.PathLike[str], form: str = "") -> Files:
    """The same, and what is missing from the folders in which a pattern found parts that `embed` wrote."""
    found = locate_all(pattern, form)
    return Files(found, missing_beside(found) if _is_pattern(os.fspath(pattern)) else ())


def _is_pattern(text: str) -> bool:
    return is_pattern(text) and not os.path.exists(text)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether this is a folder, here or on a remote file system."""
    text = os.fspath(path)
    if "://" not in text:
        return os.path.isdir(text)
    if is_pattern(text):
        return False
    if over_http(text):
        # To be asked for its links, a file would be fetched whole.
        return file_in(text).name == "" or text.partition("?")[0].endswith("/")
    filesystem, inside = filesystem_of(text)
    with Location(text, text).reading("a remote folder"):
        return bool(filesystem.isdir(inside))


_KEPT: dict[str, tuple[Any, Location]] = {}


def _keep_standard_input(form: str) -> Location:
    stream = sys.stdin.buffer
    earlier = _KEPT.get("-")
    if earlier is not None and earlier[0] is stream:
        return earlier[1]  # it can be read once only, and was
    head = stream.read(COPIED_AT_ONCE)
    if not head.strip():
        raise FileError(
            "standard input is empty; expected CSV with a header line, JSON lines, or lines of text"
        )
    handle, url = tempfile.mkstemp(prefix="divscore-", suffix=form or form_of(head))
    with os.fdopen(handle, "wb") as copy:
        while head:
            copy.write(head)
            head = stream.read(COPIED_AT_ONCE)
    location = Location("-", url)
    weakref.finalize(location, os.unlink, url)
    _KEPT["-"] = stream, location
    return location
