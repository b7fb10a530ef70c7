"""`divscore diff`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from divscore.audit.change import AuditDiff, compare_documents
from divscore.audit.document import AuditDocument, as_text, parse_document, read_document
from divscore.cli.console import clean_errors, json_option, say, warn, write_json
from divscore.errors import InputError
from divscore.report.changes import change_document, change_headline, change_overview, change_table
from divscore.report.table import ALL
from divscore.text import FEW, brief, listed

__all__ = ["diff"]

CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
STOPPED = {  # what a gate says of a collection
    "fail": "more uneven by over",
    "inconclusive": "cannot tell whether more uneven by over",
}

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
@json_option
@click.option(
    "--max-change",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Exit 1 if a collection has surely become more uneven by over X, 3 if that cannot be told.",
)
@click.option(
    "--allow-vanished",
    is_flag=True,
    help="Let --max-change pass although collections of BEFORE are not in AFTER.",
)
@clean_errors
def diff(
    before: str, after: str, json_path: str | None, max_change: float | None, allow_vanished: bool
) -> None:
    """Tell what changed between two audits of a data set, and how sure that is.

    BEFORE and AFTER are what 'divscore audit --json FILE' wrote; '-' is standard input. Collections are matched by
    name. With the same control set, seed and version of divscore the control set's error is the same in both, and
    the interval of the change is much narrower than those of the two values.

    --max-change looks at the increase of |disparity|, for more than two groups of the disparity: a change towards
    balance passes. Of a collection that is in BEFORE only nothing can be told: exit code 3, unless --allow-vanished
    says that it may be gone. One that is in AFTER only is named, but not judged, because data sets grow;
    'divscore audit --max-disparity' is for such.
    """
    if allow_vanished and max_change is None:
        raise InputError("--allow-vanished is about --max-change; give both")
    if before == after == "-":
        raise InputError("only one of the two audits can be read from standard input")
    found = compare_documents(_read(before), _read(after))
    for note in found.notes:
        warn(note)
    if json_path:
        write_json(json_path, as_text(change_document(found, max_change, allow_vanished=allow_vanished)))
    if json_path != "-":
        say(_text(found))
    if max_change is not None:
        _tell(found, max_change, allow_vanished)
        sys.exit(CODES[found.gate(max_change, allow_vanished=allow_vanished)])


def _read(path: str) -> AuditDocument:
    if path != "-":
        return read_document(path)
    text = sys.stdin.buffer.read().decode("utf-8-sig", errors="replace")
    return parse_document(text, "standard input")


def _text(found: AuditDiff) -> str:
    # A script gets every collection; a person, whose screen they would flood, those that changed most.
    total = len(found.changes) + len(found.new) + len(found.vanished)
    many = total > ALL and sys.stdout.isatty()
    return "\n\n".join([change_headline(found), *(change_overview(found) if many else [change_table(found)])])


def _tell(found: AuditDiff, limit: float, allow_vanished: bool) -> None:
    """Say which collections a gate would not let pass, and which it could not look at; of many, the first ones."""
    gates = [(change.name, change.gate(limit)) for change in found.changes]
    names = {gate: [name for name, each in gates if each == gate] for gate in STOPPED}
    many = [gate for gate in STOPPED if len(names[gate]) > FEW]
    for name, gate in gates:
        if gate in STOPPED and gate not in many:
            warn(f"{brief(name)}: {STOPPED[gate]} {limit:g}")
    for gate in many:
        warn(f"{_listed(names[gate])}: {STOPPED[gate]} {limit:g}")
    if many:
        failed = len(names["fail"])
        verb = "is" if failed == 1 else "are"
        beyond = f"{failed:,} of {len(gates):,} collections {verb} more uneven by over {limit:g}"
        warn(f"{beyond}; {len(names['inconclusive']):,} cannot be told")
    if found.vanished:
        todo = "" if allow_vanished else "; if that is meant, give --allow-vanished"
        warn(f"vanished, so not compared: {_listed(found.vanished)}{todo}")
    if found.new:
        warn(f"new, so not compared: {_listed(found.new)}")


def _listed(names: Sequence[str]) -> str:
    return listed([brief(name) for name in names])
