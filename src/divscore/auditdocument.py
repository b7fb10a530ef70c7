"""AuditDocument: what a stored audit says, read back from JSON `divscore.audit/1` and checked."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divscore.errors import FileError
from divscore.interval import SHARED_BOOTSTRAP, Interval, Refits, bounds
from divscore.missing import NO_GAPS, Gaps
from divscore.similarity import FloatArray
from divscore.wording import printable

__all__ = ["AuditDocument", "Entry", "parse_document", "read_document"]

FAMILY, NEWEST = "divscore.audit", 1
TRUST = ("good", "caution", "poor")
LARGEST = 1e6  # DivScore is not clipped, but nothing sensible is larger
SLACK = 1e-6
FEWEST = 20  # replicates that make an interval
KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    (int, float): "a number",
}


@dataclass(frozen=True)
class Entry:
    """One collection as it was audited; the disparity is NaN where there was none."""

    name: str
    count: int
    disparity: float
    interval: Interval
    trust: str
    refits: Refits | None
    divscore: float = math.nan

    @property
    def on_shared_sample(self) -> bool:
        """Whether the interval rests on a sample that many collections shared."""
        return self.interval.method == SHARED_BOOTSTRAP

    @property
    def told(self) -> bool:
        """Whether the audit came to an answer at all."""
        return (
            self.trust != "poor"
            and math.isfinite(self.disparity)
            and not self.interval.method.startswith(("none", "cannot tell"))
        )


@dataclass(frozen=True)
class AuditDocument:
    """What an audit was made with, and its collections."""

    version: str
    attribute: str
    groups: tuple[str, ...]
    estimator: str
    confidence: float
    seed: int
    encoder: str | None
    control: str | None  # the control set's digest
    collections: tuple[Entry, ...]
    missing: Gaps = NO_GAPS


def read_document(path: str | Path) -> AuditDocument:
    """Read what `divscore audit --json FILE` wrote."""
    where = printable(str(path))
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is not a JSON file: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise FileError(f"cannot read {where}: {error.strerror or error}") from error
    return parse_document(text, where)


def parse_document(text: str, where: str = "the document") -> AuditDocument:
    """Check a document's text and keep what a comparison needs; `where` names it in errors."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "it is empty" if not text.strip() else str(error)
        raise FileError(
            f"{where} is not a whole JSON file ({reason}); write it again with 'divscore audit … --json FILE'"
        ) from error
    return _Reader(where).document(found)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number in JSON")


class _Reader:
    """Takes a document apart; every error names the file and the place in it."""

    def __init__(self, where: str) -> None:
        self.where = where

    def document(self, found: Any) -> AuditDocument:
        self._check_schema(found)
        groups = self._groups(found)
        control = self._get(found, "control", dict, "")
        listed = self._get(found, "collections", list, "")
        level = self._real(found, "confidence", "", 0.0, 1.0)
        collections = tuple(self._entry(c, i, len(groups), level) for i, c in enumerate(listed))
        if not collections:
            raise self._wrong("no collections; there is nothing to compare")
        self._check_names(collections)
        return AuditDocument(
            version=self._get(found, "version", str, ""),
            attribute=self._get(found, "attribute", str, ""),
            groups=groups,
            estimator=self._get(found, "estimator", str, ""),
            confidence=level,
            seed=self._get(found, "seed", int, ""),
            encoder=self._name(found, "encoder", ""),
            control=self._name(control, "digest", "control: "),
            collections=collections,
            missing=self._missing(found.get("missing", {})),
        )

    def _missing(self, told: Any) -> Gaps:
        try:
            return Gaps.of(told)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._wrong("'missing' does not list what could not be read") from error

    def _check_names(self, collections: tuple[Entry, ...]) -> None:
        most = Counter(entry.name for entry in collections).most_common(1)[0]
        if most[1] > 1:
            raise self._wrong(
                f"{most[1]} collections are named '{printable(most[0])}' and cannot be matched; audit them under "
                "different names"
            )

    def _check_schema(self, found: Any) -> None:
        schema = found.get("schema") if isinstance(found, dict) else None
        if not isinstance(schema, str):
            raise self._wrong(
                f"this is no audit of divscore (no 'schema': '{FAMILY}/{NEWEST}'); write one with "
                "'divscore audit … --json FILE'"
            )
        family, _, number = schema.partition("/")
        if family != FAMILY:
            raise self._wrong(
                f"its schema is '{printable(schema)}', expected '{FAMILY}/{NEWEST}'; give the JSON of two audits"
            )
        if number != str(NEWEST):
            newer = re.fullmatch(r"\d{1,9}", number) and int(number) > NEWEST
            todo = "it was written by a newer divscore: update this one" if newer else "write it again"
            raise self._wrong(f"its schema is '{printable(schema)}', expected '{FAMILY}/{NEWEST}'; {todo}")

    def _groups(self, found: dict[str, Any]) -> tuple[str, ...]:
        groups = self._get(found, "groups", list, "")
        if len(groups) < 2 or not all(isinstance(g, str) for g in groups) or len(set(groups)) < len(groups):
            raise self._wrong("'groups' needs two or more different names")
        return tuple(groups)

    def _entry(self, found: Any, number: int, groups: int, level: float) -> Entry:
        at = f"collection {number + 1}: "
        if not isinstance(found, dict):
            raise self._wrong(f"{at}expected an object")
        low, high = bounds(groups)
        limits = self._get(found, "interval", list, at)
        if len(limits) != 2:
            raise self._wrong(f"{at}'interval' needs two numbers, got {len(limits)}")
        ends = [self._number(value, f"{at}'interval'", low, high) for value in limits]
        if ends[0] > ends[1]:
            raise self._wrong(f"{at}'interval' begins at {ends[0]:g}, above its end {ends[1]:g}")
        if "interval_level" in found:
            level = self._real(found, "interval_level", at, 0.0, 1.0)
        value = math.nan
        if found.get("disparity", 0) is not None:
            value = self._real(found, "disparity", at, -LARGEST, LARGEST)
        trust = self._get(found, "trust", str, at)
        if trust not in TRUST:
            raise self._wrong(f"{at}trust '{printable(trust)}' is none of {', '.join(TRUST)}")
        count = self._get(found, "count", int, at)
        if not 0 <= count < 2**63:
            raise self._wrong(f"{at}'count' is out of range")
        method = str(found.get("interval_method", ""))
        return Entry(
            name=self._get(found, "name", str, at),
            count=count,
            disparity=value,
            interval=Interval(ends[0], ends[1], level, method),
            trust=trust,
            refits=self._refits(found, at, groups)
            if "replicates" in found and math.isfinite(value)
            else None,
            divscore=self._real(found, "divscore", at, -LARGEST, LARGEST)
            if found.get("divscore") is not None
            else math.nan,
        )

    def _refits(self, entry: dict[str, Any], at: str, groups: int) -> Refits:
        found = self._get(entry, "replicates", dict, at)
        series = self._series(found, "disparity", at)
        pair = self._series(found, "pair", at) if groups > 2 else None
        if len(series) < FEWEST or (pair is not None and len(pair) != len(series)):
            raise self._wrong(f"{at}'replicates' are cut short")
        return Refits(series, self._real(found, "own", f"{at}replicates: ", 0.0, LARGEST), pair)

    def _series(self, found: dict[str, Any], key: str, at: str) -> FloatArray:
        values = self._get(found, key, list, f"{at}replicates: ")
        place = f"{at}'replicates'"
        return np.array(
            [math.nan if v is None else self._number(v, place, -LARGEST, LARGEST) for v in values],
            dtype=float,
        )

    def _real(self, found: dict[str, Any], key: str, at: str, low: float, high: float) -> float:
        return self._number(self._get(found, key, (int, float), at), f"{at}'{key}'", low, high)

    def _number(self, value: Any, place: str, low: float, high: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(f"{place} holds {_shown(value)}, expected a number")
        if not low - SLACK <= value <= high + SLACK:
            raise self._wrong(f"{place} holds {_shown(value)}, expected {low:g} to {high:g}")
        return float(value)

    def _name(self, found: dict[str, Any], key: str, at: str) -> str | None:
        """A string, or none."""
        return None if found.get(key) is None else str(self._get(found, key, str, at))

    def _get(self, found: dict[str, Any], key: str, kind: Any, at: str) -> Any:
        if key not in found:
            raise self._wrong(f"{at}'{key}' is missing; write it again with 'divscore audit … --json FILE'")
        value = found[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._wrong(f"{at}'{key}' holds {_shown(value)}, expected {KINDS[kind]}")
        return value

    def _wrong(self, what: str) -> FileError:
        return FileError(f"{self.where}: {what}")


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 40 else f"{text[:40]}…"
