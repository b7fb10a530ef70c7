"""The JSON inside a report, and the file a report is written to."""

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

from divscore.audit.document import SCHEMA, document
from divscore.audit.result import Audit
from divscore.errors import FileError
from divscore.files import check_writable, write_file
from divscore.report.context import Context
from divscore.sketch.missing import Missing

__all__ = [
    "SHORT",
    "Embedded",
    "check_target",
    "compact",
    "embed",
    "without_replicates",
    "write_report",
]


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


def embed(audits: Sequence[Audit], missing: Missing | None = None) -> Embedded:
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
    check_writable(target, "report")


def write_report(path: str | os.PathLike[str], audits: Sequence[Audit], context: Context) -> None:
    """Render what the suffix names, and put it in place of any earlier file in one step."""
    check_target(path)
    if Path(path).suffix.lower() in HTML:
        from divscore.report.html import render
    else:
        from divscore.report.markdown import render
    write_file(path, render(audits, context))
