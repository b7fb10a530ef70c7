"""`divscore sketch` and `divscore merge`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from divscore.cli.console import clean_errors, progress_bar, stops_cleanly, warn
from divscore.cli.options import cluster_option, encoding_options, workers_option
from divscore.files import check_writable, refuse_url
from divscore.jobs.auditing import sketch_collection, sketch_files
from divscore.jobs.encode import Encoding
from divscore.sketch.sketchfile import merge_sketches, subtract_sketches, write_sketches
from divscore.text import FEW, brief, listed

__all__ = ["merge", "sketch"]


@click.command()
@click.argument("collection", metavar="COLLECTION")
@click.option(
    "--control",
    "control_path",
    required=True,
    metavar="C",
    help="Control set, or labelled examples: table or folder.",
)
@click.option("-o", "--out", required=True, metavar="FILE", help="Sketch file to write.")
@click.option("--attribute", metavar="NAME", help="Column of group names, if C is a table.")
@click.option("--by", metavar="COLUMN", help="One sketch for every value of this column, in the same file.")
@click.option(
    "--column", metavar="NAME", help="Column of texts, image paths or vectors, where it is not clear."
)
@click.option("--seed", type=int, default=0, show_default=True)
@workers_option
@cluster_option
@click.option("--strict", is_flag=True, help="Stop at the first row that would be skipped.")
@click.option("--verbose", is_flag=True, help="List the items that were skipped.")
@clean_errors
@stops_cleanly
@encoding_options
def sketch(
    collection: str,
    control_path: str,
    encoding: Encoding,
    out: str,
    attribute: str | None,
    by: str | None,
    column: str | None,
    seed: int,
    workers: int,
    cluster: str | None,
    strict: bool,
    verbose: bool,
    form: str,
) -> None:
    """Reduce a collection to about 100 kilobytes that can be merged and audited elsewhere.

    \b
    Example:
      divscore sketch monday.npy --control C -o monday.sketch
      divscore merge monday.sketch tuesday.sketch -o week.sketch
      divscore audit week.sketch --control C
    """
    _check_output(out)
    done = sketch_collection(
        collection,
        control_path,
        encoding,
        attribute=attribute,
        by=by,
        column=column,
        form=form,
        seed=seed,
        workers=workers,
        cluster=cluster,
        strict=strict,
        verbose=verbose,
        progress=progress_bar,
        warn=warn,
    )
    found = done.sketches
    for warning in done.gaps.warning:
        warn(f"{out}: {warning}")
    write_sketches(out, found, done.missing)
    items = sum(each.count for each in found.values())
    parts = f"{len(found):,} collection{'s' * (len(found) != 1)}"
    warn(f"wrote {out}: {items:,} items in {parts}, {os.path.getsize(out):,} bytes")


@click.command()
@click.argument("sketches", nargs=-1, required=True, metavar="SKETCH...")
@click.option("-o", "--out", required=True, metavar="FILE", help="Sketch file to write.")
@click.option(
    "--without",
    multiple=True,
    metavar="SKETCH",
    help="Take the items of this sketch, or of a folder's, out again; repeatable.",
)
@clean_errors
def merge(sketches: tuple[str, ...], out: str, without: tuple[str, ...]) -> None:
    """Join sketches made with the same control set, or take some out of the others.

    SKETCH is a file or a folder of them. Files of one collection each become one collection, named after the output
    file; otherwise collections of the same name are joined. What is taken out with --without must have been counted
    in. The estimate is then that of the items that are left; the interval of a large collection may rest on a
    smaller sample of them than a new sketch would have.

    \b
    Examples:
      divscore merge monday.sketch tuesday.sketch -o week.sketch
      divscore merge week/ -o week.sketch
      divscore merge week.sketch --without monday.sketch -o rest.sketch
    """
    _check_output(out)
    found, gone = _gathered(sketches, out), _gathered(without, out)
    counts = merge_sketches(found, out) if not gone else _merge_without(found, gone, out)
    many = f"{sum(counts.values()):,} items in {len(counts):,} collections: " if len(counts) > FEW else ""
    told = [f"{brief(name)} with {count:,} items" for name, count in counts.items()]
    warn(f"wrote {out}: {many}{listed(told)}")


def _check_output(out: str) -> None:
    refuse_url(out, "a sketch")
    check_writable(out, "--out")


def _gathered(paths: Sequence[str], out: str) -> list[str]:
    """Sketch files that were named, each once."""
    found: dict[str, str] = {}
    again: dict[str, None] = {}
    for path in (file for each in paths for file in sketch_files(each, output=out, warn=warn)):
        if found.setdefault(os.path.realpath(path), path) is not path:
            again[path] = None
    if again:
        were, each = ("was", "it") if len(again) == 1 else ("were", "each")
        warn(f"{listed(list(again))} {were} named twice; {each} is taken once")
    return list(found.values())


def _merge_without(found: list[str], gone: list[str], out: str) -> dict[str, int]:
    if len(found) == 1:
        return subtract_sketches(found[0], gone, out)
    with tempfile.TemporaryDirectory(dir=Path(out).resolve().parent) as folder:
        joined = Path(folder) / Path(out).name
        merge_sketches(found, joined)
        return subtract_sketches(joined, gone, out)
