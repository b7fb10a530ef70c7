"""Numbers and addresses as text."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from divscore.text import level, percent, percent_ends, public

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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9, "90%"),
        (0.995, "99.5%"),
        (0.9999999, "99.99999%"),
        (0.5, "50%"),
        (0.9 - 1e-5, "90%"),
    ],
)
def test_levels_are_not_rounded_to_certainty(value, text):
    assert level(value) == text


def test_addresses_have_no_passwords():
    assert public("s3://key:secret@bucket/a.npy") == "s3://…bucket/a.npy"
    assert public("https://host/a.npy?X-Signature=abc") == "https://host/a.npy?…"
    assert public("a?b@c.npy") == "a?b@c.npy"
    assert public("s3://user:pa@ss@host/a.npy") == "s3://…host/a.npy"
    assert public("hf://u:p/w@host/a.npy") == "hf://…host/a.npy"
    assert public("https://u:p?w#x@host/a.npy?key=1#token") == "https://…host/a.npy?…"
    assert public("https://host/a.npy#token") == "https://host/a.npy#…"
    assert public("token@x@s3://a") == "token@x@s3://a"
    assert public("s3://key@bucket/a@b.npy") == "s3://…bucket/a@b.npy"
    assert public("--model=https://u:p@host/m.onnx") == "--model=https://…host/m.onnx"
    assert public("zip://a.csv::s3://u:p@bucket/a.zip") == "zip://…bucket/a.zip"
    for same in ("tcp://10.0.0.5:8786", "hf://datasets/a/b@main/c.parquet", "s3://bucket/a.npy"):
        assert public(same) == same


@given(
    st.text("ab:/@?#", min_size=1, max_size=12),
    st.sampled_from(["s3", "hf", "https"]),
    st.sampled_from(["", "/x.npy", "/x.npy?y=1", "/x#y"]),
)
def test_no_letter_of_a_password_is_shown(password, scheme, path):
    shown = public(f"{scheme}://user:{password}@host{path}")
    assert re.fullmatch(rf"{scheme}://…host(/x(\.npy)?([?#]…)?)?", shown)
