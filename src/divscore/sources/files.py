"""Files: those that make one source, and those that had to be left out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divscore.sources.location import Location

__all__ = ["Files", "Unopened"]


@dataclass(frozen=True)
class Unopened:
    """A file among others that could not be opened, or a part that was lost before: why, and its rows where known."""

    label: str
    reason: str
    rows: int | None = None


@dataclass(frozen=True)
class Files:
    """What a path, a pattern or a folder names, and what is known from the start to be missing."""

    found: Sequence[Location]
    unopened: tuple[Unopened, ...] = ()
