"""Files: written completely or not at all, locked, fingerprinted; JSON checked against a type."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from divscore.errors import FileError
from divscore.text import printable

PathLike = str | os.PathLike[str]
T = TypeVar("T")


@contextmanager
def atomic_file(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path; when the block ends without an error, the file there replaces `path` in one step.

    The temporary file is in the same folder and hidden. A link stays a link. A pipe or device is yielded as it is.
    """
    if _is_special(Path(path)):
        with _write_errors(path):
            yield Path(path)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}.part")
    try:
        with _write_errors(path):
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
    with atomic_file(path) as temporary, open(temporary, "wb") as stream:
        stream.write(data)


@contextmanager
def atomic_folder(path: PathLike, replaces: set[str]) -> Iterator[Path]:
    """Yield an empty temporary folder; when the block ends without an error, it takes the place of `path`.

    Other entries of an earlier folder, such as notes that somebody added, are kept; those in `replaces` go.
    """
    target = Path(path)
    with _write_errors(path):
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
def _write_errors(path: PathLike) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error
    except UnicodeEncodeError as error:
        raise FileError(
            f"cannot write {os.fspath(path)}: {error.object!r} is not valid text; rename it"
        ) from error


def check_writable(path: PathLike, what: str) -> None:
    """Refuse a path that no file can be written to; called before a computation that may take hours."""
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{what} {target} is a folder; give a file name")
    if not target.parent.is_dir():
        raise FileError(f"{what} {target}: the folder {target.parent} does not exist; create it first")
    if not _is_special(target) and not os.access(target.parent, os.W_OK | os.X_OK):
        raise FileError(f"{what} {target}: you cannot write to the folder {target.parent}; choose another")


def refuse_url(path: PathLike, what: str) -> None:
    """Refuse a URL where a local path is needed."""
    if "://" in os.fspath(path):
        raise FileError(
            f"{os.fspath(path)} is a URL; {what} can only be written to a local or mounted folder: give a path, then "
            "copy the result there"
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
