"""What examples are called in public: no folders of somebody's machine, and the same name in every edition."""

from __future__ import annotations

import re
from collections import Counter

from divscore.control.controlset import ControlSet

__all__ = ["CHOICES", "NUMBER", "counterparts", "fingerprints", "former_names", "public_ids", "whole_texts"]

CHOICES = ("names", "numbers", "keep")
NUMBER = re.compile(r"example-([0-9]{1,9})")
SENTENCE = 6  # words; names of files and of people have fewer


def public_ids(control: ControlSet, choice: str, earlier: ControlSet | None = None) -> list[str]:
    """Rename the examples.

    Parameters
    ----------
    control : ControlSet
        With the ids of its owner.
    choice : "names", "numbers" or "keep"
        Without the folders before the last slash; "example-0001", "example-0002", …; or as they are.
    earlier : ControlSet, optional
        The edition before, whose numbers stay with their examples.
    """
    if choice == "keep":
        return list(control.ids)
    if choice == "numbers":
        return _numbers(control, earlier)
    return _names(control)


def fingerprints(control: ControlSet) -> list[str]:
    """One of each example's vector; equal ones are told apart by their number."""
    seen: Counter[bytes] = Counter()
    found = []
    for row in control.vectors.astype("<f8"):
        data = row.tobytes()
        found.append(f"{data.hex()}:{seen[data]}")
        seen[data] += 1
    return found


def counterparts(new: ControlSet, old: ControlSet) -> list[tuple[int, int]]:
    """Rows of the examples that are in both editions.

    Vectors of one encoder tell examples apart whatever they are called; of two encoders they tell nothing, and the
    names must.
    """
    comparable = old.encoder == new.encoder and old.dimension == new.dimension
    mine, theirs = (fingerprints(each) if comparable else each.ids for each in (new, old))
    rows = {key: row for row, key in enumerate(theirs)}
    return [(row, rows[key]) for row, key in enumerate(mine) if key in rows]


def former_names(old: ControlSet, choice: str) -> list[str]:
    """What an edition with this `choice` of ids may call the examples of the one before; empty where nothing."""
    if choice == "keep":
        return list(old.ids)
    if choice == "numbers":
        return [name if NUMBER.fullmatch(name) else "" for name in old.ids]
    return [_last(name) for name in old.ids]


def whole_texts(control: ControlSet) -> int:
    """How many examples are called by what looks like a whole text."""
    return sum(len(name.split()) >= SENTENCE for name in control.ids)


def _last(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _names(control: ControlSet) -> list[str]:
    names = [_last(name) for name in control.ids]
    # The same name in several folders: their group tells them apart, which is public anyway.
    twice = Counter(names)
    groups = [control.groups[label] for label in control.labels]
    names = [f"{g}/{n}" if twice[n] > 1 else n for n, g in zip(names, groups, strict=True)]
    still = Counter(names)
    taken, found = set(names), []
    for row, name in enumerate(names):
        if still[name] > 1 or not name:
            name = _free(f"example-{row + 1:04}", taken)
        found.append(name)
    return found


def _numbers(control: ControlSet, earlier: ControlSet | None) -> list[str]:
    known: dict[str, str] = {}
    if earlier is not None:
        known = dict(zip(fingerprints(earlier), earlier.ids, strict=True))
    kept = [known.get(mark, "") for mark in fingerprints(control)]
    kept = [name if NUMBER.fullmatch(name) else "" for name in kept]
    used = [int(found[1]) for name in known.values() if (found := NUMBER.fullmatch(name))]
    following = iter(range(max(used, default=0) + 1, max(used, default=0) + len(kept) + 1))
    return [name or f"example-{next(following):04}" for name in kept]


def _free(name: str, taken: set[str]) -> str:
    number, wanted = 1, name
    while wanted in taken:
        number += 1
        wanted = f"{name}-{number}"
    taken.add(wanted)
    return wanted
