"""`divscore compare`."""

from __future__ import annotations

import json
from contextlib import ExitStack

import click

from divscore.cli.console import open_output, progress_bar, say, warn
from divscore.cli.options import (
    attribute_option,
    column_option,
    encoding_options,
    groups_option,
    json_flag,
    seed_option,
    workers_option,
)
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
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
from divscore.paper.results import ResultTable, show_cell
from divscore.report.listing import columns
from divscore.text import printable


@click.command()
@click.argument("pool", metavar="POOL")
@attribute_option
@groups_option
@column_option
@click.option(
    "--labels",
    metavar="N,N,…",
    help="Numbers of labels to try.  [default: 50,100,200, as far as POOL allows]",
)
@click.option(
    "--repetitions",
    type=click.IntRange(2),
    default=20,
    show_default=True,
    help="Number of random splits of POOL.",
)
@click.option(
    "--collection-size",
    type=click.IntRange(20),
    default=200,
    show_default=True,
    help="Items of a collection, or as many as the held-out part allows.",
)
@click.option(
    "--size",
    type=click.IntRange(4),
    default=50,
    show_default=True,
    help="Representatives of a selected control set.",
)
@seed_option
@click.option("--out", metavar="DIR", help="Also write the table (CSV, JSON) and a plot (SVG, PNG) here.")
@json_flag
@click.option("--quapy", is_flag=True, help="Also try EMQ, PACC and KDEyML of QuaPy (divscore[quapy]).")
@workers_option
@encoding_options
def compare(
    pool: str,
    encoding: Encoding,
    attribute: str | None,
    groups: list[str] | None,
    column: str | None,
    labels: str | None,
    repetitions: int,
    collection_size: int,
    size: int,
    seed: int,
    out: str | None,
    as_json: bool,
    quapy: bool,
    workers: int,
    form: str,
) -> None:
    """Find out which estimator, control set and number of labels suit your own items.

    POOL is some hundred labelled examples or more. A part of them is held out and drawn into collections of known
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
    with ExitStack() as stack:
        place = stack.enter_context(open_output(out, FILES)) if out else None
        labelled = read_control(
            pool,
            encoding,
            attribute=attribute,
            column=column,
            order=groups,
            form=form,
            progress=progress_bar,
            warn=warn,
        )
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
        f"{items} items of every composition."
    )
    say("")
    say(_shown(comparison_table(comparison)))
    say("")
    say(printable(advice(comparison)))


def _shown(table: ResultTable) -> str:
    """One part for each number of labels, since only methods with the same number can be compared."""
    names = [name for name in table.columns if name not in ("labels", "method", *IN_FILES_ONLY)]
    lines: list[list[str]] = []
    for number in dict.fromkeys(table.column("labels")):
        # The last column is aligned to the left, so an empty one keeps the numbers at the right.
        lines += [[""] * (len(names) + 2)] if lines else []
        lines.append([f"with {number} labels", *names, ""])
        mine = [row for row in table.records if row["labels"] == number]
        lines += [[show_cell(row[name]) for name in ("method", *names)] + [""] for row in mine]
    return columns(lines)
