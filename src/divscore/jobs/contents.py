"""Contents of items: read a picture's bytes from wherever it lies, within bounds; fingerprints."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import cast

from divscore.errors import DivscoreError, FileError
from divscore.sources.pictures import MAX_BYTES
from divscore.text import without_secrets

__all__ = ["KEY_BYTES", "fingerprint", "read_picture", "signature"]

KEY_BYTES = 16


def fingerprint(content: str | bytes) -> bytes:
    """Tell contents apart: equal ones, and only those, have the same fingerprint."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def read_picture(content: str | bytes) -> bytes:
    """Bytes of a picture, or a FileError with the reason why there are none."""
    if isinstance(content, bytes):
        return content
    if not content.strip():
        raise FileError("has no path")
    try:
        return _fetch(content) if "://" in content else _read(content)
    except DivscoreError:
        raise
    except FileNotFoundError as error:
        raise FileError("does not exist") from error
    except Exception as error:
        # Reading a file raises two kinds of errors; fetching one, whatever its kind of store thinks of.
        if "://" not in content and not isinstance(error, OSError | ValueError):
            raise
        said = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"cannot be read: {without_secrets(said)[:120]}") from error


def signature(content: str | bytes, kind: str) -> bytes:
    """Tell whether an item is the same as at an earlier start, without reading a picture again."""
    if kind == "image" and isinstance(content, str) and "://" not in content:
        try:
            about = os.stat(content)
        except (OSError, ValueError):
            return fingerprint(content)
        return fingerprint(
            content.encode("utf-8", "surrogatepass") + b"%d %d" % (about.st_size, about.st_mtime_ns)
        )
    return fingerprint(content)


def _read(path: str) -> bytes:
    # A pipe or a device would never end; opening one would wait for ever.
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise FileError("is a folder" if stat.S_ISDIR(about.st_mode) else "is not a regular file")
    _check_size(about.st_size)
    with open(path, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _fetch(url: str) -> bytes:
    import fsspec

    with fsspec.open(url, "rb") as stream:
        data = cast(bytes, stream.read(MAX_BYTES + 1))
    _check_size(len(data))
    return data


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise FileError(f"is larger than {MAX_BYTES >> 20} MB")
