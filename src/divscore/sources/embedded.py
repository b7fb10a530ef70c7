"""Embedded: what a file that `embed` wrote says about the items that its vectors are made from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divscore.audit.missing import MOST_ROWS, Missing
from divscore.errors import FileError
from divscore.sources.leftout import read_left_out

__all__ = ["ABOUT_KEY", "KINDS", "MOST_VALUES", "Embedded", "read_embedded"]

ABOUT_KEY = "divscore.embedding"  # in the metadata of the schema
KINDS = ("unreadable", "empty")
MOST_VALUES = 1000  # of a column, with their kinds, that are told apart

ByValue = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Embedded:
    """How many items and vectors, how many items with several; those without, by kind and by the values of columns.

    `missing` are files that could not be opened, so that nothing is known of their items.
    """

    items: int
    vectors: int
    several: int
    skipped: dict[str, int]
    skipped_by: dict[str, ByValue]
    missing: tuple[Missing, ...] = ()

    @property
    def lost(self) -> int:
        """Items without a vector."""
        return sum(self.skipped.values())


def read_embedded(metadata: Mapping[str, str], label: str) -> Embedded | None:
    """What a file's metadata says; None where `embed` did not write it.

    Nothing is believed that `embed` would not have written: items without a vector would be forgotten, or invented.
    """
    text = metadata.get(ABOUT_KEY)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(_damaged(label)) from error
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    counts: dict[str, Any] = {name: told.get(name) for name in ("items", "vectors", "several")}
    skipped: Any = told.get("skipped")
    by = told.get("skipped_by")
    missing = read_left_out(told.get("missing", []), label)
    if not _numbers(counts, counts) or not _numbers(skipped, KINDS) or not isinstance(by, dict):
        raise FileError(_damaged(label))
    if missing is None:
        raise FileError(_damaged(label, "which files it is made without"))
    about = Embedded(**counts, skipped=skipped, skipped_by=by, missing=missing)
    possible = about.several <= about.items and 0 <= about.items - about.lost <= about.vectors
    if not possible or not all(_accounted(values, skipped) for values in by.values()):
        raise FileError(_damaged(label))
    return about


def _damaged(label: str, what: str = "which items have no vector") -> str:
    return (
        f"{label} does not say {what} as 'divscore embed' does (its metadata '{ABOUT_KEY}'); it is damaged: let "
        "'divscore embed' make it again, or remove that metadata, and nothing is known of what it lacks"
    )


def _numbers(told: Any, names: Any) -> bool:
    """Whether these are counts under these names and no others."""
    if not isinstance(told, dict) or told.keys() != set(names):
        return False
    return all(type(number) is int and 0 <= number < MOST_ROWS for number in told.values())


def _accounted(values: Any, skipped: Mapping[str, int]) -> bool:
    """Whether items are told by the values of a column: as many as have no vector, or fewer."""
    if not isinstance(values, dict):
        return False
    sums: Counter[str] = Counter()
    pairs = 0
    for kinds in values.values():
        if not isinstance(kinds, dict) or not set(KINDS) >= kinds.keys() or not _numbers(kinds, kinds):
            return False
        sums.update(kinds)
        pairs += len(kinds)
    return pairs <= MOST_VALUES and all(sums[kind] <= skipped[kind] for kind in KINDS)
