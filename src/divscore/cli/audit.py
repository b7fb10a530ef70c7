"""`divscore audit`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import click
import numpy as np

from divscore.audit import ESTIMATORS
from divscore.audit import audit as run_audit
from divscore.cli.console import clean_errors, progress_bar, say, warn, write_json
from divscore.cli.encoding import encoding_options, read_control
from divscore.cli.engine import Engines, cluster_option, workers_option
from divscore.cli.examples import find_examples
from divscore.cli.passes import missing_from, open_collection, sketch_source, skipped_in, whole_source
from divscore.cli.reporting import report_context
from divscore.cli.sketch import sketch_files
from divscore.control import ControlSet
from divscore.embedding.encoding import SEVERAL, Encoding
from divscore.embedding.open import open_any, open_items
from divscore.embedding.source import EncodedSource
from divscore.errors import FileError, InputError
from divscore.report.document import as_text, document
from divscore.report.file import check_target, write_report
from divscore.report.listing import verdict
from divscore.report.notices import notices
from divscore.report.table import table
from divscore.result import Audit
from divscore.sample import LabelledSample
from divscore.sketch import Sketch
from divscore.sketchfile import is_sketch, read_sketches
from divscore.sources import VectorSource
from divscore.sources.folder import is_picture
from divscore.sources.items import ItemSource
from divscore.sources.recognise import recognise
from divscore.wording import printable

__all__ = ["audit"]

LISTED = 12
MANY = 100  # collections, whose audits take a second or more

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
@click.option(
    "--json",
    "json_path",
    metavar="FILE|-",
    help="Write the result as JSON; '-' prints it instead of the table.",
)
@click.option(
    "--max-disparity",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Exit 1 if the interval lies beyond ±X, 3 if it straddles it.",
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
    help="Show the representatives' pictures or texts in the report; only labelled items are shown.",
)
@click.option("--strict", is_flag=True, help="Stop at the first row that would be skipped.")
@workers_option
@cluster_option
@click.option("--verbose", is_flag=True, help="List the items that were skipped.")
@clean_errors
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
    for path in reports:
        check_target(path)
    if show_examples and not reports:
        raise InputError("--show-examples is about a report; name one with --report FILE.html")
    collections = tuple(each for path in collections for each in _expanded(path))
    with Engines(workers, cluster) as engines:
        _look_ahead(collections, encoding, options)
        control = read_control(
            control_path,
            encoding,
            attribute=attribute,
            order=order,
            likely_column=options["column"],
            fit_with=_to_fit_on(collections[0], encoding, options),
        )
        engines.lend(encoding)
        audits = list(_audits(collections, control, encoding, engines, **options))
    _warn_of(audits)
    if json_path:
        write_json(json_path, as_text(document(audits, replicates=True)))
    if json_path != "-":
        say(_text(audits))
    if reports:
        shown = None
        if show_examples:
            likely = options["column"]
            shown = find_examples(control_path, control, encoding, attribute=attribute, likely_column=likely)
        read = (collections, control_path, options["labelled_sample"])
        context = report_context(*read, limit=max_disparity, examples=shown)
        for path in reports:
            write_report(path, audits, context)
            warn(f"wrote {path}")
    _tell_verdicts(audits, max_disparity)
    sys.exit(_verdict(audits, max_disparity))


def _expanded(path: str) -> list[str]:
    """A folder of sketches stands for all of them."""
    if os.path.isdir(path) and any(name.endswith(".sketch") for name in os.listdir(path)):
        return sketch_files(path)
    return [path]


def _look_ahead(collections: tuple[str, ...], encoding: Encoding, options: dict[str, Any]) -> None:
    """Find out what is missing or named wrongly before labelled examples are encoded, which may take minutes."""
    extra = [options["by"]] if options["by"] else []
    if len(collections) > 1 and all(is_picture(path) for path in collections):
        raise InputError(
            f"{len(collections)} pictures were named one by one, and each would be a collection of its own; quote "
            "the pattern ('photos/*.jpg') or name their folder"
        )
    for path in collections:
        if path != "-" and not is_sketch(path):
            recognise(
                path, column=options["column"], extra=extra, form=options["form"], forced=encoding.forced
            )


def _to_fit_on(path: str, encoding: Encoding, options: dict[str, Any]) -> tuple[ItemSource, ...]:
    """With --pca N, the projection is fitted on the first collection's items as well."""
    if encoding.pca is None or path == "-" or is_sketch(path):
        return ()
    return (open_items(path, column=options["column"], form=options["form"]),)


def _audits(
    collections: tuple[str, ...],
    control: ControlSet,
    encoding: Encoding,
    engines: Engines,
    *,
    estimator: str,
    confidence: float,
    seed: int,
    labelled_sample: str | None,
    by: str | None,
    column: str | None,
    strict: bool,
    verbose: bool,
    form: str,
) -> Iterator[Audit]:
    if (labelled_sample and len(collections) > 1) or (labelled_sample and by):
        raise InputError("--labelled-sample belongs to one collection; audit one at a time with it")
    sample = _read_sample(labelled_sample, control, encoding, column) if labelled_sample else None
    asked: dict[str, Any] = {"estimator": estimator, "confidence": confidence, "seed": seed, "sample": sample}
    for path in collections:
        if is_sketch(path):
            if by:
                raise InputError(
                    f"{path} is a sketch, which has no columns any more; make it with 'sketch --by {by}'"
                )
            sketches = read_sketches(path, control)
            for name, sketch in _watched(sketches):
                yield run_audit(sketch, control, name=name or _stem(path), **asked)
            continue
        source = open_collection(path, control, encoding, column=column, by=by, form=form, strict=strict)
        if estimator == "self-training":
            if by:
                raise InputError("'self-training' audits one collection at a time; leave out --by")
            rows = whole_source(source, strict=strict, verbose=verbose)
            found = run_audit(rows, control, name=source.name, **asked)
            lost = skipped_in(source, source.unreadable)
            yield replace(found, skipped={**found.skipped, **lost}, noun=_noun(source, encoding))
            continue
        done = sketch_source(
            source,
            control,
            by=by,
            seed=seed,
            engine=engines.suiting(source),
            strict=strict,
            verbose=verbose,
        )
        for name, sketch in _watched(done.sketches):
            if not sketch.count and len(done.sketches) > 1:
                warn(f"{name}: no item with a usable vector; left out")
                continue
            found = run_audit(sketch, control, name=name, **asked)
            warnings = (*missing_from(done), *found.warnings)
            yield replace(found, warnings=warnings, noun=_noun(source, encoding))


def _watched(sketches: Mapping[str, Sketch]) -> Iterator[tuple[str, Sketch]]:
    """Sketches one by one, with a bar where there are so many that their audits take a while."""
    if len(sketches) < MANY:
        yield from sketches.items()
        return
    with progress_bar("collections", len(sketches)) as advance:
        for named in sketches.items():
            yield named
            advance(1)


def _noun(source: VectorSource, encoding: Encoding) -> str:
    """What the items of a collection are called; vectors do not tell."""
    if not isinstance(source, EncodedSource):
        return "items"
    if SEVERAL in encoding.options:
        return "faces"
    return "pictures" if source.items.kind == "image" else "texts"


def _read_sample(path: str, control: ControlSet, encoding: Encoding, column: str | None) -> LabelledSample:
    known = [control.attribute, "group"]
    source = open_any(path, encoding, column=column, taken=known, strict=True)
    name = next((n for n in known if n in source.columns), None)
    if name is None:
        raise FileError(
            f"{source.path} has no column '{control.attribute}' or 'group' with the groups of the labelled "
            f"items; its columns are {', '.join(source.columns) or 'none'}"
        )
    blocks = list(open_any(path, encoding, column=column, extra=[name], strict=True))
    groups = [group for block in blocks for group in block.values[name]]
    return LabelledSample.of(np.concatenate([b.vectors for b in blocks]), groups, control)


def _text(audits: list[Audit]) -> str:
    lines = [table(audits)]
    if len(audits) == 1:
        lines = [audits[0].headline, "", *lines]
    for found in audits:
        for marginal in found.marginals:
            shares = ", ".join(f"{name} {share:.1%}" for name, share in marginal.shares.items())
            low, high = marginal.interval.low, marginal.interval.high
            spread = f"disparity {marginal.disparity:+.2f} ({low:+.2f} to {high:+.2f})"
            lines.append(
                f"  {printable(found.name)}, {printable(marginal.attribute)}: {printable(shares)}; {spread}"
            )
    return "\n".join(lines)


def _verdict(audits: list[Audit], limit: float | None) -> int:
    """0 fine, 1 beyond the limit, 3 inconclusive; the gravest of several collections."""
    verdicts = {0 if limit is None else _verdict_of(found, limit) for found in audits}
    return 1 if 1 in verdicts else 3 if 3 in verdicts else 0


def _verdict_of(found: Audit, limit: float) -> int:
    return {"yes": 0, "no": 1}.get(verdict(found, limit), 3)


def _tell_verdicts(audits: list[Audit], limit: float | None) -> None:
    """Say which collections a gate would not let pass."""
    for found in audits if limit is not None else ():
        code = _verdict_of(found, limit or 0.0)
        if code:
            told = "beyond" if code == 1 else "not surely within"
            warn(f"{found.name}: {told} the limit of ±{limit:g}")


def _warn_of(audits: list[Audit]) -> None:
    """Warnings; those of several collections that differ in their figures only are said once."""
    for notice in notices(audits):
        more = f" and {len(notice.names) - LISTED} more" if len(notice.names) > LISTED else ""
        figures = " (with the first one's figures)" if notice.alike else ""
        warn(f"{', '.join(notice.names[:LISTED])}{more}{figures}: {notice.text}")


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]
