"""`divscore plan`."""

from __future__ import annotations

import json
from typing import Any

import click

from divscore.audit.planning import FRACTIONS, ROUNDS, SIMPLE, LabelPlan
from divscore.audit.planning import plan as make_plan
from divscore.cli import options as opt
from divscore.cli.console import progress_bar, say, warn
from divscore.control.controlfile import is_control
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.labelplan import plan_collection
from divscore.jobs.pool import has_groups
from divscore.report.listing import columns
from divscore.text import count, quoted

EXAMPLES = """
\b
Examples:
  divscore plan photos/ --control labelled/ --attribute gender --width 0.15
  divscore plan photos/ --labelled-sample to-label.csv --width 0.1
  divscore plan pilot.parquet --attribute gender --width 0.1
  divscore plan pilot.parquet --attribute gender --labels 200
"""


@click.command(epilog=EXAMPLES)
@click.argument("thing", metavar="COLLECTION|POOL", type=opt.PATH)
@click.option("--width", type=float, metavar="W", help="Width of the interval you want, such as 0.1.")
@click.option("--labels", type=int, metavar="N", help="Number of labels you can afford.")
@opt.optional_control
@opt.path(
    "--labelled-sample sample", "FILE", "First labels of the collection: the table of 'divscore sample'."
)
@opt.attribute
@opt.groups
@opt.rename
@opt.column
@opt.confidence
@opt.number("--collection-size", 50, "Items to be audited with the labelled examples of a POOL.", default=500)
@opt.seed
@opt.json_flag
@opt.workers
@opt.verbose
@opt.encoding_options
def plan(
    thing: str,
    encoding: Encoding,
    width: float | None,
    labels: int | None,
    control_path: str | None,
    sample: str | None,
    collection_size: int,
    as_json: bool,
    workers: int,
    **options: Any,
) -> None:
    """Estimate how many labels give an interval of width W, or how wide the interval is with N labels.

    COLLECTION: items to audit. The answer is the number of its own items to label ('divscore sample'), with and without
    the control set C. It comes from C, or from first labels of the collection; without either it is that of a simple
    sample in the worst case.

    POOL: labelled examples, at least a few dozen of each group. The answer is the number of such examples.
    """
    if (width is None) == (labels is None):
        raise InputError("give either --width W or --labels N")
    own = control_path is not None or sample is not None
    if own or not has_groups(thing, encoding, options["attribute"], options["column"]):
        outlook = plan_collection(
            thing,
            encoding,
            control=control_path,
            sample=sample,
            workers=workers,
            progress=progress_bar,
            warn=warn,
            **options,
        )
        _say_labels(outlook, width, labels, as_json)
        return
    confidence, seed = options.pop("confidence"), options.pop("seed")
    labelled = opt.read_pool(thing, encoding, **options)
    if options["attribute"] is None and not is_control(thing):
        warn(
            f"{thing} is read as labelled examples of the groups {quoted(labelled.groups)}; to plan labels of it as a "
            "collection, add --control or --labelled-sample"
        )
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


def _say_labels(outlook: LabelPlan, width: float | None, labels: int | None, as_json: bool) -> None:
    """How many items of the collection to label, for each way to use the labels."""
    rows = [
        (way, n := labels or outlook.labels(width or 0.0, way), outlook.width(n, way))
        for way in outlook.variances
    ]
    if as_json:
        ways = [{"way": way, "labels": n, "width": expected} for way, n, expected in rows]
        facts = {"attribute": outlook.attribute, "items": outlook.items, "basis": outlook.basis}
        say(json.dumps({**facts, "confidence": outlook.confidence, "ways": ways}))
        return
    head = ["labels of the collection", "labels", f"width of the {outlook.confidence:.0%} interval"]
    say(columns([head, *([way, f"{n:,}", f"{expected:.2f}"] for way, n, expected in rows)]))
    basis = f"From {outlook.basis}" if len(rows) > 1 else "The worst case of two equal groups"
    say(f"\n{basis}, for {count(outlook.items, 'items')}.")
    if len(rows) == 1 and outlook.basis != "nothing":
        say("The labelled examples do not separate the groups, so they do not help.")
    elif len(rows) == 1:
        say(
            "Usually far fewer are enough: label 30 items first (divscore sample), then plan with --labelled-sample."
        )
    if any(n >= outlook.items for way, n, _ in rows if way != SIMPLE):
        say("That is all of them.")
