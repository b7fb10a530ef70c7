"""`divscore compare`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import click

from divscore.cli import options as opt
from divscore.cli.console import open_output, progress_bar, say, warn
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.paper.comparison import (
    FILES,
    IN_FILES_ONLY,
    Setup,
    advice,
    comparison_document,
    comparison_table,
    usable_labels,
    write_comparison,
)
from divscore.paper.comparison import compare as make_comparison
from divscore.paper.results import show_cell
from divscore.report.listing import columns
from divscore.text import printable


@click.command()
@opt.pool
@opt.attribute
@opt.rename
@opt.groups
@opt.column
@opt.text("--labels", "N,N,…", "Numbers of labels to try.  [default: 50,100,200, limited by POOL]")
@opt.number("--repetitions", 2, "Number of random splits of POOL.", default=20)
@opt.number(
    "--collection-size", 20, "Items of a collection, or as many as the held-out part allows.", default=200
)
@opt.number("--size", 4, "Representatives of a selected control set.", default=50)
@opt.seed
@opt.path("--out", "DIR", "Also write the table (CSV, JSON) and a plot (SVG, PNG) here.")
@opt.json_flag
@opt.flag("--quapy", "Also try EMQ, PACC and KDEyML of QuaPy (extra 'quapy').")
@opt.workers
@opt.verbose
@opt.encoding_options
def compare(
    pool: str,
    encoding: Encoding,
    labels: str | None,
    repetitions: int,
    collection_size: int,
    size: int,
    seed: int,
    out: str | None,
    as_json: bool,
    quapy: bool,
    workers: int,
    **reading: Any,
) -> None:
    """Find out which estimator, control set and number of labels suit your own items.

    POOL has a few hundred labelled examples or more. Some are held out and drawn into collections of known
    composition, and every method is tested on these.

    \b
    Examples:
      divscore compare labelled.parquet --attribute gender
      divscore compare labelled/ --labels 30,60 --out comparison
    """
    try:
        numbers = tuple(sorted({int(part) for part in labels.split(",")})) if labels is not None else None
    except ValueError:
        raise InputError(f"--labels takes numbers such as 50,100,200, got '{labels}'") from None
    with open_output(out, FILES) if out else nullcontext() as place:
        labelled = opt.read_pool(pool, encoding, **reading)
        setup = Setup(usable_labels(labelled, numbers), repetitions, collection_size, size, seed, quapy)
        with progress_bar("splits", repetitions) as advance:
            comparison = make_comparison(labelled, setup, workers=workers, progress=advance)
        if place:
            written = write_comparison(comparison, place)
            warn(f"wrote {', '.join(path.name for path in written)} to {place}")
    if as_json:
        say(json.dumps(comparison_document(comparison), indent=1, ensure_ascii=False))
        return
    smallest, largest = comparison.items
    items = f"{smallest} to {largest}" if smallest < largest else str(largest)
    say(
        f"{printable(comparison.attribute)}: {comparison.pool} labelled examples, {repetitions} splits; collections of "
        f"{items} items of every composition.\n"
    )
    # One part for each number of labels, since only methods with the same number can be compared.
    table = comparison_table(comparison)
    names = [name for name in table.columns if name not in ("labels", "method", *IN_FILES_ONLY)]
    lines: list[list[str]] = []
    for number in dict.fromkeys(table.column("labels")):
        # The last column is aligned to the left, so an empty one keeps the numbers at the right.
        lines += [[""] * (len(names) + 2)] if lines else []
        lines.append([f"with {number} labels", *names, ""])
        for row in table.records:
            if row["labels"] == number:
                lines.append([show_cell(row[name]) for name in ("method", *names)] + [""])
    say(f"{columns(lines)}\n")
    say(printable(advice(comparison)))
