"""`divscore demo`: an audit of real names, with the truth beside it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np

from divscore.audit.audit import audit
from divscore.audit.document import document
from divscore.cli.audit_command import typed_command
from divscore.cli.console import clean_errors, say, warn
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive
from divscore.files import write_file
from divscore.paper.names import DemoList, speaker_lists
from divscore.report.page import write_report
from divscore.report.summary import Context, Example, Examples
from divscore.report.table import columns, noise_note, table
from divscore.text import level

__all__ = ["demo"]


@click.command()
@click.option(
    "--out",
    metavar="DIR",
    help="Also write the lists, the control set, the result and its report here.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draw other names.")
@clean_errors
def demo(out: str | None, seed: int) -> None:
    """Audit three lists of first names without knowing anyone's sex, from 200 labelled names.

    The names are those of the 1990 US Census; nothing is downloaded.
    """
    pool, lists = speaker_lists(seed=seed)
    control = select_adaptive(pool, 50, alpha=0.1)  # the paper's weight for texts
    audits = [audit(each.vectors, control, name=each.name, seed=seed) for each in lists]
    say("Three lists of 800 first names each, say of speakers. Nobody's sex is recorded.")
    examples = ", ".join(lists[0].names[:6])
    say(f"List A begins: {examples}, …")
    say(
        "We have 200 other names whose sex is known, and compare spellings: each name is turned into counts of its"
    )
    say("letters, pairs, triples and quadruples of letters.")
    say("")
    say(table(audits))
    if note := noise_note(audits[0]):
        say(note)
    say("")
    for each, found in zip(lists, audits, strict=True):
        say(f"{each.name}: {found.headline}")
        first = found.share_intervals["female"]
        hit = "inside" if each.truth in found.interval else "outside"
        say(
            f"        In truth {(1 + each.truth) / 2:.0%} are women, disparity {each.truth:+.2f}: {hit} the interval."
        )
    say("")
    say("How to read a line")
    low, high = audits[0].interval.low, audits[0].interval.high
    rows = [
        ["column", "what it says"],
        [
            "female",
            f"estimated share of women; {level(first.level)} sure that it lies 'between' the next two",
        ],
        ["disparity", "share of women − share of men: 0 is balanced, −1 means only men"],
        [
            "95% interval",
            f"where the true disparity lies, 95 times in 100; for list A {low:+.2f} to {high:+.2f}",
        ],
        [
            "DivScore",
            "the paper's own score (Algorithm 1) from 50 representatives: rougher, may leave −1 … 1",
        ],
        ["trust", "good, caution or poor: whether the labelled names seem fit to judge this list"],
    ]
    say(columns(rows))
    for found in audits:
        for warning in found.warnings:
            warn(f"{found.name}: {warning}")
    if out:
        _write(Path(out), control, lists, json.dumps(document(audits), indent=2))
        say("")
        write_report(Path(out) / "report.html", audits, _context(control))
        say(f"Wrote {out}; the report for people is {out}/report.html. Audit the lists yourself:")
        say(f"  divscore audit {out}/names.parquet --control {out}/control --by list")


def _context(control: ControlSet) -> Context:
    """The names are public: the report shows the representatives."""
    chosen = np.flatnonzero(control.representative)
    shown = [Example(control.groups[control.labels[row]], text=control.ids[row]) for row in chosen]
    return Context(typed_command(), examples=Examples(shown, f"All {len(shown)} representatives are shown."))


def _write(folder: Path, control: ControlSet, lists: list[DemoList], text: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from divscore.control.controlfile import save_control
    from divscore.sources.labelled import ENCODER_KEY

    folder.mkdir(parents=True, exist_ok=True)
    save_control(control, folder / "control")
    write_file(folder / "audit.json", text + "\n")
    vectors = np.concatenate([each.vectors for each in lists])
    flat = pa.array(vectors.ravel())
    table = pa.table(
        {
            "name": [name for each in lists for name in each.names],
            "list": [each.name for each in lists for _ in each.names],
            "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    parquet.write_table(
        table.replace_schema_metadata({ENCODER_KEY: str(control.encoder)}), folder / "names.parquet"
    )
