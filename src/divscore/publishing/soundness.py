"""What is sound about a control set and what should be mended before use."""

from __future__ import annotations

from dataclasses import dataclass

from divscore.audit.trust import Coverage, control_facts, coverage, left_out_by_chance
from divscore.control.controlset import ControlSet
from divscore.control.theory import gamma_control
from divscore.estimators.separation import SEPARABLE_P, separation
from divscore.sketch.scorer import scorer_for
from divscore.text import printable

__all__ = ["Soundness", "soundness"]

FEW_LABELS = 10
FAR_MORE = 0.1  # left out beyond what chance leaves out


@dataclass(frozen=True)
class Soundness:
    """γ and γ^(T) of the paper, how well the groups can be told apart, and what is wrong.

    `gamma_control` is measured on the representatives themselves, `gamma_rest` on the other examples.
    """

    gamma: float
    gamma_control: float
    gamma_rest: float | None
    auc: float
    separability_p: float
    parts: tuple[Coverage, ...]
    problems: tuple[str, ...]


def soundness(control: ControlSet) -> Soundness:
    """Measure."""
    facts, apart = control_facts(control), separation(scorer_for(control))
    problems = []
    if apart.p_value > SEPARABLE_P:
        problems.append(
            f"the groups cannot be told apart (p = {apart.p_value:.2g}); every audit will say 'cannot tell'"
        )
    problems += [
        f"only {n} labelled examples of '{printable(name)}'; at least {FEW_LABELS} are wanted"
        for name, n in control.counts.items()
        if n < FEW_LABELS
    ]
    usual, parts = left_out_by_chance(control), coverage(control)
    problems += [
        f"{part.uncovered:.0%} of '{printable(part.group)}' lies far from every representative, where random "
        f"ones leave out {usual[part.group]:.0%}: look at those examples, and add representatives by hand "
        "or choose with a larger --alpha"
        for part in parts
        if part.uncovered > usual[part.group] + FAR_MORE
    ]
    return Soundness(
        facts.separability.gamma,
        facts.gamma_control,
        _gamma_rest(control),
        apart.auc,
        apart.p_value,
        parts,
        tuple(problems),
    )


def _gamma_rest(control: ControlSet) -> float | None:
    """γ^(T) on the examples that are not representatives, where every group has some."""
    rest = control.labels[~control.representative]
    if len(set(rest.tolist())) < len(control.groups):
        return None
    return gamma_control(control)
