"""Context: what a report tells besides the audits, and the labelled examples it may show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from divscore.sketch.missing import Missing

__all__ = ["Context", "Example", "Examples", "Input"]


@dataclass(frozen=True)
class Example:
    """A representative that a person labelled: its group, and its text or a small picture of it (JPEG)."""

    group: str
    text: str = ""
    picture: bytes = b""


@dataclass(frozen=True)
class Examples:
    """Representatives to show, and what there is to say about them: how many are left out, or why none is here."""

    shown: Sequence[Example] = ()
    remark: str = ""


@dataclass(frozen=True)
class Input:
    """Something that was read: what it is, its path as it was given, and its digest where that is cheap."""

    role: str
    path: str
    digest: str = ""


@dataclass(frozen=True)
class Context:
    """What is known beyond the audits themselves.

    Parameters
    ----------
    command : str
        The command line that made the audits, as it was typed.
    limit : float, optional
        The largest disparity that is wanted.
    inputs : sequence of Input
        What was read.
    examples : Examples, optional
        Labelled examples to show; none without the user's asking.
    missing : Missing, optional
        All that could not be read of the source; by default what the audits say of their collections.
    created : datetime
        When the report was made.
    """

    command: str = ""
    limit: float | None = None
    inputs: Sequence[Input] = ()
    examples: Examples | None = None
    missing: Missing | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
