"""Files: those that make one source, and those that had to be left out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divscore.audit.missing import Missing
from divscore.sources.places import Location

__all__ = ["Files"]


@dataclass(frozen=True)
class Files:
    """What a path, a pattern or a folder names, and what is known from the start to be missing."""

    found: Sequence[Location]
    unopened: tuple[Missing, ...] = ()
