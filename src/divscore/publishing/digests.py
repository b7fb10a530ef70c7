"""Digests that make edits visible: one a file, and one of them all."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["SUMS", "digest_of", "overall", "read_sums", "sums_text"]

SUMS = "SHA256SUMS"  # in the form that `sha256sum --check` reads
LINE = re.compile(r"([0-9a-f]{64})  ([^/\\\x00-\x1f]+)")


def digest_of(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def overall(digests: Mapping[str, str], besides: Iterable[str]) -> str:
    """SHA-256 of the lines of `SUMS` without the files `besides`, which state it and so cannot be part of it."""
    left = {name: digest for name, digest in digests.items() if name not in set(besides)}
    return hashlib.sha256(sums_text(left).encode()).hexdigest()


def sums_text(digests: Mapping[str, str]) -> str:
    """The content of `SUMS`."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_sums(folder: Path) -> dict[str, str] | None:
    """Digests by name of file; None where the list is missing or not one."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = [LINE.fullmatch(line) for line in lines]
    if not found or not all(found):
        return None
    return {match[2]: match[1] for match in found if match}
