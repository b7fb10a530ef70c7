"""Gate: which collections `audit --max-disparity` lets pass, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from divscore.audit.missing import Gaps
from divscore.audit.result import Audit
from divscore.cli.console import warn
from divscore.report.listing import verdict
from divscore.text import FEW, listed, named

__all__ = ["Gate", "first_names"]

CODES = {"yes": 0, "no": 1}  # all else is 3: it cannot be told
STOPPED = {1: "beyond", 3: "not surely within"}  # what is said of a collection, by exit code


@dataclass(frozen=True)
class Gate:
    """A limit, the collections that have to keep it, and all that is missing from their sources.

    A part may be missing of a collection that could not be audited at all, and then no audit tells of it.
    """

    limit: float
    audits: Sequence[Audit]
    missing: Gaps

    @property
    def code(self) -> int:
        """0 fine, 1 beyond the limit, 3 inconclusive; the gravest of several collections."""
        if 1 in self._codes:
            return 1
        return 3 if 3 in self._codes or self.missing.count else 0

    def tell(self) -> None:
        """Say which collections are not let pass; of many, the first ones, and how many there are."""
        names: dict[int, list[str]] = {code: [] for code in STOPPED}
        for audit, code in zip(self.audits, self._codes, strict=True):
            if code:
                names[code].append(audit.name)
        for audit, code in zip(self.audits, self._codes, strict=True):
            if code and len(names[code]) <= FEW:
                inside = -self.limit <= audit.interval.low and audit.interval.high <= self.limit
                lacking = (
                    ", as parts of it may be missing" if code == 3 and audit.missing.count and inside else ""
                )
                warn(f"{named(audit.name)}: {STOPPED[code]} the limit of ±{self.limit:g}{lacking}")
        many = [code for code in STOPPED if len(names[code]) > FEW]
        for code in many:
            warn(f"{first_names(names[code])}: {STOPPED[code]} the limit of ±{self.limit:g}")
        if many:
            lie = "lies" if len(names[1]) == 1 else "lie"
            beyond = f"{len(names[1]):,} of {len(self.audits):,} collections {lie} beyond ±{self.limit:g}"
            warn(f"{beyond}; {len(names[3]):,} cannot be told")
        if self._for_what_is_missing:
            warn(
                "parts of the source are missing, so that it cannot be told whether the limit is kept; mend or "
                "remove them"
            )

    @cached_property
    def _codes(self) -> list[int]:
        """Of each collection."""
        return [CODES.get(verdict(audit, self.limit), 3) for audit in self.audits]

    @property
    def _for_what_is_missing(self) -> bool:
        """Whether all that is known to be whole would pass."""
        whole = [
            code for audit, code in zip(self.audits, self._codes, strict=True) if not audit.missing.count
        ]
        return self.code == 3 and bool(self.missing.count) and not any(whole)


def first_names(names: Sequence[str]) -> str:
    """The first of many collections, and how many more there are."""
    return listed([named(name) for name in names])
