"""What the command line tells a report: the command as it was typed, and digests of what it read."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence

import click

from divscore.cli.main import TYPED
from divscore.report.context import Context, Examples, Input

__all__ = ["report_context", "typed_command"]

MOST_BYTES = 256 << 20  # a file up to this size is read again for its digest, in a second or less
AFTER = re.compile(r"([?#]).*", re.S)  # a query or a fragment


def report_context(
    collections: Sequence[str],
    control: str,
    sample: str | None,
    *,
    limit: float | None,
    examples: Examples | None,
) -> Context:
    """All that a report tells besides the audits."""
    read = [*(("Collection", path) for path in collections), ("Control set", control)]
    if sample:
        read.append(("Labelled sample", sample))
    return Context(
        command=typed_command(),
        limit=limit,
        inputs=[Input(role, _public(path), _digest(path)) for role, path in read],
        examples=examples,
    )


def typed_command() -> str:
    """The command line as it was typed, without passwords and signatures in addresses."""
    context = click.get_current_context(silent=True)
    words = context.meta.get(TYPED, ()) if context else ()
    return shlex.join(["divscore", *map(_public, words)])


def _public(word: str) -> str:
    """Leave out of an address what lets others in: user and password, query, fragment.

    A password may hold any letter, an @ or a slash too, so all is cut up to the last @ that may end one. An @ in a
    path is then sometimes cut with it, which harms nobody.
    """
    scheme, mark, rest = word.partition("://")
    if not mark:
        return word
    first = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if ":" in first and "@" in rest:
        rest = "…" + rest.rpartition("@")[2]
    elif "@" in first:
        rest = "…" + first.rpartition("@")[2] + rest[len(first) :]
    return scheme + mark + AFTER.sub(r"\1…", rest)


def _digest(path: str) -> str:
    """SHA-256 of a local file that is not too large; nothing for folders, streams, patterns and remote ones."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:
            return ""
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""
