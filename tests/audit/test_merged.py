"""Groups that the labelled examples do not separate: their sum is reported, and nothing is said about its parts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from chance import fewest
from hypothesis import given
from hypothesis import strategies as st

from divscore import Audit, Audits, ControlSet
from divscore.audit.audit import audit
from divscore.audit.change import CANNOT_TELL, compare_documents
from divscore.audit.document import parse_document
from divscore.audit.result import sum_name
from divscore.audit.target import Target, judge
from divscore.control.similarity import FloatArray
from divscore.estimators.interval import Estimate
from divscore.estimators.likelihood import _undivided, likelihood, summarise
from divscore.report.caveats import checks
from divscore.report.listing import listing, share_limits, table
from divscore.report.page import render_html, render_markdown
from divscore.report.picture import picture
from divscore.report.summary import Context, lead
from divscore.report.summary import summarise as report
from divscore.sketch.sketch import Sketch

PLACES = {"a": 0, "b": 0, "c": 1, "d": 2}  # a and b are the same


def drawn(seed: int, counts: Sequence[int], gap: float = 3.0) -> tuple[FloatArray, list[str]]:
    rng = np.random.default_rng(seed)
    names = np.repeat(list(PLACES)[: len(counts)], counts)
    centre = gap * np.eye(8)[[PLACES[name] for name in names]]
    order = rng.permutation(len(names))
    return (rng.normal(size=(len(names), 8)) + centre)[order], names[order].tolist()


def lookalikes(seed: int = 0, each: int = 40, groups: int = 4, gap: float = 3.0) -> ControlSet:
    return ControlSet(*drawn(seed, [each] * groups, gap), attribute="letter")


COUNTS = [50, 150, 150, 50]


@pytest.fixture(scope="module")
def result() -> Audit:
    return audit(drawn(1, COUNTS)[0], lookalikes(), name="collection")


def test_what_can_be_told_is_reported(result: Audit) -> None:
    assert result.merged == (("a", "b"),)
    assert list(result.shares) == ["a or b", "c", "d"]
    assert list(result.shares.values()) == pytest.approx([0.5, 0.375, 0.125], abs=0.05)
    for name, truth in {"a or b": 0.5, "c": 0.375, "d": 0.125}.items():
        assert truth in result.share_intervals[name]
        assert result.share_intervals[name].width < 0.25
    assert result.members == {"a or b": ("a", "b"), "c": ("c",), "d": ("d",)}
    assert result.trust == "caution"
    assert result.conclusive
    assert result.hardest_pair == ("a", "b")
    assert any("do not separate 'a' and 'b'" in text for text in result.warnings)
    assert not any(text.startswith("cannot tell") for text in result.warnings)


def test_the_disparity_is_what_the_sums_allow(result: Audit) -> None:
    assert math.isnan(result.disparity)
    assert result.refits is None
    # At least 0.375 − 0.125 with a and b at a quarter each; at most 0.5, all of it one letter.
    assert 0.1 < result.interval.low < 0.25
    assert 0.5 < result.interval.high < 0.65
    assert judge(result, 0.7).word == "pass"
    assert judge(result, 0.05).word == "fail"
    assert judge(result, 0.3).word == "inconclusive"


def test_a_headline_compares_a_sum_with_the_sum_of_what_is_wanted(result: Audit) -> None:
    assert result.wanted == pytest.approx({"a or b": 0.5, "c": 0.25, "d": 0.25})
    assert result.scarcest == "d"
    assert "are d (an even split is 25%)" in result.headline
    target = {"a": 0.7, "b": 0.2, "c": 0.05, "d": 0.05}
    held = audit(drawn(1, COUNTS)[0], lookalikes(), target=target, target_source="Census")
    assert held.wanted == pytest.approx({"a or b": 0.9, "c": 0.05, "d": 0.05})
    assert held.headline.endswith("are a or b (the target is 90%, Census).")
    assert math.isnan(held.distance)
    # b may have all that a and b have, and a nothing of its 0.7.
    assert held.distance_interval.high > 0.5 - 0.2 + 0.7
    truth = np.ptp(np.array(COUNTS) / 400 - list(target.values()))
    assert truth in held.distance_interval
    assert judge(held, 0.1).word == "fail"


def test_everything_in_one_cluster_or_two_groups_cannot_be_told() -> None:
    rng = np.random.default_rng(0)
    for groups in (2, 3):
        names = list("abc"[:groups]) * 30
        control = ControlSet(rng.normal(size=(len(names), 8)), names, attribute="letter")
        result = audit(rng.normal(size=(200, 8)), control)
        assert (result.trust, result.merged) == ("poor", ())
        assert list(result.shares) == list("abc"[:groups])
        assert not result.has_shares


def test_two_clusters_are_not_two_groups() -> None:
    result = audit(drawn(2, [100, 100, 50])[0], lookalikes(groups=3))
    assert list(result.shares) == ["a or b", "c"]
    assert result.interval.low >= 0
    assert result.wanted == pytest.approx({"a or b": 2 / 3, "c": 1 / 3})
    assert "disparity" in table([result]).splitlines()[0]
    assert "DivScore" not in table([result])


def test_separable_groups_are_not_merged() -> None:
    rng = np.random.default_rng(0)
    names = list("abcd") * 40
    vectors = rng.normal(size=(160, 8)) + 3 * np.tile(np.eye(8)[:4], (40, 1))
    result = audit(vectors[::-1] + 0.01, ControlSet(vectors, names, attribute="letter"))
    assert result.merged == ()
    assert math.isfinite(result.disparity)
    assert "merged" not in result.to_dict()


def test_renamed_groups_give_the_same_result() -> None:
    vectors, names = drawn(0, [40] * 4)
    collection = drawn(1, COUNTS)[0]
    new = {"a": "z", "b": "m", "c": "b", "d": "k"}
    one = audit(collection, ControlSet(vectors, names, attribute="letter"))
    other = audit(collection, ControlSet(vectors, [new[name] for name in names], attribute="letter"))
    assert other.merged == (("m", "z"),)
    assert (one.hardest_pair, other.hardest_pair) == (("a", "b"), ("m", "z"))
    assert list(other.shares) == ["b", "k", "m or z"]
    assert other.shares["m or z"] == pytest.approx(one.shares["a or b"], abs=1e-9)
    assert other.share_intervals["b"].high == pytest.approx(one.share_intervals["c"].high, abs=1e-9)
    assert other.interval.high == pytest.approx(one.interval.high, abs=1e-9)


@pytest.mark.parametrize("estimator", ["divscore"])
def test_the_paper_has_no_sums(estimator: str) -> None:
    result = audit(drawn(1, COUNTS)[0], lookalikes(), estimator=estimator)
    assert (result.trust, result.merged) == ("poor", ())
    assert any(text.startswith("cannot tell") and "'a' and 'b'" in text for text in result.warnings)


def test_single_attributes_of_an_intersection_that_are_known() -> None:
    """Countries look the same, genders do not."""
    rng = np.random.default_rng(0)

    def people(each: int) -> tuple[FloatArray, list[str]]:
        kinds = [(gender, country) for gender in ("female", "male") for country in ("FI", "SE")]
        rows = [rng.normal(size=(each, 6)) + 3 * np.eye(6)[int(gender == "male")] for gender, _ in kinds]
        return np.concatenate(rows), [
            f"{gender} × {country}" for gender, country in kinds for _ in range(each)
        ]

    control = ControlSet(*people(40), attribute="gender × country")
    result = audit(people(100)[0], control)
    assert result.merged == (("female × FI", "female × SE"), ("male × FI", "male × SE"))
    (marginal,) = result.marginals  # nothing about countries
    assert marginal.attribute == "gender"
    assert marginal.shares["female"] == pytest.approx(0.5, abs=0.1)
    assert marginal.interval.width < 0.4


def test_the_name_of_a_sum_is_no_other_groups_name() -> None:
    assert sum_name(["a", "b", "c"], ["a", "b", "c", "d"]) == "a, b or c"
    assert sum_name(["a", "b"], ["a", "b", "a or b"]) == "a or b (sum)"
    assert sum_name(["a"], ["a"]) == "a"


def test_the_document_has_the_sum(result: Audit) -> None:
    written = json.loads(Audits((result,)).to_json(replicates=True, limit=0.7))
    (entry,) = written["collections"]
    assert (entry["merged"], entry["disparity"]) == ([["a", "b"]], None)
    assert set(entry["shares"]) == {"a or b", "c", "d"}
    assert entry["gate"]["verdict"] == "pass"
    assert not {"most", "least", "replicates"} & set(entry)
    # A comparison reads it, and cannot tell what changed.
    read = parse_document(json.dumps(written))
    (change,) = compare_documents(read, read).changes
    assert change.verdict == CANNOT_TELL


# The bounds, against every division of the sums


def divisions(sums: Sequence[float], clusters: Sequence[Sequence[int]], steps: int = 8) -> list[list[float]]:
    """All ways to divide the sums among their groups, in steps; shares by position of the group."""
    ways: list[list[dict[int, float]]] = []
    for total, members in zip(sums, clusters, strict=True):
        cuts = [each for each in product(range(steps + 1), repeat=len(members)) if sum(each) == steps]
        ways.append(
            [{at: total * part / steps for at, part in zip(members, cut, strict=True)} for cut in cuts]
        )
    found = []
    for chosen in product(*ways):
        shares = {at: share for each in chosen for at, share in each.items()}
        found.append([shares[at] for at in sorted(shares)])
    return found


def certain(sums: Sequence[float], clusters: tuple[tuple[int, ...], ...]) -> Estimate:
    """An estimate of sums that are known exactly."""
    shares = np.array(sums)
    return summarise(shares, np.tile(shares, (200, 1)), 0.95, clusters)


CLUSTERS = [((0, 1), (2,)), ((0, 2), (1, 3)), ((0,), (1, 2), (3,)), ((0, 1, 3), (2,))]
weights = st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any)


@given(weights, st.sampled_from(CLUSTERS))
def test_no_division_of_the_sums_is_outside_the_bounds(
    parts: list[int], clusters: tuple[tuple[int, ...], ...]
) -> None:
    sums = np.array(parts[: len(clusters)]) + 0.01
    sums = sums / sums.sum()
    interval = certain(sums, clusters).interval
    found = [max(shares) - min(shares) for shares in divisions(sums, clusters)]
    assert interval.low - 1e-9 <= min(found)
    assert max(found) == pytest.approx(interval.high, abs=1e-9)
    if all(len(members) in (1, 2) for members in clusters):  # steps allow an even division
        assert min(found) == pytest.approx(interval.low, abs=1e-9)


@given(weights, st.sampled_from(CLUSTERS), st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any))
def test_no_division_is_outside_the_bounds_of_a_target(
    parts: list[int], clusters: tuple[tuple[int, ...], ...], wanted: list[int]
) -> None:
    k = max(max(members) for members in clusters) + 1
    sums = np.array(parts[: len(clusters)]) + 0.01
    sums = sums / sums.sum()
    total = sum(wanted[:k]) + 0.4
    target = Target({f"g{at}": (wanted[at] + 0.4 / k) / total for at in range(k)})
    value, interval = target.distance(certain(sums, clusters), 0.95)
    assert math.isnan(value)
    found = [np.ptp(np.array(shares) - list(target.shares.values())) for shares in divisions(sums, clusters)]
    assert interval.low - 1e-9 <= min(found)
    assert max(found) <= interval.high + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("gap", [1.5, 3.0])
def test_coverage_of_sums(gap: float) -> None:
    reps, covered, told, disparity = 24, [], 0, 0
    for rep in range(reps):
        rng = np.random.default_rng(rep)
        counts = rng.multinomial(400, rng.dirichlet(np.ones(4)))
        sketch = Sketch(lookalikes(2 * rep, 30, gap=gap))
        sketch.add(drawn(2 * rep + 1, counts.tolist(), gap)[0])
        found = likelihood(sketch)
        if found.replicates is None:
            continue
        told += 1
        clusters = found.clusters or tuple((at,) for at in range(4))
        covered += [
            interval.low - 1e-9 <= counts[list(each)].sum() / 400 <= interval.high + 1e-9
            for each, interval in zip(clusters, found.share_intervals, strict=True)
        ]
        disparity += np.ptp(counts) / 400 in found.interval
    assert told >= 0.9 * reps
    assert np.mean(covered) >= 0.93
    assert disparity >= fewest(told, 0.95)


# Refits that confuse groups


def test_refits_that_confuse_two_groups_say_nothing_about_these_two_only() -> None:
    replicates = np.array([[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    ordered = np.ones((3, 4, 4), dtype=bool)
    for b, pairs in enumerate([[(0, 1)], [(0, 1), (1, 2)], [(0, 1), (2, 3), (1, 2)]]):
        for g, h in pairs:
            ordered[b, g, h] = ordered[b, h, g] = False
    found = _undivided(replicates, ordered, np.array([1, 2, 3]), 0)
    np.testing.assert_allclose(found, [[0, 0.7, 0.2, 0.1], [0, 0, 0.9, 0.1], [0, 0, 0, 1]])
    np.testing.assert_array_equal(found[2], [0, 0, 0, 1])  # to the bit, as for two groups
    elsewhere = _undivided(replicates[:1], ordered[:1], np.array([3]), 0)
    assert sorted(elsewhere[0, :2]) == pytest.approx([0, 0.7])
    np.testing.assert_array_equal(elsewhere[0, 2:], [0.2, 0.1])


# What people see


def test_the_report_has_the_sum(result: Audit) -> None:
    page = render_html([result])
    assert "a or b" in page
    assert "nan%" not in page
    assert ">nan" not in page
    summary = report([result], Context(limit=0.3))
    assert summary.lead.startswith("Best estimate: ")
    assert "a or b" in summary.lead
    (check,) = (each for each in checks([result]) if each.name == "Can the groups be distinguished?")
    assert (check.state, "a and b" in check.sentence) == ("caution", True)
    assert any("have one share, their sum" in text for text in summary.definitions)
    drawing = picture([result])
    assert drawing is not None
    assert [mark.label for mark in drawing.marks] == ["a or b", "c", "d"]
    assert "a or b" in render_markdown([result])
    result.plot()


def test_tables_have_the_sum(result: Audit) -> None:
    several = Audits((result, audit(drawn(3, [10, 20, 70, 300])[0], lookalikes(), name="other")))
    head, *rows = table(several).splitlines()
    assert "a or b" in head
    assert all("?" in row for row in rows)  # the disparity
    found = listing(several, 0.3)
    assert found is not None
    assert [column.label for column in found.columns][2:6] == ["a or b", "c", "d", "largest − smallest"]
    assert found.lines[0].cells[4].endswith(" points")
    assert lead(several).startswith("The share of a or b ranges from ")
    assert "farthest below an even split" in several.headline
    assert several.gate(0.9).verdict == "pass"
    assert several.gate(0.3).verdict == "fail"
    assert several.worst.name == "other"
    render_html(several, Context(limit=0.3))


def test_a_collection_without_numbers_next_to_one_with_sums(result: Audit) -> None:
    few = audit(drawn(3, [3, 3, 3, 3])[0], lookalikes(), name="few")
    assert few.trust == "poor"
    for audits in ([few, result], [result, few]):
        found = listing(audits)
        assert found is not None
        assert [line.name for line in found.lines] == ["collection", "few"]
        assert "a or b" in table(audits)
        render_html(audits)
        render_markdown(audits)


def test_a_limit_in_shares_of_a_sum(result: Audit) -> None:
    # The sum of a and b is off by as much as 0.2 · 2 · 2 / 4 if c and d are both 0.2 below a and b.
    assert share_limits(result, "a or b", 0.2) == pytest.approx((0.3, 0.7))
    assert share_limits(result, "c", 0.2) == pytest.approx((0.1, 0.4))
