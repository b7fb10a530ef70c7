"""What changed from one edition of a published control set to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence

from divscore.control import ControlSet
from divscore.controlcard import plain
from divscore.publishing.ids import fingerprints

__all__ = ["CHANGELOG", "changes", "edition_of", "with_entry"]

CHANGELOG = "CHANGELOG.md"
TITLE = "# Changes\n"
EDITION = re.compile(r"^## Edition (\d+)", re.M)
LISTED = 30


def edition_of(text: str) -> int:
    """The latest edition that a changelog speaks of; 0 if none."""
    return max((int(number) for number in EDITION.findall(text)), default=0)


def with_entry(text: str, edition: int, day: str, lines: Sequence[str]) -> str:
    """A changelog with one more entry, above the others; what people wrote into it stays."""
    entry = "\n".join([f"## Edition {edition} ({day})", "", *(f"- {line}" for line in lines), ""])
    head, mark, rest = text.partition(TITLE)
    if not mark:
        return f"{TITLE}\n{entry}" + (f"\n{text.lstrip()}" if text.strip() else "")
    return f"{head}{mark}\n{entry}" + (f"\n{rest.lstrip()}" if rest.strip() else "")


def changes(new: ControlSet, old: ControlSet | None, facts: Sequence[str] = ()) -> list[str]:
    """Lines about what changed; `facts` are the answers about it that did."""
    if old is None:
        counts = ", ".join(f"{n} of {plain(name)}" for name, n in new.counts.items())
        return [
            f"First edition: {len(new)} examples, {counts}.",
            f"Digest of the control set: `{new.digest}`.",
        ]
    lines = []
    if old.attribute != new.attribute:
        lines.append(f"Attribute: {plain(old.attribute)} → {plain(new.attribute)}.")
    if old.encoder != new.encoder:
        lines.append(
            f"Encoder: {plain(old.encoder or 'not recorded')} → {plain(new.encoder or 'not recorded')}."
        )
    lines += _examples(new, old)
    if old.counts != new.counts:
        names = dict.fromkeys((*old.groups, *new.groups))
        told = ", ".join(f"{plain(n)} {old.counts.get(n, 0)} → {new.counts.get(n, 0)}" for n in names)
        lines.append(f"Groups: {told}.")
    if facts:
        lines.append(f"Other answers to: {', '.join(facts)}.")
    if old.digest == new.digest:
        lines.append(f"Digest of the control set, unchanged: `{new.digest}`.")
    else:
        lines.append(f"Digest of the control set: `{old.digest}` → `{new.digest}`.")
    return lines


def _examples(new: ControlSet, old: ControlSet) -> list[str]:
    # Vectors of one encoder tell examples apart whatever they are called; of two encoders they tell nothing.
    comparable = old.encoder == new.encoder and old.dimension == new.dimension
    mine, theirs = (_rows(control, comparable) for control in (new, old))
    both = [key for key in mine if key in theirs]
    pairs = [(mine[key], theirs[key]) for key in both]
    group = [(a, b) for a, b in pairs if new.groups[new.labels[a]] != old.groups[old.labels[b]]]
    marked = sum(bool(new.representative[a] != old.representative[b]) for a, b in pairs)
    renamed = sum(new.ids[a] != old.ids[b] for a, b in pairs)
    lines = [
        _told("Added", [new.ids[row] for key, row in mine.items() if key not in theirs]),
        _told("Removed", [old.ids[row] for key, row in theirs.items() if key not in mine]),
        _told("Moved to another group", [new.ids[a] for a, _ in group]),
        f"Representatives: {marked} marked or unmarked." if marked else "",
        f"Renamed: {renamed}." if renamed else "",
    ]
    return [line for line in lines if line] or ["The examples are the same."]


def _rows(control: ControlSet, by_vector: bool) -> dict[str, int]:
    keys = fingerprints(control) if by_vector else list(control.ids)
    return {key: row for row, key in enumerate(keys)}


def _told(what: str, ids: Sequence[str]) -> str:
    if not ids:
        return ""
    listed = ", ".join(plain(name) for name in ids[:LISTED])
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{what}: {len(ids)} ({listed}{more})."
