"""What a plot shows, as data for the page's SVG; and the same plot for matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from divscore.audit.result import Audit
from divscore.report.listing import (
    disparity_range,
    disparity_text,
    interval_title,
    share_range,
    tooltip,
)
from divscore.text import brief, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL = 30  # up to so many collections are all drawn
END = 12  # of more, so many at either end
NAME = 30  # characters of a name
INCONCLUSIVE = "inconclusive"
BAR, MARK, QUIET, LIMIT = "#5c92c7", "#0b3f75", "#59616b", "#a8261d"


@dataclass(frozen=True)
class Mark:
    """A line of a plot: interval and estimate where there are any, the DivScore, and both as text."""

    label: str
    title: str
    ends: tuple[float, float] | None
    value: float | None
    divscore: float | None
    figure: str
    range: str

    @property
    def text(self) -> str:
        """Estimate and interval."""
        return f"{self.figure} ({self.range})" if self.range else self.figure


@dataclass(frozen=True)
class Break:
    """Stands for collections that are in the table only."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A forest plot: lines on an axis from `low` to `high`; `even` is where an even split is."""

    title: str
    description: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    left: str
    right: str
    even: float
    limits: tuple[float, ...]
    limit_label: str
    rows: tuple[Mark | Break, ...]
    level: str

    @property
    def estimates(self) -> list[Mark]:
        """The lines that have an estimate."""
        return [row for row in self.rows if isinstance(row, Mark) and row.value is not None]

    @property
    def has_intervals(self) -> bool:
        """Whether any estimate has an interval."""
        return any(row.ends for row in self.estimates)

    @property
    def has_divscores(self) -> bool:
        """Whether any line shows a DivScore."""
        return any(row.divscore is not None for row in self.estimates)

    @property
    def has_inconclusive(self) -> bool:
        """Whether a line has no estimate."""
        return any(isinstance(row, Mark) and row.value is None for row in self.rows)


def pictures(audits: Sequence[Audit], limit: float | None) -> tuple[Picture, ...]:
    """The plots of a report, the most important first: shares of one collection with many groups, and disparities."""
    first = audits[0]
    by_group = len(audits) == 1 and len(first.shares) > 2 and first.has_shares
    return (*([shares(first)] if by_group else []), disparities(audits, limit))


def disparities(audits: Sequence[Audit], limit: float | None) -> Picture:
    """Collections sorted by disparity, inconclusive ones last; of many, those at both ends."""
    first = audits[0]
    two = len(first.shares) == 2
    known = sorted((a for a in audits if a.conclusive), key=lambda a: (a.disparity, a.name))
    unknown = sorted((a for a in audits if not a.conclusive), key=lambda a: a.name)
    rows: list[Mark | Break] = [_mark(a) for a in known]
    if len(audits) > ALL and len(known) > ALL:
        rows[END:-END] = [Break(f"{len(known) - 2 * END:,} collections in between: see the table")]
    room = len(unknown) if len(audits) <= ALL else max(ALL - len(known), 0)
    rows += [_mark(a) for a in unknown[:room]]
    if len(unknown) > room:
        more = "more " if room else ""
        rows.append(Break(f"{len(unknown) - room:,} {more}{INCONCLUSIVE} collections: see the table"))
    spoken = [f"{brief(a.name, 40)} {_mark(a).text}" for a in known[:1] + known[1:][-1:]]
    described = [f"Disparity: {' to '.join(spoken)}."] if known else []
    if unknown:
        described.append(f"{len(unknown):,} {INCONCLUSIVE}.")
    names = [brief(name, 24) for name in first.control.groups]
    return Picture(
        title=f"Disparity of {brief(first.control.attribute, 60)}",
        description=" ".join([*described, "The table below the plot has all numbers."]),
        low=-1.0 if two else 0.0,
        high=1.0,
        ticks=_ticks(-1.0 if two else 0.0, lambda value: disparity_text(value, len(first.shares))),
        left=f"more {names[1]}" if two else "all groups equal",
        right=f"more {names[0]}" if two else "only one group",
        even=0.0,
        limits=() if limit is None else (-limit, limit) if two else (limit,),
        limit_label="" if limit is None else f"limit {'±' if two else ''}{limit:g}",
        rows=tuple(rows),
        level=interval_title(first.interval, none="no interval"),
    )


def shares(audit: Audit) -> Picture:
    """The groups of one collection, each with its share; for three groups or more."""
    rows = []
    for name, share in audit.shares.items():
        interval = audit.share_intervals[name]
        rows.append(
            Mark(
                label=brief(name, NAME),
                title=tooltip(name),
                ends=None if interval.is_none else (interval.low, interval.high),
                value=share if audit.conclusive and math.isfinite(share) else None,
                divscore=None,
                figure=percent(share) if audit.conclusive else INCONCLUSIVE,
                range=share_range(interval) if audit.conclusive and not interval.is_none else "",
            )
        )
    return Picture(
        title=f"Shares by {brief(audit.control.attribute, 60)}",
        description=f"Estimated share of each group: {'; '.join(f'{row.label} {row.text}' for row in rows)}.",
        low=0.0,
        high=1.0,
        ticks=_ticks(0.0, percent),
        left="none",
        right="all",
        even=1 / len(audit.shares),
        limits=(),
        limit_label="",
        rows=tuple(rows),
        level=interval_title(audit.interval, none="no interval"),
    )


def _mark(audit: Audit) -> Mark:
    known, groups, interval = audit.conclusive, len(audit.shares), audit.interval
    scored = math.isfinite(audit.divscore) and audit.estimator != "divscore" and not audit.noisy_groups
    return Mark(
        label=brief(audit.name, NAME),
        title=tooltip(audit.name),
        ends=None if known and interval.is_none else (interval.low, interval.high),
        value=audit.disparity if known else None,
        divscore=audit.divscore if known and scored else None,
        figure=disparity_text(audit.disparity, groups) if known else INCONCLUSIVE,
        range=disparity_range(interval, groups) if known and not interval.is_none else "",
    )


def _ticks(start: float, text: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    step = (1 - start) / 4
    return tuple((start + i * step, text(start + i * step)) for i in range(5))


def forest(audits: Sequence[Audit], ax: Axes | None = None, *, limit: float | None = None) -> Axes:
    """Draw disparities with intervals on matplotlib axes; of many collections, those at both ends.

    Parameters
    ----------
    audits : sequence of Audit
        Made with one control set.
    ax : Axes, optional
        Where to draw; a new figure by default.
    limit : float, optional
        Mark the largest disparity that is acceptable.
    """
    picture = disparities(audits, limit)
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7, 1.3 + 0.32 * len(picture.rows)), layout="constrained")
    names = []
    for at, row in enumerate(picture.rows):
        if isinstance(row, Break):
            names.append(f"⋯ {row.text} ⋯")
            continue
        names.append(brief(row.label, 24))  # the axes get the space that the names leave
        if row.ends is not None:
            color, width, dash = (QUIET, 1.5, ":") if row.value is None else (BAR, 4.0, "-")
            ax.plot(row.ends, [at, at], color=color, lw=width, ls=dash, solid_capstyle="round", zorder=2)
        if row.divscore is not None:
            place = min(max(row.divscore, picture.low), picture.high)
            shape = "D" if place == row.divscore else ">" if row.divscore > place else "<"
            ax.plot(place, at, shape, ms=6, mfc="white", mec=QUIET, zorder=3, clip_on=False)
        if row.value is not None:
            ax.plot(row.value, at, "o", ms=7, color=MARK, zorder=4)
        else:
            middle = (picture.low + picture.high) / 2
            ax.text(middle, at - 0.12, row.figure, ha="center", va="bottom", color=QUIET, fontsize="small")
    ax.axvline(picture.even, color=QUIET, lw=1, zorder=1)
    for value in picture.limits:
        ax.axvline(value, color=LIMIT, lw=1, ls="--", zorder=1)
    ax.set_yticks(range(len(names)), names, parse_math=False)  # a dollar sign in a name starts no formula
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(picture.low - 0.04, picture.high + 0.04)
    ax.set_xticks([value for value, _ in picture.ticks], [text for _, text in picture.ticks])
    ax.set_xlabel(f"disparity, {picture.level}")
    ax.set_title(f"← {picture.left}", loc="left", fontsize="medium", parse_math=False)
    ax.set_title(f"{picture.right} →", loc="right", fontsize="medium", parse_math=False)
    ax.tick_params(length=0)
    ax.spines[["top", "left", "right"]].set_visible(False)
    return ax
