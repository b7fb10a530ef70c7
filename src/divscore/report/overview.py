"""Overview: many collections on one screen: what they have in common, and those at the ends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from divscore.audit.auditdiff import AuditDiff
from divscore.audit.change import Change
from divscore.audit.result import Audit
from divscore.report.changes import change_table
from divscore.report.headline import headline
from divscore.report.table import table

__all__ = ["ALL", "Overview", "change_overview", "overview"]

ALL = 50  # collections of which a screen shows all
END = 12  # and else so many at either end
LONE = 4  # new ones, and vanished ones, that are shown


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


def change_overview(diff: AuditDiff) -> tuple[str, str]:
    """The short form of a long table of changes, and a note on what it leaves out.

    Of the changes that are sure, the largest rises come first and the largest falls last. Where those are few, what may
    be chance fills the table up, the largest first.
    """
    rises = sorted((each for each in diff.changes if _is_sure(each) and each.change > 0), key=_size)
    falls = sorted((each for each in diff.changes if _is_sure(each) and each.change <= 0), key=_size)
    others = sorted((each for each in diff.changes if not _is_sure(each)), key=_size)
    down = falls[: max(END, 2 * END - len(rises))]
    up = rises[: 2 * END - len(down)]
    shown = [*up, *reversed(down), *others[: 2 * END - len(up) - len(down)]]
    part = replace(diff, changes=tuple(shown), new=diff.new[:LONE], vanished=diff.vanished[:LONE])
    lines = change_table(part).split("\n")
    if len(up) + len(down) < len(rises) + len(falls):
        lines.insert(1 + len(up), "…")
    total, kept = (len(each.changes) + len(each.new) + len(each.vanished) for each in (diff, part))
    note = (
        f"{total - kept:,} of {total:,} collections are left out of this table; for all of them add --json FILE, or "
        "send this output to a file or a pipe."
    )
    return "\n".join(lines), note


def _is_sure(change: Change) -> bool:
    return change.known and 0.0 not in change.interval


def _size(change: Change) -> tuple[bool, bool, float, str]:
    """Places the largest first; what cannot be told, and before it what has not changed at all, last."""
    value = abs(change.change) if math.isfinite(change.change) else 0.0
    return not change.known, change.unchanged, -value, change.name


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
