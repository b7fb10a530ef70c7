"""`divscore sketch` and `divscore merge`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from divscore.cli import options as opt
from divscore.cli.console import progress_bar, warn
from divscore.files import check_writable, is_url
from divscore.jobs.auditing import sketch_collection, sketch_files
from divscore.jobs.encode import Encoding
from divscore.sketch.missing import Missing
from divscore.sketch.sketchfile import merge_sketches, subtract_sketches, write_sketches
from divscore.sources.places import Location
from divscore.text import FEW, brief, count, listed

LARGE = 100 << 20  # bytes of sketches: from there on, merging takes seconds


@click.command()
@click.argument("collection", metavar="COLLECTION", type=opt.PATH)
@opt.control
@opt.sketch_file
@opt.attribute
@opt.rename
@opt.by
@opt.column
@opt.seed
@opt.workers
@opt.cluster
@opt.strict
@opt.verbose
@opt.encoding_options
def sketch(collection: str, control_path: str, encoding: Encoding, out: str, **options: Any) -> None:
    """Reduce a collection to a small file that can be merged and audited elsewhere.

    \b
    Example:
      divscore sketch monday.npy --control C -o monday.sketch
      divscore merge monday.sketch tuesday.sketch -o week.sketch
      divscore audit week.sketch --control C
    """
    check_writable(out, "--out")
    done = sketch_collection(
        collection, control_path, encoder=encoding, progress=progress_bar, warn=warn, **options
    )
    for warning in Missing.of(done.missing).warning:
        warn(f"{out}: {warning}")
    write_sketches(out, done.sketches, done.missing)
    items = sum(part.count for part in done.sketches.values())
    collections = count(len(done.sketches), "collections")
    size = Location(out, out).size()
    warn(f"wrote {out}: {count(items, 'items')} in {collections}, {size:,} bytes")


@click.command()
@click.argument("sketches", nargs=-1, required=True, metavar="SKETCH...", type=opt.PATH)
@opt.sketch_file
@opt.path(
    "--without",
    "SKETCH",
    "Remove the items of this sketch, or of a folder of sketches; repeatable.",
    multiple=True,
)
def merge(sketches: tuple[str, ...], out: str, without: tuple[str, ...]) -> None:
    """Merge sketches made with the same control set, or remove some from the others.

    SKETCH is a file or a folder of sketches. Files of one collection each become one collection, named after the output
    file; otherwise collections of the same name are merged. What --without removes must have been added before. The
    result describes the remaining items; its interval may be wider than that of a new sketch.

    \b
    Examples:
      divscore merge monday.sketch tuesday.sketch -o week.sketch
      divscore merge week/ -o week.sketch
      divscore merge week.sketch --without monday.sketch -o rest.sketch
    """
    check_writable(out, "--out")
    files, removed = _distinct_files(sketches, out), _distinct_files(without, out)
    large = sum(os.path.getsize(path) for path in (*files, *removed) if os.path.isfile(path)) > LARGE
    with progress_bar("merging", None) if large else nullcontext():
        if not removed:
            counts = merge_sketches(files, out)
        elif len(files) == 1:
            counts = subtract_sketches(files[0], removed, out)
        else:
            beside = None if is_url(out) else Path(out).resolve().parent
            with tempfile.TemporaryDirectory(dir=beside) as folder:
                merged = Path(folder) / Path(out).name
                merge_sketches(files, merged)
                counts = subtract_sketches(merged, removed, out)
    many = f"{sum(counts.values()):,} items in {len(counts):,} collections: " if len(counts) > FEW else ""
    names = listed([f"{brief(name)} with {count(items, 'items')}" for name, items in counts.items()])
    warn(f"wrote {out}: {many}{names}")


def _distinct_files(paths: Sequence[str], out: str) -> list[str]:
    """The sketch files that were named, each once."""
    files: dict[str, str] = {}
    again: dict[str, None] = {}
    for path in (file for source in paths for file in sketch_files(source, output=out, warn=warn)):
        if files.setdefault(os.path.realpath(path), path) is not path:
            again[path] = None
    if again:
        words = "was named twice; it" if len(again) == 1 else "were named twice; each"
        warn(f"{listed(list(again))} {words} is counted once")
    return list(files.values())
