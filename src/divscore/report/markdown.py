"""Markdown: the report for a repository or a merge request, in the order of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from divscore.audit.document import document
from divscore.audit.result import Audit
from divscore.report.auditjson import MOST, without_replicates
from divscore.report.context import Context
from divscore.report.summary import ControlPart, Summary, summarise
from divscore.report.table import Listing
from divscore.text import printable

__all__ = ["escape", "render"]

STATES = {"good": "🟢 Good", "caution": "🔶 Caution", "poor": "🟥 Poor", "info": "▫️ For information"}
START = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[-+=]))")  # of a list, a rule or a heading
SPECIAL = re.compile(r"([\\`*_{}\[\]#!|~$@])")


def render(audits: Sequence[Audit], context: Context | None = None) -> str:
    """The report as Markdown that GitHub and its like show; what comes from the outside stays text."""
    context = context or Context()
    summary = summarise(audits, context)
    blocks = [f"# {escape(summary.headline)}", escape(summary.lead)]
    if summary.trust:
        blocks.append(f"Trust: **{summary.trust}**")
    blocks += ["## The picture", _table(summary.listing), escape(summary.remark)]
    blocks.append(escape(summary.marginals_left.replace("in the download below", "in the JSON")))
    if summary.marginals:
        blocks += ["### Each attribute by itself", _table(summary.marginals)]
    blocks += ["## How far to trust it", _lights(summary)]
    told = [f"- {escape(w.text)}" + (f" *{escape(w.about)}*" if w.about else "") for w in summary.warnings]
    blocks += ["## Warnings", "\n".join(told) or "None."]
    blocks += ["## The control set", *_control(summary.control)]
    blocks += ["## Method, assumptions and limits", *map(escape, summary.method)]
    blocks.append("\n".join(f"- **{escape(term)}.** {escape(text)}" for term, text in summary.assumptions))
    blocks += ["## To repeat it", _facts(summary.repeat), "## Data", _data(audits, context)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    r"""Text that no reader of Markdown takes for markup or for an address.

    >>> print(escape("<b> a|b *c* www.d https://e"))
    &lt;b&gt; a\|b \*c\* www\.d https:\//e
    >>> print(escape("- a"), escape("1. b"), escape("---"))
    \- a 1\. b \---
    """
    text = SPECIAL.sub(r"\\\1", printable(text)).lstrip(" ")
    text = START.sub(r"\1\\", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("://", ":\\//").replace("www.", "www\\.")


def _rows(head: Sequence[str], aligned: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---:" if right else "---" for right in aligned]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _table(listing: Listing) -> str:
    head = [escape(column.label) for column in listing.columns]
    right = [column.kind == "number" for column in listing.columns]
    rows = ([escape(line.name), *(escape(cell.text) for cell in line.cells)] for line in listing.lines)
    return _rows(head, right, rows)


def _lights(summary: Summary) -> str:
    rows = [
        [STATES[each.state], escape(each.name), escape(each.sentence), escape(each.figure)]
        for each in summary.lights
    ]
    return _rows(["", "check", "what it means", "number"], [False] * 4, rows)


def _control(part: ControlPart) -> list[str]:
    head = ["group", "labelled", "representatives", "could not be encoded"]
    rows = [[escape(name), *(f"{number:,}" for number in rest)] for name, *rest in part.groups]
    blocks = [_rows(head, [False, True, True, True], rows), _facts(part.facts)]
    for shown in part.examples:
        if shown.texts:
            lines = [f"- {escape(text)}" for text in shown.texts]
            blocks.append("\n".join([f"Representatives of {escape(shown.group)}:", "", *lines]))
    if any(shown.pictures for shown in part.examples):
        blocks.append("Pictures are shown in the HTML report only.")
    return [*blocks, escape(part.remark)]


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- {escape(term)}: {escape(fact)}" for term, fact in facts)


def _data(audits: Sequence[Audit], context: Context) -> str:
    text = json.dumps(document(audits, missing=context.missing), indent=1, allow_nan=False)
    if len(text) > MOST:
        return "The JSON is too long to stand here; `divscore audit --json FILE` writes it."
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    left = without_replicates(audits)
    return f"{fence}json\n{text}\n{fence}" + (f"\n\n{left}" if left else "")
