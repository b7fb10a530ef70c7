"""Tables: brackets, verdicts, levels, and shares close to nothing."""

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divscore.audit.audit import audit
from divscore.audit.target import judge
from divscore.estimators.interval import Interval
from divscore.report.listing import (
    columns,
    listing,
    marginal_listing,
    shortened,
    table,
    technical_listing,
    tooltip,
    uninformative,
)
from divscore.report.summary import lead
from divscore.sketch.missing import Missing, MissingPart


def test_an_inconclusive_result_has_no_numbers(audits, three):
    line = listing(audits).lines[-1]
    assert line.cells == ("12", "inconclusive", "", "poor")
    assert table(audits).splitlines()[4].split() == ["place", "3", "12", *"–––", "inconclusive", "–", "poor"]
    assert table(audits[3:]).splitlines()[1].split() == ["place", "3", "12", "inconclusive", "poor"]
    assert listing(three, 0.2).lines[-1].cells == ("9", "inconclusive", "", "", "", "inconclusive", "poor")
    assert listing(audits[3:]) is None
    for text in (table(audits), table(three), str(listing(audits)), str(technical_listing(audits))):
        assert "?" not in text


def test_untrusted_numbers_that_were_asked_for_are_in_brackets(audits, three):
    poor = replace(audits[0], trust="poor")
    assert {text[0] for line in listing([poor]).lines for text in line.cells[:2]} == {"("}
    assert [text[0] for text in listing([poor, audits[1]]).lines[1].cells[1:3]] == ["("] * 2
    line = listing([replace(three[0], trust="poor"), three[1]]).lines[1]
    assert [text.count("(") for text in line.cells[1:5]] == [1] * 4
    assert table([poor]).splitlines()[1].split()[3].startswith("(")


def test_with_a_target_the_columns_are_target_and_distance(draw, audits, three):
    held = audit(draw(5, (300, 100), gap=1.5)[0], audits[0].control, target={"a": 0.3}, target_source="X")
    head, row = table([held]).splitlines()
    assert head.split()[2:] == ["a", "between", "target", "points", "off", "95%", "interval", "trust"]
    assert row.split()[4] == "30%"
    assert float(row.split()[5]) == pytest.approx(50 * held.distance, abs=0.06)
    assert [column.label for column in listing([held] * 2).columns][2:5] == ["a", "95% interval", "target"]
    assert listing([held]).columns[3].label == "target"
    more = audit(draw(5, (100, 300, 50), gap=3.0)[0], three[0].control, target={"a": 0.2, "b": 0.6})
    assert "distance" in table([more]).splitlines()[0].split()
    labels = [column.label for column in listing([more] * 2).columns]
    assert labels[2:6] == ["a (target 20%)", "b (target 60%)", "c (target 20%)", "distance from target"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_of_a_table_is_longer_than_the_terminal(monkeypatch, audits, three, width):
    long = [replace(a, name=f"a collection with a long name {at}") for at, a in enumerate(three)]
    many = {f"a group with a long name {at}": 1 / 4 for at in range(4)}
    none = Interval(0.0, 1.0, 0.95, "bootstrap")
    four = [replace(a, shares=many, share_intervals=dict.fromkeys(many, none)) for a in long[:2]]
    for a in four:
        object.__setattr__(a, "control", SimpleNamespace(groups=tuple(many)))
    tables = [audits, long, four]
    whole = [table(each) for each in tables]
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", str(width))
    for each, full in zip(tables, whole, strict=True):
        lines = table(each, 1).splitlines()
        assert max(map(len, lines)) <= width
        assert lines.count("…") == 1
        if max(map(len, full.splitlines())) <= width:
            assert [line for line in lines if line != "…"] == full.splitlines()
    stacked = table(four).splitlines()
    if width < 120:
        assert stacked[0].startswith("a collection with")
        assert any("25.0%" in line and "a group with" in line for line in stacked)


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
    found = listing([within, *audits], 0.2)
    assert found.columns[-2].label == "limit 40%–60%"
    assert {(line.verdict, line.cells[-2]) for line in found.lines} == {
        (word, word) for word in ("pass", "fail", "inconclusive")
    }


def test_single_attributes_of_an_intersection(crossed):
    found = marginal_listing([crossed])
    assert [line.cells[0] for line in found.lines] == ["gender", "tone"]
    assert re.fullmatch(r"f \d+% \(\d+%–\d+%\), m \d+%", found.lines[0].cells[1])
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
    assert lead([fewer]) == "Best estimate: <0.1% a and >99.9% b."


@given(st.text(max_size=3000))
def test_names_are_short_and_printable(name):
    for text, most in ((shortened(name), 60), (tooltip(name), 300)):
        assert len(text) <= most
        assert text.isprintable() or "\u200d" in text


def test_a_table_about_as_wide_as_the_terminal_never_fails(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    rows = [["method", "error", ""], ["a method with a long name that can be cut", "0.012", ""]]
    for width in range(12, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        assert all(len(line) <= max(width, 20) for line in columns(rows).splitlines())
