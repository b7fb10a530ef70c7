"""Picture: what a plot shows, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from divscore.audit.result import Audit
from divscore.estimators.interval import Interval
from divscore.report.phrases import (
    gap,
    interval_level,
    limits,
    percent,
    percents,
    plain,
    short,
    signed,
    whole,
    without,
)

__all__ = ["Gap", "Mark", "Picture", "disparities", "shares"]

ALL = 30  # collections of which all are drawn
END = 12  # and else so many at either end


@dataclass(frozen=True)
class Mark:
    """A line of a plot: the ends of an interval, where there is one, the estimate in it, and the DivScore."""

    label: str
    title: str
    ends: tuple[float, float] | None
    value: float | None
    hollow: float | None
    figure: str
    range: str

    @property
    def told(self) -> bool:
        """Whether there is an estimate to draw."""
        return self.value is not None


@dataclass(frozen=True)
class Gap:
    """A break in the order: collections that are in the table only."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A forest plot: lines on a common axis from `low` to `high`, with the reference that means balance."""

    title: str
    description: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    left: str
    right: str
    reference: float
    limits: tuple[float, ...]
    limit_label: str
    rows: tuple[Mark | Gap, ...]
    level: str

    @property
    def hollow(self) -> bool:
        """Whether any line shows a DivScore."""
        return any(isinstance(row, Mark) and row.told and row.hollow is not None for row in self.rows)

    @property
    def told(self) -> bool:
        """Whether any line has an estimate."""
        return any(isinstance(row, Mark) and row.told for row in self.rows)

    @property
    def barred(self) -> bool:
        """Whether any estimate has an interval."""
        return any(isinstance(row, Mark) and row.told and row.ends is not None for row in self.rows)

    @property
    def untold(self) -> bool:
        """Whether a line has no estimate."""
        return any(isinstance(row, Mark) and not row.told for row in self.rows)


def disparities(audits: Sequence[Audit], limit: float | None) -> Picture:
    """Collections in the order of their disparity; of many, those at the two ends."""
    first = audits[0]
    two = len(first.shares) == 2
    told = sorted((a for a in audits if _is_told(a)), key=lambda a: (a.disparity, a.name))
    untold = sorted((a for a in audits if not _is_told(a)), key=lambda a: a.name)
    names = [short(name, 24) for name in first.control.groups]
    return Picture(
        title=f"Disparity of {short(first.control.attribute)}",
        description=_description(told, untold),
        low=-1.0 if two else 0.0,
        high=1.0,
        ticks=_ticks(-1.0, 0.5, signed) if two else _ticks(0.0, 0.25, plain),
        left=f"more {names[1]}" if two else "all groups alike",
        right=f"more {names[0]}" if two else "only one group",
        reference=0.0,
        limits=() if limit is None else ((-limit, limit) if two else (limit,)),
        limit_label="" if limit is None else f"limit {'±' if two else ''}{limit:g}",
        rows=tuple(_rows(told, untold)),
        level=_level(first),
    )


def shares(audit: Audit) -> Picture:
    """Groups of one collection, each with its share; for three groups or more."""
    even = 1 / len(audit.shares)
    told = _is_told(audit)
    rows = tuple(
        Mark(
            label=short(name, 30),
            title=whole(name),
            ends=_ends(audit.share_intervals[name], told),
            value=share if told and math.isfinite(share) else None,
            hollow=None,
            figure=percent(share) if told else "cannot tell",
            range=percents(audit.share_intervals[name]) if told and not without(audit.interval) else "",
        )
        for name, share in audit.shares.items()
    )
    spoken = "; ".join(f"{row.label} {_spoken(row)}" for row in rows)
    return Picture(
        title=f"Shares by {short(audit.control.attribute)}",
        description=f"Estimated share of each group with its interval: {spoken}.",
        low=0.0,
        high=1.0,
        ticks=_ticks(0.0, 0.25, percent),
        left="none",
        right="all",
        reference=even,
        limits=(),
        limit_label="",
        rows=rows,
        level=_level(audit),
    )


def mark(audit: Audit) -> Mark:
    """One collection's line."""
    told = _is_told(audit)
    shows = math.isfinite(audit.divscore) and audit.estimator != "divscore" and not audit.noisy_groups
    return Mark(
        label=short(audit.name, 30),
        title=whole(audit.name),
        ends=_ends(audit.interval, told),
        value=audit.disparity if told else None,
        hollow=audit.divscore if shows else None,
        figure=gap(audit.disparity, len(audit.shares)) if told else "cannot tell",
        range=limits(audit.interval, len(audit.shares)) if told and not without(audit.interval) else "",
    )


def _ends(interval: Interval, told: bool) -> tuple[float, float] | None:
    return None if told and without(interval) else (interval.low, interval.high)


def _level(audit: Audit) -> str:
    return "no interval" if without(audit.interval) else interval_level(audit.interval)


def _is_told(audit: Audit) -> bool:
    return audit.trust != "poor" and math.isfinite(audit.disparity)


def _rows(told: Sequence[Audit], untold: Sequence[Audit]) -> list[Mark | Gap]:
    if len(told) + len(untold) <= ALL:
        return [mark(a) for a in (*told, *untold)]
    rows: list[Mark | Gap]
    if len(told) <= ALL:
        rows = [mark(a) for a in told]
    else:
        between = len(told) - 2 * END
        rows = [mark(a) for a in told[:END]]
        rows.append(Gap(f"{between:,} collections in between: see the table"))
        rows += [mark(a) for a in told[-END:]]
    if untold:
        spare = max(ALL - len(told), 0)
        rows += [replace(mark(a), hollow=None) for a in untold[:spare]]
        more = "more " if spare else ""
        if len(untold) > spare:
            rows.append(Gap(f"{len(untold) - spare:,} {more}collections cannot be told: see the table"))
    return rows


def _ticks(start: float, step: float, text: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    number = round((1 - start) / step)
    return tuple((start + i * step, text(start + i * step)) for i in range(number + 1))


def _spoken(row: Mark) -> str:
    return f"{row.figure} ({row.range})" if row.range else row.figure


def _description(told: Sequence[Audit], untold: Sequence[Audit]) -> str:
    said = []
    if told:
        ends = [told[0]] if len(told) == 1 else [told[0], told[-1]]
        each = [f"{short(a.name, 40)} {_spoken(mark(a))}" for a in ends]
        how = "" if without(told[0].interval) else " with its interval"
        said.append(f"Disparity{how}: {' to '.join(each)}.")
    if untold:
        said.append(f"{len(untold):,} cannot be told.")
    return " ".join([*said, "The table below the plot has all numbers."])
