"""Which collections are concerned by what could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from divscore.audit.missing import Gaps, Missing
from divscore.audit.result import Audit
from divscore.jobs.source import EncodedSource
from divscore.sources.hive import HiveSource
from divscore.sources.open import parts_of
from divscore.sources.places import Location, folder_values
from divscore.sources.table import VectorSource
from divscore.sources.tableitems import TableItems

__all__ = ["Losses", "called_by_folders", "with_gaps"]


class Losses:
    """Parts of a source that are missing, by collection where the names of their folders tell.

    Only if collections are called by folders, that is: a file that has the column itself may hold anybody's rows.

    >>> lost = Losses([Missing("feed/country=SE/0.parquet", "damaged"), Missing("feed/1.parquet", "empty")], "country")
    >>> [len(lost.of(name).listed) for name in ("SE", "SA")], lost.known
    ([2, 1], {'SE'})
    """

    def __init__(self, missing: Sequence[Missing], by: str | None) -> None:
        anyones: list[Missing] = []
        known: dict[str, list[Missing]] = {}
        for each in missing:
            value = folder_values(Location(each.part, each.part)).get(by) if by else None
            (anyones if value is None else known.setdefault(value, [])).append(each)
        self._anyones = Gaps.among(anyones)
        self._known = {name: Gaps.among(mine) for name, mine in known.items()}

    @property
    def known(self) -> set[str]:
        """Collections of which a part is known to be missing."""
        return set(self._known)

    def of(self, name: str) -> Gaps:
        """What is, or may be, missing from a collection."""
        mine = self._known.get(name)
        return self._anyones if mine is None else mine + self._anyones


def called_by_folders(source: VectorSource, by: str | None) -> bool:
    """Whether all files of a source have a column from the names of their folders alone."""
    items = source.items if isinstance(source, EncodedSource) else None
    parts = items.parts if isinstance(items, TableItems) else parts_of(source)
    return all(isinstance(part, HiveSource) and by in part.values for part in parts)


def with_gaps(found: Audit, missing: Gaps) -> Audit:
    """Say what is, or may be, missing from a collection; it cannot be trusted as if nothing were."""
    trust = "caution" if missing.count and found.trust == "good" else found.trust
    return replace(found, warnings=(*missing.warning, *found.warnings), missing=missing, trust=trust)
