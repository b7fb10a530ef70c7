"""The JSON document `divscore.audit/1`: one control set, any number of collections."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divscore import __version__
from divscore.audit.result import Audit
from divscore.audit.trust import control_facts
from divscore.errors import FileError
from divscore.files import check_place, write_whole
from divscore.report.context import Context
from divscore.sketch.missing import Gaps

__all__ = [
    "SCHEMA",
    "SHORT",
    "Embedded",
    "as_text",
    "check_target",
    "compact",
    "document",
    "embed",
    "missing_from",
    "without_replicates",
    "write_report",
]


SCHEMA = "divscore.audit/1"
# Raw line breaks stand between values only, never inside a JSON string.
NUMBERS = re.compile(r"\[\n\s+(?:-?\d[\d.e+-]*|null)(?:,\n\s+(?:-?\d[\d.e+-]*|null))*\n\s+\]")


def document(
    audits: Sequence[Audit], *, replicates: bool = False, missing: Gaps | None = None
) -> dict[str, Any]:
    """Join audits made with the same control set and options.

    With `replicates` (some 1.6 KB a collection) `divscore diff` can pair it with a later audit. `missing` is all that
    could not be read of the source, that of collections without an audit too; by default what the audits name.
    """
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
            "gamma_control": facts.gamma_control,
            "method": control.method,
            "digest": control.digest,
            "left_out": control.left_out,
            "noisy_groups": list(first.noisy_groups),
        },
        "missing": missing_from(audits, missing).to_dict(),
        "collections": [
            # A sketch brings its own seed, and replicates of another seed are not those that the document names.
            audit.to_dict(replicates=replicates and audit.seed == first.seed)
            for audit in audits
        ],
    }


def missing_from(audits: Sequence[Audit], missing: Gaps | None) -> Gaps:
    """All that is missing from the source of some audits: as it is known, or else as they name it."""
    return Gaps.joined(audit.missing for audit in audits) if missing is None else missing


def as_text(found: dict[str, Any]) -> str:
    """JSON with an indent, lists of numbers on one line."""
    text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(
        lambda match: re.sub(r"\s*\n\s*", " ", match[0]).replace("[ ", "[").replace(" ]", "]"), text
    )


# Embedded: the JSON inside a page, which no content can break out of, and the same to download.

MOST = 64_000  # characters of JSON that stand in a page twice, to be read and to be downloaded
SHORT = "divscore.audit-short/1"  # lacks what divscore.audit/1 requires, so it must not bear that name
KEPT = ("name", "count", "shares", "disparity", "interval", "divscore", "trust")


@dataclass(frozen=True)
class Embedded:
    """`inside` goes into a script element as it is; `address` is a link's; `remark` says what is in them."""

    inside: str
    address: str
    file: str
    remark: str


def embed(audits: Sequence[Audit], missing: Gaps | None = None) -> Embedded:
    """All of a small document, twice; of a large one the main numbers, and all of it packed for the download."""
    whole = document(audits, missing=missing)
    text = compact(whole)
    if len(text) <= MOST:
        packed = base64.b64encode(text.encode()).decode()
        said = f"All results are inside this file as JSON (schema {SCHEMA}). {without_replicates(audits)}"
        return Embedded(_inert(text), f"data:application/json;base64,{packed}", "audit.json", said.strip())
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return Embedded(
        _inert(compact(_short_document(whole))),
        f"data:application/gzip;base64,{packed}",
        "audit.json.gz",
        f"To keep this page small, the JSON inside it (schema {SHORT}) has the main numbers only, with four decimals "
        "and without diagnostics and warnings. All results are in the download "
        f"(schema {SCHEMA}). {without_replicates(audits)}".strip(),
    )


def without_replicates(audits: Sequence[Audit]) -> str:
    """What a report's JSON lacks, where there is any of it."""
    if all(audit.refits is None for audit in audits):
        return ""
    return (
        "Replicates, with which divscore diff compares most narrowly, are left out: audit --json writes them."
    )


def compact(whole: dict[str, Any]) -> str:
    """JSON without spaces; halves of characters, which no file can hold, become escapes."""
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _short_document(whole: dict[str, Any]) -> dict[str, Any]:
    return {**whole, "schema": SHORT, "collections": [_shortened(each) for each in whole["collections"]]}


def _shortened(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: _rounded(entry[key]) for key in KEPT}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return value


def _inert(text: str) -> str:
    """The same JSON without the characters that mean something to a parser of HTML."""
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


# Write a report to a file, and say beforehand whether that can be done.

HTML = {".html", ".htm"}
MARKDOWN = {".md", ".markdown"}


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse what no report can be written to, before anything is computed."""
    target = Path(path)
    if target.suffix.lower() not in HTML | MARKDOWN:
        got = f"the suffix '{target.suffix}'" if target.suffix else "no suffix"
        raise FileError(f"report {target} has {got}; expected a file that ends in .html or .md")
    check_place(target, "report")


def write_report(path: str | os.PathLike[str], audits: Sequence[Audit], context: Context) -> None:
    """Render what the suffix names, and put it in place of any earlier file in one step."""
    check_target(path)
    if Path(path).suffix.lower() in HTML:
        from divscore.report.html import render
    else:
        from divscore.report.markdown import render
    write_whole(path, render(audits, context))
