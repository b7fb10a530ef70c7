"""Plots of shares: order, groups, target and limits, the zoomed axis, and the same on matplotlib axes."""

from dataclasses import replace

import pytest

from divscore.audit.target import Target
from divscore.estimators.interval import Interval
from divscore.report.picture import Mark, Words, forest, picture


def test_lines_are_sorted_with_inconclusive_ones_last(audits):
    drawn = picture(audits)
    assert drawn.title == "Share of a"
    values = [row.value for row in drawn.rows]
    assert values[:3] == sorted(values[:3])
    assert values[3] is None
    assert drawn.rows[3].figure == "inconclusive"
    assert drawn.rows[3].ends is None
    assert picture(audits[3:]) is None


@pytest.mark.parametrize("number", [30, 31, 500])
def test_of_many_collections_both_ends_are_drawn(several, number):
    made = several(number)
    rows = picture(made).rows
    if number == 30:
        assert len(rows) == 30
        return
    assert len(rows) == 25
    assert rows[12] == Words(f"{number - 24} collections in between: see the table", gap=True)
    ordered = sorted(a.shares["a"] for a in made)
    assert [row.value for row in rows if isinstance(row, Mark)] == ordered[:12] + ordered[-12:]


def test_many_inconclusive_collections_are_counted(several):
    made = several(40)
    poor = [replace(a, name=f"poor {at}", trust="poor") for at, a in enumerate(made[:9])]
    last = picture([*made, *poor]).rows[-1]
    assert last == Words("9 inconclusive collections: see the table", gap=True)
    few = picture([*made[:25], *poor]).rows
    assert sum(isinstance(row, Mark) and row.value is None for row in few) == 5
    assert few[-1] == Words("4 more inconclusive collections: see the table", gap=True)


def test_three_groups_are_drawn_by_group_by_collection_or_the_smallest(three):
    one = picture(three[:1])
    assert one.title == "Share of each group"
    assert [row.label for row in one.rows] == ["a", "b", "c"]
    assert one.same_wanted == pytest.approx(1 / 3)
    assert one.rows[1].range in one.description
    few = picture(three)
    names = [row.text for row in few.rows if isinstance(row, Words)]
    assert sorted(names) == [f"place {at}" for at in range(4)]
    assert few.rows[-1] == Words("place 3", "inconclusive")
    assert len(few.marks) == 9
    many = [replace(three[0], name=f"n{at}") for at in range(20)]
    assert picture(many).title == "Share of c, the group that is smallest overall"
    assert {row.value for row in picture(many).marks} == {three[0].shares["c"]}


def test_a_method_without_shares_has_no_plot(scored):
    assert picture(scored) is None


def test_the_axis_is_zoomed_and_includes_everything(audits):
    def axis(share, width, **options):
        ends = Interval(share - width, share + width, 0.95, "bootstrap")
        shares = {"a": share, "b": 1 - share}
        drawn = picture(
            [replace(audits[0], shares=shares, share_intervals={"a": ends, "b": ends}, **options)]
        )
        assert drawn.low <= min(ends.low, drawn.rows[0].wanted)
        assert drawn.high >= max(ends.high, drawn.rows[0].wanted)
        assert drawn.ticks == tuple(sorted(drawn.ticks))
        assert 3 <= len(drawn.ticks) <= 9
        return drawn.zoom

    assert axis(0.21, 0.05) == "The axis shows 0% to 50% only."
    assert axis(0.5, 0.5) == ""
    assert axis(0.52, 0.06) == "The axis shows 35% to 70% only."
    rare = Target({"a": 0.02, "b": 0.98}, "")
    assert axis(0.01, 0.005, target=rare) == "The axis shows 0% to 2% only."
    assert axis(0.9, 0.05) == "The axis shows 50% to 100% only."


def test_limits_are_shares(audits, three):
    rows = picture(audits, 0.2).rows
    assert rows[0].limits == pytest.approx((0.4, 0.6))
    assert [row.verdict for row in rows] == ["fail", "", "fail", ""]
    held = replace(audits[0], target=Target({"a": 0.3, "b": 0.7}, ""), from_target=(0.8, audits[0].interval))
    (row,) = picture([held], 0.2).rows
    assert (row.wanted, row.limits, row.verdict) == (0.3, pytest.approx((0.2, 0.4)), "outside")
    # One group of three alone exceeds a limit of 0.15 if it is more than 0.1 away.
    assert picture(three[:1], 0.15).rows[0].limits == pytest.approx((1 / 3 - 0.1, 1 / 3 + 0.1))
    assert picture(three[:1], 0.9).rows[0].limits == pytest.approx((1 / 3 + 0.6,))  # no share is below 0
    grouped = [row.verdict for row in picture(three, 0.15).rows if isinstance(row, Words)]
    assert grouped.count("fail") == 2


def test_without_intervals_only_the_marks_are_drawn(trained):
    drawn = picture(trained)
    assert not drawn.has_intervals
    assert {row.ends for row in drawn.rows} == {None}
    assert drawn.level == "no interval"


def test_matplotlib_axes(audits, three, trained):
    from matplotlib import pyplot

    try:
        ax = audits[0].plot()
        assert [label.get_text() for label in ax.get_yticklabels()] == ["a"]
        assert ax.get_title("left") == "Share of a"
        assert [label.get_text() for label in ax.get_xticklabels()][-1].endswith("%")
        own = pyplot.figure().subplots()
        assert audits[3].plot(own) is own
        assert [text.get_text() for text in own.texts] == ["inconclusive"]
        # A name is not a formula.
        axes = forest([replace(a, name="$x^") for a in audits], limit=0.3)
        axes.figure.canvas.draw()
        assert len(axes.get_yticks()) == 4
        assert "dashed: limit: 35% to 65%" in axes.get_xlabel()
        assert len(forest(three).get_yticks()) == 13
        bare = forest(trained)
        assert not any(len(line.get_xdata()) == 2 and line.get_linewidth() == 4 for line in bare.lines)
    finally:
        pyplot.close("all")
