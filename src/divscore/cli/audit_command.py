"""`divscore audit`."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click
import numpy as np

from divscore.audit.audit import ESTIMATORS
from divscore.audit.document import as_text
from divscore.audit.result import Audit
from divscore.cli.console import clean_errors, json_option, progress_bar, say, stops_cleanly, warn, write_json
from divscore.cli.main import TYPED
from divscore.cli.options import cluster_option, encoding_options, workers_option
from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, InputError
from divscore.files import check_writable, sha256
from divscore.jobs.auditing import audit_source
from divscore.jobs.encode import Encoding, read_picture
from divscore.jobs.pool import open_labelled
from divscore.jobs.sketching import SAMPLES
from divscore.report.caveats import notices
from divscore.report.page import check_target, write_report
from divscore.report.summary import Context, Example, Examples, Input, overview
from divscore.report.table import ALL, noise_note, table, verdict
from divscore.sketch.missing import Missing
from divscore.sources.items import Items
from divscore.text import FEW, listed, named, percent, printable, public

__all__ = ["Gate", "audit", "find_examples", "first_names", "report_context", "typed_command"]


# Gate: which collections `audit --max-disparity` lets pass, and the exit code that says so.

CODES = {"yes": 0, "no": 1}  # all else is 3: it cannot be told
STOPPED = {1: "beyond", 3: "not surely within"}  # what is said of a collection, by exit code


@dataclass(frozen=True)
class Gate:
    """A limit, the collections that have to keep it, and all that is missing from their sources.

    A part may be missing of a collection that could not be audited at all, and then no audit tells of it.
    """

    limit: float
    audits: Sequence[Audit]
    missing: Missing

    @property
    def code(self) -> int:
        """0 fine, 1 beyond the limit, 3 inconclusive; the gravest of several collections."""
        if 1 in self._codes:
            return 1
        return 3 if 3 in self._codes or self.missing.count else 0

    def tell(self) -> None:
        """Say which collections are not let pass; of many, the first ones, and how many there are."""
        names: dict[int, list[str]] = {code: [] for code in STOPPED}
        for audit, code in zip(self.audits, self._codes, strict=True):
            if code:
                names[code].append(audit.name)
        for audit, code in zip(self.audits, self._codes, strict=True):
            if code and len(names[code]) <= FEW:
                inside = -self.limit <= audit.interval.low and audit.interval.high <= self.limit
                lacking = (
                    ", as parts of it may be missing" if code == 3 and audit.missing.count and inside else ""
                )
                warn(f"{named(audit.name)}: {STOPPED[code]} the limit of ±{self.limit:g}{lacking}")
        many = [code for code in STOPPED if len(names[code]) > FEW]
        for code in many:
            warn(f"{first_names(names[code])}: {STOPPED[code]} the limit of ±{self.limit:g}")
        if many:
            lie = "lies" if len(names[1]) == 1 else "lie"
            beyond = f"{len(names[1]):,} of {len(self.audits):,} collections {lie} beyond ±{self.limit:g}"
            warn(f"{beyond}; {len(names[3]):,} cannot be told")
        if self._for_what_is_missing:
            warn(
                "parts of the source are missing, so that it cannot be told whether the limit is kept; mend or "
                "remove them"
            )

    @cached_property
    def _codes(self) -> list[int]:
        """Of each collection."""
        return [CODES.get(verdict(audit, self.limit), 3) for audit in self.audits]

    @property
    def _for_what_is_missing(self) -> bool:
        """Whether all that is known to be whole would pass."""
        whole = [
            code for audit, code in zip(self.audits, self._codes, strict=True) if not audit.missing.count
        ]
        return self.code == 3 and bool(self.missing.count) and not any(whole)


def first_names(names: Sequence[str]) -> str:
    """The first of many collections, and how many more there are."""
    return listed([named(name) for name in names])


# Find the representatives' own texts and pictures again, for a report that is to show them.

SIDE = 64  # pixels of a small picture's longer side
MOST = 24  # examples of one group
QUALITY = 72


def find_examples(
    path: str,
    control: ControlSet,
    encoding: Encoding,
    *,
    attribute: str | None,
    likely_column: str | None,
) -> Examples:
    """Texts or small pictures of labelled examples that are representatives, or the reason why there are none.

    They are taken from the labelled source alone. A saved control set knows names and vectors, and a file that bears
    such a name may be anything: a picture that nobody labelled, or one that is none of the reader's business.
    """
    wanted = _wanted(control)
    try:
        source = open_labelled(path, encoding, attribute=attribute, likely_column=likely_column)
        if source is None:
            return Examples(
                remark="The representatives cannot be shown: the control set holds vectors and names, not what was "
                "labelled. To show them, give the labelled folder or table itself as --control."
            )
        contents = _contents(source, wanted)
    except (DivscoreError, OSError, ValueError) as error:
        told = printable(str(error))
        return Examples(
            remark=f"The representatives cannot be shown: they could not be read a second time ({told})."
        )
    if source.kind == "text":
        shown = [Example(group, text=str(contents[n])) for n, group in wanted.items() if contents.get(n)]
        return Examples(shown, _left(control, len(shown), len(wanted) - len(shown)))
    return _pictures(control, wanted, contents)


def _contents(source: Items, wanted: Mapping[str, str]) -> dict[str, str | bytes]:
    """What the wanted examples are, by id; not those whose id another item bears too, one that was not encoded."""
    found: dict[str, str | bytes] = {}
    twice = set()
    for run in source:
        for name, each in zip(run.ids, run.contents, strict=True):
            if name in found:
                twice.add(name)
            elif name in wanted:
                found[name] = each
    return {name: each for name, each in found.items() if name not in twice}


def _wanted(control: ControlSet) -> dict[str, str]:
    """Representatives by id, with their groups; of many, some from all over the list, which may be sorted."""
    wanted: dict[str, str] = {}
    for group, name in enumerate(control.groups):
        rows = control.rows(group, representatives=True)
        some = np.linspace(0, len(rows) - 1, min(len(rows), MOST)).round().astype(int)
        wanted.update((control.ids[row], name) for row in rows[some])
    return wanted


def _pictures(
    control: ControlSet, wanted: Mapping[str, str], contents: Mapping[str, str | bytes]
) -> Examples:
    shown, lost = [], 0
    for name, group in wanted.items():
        try:
            shown.append(Example(group, picture=thumbnail(read_picture(contents[name]))))
        except (DivscoreError, KeyError):
            lost += 1
        except ImportError:
            return Examples(remark="Pictures cannot be shown: Pillow is not installed (pip install pillow).")
    return Examples(shown, _left(control, len(shown), lost))


def thumbnail(data: bytes) -> bytes:
    """A small JPEG of a picture, made anew from its pixels: nothing else that its file told is in it."""
    from PIL import Image

    from divscore.sources.pictures import decode

    small = Image.fromarray(decode(data, enough=SIDE))
    small.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return stream.getvalue()


def _left(control: ControlSet, shown: int, lost: int) -> str:
    total = int(control.representative.sum())
    said = [f"{shown:,} of {total:,} representatives are shown, at most {MOST} of each group."]
    if shown == total:
        said = [f"All {total:,} representatives are shown."]
    if lost:
        said.append(f"{lost:,} could not be read again.")
    return printable(" ".join([*said, "They are labelled examples, not items of a collection."]))


# What the command line tells a report: the command as it was typed, and digests of what it read.

MOST_BYTES = 256 << 20  # a file up to this size is read again for its digest, in a second or less


def report_context(
    collections: Sequence[str],
    control: str,
    sample: str | None,
    *,
    limit: float | None,
    examples: Examples | None,
    missing: Missing,
) -> Context:
    """All that a report tells besides the audits."""
    read = [*(("Collection", path) for path in collections), ("Control set", control)]
    if sample:
        read.append(("Labelled sample", sample))
    return Context(
        command=typed_command(),
        limit=limit,
        inputs=[Input(role, public(path), _digest(path)) for role, path in read],
        examples=examples,
        missing=missing,
    )


def typed_command() -> str:
    """The command line as it was typed, without passwords and signatures in addresses."""
    context = click.get_current_context(silent=True)
    words = context.meta.get(TYPED, ()) if context else ()
    return shlex.join(["divscore", *map(public, words)])


def _digest(path: str) -> str:
    """SHA-256 of a local file that is not too large; nothing for folders, streams, patterns and remote ones."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:
            return ""
        return sha256(path)
    except (OSError, ValueError):
        return ""


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
    groups: str | None,
    json_path: str | None,
    max_disparity: float | None,
    reports: tuple[str, ...],
    show_examples: bool,
    **options: Any,
) -> None:
    """Tell how unevenly groups are represented in collections of images, texts or vectors.

    COLLECTION is a folder of images (and the folders below it), a table with a column of texts, of image paths or of
    vectors (.csv .tsv .jsonl .parquet .arrow), a list (.txt, an item a line), vectors (.npy .npz), a folder or quoted
    pattern of such files, a sketch or a folder of sketches, or '-'; here or remote (s3://…). Each is audited on its
    own, against one control set C: a folder that 'control select' wrote, the same kinds of table with a column of group
    names, or a folder with a sub-folder of images for each group.
    """
    sample = options.pop("labelled_sample")
    _check_outputs(json_path, reports, (*collections, control_path, sample))
    if show_examples and not reports:
        raise InputError("--show-examples is about a report; name one with --report FILE.html")
    audits = audit_source(
        collections,
        control_path,
        groups=[name.strip() for name in groups.split(",")] if groups else None,
        sample=sample,
        encoder=encoding,
        progress=progress_bar,
        warn=warn,
        **options,
    )
    _warn_of(audits)
    if json_path:
        write_json(json_path, as_text(audits.to_dict(replicates=True)))
    if json_path != "-":
        say(_text(audits))
    if reports:
        shown = None
        if show_examples:
            likely, attribute = options["column"], options["attribute"]
            shown = find_examples(
                control_path, audits.control, encoding, attribute=attribute, likely_column=likely
            )
        read = (collections, control_path, sample)
        context = report_context(*read, limit=max_disparity, examples=shown, missing=audits.missing)
        for path in reports:
            write_report(path, audits, context)
            warn(f"wrote {path}")
    if max_disparity is not None:
        gate = Gate(max_disparity, audits, audits.missing)
        gate.tell()
        sys.exit(gate.code)


def _check_outputs(json_path: str | None, reports: Sequence[str], read: Sequence[str | None]) -> None:
    """Refuse, before anything is computed, files that cannot be written or that would overwrite one another."""
    for path in reports:
        check_target(path)
    written = [*reports]
    if json_path not in (None, "", "-"):
        check_writable(str(json_path), "--json")
        written.append(str(json_path))
    taken = {os.path.realpath(path): path for path in read if path and os.path.isfile(path)}
    for path in written:
        place = os.path.realpath(path)
        if place in taken:
            raise InputError(f"{path} would overwrite {taken[place]}; give every file a name of its own")
        taken[place] = path


def _text(audits: Sequence[Audit]) -> str:
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


def _warn_of(audits: Sequence[Audit]) -> None:
    """Warnings; those of several collections that differ in their figures only are said once."""
    for notice in notices(audits):
        figures = " (with the first one's figures)" if notice.varies else ""
        warn(f"{first_names(notice.names)}{figures}: {notice.text}")
