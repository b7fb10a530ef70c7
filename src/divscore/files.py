"""Files: written completely or not at all, here or in a store; locked, fingerprinted; JSON checked against a type."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from divscore.errors import DivscoreError, FileError, MissingExtraError
from divscore.text import printable, public, without_secrets

if TYPE_CHECKING:
    from jinja2 import Environment

PathLike = str | os.PathLike[str]
T = TypeVar("T")
COPY = "simplecache::"  # before an address: fsspec then reads a local copy
EXTRAS = {"s3": "s3", "s3a": "s3"}  # protocol → the extra that opens its addresses


def is_url(path: PathLike) -> bool:
    """Whether a path is an address such as ``s3://bucket/a.json``."""
    return "://" in os.fspath(path)


@contextmanager
def atomic_file(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path; when the block ends without an error, the file there replaces `path` in one step.

    The temporary file is in the same folder and hidden. A link stays a link. A pipe or device is yielded as it is.
    For an address (``s3://…``) the temporary file is in the system's folder for such files, and is uploaded.
    """
    if is_url(path):
        with tempfile.TemporaryDirectory(prefix="divscore-") as folder:
            copy = Path(folder, Path(path).name)  # a store may tell the type of a file from its suffix
            with write_errors(f"{copy}, to be uploaded as {public(os.fspath(path))}"):
                yield copy
            upload_files({os.fspath(path): copy})
        return
    if _is_special(Path(path)):
        with write_errors(path):
            yield Path(path)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}.part")
    try:
        with write_errors(path):
            yield temporary
            # Without fsync a power cut can leave a complete name with an incomplete file.
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: PathLike, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes by `atomic_file`."""
    data = content.encode() if isinstance(content, str) else content
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


def upload_files(files: Mapping[str, PathLike]) -> None:
    """Put local files in one store, under their addresses and several at a time; each appears when it is complete."""
    with _store(next(iter(files))) as (filesystem, _):
        paths = [filesystem._strip_protocol(url) for url in files]
        filesystem.put([os.fspath(file) for file in files.values()], paths)


def remove_file(path: PathLike) -> None:
    """Remove a file, here or in a store, if there is one."""
    if not is_url(path):
        Path(path).unlink(missing_ok=True)
        return
    with _store(path) as (filesystem, place), suppress(FileNotFoundError):
        filesystem.rm_file(place)


def filesystem_of(url: str) -> tuple[Any, str]:
    """The remote file system of an address, and the path there."""
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(url)
    except ImportError as error:
        protocol = url.removeprefix(COPY).partition("://")[0]
        what = f"{public(url)} cannot be opened: {protocol}:// needs a package"
        if protocol in EXTRAS:
            raise MissingExtraError.of(what, EXTRAS[protocol]) from error
        raise MissingExtraError(f"{what}; install what fsspec asks for ({error})") from error
    except Exception as error:  # whatever the many kinds of file systems raise over their settings
        raise FileError(f"{public(url)} cannot be opened: {reason(error)}") from error
    return filesystem, path


def reason(error: Exception) -> str:
    """What a library says is wrong, on one line of a message and without secrets."""
    return without_secrets(" ".join(str(error).split()))[:200] or type(error).__name__


@contextmanager
def _store(url: PathLike, what: str = "") -> Iterator[tuple[Any, str]]:
    """The file system of an address to write to; whatever it raises names the address."""
    name = f"{what} {public(os.fspath(url))}".strip()
    filesystem, path = filesystem_of(os.fspath(url))
    if filesystem.protocol in ("http", "https", ("http", "https")):
        raise FileError(
            f"{name}: nothing can be written to a web page; give a local path or a store such as s3://…"
        )
    try:
        yield filesystem, path
    except DivscoreError:
        raise
    except Exception as error:  # each store has its own errors
        raise FileError(
            f"{name} cannot be written ({reason(error)}); check the address, your keys and the network"
        ) from error


@contextmanager
def atomic_folder(path: PathLike, replaces: set[str]) -> Iterator[Path]:
    """Yield an empty temporary folder; when the block ends without an error, it takes the place of `path`.

    Other entries of an earlier folder, such as notes that somebody added, are kept; those in `replaces` go.
    """
    refuse_url(path, "this folder")
    target = Path(path)
    with write_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        temporary.mkdir()
        try:
            yield temporary
            if not target.exists():
                temporary.rename(target)
                return
            old = target.parent / f"{temporary.name}.old"
            target.rename(old)
            try:
                temporary.rename(target)
            except OSError:
                old.rename(target)
                raise
            for entry in old.iterdir():
                if entry.name not in replaces:
                    entry.rename(target / entry.name)
            shutil.rmtree(old)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def write_errors(path: PathLike) -> Iterator[None]:
    """Turn an error of the system, such as a full disk, into one that names what could not be written."""
    try:
        yield
    except OSError as error:
        # Arrow puts its own words around those of the system.
        why = os.strerror(error.errno) if error.errno else error
        raise FileError(f"cannot write {os.fspath(path)}: {why}") from error
    except UnicodeEncodeError as error:
        raise FileError(
            f"cannot write {os.fspath(path)}: {error.object!r} is not valid text; rename it"
        ) from error


def check_writable(path: PathLike, what: str) -> None:
    """Refuse a path or address that no file can be written to; called before a computation that may take hours."""
    if is_url(path):
        _check_store(path, what)
        return
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{what} {target} is a folder; give a file name")
    if not target.parent.is_dir():
        raise FileError(f"{what} {target}: the folder {target.parent} does not exist; create it first")
    if not _is_special(target) and not os.access(target.parent, os.W_OK | os.X_OK):
        raise FileError(f"{what} {target}: you cannot write to the folder {target.parent}; choose another")


def _check_store(url: PathLike, what: str) -> None:
    if os.fspath(url).endswith("/"):
        raise FileError(f"{what} {public(os.fspath(url))} is a folder; give a file name")
    with _store(url, what) as (filesystem, path):
        if EXTRAS.get(os.fspath(url).partition("://")[0]) == "s3":
            # An upload that is begun and given up: only this shows that the bucket exists and the keys may write,
            # and it changes nothing. Keys that may write are not always allowed to list.
            stream = filesystem.open(path, "wb", autocommit=False)
            stream.write(b".")
            stream.flush(force=True)
            with suppress(Exception):
                stream.discard()
        else:
            filesystem.exists(path)  # whether the store answers


def refuse_url(path: PathLike, what: str) -> None:
    """Refuse a URL where a local path is needed, also one that became a Path, which has lost a slash."""
    if re.match(r"[A-Za-z][\w+.-]+:/", os.fspath(path)):
        raise FileError(
            f"{public(os.fspath(path))} is a URL; {what} can only be written to a local or mounted folder: give a "
            "path, then copy the result there"
        )


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def lock_file(path: PathLike) -> Iterator[None]:
    """Hold an exclusive lock by a file that exists as long as the lock does; it ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows, where an open file cannot be replaced anyway
        yield
        return
    while True:
        with open(path, "a+b") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FileError(
                    f"{Path(path).parent} is in use by another job; wait for it, or choose another name"
                ) from error
            # The previous holder may have removed this file after we opened it: then open the new one.
            if os.path.exists(path) and os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                try:
                    yield
                finally:
                    Path(path).unlink(missing_ok=True)
                return


def sha256(*paths: PathLike) -> str:
    """SHA-256 of one file, or of several read one after the other, as `sha256sum` prints it."""
    state = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as stream:
            while piece := stream.read(1 << 22):
                state.update(piece)
    return state.hexdigest()


def unreadable(path: PathLike, error: OSError) -> FileError:
    """The error for a file that the system cannot open or read."""
    if isinstance(error, FileNotFoundError):
        return FileError(f"{path}: no such file")
    return FileError(f"cannot read {path}: {error.strerror or error}")


JSON_TYPES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}


def read_json(kind: type[T], data: str | bytes, where: str, *, hint: str = "") -> T:
    """Decode JSON into a type (a dataclass, `dict[str, int]`, …); errors name the file `where`, the field and a `hint`.

    Field types are checked strictly; `Annotated[int, msgspec.Meta(ge=0)]` sets limits. Unknown fields are ignored.

    >>> read_json(list[int], '[1, "2"]', "a.json")
    Traceback (most recent call last):
    divscore.errors.FileError: a.json: [1]: expected a whole number, got a text
    """
    end = f"; {hint}" if hint else ""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is not JSON: byte {error.start} is not UTF-8{end}") from error
    except (ValueError, RecursionError) as error:
        reason = str(error) if text.strip() else "it is empty"
        raise FileError(f"{where} is not valid JSON ({reason}){end}") from error
    return check_json(kind, value, where, hint=hint)


def check_json(kind: type[T], value: Any, where: str, *, hint: str = "") -> T:
    """Do the second half of `read_json`, for a value that is decoded already."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = _plain_validation(str(error), value)
        raise FileError(f"{where}: {problem}{f'; {hint}' if hint else ''}") from error


def templates(package: str, **more: Any) -> Environment:
    """The templates of a package, in which an undefined value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    lines: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(loader=PackageLoader(package), undefined=StrictUndefined, **lines, **more)


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number in JSON")


def _plain_validation(message: str, value: Any) -> str:
    """Turn msgspec's "Expected `int`, got `str` - at `$.sizes[0]`" into words, with the field first."""
    problem, _, place = message.partition(" - at `")
    path = place.removesuffix("`").removeprefix("$").removeprefix(".")
    for part in re.findall(r"[^.\[\]]+", path):
        try:  # the place of a key is written as [...]: such a path leads nowhere
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, ValueError, TypeError, IndexError):
            break
    problem = re.sub(r"`([^`]*)`", lambda m: _plain_type(m[1]), problem)
    problem = re.sub(r"^Object missing required field (.*)", r"\1 is missing", problem)
    problem = problem.replace("Invalid enum value", "unknown value")
    if "got" not in problem and isinstance(value, (int, float, str)):
        shown = printable(json.dumps(value, ensure_ascii=False))
        problem += f", got {shown if len(shown) <= 40 else shown[:40] + '…'}"
    return f"{path}: {problem[0].lower()}{problem[1:]}" if path else problem[0].lower() + problem[1:]


def _plain_type(name: str) -> str:
    known = [JSON_TYPES.get(part) for part in name.split(" | ")]
    return " or ".join(part for part in known if part) if all(known) else f"'{name}'"
