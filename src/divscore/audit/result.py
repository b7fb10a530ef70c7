"""Audit: the result for one collection."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from divscore.audit.target import Target
from divscore.audit.trust import Copies, Diagnostics, control_facts
from divscore.control.controlset import CROSS, ControlSet
from divscore.control.labelledsample import LabelledSample
from divscore.estimators.interval import Estimate, Interval, Refits
from divscore.estimators.likelihood import summarise
from divscore.sketch.missing import Missing
from divscore.text import as_json, count, exact_percent, finite, joined, percent, percent_ends, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Marginal:
    """One attribute of an intersection: its shares, summed over the other, and its disparity."""

    attribute: str
    shares: dict[str, float]
    disparity: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "attribute": self.attribute,
            "shares": {name: finite(value) for name, value in self.shares.items()},
            "disparity": finite(self.disparity),
            "interval": [self.interval.low, self.interval.high],
        }


@dataclass(frozen=True)
class LabelFacts:
    """The labels of the collection that a result is based on.

    `drawn` is "random" or "pairs". `interval_if_random` leaves out the items without a label, as if they were like the
    others; `batches` is how often items were drawn and labelled.
    """

    labelled: int
    without_label: int
    counts: dict[str, int]
    drawn: str
    batches: int
    interval_if_random: Interval

    @classmethod
    def of(cls, sample: LabelledSample, interval_if_random: Interval) -> LabelFacts:
        """Describe a sample."""
        labelled = int(sample.labelled.sum())
        counts = dict(zip(sample.groups, sample.counts.tolist(), strict=True))
        drawn = "random" if sample.strata is None else "pairs"
        missing = len(sample) - labelled + sample.missing
        return cls(labelled, missing, counts, drawn, sample.batches, interval_if_random)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        interval = [self.interval_if_random.low, self.interval_if_random.high]
        return {**asdict(self), "interval_if_random": interval}


@dataclass(frozen=True)
class Audit:
    """The result of auditing one collection with one control set.

    `disparity` is share(first group) − share(second) for two groups, largest share − smallest for more. `divscore` is
    the paper's Algorithm 1 on the representatives, for comparison, whichever estimator was used. If trust is "poor",
    there are no numbers: shares, disparity and DivScore are NaN, intervals are the whole range. If the collection
    differs from the labelled examples, the intervals allow for that; `if_similar` is the estimate without.
    `from_target` is how far the shares are from the `target`, with its interval. `copies` are items with
    exactly the same vector, `labelled_inside` is the number of labelled examples that are also in the collection.
    `hardest_pair` are the two groups that are hardest to distinguish. `labels` are the labels of the collection itself,
    if the result is based on any. `merged` are groups that the labelled examples do not separate: `shares` has one
    entry for all of them, such as "A or B", and no disparity is known; its interval is what these sums allow.
    `noun` is what the items are: items, pictures, texts. `missing` are the parts of the source that could not be read
    and that belong, or may belong, to the collection.
    """

    name: str
    control: ControlSet
    estimator: str
    confidence: float
    seed: int
    count: int
    skipped: dict[str, int]
    shares: dict[str, float]
    share_intervals: dict[str, Interval]
    disparity: float
    interval: Interval
    divscore: float
    trust: str
    diagnostics: Diagnostics
    warnings: tuple[str, ...]
    target: Target | None = None
    from_target: tuple[float, Interval] | None = None
    copies: Copies = field(default_factory=Copies)
    labelled_inside: int = 0
    hardest_pair: tuple[str, str] = ("", "")
    if_similar: Estimate | None = field(default=None, compare=False, repr=False)
    marginals: tuple[Marginal, ...] = ()
    merged: tuple[tuple[str, ...], ...] = ()
    labels: LabelFacts | None = None
    noun: str = "items"
    missing: Missing = field(default_factory=Missing)
    refits: Refits | None = field(default=None, compare=False, repr=False)

    @property
    def interval_if_similar(self) -> Interval:
        """The interval of the disparity if the collection were like the labelled examples."""
        return self.interval if self.if_similar is None else self.if_similar.interval

    @property
    def differs(self) -> bool:
        """Whether the intervals allow for a difference between the collection and the labelled examples."""
        return self.diagnostics.shift > 0 and self.if_similar is not None

    @property
    def distance(self) -> float:
        """How far the shares are from the target; without one, the disparity."""
        return self.disparity if self.from_target is None else self.from_target[0]

    @property
    def distance_interval(self) -> Interval:
        """The interval of the distance."""
        return self.interval if self.from_target is None else self.from_target[1]

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """The groups that each share is the sum of: normally one."""
        sums = {sum_name(names, self.control.groups): names for names in self.merged}
        return {name: sums.get(name, (name,)) for name in self.shares}

    @property
    def most(self) -> str:
        """The group with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def least(self) -> str:
        """The group with the smallest share."""
        return min(self.shares, key=lambda name: self.shares[name])

    @property
    def wanted(self) -> dict[str, float]:
        """The shares it is held to: the target, or an even split."""
        each = dict.fromkeys(self.control.groups, 1 / len(self.control.groups))
        each = each if self.target is None else self.target.shares
        return {name: math.fsum(map(each.__getitem__, names)) for name, names in self.members.items()}

    @property
    def scarcest(self) -> str:
        """The group with the smallest share, or farthest below its target."""
        return min(self.shares, key=lambda name: self.shares[name] - self.wanted[name])

    @property
    def has_shares(self) -> bool:
        """Whether every group has a share; the DivScore of more than two groups gives none."""
        return all(math.isfinite(share) for share in self.shares.values())

    @property
    def conclusive(self) -> bool:
        """Whether there is an estimate to report."""
        return self.trust != "poor" and (bool(self.merged) or math.isfinite(self.disparity))

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        these = f"{'this' if self.count == 1 else 'these'} {count(self.count, self.noun)}"
        if self.trust == "poor":
            return f"Cannot tell how {printable(self.control.attribute)} is distributed among {these}."
        if not self.has_shares:
            return (
                f"The DivScore of the largest and the smallest group among {these} differs by {self.disparity:.2f}; it "
                "gives no shares."
            )
        first = self.control.groups[0] if len(self.control.groups) == 2 else self.scarcest
        low, high = percent_ends(self.share_intervals[first].low, self.share_intervals[first].high)
        are = "are" if self.noun == "items" else "belong to the group"
        wanted = f"an even split is {percent(self.wanted[first])}"
        if self.target is not None:
            source = f", {printable(self.target.source)}" if self.target.source else ""
            wanted = f"the target is {exact_percent(self.wanted[first])}{source}"
        rest = f"of {these} {are} {printable(first)} ({wanted})."
        if self.interval.is_none:
            return f"About {percent(self.shares[first])} {rest} The method gives no interval."
        return f"Between {low} and {high} {rest}"

    @property
    def noisy_groups(self) -> tuple[str, ...]:
        """Groups with representatives hardly more similar to their own group than to others: DivScore is noise."""
        if self.control.incomplete:
            return ()
        noisy = control_facts(self.control).reference.noisy
        return tuple(name for name, bad in zip(self.control.groups, noisy, strict=True) if bad)

    def to_html(self) -> str:
        """A report for people as one self-contained page."""
        from divscore.report.page import render_html

        return render_html([self])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the shares with their intervals on matplotlib axes, new ones by default."""
        from divscore.report.picture import forest

        return forest([self], ax)

    def _repr_html_(self) -> str:
        from divscore.report.page import fragment

        return fragment([self])

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return as_json(self.to_dict())

    def to_dict(self, *, replicates: bool = False) -> dict[str, Any]:
        """Return the entry of one collection in the JSON document `divscore.audit/1`.

        With `replicates` (about 1.6 KB) the change to a later audit gets the narrowest possible interval.
        """
        entry: dict[str, Any] = {
            "name": self.name,
            "count": self.count,
            "skipped": dict(self.skipped),
            "missing_parts": self.missing.count,
            "shares": {name: finite(value) for name, value in self.shares.items()},
            "share_intervals": {name: [i.low, i.high] for name, i in self.share_intervals.items()},
            "disparity": finite(self.disparity),
            "interval": [self.interval.low, self.interval.high],
            "interval_if_similar": [self.interval_if_similar.low, self.interval_if_similar.high],
            "interval_level": self.interval.level,
            "interval_method": self.interval.method,
            "divscore": finite(self.divscore),
            "trust": self.trust,
            "headline": self.headline,
            "diagnostics": self.diagnostics.to_dict(),
            "hardest_pair": list(self.hardest_pair),
            "copies": asdict(self.copies),
            "labelled_inside": self.labelled_inside,
            "warnings": list(self.warnings),
        }
        if self.target is not None:
            entry["distance"] = finite(self.distance)
            entry["distance_interval"] = [self.distance_interval.low, self.distance_interval.high]
        if self.merged:
            entry["merged"] = [list(names) for names in self.merged]
        elif len(self.shares) > 2 and self.has_shares:
            entry["most"], entry["least"] = self.most, self.least
        if self.labels is not None:
            entry["labels"] = self.labels.to_dict()
        if self.marginals:
            entry["marginals"] = [marginal.to_dict() for marginal in self.marginals]
        if replicates and self.refits is not None:
            series = {
                "disparity": self.refits.disparity,
                "pair": self.refits.pair,
                "outline": self.refits.outline,
            }
            # Four decimals are far finer than any interval, and halve the size of the document.
            entry["replicates"] = {"own": self.refits.own, "shift": self.refits.shift} | {
                key: [round(value, 4) if math.isfinite(value) else None for value in values.tolist()]
                for key, values in series.items()
                if values is not None
            }
        return entry


def headline(audits: Sequence[Audit]) -> str:
    """The result of several collections in one sentence: who is scarce, and where."""
    if len(audits) == 1:
        return audits[0].headline
    first, known = audits[0], [audit for audit in audits if audit.conclusive]
    total = f"{len(audits):,} collections"
    if not known:
        return f"Cannot tell how {printable(first.control.attribute)} is distributed in any of {total}."
    unclear = len(audits) - len(known)
    if any(audit.interval.is_none for audit in known):
        return f"{len(known):,} of {total} have an estimate, by a method without intervals."
    if len(first.control.groups) == 2:
        more = sum(audit.distance_interval.low > 0 for audit in known)
        less = sum(audit.distance_interval.high < 0 for audit in known)
        group, other = map(printable, first.control.groups)
        if first.target is not None:
            other = f"the target of {exact_percent(first.target.shares[first.control.groups[0]])}"
        parts = [(less, f"fewer {group} than {other}"), (more, f"more {group} than {other}")]
        for number, what in parts:
            if number == len(audits):
                return f"{'Both' if number == 2 else f'All {number:,}'} collections have {what}."
        said = [f"{number:,} {'has' if number == 1 else 'have'} {what}" for number, what in parts if number]
        start, clear = f"Of {total}, ", more + less
    else:
        scarce = Counter(
            audit.scarcest for audit in known if audit.has_shares and audit.distance_interval.low > 0
        )
        where = "The smallest group" if first.target is None else "The group farthest below its target"
        if first.target is None and any(audit.merged for audit in known):
            where = "The group farthest below an even split"
        names = [(printable(name), number) for name, number in scarce.most_common()]
        if len(names) == 1 and names[0][1] == len(audits):
            all_ = "both" if len(audits) == 2 else f"all {len(audits):,}"
            return f"{where} is {names[0][0]} in {all_} collections."
        said, start, clear = [], f"Of {total}, ", scarce.total()
        if names:
            counted = [f"{name} in {number:,}" for name, number in names]
            counted[0] += f" of {total}"
            start = f"{where} is {joined(counted)}; "
    if clear < len(known):
        said.append(f"{len(known) - clear:,} may be {'even' if first.target is None else 'on target'}")
    if unclear:
        said.append(f"{unclear:,} {'is' if unclear == 1 else 'are'} inconclusive")
    return f"{start}{joined(said)}".removesuffix("; ") + "."


def sum_name(names: Sequence[str], groups: Sequence[str]) -> str:
    """The name of what some groups have together: "A or B"; not one that another of the `groups` has."""
    name = joined(names, "or")
    while len(names) > 1 and name in groups:
        name += " (sum)"
    return name


def marginals(control: ControlSet, estimate: Estimate, confidence: float) -> tuple[Marginal, ...]:
    """Sum an intersection's shares, and their replicates, over all but one of its attributes.

    An attribute is left out if groups that differ in it cannot be distinguished.
    """
    attributes = control.attribute.split(CROSS)
    parts = [name.split(CROSS) for name in control.groups]
    if len(attributes) < 2 or any(len(p) != len(attributes) for p in parts) or estimate.replicates is None:
        return ()
    clusters = estimate.clusters or tuple((at,) for at in range(len(parts)))
    results = []
    for at, attribute in enumerate(attributes):
        names = list(dict.fromkeys(p[at] for p in parts))
        values = [{parts[group][at] for group in cluster} for cluster in clusters]
        if max(map(len, values)) > 1:
            continue
        member = np.array([[name in each for each in values] for name in names], dtype=float)
        summed = summarise(member @ estimate.shares, estimate.replicates @ member.T, confidence)
        shares = dict(zip(names, summed.shares.tolist(), strict=True))
        results.append(Marginal(attribute, shares, summed.disparity, summed.interval))
    return tuple(results)
