"""Plots: order, marks, breaks, and the same on matplotlib axes."""

from dataclasses import replace

import pytest

from divscore.report.picture import Break, Mark, disparities, forest, shares


def test_lines_are_sorted_with_inconclusive_ones_last(audits):
    rows = disparities(audits, 0.2).rows
    values = [row.value for row in rows]
    assert values[:3] == sorted(values[:3])
    assert values[3] is None
    assert rows[3].figure == "inconclusive"


@pytest.mark.parametrize("number", [30, 31, 500])
def test_of_many_collections_both_ends_are_drawn(several, number):
    made = several(number)
    rows = disparities(made, None).rows
    if number == 30:
        assert len(rows) == 30
        return
    assert len(rows) == 25
    assert rows[12] == Break(f"{number - 24} collections in between: see the table")
    ordered = sorted(a.disparity for a in made)
    assert [row.value for row in rows if isinstance(row, Mark)] == ordered[:12] + ordered[-12:]


def test_many_inconclusive_collections_are_counted(several):
    made = several(40)
    poor = [replace(a, name=f"poor {at}", trust="poor") for at, a in enumerate(made[:9])]
    assert disparities([*made, *poor], None).rows[-1] == Break("9 inconclusive collections: see the table")
    few = disparities([*made[:25], *poor], None).rows
    assert sum(isinstance(row, Mark) and row.value is None for row in few) == 5
    assert few[-1] == Break("4 more inconclusive collections: see the table")


def test_each_group_has_its_share(three):
    found = shares(three[0])
    assert [row.label for row in found.rows] == ["a", "b", "c"]
    assert found.rows[1].range in found.description
    assert found.even == pytest.approx(1 / 3)


def test_without_intervals_only_the_marks_are_drawn(trained):
    picture = disparities(trained, None)
    assert not picture.has_intervals
    assert {row.ends for row in picture.rows} == {None}
    assert picture.level == "no interval"


def test_matplotlib_axes(audits, trained):
    from matplotlib import pyplot

    try:
        ax = audits[0].plot()
        assert [label.get_text() for label in ax.get_yticklabels()] == ["place 0"]
        assert (ax.get_title("left"), ax.get_title("right")) == ("← more b", "more a →")
        own = pyplot.figure().subplots()
        assert audits[3].plot(own) is own
        assert [text.get_text() for text in own.texts] == ["inconclusive"]
        # A name is not a formula.
        axes = forest([replace(a, name="$x^") for a in audits], limit=0.3)
        axes.figure.canvas.draw()
        assert len(axes.get_yticks()) == 4
        bare = forest(trained)
        assert not any(len(line.get_xdata()) == 2 and set(line.get_xdata()) == {-1, 1} for line in bare.lines)
    finally:
        pyplot.close("all")
