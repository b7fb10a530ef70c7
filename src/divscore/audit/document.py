"""The JSON document `divscore.audit/1`: written for audits of one control set, read back and checked."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from divscore.audit.result import Audit
from divscore.audit.trust import control_facts
from divscore.control.similarity import FloatArray
from divscore.errors import FileError
from divscore.estimators.interval import SHARED_BOOTSTRAP, Interval, Refits, bounds
from divscore.sketch.missing import MOST_ROWS, Missing
from divscore.text import printable

__all__ = [
    "AuditDocument",
    "Entry",
    "Fields",
    "as_text",
    "document",
    "missing_from",
    "parse_document",
    "read_document",
]


# Fields: an object of a JSON file whose values are asked for by name and kind.

SLACK = 1e-6
KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    (int, float): "a number",
}


class Fields:
    """An object, the file that it stands in, and the place there; every error names both.

    >>> Fields({"confidence": 95}, "a.json").real("confidence", 0, 1)
    Traceback (most recent call last):
    divscore.errors.FileError: a.json: 'confidence' holds 95, expected 0 to 1
    """

    def __init__(self, held: Any, where: str, place: str = "") -> None:
        self.where, self.place = where, place
        if not isinstance(held, dict):
            raise self.wrong("expected an object")
        self.held: dict[str, Any] = held

    def has(self, key: str) -> bool:
        """Whether there is anything but null."""
        return self.held.get(key) is not None

    def of(self, key: str) -> Fields:
        """The object that a key holds."""
        return Fields(self._get(key, dict), self.where, f"{self.place}{key}: ")

    def text(self, key: str) -> str:
        """Any text."""
        return str(self._get(key, str))

    def text_or_none(self, key: str) -> str | None:
        """A text, or nothing."""
        return self.text(key) if self.has(key) else None

    def values(self, key: str) -> list[Any]:
        """A list, whatever is in it."""
        return list(self._get(key, list))

    def whole(self, key: str) -> int:
        """Any whole number."""
        return int(self._get(key, int))

    def size(self, key: str, most: int) -> int:
        """A whole number of things, fewer than `most`."""
        found = self.whole(key)
        if not 0 <= found < most:
            raise self.wrong(f"'{key}' is out of range")
        return found

    def real(self, key: str, low: float, high: float) -> float:
        """A number within limits."""
        return self.number(self._get(key, (int, float)), key, low, high)

    def number(self, value: Any, key: str, low: float, high: float) -> float:
        """The same, for one of several numbers that a key holds."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(f"'{key}' holds {_shown(value)}, expected a number")
        if not low - SLACK <= value <= high + SLACK:
            raise self.wrong(f"'{key}' holds {_shown(value)}, expected {low:g} to {high:g}")
        return float(value)

    def wrong(self, what: str) -> FileError:
        """An error that says where it is."""
        return FileError(f"{self.where}: {self.place}{what}")

    def _get(self, key: str, kind: Any) -> Any:
        if key not in self.held:
            raise self.wrong(f"'{key}' is missing; write it again with 'divscore audit … --json FILE'")
        value = self.held[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.wrong(f"'{key}' holds {_shown(value)}, expected {KINDS[kind]}")
        return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 40 else f"{text[:40]}…"


FAMILY, NEWEST = "divscore.audit", 1
TRUST = ("good", "caution", "poor")
LARGEST = 1e6  # DivScore is not clipped, but nothing sensible is larger
FEWEST = 20  # replicates that make an interval


@dataclass(frozen=True)
class Entry:
    """One collection as it was audited; the disparity is NaN where there was none.

    `missing_parts` is how many parts are, or may be, missing from it; None in documents that do not say whose they are.
    """

    name: str
    count: int
    disparity: float
    interval: Interval
    trust: str
    refits: Refits | None
    divscore: float = math.nan
    missing_parts: int | None = None

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
    missing: Missing = field(default_factory=Missing)  # from the whole source


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

    def document(self, held: Any) -> AuditDocument:
        self._check_schema(held)
        found = Fields(held, self.where)
        groups = _groups(found)
        control = found.of("control")
        listed = found.values("collections")
        level = found.real("confidence", 0.0, 1.0)
        collections = tuple(self._entry(c, i, len(groups), level) for i, c in enumerate(listed))
        if not collections:
            raise found.wrong("no collections; there is nothing to compare")
        _check_names(found, collections)
        return AuditDocument(
            version=found.text("version"),
            attribute=found.text("attribute"),
            groups=groups,
            estimator=found.text("estimator"),
            confidence=level,
            seed=found.whole("seed"),
            encoder=found.text_or_none("encoder"),
            control=control.text_or_none("digest"),
            collections=collections,
            missing=_missing(found),
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

    def _entry(self, held: Any, number: int, groups: int, level: float) -> Entry:
        found = Fields(held, self.where, f"collection {number + 1}: ")
        if "interval_level" in found.held:
            level = found.real("interval_level", 0.0, 1.0)
        value = math.nan
        if found.held.get("disparity", 0) is not None:
            value = found.real("disparity", -LARGEST, LARGEST)
        trust = found.text("trust")
        if trust not in TRUST:
            raise found.wrong(f"trust '{printable(trust)}' is none of {', '.join(TRUST)}")
        return Entry(
            name=found.text("name"),
            count=found.size("count", 2**63),
            disparity=value,
            interval=_interval(found, groups, level),
            trust=trust,
            refits=_refits(found.of("replicates"), groups)
            if "replicates" in found.held and math.isfinite(value)
            else None,
            divscore=found.real("divscore", -LARGEST, LARGEST) if found.has("divscore") else math.nan,
            missing_parts=found.size("missing_parts", MOST_ROWS) if "missing_parts" in found.held else None,
        )

    def _wrong(self, what: str) -> FileError:
        return FileError(f"{self.where}: {what}")


def _groups(found: Fields) -> tuple[str, ...]:
    groups = found.values("groups")
    if len(groups) < 2 or not all(isinstance(g, str) for g in groups) or len(set(groups)) < len(groups):
        raise found.wrong("'groups' needs two or more different names")
    return tuple(groups)


def _missing(found: Fields) -> Missing:
    try:
        return Missing.from_dict(found.held.get("missing", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise found.wrong("'missing' does not list what could not be read") from error


def _check_names(found: Fields, collections: tuple[Entry, ...]) -> None:
    most = Counter(entry.name for entry in collections).most_common(1)[0]
    if most[1] > 1:
        raise found.wrong(
            f"{most[1]} collections are named '{printable(most[0])}' and cannot be matched; audit them under "
            "different names"
        )


def _interval(found: Fields, groups: int, level: float) -> Interval:
    limits = found.values("interval")
    if len(limits) != 2:
        raise found.wrong(f"'interval' needs two numbers, got {len(limits)}")
    low, high = (found.number(value, "interval", *bounds(groups)) for value in limits)
    if low > high:
        raise found.wrong(f"'interval' begins at {low:g}, above its end {high:g}")
    return Interval(low, high, level, str(found.held.get("interval_method", "")))


def _refits(found: Fields, groups: int) -> Refits:
    series = _series(found, "disparity")
    pair = _series(found, "pair") if groups > 2 else None
    if len(series) < FEWEST or (pair is not None and len(pair) != len(series)):
        raise found.wrong("they are cut short")
    return Refits(series, found.real("own", 0.0, LARGEST), pair)


def _series(found: Fields, key: str) -> FloatArray:
    values = found.values(key)
    return np.array(
        [math.nan if v is None else found.number(v, key, -LARGEST, LARGEST) for v in values], dtype=float
    )


# Writing

SCHEMA = "divscore.audit/1"
# Raw line breaks stand between values only, never inside a JSON string.
NUMBERS = re.compile(r"\[\n\s+(?:-?\d[\d.e+-]*|null)(?:,\n\s+(?:-?\d[\d.e+-]*|null))*\n\s+\]")


def document(
    audits: Sequence[Audit], *, replicates: bool = False, missing: Missing | None = None
) -> dict[str, Any]:
    """Make one document of audits with the same control set and options.

    With `replicates` (about 1.6 KB a collection) `divscore diff` can pair it with a later audit. `missing` lists the
    parts of the source that could not be read, including those of collections without an audit; by default those
    that the audits list.
    """
    from divscore import __version__

    first = audits[0]
    control = first.control
    facts = control_facts(control)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "attribute": control.attribute,
        "groups": list(control.groups),
        "estimator": first.estimator,
        "confidence": first.confidence,
        "seed": first.seed,
        "encoder": control.encoder,
        "control": {
            "labelled": len(control),
            "representatives": int(control.representative.sum()),
            "counts": control.counts,
            "gamma": facts.separability.gamma,
            "gamma_control": facts.reference.gamma,
            "method": control.method,
            "digest": control.digest,
            "left_out": control.skipped,
            "noisy_groups": list(first.noisy_groups),
        },
        "missing": missing_from(audits, missing).to_dict(),
        "collections": [
            # A sketch has its own seed; replicates of another seed than the document's could not be paired.
            audit.to_dict(replicates=replicates and audit.seed == first.seed)
            for audit in audits
        ],
    }


def missing_from(audits: Sequence[Audit], missing: Missing | None) -> Missing:
    """The missing parts of the source: as known to the caller, or else those that the audits list."""
    return Missing.union(audit.missing for audit in audits) if missing is None else missing


def as_text(found: dict[str, Any]) -> str:
    """JSON with an indent, lists of numbers on one line."""
    text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(
        lambda match: re.sub(r"\s*\n\s*", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), text
    )
