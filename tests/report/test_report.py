"""Reports: what they say, that strangers' strings stay text, how large they are, and where they are written."""

import base64
import gzip
import html
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from divscore import ControlSet, report, select_adaptive
from divscore.audit.audit import audit
from divscore.audit.document import document
from divscore.cli import main
from divscore.cli.audit_command import thumbnail
from divscore.errors import FileError, InputError
from divscore.estimators.interval import Interval
from divscore.report import html as page
from divscore.report import markdown
from divscore.report.auditjson import check_target, write_report
from divscore.report.context import Context, Example, Examples, Input
from divscore.report.picture import Gap, Mark, disparities, forest
from divscore.report.prose import short, signed
from divscore.report.summary import headline, lead, lights, summarise
from divscore.report.table import verdict
from divscore.sketch.missing import Missing, MissingPart
from divscore.text import public

matplotlib.use("Agg")
WICKED = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--",
    "]]>",
    '" onload="alert(3)',
    "' onfocus='alert(4)' autofocus='",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\x00\x1b[31m\n",
    "مجموعة",
    "x" * 10_000,
    "javascript:alert(5)",
    "&lt;b&gt;",
    "half \ud800 a character",
]
VOID = {"meta", "img", "input", "link", "br", "wbr"}


class Outline(HTMLParser):
    """A page's elements, well nested, with the text of scripts and of everything else."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.scripts, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self.open and self.open[-1] in {"script", "style"} else self.text).append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self):
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def control(make_control):
    return select_adaptive(make_control(1, (60, 60), gap=1.5), 30)


@pytest.fixture(scope="module")
def audits(draw, control):
    made = [(300, 100), (200, 200), (100, 300), (6, 6)]
    return [
        audit(draw(7 + at, counts, gap=1.5)[0], control, name=f"place {at}") for at, counts in enumerate(made)
    ]


@pytest.fixture(scope="module")
def three(draw, make_control):
    control = make_control(3, (40, 40, 40), gap=3.0)
    return [
        audit(draw(5 + at, counts, gap=3.0)[0], control, name=f"trio {at}")
        for at, counts in enumerate([(100, 200, 50), (100, 100, 100)])
    ]


@pytest.fixture(scope="module")
def crossed(draw):
    vectors, groups = draw(4, (50, 50, 50, 50), gap=3.0)
    gender = ControlSet(vectors, ["f" if g in "ab" else "m" for g in groups], attribute="gender")
    tone = ControlSet(vectors, ["dark" if g in "ac" else "light" for g in groups], attribute="tone")
    return audit(draw(9, (100, 50, 150, 100), gap=3.0)[0], gender.cross(tone), name="crossed")


def many(audits, number):
    """Audits of as many collections, every number another one, as a page of real ones would have."""
    rng = np.random.default_rng(0)
    told = [a for a in audits if a.trust != "poor"]
    made = []
    for at in range(number):
        each = told[at % len(told)]
        share, width = rng.uniform(0.2, 0.8), rng.uniform(0.02, 0.1)
        d = 2 * share - 1
        limits = Interval(share - width, share + width, 0.95, each.interval.method)
        other = Interval(1 - share - width, 1 - share + width, 0.95, each.interval.method)
        made.append(
            replace(
                each,
                name=f"collection {at:04d}",
                count=int(rng.integers(20, 100_000)),
                shares={"a": share, "b": 1 - share},
                share_intervals={"a": limits, "b": other},
                disparity=d,
                interval=Interval(d - 2 * width, d + 2 * width, 0.95, each.interval.method),
                divscore=rng.normal(),
                diagnostics=replace(
                    each.diagnostics, relevance=rng.uniform(0.5, 9), score_fit=rng.uniform(0.2, 1.5)
                ),
                warnings=(f"the collection differs ({rng.uniform():.3f} times): so it is",) * (at % 3 == 0),
            )
        )
    return made


def inside(text):
    return json.loads(re.search(r'<script type="application/json" id="audit">(.*?)</script>', text, re.S)[1])


def downloaded(text):
    kind, data = re.search(r'href="data:application/(json|gzip);base64,([^"]*)"', text).groups()
    found = base64.b64decode(data)
    return json.loads(gzip.decompress(found) if kind == "gzip" else found)


# What it says


def test_the_headline_comes_first_and_sections_follow_in_order(audits):
    text = page.render(audits[:1])
    outline = Outline(text)
    assert outline.words.index(audits[0].headline) < outline.words.index("The picture")
    ids = [attrs["id"] for tag, attrs in outline.elements if tag == "section"]
    assert ids == ["picture", "trust", "warnings", "control", "method", "repeat", "data"]
    assert [tag for tag, _ in outline.elements if tag == "h1"] == ["h1"]
    assert outline.all("html") == [{"lang": "en"}]
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in outline.elements}


def test_headings_never_skip_a_level(audits, crossed):
    shown = Examples([Example("f × dark", text="one")], "All.")
    for text in (page.render(audits), page.render([crossed], Context(examples=shown))):
        levels = [int(tag[1]) for tag, _ in Outline(text).elements if re.fullmatch("h[1-6]", tag)]
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_headlines_say_the_noun(audits):
    assert re.match(r"Between \d+% and \d+% of these 400 items are a; balanced", audits[0].headline)
    pictures = replace(audits[0], noun="pictures")
    assert "of these 400 pictures belong to the group a;" in pictures.headline
    assert replace(audits[3], noun="texts").headline == (
        "Cannot tell how letter is distributed among these 12 texts."
    )


def test_a_method_without_interval_or_shares_says_so(audits, three):
    bare = Interval(-1.0, 1.0, 0.95, "none: Algorithm 3 gives no interval")
    assert replace(audits[0], interval=bare).headline.startswith("About 7")
    unknown = replace(three[0], shares=dict.fromkeys("abc", float("nan")))
    assert "it gives no shares" in unknown.headline
    page.render([unknown])


def test_several_collections_are_summed_up_honestly(audits):
    assert headline(audits) == (
        "Of 4 collections, 1 holds more a than b, 1 holds more b than a, 1 may be balanced and 1 cannot be told."
    )
    assert re.match(r"The share of a runs from 2\d% in place 2 \(.*\) to 7\d% in place 0", lead(audits))
    assert headline(audits[3:] * 2) == "Cannot tell how letter is distributed in any of 2 collections."


def test_the_plot_is_sorted_with_what_cannot_be_told_last(audits):
    rows = disparities(audits, 0.2).rows
    values = [row.value for row in rows]
    assert values[:3] == sorted(values[:3])
    assert values[3] is None
    assert rows[3].figure == "cannot tell"


def test_plots_have_a_title_a_description_and_a_table(audits):
    outline = Outline(page.render(audits, Context(limit=0.2)))
    plots = [attrs for attrs in outline.all("svg") if attrs.get("role") == "img"]
    assert [plot["class"] for plot in plots] == ["plot wide", "plot narrow"]
    ids = {attrs.get("id") for _, attrs in outline.elements}
    for plot in plots:
        assert set(plot["aria-labelledby"].split()) <= ids
    ornaments = [attrs for attrs in outline.all("svg") if attrs.get("role") != "img" and "x" not in attrs]
    assert all(attrs["aria-hidden"] == "true" for attrs in ornaments)
    assert len(outline.all("table")) == 2
    assert "← more b" in outline.words
    assert "more a →" in outline.words
    assert "limit ±0.2" in outline.words


def test_a_score_beyond_the_scale_is_an_arrow(audits):
    for score, arrow in ((1.7, "l9 5l-9 5z"), (-1.7, "l-9 5l9 5z"), (0.5, "l7 7l-7 7l-7-7z")):
        text = page.render([replace(audits[0], divscore=score)])
        assert len(re.findall(rf'class="hollow" d="M[\d.]+ \d+{re.escape(arrow)}"', text)) == 2


@pytest.mark.parametrize("number", [30, 31, 500])
def test_many_collections_leave_a_legible_plot_and_a_whole_table(audits, number):
    made = many(audits, number)
    picture = disparities(made, None)
    if number == 30:
        assert len(picture.rows) == 30
    else:
        assert len(picture.rows) == 25
        assert isinstance(picture.rows[12], Gap)
        assert f"{number - 24} collections" in picture.rows[12].text
        ordered = sorted(a.disparity for a in made)
        assert [r.value for r in picture.rows if isinstance(r, Mark)] == ordered[:12] + ordered[-12:]
    text = page.render(made)
    assert len(re.findall(r'<tr><th scope="row"><bdi>collection', text)) == number


def test_many_that_cannot_be_told_are_counted(audits):
    made = many(audits, 40)
    poor = [replace(a, name=f"poor {at}", trust="poor") for at, a in enumerate(many(audits, 9))]
    picture = disparities([*made, *poor], None)
    assert picture.rows[-1] == Gap("9 collections cannot be told: see the table")
    few = disparities([*made[:25], *poor], None)
    assert sum(isinstance(row, Mark) and not row.told for row in few.rows) == 5
    assert few.rows[-1] == Gap("4 more collections cannot be told: see the table")


def test_numbers_of_what_cannot_be_told_stand_in_brackets(audits, three):
    poor = summarise([replace(audits[0], trust="poor")], Context()).listing.lines[0]
    assert [cell.text[0] for cell in poor.cells[1:6]] == ["("] * 5
    cell = summarise([replace(three[0], trust="poor")], Context()).listing.lines[0].cells[1]
    assert re.fullmatch(r"\(\d+%, \d+%–\d+%\)", cell.text)


def test_three_groups_show_each_share_with_its_interval(three):
    text = page.render(three[:1])
    outline = Outline(text)
    assert [p["class"] for p in outline.all("svg") if p.get("role") == "img"] == [
        "plot wide",
        "plot narrow",
    ] * 2
    assert len(re.findall('class="sliver"', text)) == 3
    assert re.search(
        r"Largest group b, smallest c\. Disparity \(largest share minus smallest\) 0\.\d\d", outline.words
    )


def test_intersections_show_each_attribute_by_itself(crossed):
    outline = Outline(page.render([crossed]))
    assert "Each attribute by itself" in outline.words
    assert re.search(r"crossed gender f \d+%, m \d+%", re.sub(r"\s+", " ", " ".join(outline.text)))


def test_every_light_has_a_word_a_sentence_and_a_number(audits):
    found = lights(audits[:1])
    assert [light.name for light in found] == [
        "Separability of the groups",
        "Domain relevance",
        "Fit of the scores",
        "Coverage of the control set",
        "Skipped items",
    ]
    for light in found:
        assert light.state in {"good", "caution", "poor", "info"}
        assert light.sentence.endswith(".")
        assert re.search(r"\d", light.figure)
    outline = Outline(page.render(audits[:1]))
    assert len([a for a in outline.all("li") if a.get("class") in {"good", "caution", "poor", "info"}]) == 5


def test_lights_turn_with_the_diagnostics(audits):
    first = audits[0]
    good = lights([first])
    assert {light.state for light in good[:3]} == {"good"}

    def turned(**changes):
        return [
            light.state
            for light in lights([replace(first, diagnostics=replace(first.diagnostics, **changes))])
        ]

    assert turned(separability_p=0.5, auc=0.5)[0] == "poor"
    assert turned(auc=0.7)[0] == "caution"
    assert turned(relevance=9.0, relevance_p=0.001)[1] == "caution"
    assert turned(score_fit=1.2, score_fit_p=0.001)[2] == "caution"
    assert turned(score_fit=2.2, score_fit_p=0.001)[2] == "poor"
    skipped = replace(first, skipped={"zero": 300}, diagnostics=replace(first.diagnostics, skipped_shift=0.9))
    assert lights([skipped])[4].state == "caution"
    assert "300 of 700 items" in lights([skipped])[4].figure
    direct = lights([replace(first, estimator="rectified")])
    assert [light.state for light in direct[:3]] == ["info"] * 3


def test_coverage_warns_of_representatives_of_one_kind(draw):
    rng = np.random.default_rng(0)
    # Half of each group lies elsewhere, and all representatives come from the other half.
    kinds = np.repeat(np.eye(8)[[0, 1, 2, 3]] * 6, 30, axis=0)
    pool = ControlSet(kinds + rng.normal(size=kinds.shape) * 0.3, ["a"] * 60 + ["b"] * 60, attribute="letter")
    narrow = pool.with_representatives([*range(10), *range(60, 70)])
    mixed = pool.with_representatives([*range(0, 60, 6), *range(60, 120, 6)])
    rows = kinds + rng.normal(size=kinds.shape) * 0.3
    assert lights([audit(rows, narrow)])[3].state == "caution"
    assert lights([audit(rows, mixed)])[3].state == "good"


def test_warnings_that_say_the_same_are_said_once(audits):
    made = many(audits, 60)
    warned = summarise(made, Context()).warnings
    assert len(warned) == 1
    assert warned[0].about.endswith("and 8 more (figures of the first)")
    assert "Warnings None." in Outline(page.render([replace(audits[0], warnings=())])).words


def test_everything_to_repeat_it_is_there(audits):
    context = Context(
        command="divscore audit 'a b.npy' --control c",
        limit=0.25,
        inputs=[Input("Collection", "a b.npy", "0" * 64), Input("Control set", "c")],
        created=datetime(2030, 1, 2, 3, 4, tzinfo=UTC),
    )
    words = Outline(page.render(audits, context)).words
    for said in (
        "divscore audit 'a b.npy' --control c",
        "2030-01-02 03:04 UTC",
        "Seed 0",
        f"numpy {np.__version__}",
        audits[0].control.digest,
        "0" * 64,
        "no digest",
    ):
        assert re.sub(r"\s", "", said) in re.sub(r"\s", "", words)


def test_limits_of_the_method_are_told(audits):
    words = Outline(page.render(audits)).words.lower()
    for said in ("defined beforehand", "stereotypes", "hand-curation", "never about a person", "one by one"):
        assert said in words


def test_the_verdict_is_that_of_the_exit_code(audits):
    wide = replace(audits[0], interval=Interval(0.1, 0.6, 0.95, ""))
    assert [verdict(a, 0.2) for a in (*audits, wide)] == ["no", "unclear", "no", "cannot tell", "unclear"]
    kept = replace(audits[1], interval=Interval(-0.2, 0.2, 0.95, ""))
    assert verdict(kept, 0.2) == "yes"
    lost = Missing.of([MissingPart("a.npy", "damaged")])
    assert verdict(replace(kept, missing=lost), 0.2) == "unclear"
    lacking = [replace(a, missing=lost) for a in audits]
    assert [verdict(a, 0.2) for a in lacking] == [verdict(a, 0.2) for a in audits]


def test_parts_that_are_missing_are_named_once_whatever_the_number_of_collections(audits):
    lost = Missing.of([MissingPart(f"part {at}.npy", "damaged", 3) for at in range(120)])
    made = [replace(a, missing=lost) for a in many(audits, 300)]
    found = document(made)
    assert found["missing"] == lost.to_dict()
    assert {each["missing_parts"] for each in found["collections"]} == {120}
    assert json.dumps(found).count("part 7.npy") == 1
    assert "and 120 parts of the source" in lights(made)[4].figure
    more = lost + Missing.of([MissingPart("part of nobody.npy", "damaged")])
    assert document(made, missing=more)["missing"] == more.to_dict()
    assert Missing.from_dict(downloaded(page.render(made, Context(missing=more)))["missing"]) == more


# Data inside


@pytest.mark.parametrize("number", [1, 20, 300])
def test_the_download_is_the_whole_document(audits, number):
    made = many(audits, number)
    text = page.render(made)
    assert downloaded(text) == json.loads(json.dumps(document(made)))
    found = inside(text)
    assert [each["name"] for each in found["collections"]] == [a.name for a in made]
    if number <= 20:
        assert found == downloaded(text)
    else:
        assert found["schema"] == "divscore.audit-short/1"
        assert "(schema divscore.audit-short/1) has the main numbers only" in text
        assert found["collections"][0]["disparity"] == round(made[0].disparity, 4)


def test_a_page_tells_that_it_has_no_replicates(audits):
    assert audits[0].refits is not None
    for text in (page.render(audits), page.render(many(audits, 300)), markdown.render(audits)):
        assert "Replicates, with which divscore diff compares most narrowly, are left out" in text
    bare = [replace(a, refits=None) for a in audits]
    assert "Replicates" not in page.render(bare)


@pytest.mark.parametrize(("number", "most"), [(20, 300_000), (2000, 2_000_000)])
def test_a_page_stays_small(audits, number, most):
    made = many(audits, number)
    assert len(page.render(made, Context(limit=0.2)).encode()) < most


# Strings of strangers


def assert_inert(text):
    outline = Outline(text)
    assert [a.get("type") for a in outline.all("script")] == ["application/json", None]
    for _, attrs in outline.elements:
        assert not {name for name in attrs if name.startswith("on") or name == "style"}
        for name in ("href", "src"):
            assert re.match(r"#\w+$|data:(application/(json|gzip)|image/jpeg);base64,", attrs.get(name, "#a"))
    text.encode("utf-8")


@pytest.mark.parametrize("wicked", WICKED, ids=range(len(WICKED)))
def test_wicked_strings_stay_text(audits, draw, wicked):
    vectors, groups = draw(1, (40, 40))
    pool = ControlSet(
        vectors,
        [f"{wicked} {g}"[-10_002:] for g in groups],
        attribute=wicked,
        encoder=wicked,
        left_out={f"{wicked} a"[-10_002:]: 1},
    )
    named = audit(draw(2, (40, 40))[0], pool, name=wicked)
    named = replace(named, warnings=(wicked, *named.warnings))
    context = Context(
        command=wicked,
        inputs=[Input("Collection", wicked)],
        examples=Examples([Example(pool.groups[0], text=wicked)], wicked),
    )
    for made in ([named], [named, replace(named, name="other")]):
        text = page.render(made, context)
        assert_inert(text)
        assert inside(text)["collections"][0]["name"] == json.loads(json.dumps(wicked))
        assert len(text) < 400_000
    fragment = named._repr_html_()
    assert {tag for tag, _ in Outline(fragment).elements} <= {
        *(
            "div",
            "style",
            "p",
            "strong",
            "ul",
            "li",
            "svg",
            "title",
            "desc",
            "path",
            "text",
            "tspan",
            "circle",
            "g",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "bdi",
        )
    }
    markdown.render([named], context).encode("utf-8")


@given(st.text())
def test_markdown_has_no_markup_of_strangers(name):
    safe = markdown.escape(name)
    assert not re.search(r"(?<!\\)[`*_\[\]|#!~$@]", re.sub(r"\\\\", "", safe))
    assert "<" not in safe
    assert ">" not in safe
    assert "\n" not in safe
    assert "://" not in safe


@given(st.text(max_size=3000), st.integers(8, 80))
def test_short_names_are_short_and_printable(name, length):
    found = short(name, length)
    assert len(found) <= length
    assert found.isprintable() or "\u200d" in found


def test_markdown_tables_are_not_broken_by_names(audits):
    text = markdown.render([replace(a, name="a | b\n| c") for a in audits])
    rows = [line for line in text.splitlines() if line.startswith("| a \\|")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("- a", r"\- a"),
        ("+ a", r"\+ a"),
        ("1. a", r"1\. a"),
        ("12) a", r"12\) a"),
        ("---", r"\---"),
        ("===", r"\==="),
        ("    code", "code"),
        ("1.5 times", "1.5 times"),
        ("a - b", "a - b"),
    ],
)
def test_markdown_items_start_nothing_of_their_own(audits, text, safe):
    shown = Examples([Example("a", text=text)], "")
    lines = markdown.render(audits[:1], Context(examples=shown)).splitlines()
    assert f"- {safe}" in lines


def test_markdown_has_the_same_order_and_the_json(audits):
    text = markdown.render(audits, Context(limit=0.2))
    assert text.startswith(f"# {headline(audits)}\n")
    assert re.findall("^## (.*)$", text, re.M) == [
        "The picture",
        "How far to trust it",
        "Warnings",
        "The control set",
        "Method, assumptions and limits",
        "To repeat it",
        "Data",
    ]
    data = re.search("^```json\n(.*?)^```$", text, re.M | re.S)[1]
    assert json.loads(data) == json.loads(json.dumps(document(audits)))


def test_signs_are_those_of_print():
    assert [signed(v) for v in (-0.184, 0.05, -0.001, float("nan"))] == ["−0.18", "+0.05", "0.00", "?"]


def test_addresses_are_told_without_passwords():
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
def test_no_letter_of_a_password_is_told(password, scheme, path):
    told = public(f"{scheme}://user:{password}@host{path}")
    assert re.fullmatch(rf"{scheme}://…host(/x(\.npy)?([?#]…)?)?", told)


# In Python


def test_audit_makes_a_page_and_a_fragment(audits):
    text = audits[0].to_html()
    assert_inert(text)
    assert html.escape(audits[0].headline) in text
    fragment = audits[0]._repr_html_()
    assert html.escape(audits[0].headline) in fragment
    assert "<script" not in fragment
    assert len(fragment) < 8_000


def test_a_fragment_says_what_it_shows(audits, three):
    two, poor, more = (found._repr_html_() for found in (audits[0], audits[3], three[0]))
    assert "DivScore is the hollow mark" in two
    assert 'class="hollow"' in two
    for fragment in (poor, more, replace(audits[0], estimator="divscore")._repr_html_()):
        assert "hollow mark" not in fragment
        assert 'class="hollow"' not in fragment
    outline = Outline(two)
    assert "The table below the plot has all numbers." in outline.words
    assert len(outline.all("table")) == 1
    assert len(outline.all("td")) == 7
    assert "hollow" not in summarise(audits[3:], Context()).method[-1]
    assert "hollow" in summarise(audits, Context()).method[-1]


def test_several_audits_make_a_report_in_python(audits):
    text = report.render(audits, limit=0.2)
    assert_inert(text)
    assert "limit ±0.2" in Outline(text).words
    assert report.render(audits, form="markdown").startswith(f"# {headline(audits)}")
    with pytest.raises(InputError, match="unknown form 'pdf'; choose one of html, markdown"):
        report.render(audits, form="pdf")
    with pytest.raises(InputError, match="limit 20 must be from 0 to 1"):
        report.render(audits, limit=20)


def test_plot_returns_axes(audits):
    from matplotlib import pyplot

    ax = audits[0].plot()
    try:
        assert [label.get_text() for label in ax.get_yticklabels()] == ["place 0"]
        assert (ax.get_title("left"), ax.get_title("right")) == ("← more b", "more a →")
        given_ax = pyplot.figure().subplots()
        assert audits[3].plot(given_ax) is given_ax
        assert [text.get_text() for text in given_ax.texts] == ["cannot tell"]
        several = forest([replace(a, name="$x^") for a in audits], limit=0.3)
        several.figure.canvas.draw()
        assert len(several.get_yticks()) == 4
    finally:
        pyplot.close("all")


def test_a_report_needs_an_audit():
    with pytest.raises(InputError, match="at least one audit"):
        page.render([])


def test_importing_the_command_line_brings_no_templates():
    code = (
        "import sys, divscore.cli.audit_command, divscore.cli.demo_command; "
        "print(*(m for m in ('jinja2', 'matplotlib', 'PIL') if m in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_templates_are_in_the_wheel(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed here")
    root = Path(__file__).parents[2]
    (wheel,) = builder.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    inside_wheel = set(zipfile.ZipFile(wheel).namelist())
    for path in (root / "src" / "divscore" / "report" / "templates").iterdir():
        assert f"divscore/report/templates/{path.name}" in inside_wheel


# Files


def test_a_report_is_written_whole_or_not_at_all(audits, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("the earlier one")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(FileError, match="No space left"):
        write_report(target, audits, Context())
    assert target.read_text() == "the earlier one"
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("report.pdf", r"suffix '\.pdf'; expected .* \.html or \.md"),
        ("report", "no suffix"),
        ("-", "no suffix"),
        ("missing/report.html", "does not exist"),
        ("folder.html", "is a folder"),
    ],
)
def test_targets_that_cannot_be_are_refused(tmp_path, name, said):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(FileError, match=said):
        check_target(tmp_path / name)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)

    def rows(a, b):
        return rng.normal(size=(a + b, 12)) + 0.8 * np.repeat([1.0, -1.0], [a, b])[:, None]

    np.savez("labelled.npz", vectors=rows(60, 60), letter=["a"] * 60 + ["b"] * 60)
    np.save("mostly_a.npy", rows(450, 150))
    return tmp_path


def run(*args, code=0):
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


def test_the_command_writes_both_kinds(files):
    said = run(
        *("audit", "mostly_a.npy", "--control", "labelled.npz", "--attribute", "letter"),
        *("--max-disparity", "0.2", "--report", "r.html", "--report", "r.md"),
        code=1,
    )
    assert "wrote r.html" in said.stderr
    text = Path("r.html").read_text(encoding="utf-8")
    words = Outline(text).words
    assert "divscore audit mostly_a.npy --control labelled.npz --attribute letter" in words
    assert str(files) not in text
    assert "limit ±0.2" in words
    assert Path("r.md").read_text(encoding="utf-8").startswith("# Between ")
    assert sorted(os.listdir()) == ["labelled.npz", "mostly_a.npy", "r.html", "r.md"]


def test_a_wrong_suffix_is_told_before_anything_is_read(files):
    said = run("audit", "absent.npy", "--control", "absent.npz", "--report", "r.pdf", code=2)
    assert "'.pdf'; expected a file that ends in .html or .md" in said.stderr
    said = run("audit", "absent.npy", "--control", "absent.npz", "--report", "no/r.html", code=2)
    assert "the folder no does not exist" in said.stderr
    said = run("audit", "mostly_a.npy", "--control", "labelled.npz", "--show-examples", code=2)
    assert "--report FILE.html" in said.stderr


def test_no_output_overwrites_another_file(files):
    base = ("audit", "mostly_a.npy", "--control", "labelled.npz", "--attribute", "letter")
    os.symlink("x.html", "link.html")
    for words in (
        ("--json", "x.html", "--report", "x.html"),
        ("--json", "./x.html", "--report", files / "x.html"),
        ("--report", "x.html", "--report", "link.html"),
        ("--json", "mostly_a.npy"),
        ("--json", "labelled.npz"),
    ):
        said = run(*base, *words, code=2)
        assert "would overwrite" in said.stderr
        assert "give every file a name of its own" in said.stderr
        assert not os.path.exists("x.html")
    run(*base, "--json", "x.json", "--report", "x.html")
    assert json.loads(Path("x.json").read_text())["schema"] == "divscore.audit/1"


def test_where_json_cannot_be_written_is_told_before_anything_is_read(files):
    said = run("audit", "absent.npy", "--control", "absent.npz", "--json", "no/x.json", code=2)
    assert "--json no/x.json: the folder no does not exist" in said.stderr
    said = run("audit", "absent.npy", "--control", "absent.npz", "--json", ".", code=2)
    assert "is a folder" in said.stderr


def test_vectors_say_why_they_cannot_be_shown(files):
    run(
        *("audit", "mostly_a.npy", "--control", "labelled.npz", "--attribute", "letter"),
        *("--report", "r.html", "--show-examples"),
    )
    assert "The representatives cannot be shown: the control set holds vectors" in Path("r.html").read_text()


def test_texts_are_shown_on_request_and_stay_text(files):
    rng = np.random.default_rng(2)
    words = {"a": ["tide", "wave", "salt", "reef"], "b": ["ridge", "peak", "snow", "cliff"]}

    def text(group):
        return " ".join(rng.choice(words[group], 6))

    lines = [f'"{text(g)} <b onclick=x>{at}</b>",{g}' for at, g in enumerate("ab" * 30)]
    Path("labelled.csv").write_text("text,group\n" + "\n".join(lines))
    posts = [f'"{text(g)} <b onclick=x>{at}</b>"' for at, g in enumerate("aab" * 40)]
    Path("posts.csv").write_text("text\n" + "\n".join(posts))
    base = ("audit", "posts.csv", "--control", "labelled.csv", "--no-cache")
    run(*base, "--report", "plain.html")
    assert "onclick" not in Path("plain.html").read_text()
    run(*base, "--report", "shown.html", "--report", "shown.md", "--show-examples")
    page_text = Path("shown.html").read_text()
    assert_inert(page_text)
    outline = Outline(page_text)
    assert len([a for a in outline.all("li") if a == {"dir": "auto"}]) == 48
    assert "<b onclick=x>" in outline.words
    assert "48 of 60 representatives are shown" in outline.words
    assert "120 texts belong to the group a" in outline.words
    assert "&lt;b onclick=x&gt;" in Path("shown.md").read_text()


def test_thumbnails_are_small_and_tell_nothing_else(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    picture = pil.fromarray(np.random.default_rng(0).integers(0, 255, (300, 200, 3), dtype=np.uint8))
    exif = pil.Exif()
    exif[0x010E] = "secret place"
    path = tmp_path / "a.jpg"
    picture.save(path, exif=exif, comment=b"secret comment")
    assert b"secret" in path.read_bytes()
    found = thumbnail(path.read_bytes())
    assert b"secret" not in found
    assert b"Exif" not in found
    opened = pil.open(io.BytesIO(found))
    assert max(opened.size) <= 64
    assert len(found) < 8_000


def test_the_demo_writes_its_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = run("demo", "--out", "demo")
    assert "demo/report.html" in said.stdout
    text = Path("demo/report.html").read_text()
    assert_inert(text)
    assert "divscore demo --out demo" in Outline(text).words
    assert downloaded(text)["attribute"] == "sex"
