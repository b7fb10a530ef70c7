"""`divscore demo`: an audit of real names, next to the truth."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np

from divscore.audit.audit import audit
from divscore.audit.document import document
from divscore.cli import options as opt
from divscore.cli.audit_command import typed_command
from divscore.cli.console import say, warn
from divscore.control.controlfile import save_control
from divscore.control.selection import select_adaptive
from divscore.files import refuse_url, write_file
from divscore.paper.names import speaker_lists
from divscore.report.listing import columns, noise_note, table
from divscore.report.page import write_report
from divscore.report.summary import Context, Example, Examples
from divscore.sources.manifest import ENCODER_KEY
from divscore.text import level, signed


@click.command()
@opt.path("--out", "DIR", "Also write the lists, the control set, the result and its report here.")
@opt.seed
def demo(out: str | None, seed: int) -> None:
    """Audit three lists of first names of unknown sex, with 200 labelled names.

    The names are from the 1990 US Census; nothing is downloaded.

    \b
    Example:
      divscore demo --out demo
    """
    if out:
        refuse_url(out, "a folder of results")
    pool, lists = speaker_lists(seed=seed)
    control = select_adaptive(pool, 50, alpha=0.1)  # the paper's weight for texts
    audits = [audit(listing.vectors, control, name=listing.name, seed=seed) for listing in lists]
    say(
        "Three lists of 800 first names each, such as lists of speakers. The sex of each person is unknown.\n"
        f"List A begins: {', '.join(lists[0].names[:6])}, …\n"
        "We have 200 other names of known sex, and compare spellings and meanings: each name becomes counts of its\n"
        "letter groups, next to numbers for how it is used in English texts.\n"
    )
    say(table(audits))
    if note := noise_note(audits[0]):
        say(note)
    say("")
    for listing, result in zip(lists, audits, strict=True):
        say(f"{listing.name}: {result.headline}")
        hit = "inside" if listing.truth in result.interval else "outside"
        share = (1 + listing.truth) / 2
        say(f"        True share: {share:.0%} women, disparity {signed(listing.truth)}: {hit} the interval.")
    say("\nHow to read a row")
    low, high = audits[0].interval.low, audits[0].interval.high
    sure = level(audits[0].share_intervals["female"].level)
    rows = [
        ["column", "meaning"],
        ["female", f"estimated share of women; 'between' is its {sure} interval"],
        ["disparity", "share of women − share of men: 0 is an even split, −1 means only men"],
        [
            "95% interval",
            f"contains the true disparity 95 times in 100; for list A {signed(low)} to {signed(high)}",
        ],
        [
            "DivScore",
            "the paper's own score (Algorithm 1) from 50 representatives: less precise, can be outside −1 to 1",
        ],
        ["trust", "good, caution or poor: whether the labelled names suit this list"],
    ]
    say(columns(rows))
    for result in audits:
        for warning in result.warnings:
            warn(f"{result.name}: {warning}")
    if out:
        import pyarrow as pa
        from pyarrow import parquet

        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        save_control(control, folder / "control")
        write_file(folder / "audit.json", json.dumps(document(audits), indent=2) + "\n")
        vectors = np.concatenate([listing.vectors for listing in lists])
        data = {
            "name": [name for listing in lists for name in listing.names],
            "list": [listing.name for listing in lists for _ in listing.names],
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        }
        names = pa.table(data).replace_schema_metadata({ENCODER_KEY: str(control.encoder)})
        parquet.write_table(names, folder / "names.parquet")
        # The names are public: the report shows the representatives.
        chosen = np.flatnonzero(control.representative)
        shown = [Example(control.groups[control.labels[row]], text=control.ids[row]) for row in chosen]
        examples = Examples(shown, f"All {len(shown)} representatives are shown.")
        write_report(folder / "report.html", audits, Context(typed_command(), examples=examples))
        say(f"\nWrote {out}; open {out}/report.html. Audit the lists yourself:")
        say(f"  divscore audit {out}/names.parquet --control {out}/control --by list")
