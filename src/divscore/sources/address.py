"""Addresses: what lies elsewhere, by which protocol, and how it is reached."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from divscore.errors import FileError, MissingExtraError
from divscore.text import public, without_secrets

__all__ = ["file_in", "filesystem_of", "is_pattern", "over_http", "reading_of"]

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
