"""The figures of experiments and comparisons: six inches wide, small panels, at most four lines in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from divscore.files import atomic_file
from divscore.paper.methods import Method
from divscore.paper.records import Accuracy
from divscore.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

WIDTH = 6.0
MOST = 4  # lines in a panel, and small panels side by side
# M. Okabe and K. Ito, "Color Universal Design" (2008), without yellow, which is faint on white.
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
    "svg.hashsalt": "divscore",  # the same figure gives the same bytes
    "svg.fonttype": "none",  # text stays text
}
TRUTH = "true disparity"
FARTHEST_ERROR = 0.6  # where panels of errors are cut
FARTHEST = 1.6  # estimates farther out become arrows
WORST = 1.0  # where comparisons are cut: as wrong as always saying "all of one group"
ERROR = "mean absolute error of the disparity"


LOOKS = {  # colour and marker of every method
    "random-balanced": (SKY, "o"),
    "random-proportional": (ORANGE, "s"),
    "iid": (PURPLE, "D"),
    "ss-st": (GREY, "v"),
    "adaptive": (RED, "^"),
    "likelihood-few": (GREEN, "P"),
    "likelihood": (BLUE, "*"),
    "rectified": (BLACK, "x"),
}


@contextmanager
def _styled() -> Iterator[None]:
    """Draw with this style and leave the user's settings alone; also a decorator."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


@_styled()
def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as SVG and PNG."""
    forms: dict[str, dict[str, Any]] = {"svg": {"metadata": {"Date": None}}, "png": {"dpi": 200}}
    paths = []
    for suffix, options in forms.items():
        paths.append(stem.with_name(f"{stem.name}.{suffix}"))
        with atomic_file(paths[-1]) as temporary:
            figure.savefig(temporary, format=suffix, facecolor="white", **options)
        figure.set_layout_engine(None)  # found once, which takes longer than drawing
    return paths


@_styled()
def sweep_figure(
    points: Sequence[Accuracy],
    methods: Sequence[Method],
    x_labels: Mapping[str, str],
    limit: float | None = None,
) -> Figure:
    """Mean estimate ± standard deviation by composition, with the true disparity: the paper's Figure 1.

    One panel a method, in a block for every attribute of `x_labels`.
    """
    figure, blocks = _blocks([0.5 + 1.35 * -(-len(methods) // MOST)] * len(x_labels))
    for block, (attribute, x_label) in zip(blocks, x_labels.items(), strict=True):
        _estimates(block, attribute, points, methods, x_label, (-limit, limit) if limit else None)
    return _with_legend(figure, axes=figure.axes)


@_styled()
def error_figure(
    points: Sequence[Accuracy], methods: Sequence[Method], x_labels: Mapping[str, str]
) -> Figure:
    """Mean absolute error by composition: how wrong a single audit is, on average.

    One row of panels for methods that need as many labels, one panel an attribute.
    """
    by_cost: dict[str, list[Method]] = {}
    for method in methods:
        once = f"{method.labels} labels, for all collections together"
        cost = f"{method.sampled} new labels in every collection" if method.sampled else once
        by_cost.setdefault(cost, []).append(method)
    rows = [(cost, some[i : i + MOST]) for cost, some in by_cost.items() for i in range(0, len(some), MOST)]
    # The first row has the names of the attributes, the last what x is.
    heights = [1.75 + 0.2 * (row is rows[0]) + 0.35 * (row is rows[-1]) for row in rows]
    figure, blocks = _blocks(heights, legend=0)
    wrapped = {name: fill(text, 84 // len(x_labels)) for name, text in x_labels.items()}
    for block, row in zip(blocks, rows, strict=True):
        x = wrapped if row is rows[-1] else dict.fromkeys(x_labels, "")
        _errors(block, points, row[1], x, row[0], titles=row is rows[0])
    return figure


@_styled()
def size_figure(points: Sequence[Accuracy], methods: Sequence[Method], attributes: Sequence[str]) -> Figure:
    """Mean estimate ± standard deviation, and mean absolute error, by the size of the control set."""
    figure, blocks = _blocks([1.9] * len(attributes) + [2.1])
    mostly = [p for p in points if p.mostly_answers]
    for block, attribute in zip(blocks, attributes, strict=False):
        truth = float(np.mean([p.truth for p in points if p.attribute == attribute] or [0.0]))
        ends = truth - FARTHEST_ERROR, truth + FARTHEST_ERROR
        _estimates(block, attribute, mostly, methods, "size of the control set", ends)
    _errors(blocks[-1], mostly, methods, dict.fromkeys(attributes, "size of the control set"))
    return _with_legend(figure, axes=blocks[0].axes)


@_styled()
def bound_figure(points: Sequence[Accuracy], bounds: Mapping[str, Callable[[int], float]]) -> Figure:
    """Theorem 3.3's bound, in black, and measured errors by size of the control set.

    `bounds` gives, for every attribute, the bound for a size.
    """
    from matplotlib.ticker import FuncFormatter

    figure, axes = _panels(2.7, len(bounds))
    for axis, (attribute, bound) in zip(axes, bounds.items(), strict=True):
        here = [p for p in points if p.attribute == attribute]
        sizes = sorted({float(p.at) for p in here})
        style: Any = {"color": BLACK, "linestyle": "--", "marker": "s", "markersize": 3.5}
        axis.plot(sizes, [bound(int(size)) for size in sizes], label="Theorem 3.3", **style)
        for method, title in (
            ("random-balanced", "DivScore-Random-Balanced"),
            ("likelihood-few", "likelihood with the same labels"),
        ):
            mine = [p for p in here if p.method == method and p.mostly_answers]
            x, y = [float(p.at) for p in mine], [p.quantile for p in mine]
            axis.plot(x, y, label=f"{title}, 0.9 quantile of the error", **_look(method))
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.axhline(2.0, color=GREY, linewidth=0.8)
        axis.annotate(
            "2, the whole range of d", (0.99, 2.2), xycoords=("axes fraction", "data"), color=GREY,
            fontsize=7, ha="right",
        )  # fmt: skip
        _label(axis, attribute, "size of the control set", "" if axis is not axes[0] else "error")
    return _with_legend(figure, 1)


@_styled()
def collection_figure(
    points: Sequence[Accuracy], methods: Sequence[Method], attributes: Sequence[str]
) -> Figure:
    """Mean estimate ± standard deviation of every named collection, with its true disparity.

    An estimate beyond the limit becomes an arrow at the edge.
    """
    names = list(dict.fromkeys(str(p.at) for p in points))
    limit = max([1.1, *(min(abs(p.mean) + 0.1, FARTHEST) for p in points)])
    tall = 0.6 + len(names) * (0.1 * (len(methods) + 1) if len(names) <= 12 else 0.25)
    figure, axes = _panels(tall, len(attributes))
    for axis, attribute in zip(axes, attributes, strict=True):
        here = [p for p in points if p.attribute == attribute]
        truth = {str(p.at): p.truth for p in here}
        rows = np.array([names.index(name) for name in truth])
        axis.vlines(list(truth.values()), rows - 0.4, rows + 0.4, color=BLACK, linewidth=1.6, label=TRUTH)
        for at, method in enumerate(methods):
            style = _look(method.key) | {"linestyle": "none"}
            mine = [
                (p, names.index(str(p.at)) + 0.75 * ((at + 0.5) / len(methods) - 0.5))
                for p in here
                if p.method == method.key
            ]
            inside = [(p, y) for p, y in mine if abs(p.mean) < limit]
            x, bars = [p.mean for p, _ in inside], [p.sd or 0.0 for p, _ in inside]
            axis.errorbar(x, [y for _, y in inside], xerr=bars, elinewidth=0.9, label=method.title, **style)
            for p, y in mine:
                if abs(p.mean) >= limit:
                    arrow = {"color": style["color"], "marker": ">" if p.mean > 0 else "<", "markersize": 6.0}
                    axis.plot(0.97 * limit * np.sign(p.mean), y, fillstyle="none", **arrow)
        axis.set_xlim(-limit, limit)
        axis.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0])
        _rows(axis, names)
        for edge in range(len(names) - 1):
            axis.axhline(edge + 0.5, color="#CCCCCC", linewidth=0.6)
        _label(axis, attribute, "disparity", "")
    return _with_legend(figure, 2)


@_styled()
def comparison_figure(rows: Sequence[tuple[Method, Accuracy]], title: str) -> Figure:
    """Mean absolute error ± standard error: a bar a number of labels, methods sorted by that with most labels.

    Errors are cut at 1; the title says so, and a cut bar ends in its number.
    """
    from matplotlib import colormaps

    numbers = sorted({method.labels for method, _ in rows})
    title += f", cut at {WORST:g}" if any(accuracy.mae > WORST for _, accuracy in rows) else ""
    limit = min(WORST, 1.05 * max(0.05, *(accuracy.mae + (accuracy.mae_se or 0.0) for _, accuracy in rows)))
    ranked = sorted(rows, key=lambda row: (-row[0].labels, row[1].mae))
    names = list(dict.fromkeys(method.title for method, _ in ranked))
    height = 0.8 / len(numbers)
    colours = colormaps["viridis_r"](np.linspace(0.8, 0.2, len(numbers))[::-1])
    figure, (axis,) = _panels(0.6 + (0.1 + 0.12 * len(numbers)) * len(names), legend=len(numbers) > 1)
    for at, number in enumerate(numbers):
        mine = [(m.title, s.mae, s.mae_se or 0.0) for m, s in ranked if m.labels == number]
        y = [names.index(name) + (at + 0.5) * height - 0.4 for name, _, _ in mine]
        errors, bars = [error for _, error, _ in mine], [bar for _, _, bar in mine]
        style: Any = {"color": colours[at], "error_kw": {"elinewidth": 0.8, "capsize": 1.5}}
        axis.barh(y, errors, 0.9 * height, xerr=bars, label=f"{number} labels", **style)
        for where, error in zip(y, errors, strict=True):
            if error > WORST:
                axis.text(1.01 * limit, where, f"▸ {error:.2g}", va="center", fontsize=6.5)
    _rows(axis, names)
    axis.set_xlim(0, limit)
    alone = f", {numbers[0]} labels" if len(numbers) == 1 else ""
    _label(axis, title, f"{ERROR}{alone}, ± standard error", "")
    return _with_legend(figure, len(numbers)) if len(numbers) > 1 else figure


def _look(method: str) -> dict[str, Any]:
    """Options of matplotlib; stars and crosses look smaller than they are."""
    colour, marker = LOOKS[method]
    return {"color": colour, "marker": marker, "markersize": {"*": 7.0, "P": 5.5}.get(marker, 4.5)}


def _panels(height: float, across: int = 1, legend: int = 3) -> tuple[Figure, list[Axes]]:
    """Panels side by side."""
    figure = _figure(height, legend)
    return figure, list(figure.subplots(1, across, squeeze=False, sharey=True).ravel())


def _blocks(heights: Sequence[float], legend: int = 1) -> tuple[Figure, list[SubFigure]]:
    """Blocks one below the other, for panels with a title or legend of their own."""
    figure = _figure(sum(heights), legend)
    return figure, list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights).ravel())


def _figure(height: float, legend: int) -> Figure:
    """A figure without pyplot and its global state, with room for so many lines of legend."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height + 0.2 + 0.17 * legend), layout="constrained")


def _label(axis: Axes, title: str, x: str, y: str) -> None:
    # A name given by the user is no formula, even if it has dollar signs.
    axis.set_title(_heading(title), loc="left", parse_math=False)
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def _heading(title: str) -> str:
    plain = printable(title).replace("_", " ")
    return plain[:1].upper() + plain[1:]


def _with_legend(figure: Figure, columns: int = 3, axes: Sequence[Axes] = ()) -> Figure:
    """Put one legend below the panels, with the entries of all `axes`, by default those of the first panel."""
    panels = [axis.get_legend_handles_labels() for axis in axes or figure.axes[:1]]
    entries = {text: handle for panel in panels for handle, text in zip(*panel, strict=True)}
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)
    return figure


def _rows(axis: Axes, names: Sequence[str]) -> None:
    """One row a name, the first on top."""
    axis.set_yticks(range(len(names)), list(names))
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)


def _estimates(
    block: SubFigure,
    attribute: str,
    points: Sequence[Accuracy],
    methods: Sequence[Method],
    x_label: str,
    ends: tuple[float, float] | None,
) -> None:
    """One panel a method, all with the same axes: mean, a band of one standard deviation, and the truth."""
    here = [p for p in points if p.attribute == attribute]
    truth = sorted({float(p.at): p.truth for p in here}.items())
    shape = -(-len(methods) // MOST), min(len(methods), MOST)
    axes = list(block.subplots(*shape, sharex=True, sharey=True, squeeze=False).ravel())
    for axis in axes[len(methods) :]:
        axis.remove()
    for axis, method in zip(axes, methods, strict=False):
        colour, marker, whose = (RED, "o", "method of the paper") if method.paper else (BLUE, "s", "ours")
        mine = [p for p in here if p.method == method.key]
        x, y, sd = (np.array([getattr(p, of) or 0.0 for p in mine], float) for of in ("at", "mean", "sd"))
        axis.plot(*np.array(truth).reshape(-1, 2).T, color=BLACK, linestyle="--", linewidth=0.9, label=TRUTH)
        axis.fill_between(x, y - sd, y + sd, color=colour, alpha=0.25, linewidth=0)
        style: Any = {"color": colour, "marker": marker, "markersize": 2.5, "linewidth": 1.2}
        axis.plot(x, y, label=f"{whose}, ± standard deviation", **style)
        axis.set_title(fill(method.title, 20), loc="left", fontsize=7.5)
        if ends is not None:
            _cut(axis, x, y, ends, style)
    block.suptitle(_heading(attribute), x=0.01, ha="left", fontsize=9.0, fontweight="bold")
    block.supxlabel(x_label, fontsize=8.0)
    block.supylabel("disparity", fontsize=8.0)


def _errors(
    block: SubFigure,
    points: Sequence[Accuracy],
    methods: Sequence[Method],
    x_labels: Mapping[str, str],
    legend: str = "",
    titles: bool = True,
) -> None:
    """One panel an attribute, one line a method."""
    axes = block.subplots(1, len(x_labels), sharey=True, squeeze=False)[0]
    for axis, (attribute, x_label) in zip(axes, x_labels.items(), strict=True):
        for method in methods:
            mine = [p for p in points if (p.attribute, p.method) == (attribute, method.key)]
            x, y = [float(p.at) for p in mine], [p.mae for p in mine]
            axis.plot(x, y, linewidth=1.1, label=method.title, **_look(method.key))
            _cut(axis, x, y, (0.0, FARTHEST_ERROR), _look(method.key))
        _label(axis, attribute if titles else "", x_label, "mean absolute error" if axis is axes[0] else "")
    handles, labels = axes[0].get_legend_handles_labels()
    block.legend(
        handles, labels, loc="outside upper left", ncols=MOST, title=_heading(legend), alignment="left"
    )


def _cut(axis: Axes, x: Iterable[float], y: Iterable[float], ends: tuple[float, float], style: Any) -> None:
    """Show what is between the ends; a point outside becomes an open marker at the edge."""
    axis.set_ylim(*ends)
    for at, value in zip(x, y, strict=True):
        if not ends[0] <= value <= ends[1]:
            style = style | {"linestyle": "none", "fillstyle": "none", "markersize": 4.5, "clip_on": False}
            axis.plot(at, min(max(value, ends[0]), ends[1]), **style)
