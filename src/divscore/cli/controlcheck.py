"""`divscore control check`."""

from __future__ import annotations

import sys

import click

from divscore.cli.console import clean_errors, say
from divscore.control.controlfile import is_control, load_control
from divscore.control.controlset import ControlSet
from divscore.publishing.edition import is_published
from divscore.publishing.objections import WHOLE
from divscore.publishing.soundness import soundness
from divscore.publishing.verify import Verdict, check_published
from divscore.report.table import columns
from divscore.sources.labelled import read_pool
from divscore.text import printable

__all__ = ["check"]

SHOWN = 100  # characters of an objection


@click.command()
@click.argument("path", metavar="C")
@click.option("--attribute", metavar="NAME", help="Column of group names, if C is a table.")
@clean_errors
def check(path: str, attribute: str | None) -> None:
    """Verify a control set: its files, its groups, and what the representatives leave out.

    Of a published one every file is compared with its digest and with the others, and open objections are listed.
    Exit code 1 if something should be mended before use.
    """
    problems: list[str] = []
    if is_published(path):
        verdict = check_published(path)
        if verdict.control is not None:
            problems += _sound(verdict.control, "verified")
        _tell(verdict)
        problems += verdict.problems
    elif is_control(path):
        problems += _sound(load_control(path), "verified")
    else:
        problems += _sound(read_pool(path, attribute=attribute), "not a saved control set")
    for problem in problems:
        say(f"! {printable(problem)}")
    if not problems:
        say("No problem found. Do look at the representatives yourself.")
    sys.exit(1 if problems else 0)


def _sound(found: ControlSet, state: str) -> tuple[str, ...]:
    sound = soundness(found)
    rows = [["group", "representatives", "of", "median distance", "farthest", "left out"]]
    rows += [
        [
            printable(part.group),
            str(part.representatives),
            str(part.labelled),
            f"{part.median:.2f}",
            f"{part.farthest:.2f}",
            f"{part.uncovered:.0%}",
        ]
        for part in sound.parts
    ]
    say(columns(rows))
    say(f"digest {found.digest[:16]}…  {state}")
    return sound.problems


def _tell(verdict: Verdict) -> None:
    say(
        f"published: edition {verdict.edition}, {verdict.files} files, digest of the edition {verdict.digest}"
    )
    if verdict.beside:
        say(f"beside it, with no digest: {printable(', '.join(verdict.beside))}")
    waiting = [objection for objection in verdict.objections if objection.is_open]
    say(f"objections: {len(waiting)} open of {len(verdict.objections)}")
    for each in waiting:
        about = "the whole set" if each.id == WHOLE else f"'{each.id}'"
        text = each.objection if len(each.objection) <= SHOWN else f"{each.objection[: SHOWN - 1]}…"
        wish = f" ({each.proposal[:SHOWN]})" if each.proposal else ""
        say(printable(f"  {each.date}  {about}: {text}{wish}"))
