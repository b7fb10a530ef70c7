"""Trust checks and joined warnings."""

import re
from dataclasses import replace

import numpy as np

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.audit.document import document
from divscore.audit.trust import DIFFERS, NO_MIXTURE, TOO_WIDE, Copies
from divscore.report.caveats import checks, notices
from divscore.report.listing import uninformative
from divscore.report.summary import Context, summarise
from divscore.sketch.missing import Missing, MissingPart


def test_every_check_asks_and_answers_a_question(audits):
    for made in (audits[:1], audits):
        found = checks(made)
        assert [check.name for check in found] == [
            "Do these items look like the labelled examples?",
            "Can the groups be distinguished?",
            "Do the scores fit a mixture of the groups?",
            "Are all kinds of labelled examples represented?",
            "Were items skipped?",
            "Are there copies?",
            "Are labelled examples inside the collection?",
        ]
        for check in found:
            assert check.state in {"good", "caution", "poor", "info"}
            assert check.sentence.endswith(".")
            assert not re.search(r"[{}?]|p [<=] ", check.sentence)


def test_checks_follow_the_diagnostics(audits):
    first = audits[0]

    def state(at, **changes):
        changed = replace(first, diagnostics=replace(first.diagnostics, **changes))
        return checks([changed])[at].state, checks([changed, first])[at].state

    assert {check.state for check in checks([first])[:3]} == {"good"}
    assert state(1, separability_p=0.5, auc=0.5) == ("poor", "poor")
    assert state(1, auc=0.7) == ("caution", "caution")
    assert state(0, relevance=9.0, relevance_p=0.001) == ("caution", "caution")
    assert state(2, score_fit=1.2, score_fit_p=0.001) == ("caution", "caution")


def test_labels_of_the_collection_need_no_check_of_the_control_set(by_labels):
    answers = [(check.state, check.sentence) for check in checks([by_labels["crossfit"]])]
    assert answers[0][1].startswith("56, drawn at random.")
    assert answers[1][0] == "caution"
    assert answers[1][1].startswith("No. 4 of 60 have none. The interval allows for all of them")
    assert len(answers) == 4  # and skipped items, and copies
    states = [check.state for check in checks([by_labels["rectified"]])]
    assert states[:3] == ["good", "good", "caution"]  # labels were added
    assert "pairs" in checks([by_labels["pairs"]])[0].sentence


def test_skipped_items_are_compared_with_the_interval_if_there_is_one(audits, trained, scored):
    def check(found, number, shift):
        diagnostics = replace(found.diagnostics, skipped_shift=shift)
        return checks([replace(found, skipped={"zero": number}, diagnostics=diagnostics)])[4]

    assert check(audits[0], 300, 0.9).state == "caution"
    # A disparity of two groups changes by twice as much as a share.
    assert check(audits[0], 300, 0.9).sentence.startswith(
        "300 of 700 items were skipped. If all of them were in one group, the result would change by up to 45 points"
    )
    few = check(audits[0], 1, 0.004).sentence
    assert few.startswith("1 of 401 items was skipped.")
    assert few.endswith("would change by less than 1 point, less than the interval allows.")
    for bare in (trained[0], scored[0]):
        assert uninformative(bare)
        assert check(bare, 250, 0.4).state == "caution"
        assert "interval allows" not in check(bare, 250, 0.4).sentence
        assert "would hardly change" in check(bare, 1, 0.004).sentence


def test_the_pair_that_is_hardest_to_tell_apart_is_named(audits, three):
    assert "Labelled examples of a and b are distinguished in" in checks(audits)[1].sentence
    found = checks([replace(three[0], hardest_pair=("a", "c"))])[1].sentence
    assert "Labelled examples of a and c are distinguished in" in found
    assert found.endswith("Of all pairs of groups, this is the hardest.")


def test_copies_and_labelled_examples_in_the_collection_are_counted(audits):
    def states(largest, items=60, inside=0):
        copies = Copies(items, largest)
        found = checks([replace(audits[0], copies=copies, labelled_inside=inside)])[5:]
        return [check.state for check in found], [check.sentence for check in found]

    assert states(0, items=0)[0] == ["good", "good"]
    assert [states(number)[0][0] for number in (4, 24, 90)] == ["good", "caution", "poor"]
    state, (copies, inside) = states(4, inside=3)
    assert state == ["good", "caution"]
    assert copies.startswith(
        "60 of 400 items are copies of another item; the most frequent one occurs 4 times."
    )
    assert inside.startswith("3 of 120 labelled examples are also in the collection.")
    several = checks([audits[0], replace(audits[1], copies=Copies(60, 44))])[5]
    assert several.sentence.startswith("In place 1, 60 of 400 items")


def test_coverage_warns_of_representatives_of_one_kind():
    rng = np.random.default_rng(0)
    # Half of each group is far from the other half, and all representatives come from one half.
    kinds = np.repeat(np.eye(8)[[0, 1, 2, 3]] * 6, 30, axis=0)
    pool = ControlSet(kinds + rng.normal(size=kinds.shape) * 0.3, ["a"] * 60 + ["b"] * 60, attribute="letter")
    narrow = pool.with_representatives([*range(10), *range(60, 70)])
    mixed = pool.with_representatives([*range(0, 60, 6), *range(60, 120, 6)])
    rows = kinds + rng.normal(size=kinds.shape) * 0.3
    assert [checks([audit(rows, control)])[3].state for control in (narrow, mixed)] == ["caution", "good"]


def test_missing_parts_are_listed_once_for_all_collections(several):
    missing = Missing.of([MissingPart(f"part {at}.npy", "damaged", 3) for at in range(120)])
    made = [replace(a, missing=missing) for a in several(300)]
    found = document(made)
    assert found["missing"] == missing.to_dict()
    assert {each["missing_parts"] for each in found["collections"]} == {120}
    assert "and 120 parts of the source could not be read" in checks(made)[4].sentence
    more = missing + Missing.of([MissingPart("part of none.npy", "damaged")])
    assert document(made, missing=more)["missing"] == more.to_dict()


def test_warnings_that_differ_in_figures_are_joined(several):
    ((_, about),) = summarise(several(60), Context()).warnings
    assert about.endswith("and 8 more (the numbers are those of collection 0000)")


def flagged(found, number, total, warning=f"{DIFFERS} ({{}} times)"):
    """Collections; the first ones have a warning."""
    check = replace(found.diagnostics, relevance_p=0.5, score_fit_p=0.5)
    fine = [replace(found, name=f"n{at}", warnings=(), diagnostics=check) for at in range(total)]
    odd = [replace(each, warnings=(warning.format(at),)) for at, each in enumerate(fine[:number])]
    return [*odd, *fine[number:]]


def test_warnings_of_many_collections_say_how_many_are_by_chance(audits):
    (notice,) = notices(flagged(audits[0], 105, 3000))
    counted = "(105 of 3,000 collections; about 30 are expected by chance)"
    assert notice.text == f"{DIFFERS} (0 times) {counted}"
    assert (len(notice.names), notice.varies) == (105, True)
    (few,) = notices(flagged(audits[0], 5, 100))
    assert few.text.endswith("(0 times)")
    (other,) = notices(flagged(audits[0], 200, 200, "only 5 'a' among the labelled examples"))
    assert other.text == "only 5 'a' among the labelled examples"


def test_warnings_on_scores_say_how_many_are_at_most_by_chance(audits):
    many = flagged(audits[0], 9, 400, NO_MIXTURE)
    (notice,) = notices(many)
    assert notice.text == f"{NO_MIXTURE} (9 of 400 collections; at most about 4 are expected by chance)"
    unknown = replace(audits[0].diagnostics, score_fit_p=np.nan)
    (notice,) = notices([*many[:101], *(replace(each, diagnostics=unknown) for each in many[101:])])
    assert "at most about 1 are" in notice.text
    (notice,) = notices([replace(each, diagnostics=unknown) for each in many])
    assert notice.text == NO_MIXTURE


def test_warnings_of_real_audits_start_as_expected(draw, make_control):
    control = make_control(1, (60, 60), gap=2.5)
    shifted = audit(draw(2, (100, 200), gap=2.5)[0] + 0.4 * np.eye(8)[7], control)
    assert shifted.warnings[0].startswith(DIFFERS)
    assert "p < 0.001" in shifted.warnings[0]
    sentence = notices([shifted])[0].sentence
    assert re.search(r"\(\d+\.\d times the expected distance\)", sentence)  # p-values are technical
    rows = draw(2, (300, 300), gap=2.5)[0]
    between = audit(rows[np.abs(rows[:, 0] - rows[:, 1]) < 3], control)
    assert any(text.startswith(NO_MIXTURE) for text in between.warnings)


def test_the_gravest_warnings_come_first(audits):
    few, differs, grave = "only 5 'a' are labelled", "the items differ (3 times)", f"{TOO_WIDE}: copies"
    made = [(few,), (differs, few), ("3 files are missing", grave, few)]
    found = notices([replace(audits[0], name=str(at), warnings=each) for at, each in enumerate(made)])
    assert [notice.text for notice in found] == [grave, differs, "3 files are missing", few]
    part = Missing.of([MissingPart("part of none.npy", "damaged")])
    texts = [notice.text for notice in notices([replace(audits[0], warnings=(grave, few))], part)]
    assert texts == [grave, *part.warning, few]
