"""`divscore sample`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from divscore.cli import options as opt
from divscore.cli.console import progress_bar, warn
from divscore.cli.main import TYPED
from divscore.errors import InputError
from divscore.jobs.drawfile import PAGES, Draw, check_draw_target, saved_table
from divscore.jobs.encode import Encoding
from divscore.jobs.sampling import sample_source
from divscore.text import count, printable, public

# Options of this command that `audit` does not have, and how many words they take.
OWN = {"--size": 1, "-o": 1, "--out": 1, "--add-to": 1, "--seed": 1, "--force": 0}
NOTED = {"--groups": 1, "--attribute": 1}  # in the table, if there is no control set
NOUNS = {"image": "pictures", "text": "texts", "vectors": "items"}
EXAMPLES = """
\b
Examples:
  divscore sample photos/ --groups female,male --attribute gender -o to-label.html
  divscore sample posts.csv --column text --size 100 -o to-label.csv
  divscore sample photos/ --control labelled/ --attribute gender -o to-label.csv
  divscore sample feed.parquet --by country --size 40 -o to-label.csv
  divscore sample photos/ --add-to labelled.csv --size 40 -o labelled.csv
"""


@click.command("sample", epilog=EXAMPLES)
@click.argument("collection", metavar="COLLECTION", type=opt.PATH)
@opt.number("--size", 1, "Number of items to draw, for each collection.", default=60)
@opt.path(
    "-o --out",
    "FILE",
    "What to write: a table (.csv, .parquet), or a page for the browser that shows the items and saves the "
    "table (.html).",
    required=True,
)
@opt.optional_control
@opt.attribute
@opt.rename
@opt.names("A,B,...", "Names of the groups, for those who label; by default those of the control set.")
@opt.by
@opt.column
@opt.path(
    "--add-to",
    "FILE",
    "A table that this command wrote: draw other items, and write both with the labels that it has.",
)
@opt.flag("--force", "Overwrite FILE even if labels in it are lost.")
@opt.seed
@opt.workers
@opt.strict
@opt.verbose
@opt.encoding_options
def sample(
    collection: str,
    control_path: str | None,
    encoding: Encoding,
    size: int,
    out: str,
    add_to: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Draw items of a collection for a person to label, for 'divscore audit --labelled-sample'.

    About 60 labels of the collection itself give a result that needs no other assumption. Without a control set, items
    are drawn at random, and nothing is encoded. With one, they are drawn in pairs of similar items from the whole range
    of scores, which helps most where the control set fits badly. Either way every item has the same chance. FILE has no
    scores, so nobody is influenced by them.

    COLLECTION is what 'divscore audit' takes, but not a sketch.
    """
    for path in (collection, control_path):
        if path is not None and os.path.realpath(path) == os.path.realpath(out):
            raise InputError(f"{out} would overwrite {path}; use another name")
    check_draw_target(out, force=force, source=add_to)
    drawn = sample_source(
        collection,
        size,
        control_path,
        add_to=add_to,
        encoder=encoding,
        progress=progress_bar,
        warn=warn,
        **options,
    )
    added = add_to is not None and os.path.realpath(out) == os.path.realpath(add_to)
    with progress_bar("writing", len(drawn)) as advance:
        drawn.save(out, force=force or added, advance=advance)
    warn(f"wrote {out}: {_described(drawn)}")
    page = Path(out).suffix.lower() in PAGES
    table = saved_table(out) if page else out
    names = f" ({', '.join(map(printable, drawn.groups))})" if drawn.groups else ""
    if page:
        warn(f"Next: open {out} in a browser, label the items, and press 'Save table'. Then run")
    else:
        warn(f"Next: fill in the column 'group'{names}; write 'unsure' where you cannot decide. Then run")
    warn(f"  {_next_command(table, OWN if control_path else OWN | NOTED)}")


def _described(drawn: Draw) -> str:
    """What was drawn, and how."""
    collections = {item.collection for item in drawn.items}
    parts = [count(len(drawn), NOUNS[drawn.kind])]
    if len(collections) > 1:
        parts.append(f"of {len(collections):,} collections")
    pairs = any(item.stratum for item in drawn.items)
    parts.append("drawn in pairs" if pairs else "drawn at random")
    if drawn.labels:
        parts.append(f"({drawn.labels:,} labelled before)")
    return " ".join(parts)


def _next_command(table: str, own: dict[str, int]) -> str:
    """The audit with the same options; those that it does not need are left out."""
    words = list(click.get_current_context().meta.get(TYPED, ()))[1:]
    kept: list[str] = []
    while words:
        word = words.pop(0)
        name = (
            word.partition("=")[0] if word.startswith("--") else word[:2] if word.startswith("-o") else word
        )
        if name not in own:
            kept.append(word)
        elif own[name] and word == name and words:
            words.pop(0)
    return shlex.join(["divscore", "audit", *map(public, kept), "--labelled-sample", table])
