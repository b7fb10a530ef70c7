from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def legend_is_outside(figure: Any) -> bool:
    """Inside the figure, and below every panel."""
    figure.draw_without_rendering()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    inside = box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1 and box.y0 >= whole.y0 - 1
    return bool(inside and all(box.y1 <= axis.get_tightbbox().y0 + 1 for axis in figure.axes))


@pytest.mark.parametrize("kind", ["sweep", "errors", "sizes", "collections"])
def test_figures_have_labels_and_a_line_for_every_method(kind: str) -> None:
    methods, names = METHODS, ("gender", "skin tone")
    labels = {name: f"share of {name}" for name in names}
    if kind == "sweep":
        figure = sweep_figure(swept(methods, names, [0.0, 0.5, 1.0]), methods, labels, 1.5)
        assert all(axis.get_ylim() == (-1.5, 1.5) for axis in figure.axes)
    elif kind == "errors":
        figure = error_figure(swept(methods, names, [0.0, 0.5, 1.0]), methods, labels)
    elif kind == "sizes":
        methods = tuple(m for m in methods if m.key in ("random-balanced", "adaptive", "likelihood-few"))
        figure = size_figure(swept(methods, names, [10, 20]), methods, names)
    else:
        figure = collection_figure(swept(methods, names, ["north", "south"]), methods, names)
        assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["north", "south"]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [t for t in texts if t != "true disparity"] == [m.title for m in methods]
    assert ("true disparity" in texts) is (kind != "errors")
    for at, axis in enumerate(figure.axes):
        assert axis.get_title(loc="left")
        assert axis.get_xlabel()
        drawn = len(axis.lines) if kind == "errors" or (kind == "sizes" and at % 2) else len(axis.containers)
        assert drawn == len(methods)
    markers = ((line.get_color(), line.get_marker()) for line in figure.axes[0].lines)
    looks = {look for look in markers if look[1] not in ("None", "_", "|")}
    assert len(looks) == len(methods)
    assert figure.get_figwidth() == 6.0
    assert legend_is_outside(figure)


def test_a_figure_is_written_the_same_twice(tmp_path: Path) -> None:
    found = swept(METHODS[:2], ("gender",), [0.0, 1.0])
    for name in ("one", "two"):
        save_figure(sweep_figure(found, METHODS[:2], {"gender": "f"}), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
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
    end = (axis.get_xlim() if len(numbers) == 1 else axis.get_ylim())[1]
    assert end == 1.0 if error > 1 else error < end < 0.5
    assert bool(figure.legends) is (len(numbers) > 1)
    assert len(axis.lines) >= 2 if len(numbers) > 1 else len(axis.patches) == 2
