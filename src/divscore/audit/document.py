"""The JSON document `divscore.audit/1`: written from audits, read back and checked for a comparison."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, field

from divscore.audit.result import Audit, headline
from divscore.audit.target import Gate
from divscore.audit.trust import control_facts
from divscore.errors import FileError
from divscore.estimators.interval import Interval, Refits
from divscore.files import check_json, read_json, unreadable
from divscore.sketch.missing import Missing, Rows
from divscore.text import printable

FAMILY, NEWEST = "divscore.audit", 1
SCHEMA = f"{FAMILY}/{NEWEST}"
WRITE_AGAIN = "write it again with 'divscore audit … --json FILE'"


def document(
    audits: Sequence[Audit],
    *,
    replicates: bool = False,
    missing: Missing | None = None,
    limit: float | None = None,
) -> dict[str, Any]:
    """Make one document of audits with the same control set and options.

    With `replicates` (about 1.6 KB a collection) `divscore diff` can pair it with a later audit. `missing` lists the
    parts of the source that could not be read, including those of collections without an audit; by default those
    that the audits list. With a `limit` the document has the verdict of a gate, in all and for each collection.
    """
    from divscore import __version__

    first = audits[0]
    control = first.control
    facts = None if control.incomplete else control_facts(control)
    absent = missing_from(audits, missing)
    gate = None if limit is None else Gate.of(audits, limit, absent.count)
    collections = []
    for at, audit in enumerate(audits):
        # A sketch has its own seed; replicates of another seed than the document's could not be paired.
        entry = audit.to_dict(replicates=replicates and audit.seed == first.seed)
        if gate is not None:
            verdict = gate.verdicts[at]
            entry["gate"] = {"verdict": verdict.word, "reason": verdict.reason}
        collections.append(entry)
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
            "gamma": facts and facts.separability.gamma,
            "gamma_control": facts and facts.reference.gamma,
            "method": control.method,
            "digest": control.digest,
            "left_out": control.skipped,
            "noisy_groups": list(first.noisy_groups),
        },
        "target": None if first.target is None else first.target.to_dict(),
        "headline": headline(audits),
        "gate": None if gate is None else gate.to_dict(),
        "missing": absent.to_dict(),
        "collections": collections,
    }


def missing_from(audits: Sequence[Audit], missing: Missing | None) -> Missing:
    """The missing parts of the source: as known to the caller, or else those that the audits list."""
    return Missing.union(audit.missing for audit in audits) if missing is None else missing


LARGEST = 1e6  # DivScore is not clipped, but no sensible value is larger
FEWEST = 20  # replicates that make an interval
Level = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Series = Annotated[list[Number | None], Meta(min_length=FEWEST)]


class _Replicates(Struct, frozen=True):
    disparity: Series
    own: Annotated[float, Meta(ge=0, le=LARGEST)]
    pair: Series | None = None
    shift: Annotated[float, Meta(ge=0, le=LARGEST)] = 0.0
    outline: list[Annotated[float, Meta(ge=-1, le=1)]] | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One collection of a document: what a comparison needs of it.

    `missing_parts` is how many parts are, or may be, missing from it; None in early documents, which do not say.
    """

    name: str
    count: Rows
    trust: Literal["good", "caution", "poor"]
    stored_disparity: Number | None = field(name="disparity")
    stored_interval: tuple[float, float] = field(name="interval")
    interval_level: Level
    interval_method: str
    stored_divscore: Number | None = field(name="divscore", default=None)
    missing_parts: Rows | None = None
    replicates: _Replicates | None = None

    def __post_init__(self) -> None:
        low, high = self.stored_interval
        if not -1 <= low <= high <= 1:
            raise ValueError(f"interval: expected two ascending numbers from -1 to 1, got {low}, {high}")

    @property
    def disparity(self) -> float:
        """The estimate; NaN if there was none."""
        return math.nan if self.stored_disparity is None else self.stored_disparity

    @property
    def divscore(self) -> float:
        """The score of Algorithm 1; NaN if there was none."""
        return math.nan if self.stored_divscore is None else self.stored_divscore

    @property
    def interval(self) -> Interval:
        """The interval of the disparity."""
        return Interval(*self.stored_interval, self.interval_level, self.interval_method)

    @property
    def refits(self) -> Refits | None:
        """The replicates, if the document has them."""
        if self.replicates is None or self.stored_disparity is None:
            return None
        pair, outline = self.replicates.pair, self.replicates.outline
        return Refits(
            np.array(self.replicates.disparity, dtype=float),
            self.replicates.own,
            None if pair is None else np.array(pair, dtype=float),
            self.replicates.shift,
            None if outline is None else np.array(outline),
        )

    @property
    def conclusive(self) -> bool:
        """Whether the audit has an estimate with an interval."""
        known = self.trust != "poor" and self.stored_disparity is not None
        return known and not self.interval_method.startswith(("none", "cannot tell"))


class _Control(Struct, frozen=True):
    digest: str | None = None


class AuditDocument(Struct, frozen=True, kw_only=True):
    """The options of an audit, its collections, and what is missing from the whole source."""

    version: str
    attribute: str
    groups: Annotated[tuple[str, ...], Meta(min_length=2)]
    estimator: str
    confidence: Level
    seed: int
    encoder: str | None = None
    stored_control: _Control = field(name="control")
    collections: Annotated[tuple[Entry, ...], Meta(min_length=1)]
    missing: Missing = field(default_factory=Missing)

    def __post_init__(self) -> None:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError("groups: two groups have the same name")
        name, times = Counter(entry.name for entry in self.collections).most_common(1)[0]
        if times > 1:
            raise ValueError(
                f"{times} collections are named '{printable(name)}' and cannot be matched; audit them under different "
                "names"
            )
        for at, entry in enumerate(self.collections if len(self.groups) > 2 else ()):
            if entry.stored_interval[0] < 0:
                raise ValueError(
                    f"collections[{at}].interval: below 0, but the disparity of several groups has no sign"
                )
            stored = entry.replicates
            if stored is not None and len(stored.pair or ()) != len(stored.disparity):
                raise ValueError(f"collections[{at}].replicates: 'pair' and 'disparity' differ in length")

    @property
    def control(self) -> str | None:
        """The digest of the control set."""
        return self.stored_control.digest


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
    schema = content.get("schema")
    if not isinstance(schema, str):
        raise FileError(
            f"{where}: this is not an audit by divscore (no 'schema': '{SCHEMA}'); make one with "
            "'divscore audit … --json FILE'"
        )
    if schema != SCHEMA:
        family, _, number = schema.partition("/")
        todo = WRITE_AGAIN
        if family != FAMILY:
            todo = "give the JSON of two audits"
        elif re.fullmatch(r"\d{1,9}", number) and int(number) > NEWEST:
            todo = "a newer divscore wrote it: update this one"
        raise FileError(f"{where}: its schema is '{printable(schema)}', expected '{SCHEMA}'; {todo}")
    return check_json(AuditDocument, content, where, hint=WRITE_AGAIN)
