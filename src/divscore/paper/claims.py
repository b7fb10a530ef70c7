"""Claims of the paper: what it says, which statistic checks it, and what counts as agreement."""

from __future__ import annotations

import operator
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from divscore.paper.records import Accuracy
from divscore.paper.results import ResultTable

__all__ = [
    "CELEBA",
    "PPB",
    "PPB_EACH",
    "TWITTERAAE_EACH",
    "TWITTERAAE_MOST",
    "Claim",
    "check_claims",
    "smaller_sets",
]

CLOSE = 0.1  # a mean that is never farther from the truth is close to it
SAME = 0.005  # of a γ that is printed with two digits


class Claim(NamedTuple):
    """A claim of the paper, and how it is checked: a statistic compared with a threshold.

    `measured` is a template; it, the statistic and the threshold name values as `str.format` does, such as
    ``gender[iid].mae``. `otherwise` is added if the claim does not hold.
    """

    says: str
    where: str
    measured: str
    statistic: str
    comparison: str
    threshold: str | float
    otherwise: str = ""


COMPARISONS = {"<": operator.lt, "≤": operator.le, ">": operator.gt, "≥": operator.ge}


class _Template(string.Formatter):
    """`str.format` that takes a missing number for 0: a spread needs two repetitions."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return str(super().format_field(0.0 if value is None else value, format_spec))

    def number(self, name: str | float, values: Mapping[str, Any]) -> float:
        value = self.get_field(name, (), values)[0] if isinstance(name, str) else name
        return float(value or 0.0)


def check_claims(checks: Iterable[tuple[Claim, Mapping[str, Any]]]) -> ResultTable:
    """Check claims, each against its values."""
    template, rows = _Template(), []
    for claim, values in checks:
        compare = COMPARISONS[claim.comparison]
        agrees = compare(template.number(claim.statistic, values), template.number(claim.threshold, values))
        measured = claim.measured if agrees else claim.measured + claim.otherwise
        texts = (template.vformat(text, (), values) for text in (claim.says, claim.where, measured))
        rows.append((*texts, "agrees" if agrees else "differs"))
    return ResultTable.of("claims", "The paper's claims", ("the paper says", "where", "measured", ""), rows)


PPB = (
    Claim(
        "Gender: random control sets are always close to the true disparity", "4.1",
        "the mean of DivScore-Random-Balanced is wrong by at most {gender[random-balanced].worst_bias:.3f}, a single "
        "audit by {gender[random-balanced].mae:.3f} on average",
        "gender[random-balanced].worst_bias", "≤", CLOSE,
    ),
    Claim(
        "Skin tone: the average is close to the true disparity", "4.1",
        "the mean of DivScore-Random-Balanced is wrong by at most {skin[random-balanced].worst_bias:.3f}",
        "skin[random-balanced].worst_bias", "≤", CLOSE,
    ),
    Claim(
        "Skin tone: but the errors are quite high", "4.1",
        "spread {skin[random-balanced].spread:.3f} against {gender[random-balanced].spread:.3f} on gender (twice as "
        "much counts as quite high)",
        "skin[random-balanced].spread", "≥", "twice",
    ),
    Claim(
        "Skin tone: IID-Measure has a lower error than DivScore with random control sets", "4.1",
        "{skin[iid].mae:.3f} against {skin[random-balanced].mae:.3f}",
        "skin[iid].mae", "<", "skin[random-balanced].mae",
    ),
    Claim(
        "The average of DivScore-Adaptive does not align with the true disparity", "6.1",
        "wrong by up to {gender[adaptive].worst_bias:.3f} (gender) and {skin[adaptive].worst_bias:.3f} (skin tone)",
        "adaptive_bias", ">", CLOSE,
    ),
    Claim(
        "Gender: the theorem suggests an error of at most 5", "7",
        "{bound:.1f} with |T| = {settings.size}, |S| = {settings.collection}; a bound of 5 takes |T| = {enough:.0f}",
        "bound_off", "≤", 0.5,
    ),
    Claim(
        "Gender: the error seen is at most 0.5", "7",
        "largest of {gender[random-balanced].answers} audits: {gender[random-balanced].largest:.3f}",
        "gender[random-balanced].largest", "≤", 0.5,
    ),
    Claim(
        "Skin tone, |T| = 100, |S| = 500: δ = 2.562, error 61.1 (authors' notebooks)", "notebooks",
        "δ = {notebook[0]:.3f}, error {notebook[1]:.1f}",
        "notebook_off", "≤", 0.5,
    ),
)  # fmt: skip
# Checked on gender and on skin tone; `this` is the accuracy by method.
PPB_EACH = (
    Claim(
        "SS-ST has a larger bias than DivScore with random control sets ({attribute})", "4.2",
        "largest bias {this[ss-st].worst_bias:.3f} against {biases} (balanced and proportional)",
        "this[ss-st].worst_bias", ">", "worst_bias",
    ),
    Claim(
        "SS-ST has a lower approximation error than DivScore-Random-Balanced ({attribute})", "4.1, 4.2",
        "mean absolute error {this[ss-st].mae:.3f} against {this[random-balanced].mae:.3f}",
        "this[ss-st].mae", "<", "this[random-balanced].mae",
        "; only its spread is smaller ({this[ss-st].spread:.3f} against {this[random-balanced].spread:.3f})",
    ),
    Claim(
        "Adaptive control sets have a smaller spread than random ones ({attribute})", "6.1",
        "{this[adaptive].spread:.3f} against {this[random-balanced].spread:.3f}",
        "this[adaptive].spread", "<", "this[random-balanced].spread",
    ),
    Claim(
        "Adaptive control sets give sharper scores ({attribute})", "6.1",
        "mean absolute error {this[adaptive].mae:.3f} against {this[random-balanced].mae:.3f} of a random balanced set "
        "of the same size, and {this[all-balanced].mae:.3f} of all labels, balanced",
        "this[adaptive].mae", "<", "this[random-balanced].mae",
    ),
    Claim(
        "γ is {paper[γ]} ({attribute})", "4.2",
        "{with_self:.4f} with the pairs of an item with itself, as in the authors' code, {without:.4f} without",
        "gamma_off", "≤", SAME,
    ),
    Claim(
        "γ^(T) of adaptive control sets is {paper[adaptive]} ({attribute})", "6.1",
        "{held_out:.2f} on the other partition, {own:.2f} on the control set itself",
        "chosen_off", "≤", 10 * SAME,
    ),
)  # fmt: skip
CELEBA = (
    Claim(
        "For almost all attributes DivScore-Adaptive errs less than DivScore-Random-Balanced", "6.2",
        "for {ahead} of {count}; on average {gender[adaptive].mae:.3f} against {gender[random-balanced].mae:.3f}",
        "ahead", "≥", "almost_all",
    ),
    Claim(
        "IID-Measure has a low error", "appendix",
        "{gender[iid].mae:.3f} on average", "gender[iid].mae", "≤", "gender[adaptive].mae",
    ),
    Claim(
        "DivScore-Random-Proportional has a low error for some attributes and a high one for others", "appendix",
        "{drawn}", "differs_much", ">", 0.0,
    ),
)  # fmt: skip
TWITTERAAE_EACH = (
    Claim(
        "{title} increases with the fraction of AAE tweets", "6.3",
        "from {first:.2f} to {last:.2f}", "smallest_step", ">", 0.0, ", not everywhere",
    ),
    Claim(
        "{title} approximates, on average, the disparity of all collections", "6.3",
        "its mean is wrong by at most {bias:.2f}", "bias", "≤", CLOSE,
    ),
)  # fmt: skip
TWITTERAAE_MOST = Claim(
    "DivScore-Adaptive errs less than DivScore-Random-Balanced for most collections", "6.3",
    "for {ahead} of {count}", "ahead", ">", "half",
)  # fmt: skip
SMALLER_SETS = Claim(
    "Adaptive control sets reach a low error with fewer examples than random ones ({where})",
    "appendix",
    "for an error of at most {both:.3f}, the lowest that both reach: {adaptive:.0f} examples against {random:.0f}",
    "adaptive", "<", "random",
)  # fmt: skip


def smaller_sets(points: Sequence[Accuracy], attribute: str, where: str) -> tuple[Claim, dict[str, Any]]:
    """The appendix: adaptive control sets reach a low error with fewer examples than random ones.

    Compares the fewest examples with which each reaches the lowest error that both reach.
    """
    by: dict[str, dict[float, float]] = {
        method: {float(p.at): p.mae for p in points if p.attribute == attribute and p.method == method}
        for method in ("adaptive", "random-balanced")
    }
    both = max(min(errors.values()) for errors in by.values())
    adaptive, random = (min(at for at, error in errors.items() if error <= both) for errors in by.values())
    return SMALLER_SETS, {"where": where, "both": both, "adaptive": adaptive, "random": random}
