"""The change between two audits: its intervals, its words, and what documents are accepted."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from conftest import Portraits, draw_groups
from documents import changed
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.audit.change import Change, added_intervals, change_between, compare_documents, paired_intervals
from divscore.audit.document import AuditDocument, Entry, document, parse_document
from divscore.control.similarity import FloatArray
from divscore.errors import MismatchError
from divscore.estimators.interval import Refits
from divscore.report.changes import change_document, change_headline, change_table
from divscore.text import as_json

GROUPS = ("a", "b")


def stored(rows: Any, control: ControlSet, name: str = "x", **options: Any) -> AuditDocument:
    text = as_json(document([audit(rows, control, name=name, **options)], replicates=True))
    return parse_document(text)


def labelled(seed: int = 0, counts: tuple[int, ...] = (30, 30), gap: float = 1.5) -> ControlSet:
    vectors, names = draw_groups(seed, counts, gap=gap)
    return ControlSet(vectors, names, attribute="letter")


def entry(value: float, low: float, high: float, *, trust: str = "good", refits: Any = None) -> Entry:
    return Entry(
        name="x",
        count=100,
        trust=trust,
        stored_disparity=None if math.isnan(value) else value,
        stored_interval=(low, high),
        interval_level=0.95,
        interval_method="bayesian bootstrap",
        replicates=refits,
    )


# Mathematics


numbers = st.floats(-1.0, 1.0)
owns = st.floats(0.0, 0.2)


@given(st.integers(0, 10**6), numbers, numbers, owns, owns)
def test_swapping_the_audits_mirrors_the_change(
    seed: int, first: float, second: float, own: float, other: float
) -> None:
    rng = np.random.default_rng(seed)
    shared = 0.1 * rng.normal(size=200)
    before = first, Refits(first + shared, own)
    after = second, Refits(second + 0.7 * shared + 0.02 * rng.normal(size=200), other)
    change, increase = paired_intervals(before, after, 2, 0.95)
    back, decrease = paired_intervals(after, before, 2, 0.95)
    assert back == change.mirrored()
    assert decrease == increase.mirrored()
    assert change.low <= second - first <= change.high


@given(st.integers(0, 10**6), numbers, numbers, owns, owns)
def test_swapping_the_groups_mirrors_the_change_and_keeps_the_increase(
    seed: int, first: float, second: float, own: float, other: float
) -> None:
    rng = np.random.default_rng(seed)
    b, a = first + 0.1 * rng.normal(size=200), second + 0.1 * rng.normal(size=200)
    change, increase = paired_intervals((first, Refits(b, own)), (second, Refits(a, other)), 2, 0.95)
    turned, same = paired_intervals((-first, Refits(-b, own)), (-second, Refits(-a, other)), 2, 0.95)
    assert turned == change.mirrored()
    assert same == increase


def test_what_both_share_goes_away_and_the_rest_adds_up() -> None:
    wide = 0.3 * np.random.default_rng(0).normal(size=200)
    change, _ = paired_intervals((0.1, Refits(0.1 + wide, 0.03)), (0.3, Refits(0.3 + wide, 0.04)), 2, 0.95)
    assert change.high - 0.2 == pytest.approx(1.96 * 0.05, rel=0.03)
    assert change.low - 0.2 == pytest.approx(-1.96 * 0.05, rel=0.03)


def test_differences_from_the_labelled_examples_cancel_as_far_as_they_agree() -> None:
    wide, axes = 0.3 * np.random.default_rng(0).normal(size=200), np.eye(4)

    def half_width(one: FloatArray | None, other: FloatArray | None, shifts: tuple[float, float]) -> float:
        before = 0.1, Refits(0.1 + wide, 0.03, None, shifts[0], one)
        after = 0.1, Refits(0.1 + wide, 0.04, None, shifts[1], other)
        change, _ = paired_intervals(before, after, 2, 0.95)
        assert paired_intervals(after, before, 2, 0.95)[0] == change.mirrored()
        return change.width / 2 / 1.96

    assert half_width(axes[0], axes[0], (0.12, 0.12)) == pytest.approx(0.05, rel=0.03)
    assert half_width(axes[0], axes[1], (0.12, 0.12)) == pytest.approx(math.hypot(0.05, 0.12, 0.12), rel=0.03)
    assert half_width(axes[0], -axes[0], (0.12, 0.12)) == pytest.approx(math.hypot(0.05, 0.24), rel=0.03)
    assert half_width(axes[0], None, (0.12, 0.0)) == pytest.approx(0.13, rel=0.03)


def test_the_same_difference_in_both_audits_does_not_hide_a_change() -> None:
    control, away = labelled(counts=(60, 60), gap=2.5), 0.6 * np.random.default_rng(5).normal(size=8)
    rows, more = draw_groups(1, (300, 100), gap=2.5)[0], draw_groups(2, (20, 180), gap=2.5)[0]
    before = stored(rows + away, control)
    after = stored(np.concatenate([rows, more]) + away, control)
    refits = before.collections[0].refits
    assert refits is not None
    assert refits.shift > 0.05
    assert refits.outline is not None
    assert len(refits.outline) == 32
    change = compare_documents(before, after).changes[0]
    assert change.interval.method == "paired refits"
    assert (320 - 280) / 600 - 0.5 in change.interval
    assert change.interval.width < 0.6 * before.collections[0].interval.width


@pytest.mark.parametrize(("groups", "span"), [(2, 2.0), (3, 1.0)])
def test_refits_that_say_nothing_open_the_interval(groups: int, span: float) -> None:
    shared = np.zeros(200)
    shared[:20] = np.nan
    pair = shared if groups > 2 else None
    change, _ = paired_intervals(
        (0.2, Refits(shared + 0.2, 0.01, pair)), (0.2, Refits(shared + 0.2, 0.01, pair)), groups, 0.95
    )
    assert (change.low, change.high) == (-span, span)


def test_two_intervals_are_added_where_nothing_is_known() -> None:
    before, after = entry(-0.1, -0.2, 0.1), entry(0.4, 0.3, 0.6)
    change, increase = added_intervals(before, after, 2)
    assert (change.low, change.high) == pytest.approx((0.2, 0.8))
    assert (increase.low, increase.high) == pytest.approx((0.1, 0.6))  # |before| is 0 to 0.2
    change, increase = added_intervals(entry(0.2, 0.1, 0.3), entry(0.4, 0.3, 0.6), 3)
    assert (change.low, change.high) == pytest.approx((0.0, 0.5))
    assert increase == change


def test_a_collections_own_noise_is_not_taken_for_shared() -> None:
    # Both audits draw the same random numbers; the difference must not lose what is each collection's own.
    control = labelled(gap=1.2)
    docs = [stored(draw_groups(seed, (120, 120), gap=1.2)[0], control) for seed in (1, 2)]
    found = compare_documents(*docs).changes[0]
    owns = [e.refits.own for e in (found.before, found.after) if e.refits]
    assert len(owns) == 2
    assert min(owns) > 0.02
    assert found.interval.width >= 2 * 1.9 * math.hypot(*owns)
    assert found.interval.width < 0.8 * (found.before.interval.width + found.after.interval.width)


def test_the_same_items_have_not_changed() -> None:
    control, rows = labelled(), draw_groups(3, (80, 40), gap=1.5)[0]
    found = compare_documents(stored(rows, control), stored(rows[::-1], control))
    change = found.changes[0]
    assert (change.interval.low, change.interval.high, change.verdict) == (
        0.0,
        0.0,
        "no clear change",
    )
    assert change.gate(0.0) == "pass"
    assert change_headline(found) == "Nothing has changed: the items are the same."


def test_replicates_are_left_out_unless_asked_for() -> None:
    control, rows = labelled(), draw_groups(3, (80, 40))[0]
    result = audit(rows, control)
    assert "replicates" not in json.dumps(document([result]))
    assert len(json.dumps(result.to_dict(replicates=True)["replicates"])) < 2200
    other = audit(rows, control, seed=5)
    both = document([result, other], replicates=True)["collections"]
    assert "replicates" in both[0]
    assert "replicates" not in both[1]  # the document names the first one's seed


def test_swapping_the_groups_of_real_audits_mirrors_the_change() -> None:
    vectors, names = draw_groups(0, (30, 30), gap=2.0)
    rows = [draw_groups(seed, counts, gap=2.0)[0] for seed, counts in ((1, (90, 60)), (2, (150, 30)))]
    found = []
    for order in (("a", "b"), ("b", "a")):
        control = ControlSet(vectors, names, attribute="letter", order=order)
        found.append(compare_documents(*(stored(r, control) for r in rows)).changes[0])
    assert found[0].interval == found[1].interval.mirrored()
    assert found[0].increase_interval == found[1].increase_interval
    assert found[0].towards == found[1].towards == "a"


def test_three_groups() -> None:
    control = labelled(counts=(40, 40, 40), gap=2.5)
    before = stored(draw_groups(1, (100, 100, 100), gap=2.5)[0], control)
    after = stored(draw_groups(2, (300, 100, 40), gap=2.5)[0], control)
    change = compare_documents(before, after).changes[0]
    assert change.interval.method == "paired refits"
    assert 260 / 440 in change.interval
    assert (change.verdict, change.towards) == ("less even", None)
    assert change.increase_interval == change.interval


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "labels", "splits"), [("gender", 50, 14), ("skin_tone", 50, 14), ("gender", 200, 8)]
)
def test_coverage_of_the_change(attribute: str, labels: int, splits: int, ppb: Portraits) -> None:
    groups = getattr(ppb, attribute)
    first = np.unique(groups)[0]
    covered, increases, widths, added = 0, 0, [], []
    for split in range(splits):
        rng = np.random.default_rng(split)
        order = rng.permutation(len(groups))
        control = ControlSet(ppb.vectors[order[:labels]], groups[order[:labels]], attribute=attribute)
        ours, others = (order[200:][(groups[order[200:]] == first) == own] for own in (True, False))
        counts = np.rint(rng.uniform(0, 1, 2) * (220, 200)).astype(int)
        sets = [np.r_[ours[: counts[0]], others[: 220 - counts[0]]]]
        later = np.r_[ours[220 : 220 + counts[1]], others[220 : 420 - counts[1]]]
        sets.append(later if split % 2 else np.r_[sets[0], later])
        truth = [2 * float((groups[rows] == first).mean()) - 1 for rows in sets]
        change = compare_documents(*(stored(ppb.vectors[rows], control) for rows in sets)).changes[0]
        covered += change.interval.low - 1e-9 <= truth[1] - truth[0] <= change.interval.high + 1e-9
        rise = abs(truth[1]) - abs(truth[0])
        increases += change.increase_interval.low - 1e-9 <= rise <= change.increase_interval.high + 1e-9
        widths.append(change.interval.width)
        added.append(added_intervals(change.before, change.after, 2)[0].width)
    fewest = int(stats.binom.ppf(0.001, splits, 0.95))
    assert covered >= fewest
    assert increases >= fewest
    assert np.mean(widths) < 0.75 * np.mean(added)


# Words


def of(before: Entry, after: Entry) -> Change:
    return change_between(before, after, GROUPS, paired=False)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "towards"),
    [
        ((0.1, 0.05, 0.15), (0.5, 0.4, 0.6), "less even", "a"),
        ((-0.1, -0.15, -0.05), (-0.5, -0.6, -0.4), "less even", "b"),
        ((0.5, 0.4, 0.6), (0.1, 0.05, 0.15), "more even", "b"),
        ((-0.3, -0.4, -0.2), (0.3, 0.2, 0.4), "tilted the other way", "a"),
        ((-0.1, -0.15, 0.05), (0.12, 0.1, 0.2), "shifted", "a"),
        ((0.1, 0.0, 0.2), (0.2, 0.1, 0.3), "no clear change", None),
    ],
)
def test_verdicts(before: Any, after: Any, verdict: str, towards: str | None) -> None:
    found = of(entry(*before), entry(*after))
    assert (found.verdict, found.towards) == (verdict, towards)


def test_what_is_missing_from_the_later_collection_may_hide_a_change() -> None:
    before, after = entry(0.1, 0.05, 0.15), entry(0.3, 0.25, 0.35)
    for limit, whole, lacking in ((0.5, "pass", "inconclusive"), (0.05, "fail", "fail")):
        assert of(before, after).gate(limit) == whole
        assert of(before, replace(after, missing_parts=2)).gate(limit) == lacking
        assert of(replace(before, missing_parts=2), after).gate(limit) == whole


@pytest.mark.parametrize("trust", ["before", "after"])
def test_poor_trust_cannot_tell(trust: str) -> None:
    sides = {"before": entry(0.1, 0.05, 0.15), "after": entry(0.6, 0.5, 0.7)}
    sides[trust] = replace(sides[trust], trust="poor")
    found = of(**sides)
    assert (found.verdict, found.towards, found.gate(0.1)) == ("cannot tell", None, "inconclusive")


@pytest.mark.parametrize(
    ("before", "after", "limit", "gate"),
    [
        ((0.1, 0.05, 0.15), (0.5, 0.4, 0.6), 0.2, "fail"),
        ((0.1, 0.05, 0.15), (0.5, 0.4, 0.6), 0.6, "pass"),
        ((0.1, 0.05, 0.15), (0.5, 0.4, 0.6), 0.4, "inconclusive"),
        ((0.5, 0.4, 0.6), (0.1, 0.05, 0.15), 0.0, "pass"),  # towards balance
        ((-0.5, -0.6, -0.4), (-0.1, -0.15, -0.05), 0.0, "pass"),
        ((-0.3, -0.31, -0.29), (0.3, 0.29, 0.31), 0.05, "pass"),  # as uneven as before
        ((0.0, -0.01, 0.01), (-0.5, -0.51, -0.49), 0.3, "fail"),
    ],
)
def test_gates(before: Any, after: Any, limit: float, gate: str) -> None:
    assert of(entry(*before), entry(*after)).gate(limit) == gate


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    result = audit(draw_groups(1, (60, 30))[0], labelled(), name="x")
    found: dict[str, Any] = json.loads(as_json(document([result], replicates=True)))
    return found


def test_a_document_without_answers_compares(plain: dict[str, Any]) -> None:
    text = json.loads(changed(plain, "collections/0/disparity", None))
    text["collections"][0].update(interval=[-1.0, 1.0], trust="poor")
    found = compare_documents(parse_document(json.dumps(plain)), parse_document(json.dumps(text)))
    assert found.changes[0].verdict == "cannot tell"
    assert "?" in change_table(found)
    json.dumps(change_document(found, 0.1), allow_nan=False)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("seed", 1, "seed (0 before, 1 after)"),
        ("version", "0.0.9", "version of divscore"),
        ("control/digest", "f" * 64, "control set"),
        ("control/digest", KeyError, "control set"),
        ("encoder", "faces", "encoder (none before, faces after)"),
        ("estimator", "rectified", "estimator"),
    ],
)
def test_audits_made_otherwise_are_not_paired(
    plain: dict[str, Any], path: str, value: Any, said: str
) -> None:
    before, after = parse_document(json.dumps(plain)), parse_document(changed(plain, path, value))
    found = compare_documents(before, after)
    assert said in found.notes[0]
    assert found.changes[0].interval.method == "both intervals added"
    assert found.changes[0].interval.width == pytest.approx(2 * before.collections[0].interval.width)


def test_a_document_without_replicates_is_said(plain: dict[str, Any]) -> None:
    bare = parse_document(changed(plain, "collections/0/replicates", KeyError))
    found = compare_documents(bare, parse_document(json.dumps(plain)))
    assert "no replicates" in found.notes[0]
    assert "saved from a report" in found.notes[0]
    assert found.changes[0].interval.method == "both intervals added"


def test_the_lower_confidence_holds(plain: dict[str, Any]) -> None:
    control, rows = labelled(), draw_groups(5, (60, 60))[0]
    before, after = stored(rows, control), stored(rows[:100], control, confidence=0.9)
    found = compare_documents(before, after)
    assert "changes are given at 0.9" in found.notes[0]
    assert found.changes[0].interval.level == 0.9
    assert "90% interval" in change_table(found)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("attribute", "tone", "different attributes"),
        ("groups", ["b", "a"], "another order"),
        ("groups", ["a", "c"], "different groups"),
    ],
)
def test_audits_of_other_things_are_refused(plain: dict[str, Any], path: str, value: Any, said: str) -> None:
    with pytest.raises(MismatchError, match=said):
        compare_documents(parse_document(json.dumps(plain)), parse_document(changed(plain, path, value)))


def named(plain: dict[str, Any], *names: str) -> AuditDocument:
    collections = [{**plain["collections"][0], "name": name} for name in names]
    return parse_document(json.dumps({**plain, "collections": collections}))


def test_collections_are_matched_by_name(plain: dict[str, Any]) -> None:
    found = compare_documents(named(plain, "n", "s", "gone"), named(plain, "new", "s", "n"))
    assert [change.name for change in found.changes] == ["s", "n"]
    assert (found.new, found.vanished) == (("new",), ("gone",))
    lines = change_table(found).splitlines()
    assert lines[-2].split()[0] == "new"
    assert lines[-1].split()[0] == "gone"
    assert change_headline(found) == (
        "Of 2 collections in both audits: 2 with the same items as before. 1 new and 1 vanished, not compared."
    )


def test_the_headline_does_not_speak_for_what_was_not_compared(plain: dict[str, Any]) -> None:
    found = compare_documents(named(plain, "A", "B", "C"), named(plain, "B", "D"))
    assert change_headline(found) == (
        "In 'B' nothing has changed: the items are the same. 1 new and 2 vanished, not compared."
    )
    poor = json.loads(json.dumps(plain))
    poor["collections"][0].update(trust="poor", count=89)
    found = compare_documents(named(plain, "A", "B"), named(poor, "B"))
    assert change_headline(found) == "Cannot tell how letter has changed in 'B'. 1 vanished, not compared."
    moved = dataclasses.replace(found, changes=(of(entry(0.1, 0.05, 0.15), entry(0.5, 0.4, 0.6)),))
    assert change_headline(moved).startswith("In 'x' the share of a rose by ")
    assert change_headline(dataclasses.replace(moved, vanished=())).startswith("The share of a rose by ")


def test_the_same_items_of_several_collections(plain: dict[str, Any]) -> None:
    found = compare_documents(named(plain, "A", "B"), named(plain, "B", "A"))
    assert change_headline(found) == "Nothing has changed: all 2 collections have the same items."
    assert [line.split("  ")[-1] for line in change_table(found).splitlines()[1:]] == ["the same items"] * 2


def test_the_same_items_have_not_changed_even_if_nothing_is_known_of_them(plain: dict[str, Any]) -> None:
    poor = json.loads(json.dumps(plain))
    poor["collections"][0]["trust"] = "poor"
    found = compare_documents(named(poor, "x"), named(poor, "x"))
    assert change_headline(found) == "Nothing has changed: the items are the same."
    assert found.gate(0.0) == "pass"


def test_vanished_collections_are_inconclusive(plain: dict[str, Any]) -> None:
    gone = compare_documents(named(plain, "A", "B"), named(plain, "A"))
    grown = compare_documents(named(plain, "A"), named(plain, "A", "B"))
    assert (gone.gate(0.1), gone.gate(0.1, allow_vanished=True), grown.gate(0.1)) == (
        "inconclusive",
        "pass",
        "pass",
    )
    assert change_document(gone, 0.1)["gate"] == "inconclusive"
    assert change_document(gone, 0.1, allow_vanished=True)["gate"] == "pass"
    assert "gate" not in change_document(gone)
    worse = dataclasses.replace(gone, changes=(of(entry(0.1, 0.05, 0.15), entry(0.5, 0.4, 0.6)),))
    assert worse.gate(0.1) == "fail"


def test_long_names_do_not_make_the_table_wide(plain: dict[str, Any]) -> None:
    long = [f"{n}{'x' * 5000}{n}" for n in range(4)]
    found = compare_documents(named(plain, *long[:3]), named(plain, *long[1:]))
    lines = change_table(found).splitlines()
    assert max(map(len, lines)) < 130
    assert [line.split()[0][0] + line.split()[0][-1] for line in lines[1:]] == ["11", "22", "33", "00"]
    one = compare_documents(named(plain, long[0], long[1]), named(plain, long[1]))
    assert len(change_headline(one)) < 150


def test_the_only_two_are_compared_whatever_they_are_called(plain: dict[str, Any]) -> None:
    found = compare_documents(named(plain, "monday"), named(plain, "friday"))
    assert "'monday' and 'friday'" in found.notes[0]
    with pytest.raises(MismatchError, match="no collection has the same name"):
        compare_documents(named(plain, "monday"), named(plain, "friday", "sunday"))


def test_names_cannot_command_the_terminal(plain: dict[str, Any]) -> None:
    name = "\x1b[2J::error::x"
    found = compare_documents(named(plain, name, "y"), named(plain, name, "z"))
    assert "\x1b" not in change_table(found) + change_headline(found)
