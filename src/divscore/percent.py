"""Shares as per cents, in which few never read as none, and nearly all never as all."""

from __future__ import annotations

import math

__all__ = ["percent", "percent_ends"]

NEAR = 0.0095  # so near to 0 or 1, a share gets a decimal
LEAST = 0.0005  # what a decimal cannot show


def percent(share: float, digits: int = 0) -> str:
    """A share in whole per cents, or with so many `digits`; near 0 and 1 with one at least.

    >>> [percent(share) for share in (0.0, 0.0001, 0.002, 0.337, 0.998, 0.9999, 1.0)]
    ['0%', '<0.1%', '0.2%', '34%', '99.8%', '>99.9%', '100%']
    """
    if not math.isfinite(share):
        return "?"
    if share in (0.0, 1.0):
        return f"{share:.{digits}%}"
    if share < LEAST:
        return "<0.1%"
    if share >= 1 - LEAST:
        return ">99.9%"
    near = share < NEAR or share > 1 - NEAR
    return f"{share:.{max(digits, int(near))}%}"


def percent_ends(low: float, high: float) -> tuple[str, str]:
    """The limits of a share in whole per cents; with a decimal, rounded outwards, where these would be the same.

    >>> percent_ends(0.304, 0.58), percent_ends(0.0021, 0.004), percent_ends(0.694, 0.998)
    (('30%', '58%'), ('0.2%', '0.4%'), ('69%', '100%'))
    """
    ends = f"{low:.0%}", f"{high:.0%}"
    if ends[0] != ends[1] or low == high:
        return ends
    # Without the digits that only come of multiplying.
    return _tenth(math.floor(round(1000 * low, 6))), _tenth(math.ceil(round(1000 * high, 6)))


def _tenth(parts: int) -> str:
    return f"{parts / 1000:.{int(parts not in (0, 1000))}%}"
