"""`divscore plan`."""

from __future__ import annotations

import json
from typing import Any

import click

from divscore.audit.planning import FRACTIONS, ROUNDS
from divscore.audit.planning import plan as make_plan
from divscore.cli import options as opt
from divscore.cli.console import progress_bar, say
from divscore.errors import InputError
from divscore.jobs.encode import Encoding


@click.command()
@opt.pool
@click.option("--width", type=float, metavar="W", help="Width of the interval you want, such as 0.1.")
@click.option("--labels", type=int, metavar="N", help="Number of labels you can afford.")
@opt.attribute
@opt.rename
@opt.column
@opt.confidence
@click.option(
    "--collection-size", type=click.IntRange(50), default=500, show_default=True, help="Items to be audited."
)
@opt.seed
@opt.json_flag
@opt.verbose
@opt.encoding_options
def plan(
    pool: str,
    encoding: Encoding,
    width: float | None,
    labels: int | None,
    confidence: float,
    collection_size: int,
    seed: int,
    as_json: bool,
    **reading: Any,
) -> None:
    """Estimate how many labels give an interval of width W, or how wide the interval is with N labels.

    POOL is a pilot: at least a few dozen labelled examples of each group.

    \b
    Examples:
      divscore plan pilot.parquet --attribute gender --width 0.1
      divscore plan pilot.parquet --attribute gender --labels 200
    """
    if (width is None) == (labels is None):
        raise InputError("give either --width W or --labels N")
    labelled = opt.read_pool(pool, encoding, **reading)
    with progress_bar("measuring", len(FRACTIONS) * ROUNDS) as advance:
        pilot = make_plan(
            labelled,
            confidence=confidence,
            collection_size=collection_size,
            seed=seed,
            progress=lambda done, total: advance(1),
        )
    labels = labels if labels is not None else pilot.labels(width or 0.0)
    width = width if width is not None else pilot.width(labels)
    if as_json:
        points = [{"labels": number, "width": expected} for number, expected in pilot.points]
        facts = {"attribute": pilot.attribute, "pilot": pilot.labelled, "labels": labels, "width": width}
        say(json.dumps({**facts, "points": points}))
        return
    say(f"About {labels:,} labelled examples for a {confidence:.0%} interval of width {width:.2f}.")
    points_text = ", ".join(f"{expected:.2f} with {number}" for number, expected in pilot.points)
    say(f"From a pilot of {pilot.labelled}: width {points_text}.")
    if labels > 4 * pilot.labelled:
        say(f"This is a rough guess: over four times the pilot. Repeat it with {2 * pilot.labelled} labels.")
