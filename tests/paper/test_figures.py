from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import results

from divscore.paper.draws import Settings
from divscore.paper.figures import (
    collection_figure,
    comparison_figure,
    error_figure,
    save_figure,
    size_figure,
    sweep_figure,
)
from divscore.paper.methods import Method, main_methods, undefined
from divscore.paper.records import Accuracy, Answer, points, summarise

METHODS = main_methods(Settings())


def swept(methods: tuple[Method, ...], attributes: tuple[str, ...], at: list[Any]) -> list[Accuracy]:
    rng = np.random.default_rng(0)
    return points(
        Answer("f", name, x, repetition, method.key, 100, 0.0, float(rng.normal(scale=0.2)))
        for name in attributes
        for x in at
        for repetition in range(3)
        for method in methods
    )


def lines(axis: Any) -> list[Any]:
    """Lines and rows of points that the legend names; not markers at the edge, nor rules between rows."""
    return [line for line in [*axis.lines, *axis.containers] if not line.get_label().startswith("_")]


def legends_are_outside(figure: Any) -> bool:
    """Every legend is inside the figure, and next to no panel's drawing, titles or labels."""
    figure.draw_without_rendering()
    whole = figure.bbox
    panels = [axis.get_tightbbox() for axis in figure.axes]
    for legend in [*figure.legends, *(found for block in figure.subfigs for found in block.legends)]:
        box = legend.get_window_extent()
        inside = box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1 and box.y0 >= whole.y0 - 1
        if not inside or any(box.y1 > panel.y0 + 1 and box.y0 < panel.y1 - 1 for panel in panels):
            return False
    return True


NAMES = ("gender", "skin tone")
X_LABELS = {name: f"fraction of {name}" for name in NAMES}


def test_every_method_has_its_own_panel_with_the_truth_on_the_same_axes() -> None:
    figure = sweep_figure(swept(METHODS, NAMES, [0.0, 0.5, 1.0]), METHODS, X_LABELS, 1.5)
    assert [axis.get_ylim() for axis in figure.axes] == [(-1.5, 1.5)] * 2 * len(METHODS)
    titles = [axis.get_title(loc="left").replace("\n", " ").replace("- ", "-") for axis in figure.axes]
    assert titles == [method.title for method in METHODS] * 2
    assert all(len(lines(axis)) == 2 and len(axis.collections) == 1 for axis in figure.axes)
    assert [block.get_suptitle() for block in figure.subfigs] == ["Gender", "Skin tone"]
    assert [block.get_supxlabel() for block in figure.subfigs] == list(X_LABELS.values())
    texts = [text.get_text().split(",")[0] for text in figure.legends[0].get_texts()]
    assert texts == ["true disparity", "method of the paper", "ours"]


def test_errors_are_compared_between_methods_with_as_many_labels() -> None:
    figure = error_figure(swept(METHODS, NAMES, [0.0, 0.5, 1.0]), METHODS, X_LABELS)
    rows = {block.legends[0].get_title().get_text(): block.axes for block in figure.subfigs}
    assert [(cost.split()[0], len(lines(axes[0]))) for cost, axes in rows.items()] == [
        ("50", 3), ("50", 3), ("200", 2)
    ]  # fmt: skip
    assert [axis.get_title(loc="left") for axis in figure.axes][:2] == ["Gender", "Skin tone"]
    assert [axis.get_xlabel() for axis in figure.axes][-2:] == list(X_LABELS.values())


@pytest.mark.parametrize("kind", ["sweep", "errors", "same cost", "sizes", "collections"])
def test_no_panel_has_more_than_four_lines_and_no_legend_covers_one(kind: str) -> None:
    few = METHODS[:3]
    if kind == "sweep":
        figure = sweep_figure(swept(METHODS, NAMES, [0.0, 0.5, 1.0]), METHODS, X_LABELS)
    elif kind == "sizes":
        figure = size_figure(swept(few, NAMES, [10, 20]), few, NAMES)
    elif kind == "collections":
        figure = collection_figure(swept(METHODS[:4], NAMES, ["north", "south"]), METHODS[:4], NAMES)
        assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["north", "south"]
    else:
        methods = METHODS if kind == "errors" else main_methods(Settings(labels=50))
        figure = error_figure(swept(methods, NAMES, [0.0, 0.5, 1.0]), methods, X_LABELS)
    assert all(1 <= len(lines(axis)) <= 4 for axis in figure.axes)
    assert figure.get_figwidth() == 6.0
    assert legends_are_outside(figure)


def test_no_figure_of_an_experiment_has_more_than_four_lines_in_a_panel() -> None:
    for figure in results().figures.values():
        assert all(1 <= len(lines(axis)) <= 4 for axis in figure.axes)
        assert legends_are_outside(figure)


def test_a_point_outside_a_panel_is_an_open_marker_at_its_edge() -> None:
    far = points(Answer("f", "gender", x, 0, METHODS[0].key, 100, 0.0, 7.0 * x) for x in (0.0, 1.0))
    for figure in (
        sweep_figure(far, METHODS[:1], {"gender": "f"}, 1.5),
        error_figure(far, METHODS[:1], {"gender": "f"}),
    ):
        (axis,) = figure.axes
        (mark,) = [line for line in axis.lines if line.get_fillstyle() == "none"]
        assert mark.get_xydata().tolist() == [[1.0, axis.get_ylim()[1]]]


def test_a_figure_is_written_the_same_twice(tmp_path: Path) -> None:
    found = swept(METHODS[:3], ("gender",), [0.0, 1.0])
    for name in ("one", "two"):
        save_figure(sweep_figure(found, METHODS[:3], {"gender": "f"}), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert ">IID-Measure</text>" in (tmp_path / "one.svg").read_text(), "text stays text"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


def test_an_estimate_far_out_becomes_an_arrow() -> None:
    far = points([Answer("country", "gender", "north", 0, METHODS[0].key, 100, 0.0, 7.0)])
    axis = collection_figure(far, METHODS[:1], ["gender"]).axes[0]
    assert axis.get_xlim()[1] <= 1.6
    assert ">" in [line.get_marker() for line in axis.lines]


def compared(labels: int, method: str, error: float) -> tuple[Method, Accuracy]:
    """Errors that grow a little from split to split."""
    answers = [Answer("", "", "0", r, method, 200, 0.0, error + 0.01 * (r - 9.5)) for r in range(20)]
    found = summarise(answers)
    assert found is not None
    return Method(method, f"the {method}", lambda labelled: undefined, labels), found


def test_one_number_of_labels_is_drawn_as_sorted_bars_with_error_bars() -> None:
    errors = {"likelihood": 0.15, "adaptive-auto": 0.4, "ss-st": 0.2}
    rows = [compared(50, method, error) for method, error in errors.items()]
    axis = comparison_figure(rows, "skin_tone: $5 of 10 examples").axes[0]
    names = [text.get_text() for text in axis.get_yticklabels()]
    assert names == ["the likelihood", "the ss-st", "the adaptive-auto"]
    assert axis.yaxis_inverted()
    assert [bar.get_width() for bar in axis.patches] == pytest.approx(sorted(errors.values()))
    (lines,) = [c for c in axis.collections if hasattr(c, "get_segments")]
    halves = [(segment[1, 0] - segment[0, 0]) / 2 for segment in lines.get_segments()]
    assert halves == pytest.approx([found.mae_se for _, found in rows])
    assert axis.get_title(loc="left") == "Skin tone: $5 of 10 examples"


@pytest.mark.parametrize("numbers", [(50,), (50, 100)])
@pytest.mark.parametrize("error", [0.4, 1.7])
def test_a_plot_that_is_cut_says_so(numbers: tuple[int, ...], error: float) -> None:
    rows = [compared(n, m, e) for n in numbers for m, e in (("likelihood", 0.1), ("random-balanced", error))]
    figure = comparison_figure(rows, "letter")
    axis = figure.axes[0]
    assert axis.get_title(loc="left") == ("Letter, cut at 1" if error > 1 else "Letter")
    end = axis.get_xlim()[1]
    assert end == 1.0 if error > 1 else error < end < 0.5
    assert bool(figure.legends) is (len(numbers) > 1)
    assert len(axis.patches) == 2 * len(numbers)
    assert [text.get_text() for text in axis.texts] == ["▸ 1.7"] * len(numbers) * (error > 1)
