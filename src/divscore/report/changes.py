"""What changed between two audits, for people and as the JSON document `divscore.diff/1`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from divscore import __version__
from divscore.audit.change import IDENTICAL, AuditDiff, Change
from divscore.audit.document import AuditDocument, Entry
from divscore.audit.result import Audit
from divscore.estimators.interval import Interval
from divscore.report.summary import headline
from divscore.report.table import columns, table
from divscore.text import brief

__all__ = [
    "ALL",
    "SCHEMA",
    "Overview",
    "change_document",
    "change_headline",
    "change_overview",
    "change_table",
    "overview",
]


SCHEMA = "divscore.diff/1"
COUNTED = {
    "less even": "less even",
    "more even": "more even",
    "tilted the other way": "tilted the other way",
    "shifted": "shifted towards one group",
    "no change that can be told": "without a change that can be told",
    IDENTICAL: "with the same items as before",
    "cannot tell": "that cannot be told",
}


def change_headline(diff: AuditDiff) -> str:
    """What happened, in one sentence; another one counts what was not compared."""
    others = bool(diff.new or diff.vanished)
    if len(diff.changes) == 1:
        return _one(diff.changes[0], diff.after.attribute, named=others) + _rest(diff)
    found = Counter(_words(change) for change in diff.changes)
    if not others and found.total() == found[IDENTICAL]:
        return f"Nothing has changed: the items of all {len(diff.changes):,} collections are the same."
    told = [f"{found[verdict]:,} {words}" for verdict, words in COUNTED.items() if found[verdict]]
    return f"Of {len(diff.changes):,} collections in both audits: {', '.join(told)}.{_rest(diff)}"


def change_table(diff: AuditDiff) -> str:
    """Collections as aligned rows; those in one audit only come last."""
    level = min(change.interval.level for change in diff.changes)
    rows = [["collection", "before", "after", "change", f"{level:.0%} interval", "verdict"]]
    rows += [_row(change) for change in diff.changes]
    after = {entry.name: entry for entry in diff.after.collections}
    before = {entry.name: entry for entry in diff.before.collections}
    rows += [[brief(name), "", _value(after[name]), "", "", "new"] for name in diff.new]
    rows += [[brief(name), _value(before[name]), "", "", "", "vanished"] for name in diff.vanished]
    return columns(rows)


def change_document(
    diff: AuditDiff, limit: float | None = None, *, allow_vanished: bool = False
) -> dict[str, Any]:
    """The JSON document; `limit` is the gate's, where there is one."""
    gate = {} if limit is None else {"gate": diff.gate(limit, allow_vanished=allow_vanished)}
    return {
        "schema": SCHEMA,
        "version": __version__,
        "attribute": diff.after.attribute,
        "groups": list(diff.after.groups),
        "before": _made_with(diff.before),
        "after": _made_with(diff.after),
        "headline": change_headline(diff),
        "max_change": limit,
        **gate,
        "collections": [_entry(change, limit) for change in diff.changes],
        "new": list(diff.new),
        "vanished": list(diff.vanished),
        "notes": list(diff.notes),
    }


def _one(change: Change, attribute: str, *, named: bool) -> str:
    """What happened to one collection; it is `named` where it is not all there is."""
    where = f"in '{brief(change.name)}'"
    if not change.known:
        return f"Cannot tell how {brief(attribute)} has changed{f' {where}' if named else ''}."
    text = _moved(change)
    return f"I{where[1:]} {text[0].lower()}{text[1:]}" if named else text


def _moved(change: Change) -> str:
    if change.unchanged:
        return "Nothing has changed: the items are the same."
    low, high = change.interval.low, change.interval.high
    two = len(change.groups) == 2
    what = f"the share of {brief(change.groups[0])}" if two else "the disparity"
    # A share moves by half of the disparity's change, here in points of per cent.
    low, high = (50 * low, 50 * high) if two else (low, high)
    unit, digits = (" points", 1) if two else ("", 2)
    if 0.0 in change.interval:
        return f"No change that can be told: {what} moved by {low:+.{digits}f} to {high:+.{digits}f}{unit}."
    moved = "rose" if low > 0 else "fell"
    least, most = sorted((abs(low), abs(high)))
    ends = [(1 + e.disparity) / 2 if two else e.disparity for e in (change.before, change.after)]
    shown = [f"{value:.0%}" if two else f"{value:.2f}" for value in ends]
    verdict = "" if change.verdict == "shifted" else f": {change.verdict}"
    return (
        f"{what[0].upper()}{what[1:]} {moved} by {least:.{digits}f} to {most:.{digits}f}{unit}, "
        f"from about {shown[0]} to {shown[1]}{verdict}."
    )


def _rest(diff: AuditDiff) -> str:
    parts = [(len(diff.new), "new"), (len(diff.vanished), "vanished")]
    told = [f"{number:,} {word}" for number, word in parts if number]
    return f" {' and '.join(told).capitalize()}, not compared." if told else ""


def _row(change: Change) -> list[str]:
    verdict = _words(change)
    if verdict == "shifted":
        verdict = f"shifted towards {brief(change.towards or '')}"
    limits = f"{_signed(change.interval.low)} to {_signed(change.interval.high)}"
    moved, interval = _signed(change.change), limits
    if not change.known:
        moved, interval = (f"({moved})" if moved != "?" else "?"), f"({limits})"
    return [brief(change.name), _value(change.before), _value(change.after), moved, interval, verdict]


def _words(change: Change) -> str:
    """The verdict; of the same items more than that no change can be told."""
    return IDENTICAL if change.unchanged else change.verdict


def _value(entry: Entry) -> str:
    text = _signed(entry.disparity)
    return text if entry.told or text == "?" else f"({text})"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "?"


def _made_with(document: AuditDocument) -> dict[str, Any]:
    return {
        "version": document.version,
        "estimator": document.estimator,
        "confidence": document.confidence,
        "seed": document.seed,
        "encoder": document.encoder,
        "control": document.control,
    }


def _entry(change: Change, limit: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": change.name,
        "before": _side(change.before),
        "after": _side(change.after),
        "change": _number(change.change),
        "interval": _limits(change.interval),
        "interval_level": change.interval.level,
        "interval_method": change.interval.method,
        "increase": _number(change.increase),
        "increase_interval": _limits(change.increase_interval),
        "verdict": change.verdict,
        "towards": change.towards,
    }
    if limit is not None:
        found["gate"] = change.gate(limit)
    return found


def _side(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "count": entry.count,
        "disparity": _number(entry.disparity),
        "interval": _limits(entry.interval),
        "trust": entry.trust,
    }


def _limits(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Overview: many collections on one screen: what they have in common, and those at the ends.

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
