"""`divscore audit`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from divscore.audit.audit import ESTIMATORS
from divscore.audit.audits import Audits
from divscore.cli import options as opt
from divscore.cli.console import CODES, progress_bar, say, warn, warn_of_gate, write_json
from divscore.cli.main import TYPED
from divscore.errors import InputError
from divscore.files import check_writable, is_url, sha256
from divscore.jobs.auditing import audit_source
from divscore.jobs.encode import Encoding
from divscore.report.caveats import notices
from divscore.report.examples import find_examples, open_again
from divscore.report.listing import ALL, noise_note, table
from divscore.report.page import check_target, write_report
from divscore.report.summary import Context, Input, overview
from divscore.text import listed, named, percent, printable, public, signed

MOST_BYTES = 256 << 20  # a file up to this size is read again for its digest, which takes a second at most
EXAMPLES = """
\b
Examples:
  divscore audit photos/ --control labelled/ --attribute gender
  divscore audit posts.csv --control labelled.csv --attribute dialect --column text
  divscore audit photos.npy --control labelled.parquet --attribute gender
  divscore audit feed.parquet --control C --by country --json audit.json
  divscore audit 'shards/*.arrow' --control C --max-disparity 0.2
  divscore audit ceos/ --control labelled/ --target female=27% --target-source "Labour Force Survey"
  divscore audit photos/ --labelled-sample to-label.csv
  divscore audit photos.npy --control C --labelled-sample sample.parquet
  divscore audit photos/ --control labelled/ --report report.html --show-examples
  divscore audit monday.sketch tuesday.sketch --control C
  divscore audit s3://bucket/posts/ --control C --by country --cluster tcp://10.0.0.5:8786
"""


def _read_target(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> dict[str, float] | None:
    """Read GROUP=SHARE pairs; a share may be a percentage."""
    target: dict[str, float] = {}
    for pair in (part for word in words for part in word.split(",")):
        name, equals, share = pair.rpartition("=")
        try:
            value = float(share.strip().removesuffix("%")) / (100 if share.strip().endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not equals or not name.strip() or value < 0:
            raise click.BadParameter(f"takes GROUP=SHARE, such as female=0.27 or female=27%, got '{pair}'")
        target[name.strip()] = value
    return target or None


@click.command("audit", epilog=EXAMPLES)
@click.argument("collections", nargs=-1, required=True, metavar="COLLECTION...", type=opt.PATH)
@opt.optional_control
@opt.attribute
@opt.rename
@opt.groups
@opt.by
@opt.column
@click.option(
    "--estimator",
    type=click.Choice(ESTIMATORS),
    show_default="likelihood; with --labelled-sample rectified, or crossfit if there is no control set",
    help="How shares are estimated. likelihood: from all labelled examples. rectified and crossfit: from labels of the "
    "collection itself, with and without a control set; they need no other assumption. iid: from these labels alone. "
    "divscore and self-training: the paper's Algorithms 1 and 3.",
)
@opt.path(
    "--labelled-sample sample",
    "FILE",
    "Labelled items of the collection: the table of 'divscore sample', or other random items.",
)
@opt.confidence
@opt.seed
@opt.json
@click.option(
    "--max-disparity",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Exit 1 if the interval is outside ±X, 3 if it crosses ±X or a part is missing.",
)
@opt.text(
    "--target",
    "GROUP=SHARE,...",
    "Shares that the collections are held to, in place of an even split: female=0.27 or female=27%.",
    multiple=True,
    callback=_read_target,
)
@opt.text("--target-source", "TEXT", "Where the target comes from, for reports.", default="")
@opt.flag(
    "--show-untrusted", "Also show the numbers of poor results; they are noise, or reveal single items."
)
@opt.path(
    "--report reports",
    "FILE",
    "Write a report for people, here or in a store (s3://…): FILE.html or FILE.md; repeatable.",
    multiple=True,
)
@opt.text("--title", "TEXT", "Title of the report.", default="")
@opt.text("--note", "TEXT", "A remark of yours at the top of the report.", default="")
@opt.flag("--show-examples", "Show the representatives in the report, if they can be found again.")
@opt.strict
@opt.workers
@opt.cluster
@opt.verbose
@opt.encoding_options
def audit(
    collections: tuple[str, ...],
    control_path: str | None,
    encoding: Encoding,
    sample: str | None,
    json_path: str | None,
    max_disparity: float | None,
    reports: tuple[str, ...],
    title: str,
    note: str,
    show_examples: bool,
    **options: Any,
) -> None:
    """Estimate how unevenly groups are represented in collections of images, texts or vectors.

    COLLECTION is a folder of images (with its sub-folders), a table with a column of texts, image paths or vectors
    (.csv .tsv .jsonl .parquet .arrow), a list of texts (.txt, one per line), vectors (.npy .npz), a folder or quoted
    pattern of such files, a sketch or a folder of sketches, or '-' for standard input. It can be local or remote
    (s3://…). Each collection is audited separately with one control set C: a folder written by 'divscore control
    select', a table with a column of group names, or a folder with one sub-folder of images for each group. Or with
    labels of the collection itself (--labelled-sample; see 'divscore sample'), or with both.
    """
    read = [("Collection", path) for path in collections]
    if control_path:
        read.append(("Control set", control_path))
    if sample:
        read.append(("Labelled sample", sample))
    _check_outputs(json_path, reports, [path for _, path in read])
    if options["target_source"] and not options["target"]:
        raise InputError("--target-source needs a target; add --target GROUP=SHARE")
    if show_examples and not control_path:
        raise InputError("--show-examples shows examples of the control set; add --control")
    for option, value in (("--show-examples", show_examples), ("--title", title), ("--note", note)):
        if value and not reports:
            raise InputError(f"{option} needs a report; add --report FILE.html")
    audits = audit_source(
        collections,
        control_path,
        sample=sample,
        encoder=encoding,
        progress=progress_bar,
        warn=warn,
        **options,
    )
    for notice in notices(audits):  # the same warning about several collections is printed once
        figures = f" (these are the numbers of {named(notice.names[0])})" if notice.varies else ""
        warn(f"{listed([named(name) for name in notice.names])}: {notice.text}{figures}")
    if json_path:
        write_json(json_path, audits.to_json(replicates=True, limit=max_disparity))
    if json_path != "-":
        say(_text(audits))
    if reports:
        examples = None
        if show_examples and control_path:
            columns = options["attribute"], options["column"]
            source = open_again(audits.control, control_path, encoding, *columns)
            examples = find_examples(audits.control, source)
        context = Context(
            command=typed_command(),
            limit=max_disparity,
            inputs=[Input(role, public(path), _digest(path)) for role, path in read],
            examples=examples,
            missing=audits.missing,
            title=title,
            note=note,
        )
        for path in reports:
            write_report(path, audits, context)
            warn(f"wrote {path}")
    if max_disparity is not None:
        sys.exit(_gate(audits, max_disparity))


def typed_command() -> str:
    """The command as it was typed, without passwords and signatures in addresses."""
    words = click.get_current_context().meta.get(TYPED, ())
    return shlex.join(["divscore", *map(public, words)])


def _check_outputs(json_path: str | None, reports: Sequence[str], read: Sequence[str]) -> None:
    """Refuse, before anything is computed, outputs that cannot be written or that would overwrite another file."""
    for path in reports:
        check_target(path)
    written = [*reports]
    if json_path and json_path != "-":
        check_writable(json_path, "--json")
        written.append(json_path)
    taken = {os.path.realpath(path): path for path in read if is_url(path) or os.path.isfile(path)}
    for path in written:
        place = os.path.realpath(path)
        if place in taken:
            raise InputError(f"{path} would overwrite {taken[place]}; use different names")
        taken[place] = path


def _digest(path: str) -> str:
    """SHA-256 of a local file that is not too large; empty for folders, streams, patterns and remote files."""
    try:
        return sha256(path) if os.path.isfile(path) and os.path.getsize(path) <= MOST_BYTES else ""
    except (OSError, ValueError):
        return ""


def _text(audits: Audits) -> str:
    # A script gets every collection; a person gets both ends of a long list.
    brief = overview(audits) if len(audits) > ALL and sys.stdout.isatty() else None
    lines = [brief.table if brief else table(audits)]
    if len(audits) == 1:
        lines = [audits[0].headline, "", *lines]
    if len(audits[0].control.groups) == 2 and audits[0].target is None and (note := noise_note(audits[0])):
        lines += ["", note]
    for result in brief.shown if brief else audits:
        for marginal in result.marginals:
            shares = ", ".join(f"{name} {percent(share, 1)}" for name, share in marginal.shares.items())
            low, high = marginal.interval.low, marginal.interval.high
            spread = f"disparity {signed(marginal.disparity)} ({signed(low)} to {signed(high)})"
            lines.append(
                f"  {named(result.name)}, {printable(marginal.attribute)}: {printable(shares)}; {spread}"
            )
    return "\n".join([brief.headline, "", *lines, "", *brief.notes] if brief else lines)


def _gate(audits: Audits, limit: float) -> int:
    """Say which collections do not pass; the exit code of the worst: 0 pass, 1 fail, 3 inconclusive."""
    gate = audits.gate(limit)
    results, explained = [], False
    for collection, verdict in zip(audits, gate.verdicts, strict=True):
        hidden = ""
        if "missing" in verdict.reason:
            hidden = ", as parts of it may be missing"
        elif "skipped" in verdict.reason:
            hidden = ", as skipped items could change the result"
        elif verdict.reason.startswith("cannot tell"):
            hidden = ", as the result is inconclusive"
        results.append((named(collection.name), verdict.word, hidden))
        explained = explained or (verdict.word != "pass" and not collection.missing.count)
    within = f"the limit of ±{limit:g}{'' if audits[0].target is None else ' around the target'}"
    warn_of_gate(results, {"fail": f"outside {within}", "inconclusive": f"possibly outside {within}"})
    if gate.verdict == "inconclusive" and audits.missing.count and not explained:
        warn("parts of the source are missing, so the result is inconclusive; fix or remove them")
    warn(f"gate: {gate.verdict} ({gate.reason})")
    return CODES[gate.verdict]
