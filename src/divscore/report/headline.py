"""The first sentences of a report: one collection, or what several have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from divscore.audit.result import Audit
from divscore.report.phrases import (
    bare,
    count,
    interval_level,
    limits,
    listed,
    percent,
    percents,
    plain,
    short,
    signed,
    without,
)

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
    more = sum(a.interval.low > 0 for a in told)
    less = sum(a.interval.high < 0 for a in told)
    if len(audits[0].shares) > 2:
        said = [f"{more:,} {'is' if more == 1 else 'are'} uneven"] if more else []
    else:
        first, second = (short(name) for name in audits[0].control.groups)
        parts = [(more, f"more {first} than {second}"), (less, f"more {second} than {first}")]
        said = [f"{number:,} {_holds(number)} {what}" for number, what in parts if number]
    balanced = len(told) - more - less
    if balanced:
        said.append(f"{balanced:,} may be balanced")
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
    group = low.control.groups[0]
    if not low.has_shares:
        ends = [_end(a, plain(a.disparity), limits(a.interval, len(a.shares))) for a in (low, high)]
        said = "By DivScore, which gives no shares, the gap between the largest and the smallest group runs"
        return f"{said} from {ends[0]} to {ends[1]}. {total}"
    if len(low.shares) > 2:
        ends = [_end(a, f"{100 * a.disparity:.0f}", _points(a)) for a in (low, high)]
        said = "In percentage points, the gap between the largest and the smallest group runs"
        return f"{said} from {ends[0]} to {ends[1]} by best estimates. {total}"
    ends = [_end(a, percent(a.shares[group]), percents(a.share_intervals[group])) for a in (low, high)]
    return f"The share of {short(group)} runs from {ends[0]} to {ends[1]}; balanced would be 50%. {total}"


def _holds(number: int) -> str:
    return "holds" if number == 1 else "hold"


def _end(audit: Audit, value: str, between: str) -> str:
    spread = "" if without(audit.interval) else f" ({between})"
    return f"{value} in {short(audit.name, 40)}{spread}"


def _points(audit: Audit) -> str:
    return f"between {100 * audit.interval.low:.0f} and {100 * audit.interval.high:.0f}"


def _lead_of_one(audit: Audit) -> str:
    if audit.trust == "poor":
        return "The checks below say why. The numbers in brackets are shown for completeness only."
    if not math.isfinite(audit.disparity):
        return ""
    spread = f"{interval_level(audit.interval)} {limits(audit.interval, len(audit.shares))}"
    if without(audit.interval):
        spread = "no interval"
    if not audit.has_shares:
        nothing = " This is the whole range: the bound rules nothing out."
        return f"{spread}.{nothing if bare(audit.interval, len(audit.shares)) else ''}"
    if len(audit.shares) == 2:
        first, second = (short(name) for name in audit.control.groups)
        share = percent(audit.shares[audit.control.groups[0]])
        return (
            f"Best estimate {share} {first}. Disparity (share of {first} minus share of {second}) "
            f"{signed(audit.disparity)}, {spread}."
        )
    most, least = short(audit.most), short(audit.least)
    return (
        f"Largest group {most}, smallest {least}. Disparity (largest share minus smallest) "
        f"{plain(audit.disparity)}, {spread}."
    )
