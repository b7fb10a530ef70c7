"""What reports say where there are no shares, no interval, high levels or shares next to nothing."""

import re
from dataclasses import replace

import matplotlib
import numpy as np
import pytest

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.audit.trust import DIFFERS, NO_MIXTURE, NOT_QUITE
from divscore.estimators.interval import Interval
from divscore.report import html as page
from divscore.report import markdown
from divscore.report.changes import overview
from divscore.report.context import Context
from divscore.report.picture import disparities, forest
from divscore.report.prose import bare, level
from divscore.report.summary import headline, lead, lights, notices, summarise
from divscore.report.table import table

matplotlib.use("Agg")
FULL = r"0\.00 to 1\.00"


@pytest.fixture(scope="module")
def trio(draw, make_control):
    """Three groups: two uneven collections, a balanced one, and one that is too small."""
    control = make_control(3, (40, 40, 40), gap=3.0)
    made = [(100, 300, 50), (60, 60, 240), (100, 100, 100), (3, 3, 3)]
    return [
        audit(draw(5 + at, counts, gap=3.0)[0], control, name=f"trio {at}") for at, counts in enumerate(made)
    ]


@pytest.fixture(scope="module")
def scored(draw, make_control):
    """The paper's score of three groups, which gives no shares."""
    control = make_control(3, (40, 40, 40), gap=3.0)
    made = [(100, 300, 50), (100, 100, 100), (200, 100, 50)]
    return [
        audit(draw(5 + at, counts, gap=3.0)[0], control, name=f"trio {at}", estimator="divscore")
        for at, counts in enumerate(made)
    ]


@pytest.fixture(scope="module")
def trained(draw, make_control):
    """Self-training, which gives no interval."""
    control = make_control(1, (60, 60), gap=2.5)
    return [
        audit(
            draw(7 + at, (50 + 50 * at, 300), gap=2.5)[0], control, name=f"n{at}", estimator="self-training"
        )
        for at in range(6)
    ]


# Several groups


def test_several_groups_are_counted_by_their_intervals(trio):
    assert headline(trio) == "Of 4 collections, 2 are uneven, 1 may be balanced and 1 cannot be told."
    assert headline([trio[0], trio[2]]) == "Of 2 collections, 1 is uneven and 1 may be balanced."
    wide = [replace(a, interval=Interval(0.0, 0.9, 0.95, "bayesian bootstrap")) for a in trio[:2]]
    assert headline(wide) == "Of 2 collections, 2 may be balanced."
    assert re.match(
        r"In percentage points, the gap between the largest and the smallest group runs from \d+ in trio 2 "
        r"\(between \d+ and \d+\) to \d+ in trio [01] \(between \d+ and \d+\) by best estimates\. 1,119 items",
        lead(trio),
    )


@pytest.mark.slow
def test_balanced_groups_are_seldom_called_uneven(draw, make_control):
    wrong = 0
    for at in range(30):
        control = make_control(1000 + at, (40, 40, 40), gap=1.5)
        wrong += audit(draw(5000 + at, (100, 100, 100), gap=1.5)[0], control).interval.low > 0
    assert wrong <= 6  # at 5 % a seventh mistake comes less than once in a thousand times


def test_a_score_without_shares_speaks_of_none(scored):
    one = page.render(scored[:1])
    words = re.sub(r"<[^>]*>|\s+", " ", one)
    assert "differ by a DivScore of" in words
    for untrue in ("Largest group", "largest share", "percentage point", "Shares by", "? (0%"):
        assert untrue not in words
    assert [picture.title for picture in summarise(scored[:1], Context()).pictures] == ["Disparity of letter"]
    assert re.fullmatch(
        rf"\d+% interval {FULL}\. This is the whole range: .* nothing out\.", lead(scored[:1])
    )
    text = markdown.render(scored)
    assert "percentage point" not in text
    assert headline(scored) == "Of 3 collections, 3 may be balanced."
    assert re.match(
        rf"By DivScore, which gives no shares, .* from \d\.\d\d in trio \d \({FULL}\) "
        rf"to \d\.\d\d in trio \d \({FULL}\)",
        lead(scored),
    )
    assert "are no shares" in text
    assert "misses the truth" not in markdown.render(scored * 3)


# No interval


def test_a_method_without_interval_claims_none(trained):
    for text in (page.render(trained), markdown.render(trained)):
        assert "misses the truth" not in text
        assert "there partly by chance" in text
        assert "(none)" not in text
        assert "95%" not in text
        assert "interval by none" not in text
    assert re.search(r"from \d+% in n0 to \d+% in n5; balanced", lead(trained))
    assert "without an interval</li>" in page.render(trained)


def test_without_interval_only_the_mark_is_drawn(trained):
    text = page.render(trained)
    plot = re.search(r'<svg class="plot wide".*?</figure>', text, re.S)[0]
    assert 'class="bar"' not in plot
    assert plot.count('class="mark"') == 2 * len(trained) + 1  # wide, narrow and the legend
    picture = disparities(trained, None)
    assert not picture.barred
    assert "interval" not in picture.description
    axes = forest(trained)
    try:
        assert not any(len(line.get_xdata()) == 2 and set(line.get_xdata()) == {-1, 1} for line in axes.lines)
    finally:
        matplotlib.pyplot.close("all")


def test_the_terminal_has_no_interval_either(trained):
    rows = table(trained).splitlines()
    assert rows[0].split()[-5:] == ["between", "disparity", "interval", "DivScore", "trust"]
    assert all(row.split()[3:6:2] == ["none", "none"] for row in rows[1:])


def test_skipped_items_are_not_weighed_with_an_interval_that_is_none(trained, scored, draw, make_control):
    vectors = draw(3, (200, 100), gap=2.5)[0]
    vectors = np.concatenate([vectors, np.zeros((250, vectors.shape[1]))])
    found = audit(vectors, make_control(1, (60, 60), gap=2.5), estimator="self-training")
    light = lights([found])[4]
    assert light.state == "caution"
    assert "250 of 550 items" in light.figure
    assert "interval allows for" not in light.sentence
    few = replace(found, skipped={"zero": 1}, diagnostics=replace(found.diagnostics, skipped_shift=0.004))
    assert lights([few])[4].sentence.endswith("would hardly move.")
    assert lights([few])[4].state == "good"
    worst = replace(
        scored[0], skipped={"zero": 250}, diagnostics=replace(scored[0].diagnostics, skipped_shift=0.4)
    )
    assert bare(worst.interval, 3)
    assert lights([worst])[4].state == "caution"


# Levels


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.95, "95%"),
        (0.9, "90%"),
        (0.995, "99.5%"),
        (0.999, "99.9%"),
        (0.9999999, "99.99999%"),
        (0.0001, "0.01%"),
        (0.5, "50%"),
        (0.9 - 1e-5, "90%"),
        (0.925, "92.5%"),
        (1.0, "100%"),
    ],
)
def test_levels_are_told_as_they_are(value, said):
    assert level(value) == said


def test_high_levels_stay_what_they_are(draw, make_control):
    control = make_control(1, (60, 60), gap=2.5)
    found = [
        audit(draw(at, (50 + 30 * at, 200), gap=2.5)[0], control, confidence=0.999, name=f"n{at}")
        for at in range(5)
    ]
    for text in (page.render(found), markdown.render(found), page.render(found[:1]), table(found)):
        assert "99.9% interval" in text
        assert "100% interval" not in text
    assert "in up to 0.1% of cases" in page.render(found)


# Next to nothing


def rare(found, share, width):
    limits = Interval(share - width, share + width, 0.95, "bayesian bootstrap")
    return replace(
        found,
        trust="good",
        shares={"a": share, "b": 1 - share},
        share_intervals={
            "a": limits,
            "b": Interval(1 - limits.high, 1 - limits.low, 0.95, limits.method),
        },
        disparity=2 * share - 1,
        interval=Interval(2 * limits.low - 1, 2 * limits.high - 1, 0.95, limits.method),
    )


def test_one_in_a_thousand_is_not_none(trained):
    found = rare(replace(trained[0], estimator="likelihood"), 0.003, 0.001)
    assert found.headline.startswith("Between 0.2% and 0.4% of these 350 items are a;")
    assert lead([found]).startswith("Best estimate 0.3% a.")
    assert table([found]).splitlines()[1].split()[2:4] == ["0.3%", "0.2%–0.4%"]
    fewer = rare(replace(found, name="fewer"), 0.0001, 0.0001)
    assert fewer.headline.startswith("Between 0% and 0.1% of")
    assert lead([fewer]).startswith("Best estimate <0.1% a.")
    assert "&lt;0.1% in fewer" in page.render([found, fewer])
    assert (
        "About 99.7%"
        in replace(
            rare(found, 0.997, 0.001), interval=Interval(-1.0, 1.0, 0.95, "none: no interval")
        ).headline
    )


# An overview of many


def spread(audits, number):
    """Many collections with disparities from 0 to nearly 1, in mixed order."""
    values = np.random.default_rng(0).permutation(number) / number
    return [replace(audits[at % 2], name=f"n{at:02d}", disparity=value) for at, value in enumerate(values)]


def test_of_three_groups_the_most_uneven_are_shown(trio):
    many = spread(trio, 60)
    found = overview([*many, *(replace(trio[3], name=f"poor {at}") for at in range(3))])
    assert [each.disparity for each in found.shown] == [at / 60 for at in range(59, 35, -1)]
    assert found.table == table(found.shown)
    assert found.headline == "Of 63 collections, 60 are uneven and 3 cannot be told."
    assert found.notes[0].startswith("39 of 63 collections are left out")
    assert found.notes[1].startswith("Trust: ")
    assert found.notes[1].endswith(" 3 poor.")


def test_of_two_groups_either_end_is_shown(trained):
    many = spread(trained, 60)
    poor = [replace(trained[0], name="poor", trust="poor", disparity=each) for each in (1.0, -1.0, np.nan)]
    found = overview([*poor, *many])
    ends = [*range(59, 47, -1), *range(11, -1, -1)]
    assert [each.disparity for each in found.shown] == [at / 60 for at in ends]
    lines = found.table.splitlines()
    assert lines.pop(13) == "…"
    assert lines == table(found.shown).splitlines()
    few = overview([*poor * 20, *many[:24]])
    assert few.table == table(few.shown)
    assert [each.name for each in few.shown] == [
        each.name for each in sorted(many[:24], key=lambda each: -each.disparity)
    ]


# Warnings


def flagged(found, number, total):
    """Collections of which the first ones differ from the control set, and have a warning of it."""
    check = replace(found.diagnostics, relevance_p=0.5, score_fit_p=0.5)
    fine = [replace(found, name=f"n{at}", warnings=(), diagnostics=check) for at in range(total)]
    odd = [
        replace(each, warnings=(f"{DIFFERS} in more than its composition ({at} times)",))
        for at, each in enumerate(fine[:number])
    ]
    return [*odd, *fine[number:]]


def test_of_many_collections_it_is_told_how_many_are_flagged_by_chance(trained):
    (found,) = notices(flagged(trained[0], 105, 3000))
    told = "(105 of 3,000 collections; about 30 would be by chance alone)"
    assert found.text == f"{DIFFERS} in more than its composition (0 times) {told}"
    assert (len(found.names), found.alike) == (105, True)
    assert f"{told}." in markdown.render(flagged(trained[0], 105, 3000))
    (few,) = notices(flagged(trained[0], 5, 100))
    assert few.text.endswith("(0 times)")


@pytest.mark.parametrize("warning", [NO_MIXTURE, NOT_QUITE])
def test_a_warning_on_scores_tells_the_most_that_chance_would_flag(trained, warning):
    many = [
        replace(each, warnings=(warning,) if each.warnings else ()) for each in flagged(trained[0], 9, 400)
    ]
    (found,) = notices(many)
    assert found.text == f"{warning} (9 of 400 collections; at most about 4 would be by chance alone)"
    unknown = replace(trained[0].diagnostics, score_fit_p=np.nan)
    (found,) = notices([*many[:101], *(replace(each, diagnostics=unknown) for each in many[101:])])
    assert "at most about 1 would" in found.text
    (found,) = notices([replace(each, diagnostics=unknown) for each in many])
    assert found.text == warning


def test_what_is_no_test_is_not_counted(trained):
    few = "only 5 'a' among the labelled examples"
    (found,) = notices([replace(trained[0], name=f"n{at}", warnings=(few,)) for at in range(200)])
    assert found.text == few


def test_warnings_of_real_audits_are_known_by_their_beginnings(draw, make_control):
    control = make_control(1, (60, 60), gap=2.5)
    shifted = audit(draw(2, (100, 200), gap=2.5)[0] + 0.4 * np.eye(8)[7], control)
    assert shifted.warnings[0].startswith(DIFFERS)
    odd = audit(draw(2, (100, 200), gap=2.5)[0] + 4 * np.random.default_rng(1).normal(size=(300, 8)), control)
    assert odd.warnings[0].startswith(NO_MIXTURE)


def test_what_takes_the_number_away_is_warned_of_first(trained):
    few, differs = "only 5 'a' among the labelled examples", "the collection differs (3 times)"
    first = replace(trained[0], name="one", warnings=(few,))
    second = replace(trained[0], name="two", warnings=(differs, few))
    third = replace(trained[0], name="three", warnings=("3 files are missing", "cannot tell: copies", few))
    told = [notice.text for notice in notices([first, second, third])]
    assert told == ["cannot tell: copies", differs, "3 files are missing", few]


def test_one_attribute_of_control_sets_makes_no_report_of_two(trained, draw, make_control):
    from divscore.errors import MismatchError

    other = audit(draw(1, (50, 50))[0], make_control(9, (30, 30)), name="other", estimator="self-training")
    with pytest.raises(MismatchError, match="'other' was audited with another control set than 'n0'"):
        summarise([trained[0], other], Context())
    mixed = replace(trained[1], estimator="likelihood")
    with pytest.raises(MismatchError, match="'n1' was audited by likelihood"):
        summarise([trained[0], mixed], Context())
    same = ControlSet(
        trained[0].control.vectors,
        [trained[0].control.groups[g] for g in trained[0].control.labels],
        attribute="letter",
    )
    summarise([trained[0], replace(trained[1], control=same)], Context())
