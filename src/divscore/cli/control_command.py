"""`divscore control`: select and show; card, check and publish are in files of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from divscore.audit.trust import control_facts
from divscore.cli.console import clean_errors, say, warn
from divscore.cli.controlcheck import check
from divscore.cli.options import encoding_options, read_control
from divscore.cli.publish import card, publish
from divscore.control.controlfile import save_control
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive, select_dpp, select_random
from divscore.control.theory import control_size, gamma_control, theorem
from divscore.errors import InputError
from divscore.estimators.separation import separation
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import PROJECTION
from divscore.publishing.edition import is_published
from divscore.report.table import columns
from divscore.sketch.scorer import scorer_for
from divscore.sources.labelled import read_pool
from divscore.text import printable

__all__ = ["control"]

USUAL_SIZE = 50
WHOLE_RANGE = 2.0  # of a disparity, from −1 to 1


@click.group()
def control() -> None:
    """Choose, show, check and publish control sets.

    A control set keeps every labelled example and marks some as representatives. The default estimator is
    calibrated on all of them; the paper's DivScore uses the representatives.
    """


for command in (card, check, publish):
    control.add_command(command)


@control.command()
@click.argument("pool", metavar="POOL")
@click.option("-o", "--out", required=True, metavar="FOLDER", help="Where to write the control set.")
@click.option("--attribute", metavar="NAME", help="Column of group names; 'gender×tone' for intersections.")
@click.option("--groups", metavar="A,B", help="Order of the groups: disparity = share(A) − share(B).")
@click.option(
    "--column", metavar="NAME", help="Column of texts, image paths or vectors, where it is not clear."
)
@click.option(
    "--method",
    type=click.Choice(["adaptive", "random", "proportional", "dpp"]),
    default="adaptive",
    show_default=True,
    help="adaptive is Algorithm 2 of the paper.",
)
@click.option(
    "--size",
    type=click.IntRange(4),
    show_default="50, or as many as the smallest group allows",
    help="Representatives, all groups together.",
)
@click.option(
    "--alpha", default="1.0", show_default=True, help="Weight of redundancy in Algorithm 2, or 'auto'."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--hand-picked",
    is_flag=True,
    help="The pool was picked by hand, not drawn at random; results will say so.",
)
@clean_errors
@encoding_options
def select(
    pool: str,
    out: str,
    attribute: str | None,
    groups: str | None,
    column: str | None,
    method: str,
    size: int | None,
    alpha: str,
    seed: int,
    hand_picked: bool,
    encoding: Encoding,
    form: str,
) -> None:
    """Mark representatives among labelled examples and save the control set.

    POOL is a table of texts, image paths or vectors with a column of group names, or a folder with a sub-folder of
    images for each group (or with a labels.csv that has the columns file and group).

    \b
    Examples:
      divscore control select labelled/ --attribute gender -o gender-control
      divscore control select labelled.parquet --attribute gender -o gender-control
    """
    if is_published(out):
        raise InputError(
            f"{out} is a published control set; write to another folder, then 'divscore control publish' it again"
        )
    order = [name.strip() for name in groups.split(",")] if groups else None
    labelled = read_control(pool, encoding, attribute=attribute, column=column, order=order, form=form)
    labelled.hand_picked = labelled.hand_picked or hand_picked
    if size is None:
        size = min(USUAL_SIZE, len(labelled.groups) * min(labelled.counts.values()))
    chosen = _choose(labelled, method, size, alpha, seed)
    save_control(chosen, out)
    if encoding.projection is not None:
        encoding.projection.save(Path(out) / PROJECTION)
    else:
        (Path(out) / PROJECTION).unlink(missing_ok=True)
    warn(
        f"wrote {out}: {int(chosen.representative.sum())} representatives of {len(chosen)} labelled examples"
    )
    warn(
        "Look at them before you use them: automatic choice can favour stereotypes (divscore control show --examples)."
    )


def _choose(pool: ControlSet, method: str, size: int, alpha: str, seed: int) -> ControlSet:
    if method == "adaptive":
        if alpha == "auto":
            return select_adaptive(pool, size, alpha="auto", seed=seed)
        try:
            weight = float(alpha)
        except ValueError:
            raise InputError(f"--alpha takes a number or 'auto', got '{alpha}'") from None
        return select_adaptive(pool, size, alpha=weight, seed=seed)
    if method == "dpp":
        return select_dpp(pool, size, seed=seed)
    return select_random(pool, size, balanced=method == "random", seed=seed)


@control.command()
@click.argument("path", metavar="C")
@click.option("--attribute", metavar="NAME", help="Column of group names, if C is a table.")
@click.option("--examples", is_flag=True, help="List the representatives by their names.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@clean_errors
def show(path: str, attribute: str | None, examples: bool, as_json: bool) -> None:
    """Describe a control set: its groups, how separable they are, what the paper's theorem says.

    \b
    Example:
      divscore control show gender-control --examples
    """
    found = read_pool(path, attribute=attribute)
    facts = _facts(found)
    if as_json:
        say(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    marked = f"{facts['representatives']} representatives ({facts['method']})"
    say(
        f"{printable(facts['attribute'])}: {facts['labelled']} labelled examples, {marked}, "
        f"{facts['dimension']} dimensions"
    )
    rows = [["group", "labelled", "representatives", "u − l", "its error", ""]]
    for name, group in facts["groups"].items():
        note = "noise: DivScore cannot use it" if group["noisy"] else ""
        error = "?" if group["gap_error"] is None else f"{group['gap_error']:.3f}"
        rows.append(
            [
                printable(name),
                str(group["labelled"]),
                str(group["representatives"]),
                f"{group['gap']:+.3f}",
                error,
                note,
            ]
        )
    say(columns(rows))
    say(f"γ of the pool {facts['gamma']:.3f}; γ of the control set {facts['gamma_control']:.3f}")
    told = facts["auc"]
    say(
        f"told apart {told:.0%} of the time without their labels (50% is chance), p = {facts['separability_p']:.2g}"
    )
    say(_theorem(facts))
    if examples:
        say("")
        for at, name in enumerate(found.groups):
            ids = [printable(found.ids[row]) for row in found.rows(at, representatives=True)]
            say(f"{printable(name)}, representatives: {', '.join(ids)}")


def _theorem(facts: dict[str, Any]) -> str:
    bound = facts["theorem_error"]
    if bound is None:
        return "Theorem 3.3 does not apply: γ is not positive"
    if bound >= WHOLE_RANGE:
        return (
            "Theorem 3.3 promises nothing here: its worst case for 1,000 items exceeds the whole range of a disparity "
            "(--json has the numbers); real errors are far smaller"
        )
    return (
        f"Theorem 3.3, 1,000 items: within ±{bound:.1f} with probability 0.9 (a worst case; real errors are far "
        f"smaller). For ±0.5 it would ask for {facts['theorem_size']:,} representatives."
    )


def _facts(found: ControlSet) -> dict[str, Any]:
    facts, apart = control_facts(found), separation(scorer_for(found))
    spread = facts.separability
    bound = theorem(int(found.representative.sum()), 1000, spread.mu_same, spread.mu_diff)
    usable = spread.gamma > 0
    groups = {
        name: {
            "labelled": found.counts[name],
            "representatives": len(found.rows(at, representatives=True)),
            "gap": facts.reference.gap[at],
            "gap_error": facts.reference.gap_error[at]
            if facts.reference.gap_error[at] < float("inf")
            else None,
            "noisy": facts.reference.noisy[at],
        }
        for at, name in enumerate(found.groups)
    }
    rest = None if found.representative.all() else gamma_control(found)
    return {
        "attribute": found.attribute,
        "labelled": len(found),
        "representatives": int(found.representative.sum()),
        "method": found.method,
        "dimension": found.dimension,
        "encoder": found.encoder,
        "similarity": found.similarity.name,
        "groups": groups,
        "gamma": spread.gamma,
        "gamma_with_self": spread.gamma_with_self,
        "gamma_control": facts.gamma_control,
        "gamma_control_rest": rest,
        "auc": apart.auc,
        "separability_p": apart.p_value,
        "theorem_error": bound.additive_error if usable else None,
        "theorem_size": control_size(0.5, 1000, spread.mu_same, spread.mu_diff) if usable else None,
        "digest": found.digest,
    }
