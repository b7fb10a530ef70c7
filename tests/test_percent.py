"""Shares as per cents: few never read as none."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from divscore.text import percent, percent_ends

shares = st.floats(0, 1)


@given(shares)
def test_few_never_read_as_none_and_most_never_as_all(share):
    text = percent(share)
    assert (text == "0%") == (share == 0)
    assert (text == "100%") == (share == 1)
    assert abs(float(text.strip("<>%")) / 100 - share) <= 0.0051


@given(shares, shares)
def test_an_interval_of_some_width_has_two_ends(one, other):
    low, high = sorted((one, other))
    assume(high - low > 1e-8)
    written = percent_ends(low, high)
    assert written[0] != written[1]
    ends = [float(text.strip("%")) / 100 for text in written]
    assert ends[0] - 0.0051 <= low
    assert high <= ends[1] + 0.0051


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.3, 0.58, "30% 58%"),
        (0.002, 0.004, "0.2% 0.4%"),
        (0.0, 0.0001, "0% 0.1%"),
        (0.9999, 1.0, "99.9% 100%"),
        (0.691, 0.998, "69% 100%"),
        (0.057, 0.0571, "5.7% 5.8%"),
        (0.501, 0.503, "50.1% 50.3%"),
    ],
)
def test_ends(low, high, said):
    assert " ".join(percent_ends(low, high)) == said


def test_a_table_may_ask_for_a_decimal():
    assert [percent(v, 1) for v in (0.2161, 0.0001, 0.99999, 0.0, float("nan"))] == [
        *("21.6%", "<0.1%", ">99.9%", "0.0%", "?")
    ]
