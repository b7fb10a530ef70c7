"""What changed from one edition of a published control set to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence

from divscore.control.controlcard import plain
from divscore.control.controlset import ControlSet
from divscore.publishing.ids import NUMBER, counterparts, former_names

__all__ = ["CHANGELOG", "changes", "edition_of", "names_examples", "with_entry"]

CHANGELOG = "CHANGELOG.md"
TITLE = "# Changes\n"
EDITION = re.compile(r"^## Edition ([0-9]{1,9})\b", re.M)
ADDED, REMOVED, MOVED = "Added", "Removed", "Moved to another group"
NAMED = re.compile(rf"^- (?:{ADDED}|{REMOVED}|{MOVED}): [0-9]+ \((.+?)(?: and [0-9]+ more)?\)\.$", re.M)
LISTED = 30


def edition_of(text: str) -> int:
    """The latest edition that a changelog speaks of; 0 if none."""
    return max((int(number) for number in EDITION.findall(text)), default=0)


def names_examples(text: str) -> bool:
    """Whether an entry calls examples by more than numbers."""
    return any(not NUMBER.fullmatch(name) for listed in NAMED.findall(text) for name in listed.split(", "))


def with_entry(text: str, edition: int, day: str, lines: Sequence[str]) -> str:
    """A changelog with one more entry, above the others; what people wrote into it stays."""
    entry = "\n".join([f"## Edition {edition} ({day})", "", *(f"- {line}" for line in lines), ""])
    head, mark, rest = text.partition(TITLE)
    if not mark:
        return f"{TITLE}\n{entry}" + (f"\n{text.lstrip()}" if text.strip() else "")
    return f"{head}{mark}\n{entry}" + (f"\n{rest.lstrip()}" if rest.strip() else "")


def changes(
    new: ControlSet, old: ControlSet | None, facts: Sequence[str] = (), *, ids: str = "keep"
) -> list[str]:
    """Lines about what changed; `facts` are the answers about it that did, `ids` is what examples are called by now."""
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
    lines += _examples(new, old, former_names(old, ids))
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


def _examples(new: ControlSet, old: ControlSet, former: Sequence[str]) -> list[str]:
    pairs = counterparts(new, old)
    kept, found = {a for a, _ in pairs}, {b for _, b in pairs}
    group = [(a, b) for a, b in pairs if new.groups[new.labels[a]] != old.groups[old.labels[b]]]
    marked = sum(bool(new.representative[a] != old.representative[b]) for a, b in pairs)
    renamed = sum(new.ids[a] != old.ids[b] for a, b in pairs)
    lines = [
        _told(ADDED, [new.ids[row] for row in range(len(new)) if row not in kept]),
        _told(REMOVED, [former[row] for row in range(len(old)) if row not in found]),
        _told(MOVED, [new.ids[a] for a, _ in group]),
        f"Representatives: {marked} marked or unmarked." if marked else "",
        f"Renamed: {renamed}." if renamed else "",
    ]
    return [line for line in lines if line] or ["The examples are the same."]


def _told(what: str, ids: Sequence[str]) -> str:
    if not ids:
        return ""
    if not all(ids):  # some have no name that may be told
        return f"{what}: {len(ids)}."
    listed = ", ".join(plain(name) for name in ids[:LISTED])
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{what}: {len(ids)} ({listed}{more})."
