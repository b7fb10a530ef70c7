"""What changed between two audits, for people and as the JSON document `divscore.diff/1`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from divscore import __version__
from divscore.audit.change import (
    CANNOT_TELL,
    IDENTICAL,
    LESS_EVEN,
    MORE_EVEN,
    OTHER_WAY,
    SAME,
    SHIFTED,
    AuditDiff,
    Change,
)
from divscore.audit.document import Entry
from divscore.report.listing import columns
from divscore.text import brief, finite, signed

SCHEMA = "divscore.diff/1"
MADE_WITH = ("version", "estimator", "confidence", "seed", "encoder", "control")
END = 12  # changes at either end of a long table
LONE = 4  # new collections, and vanished ones, that a long table shows
COUNTED = {  # how the headline counts verdicts
    LESS_EVEN: "less even",
    MORE_EVEN: "more even",
    OTHER_WAY: "tilted the other way",
    SHIFTED: "shifted towards one group",
    SAME: "without a clear change",
    IDENTICAL: "with the same items as before",
    CANNOT_TELL: "inconclusive",
}


def change_headline(diff: AuditDiff) -> str:
    """What happened, in one sentence; a second one counts the collections that were not compared."""
    parts = [(len(diff.new), "new"), (len(diff.vanished), "vanished")]
    rest = " and ".join(f"{number:,} {word}" for number, word in parts if number)
    after = f" {rest.capitalize()}, not compared." if rest else ""
    if len(diff.changes) == 1:
        return _sentence(diff.changes[0], diff.after.attribute, named=bool(rest)) + after
    verdicts = Counter(_verdict(change) for change in diff.changes)
    if not rest and verdicts.total() == verdicts[IDENTICAL]:
        return f"Nothing has changed: all {len(diff.changes):,} collections have the same items."
    counted = [f"{verdicts[key]:,} {words}" for key, words in COUNTED.items() if verdicts[key]]
    return f"Of {len(diff.changes):,} collections in both audits: {', '.join(counted)}.{after}"


def change_table(diff: AuditDiff, gap: int | None = None) -> str:
    """Collections as aligned rows; those in one audit only come last; `gap` rows are above an ellipsis."""
    level = min(change.interval.level for change in diff.changes)
    rows = [["collection", "before", "after", "change", f"{level:.0%} interval", "verdict"]]
    rows += [_row(change) for change in diff.changes]
    after = {entry.name: entry for entry in diff.after.collections}
    before = {entry.name: entry for entry in diff.before.collections}
    rows += [[brief(name), "", _value(after[name]), "", "", "new"] for name in diff.new]
    rows += [[brief(name), _value(before[name]), "", "", "", "vanished"] for name in diff.vanished]
    if gap is not None:
        rows.insert(1 + gap, ["…", *[""] * 5])
    return columns(rows)


def change_overview(diff: AuditDiff) -> tuple[str, str]:
    """The short form of a long table of changes, and a note on what it omits.

    Clear changes come first: the largest rises on top, the largest falls at the bottom. If there are few, unclear
    changes fill the table up, the largest first.
    """

    def size(change: Change) -> tuple[bool, bool, float, str]:
        value = abs(change.change) if math.isfinite(change.change) else 0.0
        return not change.known, change.unchanged, -value, change.name

    ordered = sorted(diff.changes, key=size)
    clear = [change for change in ordered if change.known and 0.0 not in change.interval]
    rises = [change for change in clear if change.change > 0]
    falls = [change for change in clear if change.change <= 0]
    others = [change for change in ordered if not change.known or 0.0 in change.interval]
    down = falls[: max(END, 2 * END - len(rises))]
    up = rises[: 2 * END - len(down)]
    shown = [*up, *reversed(down), *others[: 2 * END - len(up) - len(down)]]
    part = replace(diff, changes=tuple(shown), new=diff.new[:LONE], vanished=diff.vanished[:LONE])
    table = change_table(part, len(up) if len(up) + len(down) < len(clear) else None)
    total, kept = (len(d.changes) + len(d.new) + len(d.vanished) for d in (diff, part))
    note = (
        f"{total - kept:,} of {total:,} collections are not in this table. To get all of them, add --json FILE, or "
        "redirect the output."
    )
    return table, note


def change_document(
    diff: AuditDiff, limit: float | None = None, *, allow_vanished: bool = False
) -> dict[str, Any]:
    """The JSON document; `limit` is that of the gate, if there is one."""
    gate = {} if limit is None else {"gate": diff.gate(limit, allow_vanished=allow_vanished)}
    return {
        "schema": SCHEMA,
        "version": __version__,
        "attribute": diff.after.attribute,
        "groups": list(diff.after.groups),
        "before": {name: getattr(diff.before, name) for name in MADE_WITH},
        "after": {name: getattr(diff.after, name) for name in MADE_WITH},
        "headline": change_headline(diff),
        "max_change": limit,
        **gate,
        "collections": [_entry(change, limit) for change in diff.changes],
        "new": list(diff.new),
        "vanished": list(diff.vanished),
        "notes": list(diff.notes),
    }


def _sentence(change: Change, attribute: str, *, named: bool) -> str:
    """What happened to one collection; it is `named` if there are others."""
    where = f"'{brief(change.name)}'"
    if not change.known:
        return f"Cannot tell how {brief(attribute)} has changed{f' in {where}' if named else ''}."
    low, high = change.interval.low, change.interval.high
    two = len(change.groups) == 2
    what = f"the share of {brief(change.groups[0])}" if two else "the disparity"
    # A share changes by half as much as the disparity; here in percentage points.
    low, high = (50 * low, 50 * high) if two else (low, high)
    unit, digits = (" points", 1) if two else ("", 2)
    if change.unchanged:
        text = "nothing has changed: the items are the same."
    elif 0.0 in change.interval:
        text = f"no clear change: {what} changed by {low:+.{digits}f} to {high:+.{digits}f}{unit}."
    else:
        moved = "rose" if low > 0 else "fell"
        least, most = sorted((abs(low), abs(high)))
        ends = [(1 + e.disparity) / 2 if two else e.disparity for e in (change.before, change.after)]
        before, after = (f"{value:.0%}" if two else f"{value:.2f}" for value in ends)
        verdict = "" if change.verdict == SHIFTED else f": {change.verdict}"
        amount = f"{least:.{digits}f} to {most:.{digits}f}{unit}"
        text = f"{what} {moved} by {amount}, from about {before} to {after}{verdict}."
    return f"In {where} {text}" if named else f"{text[0].upper()}{text[1:]}"


def _row(change: Change) -> list[str]:
    verdict = _verdict(change)
    if verdict == SHIFTED:
        verdict = f"shifted towards {brief(change.towards or '')}"
    value = signed(change.change)
    interval = f"{signed(change.interval.low)} to {signed(change.interval.high)}"
    if not change.known:
        value, interval = (f"({value})" if value != "?" else value), f"({interval})"
    return [brief(change.name), _value(change.before), _value(change.after), value, interval, verdict]


def _verdict(change: Change) -> str:
    """The same items say more than that no change is clear."""
    return IDENTICAL if change.unchanged else change.verdict


def _value(entry: Entry) -> str:
    text = signed(entry.disparity)
    return text if entry.conclusive or text == "?" else f"({text})"


def _entry(change: Change, limit: float | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": change.name,
        "before": _side(change.before),
        "after": _side(change.after),
        "change": finite(change.change),
        "interval": [change.interval.low, change.interval.high],
        "interval_level": change.interval.level,
        "interval_method": change.interval.method,
        "increase": finite(change.increase),
        "increase_interval": [change.increase_interval.low, change.increase_interval.high],
        "verdict": change.verdict,
        "towards": change.towards,
    }
    return entry if limit is None else {**entry, "gate": change.gate(limit)}


def _side(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "count": entry.count,
        "disparity": finite(entry.disparity),
        "interval": [entry.interval.low, entry.interval.high],
        "trust": entry.trust,
    }
