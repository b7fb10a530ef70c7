"""The plot of a comparison: error by number of labels, or, where there is one number only, method by method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from divscore.paper.comparison import Compared
from divscore.paper.style import LOOKS, label, panels, styled, with_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["comparison_figure"]

FARTHEST = 1.0  # as far off as always saying "all of one group"; what is worse is cut
ERROR = "mean absolute error of the disparity"


def comparison_figure(rows: Sequence[Compared], title: str) -> Figure:
    """Mean absolute errors, cut where a method is far worse than guessing; the title says so."""
    numbers = sorted({row.labels for row in rows})
    cut = f", cut at {FARTHEST:g}" if any(row.summary.mae > FARTHEST for row in rows) else ""
    with styled():
        if len(numbers) == 1:
            figure, axes = panels(1, 0.6 + 0.22 * len(rows), legend=0)
            _bars(axes[0], sorted(rows, key=lambda row: row.summary.mae))
            label(axes[0], f"{title}{cut}", f"{ERROR}, {numbers[0]} labels, ± standard error", "")
            axes[0].set_xlim(0, _limit(rows, with_se=True))
            return figure
        figure, axes = panels(1, 3.2, legend=5)
        for method in dict.fromkeys(row.method for row in rows):
            _curve(axes[0], [row for row in rows if row.method == method])
        axes[0].set_ylim(0, _limit(rows))
        axes[0].set_xticks(numbers)
        label(axes[0], f"{title}{cut}", "labels", ERROR)
        return with_legend(figure, axes[0])


def _limit(rows: Sequence[Compared], *, with_se: bool = False) -> float:
    ends = [row.summary.mae + (row.summary.mae_se or 0.0) * with_se for row in rows]
    return min(FARTHEST, 1.05 * max(0.05, *ends))


def _curve(axis: Axes, rows: Sequence[Compared]) -> None:
    look = LOOKS[rows[0].method]
    axis.plot(
        [row.labels for row in rows],
        [row.summary.mae for row in rows],
        color=look.colour,
        marker=look.marker,
        markersize=look.size,
        linestyle=look.line,
        linewidth=1.1,
        label=rows[0].title,
    )


def _bars(axis: Axes, rows: Sequence[Compared]) -> None:
    """The smallest error on top."""
    axis.barh(
        range(len(rows)),
        [row.summary.mae for row in rows],
        xerr=[row.summary.mae_se or 0.0 for row in rows],
        color=[LOOKS[row.method].colour for row in rows],
        height=0.6,
        error_kw={"elinewidth": 1.0, "capsize": 2.0},
    )
    axis.set_yticks(range(len(rows)), [row.title for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
