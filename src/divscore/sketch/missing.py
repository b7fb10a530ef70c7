"""Missing: the parts of a source that could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

import msgspec

from divscore.text import brief, listed

KEPT = 100  # parts that are listed one by one
LONGEST = 300  # characters of a name or reason that are kept
MOST_ROWS = 1 << 48  # more rows than any source has; sums of a few such numbers stay exact
SHOWN = 3  # names in a warning

Rows = Annotated[int, msgspec.Meta(ge=0, lt=MOST_ROWS)]


@dataclass(frozen=True)
class MissingPart:
    """A file, or a part of one, that could not be read: why, and its number of rows if that is known."""

    part: str
    reason: str
    rows: Rows | None = None


@dataclass(frozen=True)
class Missing:
    """All missing parts of a collection: the first hundred one by one, the others as numbers of parts and rows.

    >>> print(*Missing.of([MissingPart("a.npy", "damaged", 1200), MissingPart("b.npy", "empty")]).warning)
    2 parts of the source could not be read and are missing (at least 1,200 rows): a.npy, b.npy
    """

    listed: Annotated[tuple[MissingPart, ...], msgspec.Meta(max_length=KEPT)] = ()
    more: Rows = 0
    more_rows: Rows = 0

    @classmethod
    def of(cls, parts: Iterable[MissingPart]) -> Self:
        """Keep the first hundred parts, with names and reasons cut to a size that a file header can hold."""
        every = list(parts)
        first = tuple(MissingPart(p.part[:LONGEST], p.reason[:LONGEST], p.rows) for p in every[:KEPT])
        return cls(first, len(every) - len(first), sum(p.rows or 0 for p in every[KEPT:]))

    @classmethod
    def union(cls, several: Iterable[Missing]) -> Missing:
        """Merge what is missing from several collections; a part that more than one of them lists counts once."""
        different = list(dict.fromkeys({id(each): each for each in several}.values()))
        parts = dict.fromkeys(part for each in different for part in each.listed)
        others = cls((), sum(each.more for each in different), sum(each.more_rows for each in different))
        return cls.of(parts) + others

    @property
    def count(self) -> int:
        """The number of missing parts."""
        return len(self.listed) + self.more

    @property
    def warning(self) -> tuple[str, ...]:
        """One sentence for people, or nothing."""
        if not self.count:
            return ()
        known = sum(part.rows or 0 for part in self.listed) + self.more_rows
        rows = f" (at least {known:,} rows)" if known else ""
        names = [brief(part.part, LONGEST) for part in self.listed] + [""] * self.more
        parts = "1 part" if self.count == 1 else f"{self.count:,} parts"
        verb = "is" if self.count == 1 else "are"
        return (f"{parts} of the source could not be read and {verb} missing{rows}: {listed(names, SHOWN)}",)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def __add__(self, other: Missing) -> Missing:
        both = Missing.of((*self.listed, *other.listed))
        more = both.more + self.more + other.more
        return Missing(both.listed, more, both.more_rows + self.more_rows + other.more_rows)
