"""Claims that the paper makes of several data sets, beside what is measured."""

from __future__ import annotations

from collections.abc import Sequence

from divscore.paper.results import Claim
from divscore.paper.summary import Point

__all__ = ["CLOSE", "smaller_sets"]

CLOSE = 0.1  # a mean that is never farther from the truth is close to it


def smaller_sets(points: Sequence[Point], attribute: str, where: str) -> Claim:
    """The appendix: adaptive control sets reach a low error with fewer examples than random ones.

    Compared are the fewest examples with which each errs no more than the lowest error that both reach.
    """
    by: dict[str, dict[float, float]] = {
        method: {float(p.at): p.mae for p in points if p.attribute == attribute and p.method == method}
        for method in ("adaptive", "random-balanced")
    }
    both = max(min(errors.values()) for errors in by.values())
    adaptive, random = (min(at for at, error in errors.items() if error <= both) for errors in by.values())
    return Claim(
        f"Adaptive control sets reach a low error with fewer examples than random ones ({where})",
        "appendix",
        f"to err by no more than {both:.3f}, the lowest error that both reach: {adaptive:.0f} examples against "
        f"{random:.0f}",
        adaptive < random,
    )
