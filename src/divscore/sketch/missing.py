"""Missing: a part of a source that could not be read; Gaps: all of them, and what to say about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from divscore.text import brief

__all__ = ["LONGEST", "MOST_ROWS", "NO_GAPS", "Gaps", "Missing"]

KEPT = 100
LONGEST = 300
MOST_ROWS = 1 << 48  # more than anybody has
NAMED = 3


@dataclass(frozen=True)
class Missing:
    """A file, or a part of one, that could not be read: why, and how many rows are lost where that is known."""

    part: str
    reason: str
    rows: int | None = None


@dataclass(frozen=True)
class Gaps:
    """What is missing from a collection: the first parts by name, the others as a number, and their rows.

    >>> Gaps.among([Missing("a.npy", "damaged", 1200), Missing("b.npy", "empty")]).warning
    ('2 parts of the source could not be read and are missing (1,200 rows known to be lost): a.npy, b.npy',)
    """

    listed: tuple[Missing, ...] = ()
    more: int = 0
    more_rows: int = 0

    @classmethod
    def among(cls, missing: Iterable[Missing]) -> Self:
        """Keep the first hundred as they are, their texts cut to what a header can bear."""
        found = list(missing)
        shown = tuple(Missing(each.part[:LONGEST], each.reason[:LONGEST], each.rows) for each in found[:KEPT])
        return cls(shown, len(found) - len(shown), sum(each.rows or 0 for each in found[KEPT:]))

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, and refuse anything else."""
        if not isinstance(told, Mapping):
            raise ValueError("no list of what is missing")
        listed = [Missing(each["part"], each["reason"], each["rows"]) for each in told.get("listed", [])]
        more, more_rows = told.get("more", 0), told.get("more_rows", 0)
        texts = [text for each in listed for text in (each.part, each.reason)]
        numbers = [each.rows for each in listed if each.rows is not None] + [more, more_rows]
        fine = all(isinstance(text, str) for text in texts) and len(listed) <= KEPT
        if not fine or any(type(number) is not int or not 0 <= number < MOST_ROWS for number in numbers):
            raise ValueError("a list of what is missing that cannot be")
        return cls(tuple(listed), more, more_rows)

    @classmethod
    def joined(cls, several: Iterable[Gaps]) -> Gaps:
        """What is missing from several collections together: parts that more than one of them names count once."""
        different = list(dict.fromkeys({id(each): each for each in several}.values()))
        listed = dict.fromkeys(part for each in different for part in each.listed)
        others = cls((), sum(each.more for each in different), sum(each.more_rows for each in different))
        return cls.among(listed) + others

    @property
    def count(self) -> int:
        """How many parts they are."""
        return len(self.listed) + self.more

    def to_dict(self) -> dict[str, Any]:
        """For a header."""
        return asdict(self)

    def __add__(self, other: Gaps) -> Gaps:
        joined = Gaps.among((*self.listed, *other.listed))
        return Gaps(
            joined.listed,
            joined.more + self.more + other.more,
            joined.more_rows + self.more_rows + other.more_rows,
        )

    @property
    def warning(self) -> tuple[str, ...]:
        """A sentence about them, if there are any."""
        count = self.count
        if not count:
            return ()
        known = sum(each.rows or 0 for each in self.listed) + self.more_rows
        rows = f" ({known:,} rows known to be lost)" if known else ""
        named = ", ".join(brief(each.part, LONGEST) for each in self.listed[:NAMED])
        others = f" and {count - NAMED:,} more" if count > NAMED else ""
        which, verb = ("a part", "is") if count == 1 else (f"{count:,} parts", "are")
        return (f"{which} of the source could not be read and {verb} missing{rows}: {named}{others}",)


NO_GAPS = Gaps()
