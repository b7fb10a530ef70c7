"""Target: the shares that a collection is held to. Gate: whether it is close enough to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divscore.control.similarity import FloatArray
from divscore.errors import InputError
from divscore.estimators.interval import Estimate, Interval, range_interval
from divscore.text import printable, quoted

if TYPE_CHECKING:
    from divscore.audit.result import Audit

TOLERANCE = 0.005  # shares that people copy from a table may not add up exactly


@dataclass(frozen=True)
class Target:
    """The share that each group should have, and where these numbers come from; without one, all shares are equal.

    >>> Target.of({"female": 0.27}, ("female", "male"), "Census 2020")
    Target(shares={'female': 0.27, 'male': 0.73}, source='Census 2020')
    """

    shares: dict[str, float]
    source: str = ""

    @classmethod
    def of(cls, shares: Mapping[str, float], groups: Sequence[str], source: str = "") -> Target:
        """Check shares against the groups; a single group may be left out and gets the rest."""
        unknown = [name for name in shares if name not in groups]
        if unknown:
            raise InputError(f"the target names {quoted(unknown)}, but the groups are {quoted(groups)}")
        bad = [name for name, share in shares.items() if not 0 <= share <= 1]
        if bad:
            raise InputError(f"the target of '{bad[0]}' is {shares[bad[0]]:g}; expected a share from 0 to 1")
        rest, total = [name for name in groups if name not in shares], sum(shares.values())
        if len(rest) > 1:
            raise InputError(
                f"the target has no share for {quoted(rest)}; give one for all groups, or for all but one"
            )
        if total > 1 + TOLERANCE or (not rest and total < 1 - TOLERANCE):
            raise InputError(f"the shares of the target add up to {total:.0%}; expected 100%")
        given = {name: shares.get(name, max(0.0, 1 - total)) for name in groups}
        return cls({name: share / sum(given.values()) for name, share in given.items()}, source.strip())

    def distance(self, estimate: Estimate, confidence: float) -> tuple[float, Interval]:
        """How far the shares are from the target, in the units of the disparity, with an interval.

        Two groups: disparity − target disparity = 2 (share − target) of the first group. More: let e_g = share_g −
        target_g; the distance is max e − min e. For equal target shares it is the disparity itself. If only sums of
        some groups are known, the distance is not, and the interval is what the sums allow.
        """
        wanted = np.array(list(self.shares.values()))
        if len(wanted) == 2:
            offset, interval = float(wanted[0] - wanted[1]), estimate.interval
            moved = Interval(interval.low - offset, interval.high - offset, interval.level, interval.method)
            return estimate.disparity - offset, moved
        if estimate.replicates is None:
            raise InputError("a target for more than two groups needs the estimator 'likelihood'")
        series = np.concatenate([estimate.shares[None], estimate.replicates])
        if estimate.clusters:
            return math.nan, self._possible(series, estimate.clusters, confidence)
        off = series - wanted
        return float(np.ptp(off[0])), range_interval(off, off, confidence, (0.0, 2.0))

    def _possible(
        self, sums: FloatArray, clusters: tuple[tuple[int, ...], ...], confidence: float
    ) -> Interval:
        """The distances that sums of groups allow, from the estimate and its replicates (1 + B, k).

        If m groups have the sum s and the target t, they are all (s − t) / m off at best. At worst the one with the
        smallest target has all of s, and the one with the largest target has nothing.
        """
        wanted = list(self.shares.values())
        targets = [[wanted[at] for at in cluster] for cluster in clusters]
        sizes = np.array([len(each) for each in targets])
        even = (sums - [sum(each) for each in targets]) / sizes
        nearest = range_interval(even, even, confidence, (0.0, 2.0))
        lowest = np.where(sizes > 1, [-max(each) for each in targets], even)
        farthest = range_interval(sums - [min(each) for each in targets], lowest, confidence, (0.0, 2.0))
        return replace(farthest, low=nearest.low)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"shares": dict(self.shares), "source": self.source}


@dataclass(frozen=True)
class Verdict:
    """What a gate says about a collection: pass, fail or inconclusive, and why."""

    word: str
    reason: str


@dataclass(frozen=True)
class Gate:
    """A limit for the disparity, or for the distance from a target, applied to every collection.

    The verdict is the worst of all: fail, then inconclusive, then pass. Parts that are missing from the source leave
    it open, even those of collections that have no audit.
    """

    limit: float
    verdicts: tuple[Verdict, ...]  # in the order of the audits, of which two may have one name
    missing: int = 0

    @classmethod
    def of(cls, audits: Sequence[Audit], limit: float, missing: int = 0) -> Gate:
        """Apply a limit from 0 to 1 to audits."""
        if not 0 <= limit <= 1:
            raise InputError(f"the limit {limit:g} must be from 0 to 1, for example 0.2")
        return cls(limit, tuple(judge(audit, limit) for audit in audits), missing)

    @property
    def verdict(self) -> str:
        """The worst word."""
        words = {verdict.word for verdict in self.verdicts}
        if "fail" in words:
            return "fail"
        return "inconclusive" if "inconclusive" in words or self.missing else "pass"

    @property
    def reason(self) -> str:
        """How many collections pass, fail and are inconclusive."""
        words = [verdict.word for verdict in self.verdicts]
        counts = [(words.count("fail"), "outside"), (words.count("inconclusive"), "inconclusive")]
        parts = [f"{number:,} {word}" for number, word in counts if number]
        within = f"{words.count('pass'):,} of {len(words):,} within the limit of ±{self.limit:g}"
        if self.missing and "fail" not in words:
            parts.append("parts of the source are missing")
        return "; ".join([within, *parts])

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"limit": self.limit, "verdict": self.verdict, "reason": self.reason}


def judge(audit: Audit, limit: float) -> Verdict:
    """Compare the interval of one collection with a limit.

    An interval does not cover missing parts, so a collection with missing parts never passes for certain. Skipped items
    are rarely skipped at random, so a verdict must hold even if all of them are of one group.
    """
    low, high = audit.distance_interval.low, audit.distance_interval.high
    what = f"±{limit:g}" if audit.target is None else f"±{limit:g} around the target"
    if not audit.conclusive:
        why = next((text for text in audit.warnings if text.startswith("cannot tell")), "")
        return Verdict("inconclusive", printable(why) or "the result cannot be trusted")
    # Skipped items may all be of one group, which moves the disparity by up to this much.
    shift = audit.diagnostics.skipped_shift
    if low - shift > limit or high + shift < -limit:
        return Verdict("fail", f"the whole interval is outside {what}")
    if low > limit or high < -limit:
        return Verdict(
            "inconclusive", f"the interval is outside {what}, but skipped items could move it inside"
        )
    if not (-limit <= low and high <= limit):
        return Verdict("inconclusive", f"the interval crosses {what}")
    if not (-limit <= low - shift and high + shift <= limit):
        return Verdict(
            "inconclusive", f"the interval is inside {what}, but skipped items could move it outside"
        )
    if audit.missing.count:
        return Verdict("inconclusive", f"the interval is inside {what}, but parts of it may be missing")
    return Verdict("pass", f"the whole interval is inside {what}")
