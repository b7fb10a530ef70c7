"""`divscore sketch` and `divscore merge`."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from divscore.cli.console import clean_errors, stops_cleanly, warn
from divscore.cli.options import Engines, cluster_option, encoding_options, read_control, workers_option
from divscore.cli.passes import open_collection, sketch_source
from divscore.errors import FileError
from divscore.files import check_writable, refuse_url
from divscore.jobs.encode import Encoding
from divscore.sketch.sketchfile import is_sketch, merge_sketches, subtract_sketches, write_sketches
from divscore.text import FEW, brief, listed

__all__ = ["merge", "sketch", "sketch_files"]


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
    with Engines(workers, cluster) as engines:
        control = read_control(control_path, encoding, attribute=attribute)
        engines.lend(encoding)
        source = open_collection(
            collection, control, encoding, column=column, by=by, form=form, strict=strict
        )
        done = sketch_source(
            source,
            control,
            by=by,
            seed=seed,
            engine=engines.suiting(source),
            strict=strict,
            verbose=verbose,
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


def sketch_files(path: str, besides: str | None = None) -> list[str]:
    """The sketches of a folder in the order of their names, or the file itself.

    Hidden names are left out, as what a killed job leaves has one, and so is the file `besides`, which is to be
    written: an earlier run would be counted in once more.
    """
    if not os.path.isdir(path):
        return _matching(path) or [path]
    with os.scandir(path) as listing:
        visible = sorted(each.path for each in listing if not each.name.startswith(".") and each.is_file())
    found = [each for each in visible if is_sketch(each)]
    kept = [each for each in found if besides is None or not _same_file(each, besides)]
    if len(kept) < len(found):
        warn(f"{besides} lies in {path} and is not counted in: it is the file to be written")
    if not kept:
        raise FileError(f"{path} is a folder without sketches; expected files that 'divscore sketch' wrote")
    return kept


def _matching(pattern: str) -> list[str]:
    """Sketches that a quoted pattern stands for; none, if it is something else."""
    if os.path.exists(pattern) or not pattern.endswith(".sketch") or not glob.has_magic(pattern):
        return []
    return sorted(filter(is_sketch, glob.glob(pattern, recursive=True)))


def _gathered(paths: Sequence[str], out: str) -> list[str]:
    """Sketch files that were named, each once."""
    found: dict[str, str] = {}
    again: dict[str, None] = {}
    for path in (file for each in paths for file in sketch_files(each, out)):
        if found.setdefault(os.path.realpath(path), path) is not path:
            again[path] = None
    if again:
        were, each = ("was", "it") if len(again) == 1 else ("were", "each")
        warn(f"{listed(list(again))} {were} named twice; {each} is taken once")
    return list(found.values())


def _same_file(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _merge_without(found: list[str], gone: list[str], out: str) -> dict[str, int]:
    if len(found) == 1:
        return subtract_sketches(found[0], gone, out)
    with tempfile.TemporaryDirectory(dir=Path(out).resolve().parent) as folder:
        joined = Path(folder) / Path(out).name
        merge_sketches(found, joined)
        return subtract_sketches(joined, gone, out)
