"""What a plot shows, as data for the page's SVG; and the same plot for matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from divscore.audit.result import Audit
from divscore.audit.target import judge
from divscore.report.listing import (
    INCONCLUSIVE,
    in_order,
    interval_title,
    listed_groups,
    scarcest_of,
    share_limits,
    share_range,
    tooltip,
)
from divscore.text import brief, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL = 30  # up to so many collections are all drawn
END = 12  # of more, so many at either end
GROUPED = 48  # lines; up to so many, every collection shows all of its groups
NAME = 30  # characters of a name
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)  # between ticks
MOST_STEPS = 8
SHORTEST = 0.3  # of an axis that does not start at 0
BAR, MARK, QUIET, LIMIT = "#5c92c7", "#0b3f75", "#59616b", "#a8261d"


@dataclass(frozen=True)
class Mark:
    """A line of a plot: a share and its interval where there are any, the share wanted, limits, and words.

    `verdict` is "fail" or "outside" for what exceeds a limit, else empty.
    """

    label: str
    title: str
    value: float | None
    ends: tuple[float, float] | None
    wanted: float
    limits: tuple[float, ...]
    figure: str
    range: str
    verdict: str

    @property
    def text(self) -> str:
        """Estimate, interval and verdict."""
        between = f" ({self.range})" if self.range else ""
        return f"{self.figure}{between}{self.verdict and f', {self.verdict}'}"


@dataclass(frozen=True)
class Words:
    """A line of words: the name of a collection above its groups, or a `gap`: collections in the table only."""

    text: str
    verdict: str = ""
    gap: bool = False


@dataclass(frozen=True)
class Picture:
    """A plot of shares: lines on an axis from `low` to `high`, which may be a part of 0 to 100%."""

    title: str
    description: str
    low: float
    high: float
    ticks: tuple[float, ...]
    wanted_label: str
    limit_label: str
    rows: tuple[Mark | Words, ...]
    level: str

    @property
    def marks(self) -> list[Mark]:
        """The lines that are not words."""
        return [row for row in self.rows if isinstance(row, Mark)]

    @property
    def has_intervals(self) -> bool:
        """Whether any estimate has an interval."""
        return any(row.ends for row in self.marks)

    @property
    def same_wanted(self) -> float | None:
        """The share wanted, where it is the same in all lines."""
        values = {row.wanted for row in self.marks}
        return values.pop() if len(values) == 1 else None

    @property
    def zoom(self) -> str:
        """A remark on an axis that does not show all shares."""
        ends = f"{percent(self.low)} to {percent(self.high)}"
        return "" if ends == "0% to 100%" else f"The axis shows {ends} only."


def picture(audits: Sequence[Audit], limit: float | None = None) -> Picture | None:
    """The plot of a report, or None where no share is known.

    One collection: its groups (of two, the first). Several collections: the first of two groups; every group of every
    collection; or, of many collections, the group that is smallest over all.
    """
    first, known = audits[0], [audit for audit in audits if audit.conclusive and audit.has_shares]
    if not known:
        return None
    two, wanted = len(first.control.groups) == 2, "even split" if first.target is None else "target"
    groups = listed_groups(audits)
    group, rows = scarcest_of(audits), list[Mark | Words]()
    title = f"Share of {brief(group, 60)}"
    if len(audits) == 1:
        shown = groups[:1] if two else groups
        rows += [_mark(first, name, limit, by_group=True) for name in shown]
        title = title if two else "Share of each group"
    elif not two and len(audits) * (1 + len(groups)) <= GROUPED:
        for audit in in_order(audits):
            verdict = "fail" if limit is not None and judge(audit, limit).word == "fail" else ""
            rows.append(Words(brief(audit.name, 2 * NAME), verdict if audit.conclusive else INCONCLUSIVE))
            rows += [_mark(audit, name, limit, by_group=True) for name in audit.shares if audit.conclusive]
        title = "Share of each group in every collection"
    else:
        rows += [_mark(audit, group, limit) for audit in in_order(audits)]
        drawn = max(ALL, len(known))
        if unknown := rows[drawn:]:
            more = "more " if drawn > len(known) else ""
            text = f"{len(unknown):,} {more}{INCONCLUSIVE} collections: see the table"
            rows[drawn:] = [Words(text, gap=True)]
        if len(known) > ALL:
            text = f"{len(known) - 2 * END:,} collections in between: see the table"
            rows[END : len(known) - END] = [Words(text, gap=True)]
        if not two:
            where = "smallest" if first.target is None else "farthest below its target"
            if first.target is None and any(audit.merged for audit in known):
                where = "farthest below an even split"
            title += f", the group that is {where} overall"
    low, high, ticks = _axis([row for row in rows if isinstance(row, Mark)])
    spoken = [row for row in rows if isinstance(row, Mark) and row.value is not None]
    if len(spoken) > 12:
        spoken = [spoken[0], spoken[-1]]
    described = "; ".join(f"{row.label} {row.text}" for row in spoken)
    missing = f" {len(audits) - len(known):,} {INCONCLUSIVE}." if len(known) < len(audits) else ""
    limits = "limit for a single group"
    if limit is not None and two:
        limits = "limit: {} to {}".format(*map(percent, share_limits(first, groups[0], limit)))
    return Picture(
        title=title,
        description=f"{title}: {described}.{missing} The table below the plot has all numbers.",
        low=low,
        high=high,
        ticks=ticks,
        wanted_label=wanted,
        limit_label="" if limit is None else limits,
        rows=tuple(rows),
        level=interval_title(first.interval, none="no interval"),
    )


def _mark(audit: Audit, group: str, limit: float | None, *, by_group: bool = False) -> Mark:
    """One group of one collection; `by_group`: the label is the group, and the limits are those of this group alone."""
    known = audit.conclusive and group in audit.shares
    group = group if group in audit.shares else next(iter(audit.shares))
    interval = audit.share_intervals[group]
    limits = (0.0, 1.0) if limit is None else share_limits(audit, group, limit)
    ends = (interval.low, interval.high) if known and not interval.is_none else None
    verdict = ""
    if by_group and ends and (ends[0] > limits[1] or ends[1] < limits[0]):
        verdict = "outside"
    elif limit is not None and not by_group and judge(audit, limit).word == "fail":
        verdict = "fail"
    return Mark(
        label=brief(group if by_group else audit.name, NAME),
        title=tooltip(group if by_group else audit.name),
        value=audit.shares[group] if known else None,
        ends=ends,
        wanted=audit.wanted[group],
        limits=tuple(value for value in limits if 0 < value < 1),
        figure=percent(audit.shares[group]) if known else INCONCLUSIVE,
        range=share_range(interval) if ends else "",
        verdict=verdict,
    )


def _axis(marks: Sequence[Mark]) -> tuple[float, float, tuple[float, ...]]:
    """Round ends that include every value, interval, target and limit; and the ticks between them."""
    values = [mark.wanted for mark in marks]
    for mark in marks:
        values += [*(mark.ends or ()), *mark.limits, *(() if mark.value is None else (mark.value,))]
    least, most = max(min(values), 0.0), min(max(values), 1.0)
    # An axis that nearly reaches 0 or 100% starts or ends there; any other is not too short.
    least = 0.0 if least < (most - least) / 2 else min(least, max((least + most - SHORTEST) / 2, 0.0))
    most = 1.0 if 1 - most < (most - least) / 4 else max(most, least + SHORTEST * (least > 0))
    for step in STEPS:
        low, high = math.floor(round(least / step, 6)), math.ceil(round(most / step, 6))
        if high - low <= MOST_STEPS:
            break
    low, high = (low - 1, high) if low == high else (low, high)
    return low * step, high * step, tuple(round(at * step, 4) for at in range(low, high + 1))


def forest(audits: Sequence[Audit], ax: Axes | None = None, *, limit: float | None = None) -> Axes:
    """Draw shares with intervals on matplotlib axes, new ones by default: the plot of a report.

    A `limit`, the largest acceptable disparity, is marked.
    """
    drawn = picture(audits, limit)
    rows = drawn.rows if drawn else ()
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7, 1.3 + 0.32 * max(len(rows), 1)), layout="constrained")
    ax.tick_params(length=0)
    ax.spines[["top", "left", "right"]].set_visible(False)
    if drawn is None:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.text(0.5, 0.5, INCONCLUSIVE, ha="center", va="center", color=QUIET, transform=ax.transAxes)
        return ax
    names = []
    for at, row in enumerate(rows):
        if isinstance(row, Words):
            names.append(f"⋯ {row.text} ⋯" if row.gap else f"{row.text}{row.verdict and f' ({row.verdict})'}")
            continue
        names.append(brief(row.label, 24))  # the axes get the space that the names leave
        above, below = at - 0.5, at + 0.5
        ax.plot([row.wanted] * 2, [above, below], color=QUIET, lw=1, zorder=1)
        for value in row.limits:
            ax.plot([value] * 2, [above, below], color=LIMIT, lw=1, ls="--", zorder=1)
        bar, mark, shape = (LIMIT, LIMIT, "D") if row.verdict else (BAR, MARK, "o")
        if row.ends is not None:
            ax.plot(row.ends, [at, at], color=bar, lw=4, alpha=0.7, solid_capstyle="round", zorder=2)
        if row.value is not None:
            ax.plot(row.value, at, shape, ms=7, color=mark, zorder=4, clip_on=False)
        else:
            middle = (drawn.low + drawn.high) / 2
            ax.text(middle, at, row.figure, ha="center", va="center", color=QUIET, fontsize="small")
    ax.set_yticks(range(len(names)), names, parse_math=False)  # a dollar sign in a name starts no formula
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(drawn.low, drawn.high)
    ax.set_xticks(drawn.ticks, list(map(percent, drawn.ticks)))
    lines = f"solid line: {drawn.wanted_label}" + (
        f", dashed: {drawn.limit_label}" if limit is not None else ""
    )
    ax.set_xlabel(f"{drawn.level}; {lines}")
    ax.set_title(drawn.title, loc="left", fontsize="medium", parse_math=False)
    return ax
