"""Advice: what a comparison says to do, how far it goes, and what it does not show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.paper.comparison import Compared, Comparison
from divscore.paper.methods import CONFIDENCE
from divscore.paper.summary import Summary

__all__ = ["advice", "clearly_low"]

TOO_FAR = 0.3  # a mean absolute error beyond which no method is advised
HELPS = 1.1  # how many times the error with fewer labels is that with more, where more would help
# Evidence is thin below these. Of fewer splits than ten even the standard error is off by a quarter or more; from fewer
# than a hundred held-out examples the collections of a split are much the same items; and what a method gets wrong in
# fewer than fifty items is mostly chance, which says little of a real collection.
FEW_SPLITS, FEW_HELD_OUT, FEW_ITEMS = 10, 100, 50
SURE = 0.05  # at twenty splits coverage that is as promised is called low in some 2 % of comparisons


def advice(found: Comparison) -> str:
    """What to do, in a few sentences; then what speaks against relying on it, if anything does."""
    most = max(found.setup.labels)
    last = [row for row in found.rows if row.labels == most]
    best = min(last, key=lambda row: row.summary.mae)
    ours = next(row for row in last if row.method == "likelihood")
    # With an interval it is worth more than a rival that is ahead by chance.
    close = ours.summary.mae <= best.summary.mae + (best.summary.mae_se or 0.0)
    chosen = ours if close and _useful(ours.summary) else best
    if not _useful(chosen.summary):
        said = (
            f"None of these methods tells the groups of {found.attribute} apart with {most} labels (the best, "
            f"{best.title}, is off by {best.summary.mae:.2f} on average{_unsure(best.summary)}): try vectors of "
            "another encoder, or label more."
        )
        return f"{said}{_thin(found)}"
    told = chosen.summary
    said = (
        f"Use {chosen.title}, with all of your {found.pool:,} labels. With {most} of them, the others being held out "
        f"to test it, it was off by {told.mae:.3f} on average{_interval(told)}.{_rival(chosen, best)}"
        f"{_more(found, chosen)}{_control_set(last)}"
    )
    return f"{said}{_low_coverage(told, found.setup.repetitions)}{_thin(found)}"


def clearly_low(told: Summary, splits: int, level: float = CONFIDENCE) -> bool:
    """Whether intervals held the truth less often than they promise, beyond chance.

    A one-sided t-test over splits, because all collections of one share their labels and are missed together; its
    standard error is no smaller than that of as many independent intervals.
    """
    from scipy import stats

    if told.coverage is None or told.coverage_se is None:
        return False
    independent = math.sqrt(level * (1 - level) / told.answers)
    se = max(told.coverage_se, independent)
    return bool(stats.t.sf((level - told.coverage) / se, splits - 1) < SURE)


def _useful(told: Summary) -> bool:
    return told.mae <= TOO_FAR and 2 * told.cannot_tell <= told.answers


def _unsure(told: Summary) -> str:
    if 2 * told.cannot_tell <= told.answers:
        return ""
    return f" and cannot tell in {told.cannot_tell / told.answers:.0%} of cases"


def _interval(told: Summary) -> str:
    if told.coverage is None or told.width is None:
        return ""
    return (
        f", and its {CONFIDENCE * 100:g} % interval, {told.width:.2f} wide, held the truth in {told.coverage:.0%} of "
        "cases"
    )


def _rival(chosen: Compared, best: Compared) -> str:
    if chosen is best:
        return ""
    return (
        f" {best.title} was off by {best.summary.mae:.3f}, which may be chance (less than one standard error ahead), "
        "and has no interval."
    )


def _more(found: Comparison, chosen: Compared) -> str:
    fewer = [row for row in found.rows if row.method == chosen.method and row.labels < chosen.labels]
    if not fewer:
        return ""
    row = max(fewer, key=lambda r: r.labels)
    gain = row.summary.mae / max(chosen.summary.mae, 1e-9)
    if gain > HELPS:
        return (
            f" With {row.labels} labels it was {row.summary.mae:.3f}, so more labels should still help; 'divscore "
            "plan' says how many."
        )
    return f" With {row.labels} labels it was {row.summary.mae:.3f} already, so more would hardly help."


def _control_set(last: Sequence[Compared]) -> str:
    scores = [row for row in last if row.title.startswith("divscore")]
    best = min(scores, key=lambda row: row.summary.mae)
    kind = best.title.removeprefix("divscore, ")
    return (
        f" For the paper's DivScore the best control set was '{kind}' of {best.representatives}, off by "
        f"{best.summary.mae:.3f}."
    )


def _low_coverage(told: Summary, splits: int) -> str:
    if told.coverage is None or not clearly_low(told, splits):
        return ""
    return (
        f" But its interval held the truth in only {told.coverage:.0%} of cases, clearly less than "
        f"{CONFIDENCE * 100:g} %: take it for too narrow on such items."
    )


def _thin(found: Comparison) -> str:
    """What the comparison rests on, where that is little."""
    splits, (smallest, _) = found.setup.repetitions, found.items
    little = [
        (splits < FEW_SPLITS, f"{splits} splits"),
        (found.held_out < FEW_HELD_OUT, f"{found.held_out} held-out examples"),
        (smallest < FEW_ITEMS, f"collections from {smallest} items on"),
    ]
    said = [text for is_little, text in little if is_little]
    if not said:
        return ""
    small = found.setup.collection < FEW_ITEMS
    steps = [
        (splits < FEW_SPLITS, "more --repetitions"),
        (smallest < FEW_ITEMS and small, "a larger --collection-size"),
        (found.held_out < FEW_HELD_OUT or (smallest < FEW_ITEMS and not small), "more labelled examples"),
    ]
    do = " and ".join(text for needed, text in steps if needed)
    return f" This rests on little ({', '.join(said)}), and other splits may say otherwise; take {do}."
