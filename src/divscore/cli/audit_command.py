"""`divscore audit`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from divscore.audit.audit import ESTIMATORS
from divscore.audit.missing import NO_GAPS
from divscore.audit.result import Audit
from divscore.cli.collections import audits_of, expanded, look_ahead, to_fit_on, told_apart
from divscore.cli.console import clean_errors, json_option, say, stops_cleanly, warn, write_json
from divscore.cli.engine import Engines, cluster_option, workers_option
from divscore.cli.examples import find_examples
from divscore.cli.gate import Gate, first_names
from divscore.cli.options import encoding_options, read_control
from divscore.cli.reporting import report_context
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.samples import SAMPLES
from divscore.percent import percent
from divscore.report.auditjson import as_text, document
from divscore.report.file import check_target, write_report
from divscore.report.notices import notices
from divscore.report.overview import ALL, overview
from divscore.report.prose import noise_note
from divscore.report.table import table
from divscore.text import named, printable
from divscore.wholefile import check_place

__all__ = ["audit"]

EXAMPLES = """
\b
Examples:
  divscore audit photos/ --control labelled/ --attribute gender
  divscore audit posts.csv --control labelled.csv --attribute dialect --column text
  divscore audit photos.npy --control labelled.parquet --attribute gender
  divscore audit feed.parquet --control C --by country --json audit.json
  divscore audit 'shards/*.arrow' --control C --max-disparity 0.2
  divscore audit photos.npy --control C --estimator rectified --labelled-sample sample.parquet
  divscore audit photos/ --control labelled/ --report report.html --show-examples
  divscore audit monday.sketch tuesday.sketch --control C
  divscore audit s3://bucket/posts/ --control C --by country --cluster tcp://10.0.0.5:8786
"""


@click.command("audit", epilog=EXAMPLES)
@click.argument("collections", nargs=-1, required=True, metavar="COLLECTION...")
@click.option(
    "--control",
    "control_path",
    required=True,
    metavar="C",
    help="Control set, or labelled examples: table or folder.",
)
@click.option("--attribute", metavar="NAME", help="Column of group names; 'gender×tone' for intersections.")
@click.option("--groups", metavar="A,B", help="Order of the groups: disparity = share(A) − share(B).")
@click.option(
    "--by",
    metavar="COLUMN",
    help="Audit every value of this column ('folder' for images) as its own collection, in one pass.",
)
@click.option(
    "--column", metavar="NAME", help="Column of texts, image paths or vectors, where it is not clear."
)
@click.option("--estimator", type=click.Choice(ESTIMATORS), default="likelihood", show_default=True)
@click.option(
    "--labelled-sample",
    metavar="FILE",
    help="Labelled random items of the collection, for 'rectified' and 'iid'.",
)
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the interval.")
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
@click.option(
    "--max-disparity",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Exit 1 if the interval lies beyond ±X, 3 if it straddles it, or if a part is missing.",
)
@click.option(
    "--report",
    "reports",
    metavar="FILE",
    multiple=True,
    help="Write a report for people: FILE.html, or FILE.md; repeatable.",
)
@click.option(
    "--show-examples",
    is_flag=True,
    help="Show the representatives in the report, if C is the labelled pictures or texts themselves.",
)
@click.option(
    "--samples",
    type=click.Choice(SAMPLES),
    default="auto",
    show_default=True,
    help="With --by: a sample of items for the intervals of each collection, or one that all share, which is faster "
    "where there are thousands; 'auto' shares where that saves much.",
)
@click.option("--strict", is_flag=True, help="Stop at the first row that would be skipped.")
@workers_option
@cluster_option
@click.option("--verbose", is_flag=True, help="List the items that were skipped.")
@clean_errors
@stops_cleanly
@encoding_options
def audit(
    collections: tuple[str, ...],
    control_path: str,
    encoding: Encoding,
    attribute: str | None,
    groups: str | None,
    json_path: str | None,
    max_disparity: float | None,
    reports: tuple[str, ...],
    show_examples: bool,
    workers: int,
    cluster: str | None,
    **options: Any,
) -> None:
    """Tell how unevenly groups are represented in collections of images, texts or vectors.

    COLLECTION is a folder of images (and the folders below it), a table with a column of texts, of image paths or of
    vectors (.csv .tsv .jsonl .parquet .arrow), a list (.txt, an item a line), vectors (.npy .npz), a folder or quoted
    pattern of such files, a sketch or a folder of sketches, or '-'; here or remote (s3://…). Each is audited on its
    own, against one control set C: a folder that 'control select' wrote, the same kinds of table with a column of group
    names, or a folder with a sub-folder of images for each group.
    """
    order = [name.strip() for name in groups.split(",")] if groups else None
    _check_outputs(json_path, reports, (*collections, control_path, options["labelled_sample"]))
    if show_examples and not reports:
        raise InputError("--show-examples is about a report; name one with --report FILE.html")
    collections = tuple(each for path in collections for each in expanded(path))
    with Engines(workers, cluster) as engines:
        look_ahead(collections, control_path, encoding, options)
        control = read_control(
            control_path,
            encoding,
            attribute=attribute,
            order=order,
            likely_column=options["column"],
            fit_with=to_fit_on(collections[0], encoding, options),
        )
        engines.lend(encoding)
        found = list(audits_of(collections, control, encoding, engines, **options))
    audits, missing = told_apart(found), sum((each.missing for each in found), NO_GAPS)
    _warn_of(audits)
    if json_path:
        write_json(json_path, as_text(document(audits, replicates=True, missing=missing)))
    if json_path != "-":
        say(_text(audits))
    if reports:
        shown = None
        if show_examples:
            likely = options["column"]
            shown = find_examples(control_path, control, encoding, attribute=attribute, likely_column=likely)
        read = (collections, control_path, options["labelled_sample"])
        context = report_context(*read, limit=max_disparity, examples=shown, missing=missing)
        for path in reports:
            write_report(path, audits, context)
            warn(f"wrote {path}")
    if max_disparity is not None:
        gate = Gate(max_disparity, audits, missing)
        gate.tell()
        sys.exit(gate.code)


def _check_outputs(json_path: str | None, reports: Sequence[str], read: Sequence[str | None]) -> None:
    """Refuse, before anything is computed, files that cannot be written or that would overwrite one another."""
    for path in reports:
        check_target(path)
    written = [*reports]
    if json_path not in (None, "", "-"):
        check_place(str(json_path), "--json")
        written.append(str(json_path))
    taken = {os.path.realpath(path): path for path in read if path and os.path.isfile(path)}
    for path in written:
        place = os.path.realpath(path)
        if place in taken:
            raise InputError(f"{path} would overwrite {taken[place]}; give every file a name of its own")
        taken[place] = path


def _text(audits: list[Audit]) -> str:
    # A script gets every collection; a person, whose screen they would flood, the ends of a long list.
    brief = overview(audits) if len(audits) > ALL and sys.stdout.isatty() else None
    lines = [brief.table if brief else table(audits)]
    if len(audits) == 1:
        lines = [audits[0].headline, "", *lines]
    if len(audits[0].shares) == 2 and (note := noise_note(audits[0])):
        lines += ["", note]
    for found in brief.shown if brief else audits:
        for marginal in found.marginals:
            shares = ", ".join(f"{name} {percent(share, 1)}" for name, share in marginal.shares.items())
            low, high = marginal.interval.low, marginal.interval.high
            spread = f"disparity {marginal.disparity:+.2f} ({low:+.2f} to {high:+.2f})"
            lines.append(
                f"  {named(found.name)}, {printable(marginal.attribute)}: {printable(shares)}; {spread}"
            )
    return "\n".join([brief.headline, "", *lines, "", *brief.notes] if brief else lines)


def _warn_of(audits: list[Audit]) -> None:
    """Warnings; those of several collections that differ in their figures only are said once."""
    for notice in notices(audits):
        figures = " (with the first one's figures)" if notice.alike else ""
        warn(f"{first_names(notice.names)}{figures}: {notice.text}")
