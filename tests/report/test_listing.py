"""Tables: brackets, verdicts, levels, and shares close to nothing."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from divscore.audit.target import judge
from divscore.estimators.interval import Interval
from divscore.report.listing import (
    listing,
    marginal_listing,
    shortened,
    table,
    tooltip,
    uninformative,
)
from divscore.report.summary import lead
from divscore.sketch.missing import Missing, MissingPart


def test_numbers_of_an_inconclusive_result_are_in_brackets(audits, three):
    (line,) = listing([replace(audits[0], trust="poor")]).lines
    assert [text[0] for text in line.cells[1:6]] == ["("] * 5
    (line,) = listing([replace(three[0], trust="poor")]).lines
    assert line.cells[1].count("(") == 1
    assert line.bars == ()
    assert table(audits).splitlines()[4].split()[3].startswith("(")


def test_lines_are_sorted_with_inconclusive_ones_last(audits):
    assert [line.name for line in listing(audits).lines] == ["place 2", "place 1", "place 0", "place 3"]


def test_verdicts(audits):
    wide = replace(audits[0], interval=Interval(0.1, 0.6, 0.95, ""))
    within = replace(audits[1], interval=Interval(-0.2, 0.2, 0.95, ""))
    unknown = "inconclusive"
    assert [judge(a, 0.2).word for a in (*audits, wide)] == ["fail", unknown, "fail", unknown, unknown]
    assert judge(within, 0.2).word == "pass"
    missing = Missing.of([MissingPart("a.npy", "damaged")])
    assert judge(replace(within, missing=missing), 0.2).word == unknown
    assert judge(replace(audits[0], missing=missing), 0.2).word == "fail"
    assert [line.cells[-2] for line in listing([within], 0.2).lines] == ["yes"]


def test_single_attributes_of_an_intersection(crossed):
    found = marginal_listing([crossed])
    assert [line.cells[0] for line in found.lines] == ["gender", "tone"]
    assert found.lines[0].cells[1].startswith("f ")
    assert marginal_listing([crossed] * 61) is None


def test_a_method_without_intervals_has_none_in_the_table(trained):
    rows = table(trained).splitlines()
    assert rows[0].split()[-5:] == ["between", "disparity", "interval", "DivScore", "trust"]
    assert all(row.split()[4:7:2] == ["none", "none"] for row in rows[1:])
    assert uninformative(trained[0])


def test_one_in_a_thousand_is_not_none(audits):
    def rare(share, width):
        ends = Interval(share - width, share + width, 0.95, "bootstrap")
        rest = Interval(1 - ends.high, 1 - ends.low, 0.95, "bootstrap")
        return replace(
            audits[0],
            shares={"a": share, "b": 1 - share},
            share_intervals={"a": ends, "b": rest},
            disparity=2 * share - 1,
            interval=Interval(2 * ends.low - 1, 2 * ends.high - 1, 0.95, "bootstrap"),
        )

    found = rare(0.003, 0.001)
    assert found.headline.startswith("Between 0.2% and 0.4% of these 400 items are a")
    assert table([found]).splitlines()[1].split()[3:5] == ["0.3%", "0.2%–0.4%"]
    fewer = rare(0.0001, 0.0001)
    assert fewer.headline.startswith("Between 0% and 0.1% of")
    assert lead([fewer]).startswith("Best estimate: <0.1% a.")


@given(st.text(max_size=3000))
def test_names_are_short_and_printable(name):
    for text, most in ((shortened(name), 60), (tooltip(name), 300)):
        assert len(text) <= most
        assert text.isprintable() or "\u200d" in text
