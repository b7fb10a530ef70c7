"""What a report says: its first sentences, its method, and how to reproduce it."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.errors import InputError, MismatchError
from divscore.estimators.interval import Interval
from divscore.report.listing import table
from divscore.report.page import render_html, render_markdown
from divscore.report.summary import Context, Input, headline, lead, overview, summarise

FULL = r"0\.00 to 1\.00"


def test_several_collections_are_counted_by_their_intervals(audits, three):
    assert headline(audits) == (
        "Of 4 collections, 1 has fewer a than b, 1 has more a than b, 1 may be even and 1 is inconclusive."
    )
    assert re.match(
        r"The share of a ranges from 2\d% in place 2 \(.*\) to 7\d% in place 0 .*; an even split is 50%\. 1,212 items",
        lead(audits),
    )
    assert headline(audits[3:] * 2) == "Cannot tell how letter is distributed in any of 2 collections."
    assert headline(three) == (
        "The smallest group is c in 1 of 4 collections and a in 1; 1 may be even and 1 is inconclusive."
    )
    same = [replace(three[0], name=name) for name in "xyz"]
    assert headline(same) == "The smallest group is c in all 3 collections."
    assert headline([*same, three[3]]) == "The smallest group is c in 3 of 4 collections; 1 is inconclusive."
    assert headline(audits[:1] * 3) == "All 3 collections have more a than b."
    wide = [replace(a, interval=Interval(0.0, 0.9, 0.95, "bootstrap")) for a in three[:2]]
    assert headline(wide) == "Of 2 collections, 2 may be even."
    assert re.match(
        r"The share of a ranges from \d+% in place 1 \(\d+%–\d+%\) to \d+% in place 2 \(\d+%–\d+%\); an even split "
        r"is 33%\. 1,119 items in total\.",
        lead(three),
    )
    assert lead([audits[0], audits[3]]).startswith("The share of a is 7")


@pytest.mark.slow
def test_even_groups_are_seldom_called_uneven(draw, make_control):
    wrong = 0
    for at in range(10):
        control = make_control(1000 + at, (40, 40, 40), gap=1.5)
        wrong += audit(draw(5000 + at, (100, 100, 100), gap=1.5)[0], control).interval.low > 0
    assert wrong <= 3  # at 5 % a fourth error has a probability of about 0.1 %


def test_one_collection_has_its_numbers_in_the_lead(audits, three):
    assert re.fullmatch(
        r"Best estimate: 7\d% a and 2\d% b\.",
        lead(audits[:1]),
    )
    assert re.fullmatch(r"Best estimate: from 1\d% c to 6\d% b\.", lead(three[:1]))

    assert lead(audits[3:]) == "The warnings and checks below say why. So there are no numbers."


def test_both_ranges_are_given_where_a_collection_differs(draw, make_control):
    rows = draw(5, (300, 100), gap=2.5)[0]
    away = 0.4 * np.eye(8)[7]
    control = make_control(1, (60, 60), gap=2.5)
    made = [audit(rows + away, control, name="odd"), audit(rows, control, name="usual")]
    assert [a.trust for a in made] == ["caution", "good"]
    _, _, ranges = lead(made[:1]).partition("If these items are like your labelled examples: ")
    low, high, least, most = map(int, re.findall(r"\d+", ranges))
    assert "; allowing for the difference: " in ranges
    assert least < low < high < most
    assert "labelled examples" not in lead(made[1:])
    both = summarise(made, Context())
    assert both.remark.startswith("1 of 2 collections look different from your labelled examples.")
    assert both.statistics.columns[3].label == "if similar"
    assert [line.cells[2] for line in both.statistics.lines].count("the same") == 1
    relevance, _, _ = summarise(made[:1], Context()).checks[:3]
    assert relevance.sentence.endswith(
        "The interval allows for a difference of this size where it would do harm and cannot be seen."
    )


def test_a_score_without_shares_mentions_none(scored):
    words = re.sub(r"<[^>]*>|\s+", " ", render_html(scored[:1]))
    for untrue in ("Largest group", "largest share", "percentage point", "Shares by", "? (0%"):
        assert untrue not in words
    assert summarise(scored[:1], Context()).picture is None
    assert re.fullmatch(rf"\d+% interval {FULL}\. This is the whole range: .* nothing\.", lead(scored[:1]))
    assert headline(scored) == "Of 3 collections, 3 may be even."
    assert re.match(rf"The difference in DivScore .* from \d\.\d\d in place \d \({FULL}\) to", lead(scored))
    text = render_markdown(scored * 3)
    assert "are not shares" in text
    assert "misses the true value" not in text


def test_a_method_without_intervals_claims_none(trained):
    for text in (render_html(trained), render_markdown(trained)):
        assert "misses the true value" not in text
        assert "there partly by chance" in text
        for untrue in ("(none)", "95%", "interval by none"):
            assert untrue not in text
    assert headline(trained) == "6 of 6 collections have an estimate, by a method without intervals."
    assert re.search(r"from \d+% in place 0 to \d+% in place 5; an even", lead(trained))
    assert ", no interval</li>" in render_html(trained)


def test_high_levels_stay_as_they_are(audits):
    def at(interval):
        return replace(interval, level=0.999)

    found = [replace(a, interval=at(a.interval)) for a in audits[:3] * 2]
    for text in (render_html(found), render_markdown(found), render_html(found[:1]), table(found)):
        assert "99.9% interval" in text
        assert "100% interval" not in text
    assert "in up to 0.1% of cases, so expect an occasional miss" in summarise(found, Context()).remark
    assert "about 3 of these 60 to miss" in summarise(audits[:3] * 20, Context()).remark


def test_the_method_is_explained(audits, three, by_labels):
    summary = summarise(audits, Context())
    assert "+1 means only a, −1 means only b" in summary.definitions[0]
    assert "the paper's own score" in summary.definitions[1]
    titles = [title for title, _ in summary.assumptions]
    assert len(titles) == 7
    direct = summarise([by_labels["rectified"]], Context())
    assert [title for title, _ in direct.assumptions] == titles[2:]
    assert "largest share minus the smallest" in summarise(three, Context()).definitions[0]


def test_labels_of_the_collection_are_described(by_labels):
    alone, both = (summarise([by_labels[name]], Context()) for name in ("crossfit", "rectified"))
    assert dict(alone.facts)["Labels of the collection"] == "56, 4 without a label; drawn at random"
    assert dict(both.facts)["Labels of the collection"].endswith("with similar scores, in 2 batches")
    assert "γ" in dict(both.facts)
    assert "γ" not in dict(alone.facts)
    assert "there is no control set" in alone.control.remark
    assert alone.method != both.method


def test_everything_to_reproduce_it_is_there(audits):
    context = Context(
        command="divscore audit 'a b.npy' --control c",
        limit=0.25,
        inputs=[Input("Collection", "a b.npy", "0" * 64), Input("Control set", "c")],
        created=datetime(2030, 1, 2, 3, 4, tzinfo=UTC),
    )
    facts = dict(summarise(audits, context).facts)
    assert facts["Command"] == context.command
    assert facts["Created"] == "2030-01-02 03:04 UTC"
    assert facts["Seed"] == "0"
    assert f"numpy {np.__version__}" in facts["Versions"]
    assert facts["Control set digest"] == audits[0].control.digest
    assert facts["Limit"] == "disparity of at most 0.25"
    assert facts["Collection a b.npy"] == "0" * 64
    assert facts["Control set c"].startswith("no digest")


def test_a_report_is_about_one_control_set_and_method(trained, draw, make_control):
    with pytest.raises(InputError, match="at least one audit"):
        summarise([], Context())
    other = audit(draw(1, (50, 50))[0], make_control(9, (30, 30)), name="other", estimator="self-training")
    with pytest.raises(MismatchError, match="'other' and 'place 0' were audited with different control sets"):
        summarise([trained[0], other], Context())
    mixed = replace(trained[1], estimator="likelihood")
    with pytest.raises(
        MismatchError, match="'place 1' and 'place 0' were audited in different ways: likelihood"
    ):
        summarise([trained[0], mixed], Context())
    control = trained[0].control
    names = [control.groups[label] for label in control.labels]
    same = ControlSet(control.vectors, names, attribute="letter")
    summarise([trained[0], replace(trained[1], control=same)], Context())


def spread(audits, number):
    """Many collections with disparities from 0 to nearly 1, in mixed order."""
    values = np.random.default_rng(0).permutation(number) / number
    return [replace(audits[at % 2], name=f"n{at:02d}", disparity=value) for at, value in enumerate(values)]


def test_a_long_table_of_three_groups_shows_the_most_uneven(three):
    poor = [replace(three[3], name=f"poor {at}") for at in range(3)]
    found = overview([*spread(three, 60), *poor])
    assert [each.disparity for each in found.shown] == [at / 60 for at in range(59, 35, -1)]
    assert found.table == table(found.shown)
    assert (
        found.headline == "The smallest group is c in 30 of 63 collections and a in 30; 3 are inconclusive."
    )
    assert found.notes[0].startswith("39 of 63 collections are not in this table.")
    assert found.notes[1].startswith("Trust: ")
    assert found.notes[1].endswith(" 3 poor.")


def test_a_long_table_of_two_groups_shows_both_ends(trained):
    many = spread(trained, 60)
    poor = [replace(trained[0], name="poor", trust="poor", disparity=each) for each in (1.0, -1.0, np.nan)]
    found = overview([*poor, *many])
    ends = [*range(59, 47, -1), *range(11, -1, -1)]
    assert [each.disparity for each in found.shown] == [at / 60 for at in ends]
    lines = found.table.splitlines()
    assert lines.pop(13) == "…"
    assert lines == table(found.shown).splitlines()
    few = overview([*poor * 20, *many[:24]])
    ordered = sorted(many[:24], key=lambda each: -each.disparity)
    assert [each.name for each in few.shown] == [each.name for each in ordered]
