"""Lights: how far to trust a report, one check at a time, as a word, a sentence and a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from divscore.audit.missing import Gaps
from divscore.audit.result import Audit
from divscore.audit.trust import ALARM, MISFIT, coverage, left_out_by_chance
from divscore.control.controlset import ControlSet
from divscore.estimators.separation import SEPARABLE_P
from divscore.report.auditjson import missing_from
from divscore.report.headline import noun_of
from divscore.report.phrases import bare, count, p_value, percent, plain, short

__all__ = ["Light", "lights"]

VISIBLE = 0.005  # a shift that two decimals show
CHANCE = 0.1  # by how much more than random representatives chosen ones may leave out
LARGEST = 4000  # examples of one group of which all distances are computed


@dataclass(frozen=True)
class Light:
    """One check: `state` is good, caution, poor or info; `figure` the number, `sentence` what it means."""

    name: str
    state: str
    figure: str
    sentence: str


def lights(audits: Sequence[Audit], missing: Gaps | None = None) -> tuple[Light, ...]:
    """Every check of a report, in the order of the page; `missing` from the source, as a document has it."""
    direct = audits[0].estimator in ("iid", "rectified")
    checks = (_separability(audits), _relevance(audits), _score_fit(audits))
    found = [_for_information(light) if direct else light for light in checks]
    return (*found, _coverage(audits[0].control), _skipped(audits, missing_from(audits, missing).count))


def _for_information(light: Light) -> Light:
    told = f"{light.sentence} This estimate rests on labels from the collection itself and does not need it."
    return Light(light.name, "info", light.figure, told)


def _separability(audits: Sequence[Audit]) -> Light:
    found = audits[0].diagnostics
    figure = f"{found.auc:.0%} told apart, {p_value(found.separability_p)}"
    if found.separability_p > SEPARABLE_P:
        state, told = (
            "poor",
            "The labelled examples cannot be told apart better than chance: no number means anything.",
        )
    elif found.auc < 0.75:
        state, told = "caution", "The groups overlap much; the interval is wide because of it."
    else:
        state, told = (
            "good",
            "Without seeing its label, a labelled example is nearly always closer to its own group.",
        )
        if found.auc < 0.95:
            told = "Without seeing its label, a labelled example is mostly closer to its own group."
    return Light("Separability of the groups", state, figure, f"{told} 50% would be chance.")


def _relevance(audits: Sequence[Audit]) -> Light:
    name = "Domain relevance"
    if len(audits) == 1:
        found = audits[0].diagnostics
        figure = f"{plain(found.relevance, 1)} × the expected distance, {p_value(found.relevance_p)}"
        if found.relevance_p < ALARM:
            return Light(
                name,
                "caution",
                figure,
                "The collection differs from the labelled examples in more than its composition: another source, "
                "time or place, perhaps. The estimate holds if the difference is the same in all groups.",
            )
        return Light(
            name, "good", figure, "The collection looks as a mixture of the labelled groups should look."
        )
    off = [a for a in audits if a.diagnostics.relevance_p < ALARM]
    worst = max(audits, key=lambda a: _or_less(a.diagnostics.relevance))
    most = f"{plain(worst.diagnostics.relevance, 1)} × ({short(worst.name, 30)})"
    figure = f"{len(off):,} of {len(audits):,} differ; at most {most}"
    if off:
        return Light(
            name,
            "caution",
            figure,
            "These collections differ from the labelled examples in more than their composition. Their estimates hold "
            "if the difference is the same in all groups. About 1 is expected.",
        )
    return Light(
        name,
        "good",
        figure,
        "All collections look as mixtures of the labelled groups should; about 1 is expected.",
    )


def _score_fit(audits: Sequence[Audit]) -> Light:
    name = "Fit of the scores"
    bad = [a for a in audits if a.diagnostics.misfit]
    odd = [a for a in audits if a.diagnostics.score_fit_p < ALARM and not a.diagnostics.misfit]
    worst = max(audits, key=lambda a: _or_less(a.diagnostics.score_fit))
    found = worst.diagnostics
    figure = f"misfit {plain(found.score_fit)}, {p_value(found.score_fit_p)}"
    if len(audits) > 1:
        figure = (
            f"{len(bad) + len(odd):,} of {len(audits):,} do not fit; largest misfit {plain(found.score_fit)} "
            f"({short(worst.name, 30)})"
        )
    scale = f"Beyond {MISFIT} it is “cannot tell”."
    if bad:
        whole = len(bad) == len(audits)
        told = (
            "The scores look like no mixture of the labelled groups: the control set does not stand for it."
            if len(audits) == 1
            else f"The scores of {count(len(bad), 'collections')} look like no mixture of the labelled groups."
        )
        return Light(name, "poor" if whole else "caution", figure, f"{told} {scale}")
    if odd:
        told = "The scores are not quite those of a mixture of the labelled groups."
        return Light(name, "caution", figure, f"{told} {scale}")
    return Light(name, "good", figure, f"The scores look like a mixture of the labelled groups. {scale}")


def _coverage(control: ControlSet) -> Light:
    name = "Coverage of the control set"
    if control.representative.all():
        return Light(
            name,
            "good",
            "0% left out",
            "All labelled examples are representatives, so none of them is left out.",
        )
    if max(control.counts.values()) > LARGEST:
        told = f"Not computed for groups of more than {LARGEST:,} labelled examples."
        return Light(name, "info", "not computed", told)
    usual = left_out_by_chance(control)
    worst = max(coverage(control), key=lambda part: part.uncovered - usual[part.group])
    figure = f"{percent(worst.uncovered)} of {short(worst.group, 30)} left out, {percent(usual[worst.group])} by chance"
    if worst.uncovered > usual[worst.group] + CHANCE:
        told = (
            "Some labelled examples lie far from every representative, more than with random ones: the choice may "
            "favour what is typical. It touches the DivScore and what is shown as examples, not the default estimate."
        )
        return Light(name, "caution", figure, told)
    told = "The representatives leave out no larger part of the labelled examples than random ones would."
    return Light(name, "good", figure, told)


def _skipped(audits: Sequence[Audit], parts: int) -> Light:
    name, noun = "Skipped items", noun_of(audits)
    lost = sum(sum(a.skipped.values()) for a in audits)
    total = lost + sum(a.count for a in audits)
    if parts:
        told = (
            "Nothing is known of the items in parts of the source that could not be read; see the warnings."
        )
        figure = f"{lost:,} of {count(total, noun)}, and {count(parts, 'parts')} of the source"
        return Light(name, "caution", figure, told)
    if not lost:
        return Light(name, "good", f"0 of {count(total, noun)}", "Every item was counted.")
    far = [a for a in audits if a.diagnostics.skipped_shift > _allowed(a)]
    most = max(audits, key=lambda a: a.diagnostics.skipped_shift)
    where = f" ({short(most.name, 30)})" if len(audits) > 1 else ""
    figure = f"{lost:,} of {count(total, noun)}; shift at most {plain(most.diagnostics.skipped_shift)}{where}"
    if far:
        much = "by more than the interval allows for"
        if all(bare(a.interval, len(a.shares)) for a in far):
            much = "by as much, and no interval says whether it would matter"
        told = f"If all skipped items were of one group, the disparity would move {much}."
        return Light(name, "caution", figure, told)
    kept = "stay within what the interval allows for"
    if all(bare(a.interval, len(a.shares)) for a in audits):
        kept = "hardly move"
    told = f"Even if all skipped items were of one group, the disparity would {kept}."
    return Light(name, "good", figure, told)


def _allowed(audit: Audit) -> float:
    """How far skipped items may move a disparity; where nothing is ruled out, by no more than is printed."""
    return VISIBLE if bare(audit.interval, len(audit.shares)) else audit.interval.width / 2


def _or_less(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
