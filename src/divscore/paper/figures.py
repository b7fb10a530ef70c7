"""The paper's figures, with our estimators added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from divscore.paper.methods import Method
from divscore.paper.records import Point
from divscore.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLACK",
    "FARTHEST_ERROR",
    "GREY",
    "LOOKS",
    "Look",
    "bound_figure",
    "collection_figure",
    "error_figure",
    "label",
    "panels",
    "save_figure",
    "size_figure",
    "styled",
    "sweep_figure",
    "with_legend",
]


# How figures look: six inches wide, the colours of Okabe and Ito, a marker for every method, legends below.

WIDTH = 6.0
# M. Okabe and K. Ito, "Color Universal Design" (2008); yellow, faint on white, is left out.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#777777"
STYLE: Any = {
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.columnspacing": 1.2,
    "legend.handlelength": 2.2,
    "svg.hashsalt": "divscore",
}


class Look(NamedTuple):
    """Colour, marker and kind of line of a method."""

    colour: str
    marker: str
    line: str = "-"

    @property
    def size(self) -> float:
        """Points of the marker; stars and crosses look smaller than they are."""
        return {"*": 7.0, "P": 5.5}.get(self.marker, 4.5)


LOOKS = {
    "random-balanced": Look(SKY, "o"),
    "random-proportional": Look(ORANGE, "s"),
    "iid": Look(PURPLE, "D"),
    "ss-st": Look(GREY, "v"),
    "adaptive": Look(RED, "^"),
    "likelihood-few": Look(GREEN, "P"),
    "likelihood": Look(BLUE, "*"),
    "rectified": Look(BLACK, "x", ":"),
    "adaptive-0.1": Look(RED, "<", "--"),
    "adaptive-auto": Look(RED, ">", ":"),
    "proportional": Look(ORANGE, "s", "--"),
    "all-balanced": Look(SKY, "D", ":"),
    "dpp": Look(PURPLE, "h", "--"),
    "EMQ": Look(PURPLE, "X", "-."),
    "PACC": Look(GREEN, "d", "-."),
    "KDEyML": Look(BLACK, "p", "-."),
}


def styled() -> AbstractContextManager[None]:
    """Draw with this style and leave the user's settings alone."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def panels(
    down: int, height: float, across: int = 1, *, legend: int = 3, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels on a figure of its own, without pyplot and its global state; room for so many lines of legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, down * height + 0.2 + 0.17 * legend), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=share_y)
    return figure, list(axes.ravel())


def label(axis: Axes, title: str, x: str, y: str) -> None:
    """Name a panel and its axes."""
    plain = printable(title).replace("_", " ")
    # A name of the user's is no formula, whatever dollar signs it has.
    axis.set_title(plain[:1].upper() + plain[1:], loc="left", parse_math=False)
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def with_legend(figure: Figure, axis: Axes, columns: int = 3) -> Figure:
    """Put one legend for all panels below them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    return figure


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as SVG and PNG; the same figure gives the same bytes."""
    written = []
    forms: dict[str, dict[str, Any]] = {"svg": {"metadata": {"Date": None}}, "png": {"dpi": 200}}
    with styled():
        for suffix, options in forms.items():
            path = stem.with_name(f"{stem.name}.{suffix}")
            partial = stem.with_name(f".{stem.name}.partial.{suffix}")
            figure.savefig(partial, format=suffix, facecolor="white", **options)
            partial.replace(path)
            written.append(path)
    return written


TRUTH = "true disparity"
FARTHEST_ERROR = 0.6  # where panels of errors are cut
FARTHEST = 1.6  # estimates beyond are shown as arrows
Curves = Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]]


def sweep_figure(
    points: Sequence[Point],
    methods: Sequence[Method],
    x_labels: Mapping[str, str],
    *,
    limit: float | None = None,
) -> Figure:
    """Mean estimate ± standard error by composition, with the true disparity: the paper's Figure 1.

    A panel for every attribute of `x_labels`. Markers are moved a little to the side, so that they do not hide
    each other.
    """
    with styled():
        figure, axes = panels(len(x_labels), 3.0)
        for axis, (attribute, x_label) in zip(axes, x_labels.items(), strict=True):
            here = [p for p in points if p.attribute == attribute]
            x = sorted({float(p.at) for p in here})
            truth = [float(np.mean([p.truth for p in here if p.at == at])) for at in x]
            axis.plot(x, truth, color=BLACK, linestyle="--", linewidth=1.0, label=TRUTH)
            step = min(np.diff(x), default=1.0)
            for at, method in enumerate(methods):
                _bars(axis, _of(here, method), method, 0.3 * step * _spread(at, len(methods)))
            if limit is not None:
                axis.set_ylim(-limit, limit)
            label(axis, attribute, x_label, "disparity")
        return with_legend(figure, axes[0])


def error_figure(
    points: Sequence[Point],
    methods: Sequence[Method],
    x_labels: Mapping[str, str],
    *,
    limit: float | None = None,
) -> Figure:
    """Mean absolute error by composition: what a single audit is off by, on average."""
    with styled():
        figure, axes = panels(len(x_labels), 2.3)
        for axis, (attribute, x_label) in zip(axes, x_labels.items(), strict=True):
            for method in methods:
                _errors(axis, _of([p for p in points if p.attribute == attribute], method), method)
            axis.set_ylim(0, limit)
            label(axis, attribute, x_label, "mean absolute error")
        return with_legend(figure, axes[0])


def size_figure(
    points: Sequence[Point],
    methods: Sequence[Method],
    attributes: Sequence[str],
    *,
    limit: float = FARTHEST_ERROR,
) -> Figure:
    """Mean estimate ± standard error, and mean absolute error, by the size of the control set."""
    with styled():
        figure, axes = panels(len(attributes), 2.3, across=2, legend=2)
        for row, attribute in enumerate(attributes):
            here = [p for p in points if p.attribute == attribute]
            left, right = axes[2 * row], axes[2 * row + 1]
            truth = float(np.mean([p.truth for p in here])) if here else 0.0
            left.axhline(truth, color=BLACK, linestyle="--", linewidth=1.0, label=TRUTH)
            for at, method in enumerate(methods):
                # A method that mostly cannot tell has no error worth a point.
                some = [p for p in _of(here, method) if p.answers >= p.left_out]
                _bars(left, some, method, 2.4 * _spread(at, len(methods)))
                _errors(right, some, method)
            left.set_ylim(truth - limit, truth + limit)
            right.set_ylim(0, limit)
            label(left, attribute, "size of the control set", "disparity")
            label(right, attribute, "size of the control set", "mean absolute error")
        return with_legend(figure, axes[0], 2)


def bound_figure(curves: Curves, looks: Sequence[str]) -> Figure:
    """Theorem 3.3's bound, drawn in black, and errors that were seen, by size of the control set.

    `looks` names the methods whose looks the other lines get.
    """
    from matplotlib.ticker import FuncFormatter

    with styled():
        figure, axes = panels(1, 2.7, across=len(curves), share_y=True)
        for axis, (attribute, lines) in zip(axes, curves.items(), strict=True):
            for at, (name, (x, y)) in enumerate(lines.items()):
                if not at:
                    axis.plot(x, y, color=BLACK, linestyle="--", marker="s", markersize=3.5, label=name)
                    continue
                look = LOOKS[looks[at - 1]]
                axis.plot(x, y, color=look.colour, marker=look.marker, markersize=look.size, label=name)
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.axhline(2.0, color=GREY, linewidth=0.8)
            axis.annotate(
                "2, the whole range of d", (0.99, 2.2), xycoords=("axes fraction", "data"), color=GREY,
                fontsize=7, ha="right",
            )  # fmt: skip
            label(axis, attribute, "size of the control set", "" if axis is not axes[0] else "error")
        return with_legend(figure, axes[0], 1)


def collection_figure(
    points: Sequence[Point], methods: Sequence[Method], attributes: Sequence[str]
) -> Figure:
    """Mean estimate ± standard deviation of every named collection, with its true disparity."""
    names = list(dict.fromkeys(str(p.at) for p in points))
    limit = max([1.1, *(min(abs(p.mean) + 0.1, FARTHEST) for p in points)])
    with styled():
        tall = 0.6 + len(names) * (0.1 * (len(methods) + 1) if len(names) <= 12 else 0.25)
        figure, axes = panels(1, tall, across=len(attributes), share_y=True)
        for axis, attribute in zip(axes, attributes, strict=True):
            here = [p for p in points if p.attribute == attribute]
            truth = {str(p.at): p.truth for p in here}
            rows = [names.index(name) for name in truth]
            axis.vlines(
                list(truth.values()),
                np.array(rows) - 0.4,
                np.array(rows) + 0.4,
                color=BLACK,
                linewidth=1.6,
                label=TRUTH,
            )
            for at, method in enumerate(methods):
                _across(axis, _of(here, method), names, method, 0.56 * _spread(at, len(methods)), limit)
            axis.set_xlim(-limit, limit)
            axis.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])
            axis.set_yticks(range(len(names)), names)
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.grid(axis="y", visible=False)
            for edge in range(len(names) - 1):
                axis.axhline(edge + 0.5, color="#CCCCCC", linewidth=0.6)
            label(axis, attribute, "disparity", "")
        return with_legend(figure, axes[0], 2)


def _bars(axis: Axes, points: Sequence[Point], method: Method, aside: float) -> None:
    look = LOOKS[method.key]
    axis.errorbar(
        [float(p.at) + aside for p in points],
        [p.mean for p in points],
        yerr=[p.se or 0.0 for p in points],
        color=look.colour,
        marker=look.marker,
        markersize=look.size,
        linestyle=look.line,
        linewidth=0.8,
        elinewidth=1.0,
        capsize=1.5,
        label=method.title,
    )


def _errors(axis: Axes, points: Sequence[Point], method: Method) -> None:
    look = LOOKS[method.key]
    axis.plot(
        [float(p.at) for p in points],
        [p.mae for p in points],
        color=look.colour,
        marker=look.marker,
        markersize=look.size,
        linestyle=look.line,
        linewidth=1.1,
        label=method.title,
    )


def _across(
    axis: Axes, points: Sequence[Point], names: Sequence[str], method: Method, aside: float, limit: float
) -> None:
    """Estimates from left to right; one beyond the limit becomes an arrow at the edge."""
    look = LOOKS[method.key]
    inside = [p for p in points if abs(p.mean) < limit]
    axis.errorbar(
        [p.mean for p in inside],
        [names.index(str(p.at)) + aside for p in inside],
        xerr=[p.sd or 0.0 for p in inside],
        color=look.colour,
        marker=look.marker,
        markersize=look.size,
        linestyle="none",
        elinewidth=0.9,
        label=method.title,
    )
    for p in points:
        if abs(p.mean) >= limit:
            marker = ">" if p.mean > 0 else "<"
            at = 0.97 * limit * np.sign(p.mean), names.index(str(p.at)) + aside
            axis.plot(*at, color=look.colour, marker=marker, markersize=6.0, fillstyle="none")


def _of(points: Sequence[Point], method: Method) -> list[Point]:
    return [p for p in points if p.method == method.key]


def _spread(at: int, count: int) -> float:
    """Positions from −½ to ½."""
    return at / (count - 1) - 0.5 if count > 1 else 0.0
