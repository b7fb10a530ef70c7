"""Picture: what a plot shows, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from divscore.audit.result import Audit
from divscore.estimators.interval import Interval
from divscore.report.prose import (
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NARROW", "WIDE", "Gap", "Mark", "Picture", "disparities", "draw", "forest", "shares", "sliver"]


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


# Draw a Picture as inline SVG: its colours are the page's own, so light, dark and print need no second drawing.

HEAD, FOOT = 44, 30
WORD = 44  # half the width of "balanced", with some air
EDGE = 20  # room for arrows, round ends and half a figure beside the axis


@dataclass(frozen=True)
class Layout:
    """Where things lie: names to the left of the lines and figures to the right, or both above them."""

    name: str
    width: int
    left: int
    right: int
    row: int
    drop: int  # from a row's top to its line
    stacked: bool


WIDE = Layout("wide", 880, 236, 200, 32, 16, False)
NARROW = Layout("narrow", 340, 0, 0, 46, 32, True)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        clipped = min(max(value, self.low), self.high)
        return round(self.start + (clipped - self.low) / (self.high - self.low) * (self.stop - self.start), 1)


def draw(picture: Picture, layout: Layout, key: str) -> Markup:
    """One drawing; `key` makes its ids differ from those of others on the page."""
    if not layout.stacked:
        names = [len(row.label) for row in picture.rows if isinstance(row, Mark)]
        # No font is known here: 8.5 units a letter are ample for most, and longer names are cut.
        layout = replace(layout, left=min(layout.left, max(60, round(8.5 * max(names, default=0)) + 10)))
    scale = _Scale(picture.low, picture.high, layout.left + EDGE, layout.width - layout.right - EDGE)
    foot = HEAD + layout.row * len(picture.rows)
    name = f"{key}-{layout.name}"
    parts = [
        Markup(
            '<svg class="plot {}" role="img" aria-labelledby="{}-t {}-d" viewBox="0 0 {} {}" '
            'xmlns="http://www.w3.org/2000/svg"><title id="{}-t">{}</title><desc id="{}-d">{}</desc>'
        ).format(
            layout.name,
            name,
            name,
            layout.width,
            foot + FOOT,
            name,
            picture.title,
            name,
            picture.description,
        ),
        *_axis(picture, scale, layout, foot),
    ]
    for at, row in enumerate(picture.rows):
        top = HEAD + at * layout.row
        parts.append(_gap(row, layout, top) if isinstance(row, Gap) else _line(row, scale, layout, top, at))
    return Markup("").join([*parts, Markup("</svg>")])


def sliver(bar: tuple[float, float, float], even: float) -> Markup:
    """A share and its interval in a cell of a table; the cell's text has the numbers."""
    return Markup(
        '<svg class="sliver" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="rail" d="M0 5H100"/><path class="even" d="M{0:.1f} 0V10"/>'
        '<path class="bar" d="M{1:.1f} 5H{2:.1f}"/><path class="tick" d="M{3:.1f} 0V10"/></svg>'
    ).format(100 * even, *(100 * end for end in bar))


def _axis(picture: Picture, scale: _Scale, layout: Layout, foot: int) -> list[Markup]:
    bands = _bands(picture, layout, foot)

    def upright(kind: str, value: float) -> Markup:
        x = scale.at(value)
        return Markup('<path class="{}" d="{}"/>').format(kind, "".join(f"M{x} {a}V{b}" for a, b in bands))

    text = Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>')
    parts = [upright("grid", value) for value, _ in picture.ticks]
    parts += [
        text.format("axis", scale.at(value), foot + 21, "middle", label) for value, label in picture.ticks
    ]
    parts.append(upright("zero", picture.reference))
    parts.append(text.format("end", scale.start - 6, 14, "start", f"← {picture.left}"))
    parts.append(text.format("end", scale.stop + 6, 14, "end", f"{picture.right} →"))
    parts += [upright("limit", limit) for limit in picture.limits]
    if picture.limits:
        edge = scale.at(picture.limits[-1])
        # A limit near the right end has its label on the other side of the line.
        where, anchor = (edge - 4, "end") if edge > scale.stop - 80 else (edge + 4, "start")
        parts.append(text.format("axis", where, HEAD - 10, anchor, picture.limit_label))
    if picture.reference > picture.low and _room_for_word(picture, scale):
        parts.append(text.format("axis", scale.at(picture.reference), HEAD - 12, "middle", "balanced"))
    return parts


def _room_for_word(picture: Picture, scale: _Scale) -> bool:
    """Whether "balanced" fits above its line without meeting the label of a limit."""
    return not picture.limits or scale.at(picture.limits[-1]) - scale.at(picture.reference) > WORD


def _bands(picture: Picture, layout: Layout, foot: int) -> list[tuple[int, int]]:
    """From where to where upright lines run: never through words."""
    tops = [HEAD + at * layout.row for at, row in enumerate(picture.rows) if isinstance(row, Mark)]
    if layout.stacked:
        return [*((top + layout.drop - 11, top + layout.drop + 11) for top in tops), (foot, foot + 4)]
    bands = [(HEAD - 6, HEAD)]
    for low, high in [*((top, top + layout.row) for top in tops), (foot, foot + 4)]:
        if low == bands[-1][1]:
            bands[-1] = bands[-1][0], high
        else:
            bands.append((low, high))
    return bands


def _line(row: Mark, scale: _Scale, layout: Layout, top: int, number: int) -> Markup:
    y = top + layout.drop
    parts = [_texts(row, layout, top)]
    if number:
        parts.append(Markup('<path class="rule" d="M0 {}H{}"/>').format(top, layout.width))
    if row.ends is not None:
        kind = "bar" if row.told else "untold"
        parts.append(
            Markup('<path class="{}" d="M{} {}H{}"/>').format(
                kind, scale.at(row.ends[0]), y, scale.at(row.ends[1])
            )
        )
    if row.told and row.hollow is not None:
        parts.append(_hollow(row.hollow, scale, y))
    if row.value is not None:
        parts.append(Markup('<circle class="mark" cx="{}" cy="{}" r="5"/>').format(scale.at(row.value), y))
    return Markup("<g>{}</g>").format(Markup("").join(parts))


def _hollow(value: float, scale: _Scale, y: int) -> Markup:
    """A diamond, or an arrow at the edge where the score lies beyond it."""
    x = scale.at(value)
    if value > scale.high:
        return Markup('<path class="hollow" d="M{} {}l9 5l-9 5z"/>').format(x, y - 5)
    if value < scale.low:
        return Markup('<path class="hollow" d="M{} {}l-9 5l9 5z"/>').format(x, y - 5)
    return Markup('<path class="hollow" d="M{} {}l7 7l-7 7l-7-7z"/>').format(x, y - 7)


def _texts(row: Mark, layout: Layout, top: int) -> Markup:
    base = top + (16 if layout.stacked else layout.drop + 5)
    room = layout.width - 170 if layout.stacked else layout.left - 6
    # An inner drawing cuts off what a narrow column has no room for, whatever the font.
    label = Markup(
        '<svg x="0" y="{}" width="{}" height="{}"><text class="label" y="{}">{}{}</text></svg>'
    ).format(top + 1, room, layout.row - 2, base - top - 1, _tooltip(row.title), row.label)
    spread = Markup(' <tspan class="range">({})</tspan>').format(row.range) if row.range else ""
    kind = "value" if row.told else "value unknown"
    return label + Markup('<text class="{}" x="{}" y="{}">{}{}</text>').format(
        kind, layout.width, base, row.figure, spread
    )


def _tooltip(title: str) -> Markup:
    return Markup("<title>{}</title>").format(title) if title else Markup("")


def _gap(row: Gap, layout: Layout, top: int) -> Markup:
    y = top + layout.row / 2
    return Markup(
        '<g><path class="break" d="M0 {0}H{1}M0 {2}H{1}"/><text class="gap" x="{3}" y="{4}">{5}</text></g>'
    ).format(top + 5, layout.width, top + layout.row - 5, layout.width / 2, y + 4, f"⋯ {row.text} ⋯")


# Axes: the forest plot for matplotlib, for notebooks and papers.

NAME = 24  # letters of a name; the axes get what the names leave
BAR, MARK, QUIET, LIMIT = "#5c92c7", "#0b3f75", "#59616b", "#a8261d"


def forest(audits: Sequence[Audit], ax: Axes | None = None, *, limit: float | None = None) -> Axes:
    """Draw disparities, sorted, with intervals; of many collections those at either end.

    Parameters
    ----------
    audits : sequence of Audit
        Made with one control set.
    ax : Axes, optional
        Where to draw; a new figure of fitting height by default.
    limit : float, optional
        Mark the largest disparity that is wanted.
    """
    picture = disparities(audits, limit)
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7, 1.3 + 0.32 * len(picture.rows)), layout="constrained")
    for at, row in enumerate(picture.rows):
        if isinstance(row, Mark):
            _line_axes(ax, row, at, picture)
    _frame(ax, picture)
    return ax


def _line_axes(ax: Axes, row: Mark, at: int, picture: Picture) -> None:
    style = {"color": BAR, "lw": 4} if row.told else {"color": QUIET, "lw": 1.5, "ls": ":"}
    if row.ends is not None:
        ax.plot(row.ends, [at, at], solid_capstyle="round", zorder=2, **style)  # type: ignore[arg-type]
    if row.told and row.hollow is not None:
        inside = picture.low <= row.hollow <= picture.high
        shape = "D" if inside else (">" if row.hollow > picture.high else "<")
        place = min(max(row.hollow, picture.low), picture.high)
        ax.plot(place, at, shape, ms=6, mfc="white", mec=QUIET, zorder=3, clip_on=False)
    if row.value is not None:
        ax.plot(row.value, at, "o", ms=7, color=MARK, zorder=4)
    else:
        middle = (picture.low + picture.high) / 2
        ax.text(middle, at - 0.12, row.figure, ha="center", va="bottom", color=QUIET, fontsize="small")


def _frame(ax: Axes, picture: Picture) -> None:
    ax.axvline(picture.reference, color=QUIET, lw=1, zorder=1)
    for limit in picture.limits:
        ax.axvline(limit, color=LIMIT, lw=1, ls="--", zorder=1)
    # Names are text: a dollar sign in one starts no formula.
    names = [f"⋯ {row.text} ⋯" if isinstance(row, Gap) else short(row.label, NAME) for row in picture.rows]
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(picture.low - 0.04, picture.high + 0.04)
    ax.set_xticks([value for value, _ in picture.ticks], [text for _, text in picture.ticks])
    ax.set_xlabel(f"disparity, {picture.level}")
    ax.set_title(f"← {picture.left}", loc="left", fontsize="medium", parse_math=False)
    ax.set_title(f"{picture.right} →", loc="right", fontsize="medium", parse_math=False)
    ax.tick_params(length=0)
    ax.spines[["top", "left", "right"]].set_visible(False)
