"""Missing: a part of a source that could not be read, and what to say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divscore.wording import brief

__all__ = ["Missing", "missing_warning"]

NAMED = 3


@dataclass(frozen=True)
class Missing:
    """A file, or a part of one, that could not be read: why, and how many rows are lost where that is known."""

    part: str
    reason: str
    rows: int | None = None


def missing_warning(missing: Sequence[Missing], more: int = 0) -> tuple[str, ...]:
    """A sentence about what is missing, if anything is; `more` counts those that are not listed.

    >>> missing_warning([Missing("a.npy", "damaged", 1200)])
    ('a part of the source could not be read and is missing (1,200 rows known to be lost): a.npy',)
    """
    count = len(missing) + more
    if not count:
        return ()
    known = sum(each.rows or 0 for each in missing)
    rows = f" ({known:,} rows known to be lost)" if known else ""
    named = ", ".join(brief(each.part, 200) for each in missing[:NAMED])
    others = f" and {count - NAMED} more" if count > NAMED else ""
    which = "a part" if count == 1 else f"{count:,} parts"
    are = "is" if count == 1 else "are"
    return (f"{which} of the source could not be read and {are} missing{rows}: {named}{others}",)
