"""Overview: many collections on one screen: what they have in common, and those at the ends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.report.headline import headline
from divscore.report.table import table
from divscore.result import Audit

__all__ = ["ALL", "Overview", "overview"]

ALL = 50  # collections of which a screen shows all
END = 12  # and else so many at either end


@dataclass(frozen=True)
class Overview:
    """A sentence on all collections, those that are shown and their table, and what to know of the others."""

    headline: str
    shown: tuple[Audit, ...]
    table: str
    notes: tuple[str, ...]


def overview(audits: Sequence[Audit]) -> Overview:
    """The short form of a long table: the largest and the smallest disparities; of more than two groups the largest.

    Collections of which nothing can be told have no place in that order; they fill up what the others leave.
    """
    ordered = sorted(audits, key=_place)
    told = sum(map(_is_told, audits))
    split = len(audits[0].shares) == 2 and told > 2 * END
    shown = [*ordered[:END], *ordered[told - END : told]] if split else ordered[: 2 * END]
    lines = table(shown).split("\n")
    if split:
        lines.insert(1 + END, "…")
    return Overview(headline(audits), tuple(shown), "\n".join(lines), _notes(audits, len(shown)))


def _notes(audits: Sequence[Audit], shown: int) -> tuple[str, ...]:
    """How many were left out and where they are to be had, and how far all may be trusted."""
    trust = Counter(audit.trust for audit in audits)
    counts = ", ".join(f"{trust[word]:,} {word}" for word in ("good", "caution", "poor") if trust[word])
    return (
        f"{len(audits) - shown:,} of {len(audits):,} collections are left out of this table; for all of them add "
        "--json FILE or --report FILE.html, or send this output to a file or a pipe.",
        f"Trust: {counts}.",
    )


def _is_told(audit: Audit) -> bool:
    return audit.trust != "poor" and math.isfinite(audit.disparity)


def _place(audit: Audit) -> tuple[bool, float, str]:
    value = audit.disparity if math.isfinite(audit.disparity) else 0.0
    return not _is_told(audit), -value, audit.name
