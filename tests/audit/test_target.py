"""Targets, gates, copies, and results that cannot be trusted."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from conftest import draw_groups

from divscore import ControlSet, Sketch, audit
from divscore.audit.audits import Audits
from divscore.audit.target import Gate, Target, judge
from divscore.audit.trust import ALLOWED
from divscore.errors import InputError
from divscore.sketch.missing import Missing, MissingPart

GROUPS = ("female", "male")


@pytest.fixture(scope="module")
def control() -> ControlSet:
    vectors, names = draw_groups(0, [60, 60], gap=3.0)
    return ControlSet(vectors, np.where(names == "a", "female", "male"), attribute="gender")


@pytest.fixture(scope="module")
def few_women(control: ControlSet) -> Any:
    return draw_groups(1, [55, 445], gap=3.0)[0]


def test_shares_of_a_target_are_completed_and_checked() -> None:
    assert Target.of({"male": 0.73}, GROUPS).shares == {"female": pytest.approx(0.27), "male": 0.73}
    assert Target.of({"a": 0.2, "c": 0.3}, "abc").shares["b"] == pytest.approx(0.5)
    assert sum(Target.of({"a": 0.333, "b": 0.333, "c": 0.333}, "abc").shares.values()) == pytest.approx(1)
    for shares, message in (
        ({"women": 0.3}, "names 'women', but the groups are 'female', 'male'"),
        ({"female": 27}, "is 27; expected a share from 0 to 1"),
        ({"female": 0.3, "male": 0.3}, "add up to 60%"),
        ({"female": 0.7, "male": 0.7}, "add up to 140%"),
    ):
        with pytest.raises(InputError, match=message):
            Target.of(shares, GROUPS)
    with pytest.raises(InputError, match="no share for 'b', 'c'"):
        Target.of({"a": 0.5}, "abc")


def test_the_distance_is_the_disparity_minus_that_of_the_target(control: ControlSet, few_women: Any) -> None:
    even, held = audit(few_women, control), audit(few_women, control, target={"female": 0.27})
    assert held.disparity == even.disparity
    assert held.distance == pytest.approx(even.disparity - (0.27 - 0.73))
    assert held.distance_interval.width == pytest.approx(even.interval.width)
    assert (even.distance, even.distance_interval) == (even.disparity, even.interval)
    assert audit(few_women, control, target={"female": 0.5}).distance == pytest.approx(even.disparity)
    assert (
        "the target is 27%, census)"
        in audit(few_women, control, target={"female": 0.27}, target_source="census").headline
    )


def test_three_groups_have_a_distance_too() -> None:
    vectors, names = draw_groups(0, [40, 40, 40], gap=4.0)
    control = ControlSet(vectors, names, attribute="letter")
    rows = draw_groups(1, [100, 150, 250], gap=4.0)[0]
    even = audit(rows, control, target={"a": 1 / 3, "b": 1 / 3})
    assert even.distance == pytest.approx(even.disparity)
    assert even.distance_interval.low == pytest.approx(even.interval.low)
    assert even.distance_interval.high == pytest.approx(even.interval.high)
    right = audit(rows, control, target={"a": 0.2, "b": 0.3, "c": 0.5})
    assert right.distance < 0.1 < even.distance
    far = audit(rows, control, target={"a": 0.8, "b": 0.1})
    assert far.distance == pytest.approx(0.9, abs=0.15)  # a is 0.6 below, c is 0.4 above
    assert far.scarcest == "a"
    with pytest.raises(InputError, match="more than two groups needs the estimator 'likelihood'"):
        audit(rows, control, target={"a": 0.2, "b": 0.3}, estimator="iid", sample=(rows[:90], ["a"] * 90))


@pytest.mark.parametrize("target", [None, {"female": 0.11}])
def test_a_gate_speaks_of_the_target(control: ControlSet, few_women: Any, target: dict[str, float]) -> None:
    result = audit(few_women, control, target=target)
    assert judge(result, 0.25).word == ("pass" if target else "fail")
    assert judge(result, abs(result.distance)).word == "inconclusive"
    missing = Missing.of([MissingPart("a.npy", "damaged")])
    gate = Gate.of([result], 1.0, missing.count)
    assert (gate.verdict, gate.reason) == (
        "inconclusive",
        "1 of 1 within the limit of ±1; parts of the source are missing",
    )


def test_the_document_has_a_verdict_and_a_headline(control: ControlSet, few_women: Any) -> None:
    audits = Audits((audit(few_women, control, name="a"), audit(few_women[:19], control, name="b")))
    whole = json.loads(audits.to_json(limit=0.2))
    assert whole["gate"] == {
        "limit": 0.2,
        "verdict": "fail",
        "reason": "0 of 2 within the limit of ±0.2; 1 outside; 1 inconclusive",
    }
    assert [entry["gate"]["verdict"] for entry in whole["collections"]] == ["fail", "inconclusive"]
    assert "19 items are too few" in whole["collections"][1]["gate"]["reason"]
    assert whole["headline"] == audits.headline
    assert whole["headline"] == "Of 2 collections, 1 has fewer female than male and 1 is inconclusive."
    without = audits.to_dict()
    assert without["gate"] is None
    assert "gate" not in without["collections"][0]
    with pytest.raises(InputError, match="from 0 to 1"):
        audits.gate(20)


def test_two_collections_of_one_name_have_a_verdict_each(control: ControlSet, few_women: Any) -> None:
    even = draw_groups(5, [200, 200], gap=3.0)[0]
    audits = Audits((audit(few_women, control, name="a"), audit(even, control, name="a")))
    assert [each.word for each in audits.gate(0.4).verdicts] == ["fail", "pass"]
    entries = audits.to_dict(limit=0.4)["collections"]
    assert [entry["gate"]["verdict"] for entry in entries] == ["fail", "pass"]


def test_a_result_that_cannot_be_trusted_has_no_numbers(control: ControlSet, few_women: Any) -> None:
    for hidden in (audit(few_women[:19], control), audit(few_women + 9 * np.eye(8)[0], control)):
        assert hidden.trust == "poor"
        assert all(map(math.isnan, (*hidden.shares.values(), hidden.disparity, hidden.divscore)))
        assert (hidden.interval.low, hidden.interval.high) == (-1, 1)
        assert {(i.low, i.high) for i in hidden.share_intervals.values()} == {(0, 1)}
        entry = hidden.to_dict(replicates=True)
        assert (entry["disparity"], entry["divscore"], entry["shares"]) == (
            None,
            None,
            {"female": None, "male": None},
        )
        assert "replicates" not in entry
        assert hidden.refits is None
    shown = audit(few_women[:19], control, show_untrusted=True)
    assert shown.trust == "poor"
    assert math.isfinite(shown.disparity)


def test_the_shift_by_skipped_items_does_not_tell_a_hidden_disparity(
    control: ControlSet, few_women: Any
) -> None:
    rows = few_women[:15].copy()
    rows[0] = 0
    hidden = audit(rows, control)
    assert hidden.diagnostics.skipped_shift == pytest.approx(2 / 15)


def test_copies_are_counted(control: ControlSet) -> None:
    rows = draw_groups(2, [30, 30], gap=3.0)[0]
    assert audit(rows, control).copies.items == 0
    one = audit(np.concatenate([rows, np.repeat(rows[:1], 29, axis=0)]), control)
    assert (one.copies.items, one.copies.largest, one.copies.estimated) == (30, 30, False)
    assert one.trust == "poor"
    assert any("30 of 89 items are copies of one" in text for text in one.warnings)
    some = audit(np.concatenate([rows, np.repeat(rows[:1], 4, axis=0)]), control)
    assert some.trust == "caution"
    assert any("5 of 64 items are copies of one" in text for text in some.warnings)
    twice = audit(np.repeat(rows, 2, axis=0), control)
    assert (twice.copies.items, twice.copies.largest) == (120, 2)
    assert twice.trust == "good"


def test_copies_in_a_large_collection_are_estimated(control: ControlSet) -> None:
    rows = draw_groups(2, [3000, 3000], gap=3.0)[0]
    copies = audit(np.concatenate([rows, rows[:2000]]), control).copies
    assert copies.estimated
    assert copies.items == pytest.approx(4000, rel=0.2)
    assert copies.largest == 2


def test_many_copies_of_one_item_in_a_large_collection_are_noticed(control: ControlSet) -> None:
    rows = draw_groups(2, [2000, 2000], gap=3.0)[0]
    for seed in range(5):  # whether the item itself is in the sample or not
        result = audit(np.concatenate([rows, np.repeat(rows[seed : seed + 1], 1500, axis=0)]), control)
        assert result.copies.estimated
        assert result.copies.items == pytest.approx(1500, abs=700) or result.trust == "poor"
        assert audit(rows, control, seed=seed).copies.items < 400


@pytest.mark.parametrize("size", [120, 4000])
def test_labelled_examples_in_the_collection_are_noticed(control: ControlSet, size: int) -> None:
    rows = draw_groups(2, [size // 2, size // 2], gap=3.0)[0]
    assert audit(rows, control).labelled_inside == 0
    both = audit(np.concatenate([rows, control.vectors]), control)
    assert both.labelled_inside == 120
    assert any(
        "120 of the 120 labelled examples are also in the collection" in text for text in both.warnings
    )
    single = Sketch(control)
    single.add(np.concatenate([rows, control.vectors]).astype(np.float32))
    assert audit(single, control).labelled_inside == 120


@pytest.mark.parametrize("copies", [7, 30])
def test_adding_copies_of_a_person_does_not_tell_that_persons_group(control: ControlSet, copies: int) -> None:
    """The cheap way to probe a result: audit a set, add many copies of one item, and audit again."""
    answers = 0
    for seed in range(20):
        rows, _ = draw_groups(seed + 10, [31, 30], gap=3.0)
        more = np.concatenate([rows[1:], *[rows[:1]] * copies])
        before, after = audit(rows[1:], control), audit(more, control)
        answers += math.isfinite(after.disparity - before.disparity)
    assert answers == 0


def test_the_hardest_pair_is_named() -> None:
    rng = np.random.default_rng(0)
    centres = {"a": 0.0, "b": 0.0, "c": 6.0}  # a and b are the same
    names = [name for name in centres for _ in range(40)]
    vectors = rng.normal(size=(120, 6)) + 1.0
    vectors[:, 0] += [centres[name] for name in names]
    result = audit(vectors[::-1], ControlSet(vectors, names, attribute="letter"))
    assert result.hardest_pair == ("a", "b")
    assert any("do not separate 'a' and 'b'" in text for text in result.warnings)


@pytest.mark.parametrize("rows", [1, 19, "copies"])
def test_a_correction_by_labels_is_no_way_to_single_items(control: ControlSet, rows: Any) -> None:
    collection, names = draw_groups(3, [45, 45], gap=3.0)
    if rows == "copies":
        collection[30:] = collection[0]
    else:
        collection = collection[:rows]
    groups = np.where(names == "a", "female", "male")
    sample = draw_groups(3, [45, 45], gap=3.0)[0][:30], groups[:30]
    result = audit(collection, control, estimator="rectified", sample=sample)
    assert result.trust == "poor"
    assert math.isnan(result.disparity)
    assert math.isnan(audit(collection, control, estimator="iid", sample=sample).divscore)


def test_warnings_of_a_hidden_result_have_no_numbers_of_it(control: ControlSet) -> None:
    rows, names = draw_groups(1, [250, 750], gap=3.0)
    rows[:110] = rows[110]  # a tenth of what is left, and more
    rows[::2] = 0
    groups = np.where(names == "a", "male", "female")  # the labels contradict the control set
    drawn = 111 + 2 * np.random.default_rng(0).choice(444, 100, replace=False)
    hidden = audit(rows, control, estimator="likelihood", sample=(rows[drawn], groups[drawn]))
    assert hidden.trust == "poor"
    text = " ".join(hidden.warnings)
    assert "use 'rectified'" in text
    assert "the disparity" not in text
    assert ALLOWED not in text


def test_a_verdict_allows_for_skipped_items(control: ControlSet) -> None:
    rows = draw_groups(4, [50, 50], gap=3.0)[0]
    whole = audit(rows, control)
    assert judge(whole, 0.4).word == "pass"
    half = rows.copy()
    half[::3] = 0  # cannot be used
    partly = audit(half, control)
    assert partly.diagnostics.skipped_shift > 0.3
    assert -0.4 < partly.interval.low < partly.interval.high < 0.4
    verdict = judge(partly, 0.4)
    assert (verdict.word, "skipped items could move it outside" in verdict.reason) == ("inconclusive", True)
    far = draw_groups(4, [95, 5], gap=3.0)[0]
    far[::3] = 0
    assert judge(audit(far, control), 0.5).word == "inconclusive"
    assert judge(audit(draw_groups(4, [95, 5], gap=3.0)[0], control), 0.5).word == "fail"


def test_a_collection_of_labelled_examples_is_not_good(control: ControlSet) -> None:
    assert audit(control.vectors, control).trust != "good"


def test_copies_that_a_sample_may_miss_are_not_denied(control: ControlSet) -> None:
    from divscore.report.caveats import checks

    rows = draw_groups(2, [3000, 3000], gap=3.0)[0]
    (check,) = (each for each in checks([audit(rows, control)]) if each.name == "Are there copies?")
    assert "in a sample" in check.sentence
    assert check.state == "info"
