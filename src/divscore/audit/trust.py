"""How far to trust a result: the numbers behind one word, and the warnings in plain words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.control.divscore import Reference, within_between
from divscore.control.similarity import Similarity
from divscore.control.theory import Separability, gamma_control_own, separability, theorem
from divscore.estimators.checks import (
    GroupMoments,
    group_moments,
    relevance,
    score_fit,
    separable,
    separation,
)
from divscore.estimators.mixture import mixture_fit
from divscore.sketch.sketch import Sketch
from divscore.text import printable

__all__ = [
    "ControlFacts",
    "Coverage",
    "Diagnostics",
    "about_skipped",
    "control_facts",
    "coverage",
    "diagnose",
    "left_out_by_chance",
    "trust_of",
    "warnings_for",
]

ALARM = 0.01
MISFIT = 1.6  # a score fit beyond this goes with real errors; shifts that did no harm stayed below it
FEW_ITEMS = 20
FEW_LABELS = 10
UNEVEN_P = 0.05
# How the warnings begin that come from tests at the level ALARM.
DIFFERS = "the collection differs from the control set"
NO_MIXTURE = "cannot tell: the collection's scores do not look like any mixture"
NOT_QUITE = "the collection's scores are not quite those of a mixture"


@dataclass(frozen=True)
class ControlFacts:
    """What is known of a control set before any collection is seen."""

    separability: Separability
    gamma_control: float
    reference: Reference
    moments: GroupMoments


@dataclass(frozen=True)
class Diagnostics:
    """The checks of one collection; see METHOD in the documentation for what each means."""

    separability_p: float
    auc: float
    relevance: float
    relevance_p: float
    score_fit: float
    score_fit_p: float
    skipped_shift: float
    theorem_error: float

    @property
    def misfit(self) -> bool:
        """Whether the scores fit no mixture of the groups: beyond chance, and by an amount that matters."""
        return self.score_fit_p < ALARM and self.score_fit > MISFIT

    def to_dict(self) -> dict[str, float | None]:
        """Plain numbers; what is infinite or unknown is None."""
        return {k: float(v) if math.isfinite(v) else None for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Coverage:
    """Which part of the labelled pool the representatives leave out, by group.

    `farthest` is the largest cosine distance of a labelled example to its nearest representative of the
    same group; `uncovered` the share of the group's examples that lie farther from every representative than
    nine in ten of the pool's examples lie from their nearest neighbour in the group.
    """

    group: str
    representatives: int
    labelled: int
    median: float
    farthest: float
    uncovered: float


_FACTS: dict[str, tuple[Similarity, ControlFacts]] = {}


def control_facts(control: ControlSet) -> ControlFacts:
    """Compute, or return what was computed before for the same control set."""
    known = _FACTS.get(control.digest)
    # A digest knows a similarity by its name only, and all lambdas share one.
    if known is None or known[0].function is not control.similarity.function:
        if len(_FACTS) >= 8:
            _FACTS.pop(next(iter(_FACTS)))
        facts = ControlFacts(
            separability(control), gamma_control_own(control), within_between(control), group_moments(control)
        )
        known = _FACTS[control.digest] = control.similarity, facts
    return known[1]


def coverage(control: ControlSet) -> tuple[Coverage, ...]:
    """Look for examples that the representatives do not stand for (the paper's warning of stereotypes)."""
    found = []
    for group, name in enumerate(control.groups):
        rows = control.rows(group)
        units = control.units[rows]
        nearness = 1.0 - units @ units.T
        np.fill_diagonal(nearness, np.inf)
        usual = float(np.quantile(nearness.min(axis=1), 0.9))
        chosen = control.representative[rows]
        distance = np.where(chosen, 0.0, nearness[:, chosen].min(axis=1))
        rest = distance[~chosen]
        found.append(
            Coverage(
                name,
                int(chosen.sum()),
                len(rows),
                float(np.median(rest)) if rest.size else 0.0,
                float(distance.max()),
                float((distance > usual).mean()),
            )
        )
    return tuple(found)


def left_out_by_chance(control: ControlSet, draws: int = 5) -> dict[str, float]:
    """Share of each group that as many representatives, drawn at random, leave out: the yardstick of `coverage`."""
    if control.representative.all():
        return dict.fromkeys(control.groups, 0.0)
    rng = np.random.default_rng(0)
    total = np.zeros(len(control.groups))
    for _ in range(draws):
        rows: list[int] = []
        for group in range(len(control.groups)):
            marked = len(control.rows(group, representatives=True))
            rows.extend(rng.choice(control.rows(group), marked, replace=False).tolist())
        total += [part.uncovered for part in coverage(control.with_representatives(rows))]
    return dict(zip(control.groups, (total / draws).tolist(), strict=True))


def diagnose(sketch: Sketch, value: float) -> Diagnostics:
    """Run every check on one collection, whose disparity was estimated as `value`."""
    control = sketch.control
    facts = control_facts(control)
    found = mixture_fit(sketch)
    fit = relevance(sketch.mean, sketch.count, facts.moments, found.named)
    apart = separation(sketch.scorer)
    scores = score_fit(sketch, found)
    skipped = sum(sketch.skipped.values())
    reach = 1.0 + abs(value) if math.isfinite(value) else 2.0
    bound = theorem(
        int(control.representative.sum()),
        sketch.count,
        facts.separability.mu_same,
        facts.separability.mu_diff,
    )
    return Diagnostics(
        separability_p=apart.p_value,
        auc=apart.auc,
        relevance=fit.statistic,
        relevance_p=fit.p_value,
        score_fit=scores.statistic,
        score_fit_p=scores.p_value,
        skipped_shift=skipped * reach / (sketch.count + skipped),
        theorem_error=bound.additive_error,
    )


def trust_of(sketch: Sketch, found: Diagnostics) -> str:
    """One word: good, caution or poor."""
    sampled = not (sketch.few_distinct or sketch.thinned or sketch.individual)
    told = separable(sketch.scorer) and sampled
    if not told or found.misfit or sketch.count < FEW_ITEMS:
        return "poor"
    return "caution" if min(found.relevance_p, found.score_fit_p) < ALARM else "good"


def warnings_for(sketch: Sketch, found: Diagnostics, half_width: float) -> list[str]:
    """Say in plain words what may be wrong, the gravest first."""
    return [
        *_about_fit(sketch, found),
        *about_skipped(sketch, found, half_width),
        *_about_control(sketch.control),
    ]


def _about_fit(sketch: Sketch, found: Diagnostics) -> list[str]:
    control, said = sketch.control, []
    if not separable(sketch.scorer):
        said.append(
            f"cannot tell: the {len(control)} labelled examples do not separate the groups of "
            f"{printable(control.attribute)} (they are told apart {found.auc:.0%} of the time, 50% is chance); "
            "use vectors from a better-suited encoder, or label more examples"
        )
    if sketch.count < FEW_ITEMS:
        said.append(f"cannot tell: {sketch.count} items are too few; at least {FEW_ITEMS} are needed")
    if sketch.thinned:
        said.append(
            f"cannot tell: many items were taken out of this sketch, and of the {sketch.count:,} that are left only "
            f"{sketch.replicate_cells.items:,} are in the sample that the interval rests on; make the sketch anew from "
            "the items that are left"
        )
    elif sketch.few_distinct or (sketch.individual and sketch.count >= FEW_ITEMS):
        said.append("cannot tell: the collection consists of many copies of very few different items")
    if found.misfit:
        said.append(
            f"{NO_MIXTURE} of the labelled groups "
            f"(p = {found.score_fit_p:.3f}); the control set does not stand for this collection. "
            "Label about 50 random items of the collection itself and use estimator 'rectified', "
            "or draw the control set from the same kind of source"
        )
    elif found.relevance_p < ALARM:
        said.append(
            f"{DIFFERS} in more than its composition "
            f"({found.relevance:.1f} times the expected distance, p {_small(found.relevance_p)}): another "
            "source, time or place, perhaps. The estimate holds if that difference is the same for all groups; "
            "30 to 50 labelled random items of the collection ('rectified') would settle it"
        )
    elif found.score_fit_p < ALARM:
        said.append(
            f"{NOT_QUITE} of the labelled groups (misfit "
            f"{found.score_fit:.1f}, p {_small(found.score_fit_p)}; beyond {MISFIT} it would be 'cannot tell'): "
            "perhaps items of no group, or copies; 30 to 50 labelled random items of the collection ('rectified') "
            "would settle it"
        )
    return said


def about_skipped(sketch: Sketch, found: Diagnostics, half_width: float) -> list[str]:
    """Items that were skipped are not missing at random; say so when they could change the answer."""
    if found.skipped_shift <= half_width or not found.skipped_shift:
        return []
    total = sum(sketch.skipped.values())
    kinds = ", ".join(f"{n} {kind}" for kind, n in sketch.skipped.items() if n)
    return [
        f"{total} of {sketch.count + total} items were skipped ({kinds}); if all were of one group the "
        f"disparity would move by up to {found.skipped_shift:.2f}, more than the interval allows for"
    ]


def _about_control(control: ControlSet) -> list[str]:
    said = []
    few = [f"{n} '{printable(name)}'" for name, n in control.counts.items() if n < FEW_LABELS]
    if few:
        said.append(f"only {' and '.join(few)} among the labelled examples: expect a rough calibration")
    if uneven_left_out(control) < UNEVEN_P:
        rates = ", ".join(
            f"{n / (n + control.counts[name]):.0%} of '{printable(name)}'"
            for name, n in sorted(
                ((name, control.left_out.get(name, 0)) for name in control.groups), key=lambda each: -each[1]
            )
        )
        said.append(
            f"labelled examples could not be encoded in unequal parts ({rates}): the encoder overlooks some groups "
            "more often, and shares are those among the items that it does not overlook"
        )
    if control.hand_picked:
        said.append(
            "the labelled examples were picked by hand; the estimate is calibrated on them as if they were "
            "drawn at random, so expect a bias"
        )
    return said


def uneven_left_out(control: ControlSet) -> float:
    """P-value for labelled examples being lost to the encoder equally often in all groups (exact or χ² test)."""
    if not control.left_out:
        return 1.0
    from scipy import stats

    table = [
        [control.left_out.get(name, 0) for name in control.groups],
        [control.counts[name] for name in control.groups],
    ]
    test = stats.fisher_exact if len(control.groups) == 2 else stats.chi2_contingency
    return float(test(table).pvalue)


def _small(p: float) -> str:
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"
