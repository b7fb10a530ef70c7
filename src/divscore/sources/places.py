"""Location: where a file is, how to open it, and how to speak of it when it is damaged."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import platform
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from divscore.errors import DivscoreError, FileError, MissingExtraError
from divscore.sketch.missing import MissingPart
from divscore.text import public, without_secrets

__all__ = [
    "FORMS",
    "Files",
    "Location",
    "NoRowsError",
    "UnseenError",
    "anywhere",
    "file_in",
    "filesystem_of",
    "folder_values",
    "form_of",
    "is_pattern",
    "over_http",
    "quoted",
    "reading_of",
    "unseen",
]


# Addresses: what lies elsewhere, by which protocol, and how it is reached.

WILDCARDS = frozenset("*?[")
EXTRAS = {"s3": "s3", "s3a": "s3"}
READ_AHEAD = 4 << 20


def is_pattern(text: str) -> bool:
    """Whether a path stands for several files; in an address of the web a ``?`` begins its query."""
    return bool(WILDCARDS & set(text.partition("?")[0] if over_http(text) else text))


def filesystem_of(url: str) -> tuple[Any, str]:
    """The remote file system of an address, and the path there."""
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(url)
    except ImportError as error:
        protocol = url.removeprefix("simplecache::").partition("://")[0]
        extra = EXTRAS.get(protocol)
        install = f"pip install 'divscore[{extra}]'" if extra else f"install what fsspec asks for ({error})"
        raise MissingExtraError(
            f"{public(url)} cannot be opened: {protocol}:// needs a package; {install}"
        ) from error
    except Exception as error:  # whatever the many kinds of file systems raise over their settings
        said = without_secrets(" ".join(str(error).split()))[:200] or type(error).__name__
        raise FileError(f"{public(url)} cannot be opened: {said}") from error
    return filesystem, path


def reading_of(suffix: str) -> dict[str, Any]:
    """How fsspec reads ahead: archives are read in many small steps, the others in steps of megabytes."""
    return (
        {"cache_type": "readahead", "block_size": READ_AHEAD} if suffix == ".npz" else {"cache_type": "none"}
    )


def over_http(text: str) -> bool:
    """Whether this is an address of the web."""
    return text.startswith(("http://", "https://"))


def file_in(url: str) -> PurePath:
    """The path in an address of the web, without its query; any other as it is."""
    return PurePath(urlsplit(url).path if over_http(url) else url)


# RuntimeError and NotImplementedError are zipfile's words for encrypted and unknown members.
DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
WHOLE = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".text", ".lst"})
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # as Hive names a folder without one


class NoRowsError(FileError):
    """A file that is whole and has no rows: nothing among several, and an error alone."""


class UnseenError(FileError):
    """A file that the one who planned the work can read, and a worker cannot."""


@dataclass(frozen=True)
class Location:
    """A local file, a file that fsspec can open (``s3://…``), or standard input."""

    path: str
    url: str
    form: str = ""  # taken instead of the suffix, where someone said what the file is

    @property
    def label(self) -> str:
        """What messages call the file."""
        return "standard input" if self.path == "-" else public(self.path)

    @property
    def name(self) -> str:
        """The file's name without folder and suffix."""
        return "stdin" if self.path == "-" else file_in(self.url).stem

    @property
    def suffix(self) -> str:
        """The file's suffix in small letters, with its dot."""
        return self.form or file_in(self.url).suffix.lower()

    @property
    def remote(self) -> bool:
        """Whether the file has to be fetched, so that it cannot be memory-mapped."""
        return "://" in self.url

    def open(self) -> BinaryIO:
        """Open for reading bytes."""
        if not self.remote:
            return open(self.url, "rb")
        # Tables of text are read several times from the start, so they are copied here once. The others are read in
        # ranges that their readers choose, and reading ahead would fetch columns that nobody asked for.
        # What fsspec opens is not quite a binary stream: readline takes no limit there.
        whole, options = ("simplecache::", {}) if self.suffix in WHOLE else ("", reading_of(self.suffix))
        filesystem, path = filesystem_of(f"{whole}{self.url}")
        return cast(BinaryIO, io.BufferedReader(filesystem.open(path, "rb", **options)))

    def size(self) -> int:
        """Bytes of the file."""
        if not self.remote:
            return os.path.getsize(self.url)
        filesystem, path = filesystem_of(self.url)
        with self.reading("a remote file"):
            return int(filesystem.size(path) or 0)

    @property
    def anywhere(self) -> Location:
        """The same file for a process that works in another folder."""
        return self if self.remote else replace(self, url=os.path.abspath(self.url))

    def release(self) -> None:
        """Remove the copy of a remote table, which would otherwise stay as long as the process."""
        if self.remote and self.suffix in WHOLE:
            filesystem, path = filesystem_of(f"simplecache::{self.url}")
            copy = filesystem._check_file(path)
            if copy:
                os.unlink(copy)

    def check(self) -> None:
        """Refuse what is missing, a folder, or empty."""
        if self.remote:
            self._check_remote()
            return
        if not os.path.exists(self.url):
            raise FileError(
                f"{self.label} does not exist; check the path (quote a pattern such as 'data/*.npy')"
            )
        if os.path.isdir(self.url):
            raise FileError(f"{self.label} is a folder, expected a file of vectors; name the file inside it")
        if os.path.getsize(self.url) == 0 and os.path.isfile(self.url):
            raise self._empty()

    def exists(self) -> bool:
        """Whether there is such a file."""
        if not self.remote:
            return os.path.isfile(self.url)
        filesystem, path = filesystem_of(self.url)
        with self.reading("a remote file"):
            return bool(filesystem.exists(path))

    def _check_remote(self) -> None:
        if not self.exists():
            raise FileError(f"{self.label} does not exist; check the address and your access to it")
        filesystem, path = filesystem_of(self.url)
        with self.reading("a remote file"):
            if filesystem.size(path) == 0:
                raise self._empty()

    def _empty(self) -> FileError:
        """A table of text without a byte has no rows; a file of any other format is not whole."""
        kind = NoRowsError if self.suffix in WHOLE else FileError
        return kind(f"{self.label} is empty (0 bytes); make or fetch it again")

    @contextlib.contextmanager
    def reading(self, kind: str) -> Iterator[None]:
        """Turn whatever a reading library raises into a FileError that names this file."""
        try:
            yield
        except DivscoreError:
            raise
        except PermissionError as error:
            mend = "check your keys" if self.remote else "change its permissions"
            raise FileError(f"{self.label} may not be read by this user; {mend}") from error
        except Exception as error:
            said = without_secrets(" ".join(str(error).split()))[:200] or type(error).__name__
            if self.remote and _in_transit(error):
                raise FileError(
                    f"{self.label} cannot be fetched ({said}); check the address, your keys and the network"
                ) from error
            if not _is_damage(error):
                raise
            raise FileError(
                f"{self.label} cannot be read as {kind}: it is truncated, damaged or of another format "
                f"({said}); make or fetch it again"
            ) from error


def anywhere(path: str | None) -> Any:
    """A path that is there, for a process that works in another folder; any other name stays as it is."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def unseen(path: str) -> str:
    """What is said of a file that is not there for a worker."""
    return (
        f"{path} is not there on {platform.node()}; every worker must find the files under the same path: use a shared "
        "folder or an object store such as s3://…"
    )


def quoted(names: Any) -> str:
    """List names for a message."""
    return ", ".join(f"'{name}'" for name in names) or "none"


def _is_damage(error: Exception) -> bool:
    return isinstance(error, DAMAGE) or type(error).__module__.startswith("pyarrow")


def _in_transit(error: Exception) -> bool:
    """Whether an error speaks of the way to a file and not of what is in it; pyarrow's have no number."""
    if isinstance(error, OSError):
        return error.errno is not None or isinstance(
            error, ConnectionError | TimeoutError | FileNotFoundError
        )
    return not _is_damage(error)


def folder_values(location: Location) -> dict[str, str]:
    """Names and values that the folders of a file spell out.

    >>> folder_values(Location("", "data/country=SA/day=2026-01-05/part-0.parquet"))
    {'country': 'SA', 'day': '2026-01-05'}
    """
    found = {}
    for folder in location.url.replace("\\", "/").split("/")[:-1]:
        name, mark, value = folder.partition("=")
        if name and mark:
            value = unquote(value)
            found[unquote(name)] = "" if value == NO_VALUE else value
    return found


# Files: those that make one source, and those that had to be left out of it.


@dataclass(frozen=True)
class Files:
    """What a path, a pattern or a folder names, and what is known from the start to be missing."""

    found: Sequence[Location]
    missing: tuple[MissingPart, ...] = ()


# What standard input holds, told from its first lines.

# What --format takes → the suffix it stands for.
FORMS = {
    "csv": ".csv",
    "tsv": ".tsv",
    "jsonl": ".jsonl",
    "lines": ".txt",
    "parquet": ".parquet",
    "arrow": ".arrow",
}
LINES = 50
LONGEST_HEADING = 40
# A single column under one of these headings is a table; under anything else the first line is an item.
HEADINGS = frozenset({"text", "tweet", "post", "sentence", "name", "names", "image", "path", "file", "title"})


def form_of(head: bytes) -> str:
    """Suffix of the format that these first bytes seem to be: JSON lines, CSV, TSV or lines of text.

    >>> form_of(b'{"text": "a"}'), form_of(b"id,text" + bytes([10]) + b"1,Anna"), form_of(b"Hello, world")
    ('.jsonl', '.csv', '.txt')
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().decode("utf-8", "replace")
    if text.startswith("{"):
        return ".jsonl"
    lines = text.splitlines()[:LINES]
    for suffix, delimiter in ((".tsv", "\t"), (".csv", ",")):
        if _is_table(lines, delimiter):
            return suffix
    return ".csv" if lines and lines[0].strip().lower() in HEADINGS else ".txt"


def _is_table(lines: list[str], delimiter: str) -> bool:
    """Whether the first line reads like a header and the next ones have as many cells."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return False
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    header = [cell.strip() for cell in rows[0]]
    named = all(header) and len(set(header)) == len(header) and max(map(len, header)) <= LONGEST_HEADING
    fitting = sum(len(row) == len(header) for row in rows[1:])
    return named and 2 * fitting >= len(rows) - 1
