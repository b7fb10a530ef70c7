"""Axes: the forest plot for matplotlib, for notebooks and papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from divscore.audit.result import Audit
from divscore.report.phrases import short
from divscore.report.picture import Gap, Mark, Picture, disparities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["forest"]

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
            _line(ax, row, at, picture)
    _frame(ax, picture)
    return ax


def _line(ax: Axes, row: Mark, at: int, picture: Picture) -> None:
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
