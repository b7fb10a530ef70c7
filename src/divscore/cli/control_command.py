"""`divscore control`: select, show, check, card and publish."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

import click

from divscore.audit.trust import control_facts
from divscore.cli import options as opt
from divscore.cli.console import progress_bar, say, warn
from divscore.control.controlfile import is_control, load_control, save_control
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_dpp, select_random
from divscore.control.theory import control_size, gamma_control, theorem
from divscore.encoders.registry import is_outdated, renew_control
from divscore.errors import FileError, InputError
from divscore.estimators.checks import clusters, separation
from divscore.files import refuse_url, write_file
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import PROJECTION
from divscore.publishing.about import About, read_about, write_about
from divscore.publishing.card import card_section
from divscore.publishing.edition import CHOICES, check_published, is_published, stated, whole_texts
from divscore.publishing.edition import publish as write_folder
from divscore.publishing.objections import OBJECTIONS, WHOLE
from divscore.publishing.publication import REPETITIONS, Measured, NotMeasured, Publication, soundness
from divscore.publishing.publication import measure as measure_control
from divscore.report.examples import check_page, open_again, write_page
from divscore.report.listing import columns
from divscore.sketch.scorer import scorer_for
from divscore.text import brief, count, finite, joined, printable

USUAL_SIZE = 50
WHOLE_RANGE = 2.0  # of a disparity, from −1 to 1
SHOWN = 100  # characters of an objection
NAMED = 5  # ids in a line

measure_option = click.option(
    "--measure/--no-measure",
    "measuring",
    default=True,
    show_default=True,
    help="Measure error and coverage on splits of the examples, which takes some seconds.",
)


@click.group()
def control() -> None:
    """Choose, show, check and publish control sets.

    A control set has all labelled examples and marks some as representatives. The default estimator is calibrated on
    all of them; the paper's DivScore uses the representatives.
    """


@control.command()
@opt.pool
@opt.text("-o --out", "FOLDER", "Where to write the control set.", required=True)
@opt.attribute
@opt.rename
@opt.groups
@opt.column
@opt.choice(
    "--method",
    ["adaptive", "random", "proportional", "dpp"],
    "adaptive is Algorithm 2 of the paper.",
    default="adaptive",
)
@opt.number(
    "--size",
    4,
    "Number of representatives of all groups together.",
    show_default="50, or as many as the smallest group allows",
)
@click.option(
    "--alpha", default="1.0", show_default=True, help="Weight of redundancy in Algorithm 2, or 'auto'."
)
@opt.seed
@opt.flag("--hand-picked", "POOL was picked by hand, not drawn at random; results will say so.")
@click.option(
    "--origins/--no-origins",
    default=True,
    show_default=True,
    help="Save the texts, or the paths of the images, so that you can look at the representatives.",
)
@opt.verbose
@opt.encoding_options
def select(
    pool: str,
    out: str,
    method: str,
    size: int | None,
    alpha: str,
    seed: int,
    hand_picked: bool,
    origins: bool,
    encoding: Encoding,
    **reading: Any,
) -> None:
    """Mark representatives among labelled examples and save the control set.

    POOL is a table of texts, image paths or vectors with a column of group names, or a folder with one sub-folder of
    images for each group (or with a labels.csv that has the columns file and group).

    \b
    Examples:
      divscore control select labelled/ --attribute gender -o gender-control
      divscore control select labelled.parquet --attribute gender -o gender-control
    """
    refuse_url(out, "a control set")
    if is_published(out):
        raise InputError(
            f"{out} is a published control set; write to another folder, then run 'divscore control publish' again"
        )
    labelled = opt.read_pool(pool, encoding, **reading)
    labelled.hand_picked = labelled.hand_picked or hand_picked
    if size is None:
        size = min(USUAL_SIZE, len(labelled.groups) * min(labelled.counts.values()))
    try:
        weight: float | Literal["auto"] = "auto" if alpha == "auto" else float(alpha)
    except ValueError:
        raise InputError(f"--alpha takes a number or 'auto', got '{alpha}'") from None
    with progress_bar("selecting", None):
        if method == "adaptive":
            chosen = select_adaptive(labelled, size, alpha=weight, seed=seed)
        elif method == "dpp":
            chosen = select_dpp(labelled, size, seed=seed)
        else:
            chosen = select_random(labelled, size, balanced=method == "random", seed=seed)
    save_control(chosen if origins else chosen.with_origins(None), out)
    if encoding.projection is not None:
        encoding.projection.save(Path(out) / PROJECTION)
    else:
        (Path(out) / PROJECTION).unlink(missing_ok=True)
    warn(
        f"wrote {out}: {int(chosen.representative.sum())} representatives of {len(chosen)} labelled examples"
    )
    warn(
        "Look at them before use: automatic selection can favour stereotypes "
        f"(divscore control show {shlex.quote(out)} --html representatives.html)."
    )


@control.command()
@opt.control_set
@opt.attribute
@opt.rename
@opt.groups
@opt.column
@opt.flag("--examples", "List the names of the representatives.")
@opt.text("--html", "FILE", "Write a page with the representatives themselves, and why they were chosen.")
@opt.json_flag
@opt.verbose
@opt.encoding_options
def show(
    path: str, examples: bool, html: str | None, as_json: bool, encoding: Encoding, **reading: Any
) -> None:
    """Describe a control set: its groups, how separable they are, and the bound of the paper's theorem.

    C is a saved control set, or labelled examples: all that 'divscore audit --control' takes.

    \b
    Examples:
      divscore control show gender-control --html representatives.html
      divscore control show labelled/ --attribute gender
    """
    if html is not None:
        check_page(html)
    labelled = opt.read_pool(path, encoding, **reading)
    if html is not None:
        source = open_again(labelled, path, encoding, reading["attribute"], reading["column"])
        write_page(html, labelled, source)
        warn(f"wrote {html}")
    scorer = scorer_for(labelled)
    known, apart = control_facts(labelled), scorer.once(separation)
    pool, reference, marked = known.separability, known.reference, int(labelled.representative.sum())
    applies = pool.gamma > 0
    facts: dict[str, Any] = {
        "attribute": labelled.attribute,
        "labelled": len(labelled),
        "representatives": marked,
        "method": labelled.method,
        "dimension": labelled.dimension,
        "encoder": labelled.encoder,
        "similarity": labelled.similarity.name,
        "groups": {
            name: {
                "labelled": labelled.counts[name],
                "representatives": len(labelled.rows(at, representatives=True)),
                "skipped": labelled.skipped.get(name, 0),
                "gap": reference.gap[at],
                "gap_error": finite(reference.gap_error[at]),
                "noisy": reference.noisy[at],
            }
            for at, name in enumerate(labelled.groups)
        },
        "gamma": pool.gamma,
        "gamma_with_self": pool.gamma_with_self,
        "gamma_control": reference.gamma,
        "gamma_control_rest": None if labelled.representative.all() else gamma_control(labelled),
        "auc": apart.auc,
        "separability_p": apart.p_value,
        "theorem_error": theorem(marked, 1000, pool.mu_same, pool.mu_diff).additive_error
        if applies
        else None,
        "theorem_size": control_size(0.5, 1000, pool.mu_same, pool.mu_diff) if applies else None,
        "digest": labelled.digest,
    }
    if as_json:
        say(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    say(
        f"{printable(labelled.attribute)}: {len(labelled)} labelled examples, {marked} representatives "
        f"({labelled.method}), {labelled.dimension} dimensions"
    )
    skipped = ["skipped"] if labelled.skipped else []
    rows = [["group", "labelled", *skipped, "representatives", "u − l", "its error", ""]]
    for name, group in facts["groups"].items():
        note = "too noisy for DivScore" if group["noisy"] else ""
        error = "?" if group["gap_error"] is None else f"{group['gap_error']:.3f}"
        counts = [str(group[key]) for key in ("labelled", *skipped, "representatives")]
        rows.append([printable(name), *counts, f"{group['gap']:+.3f}", error, note])
    say(columns(rows))
    hardest = " and ".join(printable(labelled.groups[at]) for at in apart.pair)
    say(f"γ of the pool {pool.gamma:.3f}; γ of the control set {reference.gamma:.3f}")
    say(
        f"{hardest} can be distinguished {apart.auc:.0%} of the time without their labels (chance is 50%), "
        f"p = {apart.p_value:.2g}"
    )
    for merged in (each for each in scorer.once(clusters) if 1 < len(each) < len(labelled.groups)):
        names = [printable(labelled.groups[at]) for at in sorted(scorer.order[list(merged)])]
        say(f"{joined(names)} cannot be distinguished: audits give them one share, their sum")
    bound = facts["theorem_error"]
    if bound is None:
        say("Theorem 3.3 does not apply: γ is not positive")
    elif bound >= WHOLE_RANGE:
        say(
            "Theorem 3.3 gives no useful bound here: its worst case for 1,000 items is larger than the range of a "
            "disparity (--json has the numbers); real errors are much smaller"
        )
    else:
        say(
            f"Theorem 3.3, 1,000 items: within ±{bound:.1f} with probability 0.9 (a worst case; real errors are much "
            f"smaller). For ±0.5 it needs {facts['theorem_size']:,} representatives."
        )
    if examples:
        say("")
        for at, name in enumerate(labelled.groups):
            ids = [printable(labelled.ids[row]) for row in labelled.rows(at, representatives=True)]
            say(f"{printable(name)}, representatives: {', '.join(ids)}")


@control.command()
@opt.control_set
@opt.attribute
def check(path: str, attribute: str | None) -> None:
    """Check a control set: its files, its groups, and how well the representatives cover them.

    For a published control set, every file is compared with its digest and with the other files, and open objections
    are listed. Exit code 1 if there is a problem to fix before use.

    \b
    Example:
      divscore control check gender-control
    """
    verdict = check_published(path) if is_published(path) else None
    problems: list[str] = []
    state = "verified"
    if verdict is not None:
        labelled = verdict.control
    elif is_control(path):
        labelled = load_control(path)
    else:
        labelled, state = _read(path, attribute), "not a saved control set"
    if labelled is not None and labelled.encoder and is_outdated(labelled.encoder):
        problems.append(f"it {renew_control(labelled.encoder)}")
    if labelled is not None:
        sound = soundness(labelled)
        rows = [["group", "representatives", "of", "median distance", "farthest", "not covered"]]
        for part in sound.parts:
            counts = [str(part.representatives), str(part.labelled)]
            distances = [f"{part.median:.2f}", f"{part.farthest:.2f}", f"{part.uncovered:.0%}"]
            rows.append([printable(part.group), *counts, *distances])
        say(columns(rows))
        say(f"digest {labelled.digest[:16]}…  {state}")
        problems += sound.problems
    if verdict is not None:
        files = f"{verdict.files} files, digest of the edition {verdict.digest}"
        say(f"published: edition {verdict.edition}, {files}")
        if verdict.others:
            say(f"other files, without a digest: {printable(', '.join(verdict.others))}")
        waiting = [objection for objection in verdict.objections if objection.is_open]
        say(f"objections: {len(waiting)} open of {len(verdict.objections)}")
        for entry in waiting:
            about = "the whole set" if entry.id == WHOLE else f"'{entry.id}'"
            text = entry.objection if len(entry.objection) <= SHOWN else f"{entry.objection[: SHOWN - 1]}…"
            proposal = f" ({entry.proposal[:SHOWN]})" if entry.proposal else ""
            say(printable(f"  {entry.date}  {about}: {text}{proposal}"))
        problems += verdict.problems
    for problem in problems:
        say(f"! {printable(problem)}")
    if not problems:
        say("No problems found. Review the representatives before use.")
    sys.exit(1 if problems else 0)


@control.command()
@opt.control_set
@opt.attribute
@opt.text("-o --out", "FILE", "Write to this file instead of printing.")
@measure_option
def card(path: str, attribute: str | None, out: str | None, measuring: bool) -> None:
    """Describe a control set in Markdown, for the card of the data or model that you audited with it.

    A published control set brings its own figures of error and coverage; for others they are measured.

    \b
    Example:
      divscore control card gender-control -o card.md
    """
    control = _read(path, attribute)
    if is_published(path):
        about, figures = stated(path)
    else:
        about, figures = About(), _measured(control, measuring)
    text = card_section(Publication(control, about, soundness(control), figures))
    if out is None:
        say(text.rstrip("\n"))
        return
    write_file(out, text)
    warn(f"wrote {out}")


@control.command()
@opt.control_set
@opt.text("-o --out", "FOLDER", "Where to write; an earlier edition there is updated.")
@opt.attribute
@opt.text("--about about_file", "FILE.toml", "Facts for the card: definition, source, consent, …")
@opt.text("--template", "FILE.toml", "Write the questions for --about to fill in, and stop.")
@opt.choice(
    "--ids", CHOICES, "Ids of the examples: names without folders, numbers, or unchanged.", default="names"
)
@measure_option
@opt.flag("--replace", "Overwrite files of the earlier edition that were edited by hand.")
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
    """Write a control set as a folder for the public, who can object to it.

    The folder has the examples' vectors and groups, a dataset card, a description for machines (Croissant), a table
    for objections, a changelog and digests. Images and texts themselves are not copied, unless the ids are the texts.

    \b
    Examples:
      divscore control publish C --template about.toml
      divscore control publish C --about about.toml -o gender-control
    """
    control = _read(path, attribute)
    if template is not None:
        if Path(template).exists():
            raise FileError(f"{template} already exists; fill it in, or give another name")
        write_file(template, write_about(stated(path)[0] if is_published(path) else About(), control))
        warn(f"wrote {template}: fill it in, then pass --about {template}")
        return
    if out is None:
        raise InputError("pass -o FOLDER to publish, or --template FILE.toml to write the questions")
    refuse_url(out, "a control set")
    projection = Path(path) / PROJECTION
    published = write_folder(
        control,
        out,
        about=read_about(about_file) if about_file else None,
        measure=lambda public: _measured(public, measuring),
        ids=ids,
        projection=projection if projection.is_file() else None,
        replace=replace,
    )
    publication, objections = published.publication, published.objections
    control = publication.control  # with the ids that are public now
    say(f"edition {publication.edition} in {out}, digest {published.digest}")
    groups = ", ".join(f"{number} {printable(name)}" for name, number in control.counts.items())
    warn(f"published: {printable(control.attribute)} ({groups})")
    for problem in publication.sound.problems:
        warn(f"! {problem}")
    if published.renamed:
        kind = "numbers" if ids == "numbers" else "names without folders"
        warn(
            f"{published.renamed} of {len(control)} examples have {kind} as ids (--ids keep does not change ids)"
        )
    texts = whole_texts(control)
    if ids != "numbers" and texts:
        warn(
            f"{texts} of {len(control)} ids look like whole texts, which are now public. To avoid that, publish "
            "with --ids numbers."
        )
    elif ids != "numbers":
        warn("Check the ids: if one names a person, publish with --ids numbers.")
    if objections.renamed:
        warn(f"{OBJECTIONS}: {count(objections.renamed, 'lines')} updated to new ids.")
    if objections.removed:
        named = ", ".join(f"'{brief(name)}'" for name in objections.removed[:NAMED])
        more = " …" if len(objections.removed) > NAMED else ""
        warn(
            f"{OBJECTIONS}: {count(len(objections.removed), 'open objections')} to examples that are no longer in the "
            f"set ({named}{more}); set the status to 'accepted' or 'declined'."
        )
    if published.still_named:
        warn(
            f"Names of examples from earlier editions are still in {' and '.join(published.still_named)}. If they "
            "should not be public, remove them there and publish again."
        )
    warn(publication.vectors_warning)
    if published.carried:
        warn("Error and coverage come from the edition before: the control set is the same.")
    elif isinstance(publication.measured, NotMeasured):
        warn(publication.measured.sentences)
    if publication.about.missing:
        warn(
            f"Not stated: {', '.join(publication.about.missing)}. Readers need this: write the questions with "
            "--template FILE.toml, answer them, and publish again with --about FILE.toml."
        )


def _read(path: str, attribute: str | None) -> ControlSet:
    """A control set, or labelled examples with the default encoder."""
    with Encoding(cache=True) as encoding:
        return opt.read_pool(path, encoding, attribute=attribute)


def _measured(control: ControlSet, measuring: bool) -> Measured | NotMeasured:
    if not measuring:
        return NotMeasured("--no-measure was given")
    with progress_bar("measuring: splits of the examples", REPETITIONS) as advance:
        return measure_control(control, progress=advance)
