"""`divscore sketch` and `divscore merge`."""

from __future__ import annotations

import os

import click

from divscore.cli.console import clean_errors, warn
from divscore.cli.encoding import encoding_options, read_control, workers_option
from divscore.cli.passes import open_collection, sketch_source
from divscore.embedding.encoding import Encoding
from divscore.sketchfile import merge_sketches, write_sketches

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
@click.option("--strict", is_flag=True, help="Stop at the first row that would be skipped.")
@click.option("--verbose", is_flag=True, help="List the items that were skipped.")
@clean_errors
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
    strict: bool,
    verbose: bool,
    form: str,
) -> None:
    """Reduce a collection to some tens of kilobytes that can be merged and audited elsewhere.

    \b
    Example:
      divscore sketch monday.npy --control C -o monday.sketch
      divscore merge monday.sketch tuesday.sketch -o week.sketch
      divscore audit week.sketch --control C
    """
    control = read_control(control_path, encoding, attribute=attribute)
    source = open_collection(collection, control, encoding, column=column, by=by, form=form, strict=strict)
    found = sketch_source(source, control, by=by, seed=seed, workers=workers, strict=strict, verbose=verbose)
    write_sketches(out, found)
    items = sum(each.count for each in found.values())
    parts = f"{len(found)} collection{'s' * (len(found) != 1)}"
    warn(f"wrote {out}: {items:,} items in {parts}, {os.path.getsize(out):,} bytes")


@click.command()
@click.argument("sketches", nargs=-1, required=True, metavar="SKETCH...")
@click.option("-o", "--out", required=True, metavar="FILE", help="Sketch file to write.")
@clean_errors
def merge(sketches: tuple[str, ...], out: str) -> None:
    """Join sketches made with the same control set.

    Files of one collection each become one collection, named after the output file; otherwise collections of the
    same name are joined.

    \b
    Example:
      divscore merge monday.sketch tuesday.sketch -o week.sketch
    """
    counts = merge_sketches(sketches, out)
    warn(f"wrote {out}: " + ", ".join(f"{name} with {count:,} items" for name, count in counts.items()))
