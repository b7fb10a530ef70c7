"""The figures of experiments and comparisons: six inches wide, one marker a method, legends below the panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divscore.files import atomic_file
from divscore.paper.methods import Method
from divscore.paper.records import Accuracy
from divscore.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.0
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
}
TRUTH = "true disparity"
FARTHEST_ERROR = 0.6  # where panels of errors are cut
FARTHEST = 1.6  # estimates farther out become arrows
WORST = 1.0  # where comparisons are cut: as wrong as always saying "all of one group"
ERROR = "mean absolute error of the disparity"


LOOKS = {  # colour, marker and line of every method
    "random-balanced": (SKY, "o", "-"),
    "random-proportional": (ORANGE, "s", "-"),
    "iid": (PURPLE, "D", "-"),
    "ss-st": (GREY, "v", "-"),
    "adaptive": (RED, "^", "-"),
    "likelihood-few": (GREEN, "P", "-"),
    "likelihood": (BLUE, "*", "-"),
    "rectified": (BLACK, "x", ":"),
    "adaptive-0.1": (RED, "<", "--"),
    "adaptive-auto": (RED, ">", ":"),
    "proportional": (ORANGE, "s", "--"),
    "all-balanced": (SKY, "D", ":"),
    "dpp": (PURPLE, "h", "--"),
    "EMQ": (PURPLE, "X", "-."),
    "PACC": (GREEN, "d", "-."),
    "KDEyML": (BLACK, "p", "-."),
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
    return paths


@_styled()
def sweep_figure(
    points: Sequence[Accuracy],
    methods: Sequence[Method],
    x_labels: Mapping[str, str],
    limit: float | None = None,
) -> Figure:
    """Mean estimate ± standard error by composition, with the true disparity: the paper's Figure 1.

    One panel for every attribute of `x_labels`.
    """
    figure, axes = _panels(len(x_labels), 3.0)
    for axis, (attribute, x_label) in zip(axes, x_labels.items(), strict=True):
        here = [p for p in points if p.attribute == attribute]
        x = sorted({float(p.at) for p in here})
        truth = [float(np.mean([p.truth for p in here if p.at == at])) for at in x]
        axis.plot(x, truth, color=BLACK, linestyle="--", linewidth=1.0, label=TRUTH)
        _estimates(axis, here, methods, 0.3 * min(np.diff(x), default=1.0))
        if limit is not None:
            axis.set_ylim(-limit, limit)
        _label(axis, attribute, x_label, "disparity")
    return _with_legend(figure)


@_styled()
def error_figure(
    points: Sequence[Accuracy], methods: Sequence[Method], x_labels: Mapping[str, str]
) -> Figure:
    """Mean absolute error by composition: how wrong a single audit is, on average."""
    figure, axes = _panels(len(x_labels), 2.3)
    for axis, (attribute, x_label) in zip(axes, x_labels.items(), strict=True):
        _errors(axis, [p for p in points if p.attribute == attribute], methods)
        _label(axis, attribute, x_label, "mean absolute error")
    return _with_legend(figure)


@_styled()
def size_figure(points: Sequence[Accuracy], methods: Sequence[Method], attributes: Sequence[str]) -> Figure:
    """Mean estimate ± standard error, and mean absolute error, by the size of the control set."""
    figure, axes = _panels(len(attributes), 2.3, across=2, legend=2)
    for attribute, left, right in zip(attributes, axes[::2], axes[1::2], strict=True):
        here = [p for p in points if p.attribute == attribute]
        truth = float(np.mean([p.truth for p in here])) if here else 0.0
        left.axhline(truth, color=BLACK, linestyle="--", linewidth=1.0, label=TRUTH)
        mostly = [p for p in here if p.mostly_answers]
        _estimates(left, mostly, methods, 2.4)
        _errors(right, mostly, methods)
        left.set_ylim(truth - FARTHEST_ERROR, truth + FARTHEST_ERROR)
        _label(left, attribute, "size of the control set", "disparity")
        _label(right, attribute, "size of the control set", "mean absolute error")
    return _with_legend(figure, 2)


@_styled()
def bound_figure(points: Sequence[Accuracy], bounds: Mapping[str, Callable[[int], float]]) -> Figure:
    """Theorem 3.3's bound, in black, and measured errors by size of the control set.

    `bounds` gives, for every attribute, the bound for a size.
    """
    from matplotlib.ticker import FuncFormatter

    figure, axes = _panels(1, 2.7, across=len(bounds), share_y=True)
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
    figure, axes = _panels(1, tall, across=len(attributes), share_y=True)
    for axis, attribute in zip(axes, attributes, strict=True):
        here = [p for p in points if p.attribute == attribute]
        truth = {str(p.at): p.truth for p in here}
        rows = np.array([names.index(name) for name in truth])
        axis.vlines(list(truth.values()), rows - 0.4, rows + 0.4, color=BLACK, linewidth=1.6, label=TRUTH)
        for method, aside in _spread(methods):
            style = _look(method.key) | {"linestyle": "none"}
            mine = [(p, names.index(str(p.at)) + 0.56 * aside) for p in here if p.method == method.key]
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
    """Mean absolute error by number of labels; sorted bars if there is only one number.

    Errors are cut at 1, and the title says so.
    """
    numbers = sorted({method.labels for method, _ in rows})
    title += f", cut at {WORST:g}" if any(accuracy.mae > WORST for _, accuracy in rows) else ""
    alone = len(numbers) == 1
    ends = [accuracy.mae + (accuracy.mae_se or 0.0) * alone for _, accuracy in rows]
    limit = min(WORST, 1.05 * max(0.05, *ends))
    if alone:
        figure, (axis,) = _panels(1, 0.6 + 0.22 * len(rows), legend=0)
        methods, bars = zip(*sorted(rows, key=lambda row: row[1].mae), strict=True)
        axis.barh(
            range(len(rows)),
            [bar.mae for bar in bars],
            xerr=[bar.mae_se or 0.0 for bar in bars],
            color=[LOOKS[method.key][0] for method in methods],
            height=0.6,
            error_kw={"elinewidth": 1.0, "capsize": 2.0},
        )
        _rows(axis, [method.title for method in methods])
        _label(axis, title, f"{ERROR}, {numbers[0]} labels, ± standard error", "")
        axis.set_xlim(0, limit)
        return figure
    figure, (axis,) = _panels(1, 3.2, legend=5)
    for key, name in {method.key: method.title for method, _ in rows}.items():
        x, y = zip(*((method.labels, s.mae) for method, s in rows if method.key == key), strict=True)
        axis.plot(x, y, linewidth=1.1, label=name, **_look(key))
    axis.set_ylim(0, limit)
    axis.set_xticks(numbers)
    _label(axis, title, "labels", ERROR)
    return _with_legend(figure)


def _look(method: str) -> dict[str, Any]:
    """Options of matplotlib; stars and crosses look smaller than they are."""
    colour, marker, line = LOOKS[method]
    size = {"*": 7.0, "P": 5.5}.get(marker, 4.5)
    return {"color": colour, "marker": marker, "markersize": size, "linestyle": line}


def _panels(
    down: int, height: float, across: int = 1, *, legend: int = 3, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure without pyplot and its global state, with room for so many lines of legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, down * height + 0.2 + 0.17 * legend), layout="constrained")
    return figure, list(figure.subplots(down, across, squeeze=False, sharey=share_y).ravel())


def _label(axis: Axes, title: str, x: str, y: str) -> None:
    plain = printable(title).replace("_", " ")
    # A name given by the user is no formula, even if it has dollar signs.
    axis.set_title(plain[:1].upper() + plain[1:], loc="left", parse_math=False)
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def _with_legend(figure: Figure, columns: int = 3) -> Figure:
    """Put one legend for all panels below them."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    return figure


def _rows(axis: Axes, names: Sequence[str]) -> None:
    """One row a name, the first on top."""
    axis.set_yticks(range(len(names)), list(names))
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)


def _estimates(axis: Axes, points: Sequence[Accuracy], methods: Sequence[Method], width: float) -> None:
    """Means with error bars, moved a little to the side to keep all markers visible."""
    for method, aside in _spread(methods):
        mine = [p for p in points if p.method == method.key]
        x, y = [float(p.at) + width * aside for p in mine], [p.mean for p in mine]
        bars: dict[str, Any] = {"yerr": [p.se or 0.0 for p in mine], "elinewidth": 1.0, "capsize": 1.5}
        axis.errorbar(x, y, linewidth=0.8, label=method.title, **bars, **_look(method.key))


def _errors(axis: Axes, points: Sequence[Accuracy], methods: Sequence[Method]) -> None:
    for method in methods:
        mine = [p for p in points if p.method == method.key]
        x, y = [float(p.at) for p in mine], [p.mae for p in mine]
        axis.plot(x, y, linewidth=1.1, label=method.title, **_look(method.key))
    axis.set_ylim(0, FARTHEST_ERROR)


def _spread(methods: Sequence[Method]) -> Iterator[tuple[Method, float]]:
    """Methods with positions from −½ to ½."""
    for at, method in enumerate(methods):
        yield method, at / (len(methods) - 1) - 0.5 if len(methods) > 1 else 0.0
