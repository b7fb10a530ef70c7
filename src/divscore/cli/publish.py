"""`divscore control card` and `divscore control publish`."""

from __future__ import annotations

from pathlib import Path

import click

from divscore.cli.console import clean_errors, progress_bar, say, warn
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.jobs.pool import PROJECTION
from divscore.publishing.about import About, read_about, write_about
from divscore.publishing.card import card_section
from divscore.publishing.edition import Published, is_published
from divscore.publishing.edition import publish as write_folder
from divscore.publishing.ids import CHOICES, whole_texts
from divscore.publishing.measure import REPETITIONS, Measured, NotMeasured
from divscore.publishing.measure import measure as measure_control
from divscore.publishing.objections import OBJECTIONS
from divscore.publishing.publication import Publication
from divscore.publishing.soundness import soundness
from divscore.publishing.verify import stated
from divscore.sources.labelled import read_pool
from divscore.text import brief, printable
from divscore.wholefile import write_whole

__all__ = ["card", "publish"]

attribute_option = click.option("--attribute", metavar="NAME", help="Column of group names, if C is a table.")
measure_option = click.option(
    "--measure/--no-measure",
    "measuring",
    default=True,
    show_default=True,
    help="Measure error and coverage on splits of the examples (some seconds).",
)
NAMED = 5  # ids in a line


@click.command()
@click.argument("path", metavar="C")
@attribute_option
@click.option("-o", "--out", metavar="FILE", help="Write it here instead of printing it.")
@measure_option
@clean_errors
def card(path: str, attribute: str | None, out: str | None, measuring: bool) -> None:
    """Describe a control set in Markdown, to paste into the card of the data or model that was audited with it.

    Of a published control set the figures of its publication are told, of another they are measured.
    """
    found = read_pool(path, attribute=attribute)
    if is_published(path):
        about, figures = stated(path)
    else:
        about, figures = About(), _measured(found, measuring)
    text = card_section(Publication(found, about, soundness(found), figures))
    if out is None:
        say(text.rstrip("\n"))
        return
    write_whole(out, text)
    warn(f"wrote {out}")


@click.command()
@click.argument("path", metavar="C")
@click.option(
    "-o", "--out", metavar="FOLDER", help="Where to write; an earlier edition there is brought up to date."
)
@attribute_option
@click.option(
    "--about", "about_file", metavar="FILE.toml", help="What only people know: definition, source, consent, …"
)
@click.option(
    "--template", metavar="FILE.toml", help="Write the questions for --about, to be filled in, and stop."
)
@click.option(
    "--ids",
    type=click.Choice(CHOICES),
    default="names",
    show_default=True,
    help="Call the examples by their names without folders, by numbers, or keep their names with folders.",
)
@measure_option
@click.option(
    "--replace", is_flag=True, help="Overwrite files of the earlier edition that were changed by hand."
)
@clean_errors
def publish(
    path: str,
    out: str | None,
    attribute: str | None,
    about_file: str | None,
    template: str | None,
    ids: str,
    measuring: bool,
    replace: bool,
) -> None:
    """Write a control set as a folder that can be made public and objected to.

    The folder holds the examples' vectors and groups, a dataset card, a description for machines (Croissant), a table
    for objections, a changelog and digests. Pictures and texts themselves are not copied, unless the ids are the texts.

    \b
    Examples:
      divscore control publish C --template about.toml
      divscore control publish C --about about.toml -o gender-control
    """
    found = read_pool(path, attribute=attribute)
    if template is not None:
        if Path(template).exists():
            raise FileError(f"{template} exists already; fill it in, or give another name")
        write_whole(template, write_about(stated(path)[0] if is_published(path) else About(), found))
        warn(f"wrote {template}: fill it in, then give it as --about {template}")
        return
    if out is None:
        raise InputError(
            "where to? give a folder with -o FOLDER, or a file for the questions with --template"
        )
    projection = Path(path) / PROJECTION
    done = write_folder(
        found,
        out,
        about=read_about(about_file) if about_file else None,
        measure=lambda control: _measured(control, measuring),
        ids=ids,
        projection=projection if projection.is_file() else None,
        replace=replace,
    )
    _tell(done, out, ids)


def _measured(control: ControlSet, measuring: bool) -> Measured | NotMeasured:
    if not measuring:
        return NotMeasured("it was left out (--no-measure)")
    with progress_bar("measuring: splits of the examples", REPETITIONS) as advance:
        return measure_control(control, progress=advance)


def _tell(done: Published, out: str, ids: str) -> None:
    publication, missing = done.publication, done.publication.about.missing
    say(f"edition {publication.edition} in {out}, digest {done.digest}")
    control = publication.control
    groups = ", ".join(f"{number} {printable(name)}" for name, number in control.counts.items())
    warn(f"published: {printable(control.attribute)} ({groups})")
    for problem in publication.sound.problems:
        warn(f"! {problem}")
    if done.renamed:
        how = "numbers" if ids == "numbers" else "names without their folders"
        warn(
            f"{done.renamed} of {len(publication.control)} examples are called by {how} (--ids keep leaves them)"
        )
    _tell_of_ids(done, ids)
    warn(publication.vectors_warning)
    if done.carried:
        warn("Error and coverage are those of the edition before: the control set is the same.")
    elif isinstance(publication.measured, NotMeasured):
        warn(publication.measured.sentences)
    if missing:
        warn(
            f"Not stated: {', '.join(missing)}. Readers will miss it: write the questions with --template FILE.toml, "
            "answer them, and publish again with --about FILE.toml."
        )


def _tell_of_ids(done: Published, ids: str) -> None:
    """What the ids make public, and where they have changed."""
    control, objections = done.publication.control, done.objections
    texts = whole_texts(control)
    if ids != "numbers" and texts:
        warn(
            f"{texts} of {len(control)} ids look like whole texts, and everybody can read them now: if they should "
            "not be public, publish with --ids numbers instead."
        )
    elif ids != "numbers":
        warn("Read the ids: where one names a person, publish with --ids numbers instead.")
    if objections.renamed:
        warn(f"{OBJECTIONS}: lines that call their example by its new id now: {objections.renamed}.")
    if objections.lost:
        named = ", ".join(f"'{brief(name)}'" for name in objections.lost[:NAMED])
        more = " …" if len(objections.lost) > NAMED else ""
        warn(
            f"{OBJECTIONS}: {len(objections.lost)} open to examples that are no longer in the set ({named}{more}); "
            "write 'accepted' or 'declined' there."
        )
    if done.still_named:
        warn(
            f"Names of examples from earlier editions still stand in {' and '.join(done.still_named)}: if they should "
            "not be public, strike them out there and publish again."
        )
