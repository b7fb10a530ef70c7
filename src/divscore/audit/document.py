"""The JSON document `divscore.audit/1`: written from audits, read back and checked for a comparison."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from divscore.audit.result import Audit
from divscore.audit.trust import control_facts
from divscore.errors import FileError
from divscore.estimators.interval import SMALL_SAMPLE, Interval, Refits, bounds
from divscore.files import check_json, read_json, unreadable
from divscore.sketch.missing import Missing, Rows
from divscore.text import printable

__all__ = ["AuditDocument", "Entry", "as_text", "document", "missing_from", "parse_document", "read_document"]

FAMILY, NEWEST = "divscore.audit", 1
SCHEMA = f"{FAMILY}/{NEWEST}"
WRITE_AGAIN = "write it again with 'divscore audit … --json FILE'"
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


def as_text(content: dict[str, Any]) -> str:
    """JSON with an indent, lists of numbers on one line."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(
        lambda match: re.sub(r"\s*\n\s*", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), text
    )


@dataclass(frozen=True)
class Entry:
    """One audited collection; the disparity is NaN if there was no estimate.

    `missing_parts` is how many parts are, or may be, missing from it; None in early documents, which do not say.
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
    def small_sample(self) -> bool:
        """Whether the interval rests on a sample that many collections shared."""
        return self.interval.method == SMALL_SAMPLE

    @property
    def conclusive(self) -> bool:
        """Whether the audit has an estimate with an interval."""
        method = self.interval.method
        return (
            self.trust != "poor"
            and math.isfinite(self.disparity)
            and not method.startswith(("none", "cannot tell"))
        )


@dataclass(frozen=True)
class AuditDocument:
    """The options of an audit, and its collections."""

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
    """Read a file that `divscore audit --json FILE` wrote."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise unreadable(printable(str(path)), error) from error
    return parse_document(data, printable(str(path)))


def parse_document(data: str | bytes, where: str = "the document") -> AuditDocument:
    """Check a document and keep what a comparison needs; `where` names it in errors."""
    content = read_json(dict[str, Any], data, where, hint=WRITE_AGAIN)
    _check_schema(content.get("schema"), where)
    stored = check_json(_Stored, content, where, hint=WRITE_AGAIN)
    if len(set(stored.groups)) < len(stored.groups):
        raise FileError(f"{where}: groups: two groups have the same name")
    name, times = Counter(each.name for each in stored.collections).most_common(1)[0]
    if times > 1:
        raise FileError(
            f"{where}: {times} collections are named '{printable(name)}' and cannot be matched; audit them under "
            "different names"
        )
    entries = []
    for at, each in enumerate(stored.collections):
        try:
            entries.append(each.entry(len(stored.groups), stored.confidence))
        except ValueError as error:
            raise FileError(f"{where}: collections[{at}].{error}") from error
    return AuditDocument(
        version=stored.version,
        attribute=stored.attribute,
        groups=stored.groups,
        estimator=stored.estimator,
        confidence=stored.confidence,
        seed=stored.seed,
        encoder=stored.encoder,
        control=stored.control.digest,
        collections=tuple(entries),
        missing=stored.missing,
    )


def _check_schema(schema: object, where: str) -> None:
    if not isinstance(schema, str):
        raise FileError(
            f"{where}: this is not an audit by divscore (no 'schema': '{SCHEMA}'); make one with "
            "'divscore audit … --json FILE'"
        )
    family, _, number = schema.partition("/")
    if schema != SCHEMA:
        todo = WRITE_AGAIN
        if family != FAMILY:
            todo = "give the JSON of two audits"
        elif re.fullmatch(r"\d{1,9}", number) and int(number) > NEWEST:
            todo = "a newer divscore wrote it: update this one"
        raise FileError(f"{where}: its schema is '{printable(schema)}', expected '{SCHEMA}'; {todo}")


# The parts of the document that are read, as types.

LARGEST = 1e6  # DivScore is not clipped, but no sensible value is larger
FEWEST = 20  # replicates that make an interval
Level = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Series = Annotated[list[Number | None], Meta(min_length=FEWEST)]


@dataclass(frozen=True)
class _StoredReplicates:
    disparity: Series
    own: Annotated[float, Meta(ge=0, le=LARGEST)]
    pair: Series | None = None

    def refits(self, groups: int) -> Refits:
        if groups == 2:
            return Refits(np.array(self.disparity, dtype=float), self.own)
        if self.pair is None or len(self.pair) != len(self.disparity):
            raise ValueError("replicates.pair: expected as many numbers as in 'disparity'")
        return Refits(np.array(self.disparity, dtype=float), self.own, np.array(self.pair, dtype=float))


@dataclass(frozen=True)
class _StoredCollection:
    name: str
    count: Rows
    disparity: Number | None
    interval: tuple[float, float]
    trust: Literal["good", "caution", "poor"]
    interval_level: Level | None = None
    interval_method: str = ""
    divscore: Number | None = None
    missing_parts: Rows | None = None
    replicates: _StoredReplicates | None = None

    def entry(self, groups: int, confidence: float) -> Entry:
        low, high = self.interval
        least, most = bounds(groups)
        if not least <= low <= high <= most:
            raise ValueError(
                f"interval: expected two ascending numbers from {least:g} to {most:g}, got {low}, {high}"
            )
        level = confidence if self.interval_level is None else self.interval_level
        usable = self.replicates if self.disparity is not None else None
        return Entry(
            name=self.name,
            count=self.count,
            disparity=math.nan if self.disparity is None else self.disparity,
            interval=Interval(low, high, level, self.interval_method),
            trust=self.trust,
            refits=None if usable is None else usable.refits(groups),
            divscore=math.nan if self.divscore is None else self.divscore,
            missing_parts=self.missing_parts,
        )


@dataclass(frozen=True)
class _StoredControl:
    digest: str | None = None


@dataclass(frozen=True)
class _Stored:
    version: str
    attribute: str
    groups: Annotated[tuple[str, ...], Meta(min_length=2)]
    estimator: str
    confidence: Level
    seed: int
    control: _StoredControl
    collections: Annotated[tuple[_StoredCollection, ...], Meta(min_length=1)]
    encoder: str | None = None
    missing: Missing = field(default_factory=Missing)
