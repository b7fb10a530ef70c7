"""How figures look: six inches wide, the colours of Okabe and Ito, a marker for every method, legends below."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from divscore.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLACK",
    "GREY",
    "LOOKS",
    "Look",
    "label",
    "panels",
    "save_figure",
    "styled",
    "with_legend",
]

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
