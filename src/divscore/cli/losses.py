"""Which collections are concerned by what could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from divscore.missing import NO_GAPS, Gaps, Missing
from divscore.result import Audit
from divscore.sources.hive import folder_values
from divscore.sources.location import Location

__all__ = ["Losses", "with_gaps"]


class Losses:
    """Parts of a source that are missing, by collection where the names of their folders tell.

    >>> lost = Losses([Missing("feed/country=SE/0.parquet", "damaged"), Missing("feed/1.parquet", "empty")], "country")
    >>> [len(lost.of(name).listed) for name in ("SE", "SA")], lost.known
    ([2, 1], {'SE'})
    """

    def __init__(self, missing: Sequence[Missing], by: str | None) -> None:
        self._anyones: list[Missing] = []
        self._known: dict[str, list[Missing]] = {}
        for each in missing:
            value = folder_values(Location(each.part, each.part)).get(by) if by else None
            (self._anyones if value is None else self._known.setdefault(value, [])).append(each)
        self._everywhere = Gaps.among(self._anyones)

    @property
    def known(self) -> set[str]:
        """Collections of which a part is known to be missing."""
        return set(self._known)

    def of(self, name: str) -> Gaps:
        """What is, or may be, missing from a collection."""
        mine = self._known.get(name)
        return self._everywhere if mine is None else Gaps.among([*mine, *self._anyones])


def with_gaps(found: Audit, mine: Gaps, all_of_them: Gaps = NO_GAPS) -> Audit:
    """Say what is missing from a collection; it cannot be trusted as if nothing were.

    The document that it becomes part of names what is missing from `all_of_them`.
    """
    trust = "caution" if mine.listed and found.trust == "good" else found.trust
    missing = all_of_them if all_of_them.listed else mine
    return replace(found, warnings=(*mine.warning, *found.warnings), missing=missing, trust=trust)
