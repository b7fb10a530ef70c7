"""Change: how two audits of a collection differ, and how certain the difference is.

Two audits with the same control set share its error, usually the larger part of each interval. So the change is known
much better than either value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from divscore.audit.document import AuditDocument, Entry
from divscore.control.similarity import FloatArray
from divscore.errors import MismatchError
from divscore.estimators.interval import SMALL_SAMPLE, Interval, Refits, even_normal, from_replicates
from divscore.text import brief, listed, printable

SAME_MEAN = 1e-5  # DivScores of the same items differ by less; they magnify the rounding of the mean
STEPS = 16  # of each collection's own error; eight would make it 5 % too small
NORMAL = even_normal(STEPS)

CANNOT_TELL = "cannot tell"
SAME = "no clear change"
LESS_EVEN = "less even"
MORE_EVEN = "more even"
OTHER_WAY = "tilted the other way"
SHIFTED = "shifted"
PAIRED = "paired refits"
UNPAIRED = "both intervals added"
IDENTICAL = "the same items"


@dataclass(frozen=True)
class Change:
    """One collection in two audits.

    `change` is the later disparity minus the earlier one. `increase` is the change of unevenness: of |disparity| for
    two groups, of the disparity itself, which has no sign, for more.
    """

    before: Entry
    after: Entry
    groups: tuple[str, ...]
    change: float
    interval: Interval
    increase: float
    increase_interval: Interval

    @property
    def name(self) -> str:
        """The name in the later audit."""
        return self.after.name

    @property
    def unchanged(self) -> bool:
        """Whether both audits have the same items."""
        return self.interval.method == IDENTICAL

    @property
    def known(self) -> bool:
        """Whether both audits are conclusive, or have the same items."""
        return (self.before.conclusive and self.after.conclusive) or self.unchanged

    @property
    def towards(self) -> str | None:
        """Which of two groups has clearly grown."""
        if not self.known or len(self.groups) > 2 or 0.0 in self.interval:
            return None
        return self.groups[0] if self.interval.low > 0 else self.groups[1]

    @property
    def verdict(self) -> str:
        """What happened, in words."""
        if not self.known:
            return CANNOT_TELL
        if 0.0 in self.interval:
            return SAME
        before, after = self.before.interval, self.after.interval
        if (before.high < 0 < after.low) or (after.high < 0 < before.low):
            return OTHER_WAY
        if 0.0 in self.increase_interval:
            return SHIFTED
        return LESS_EVEN if self.increase_interval.low > 0 else MORE_EVEN

    def gate(self, limit: float) -> str:
        """Whether the unevenness grew by more than `limit`: "pass", "fail" or "inconclusive".

        Missing parts of the later collection may hide a change, so it does not pass.
        """
        if not self.known:
            return "inconclusive"
        if self.increase_interval.low > limit:
            return "fail"
        within = self.increase_interval.high <= limit and not self.after.missing_parts
        return "pass" if within else "inconclusive"


def paired_intervals(
    before: tuple[float, Refits], after: tuple[float, Refits], groups: int, level: float
) -> tuple[Interval, Interval]:
    r"""Intervals for the change and for the increase of unevenness, from two audits with the same refits.

    .. math:: \Delta_b = (d^{after}_b + \sigma^{after} z) - (d^{before}_b + \sigma^{before} z')

    `before` and `after` are disparities with their refits. d_b is the disparity by refit b of the control set, with
    the same weights on its examples and the same rates of mistakes in both audits: errors that both share cancel. σ is
    the error that a collection's own items add; z and z' are independent and go evenly through the normal distribution.
    If the later collection contains the earlier one, their own errors are alike and would partly cancel too; the
    interval ignores that, so it is then too wide rather than too narrow. Errors from a difference between a collection
    and the labelled examples (`Refits.shift`) cancel as far as the two differences have the same direction: with ρ the
    cosine of their outlines, their variance is ``s² + s'² − 2 ρ s s'``. A refit that does not separate the groups
    counts as the largest change in either direction. Limits as for a disparity: union of the percentile and the basic
    interval.

    >>> refits = np.linspace(-0.1, 0.1, 200)
    >>> before, after = (0.2, Refits(0.2 + refits, 0.01)), (0.3, Refits(0.3 + refits, 0.01))
    >>> change, _ = paired_intervals(before, after, 2, 0.95)
    >>> round(change.low, 2), round(change.high, 2)
    (0.07, 0.13)
    """
    series = [(before[1].disparity, after[1].disparity)]
    if before[1].pair is not None and after[1].pair is not None:
        series.append((before[1].pair, after[1].pair))
    change, increase = [], []
    one, other = before[1].outline, after[1].outline
    alike = 0.0 if one is None or other is None or len(one) != len(other) else float(one @ other)
    s, t = before[1].shift, after[1].shift
    shift = max(s * s + t * t - 2 * alike * s * t, 0.0)
    own, own_later = (math.sqrt(each.own**2 + shift / 2) for each in (before[1], after[1]))
    for earlier, later in series:
        # Every pair of steps of the two own errors, for every refit: (B, steps, steps).
        b = earlier[:, None, None] + own * NORMAL[:, None]
        a = later[:, None, None] + own_later * NORMAL
        change.append(_interval(after[0] - before[0], a - b, level, 2.0 if groups == 2 else 1.0))
        value = float(_unevenness(after[0], groups) - _unevenness(before[0], groups))
        increase.append(_interval(value, _unevenness(a, groups) - _unevenness(b, groups), level, 1.0))
    moved, grown = (
        replace(several[0], low=min(i.low for i in several), high=max(i.high for i in several))
        for several in (change, increase)
    )
    # Unevenness changes at most as much as the disparity: ||a| − |b|| ≤ |a − b|.
    most = max(abs(moved.low), abs(moved.high))
    return moved, replace(grown, low=max(grown.low, -most), high=min(grown.high, most))


def added_intervals(before: Entry, after: Entry, groups: int) -> tuple[Interval, Interval]:
    """Intervals for the change and the increase of unevenness if it is unknown what two audits share.

    The later interval minus the earlier one, end by end: half-widths add up. Errors of different control sets need not
    be independent (some examples may be the same, or odd in the same way); for normal errors this is right in the
    worst case, opposite errors.
    """
    old, new = before.interval, after.interval
    level = min(old.level, new.level)
    change = Interval(new.low - old.high, new.high - old.low, level, UNPAIRED)
    if groups > 2:
        return change, change
    # The smallest and the largest |disparity| that each interval allows.
    (least_old, most_old), (least_new, most_new) = (
        (max(i.low, -i.high, 0.0), max(-i.low, i.high)) for i in (old, new)
    )
    return change, Interval(least_new - most_old, most_new - least_old, level, UNPAIRED)


def change_between(before: Entry, after: Entry, groups: tuple[str, ...], *, paired: bool) -> Change:
    """Compare two audits of one collection; `paired` means that both have the same refits."""
    k = len(groups)
    b, a = before.refits, after.refits
    if paired and b is not None and a is not None and len(b.disparity) == len(a.disparity):
        level = min(before.interval.level, after.interval.level)
        # Nothing was added or removed if counts and estimates agree to the last digit, and so does the mean vector. It
        # shows in the DivScore, which agrees as far as sums in single precision can. Refits may differ: the size of a
        # sample depends on how many collections share the memory.
        same = (before.count, before.disparity, b.own) == (after.count, after.disparity, a.own)
        if same and abs(before.divscore - after.divscore) <= SAME_MEAN * max(1.0, abs(before.divscore)):
            none = Interval(0.0, 0.0, level, IDENTICAL)
            return Change(before, after, groups, 0.0, none, 0.0, none)
        change, increase = paired_intervals((before.disparity, b), (after.disparity, a), k, level)
    else:
        change, increase = added_intervals(before, after, k)
    return Change(
        before,
        after,
        groups,
        after.disparity - before.disparity,
        change,
        float(_unevenness(after.disparity, k) - _unevenness(before.disparity, k)),
        increase,
    )


def _unevenness(disparity: FloatArray | float, groups: int) -> FloatArray:
    return np.abs(disparity) if groups == 2 else np.asarray(disparity)


def _interval(value: float, replicates: FloatArray, level: float, span: float) -> Interval:
    """Limits from replicates (B, steps, steps); a NaN counts half for each end."""
    # Half of a refit's steps count as the largest increase, half as the largest decrease.
    ends = np.where(np.arange(STEPS * STEPS) % 2, span, -span).reshape(STEPS, STEPS)
    known = np.where(np.isnan(replicates), ends, replicates).ravel()
    interval = from_replicates(float(value), known, level, (-span, span), drawn=len(replicates))
    return replace(interval, method=PAIRED)


@dataclass(frozen=True)
class AuditDiff:
    """Two audits of a data set: collections in both, in one only, and notes on other differences."""

    before: AuditDocument
    after: AuditDocument
    changes: tuple[Change, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    notes: tuple[str, ...]

    def gate(self, limit: float, *, allow_vanished: bool = False) -> str:
        """Whether no collection became more uneven by more than `limit`: "pass", "fail" or "inconclusive".

        A vanished collection, or missing parts of the later source, make it inconclusive. New collections do not
        count: they have no earlier value.
        """
        gates = {change.gate(limit) for change in self.changes}
        if "fail" in gates:
            return "fail"
        hidden = bool(self.vanished and not allow_vanished) or bool(self.after.missing.count)
        return "inconclusive" if "inconclusive" in gates or hidden else "pass"


def compare_documents(before: AuditDocument, after: AuditDocument) -> AuditDiff:
    """Compare two audits of a data set, collection by collection, matched by name."""
    if before.attribute != after.attribute:
        raise MismatchError(
            f"the audits have different attributes: '{printable(before.attribute)}' before, "
            f"'{printable(after.attribute)}' after; compare audits of the same attribute"
        )
    if before.groups != after.groups:
        reordered = set(before.groups) == set(after.groups)
        todo = "give both audits the same --groups" if reordered else "compare audits of the same groups"
        what = "the groups in another order" if reordered else "different groups"
        orders = [", ".join(map(printable, document.groups)) for document in (before, after)]
        raise MismatchError(f"the audits have {what}: {orders[0]} before, {orders[1]} after; {todo}")
    # If any of these differs, the errors of the two audits need not be the same.
    facts: list[tuple[str, object, object]] = [
        ("control set", (before.control or "")[:12], (after.control or "unknown")[:12]),
        ("estimator", before.estimator, after.estimator),
        ("encoder", before.encoder or "none", after.encoder or "none"),
        ("seed", before.seed, after.seed),
        ("version of divscore", before.version, after.version),
    ]
    unlike = [
        f"{what} ({printable(str(old))} before, {printable(str(new))} after)"
        for what, old, new in facts
        if old != new
    ]
    if not before.control:
        unlike = ["control set (unknown)"]
    earlier = {entry.name: entry for entry in before.collections}
    notes = []
    if unlike:
        notes.append(
            f"the audits have a different {', '.join(unlike)}. Part of a change may come from that, and the intervals "
            "are added up, which makes them wider"
        )
    if before.confidence != after.confidence:
        notes.append(
            f"confidence {before.confidence:g} before, {after.confidence:g} after: changes are given at "
            f"{min(before.confidence, after.confidence):g}"
        )
    for when, document in (("earlier", before), ("later", after)):
        notes += [f"the {when} audit: {warning}" for warning in document.missing.warning]
    pairs = [(earlier[entry.name], entry) for entry in after.collections if entry.name in earlier]
    if not pairs and len(before.collections) == len(after.collections) == 1:
        pairs = [(before.collections[0], after.collections[0])]
        names = " and ".join(f"'{brief(entry.name)}'" for entry in pairs[0])
        notes.append(f"comparing the only collection of each audit: {names}")
    if not pairs:
        names = ", ".join(
            f"{listed([repr(brief(e.name)) for e in document.collections], 5)} {when}"
            for when, document in (("before", before), ("after", after))
        )
        raise MismatchError(
            f"no collection has the same name in both audits: {names}; there is nothing to compare"
        )
    if not unlike and any(e.refits is None and e.conclusive for pair in pairs for e in pair):
        notes.append(
            "the JSON of some collections has no replicates, so their two intervals are added up, which makes them "
            "wider. Only 'likelihood' writes replicates, and a JSON saved from a report has none"
        )
    if any((b.interval_method == SMALL_SAMPLE) != (a.interval_method == SMALL_SAMPLE) for b, a in pairs):
        notes.append(
            "some intervals of one audit are based on small samples, because many collections shared the memory: part "
            "of the width of a change comes from that; audit fewer collections at a time to avoid it"
        )
    changes = tuple(change_between(b, a, after.groups, paired=not unlike) for b, a in pairs)
    matched = {id(entry) for pair in pairs for entry in pair}
    return AuditDiff(
        before,
        after,
        changes,
        new=tuple(e.name for e in after.collections if id(e) not in matched),
        vanished=tuple(e.name for e in before.collections if id(e) not in matched),
        notes=tuple(notes),
    )
