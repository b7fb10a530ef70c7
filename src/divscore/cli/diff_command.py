"""`divscore diff`."""

from __future__ import annotations

import sys

import click

from divscore.audit.change import compare_documents
from divscore.audit.document import AuditDocument, parse_document, read_document
from divscore.cli import options as opt
from divscore.cli.console import CODES, say, warn, warn_of_gate, write_json
from divscore.errors import InputError
from divscore.files import check_writable, is_url
from divscore.report.changes import change_document, change_headline, change_overview, change_table
from divscore.report.listing import ALL
from divscore.sources.places import Location
from divscore.text import as_json, brief, listed

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
@click.argument("before", metavar="BEFORE.json", type=opt.PATH)
@click.argument("after", metavar="AFTER.json", type=opt.PATH)
@opt.json
@click.option(
    "--max-change",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Exit 1 if a collection certainly became more uneven by over X, 3 if that is inconclusive.",
)
@opt.flag("--allow-vanished", "Let --max-change pass if collections of BEFORE are not in AFTER.")
def diff(
    before: str, after: str, json_path: str | None, max_change: float | None, allow_vanished: bool
) -> None:
    """Show what changed between two audits of a data set, and how certain it is.

    BEFORE and AFTER are files written by 'divscore audit --json FILE', here or in a store (s3://…); '-' is standard
    input. Collections are matched by name. With the same control set, seed and version of divscore, both audits share
    the control set's error, and the interval of the change is much narrower than those of the two values.

    --max-change limits the increase of |disparity|, or of the disparity for more than two groups: a change towards an
    even split passes. A collection that is only in BEFORE is inconclusive (exit code 3) unless --allow-vanished is
    given. A collection that is only in AFTER is listed and passes, because data sets grow; use 'divscore audit
    --max-disparity' for those.
    """
    if allow_vanished and max_change is None:
        raise InputError("--allow-vanished needs --max-change; add it")
    if before == after == "-":
        raise InputError("only one of the two audits can be read from standard input")
    if json_path and json_path != "-":
        check_writable(json_path, "--json")
    changes = compare_documents(_read(before), _read(after))
    for note in changes.notes:
        warn(note)
    if json_path:
        write_json(json_path, as_json(change_document(changes, max_change, allow_vanished=allow_vanished)))
    if json_path != "-":
        # A script gets every collection; a person gets those that changed most.
        total = len(changes.changes) + len(changes.new) + len(changes.vanished)
        many = total > ALL and sys.stdout.isatty()
        tables = change_overview(changes) if many else [change_table(changes)]
        say("\n\n".join([change_headline(changes), *tables]))
    if max_change is not None:
        results = [(brief(change.name), change.gate(max_change), "") for change in changes.changes]
        more = f"more uneven by over {max_change:g}"
        warn_of_gate(results, {"fail": more, "inconclusive": f"possibly {more}"}, more)
        if changes.vanished:
            todo = "" if allow_vanished else "; if that is intended, add --allow-vanished"
            warn(f"vanished, so not compared: {listed([brief(name) for name in changes.vanished])}{todo}")
        if changes.new:
            warn(f"new, so not compared: {listed([brief(name) for name in changes.new])}")
        verdict = changes.gate(max_change, allow_vanished=allow_vanished)
        warn(f"gate: {verdict} (the limit is an increase of {max_change:g})")
        sys.exit(CODES[verdict])


def _read(path: str) -> AuditDocument:
    if is_url(path):
        place = Location(path, path)
        with place.reading("the JSON of an audit"), place.open() as stream:
            return parse_document(stream.read(), place.label)
    if path != "-":
        return read_document(path)
    text = sys.stdin.buffer.read().decode("utf-8-sig", errors="replace")
    return parse_document(text, "standard input")
