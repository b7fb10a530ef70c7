"""How far to trust a result: the checks, one word for them, and warnings in plain words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from divscore.audit.planning import SIMPLE, WITH, plan_labels
from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.control.labelledsample import LabelledSample
from divscore.control.similarity import FloatArray
from divscore.control.theory import Reference, Separability, separability, theorem
from divscore.estimators.checks import ALARM, GroupMoments, clusters, group_moments, separation
from divscore.estimators.interval import Estimate, Interval, bounds
from divscore.estimators.likelihood import likelihood
from divscore.estimators.shift import Difference
from divscore.sketch.sample import TOP
from divscore.sketch.scorer import Scorer
from divscore.sketch.sketch import Sketch
from divscore.text import count, finite, joined, p_value, percent, printable

SAYS_NOTHING = 0.6  # of all that is possible: a number that may be anywhere in such a range is unknown
SETTLED, FEWEST_LABELS = (
    0.15,
    30,
)  # width of the disparity's interval that settles a doubt, and labels at least
FEW_ITEMS = 20
FEW_LABELS = 10
UNEVEN_P = 0.05
# Copies of one item that matter, a judgement: the more of a set is one item, the more a result tells about that item.
# With a fifth as the limit, 10 copies of a portrait in a set of 60 told its gender in 40 of 40 cases.
FEW_COPIES, FREQUENT, DOMINANT = 5, 0.05, 0.1
SURE = 3.0  # standard errors, from which on an estimated number of copies is more than chance
SKIPPED = {
    "zero": "with a vector of zeros",
    "nonfinite": "with NaN or infinite numbers",
    "unreadable": "unreadable",
    "empty": "with nothing to encode, such as a face",
}
# How the warnings start that come from tests at the level ALARM.
DIFFERS = "these items look different from your labelled examples"
ALLOWED = " The interval allows for this."
NO_MIXTURE = "the scores of these items do not look like a mixture"
TOO_WIDE = "cannot tell: the interval is so wide that it says nothing"
DISAGREE = (
    "the labelled sample contradicts the control set, which does not fit this collection; use 'rectified'"
)
FEW_LABELLED = 10  # with fewer labelled items of the collection, their disparity says nothing
REPEATED = 0.05  # of the labelled items: so many copies of one another are no chance


@dataclass(frozen=True)
class ControlFacts:
    """What is known of a control set before any collection."""

    separability: Separability
    reference: Reference
    moments: GroupMoments


@dataclass(frozen=True)
class Diagnostics:
    """The checks of one collection; METHOD in the documentation explains each."""

    separability_p: float
    auc: float
    relevance: float
    relevance_p: float
    score_fit: float
    score_fit_p: float
    shift: float
    skipped_shift: float
    theorem_error: float

    @classmethod
    def without_control(cls, sketch: Sketch, value: float) -> Diagnostics:
        """What is known if a result does not depend on a control set: only what skipped items could change."""
        unknown = dict.fromkeys((field.name for field in fields(cls)), math.nan)
        return cls(**{**unknown, "skipped_shift": skipped_shift(sketch, value)})

    def to_dict(self) -> dict[str, float | None]:
        """Plain numbers; infinite and unknown ones are None."""
        return {name: finite(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Copies:
    """Items that share their vector with another: how many, and how often the most frequent one occurs.

    Where a collection is larger than the sample of its sketch, both are `estimated` from the sample.
    """

    items: int = 0
    largest: int = 0
    estimated: bool = False

    @classmethod
    def of(cls, sketch: Sketch) -> Copies:
        """Count the copies in a sketch."""
        sample, copies = sketch.sample, sketch.sample.copies
        repeated, largest = int(copies[copies > 1].sum()), int(copies.max(initial=0))
        largest = largest if repeated else 0
        if sample.complete:
            return cls(repeated, largest)
        # Copies of one item are in the sample together or not at all, so many copies of one are mostly missed there.
        # But the sample also tells how many different items there are, within 1/√k: the others are copies.
        distinct = len(sample) * (float(TOP) / max(sample.limit, 1))
        more = sketch.count - distinct
        if more < SURE * distinct / math.sqrt(max(len(sample), 1)):
            more = 0.0
        # The most frequent item counts once: it is a bad guide to the items outside the sample.
        others = (repeated - largest) * (sketch.count - largest) / max(int(copies.sum()) - largest, 1)
        return cls(max(round(largest + others), round(more)), largest, estimated=True)

    def often(self, count: int) -> float:
        """The share of the collection that is one item; 0 for a few copies."""
        return self.largest / count if self.largest >= FEW_COPIES else 0.0

    def sentence(self, count: int) -> str:
        """What a person should know about them, if anything."""
        if not self.items:
            return ""
        about = "about " if self.estimated else ""
        if self.items == self.largest:
            return f"{about}{self.items:,} of {count:,} items are copies of one"
        sentence = f"{about}{self.items:,} of {count:,} items are copies of another item"
        if self.largest < 2:
            return sentence
        most = "at least " if self.estimated else ""
        return f"{sentence}; the most frequent one occurs {most}{self.largest:,} times"


def hardest_pair(sketch: Sketch) -> tuple[str, str]:
    """The two groups that are hardest to distinguish."""
    first, second = sketch.scorer.once(separation).pair
    return sketch.control.groups[first], sketch.control.groups[second]


def _labelled_hashes(scorer: Scorer) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        rows = np.asarray(scorer.control.vectors, dtype=np.float32)
    return scorer.row_hash.mixed(rows[:, scorer.row_hash.words])


def labelled_inside(sketch: Sketch) -> int:
    """How many labelled examples are also in the collection, by their vectors; estimated for a large collection."""
    hashes, sample = sketch.scorer.once(_labelled_hashes), sketch.sample
    known = hashes[hashes < np.uint64(sample.limit)] if not sample.complete else hashes
    inside = int(np.isin(known, sample.hash).sum())
    return inside if sample.complete or not inside else round(inside / len(known) * len(hashes))


@one_thread
def control_facts(control: ControlSet) -> ControlFacts:
    """Compute the facts of a control set, once."""
    return control.once(_facts)


def _facts(control: ControlSet) -> ControlFacts:
    return ControlFacts(separability(control), Reference.of(control), control.once(group_moments))


@dataclass(frozen=True)
class Coverage:
    """How well the representatives of a group cover its labelled examples.

    `median` and `farthest` are cosine distances of a labelled example to its nearest representative of the same group.
    `uncovered` is the share of the group's examples that are farther from every representative than nine in ten
    examples are from their nearest neighbour in the group.
    """

    group: str
    representatives: int
    labelled: int
    median: float
    farthest: float
    uncovered: float


@one_thread
def coverage(control: ControlSet) -> tuple[Coverage, ...]:
    """Look for examples that no representative resembles (the paper's warning about stereotypes)."""
    groups = []
    for group, name in enumerate(control.groups):
        rows = control.rows(group)
        nearest, far = _nearest(control, rows)
        chosen = control.representative[rows]
        rest = nearest[~chosen]
        groups.append(
            Coverage(
                name,
                int(chosen.sum()),
                len(rows),
                float(np.median(rest)) if rest.size else 0.0,
                float(nearest.max()),
                float(far.mean()),
            )
        )
    return tuple(groups)


@one_thread
def uncovered_rows(control: ControlSet) -> NDArray[np.intp]:
    """Rows of the labelled examples that `coverage` counts as uncovered."""
    every = (control.rows(group) for group in range(len(control.groups)))
    return np.sort(np.concatenate([rows[_nearest(control, rows)[1]] for rows in every]))


def _nearest(control: ControlSet, rows: NDArray[np.intp]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Distance of each example of a group to its nearest representative, and whether that is unusually far."""
    units = control.units[rows]
    distance = 1.0 - units @ units.T
    np.fill_diagonal(distance, np.inf)  # an example is not its own neighbour
    usual = float(np.quantile(distance.min(axis=1), 0.9))
    chosen = control.representative[rows]
    nearest = np.where(chosen, 0.0, distance[:, chosen].min(axis=1))
    return nearest, nearest > usual


@one_thread
def uncovered_by_chance(control: ControlSet, draws: int = 5) -> dict[str, float]:
    """Share of each group that as many random representatives leave uncovered: what to compare `coverage` with."""
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


def diagnose(sketch: Sketch, value: float, difference: Difference) -> Diagnostics:
    """All checks of one collection with the estimated disparity `value`."""
    facts, apart = control_facts(sketch.control), sketch.scorer.once(separation)
    size = int(sketch.control.representative.sum())
    bound = theorem(size, sketch.count, facts.separability.mu_same, facts.separability.mu_diff)
    return Diagnostics(
        separability_p=apart.p_value,
        auc=apart.auc,
        relevance=difference.relevance.statistic,
        relevance_p=difference.relevance.p_value,
        score_fit=difference.score_fit.statistic,
        score_fit_p=difference.score_fit.p_value,
        shift=difference.shift,
        skipped_shift=skipped_shift(sketch, value),
        theorem_error=bound.additive_error,
    )


def skipped_shift(sketch: Sketch, value: float) -> float:
    """How far a disparity could move if all skipped items belonged to one group: towards an end of its range."""
    skipped = sum(sketch.skipped.values())
    reach = 1.0 + abs(value) if math.isfinite(value) else 2.0
    return skipped * reach / (sketch.count + skipped)


def is_set(sketch: Sketch, copies: Copies) -> bool:
    """Whether a result would be about a set: enough items, and not mostly copies of one."""
    return sketch.count >= FEW_ITEMS and copies.often(sketch.count) < DOMINANT and not sketch.individual


def says_nothing(interval: Interval, groups: int) -> bool:
    """Whether an interval of the disparity leaves nearly everything possible."""
    low, high = bounds(groups)
    return interval.width > SAYS_NOTHING * (high - low)


def too_wide(estimate: Estimate) -> bool:
    """Whether an estimate says nothing; if groups are merged, the disparity is unknown anyway, and their sums count."""
    if not estimate.clusters:
        return says_nothing(estimate.interval, len(estimate.shares))
    return max(interval.width for interval in estimate.share_intervals) > SAYS_NOTHING


def trust_of(sketch: Sketch, checks: Diagnostics, copies: Copies, honest: Estimate) -> str:
    """One word: good, caution or poor; `honest` is the estimate that allows for a difference."""
    sampled = is_set(sketch, copies) and not (sketch.few_distinct or sketch.thinned)
    if len(sketch.scorer.once(clusters)) < 2 or not sampled or too_wide(honest):
        return "poor"
    odd = min(checks.relevance_p, checks.score_fit_p) < ALARM or copies.often(sketch.count) >= FREQUENT
    return "caution" if odd or honest.clusters else "good"


def enough_labels(sketch: Sketch) -> int:
    """How many items of a collection to label, to settle what the control set leaves open; in tens."""
    outlook = plan_labels(sketch.count, sketch=sketch, alone=False)
    labels = outlook.labels(SETTLED, WITH if WITH in outlook.variances else SIMPLE)
    return min(max(10 * math.ceil(labels / 10), FEWEST_LABELS), sketch.count)


def about_items(sketch: Sketch, copies: Copies) -> list[str]:
    """Warn if a result would be about single items."""
    often, warnings = copies.often(sketch.count), []
    if sketch.count < FEW_ITEMS:
        warnings.append(
            f"cannot tell: {count(sketch.count, 'items')} {'is' if sketch.count == 1 else 'are'} too few; at least "
            f"{FEW_ITEMS} are needed"
        )
    if not sketch.thinned and (sketch.few_distinct or (sketch.individual and sketch.count >= FEW_ITEMS)):
        warnings.append("cannot tell: the collection consists of many copies of very few different items")
    elif often >= DOMINANT:
        warnings.append(
            f"cannot tell: {copies.sentence(sketch.count)}, so a result would say more about that item than about the "
            "collection; remove the copies"
        )
    return warnings


def warnings_for(
    sketch: Sketch,
    checks: Diagnostics,
    copies: Copies,
    honest: Estimate,
    skipped: list[str],
    *,
    allowed: bool = True,
) -> list[str]:
    """What may be wrong, in plain words, most serious first.

    `honest` is the estimate that allows for a difference, `allowed` whether the result has it; `skipped` is what
    `about_skipped` returned.
    """
    control, warnings = sketch.control, []
    labels = enough_labels(sketch)
    settle = (
        f" To settle it, label {labels} random items: 'divscore sample COLLECTION --size {labels} -o to-label.csv', "
        "then 'divscore audit … --labelled-sample to-label.csv'"
    )
    hardest = [f"'{printable(name)}'" for name in hardest_pair(sketch)]
    sets = sketch.scorer.once(clusters)
    if len(sets) < 2 or (len(sets) < sketch.scorer.groups and not allowed):
        warnings.append(
            f"cannot tell: the {len(control)} labelled examples do not separate {joined(hardest)} "
            f"({percent(checks.auc)} of pairs are ranked correctly; chance is 50%). Use another encoder, or label more "
            "examples"
        )
    if sketch.thinned:
        warnings.append(
            f"cannot tell: many items were removed from this sketch, and of the {sketch.count:,} that remain only "
            f"{int(sketch.sample.copies.sum()):,} are in the sample that the interval is based on; sketch the "
            "remaining items again"
        )
    warnings += about_items(sketch, copies)
    answerable = not warnings
    wide = answerable and too_wide(honest)
    if wide:
        warnings.append(TOO_WIDE)
    remark = ALLOWED if allowed and not wide else ""
    if checks.relevance_p < ALARM:
        warnings.append(
            f"{DIFFERS} ({checks.relevance:.1f} times the expected distance, {p_value(checks.relevance_p)}).{remark}"
        )
    elif checks.score_fit_p < ALARM:
        warnings.append(
            f"{NO_MIXTURE} of the labelled groups (misfit {checks.score_fit:.1f}, {p_value(checks.score_fit_p)}). Some "
            f"may be copies, or of no group.{remark}"
        )
    if answerable and (wide or min(checks.relevance_p, checks.score_fit_p) < ALARM):
        warnings[-1] = warnings[-1].rstrip(".") + "." + settle
    if honest.clusters and allowed:
        together = [
            joined([f"'{printable(control.groups[at])}'" for at in each])
            for each in honest.clusters
            if len(each) > 1
        ]
        warnings.append(
            f"the {len(control)} labelled examples do not separate {'; nor '.join(together)}. These have one share, "
            "their sum. To get the share of each, label more examples of these groups, or use another encoder"
        )
    warnings += skipped
    if FREQUENT <= copies.often(sketch.count) < DOMINANT:
        warnings.append(f"{copies.sentence(sketch.count)}; each copy counts, and the interval ignores that")
    few = [f"{n} '{printable(name)}'" for name, n in control.counts.items() if n < FEW_LABELS]
    if few:
        warnings.append(f"the labelled examples include only {joined(few)}: expect a rough calibration")
    left_out = {name: control.skipped.get(name, 0) for name in control.groups}
    if any(left_out.values()):
        from scipy import stats

        # Are all groups' examples skipped equally often? An exact test, or χ² for many groups.
        test = stats.fisher_exact if len(control.groups) == 2 else stats.chi2_contingency
        if test([list(left_out.values()), list(control.counts.values())]).pvalue < UNEVEN_P:
            by_number = sorted(left_out.items(), key=lambda item: -item[1])
            rates = [
                f"{percent(n / (n + control.counts[name]))} of '{printable(name)}'" for name, n in by_number
            ]
            warnings.append(
                f"the encoder skipped labelled examples of some groups more often than of others ({', '.join(rates)}): "
                "the shares are those among items that it can encode"
            )
    if control.hand_picked:
        warnings.append(
            "the labelled examples were picked by hand, but the estimate assumes a random sample: expect a bias"
        )
    return warnings


def about_skipped(sketch: Sketch, checks: Diagnostics, half_width: float) -> list[str]:
    """Warn if skipped items could change the result: items are rarely skipped at random."""
    if checks.skipped_shift <= half_width or not checks.skipped_shift:
        return []
    total = sum(sketch.skipped.values())
    kinds = ", ".join(f"{n:,} {SKIPPED[kind]}" for kind, n in sketch.skipped.items() if n)
    return [
        f"{total:,} of {sketch.count + total:,} items were skipped ({kinds}). If all belonged to one "
        f"group, the disparity would change by up to {checks.skipped_shift:.2f}, more than the interval allows for"
    ]


# Labels of the collection itself


def about_labels(sample: LabelledSample, estimate: Estimate) -> list[str]:
    """Why the labels say nothing about the collection, if so."""
    labelled = int(sample.labelled.sum())
    if labelled < FEW_LABELLED:
        return [
            f"cannot tell: {count(labelled, 'items')} of the collection {'has a' if labelled == 1 else 'have'} label"
            f"{'' if labelled == 1 else 's'}; at least {FEW_LABELLED} are needed"
        ]
    if max(interval.width for interval in estimate.share_intervals) <= SAYS_NOTHING:
        return []
    missing = len(sample) - labelled
    more = (
        f"label the other {missing:,} items of the sample"
        if missing
        else "label more items of the collection"
    )
    return [f"cannot tell: with {labelled:,} labels nearly every composition is possible; {more}"]


def about_sample(sample: LabelledSample, sketch: Sketch, copies: Copies) -> list[str]:
    """What a reader should know about the labels of a collection."""
    warnings, drawn = [], len(sample) + sample.missing
    missing = drawn - int(sample.labelled.sum())
    if missing:
        warnings.append(
            f"{missing:,} of {drawn:,} sampled items {'has' if missing == 1 else 'have'} no label. The interval allows "
            "for all of them being in one group; label them to make it narrower"
        )
    if sample.batches > 1:
        warnings.append(
            f"labels were added {'' if sample.batches == 2 else f'{sample.batches - 1} times '}after a first batch. "
            "The interval is for a number of labels that is fixed beforehand: if you added labels until the result "
            "looked good, it is too narrow"
        )
    repeated = len(sample) - len(np.unique(sample.vectors, axis=0))
    if repeated > REPEATED * len(sample) and repeated / len(sample) > 3 * copies.items / sketch.count:
        warnings.append(
            f"{repeated:,} of {len(sample):,} labelled items repeat another, but few items of the collection do: each "
            "item should be labelled once, or the interval is too narrow"
        )
    total = sketch.count + sum(sketch.skipped.values())
    if len(sample) > total:
        warnings.append(
            f"{len(sample)} labelled items for a collection of {total}: is it the same collection?"
        )
    elif has_changed(sample, sketch):
        warnings.append(
            f"the collection had {sample.drawn_from:,} items when the sample was drawn, and has {total:,} now. Items "
            "that were added later had no chance of being drawn; draw and label some of them as well"
        )
    return warnings


def has_changed(sample: LabelledSample, sketch: Sketch) -> bool:
    """Whether the collection has another size than when the sample was drawn; skipped items may count or not."""
    total = sketch.count + sum(sketch.skipped.values())
    return sample.drawn_from is not None and not sketch.count <= sample.drawn_from <= total


def disagreement(sketch: Sketch, control: ControlSet, corrected: Estimate, confidence: float) -> list[str]:
    """Warn if the labels contradict the control set: both estimates are of the same collection."""
    alone = sketch
    if sketch.control.digest != control.digest:
        # The control set's own estimate, from the items that the sketch keeps.
        alone = Sketch(control, seed=sketch.seed)
        units, copies = sketch.units()
        alone.add(np.repeat(units, copies, axis=0))
    without = likelihood(alone, confidence=confidence)
    a, b = without.interval, corrected.interval
    if not math.isfinite(without.disparity) or (a.high >= b.low and b.high >= a.low):
        return []
    one, other = (
        f"{result.disparity:+.2f} ({result.interval.low:+.2f} to {result.interval.high:+.2f})"
        for result in (corrected, without)
    )
    return [
        f"the disparity is {one} with the labelled sample, but {other} without it ('likelihood'): the control set does "
        "not fit this collection; use 'rectified'"
    ]
