"""Numbers, names and lists as they stand in a report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.estimators.interval import Interval, bounds
from divscore.percent import percent, percent_ends
from divscore.text import named, printable

__all__ = [
    "bare",
    "count",
    "gap",
    "interval_level",
    "level",
    "limits",
    "listed",
    "p_value",
    "percent",
    "percents",
    "plain",
    "short",
    "signed",
    "whole",
    "without",
]

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
