"""What a report says about its method, whatever the numbers are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.audit.result import Audit
from divscore.estimators.interval import Interval, bounds
from divscore.text import named, percent, percent_ends, printable

__all__ = [
    "assumptions",
    "bare",
    "count",
    "gap",
    "interval_level",
    "level",
    "limits",
    "listed",
    "method",
    "noise_note",
    "p_value",
    "percent",
    "percents",
    "plain",
    "short",
    "signed",
    "whole",
    "without",
]


# Numbers, names and lists as they stand in a report.

MINUS = "−"
UNKNOWN = "?"
NAME = 60  # characters of a name that a table shows
WHOLE = 300  # characters that a tooltip shows


def signed(value: float) -> str:
    """A disparity, with its sign: −0.18, +0.05, 0.00."""
    if not math.isfinite(value):
        return UNKNOWN
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", MINUS)


def plain(value: float, digits: int = 2) -> str:
    """Any other number."""
    return f"{value:.{digits}f}".replace("-", MINUS) if math.isfinite(value) else UNKNOWN


def level(probability: float) -> str:
    """The level of an interval, or how often it misses: 95%, 99.9%; never rounded to all or nothing."""
    least = 100 * min(probability, 1 - probability)
    if least <= 0:
        return f"{probability:.0%}"
    digits = 2 - math.floor(math.log10(least))  # three figures of what is left to 0 or 1
    return f"{100 * probability:.{digits}f}".rstrip("0").rstrip(".") + "%"


def interval_level(interval: Interval) -> str:
    """What heads a column of intervals."""
    return "interval" if without(interval) else f"{level(interval.level)} interval"


def percents(interval: Interval) -> str:
    """An interval of a share."""
    return "none" if without(interval) else "–".join(percent_ends(interval.low, interval.high))


def gap(value: float, groups: int) -> str:
    """A disparity: with its sign for two groups; of more it has none."""
    return signed(value) if groups == 2 else plain(value)


def limits(interval: Interval, groups: int = 2) -> str:
    """An interval of a disparity."""
    return "none" if without(interval) else f"{gap(interval.low, groups)} to {gap(interval.high, groups)}"


def without(interval: Interval) -> bool:
    """Whether the method gives no interval; what stands there is the whole range."""
    return interval.method.startswith("none")


def bare(interval: Interval, groups: int) -> bool:
    """Whether nothing is ruled out: there is no interval of a disparity, or it is the whole range."""
    low, high = bounds(groups)
    return without(interval) or (interval.low <= low and interval.high >= high)


def p_value(p: float) -> str:
    """A p-value with its sign of relation."""
    if not math.isfinite(p):
        return "p unknown"
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def count(number: int, noun: str) -> str:
    """A number of things; the noun is given in the plural: 1,204 pictures, 1 picture."""
    return f"{number:,} {noun.removesuffix('s') if number == 1 else noun}"


def listed(words: Sequence[str]) -> str:
    """Join words: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def short(name: str, length: int = NAME) -> str:
    """A name that fits: control characters shown, the middle of a long one left out."""
    text = named(name[: 4 * WHOLE])
    if len(name) <= 4 * WHOLE and len(text) <= length:
        return text
    tail = length // 4
    ending = printable(name[-WHOLE:])[-tail:]
    return f"{text[: length - tail - 1]}…{ending}"


def whole(name: str) -> str:
    """As much of a long name as a tooltip shows; empty where `short` shows all of it."""
    return "" if short(name) == named(name) else short(name, WHOLE)


METHODS = {
    "likelihood": (
        "Every item is compared with the labelled examples and gets a score; the reported shares are those under which "
        "the scores of the whole collection are most likely. The interval repeats this 200 times with the labelled "
        "examples weighted anew, so that it carries the error of the control set too."
    ),
    "divscore": (
        "The DivScore (Keswani & Celis, KDD 2021, Algorithm 1) compares the mean similarity of the collection to the "
        "representatives of each group. Its interval is the paper's Theorem 3.3, a worst case at a level of about 90%."
    ),
    "self-training": (
        "Self-training (Keswani & Celis, KDD 2021, Algorithm 3) lets items that are most alike to one group join it, "
        "step by step. It gives no interval."
    ),
    "iid": (
        "The shares are those of items that were drawn at random from the collection and labelled by a person, with "
        "the exact binomial interval."
    ),
    "rectified": (
        "The shares of all items are estimated from the control set and then corrected by items that were drawn at "
        "random from the collection and labelled by a person. No assumption on the control set is needed."
    ),
}

SCORE = (
    "The DivScore{} is the paper's own score (Keswani & Celis, KDD 2021, Algorithm 1) from the "
    "representatives alone. It is shown for comparison; it is rougher and may lie beyond −1 or +1."
)

DISPARITY = {
    True: "The disparity is share({0}) minus share({1}): 0 is balanced, +1 means only {0}, −1 only {1}.",
    False: "The disparity is the largest share minus the smallest: 0 means that all groups are alike, 1 that only one "
    "is there.",
}

SCORES = (
    "What is reported is the largest of the groups' scores minus the smallest: 0 means that all groups are alike. The "
    "scores do not add up to one, so they are no shares."
)

LIKE = (
    (
        "The labelled examples stand for the collection",
        "Inside each group the collection is assumed to look like the labelled examples. This is tested above, and the "
        "test can miss. A difference that is the same in all groups does little harm; one that touches a single group "
        "misleads any method of this kind.",
    ),
    (
        "Items come one by one",
        "A collection from one source, place or time, with series of near-copies, or a single country, is not a "
        "random mixture. Its interval may then be too narrow.",
    ),
)

ALWAYS = (
    (
        "Groups were defined beforehand",
        "Somebody chose the groups and labelled the examples. People who belong to none of them, or to several, are "
        "invisible here, and a label says what the labeller perceived unless people spoke for themselves.",
    ),
    (
        "Representatives can carry stereotypes",
        "Examples that were chosen automatically for being typical favour what is typical. Look at them, change them "
        "by hand, and publish them, so that the people concerned can object.",
    ),
    (
        "Hand-curation has a price",
        "Examples picked by hand are no random sample. If the whole pool was picked by hand, expect a bias in the "
        "numbers; pick representatives by hand, but draw the labelled pool at random.",
    ),
    (
        "A result is about a set, never about a person",
        "Nothing here says to which group any single unlabelled item belongs, and it cannot be used to find out.",
    ),
    (
        "Balanced is a yardstick, not a goal",
        "Equal shares are the zero of the scale. What would be fair depends on what the collection is for.",
    ),
)


def method(audit: Audit, hollow: bool) -> tuple[str, ...]:
    """How the numbers were made; `hollow` where the DivScore is drawn beside them."""
    two = len(audit.shares) == 2
    disparity = DISPARITY[two].format(*(short(name) for name in audit.control.groups))
    if audit.estimator == "divscore":
        return METHODS[audit.estimator], disparity if two else SCORES
    return METHODS[audit.estimator], disparity, SCORE.format(", the hollow mark," if hollow else "")


def noise_note(audit: Audit) -> str:
    """Why the DivScore stands in brackets; empty where it does not, or where a warning says it."""
    if not audit.noisy_groups or audit.estimator == "divscore" or not math.isfinite(audit.divscore):
        return ""
    names = " and ".join(short(name) for name in audit.noisy_groups)
    return (
        f"The DivScore, in brackets, is mostly noise here: the representatives of {names} are hardly more alike than "
        "they are like the others. The estimate does not rest on it."
    )


def assumptions(audit: Audit) -> tuple[tuple[str, str], ...]:
    """What the numbers rest on, and what they cannot say."""
    return ALWAYS if audit.estimator in ("iid", "rectified") else (*LIKE, *ALWAYS)
