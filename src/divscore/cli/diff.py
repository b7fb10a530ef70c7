"""`divscore diff`."""

from __future__ import annotations

import sys

import click

from divscore.auditdiff import AuditDiff, compare_documents
from divscore.auditdocument import AuditDocument, parse_document, read_document
from divscore.cli.console import clean_errors, say, warn, write_json
from divscore.errors import InputError
from divscore.report.changes import change_document, change_headline, change_table
from divscore.report.document import as_text

__all__ = ["diff"]

EXAMPLES = """
\b
Examples:
  divscore audit photos/ --control C --json monday.json
  divscore audit photos/ --control C --json friday.json
  divscore diff monday.json friday.json
  divscore diff monday.json friday.json --max-change 0.1
  divscore audit photos/ --control C --json - | divscore diff monday.json - --json changes.json
"""


@click.command(epilog=EXAMPLES)
@click.argument("before", metavar="BEFORE.json")
@click.argument("after", metavar="AFTER.json")
@click.option(
    "--json",
    "json_path",
    metavar="FILE|-",
    help="Write the result as JSON; '-' prints it instead of the table.",
)
@click.option(
    "--max-change",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Exit 1 if a collection has surely become more uneven by over X, 3 if that cannot be told.",
)
@clean_errors
def diff(before: str, after: str, json_path: str | None, max_change: float | None) -> None:
    """Tell what changed between two audits of a data set, and how sure that is.

    BEFORE and AFTER are what 'divscore audit --json FILE' wrote; '-' is standard input. Collections are matched by
    name. With the same control set, seed and version of divscore the control set's error is the same in both, and
    the interval of the change is much narrower than those of the two values.

    --max-change looks at the increase of |disparity|, for more than two groups of the disparity: a change towards
    balance passes. New collections have nothing to be compared with; 'divscore audit --max-disparity' is for them.
    """
    if before == after == "-":
        raise InputError("only one of the two audits can be read from standard input")
    found = compare_documents(_read(before), _read(after))
    for note in found.notes:
        warn(note)
    if json_path:
        write_json(json_path, as_text(change_document(found, max_change)))
    if json_path != "-":
        say(f"{change_headline(found)}\n\n{change_table(found)}")
    sys.exit(0 if max_change is None else _verdict(found, max_change))


def _read(path: str) -> AuditDocument:
    if path != "-":
        return read_document(path)
    text = sys.stdin.buffer.read().decode("utf-8-sig", errors="replace")
    return parse_document(text, "standard input")


def _verdict(found: AuditDiff, limit: float) -> int:
    """Say which collections a gate would not let pass; the gravest decides the exit code."""
    code = 0
    for change in found.changes:
        gate = change.gate(limit)
        if gate == "fail":
            warn(f"{change.name}: more uneven by over {limit:g}")
            code = 1
        elif gate == "inconclusive":
            warn(f"{change.name}: cannot tell whether more uneven by over {limit:g}")
            code = code or 3
    if found.new:
        warn(f"new, so not compared: {', '.join(found.new[:5])}{' …' if len(found.new) > 5 else ''}")
    return code
