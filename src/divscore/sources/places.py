"""Places: where a file is, how to open it, and what to call it in messages."""

from __future__ import annotations

import codecs
import contextlib
import csv
import errno
import glob
import io
import os
import platform
import struct
import sys
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from divscore.errors import DivscoreError, FileError
from divscore.files import COPY, PathLike, filesystem_of, reason, sha256
from divscore.text import public

WILDCARDS = frozenset("*?[")
READ_AHEAD = 4 << 20
COPIED_AT_ONCE = 1 << 20
# What readers raise for damaged files; zipfile raises RuntimeError for encrypted and unknown members.
DAMAGE = (OSError, ValueError, EOFError, KeyError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a disk; nothing that reads raises them
WHOLE = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".text", ".lst"})  # text, read from its start
CODECS = {".gz": "gzip", ".zst": "zstd"}  # by which pyarrow unpacks text
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # how compressed files begin
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What stores say about the content or time of a file, the most reliable first.
MARKS = (
    *("etag", "content-md5", "md5hash", "generation"),
    *("lastmodified", "last_modified", "mtime", "updated", "created"),
)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # as Hive names a folder without one


class NoRowsError(FileError):
    """A file that is complete and has no rows: nothing among several, and an error alone."""


class UnseenError(FileError):
    """A file that the planning process can read and a worker cannot."""


@dataclass(frozen=True)
class Location:
    """A local file, a file that fsspec can open (``s3://…``), standard input, or an object in memory."""

    path: str
    url: str
    form: str = ""  # used instead of the suffix, where --format says what the file is

    @classmethod
    def in_memory_of(cls, thing: object) -> Location:
        """For an object that is no file."""
        kind = type(thing).__name__
        return cls({"ndarray": "the array", "generator": "the blocks"}.get(kind, f"the {kind}"), "")

    @property
    def in_memory(self) -> bool:
        """Whether there is no file."""
        return not self.url

    @property
    def label(self) -> str:
        """Its name in messages."""
        return "standard input" if self.path == "-" else public(self.path)

    @property
    def name(self) -> str:
        """The file's name without folder and suffix."""
        if self.in_memory:
            return "collection"
        stem = _path_in(self.url).stem
        return "stdin" if self.path == "-" else PurePath(stem).stem if self.codec else stem

    @property
    def suffix(self) -> str:
        """The file's suffix in small letters, with its dot; of compressed text the one before: .csv of ``a.csv.gz``."""
        path = _path_in(self.url)
        return self.form or (PurePath(path.stem) if self.codec else path).suffix.lower()

    @property
    def codec(self) -> str | None:
        """How text is compressed; None for any other file."""
        path = _path_in(self.url)
        text = (self.form or PurePath(path.stem).suffix.lower()) in WHOLE
        return CODECS.get(path.suffix.lower()) if text else None

    @property
    def recoded(self) -> bool:
        """Whether `open` reads other bytes than the file has: text that is compressed, or UTF-16."""
        if self.suffix not in WHOLE or self.codec:
            return self.codec is not None
        with self._stored() as stream:
            return stream.read(2) in UTF16

    @property
    def remote(self) -> bool:
        """Whether the file has to be fetched, so that it cannot be memory-mapped."""
        return "://" in self.url

    @property
    def anywhere(self) -> Location:
        """The same file for a process that works in another folder."""
        return self if self.remote or self.in_memory else replace(self, url=os.path.abspath(self.url))

    def open(self) -> BinaryIO:
        """Open for reading bytes; text is unpacked and becomes UTF-8 as it is read, so it never takes much memory."""
        stream = self._stored()
        if self.codec:
            import pyarrow as pa

            unpacked = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), self.codec)
            stream = cast(BinaryIO, io.BufferedReader(unpacked, COPIED_AT_ONCE))
        if self.suffix in WHOLE and cast(io.BufferedReader, stream).peek(2)[:2] in UTF16:
            stream = cast(BinaryIO, io.BufferedReader(_Utf16(stream), COPIED_AT_ONCE))
        return stream

    def _stored(self) -> BinaryIO:
        """The bytes of the file as they are."""
        if not self.remote:
            return open(self.url, "rb")
        # Tables of text are read several times from the start, so they are copied here once. The others are read in
        # ranges that their readers choose, and reading ahead would fetch columns that nobody asked for; only
        # archives are read in many small steps.
        options: dict[str, Any] = {} if self.suffix in WHOLE else {"cache_type": "none"}
        if self.suffix == ".npz":
            options = {"cache_type": "readahead", "block_size": READ_AHEAD}
        filesystem, path = filesystem_of(f"{COPY}{self.url}" if self.suffix in WHOLE else self.url)
        # What fsspec opens is not quite a binary stream: its readline takes no limit.
        return cast(BinaryIO, io.BufferedReader(filesystem.open(path, "rb", **options)))

    def size(self) -> int:
        """Bytes of the file."""
        if self.in_memory:
            return 0
        return int(self._info().get("size") or 0) if self.remote else os.path.getsize(self.url)

    def version(self) -> tuple[int, str]:
        """Size of the file, and a mark that changes with its content even if the size does not."""
        if self.path == "-":
            return self.size(), sha256(self.url)
        if not self.remote:
            about = os.stat(self.url)
            return about.st_size, str(about.st_mtime_ns)
        info = self._info()
        return int(info.get("size") or 0), next((str(info[key]) for key in MARKS if info.get(key)), "")

    def _info(self) -> dict[str, Any]:
        filesystem, path = filesystem_of(self.url)
        with self.reading("a remote file"):
            return {key.lower(): value for key, value in filesystem.info(path).items()}

    def exists(self) -> bool:
        """Whether there is such a file."""
        if not self.remote:
            return os.path.isfile(self.url)
        filesystem, path = filesystem_of(self.url)
        with self.reading("a remote file"):
            return bool(filesystem.exists(path))

    def release(self) -> None:
        """Remove the local copy of a remote table, which would otherwise stay as long as the process."""
        if self.remote and self.suffix in WHOLE:
            filesystem, path = filesystem_of(f"{COPY}{self.url}")
            if copy := filesystem._check_file(path):
                os.unlink(copy)

    def check(self) -> None:
        """Refuse a file that does not exist, a folder, and an empty file."""
        if not (self.exists() if self.remote else os.path.exists(self.url)):
            path = "check the path (quote a pattern such as 'data/*.npy')"
            fix = "check the address and your access to it" if self.remote else path
            raise FileError(f"{self.label} does not exist; {fix}")
        if not self.remote and os.path.isdir(self.url):
            raise FileError(f"{self.label} is a folder, expected a file of vectors; name a file in it")
        if (self.remote or os.path.isfile(self.url)) and self.size() == 0:
            # A table of text without a byte has no rows; a file of any other format is incomplete.
            kind = NoRowsError if self.suffix in WHOLE else FileError
            raise kind(f"{self.label} is empty (0 bytes); create or download it again")

    @contextlib.contextmanager
    def reading(self, kind: str) -> Iterator[None]:
        """Turn whatever a reading library raises into a FileError that names this file."""
        try:
            yield
        except DivscoreError:
            raise
        except PermissionError as error:
            fix = "check your keys" if self.remote else "change its permissions"
            raise FileError(f"{self.label}: permission denied; {fix}") from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise FileError(
                    f"{self.label}: cannot write a temporary copy to {tempfile.gettempdir()}: {error.strerror}; free "
                    "some space, or set TMPDIR to another folder"
                ) from error
            damage = isinstance(error, DAMAGE) or type(error).__module__.startswith("pyarrow")
            # About the way to a file, not its contents: pyarrow raises OSErrors too, but without a number.
            fetching = not damage
            if isinstance(error, OSError):
                known = isinstance(error, ConnectionError | TimeoutError | FileNotFoundError)
                fetching = known or error.errno is not None
            if self.remote and fetching:
                raise FileError(
                    f"{self.label} cannot be fetched ({reason(error)}); check the address, your keys and the network"
                ) from error
            if not damage:
                raise
            raise FileError(
                f"{self.label} cannot be read as {kind}: it is truncated, damaged or of another format "
                f"({reason(error)}); create or download it again"
            ) from error


class _Utf16(io.RawIOBase):
    """A stream of UTF-16, with a mark at its start, as UTF-8."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-16")()
        self._ready = io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not (size := self._ready.readinto(buffer)):
            data = self._stream.read(COPIED_AT_ONCE)
            self._ready = io.BytesIO(self._decoder.decode(data, final=not data).encode())
            if not data:
                return self._ready.readinto(buffer)
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()


def _path_in(url: str) -> PurePath:
    """The path in a web address, without its query; any other as it is."""
    return PurePath(urlsplit(url).path if _over_http(url) else url)


def _over_http(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def anywhere(path: str | None) -> Any:
    """An existing path for a process that works in another folder; any other name stays as it is."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def unseen(path: str) -> str:
    """The message about a file that a worker does not see."""
    return (
        f"{path} does not exist on {platform.node()}; every worker must see the files under the same path: use a "
        "shared folder or an object store such as s3://…"
    )


def folder_values(location: Location) -> dict[str, str]:
    """Columns that the names of a file's folders add, as Hive and its successors write them.

    >>> folder_values(Location("", "data/country=SA/day=2026-01-05/part-0.parquet"))
    {'country': 'SA', 'day': '2026-01-05'}
    """
    values = {}
    for folder in location.url.replace("\\", "/").split("/")[:-1]:
        name, mark, value = folder.partition("=")
        if name and mark:
            value = unquote(value)
            values[unquote(name)] = "" if value == NO_VALUE else value
    return values


# From what a user names to files: a path, a pattern, a folder, standard input.

_KEPT: dict[str, tuple[Any, Location]] = {}  # standard input, which can be read only once


def is_pattern(text: str) -> bool:
    """Whether a path stands for several files; in a web address a ``?`` begins its query."""
    return bool(WILDCARDS & set(text.partition("?")[0] if _over_http(text) else text))


def is_folder(path: PathLike) -> bool:
    """Whether this is a folder, here or on a remote file system."""
    text = os.fspath(path)
    if "://" not in text:
        return os.path.isdir(text)
    if is_pattern(text):
        return False
    if _over_http(text):
        # To be asked for its links, a file would be fetched whole.
        return _path_in(text).name == "" or text.partition("?")[0].endswith("/")
    filesystem, inside = filesystem_of(text)
    with Location(text, text).reading("a remote folder"):
        return bool(filesystem.isdir(inside))


def locate(path: PathLike, form: str = "") -> list[Location]:
    """Find one file, or the files of a pattern in sorted order; ``-`` is standard input."""
    text = os.fspath(path)
    if text == "-":
        return [_keep_standard_input(form)]
    if not is_pattern(text) or os.path.exists(text):
        location = Location(text, text, form)
        location.check()
        return [location]
    if "://" in text:
        filesystem, path = filesystem_of(text)
        with Location(text, text).reading("a remote folder"):
            names = [filesystem.unstrip_protocol(name) for name in filesystem.glob(path)]
    else:
        names = [name for name in glob.glob(text, recursive=True) if os.path.isfile(name)]
    if not names:
        raise FileError(f"no file matches '{public(text)}'; check the pattern, and the folder it starts from")
    # Not checked yet: a bad file is one among others, not the end.
    return [Location(name, name, form) for name in sorted(names)]


def _keep_standard_input(form: str) -> Location:
    """Copy standard input to a temporary file: it can be read only once, and tables are read twice."""
    stream = sys.stdin.buffer
    earlier = _KEPT.get("-")
    if earlier is not None and earlier[0] is stream:
        return earlier[1]
    head = stream.read(COPIED_AT_ONCE)
    if not head.strip():
        raise FileError(
            "standard input is empty; expected CSV with a header line, JSON lines, or lines of text"
        )
    if head.startswith(PACKED):
        raise FileError("standard input is compressed; unpack it, as in 'zcat posts.csv.gz | divscore …'")
    handle, url = tempfile.mkstemp(prefix="divscore-", suffix=form or form_of(head))
    location = Location("-", url)
    weakref.finalize(location, os.unlink, url)
    with location.reading("text"), os.fdopen(handle, "wb") as copy:
        while head:
            copy.write(head)
            head = stream.read(COPIED_AT_ONCE)
    _KEPT["-"] = stream, location
    return location


def files_in(folder: str, unlisted: list[str]) -> Iterator[tuple[str, str]]:
    """Address of each file in a folder and below, and its path inside with forward slashes, in order of names.

    Hidden files and folders do not count. Each folder is entered once, so that links that lead back do no harm.
    Folders that cannot be listed are noted in `unlisted`; the first one is an error.
    """
    if "://" in folder:
        filesystem, root = filesystem_of(folder)
        with Location(folder, folder).reading("a remote folder"):
            paths: list[Any] = sorted(filesystem.find(root))
        for path in paths:
            inside = path.removeprefix(root.rstrip("/")).lstrip("/")
            if not any(part.startswith(".") for part in inside.split("/")):
                yield filesystem.unstrip_protocol(path), inside
        return
    entered: set[tuple[int, int]] = set()
    waiting = [(folder, "")]
    while waiting:
        place, inside = waiting.pop()
        try:
            about = os.stat(place)
            if (about.st_dev, about.st_ino) in entered:
                continue
            entered.add((about.st_dev, about.st_ino))
            with os.scandir(place) as listing:
                entries = sorted((e for e in listing if not e.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            if not inside:
                raise FileError(f"{plain(place)} cannot be listed: {error.strerror}") from error
            unlisted.append(f"{plain(place)} cannot be listed: {error.strerror}")
            continue
        below = []
        for entry in entries:
            if os.path.isdir(entry.path):
                below.append((entry.path, f"{inside}{entry.name}/"))
            else:
                yield entry.path, inside + entry.name
        waiting.extend(reversed(below))


def plain(name: str) -> str:
    """A file name as text that can be written anywhere: bytes that are not UTF-8 become escapes.

    >>> plain("a" + chr(0xDCFF))
    'a\\\\xff'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


# What to do about formats that are not read.

SHEET, ARRAY, UNPACK = "save the sheet as CSV", "save the vectors with numpy.save as .npy", "unpack it first"
ROWS = "save it as CSV or Parquet"
LINES_OF_TEXT = "save the texts as .txt with one item per line, or as CSV"
ADVICE = {
    ".json": "write one object per line and name it .jsonl (JSON lines)",
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods", ".numbers"), SHEET),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), f"divscore never loads pickles; {ARRAY}"),
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".safetensors", ".h5", ".hdf5", ".mat", ".tfrecord"), ARRAY),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".duckdb"), "export the table as CSV"),
    **dict.fromkeys((".avro", ".orc", ".dta", ".sav", ".sas7bdat", ".rds", ".rda", ".rdata", ".dbf"), ROWS),
    **dict.fromkeys((".pdf", ".doc", ".docx", ".odt", ".rtf", ".html", ".htm", ".xml", ".md"), LINES_OF_TEXT),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar"), f"{UNPACK}, then name the folder"),
    **dict.fromkeys((".bz2", ".xz", ".lz4", ".br"), f"{UNPACK}, or compress text as .gz or .zst"),
    **dict.fromkeys((*CODECS,), f"{UNPACK}; only .csv, .tsv, .jsonl and .txt are read compressed"),
}

# The format of standard input, from its first lines.

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
    if head.startswith(UTF16):
        head = head.decode("utf-16", "replace").encode()
    text = head.removeprefix(codecs.BOM_UTF8).lstrip().decode("utf-8", "replace")
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
