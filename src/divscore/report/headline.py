"""The first sentences of a report: one collection, or what several have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.report.phrases import count, limits, listed, percent, percents, plain, short, signed, without
from divscore.result import Audit

__all__ = ["headline", "lead", "noun_of"]


def noun_of(audits: Sequence[Audit]) -> str:
    """What the items of all collections are called."""
    nouns = {audit.noun for audit in audits}
    return nouns.pop() if len(nouns) == 1 else "items"


def headline(audits: Sequence[Audit]) -> str:
    """One plain sentence, the interval in it; of several collections, how many lean which way."""
    if len(audits) == 1:
        return audits[0].headline
    told = [a for a in audits if a.trust != "poor"]
    unknown = len(audits) - len(told)
    about = short(audits[0].control.attribute)
    if not told:
        return f"Cannot tell how {about} is distributed in any of {len(audits):,} collections."
    if any(without(a.interval) for a in told):
        return f"{len(told):,} of {len(audits):,} collections have an estimate, by a method that gives no interval."
    if len(audits[0].shares) > 2:
        return _spread(told, unknown, len(audits))
    first, second = (short(name) for name in audits[0].control.groups)
    more = sum(a.interval.low > 0 for a in told)
    less = sum(a.interval.high < 0 for a in told)
    parts = [
        (more, f"more {first} than {second}"),
        (less, f"more {second} than {first}"),
    ]
    said = [f"{number:,} {_holds(number)} {what}" for number, what in parts if number]
    level = len(told) - more - less
    if level:
        said.append(f"{level:,} may be balanced")
    if unknown:
        said.append(f"{unknown:,} cannot be told")
    return f"Of {len(audits):,} collections, {listed(said)}."


def lead(audits: Sequence[Audit]) -> str:
    """The figures behind the headline."""
    if len(audits) == 1:
        return _lead_of_one(audits[0])
    total = f"{count(sum(a.count for a in audits), noun_of(audits))} in all."
    told = [a for a in audits if a.trust != "poor" and math.isfinite(a.disparity)]
    if not told:
        return total
    low, high = min(told, key=lambda a: a.disparity), max(told, key=lambda a: a.disparity)
    if len(low.shares) > 2:
        ends = [
            f"{100 * a.disparity:.0f} in {short(a.name, 40)} (between {100 * a.interval.low:.0f} and "
            f"{100 * a.interval.high:.0f})"
            for a in (low, high)
        ]
        return f"In percentage points, the gap runs from {ends[0]} to {ends[1]}. {total}"
    group = low.control.groups[0]
    ends = [
        f"{percent(a.shares[group])} in {short(a.name, 40)} ({percents(a.share_intervals[group])})"
        for a in (low, high)
    ]
    return f"The share of {short(group)} runs from {ends[0]} to {ends[1]}; balanced would be 50%. {total}"


def _holds(number: int) -> str:
    return "holds" if number == 1 else "hold"


def _spread(told: Sequence[Audit], unknown: int, total: int) -> str:
    ends = sorted({round(100 * a.disparity) for a in told if math.isfinite(a.disparity)})
    apart = f"{ends[0]} to {ends[-1]}" if len(ends) > 1 else f"{ends[0]}"
    rest = f"; {unknown:,} cannot be told" if unknown else ""
    return (
        f"The largest and the smallest group lie {apart} percentage points apart in {len(told):,} of {total:,} "
        f"collections{rest}."
    )


def _lead_of_one(audit: Audit) -> str:
    if audit.trust == "poor":
        return "The checks below say why. The numbers in brackets are shown for completeness only."
    if not math.isfinite(audit.disparity):
        return ""
    level = f"{audit.interval.level:.0%} interval {limits(audit.interval, len(audit.shares))}"
    if without(audit.interval):
        level = "no interval"
    if len(audit.shares) == 2:
        first, second = (short(name) for name in audit.control.groups)
        share = percent(audit.shares[audit.control.groups[0]])
        return (
            f"Best estimate {share} {first}. Disparity (share of {first} minus share of {second}) "
            f"{signed(audit.disparity)}, {level}."
        )
    most, least = short(audit.most), short(audit.least)
    return (
        f"Largest group {most}, smallest {least}. Disparity (largest share minus smallest) "
        f"{plain(audit.disparity)}, {level}."
    )
