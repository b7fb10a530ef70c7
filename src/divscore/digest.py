"""Fingerprints of weights files, as `sha256sum` prints them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

__all__ = ["digest_of", "short"]


def digest_of(files: Iterable[str | os.PathLike[str]]) -> str:
    """SHA-256 of one file, or of several one after the other."""
    state = hashlib.sha256()
    for path in files:
        with open(path, "rb") as stream:
            while piece := stream.read(1 << 22):
                state.update(piece)
    return state.hexdigest()


def short(digest: str) -> str:
    """The part of a fingerprint that identities carry."""
    return digest[:16]
