"""`divscore plan`."""

from __future__ import annotations

import json

import click

from divscore.audit.planning import plan as make_plan
from divscore.cli.console import clean_errors, progress_bar, say, warn
from divscore.cli.options import encoding_options
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control

__all__ = ["plan"]


@click.command()
@click.argument("pool", metavar="POOL")
@click.option("--width", type=float, metavar="W", help="Wanted width of the interval, e.g. 0.1.")
@click.option("--labels", type=int, metavar="N", help="Number of labels you can afford.")
@click.option("--attribute", metavar="NAME", help="Column of group names.")
@click.option(
    "--column", metavar="NAME", help="Column of texts, image paths or vectors, where it is not clear."
)
@click.option("--confidence", type=float, default=0.95, show_default=True)
@click.option("--collection-size", type=click.IntRange(50), default=500, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@clean_errors
@encoding_options
def plan(
    pool: str,
    encoding: Encoding,
    width: float | None,
    labels: int | None,
    attribute: str | None,
    column: str | None,
    confidence: float,
    collection_size: int,
    seed: int,
    as_json: bool,
    form: str,
) -> None:
    """Say how many labels give an interval of a wanted width, or the width to expect from N labels.

    POOL is a pilot: a few dozen labelled examples a group or more.

    \b
    Examples:
      divscore plan pilot.parquet --attribute gender --width 0.1
      divscore plan pilot.parquet --attribute gender --labels 200
    """
    if (width is None) == (labels is None):
        raise InputError("give either --width W or --labels N")
    labelled = read_control(
        pool, encoding, attribute=attribute, column=column, form=form, progress=progress_bar, warn=warn
    )
    with progress_bar("measuring", None) as advance:
        found = make_plan(
            labelled,
            confidence=confidence,
            collection_size=collection_size,
            seed=seed,
            progress=lambda done, total: advance(1),
        )
    labels = labels if labels is not None else found.labels(width or 0.0)
    width = width if width is not None else found.width(labels)
    if as_json:
        points = [{"labels": n, "width": w} for n, w in found.points]
        say(
            json.dumps(
                {
                    "attribute": found.attribute,
                    "pilot": found.labelled,
                    "labels": labels,
                    "width": width,
                    "points": points,
                }
            )
        )
        return
    say(f"About {labels:,} labelled examples for a {confidence:.0%} interval of width {width:.2f}.")
    say(
        f"From a pilot of {found.labelled}: width "
        + ", ".join(f"{w:.2f} with {n}" for n, w in found.points)
        + "."
    )
    if labels > 4 * found.labelled:
        say(f"That is over four times the pilot: a rough guess. Ask again with {2 * found.labelled} labels.")
