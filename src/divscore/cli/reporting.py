"""What the command line tells a report: the command as it was typed, and digests of what it read."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence

import click

from divscore.audit.missing import Gaps
from divscore.cli.main import TYPED
from divscore.report.context import Context, Examples, Input
from divscore.text import public

__all__ = ["report_context", "typed_command"]

MOST_BYTES = 256 << 20  # a file up to this size is read again for its digest, in a second or less


def report_context(
    collections: Sequence[str],
    control: str,
    sample: str | None,
    *,
    limit: float | None,
    examples: Examples | None,
    missing: Gaps,
) -> Context:
    """All that a report tells besides the audits."""
    read = [*(("Collection", path) for path in collections), ("Control set", control)]
    if sample:
        read.append(("Labelled sample", sample))
    return Context(
        command=typed_command(),
        limit=limit,
        inputs=[Input(role, public(path), _digest(path)) for role, path in read],
        examples=examples,
        missing=missing,
    )


def typed_command() -> str:
    """The command line as it was typed, without passwords and signatures in addresses."""
    context = click.get_current_context(silent=True)
    words = context.meta.get(TYPED, ()) if context else ()
    return shlex.join(["divscore", *map(public, words)])


def _digest(path: str) -> str:
    """SHA-256 of a local file that is not too large; nothing for folders, streams, patterns and remote ones."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:
            return ""
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""
