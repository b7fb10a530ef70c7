"""`divscore compare`."""

from __future__ import annotations

import json
from contextlib import ExitStack

import click

from divscore.cli.console import clean_errors, open_output, progress_bar, say, stops_cleanly, warn
from divscore.cli.options import encoding_options, workers_option
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.paper.comparison import (
    FILES,
    IN_FILES_ONLY,
    Comparison,
    Setup,
    advice,
    comparison_document,
    comparison_table,
    usable_labels,
    write_comparison,
)
from divscore.paper.comparison import compare as make_comparison
from divscore.paper.results import ResultTable, shown
from divscore.report.table import columns
from divscore.text import printable

__all__ = ["compare"]


@click.command()
@click.argument("pool", metavar="POOL")
@click.option("--attribute", metavar="NAME", help="Column of group names; 'gender×tone' for intersections.")
@click.option("--groups", metavar="A,B", help="Order of the groups: disparity = share(A) − share(B).")
@click.option(
    "--column", metavar="NAME", help="Column of texts, image paths or vectors, where it is not clear."
)
@click.option(
    "--labels",
    metavar="N,N,…",
    help="Numbers of labels to try.  [default: 50,100,200 as far as the pool allows]",
)
@click.option(
    "--repetitions", type=click.IntRange(2), default=20, show_default=True, help="Splits of the pool."
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
    help="Representatives of a chosen control set.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--out", metavar="DIR", help="Also write the table (CSV, JSON) and a plot (SVG, PNG) here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quapy", is_flag=True, help="Also try QuaPy's EMQ, PACC and KDEyML (divscore[quapy]).")
@workers_option
@clean_errors
@stops_cleanly
@encoding_options
def compare(
    pool: str,
    encoding: Encoding,
    attribute: str | None,
    groups: str | None,
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
    """Find out which estimator, which control set and how many labels suit your own items.

    POOL is labelled examples, some hundred or more. Part of them is held out and drawn into collections whose
    composition is known; every method is asked about these.

    \b
    Examples:
      divscore compare labelled.parquet --attribute gender
      divscore compare labelled/ --labels 30,60 --out comparison
    """
    order = [name.strip() for name in groups.split(",")] if groups else None
    numbers = _numbers(labels)
    with ExitStack() as stack:
        place = stack.enter_context(open_output(out, FILES)) if out else None
        labelled = read_control(
            pool,
            encoding,
            attribute=attribute,
            column=column,
            order=order,
            form=form,
            progress=progress_bar,
            warn=warn,
        )
        setup = Setup(usable_labels(labelled, numbers), repetitions, collection_size, size, seed, quapy)
        with progress_bar("splits", repetitions) as advance:
            found = make_comparison(labelled, setup, workers=workers, progress=advance)
        if place:
            written = write_comparison(found, place)
            warn(f"wrote {', '.join(path.name for path in written)} to {place}")
    if as_json:
        say(json.dumps(comparison_document(found), indent=1, ensure_ascii=False))
        return
    _tell(found)


def _tell(found: Comparison) -> None:
    smallest, largest = found.items
    items = f"{smallest} to {largest}" if smallest < largest else str(largest)
    say(
        f"{printable(found.attribute)}: {found.pool} labelled examples, {found.setup.repetitions} splits; "
        f"collections of {items} items, of every composition."
    )
    say("")
    say(_shown(comparison_table(found)))
    say("")
    say(printable(advice(found)))


def _shown(table: ResultTable) -> str:
    """A part for every number of labels, since methods compare only within one."""
    named = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    kept = [name for name in table.columns if name not in ("labels", "method", *IN_FILES_ONLY)]
    lines: list[list[str]] = []
    for number in dict.fromkeys(row["labels"] for row in named):
        # The aligner leaves the last column at the left; numbers belong to the right.
        lines += [[""] * (len(kept) + 2)] if lines else []
        lines.append([f"with {number} labels", *kept, ""])
        mine = [row for row in named if row["labels"] == number]
        lines += [[shown(row["method"]), *(shown(row[name]) for name in kept), ""] for row in mine]
    return columns(lines)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"--labels takes numbers such as 50,100,200, got '{text}'") from None
