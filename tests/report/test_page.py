"""The page and the Markdown: structure, strings from outside, the JSON inside, size, and the file."""

import html
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import Outline, assert_inert, downloaded, inside

from divscore import ControlSet, report
from divscore.audit.audit import audit
from divscore.audit.document import document
from divscore.errors import FileError, InputError
from divscore.report.page import (
    check_target,
    render_html,
    render_markdown,
    write_report,
)
from divscore.report.summary import Context, Example, Examples, Input, headline
from divscore.sketch.missing import Missing, MissingPart
from divscore.text import escape_markdown

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


def test_sections_and_headings_are_in_order(audits, crossed):
    outline = Outline(render_html(audits[:1]))
    assert outline.words.index(audits[0].headline) < outline.words.index("Results")
    sections = ["results", "trust", "method", "control", "technical", "data"]
    assert [attrs["id"] for attrs in outline.all("section")] == sections
    assert len(outline.all("h1")) == 1
    assert outline.all("html") == [{"lang": "en"}]
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in outline.elements}
    states = {"good", "caution", "poor", "info"}
    assert len([attrs for attrs in outline.all("li") if attrs.get("class") in states]) == 7
    for empty, part in (
        (replace(audits[0], warnings=()), 'aria-label="Warnings"'),
        (audits[3], 'id="results"'),
    ):
        assert part not in render_html([empty])
        assert "None." not in render_html([empty])
        assert part in render_html([audits[0], audits[3]])
    shown = Examples([Example("f × dark", text="one")], "All.")
    for text in (render_html(audits), render_html([crossed], Context(examples=shown))):
        levels = [int(tag[1]) for tag, _ in Outline(text).elements if re.fullmatch("h[1-6]", tag)]
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_plots_have_a_title_a_description_and_a_table(audits, three, crossed):
    outline = Outline(render_html(audits, Context(limit=0.2)))
    plots = [attrs for attrs in outline.all("svg") if attrs.get("role") == "img"]
    assert [plot["class"] for plot in plots] == ["plot wide", "plot narrow"]
    ids = {attrs.get("id") for _, attrs in outline.elements}
    for plot in plots:
        assert set(plot["aria-labelledby"].split()) <= ids
    ornaments = [attrs for attrs in outline.all("svg") if attrs.get("role") != "img" and "x" not in attrs]
    assert all(attrs["aria-hidden"] == "true" for attrs in ornaments)
    assert len(outline.all("table")) == 3
    for words in ("Share of a", "even split 50%", "limit: 40% to 60%", "✕ fail"):
        assert words in outline.words
    text = render_html(three[:1])
    assert text.count('role="img"') == 2
    assert text.count('class="bar"') == 7  # three groups, wide and narrow, and the legend
    assert "Single attributes" in Outline(render_html([crossed])).words


def test_technical_words_are_under_one_closed_element(audits, three):
    for made in (audits, audits[:1], three):
        text = render_html(
            made, Context(command="divscore audit", inputs=[Input("Collection", "a", "0" * 64)])
        )
        inner = re.search(r"<details>(.*?)</details>", text, re.S)[1]
        rest = Outline(re.sub(r"<details>.*?</details>|<script type.*?</script>", "", text, flags=re.S)).words
        words = Outline(inner).words
        for word in ("γ", "p = ", "Theorem 3.3", "digest", "Seed", "numpy", "disparity"):
            assert word in words
            assert word not in rest.replace("DivScore and the examples", "")


def test_failing_rows_have_a_word_and_a_shape(audits):
    text = render_html(audits, Context(limit=0.2))
    assert (
        len(re.findall(r'<tr class="fail">.*?<td class="fail" data-label="limit 40%–60%">fail</td>', text))
        == 2
    )
    assert (
        len(re.findall(r'<path class="mark" d="M[\d.]+ \d+l7 7l-7 7l-7-7z"/>', text)) == 5
    )  # and the legend
    assert re.search(r'<li class="badge poor">.*?Limit: <strong>fail</strong>', text, re.S)
    assert re.search(r'<li class="badge poor">.*?Trust: <strong>good in \d', text, re.S)
    assert "✕ fail" in Outline(text).words


def test_title_note_and_target_are_at_the_top(draw, audits):
    held = audit(
        draw(5, (44, 356), gap=1.5)[0], audits[0].control, target={"a": 0.27}, target_source="Census <2020>"
    )
    context = Context(
        title="Engineers & <b>CEOs</b>", note="First <i>part</i>\nof it.\n\n\nSecond.", limit=0.2
    )
    text = render_html([held], context)
    assert_inert(text)
    words = Outline(text).words
    places = [
        words.index(part)
        for part in (
            "Engineers & <b>CEOs</b> Audit of",
            "(the target is 27%, Census <2020>)",
            "where the target is 27%",
            "Target: 27% a and 73% b. Source: Census <2020>.",
            "Limit: 17% to 37% a (±0.2 in disparity).",
            "First <i>part</i> of it. Second.",
            "Results",
        )
    ]
    assert places == sorted(places)
    assert text.count('<p dir="auto">') == 2
    assert "<title>Engineers &amp; &lt;b&gt;CEOs" in text
    markdown = render_markdown([held], context)
    assert markdown.startswith("# Engineers &amp; &lt;b&gt;CEOs&lt;/b&gt;\n\n**Between")
    assert "\nSecond.\n" in markdown
    assert "| a | " in markdown
    assert " | 27% |" in markdown


def test_no_report_promises_too_much(audits):
    for text in (Outline(render_html(audits)).words, render_markdown(audits)):
        assert "cannot be used to find out" not in text
        assert "whoever can run audits at will can learn about single items" in text
        assert "hollow" not in text
        assert not re.search(r"[-−]0\.00|\b1 items", text)


def test_untrusted_numbers_are_called_untrusted(audits):
    poor = replace(audits[0], trust="poor")
    for made in ([poor], [poor, audits[1]]):
        assert "Numbers in brackets are untrusted" in Outline(render_html(made)).words
        assert "Numbers in brackets are untrusted" in render_markdown(made)
    assert "in brackets" not in render_markdown(audits)


def test_without_intervals_no_bar_is_drawn(trained):
    plot = re.search(r'<svg class="plot wide".*?</figure>', render_html(trained), re.S)[0]
    assert 'class="bar"' not in plot
    assert plot.count('class="mark"') == 2 * len(trained) + 1  # wide, narrow and the legend


# Strings from outside


@pytest.mark.parametrize("wicked", WICKED, ids=range(len(WICKED)))
def test_strings_from_outside_stay_text(draw, wicked):
    vectors, groups = draw(1, (40, 40))
    pool = ControlSet(
        vectors,
        [f"{wicked} {g}"[-10_002:] for g in groups],
        attribute=wicked,
        encoder=wicked,
        skipped={f"{wicked} a"[-10_002:]: 1},
    )
    named = audit(draw(2, (40, 40))[0], pool, name=wicked)
    named = replace(named, warnings=(wicked, *named.warnings))
    context = Context(
        command=wicked,
        inputs=[Input("Collection", wicked)],
        examples=Examples([Example(pool.groups[0], text=wicked)], wicked),
    )
    for made in ([named], [named, replace(named, name="other")]):
        text = render_html(made, context)
        assert_inert(text)
        assert inside(text)["collections"][0]["name"] == json.loads(json.dumps(wicked))
        assert len(text) < 400_000
    allowed = (
        "div style p strong ul li svg title desc path text tspan circle g table thead tbody tr th td bdi"
    )
    assert {tag for tag, _ in Outline(named._repr_html_()).elements} <= set(allowed.split())
    render_markdown([named], context).encode("utf-8")


@given(st.text())
def test_markdown_has_no_markup_from_outside(name):
    safe = escape_markdown(name)
    assert not re.search(r"(?<!\\)[`*_\[\]|#!~$@]|[<>\n]|://", re.sub(r"\\\\", "", safe))


def test_markdown_tables_are_not_broken_by_names(audits):
    text = render_markdown([replace(a, name="a | b\n| c") for a in audits])
    rows = [line for line in text.splitlines() if line.startswith("| a \\|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [6] * 4 + [9] * 4


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
def test_markdown_items_start_no_list_or_heading(audits, text, safe):
    shown = Examples([Example("a", text=text)], "")
    assert f"- {safe}" in render_markdown(audits[:1], Context(examples=shown)).splitlines()


# JSON and size


@pytest.mark.parametrize("number", [1, 20, 300])
def test_the_download_is_the_whole_document(several, number):
    made = several(number)
    missing = Missing.of([MissingPart("part of none.npy", "damaged")])
    text = render_html(made, Context(missing=missing))
    assert len(re.findall(r'<tr><th scope="row"><bdi>collection', text)) == {1: 1, 20: 40}.get(number, number)
    assert downloaded(text) == json.loads(json.dumps(document(made, missing=missing)))
    found = inside(text)
    assert [each["name"] for each in found["collections"]] == [a.name for a in made]
    if number <= 20:
        assert found == downloaded(text)
    else:
        assert found["schema"] == "divscore.audit-short/1"
        assert "(schema divscore.audit-short/1) has only the main numbers" in text
        assert found["collections"][0]["disparity"] == round(made[0].disparity, 4)


def test_a_page_says_that_it_has_no_replicates(audits, several):
    for text in (render_html(audits), render_html(several(300)), render_markdown(audits)):
        assert "The JSON has no replicates" in text
    assert "replicates" not in render_html([replace(a, refits=None) for a in audits])


@pytest.mark.parametrize(("number", "most"), [(20, 300_000), (2000, 2_000_000)])
def test_a_page_is_small(several, number, most):
    assert len(render_html(several(number), Context(limit=0.2)).encode()) < most


def test_markdown_has_the_same_sections_and_the_json(audits, several, crossed):
    text = render_markdown(audits, Context(limit=0.2))
    assert text.startswith(f"# {headline(audits)}\n")
    sections = [
        "Results",
        "How far to trust this",
        "Method and limits",
        "Labelled examples",
        "Technical details",
        "Data",
    ]
    assert re.findall("^## (.*)$", text, re.M) == sections
    assert "\n\n\n" not in text
    data = re.search("^```json\n(.*?)^```$", text, re.M | re.S)[1]
    assert json.loads(data) == json.loads(json.dumps(document(audits, limit=0.2)))
    assert "The JSON is too long for this page" in render_markdown(several(300))
    assert "\n### Single attributes\n\n| collection | attribute |" in render_markdown([crossed])


# From Python


def test_audits_make_pages_and_fragments(audits, three):
    assert_inert(audits[0].to_html())
    assert html.escape(audits[0].headline) in audits[0].to_html()
    two, poor, more = (found._repr_html_() for found in (audits[0], audits[3], three[0]))
    assert html.escape(audits[0].headline) in two
    assert "<script" not in two
    assert len(two) < 8_000
    assert "The axis shows" in two
    assert "<svg" not in poor
    assert more.count('class="mark"') == 3
    outline = Outline(two)
    assert "The table below the plot has all numbers." in outline.words
    assert (len(outline.all("table")), len(outline.all("td"))) == (1, 6)


def test_several_audits_make_one_report(audits):
    text = report.render(audits, limit=0.2)
    assert_inert(text)
    assert "limit: 40% to 60%" in Outline(text).words
    assert report.render(audits, form="markdown").startswith(f"# {headline(audits)}")
    with pytest.raises(InputError, match="unknown form 'pdf'; choose one of html, markdown"):
        report.render(audits, form="pdf")
    with pytest.raises(InputError, match="limit 20 must be from 0 to 1"):
        report.render(audits, limit=20)


def test_importing_the_command_line_loads_no_templates():
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
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (root / "src" / "divscore" / "report" / "templates").iterdir():
        assert f"divscore/report/templates/{path.name}" in names


# The file


def test_a_report_is_written_whole_or_not_at_all(audits, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("the earlier one")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(FileError, match="No space left"):
        write_report(target, audits, Context())
    assert target.read_text() == "the earlier one"
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.pdf", r"suffix '\.pdf'; expected .* \.html or \.md"),
        ("report", "no suffix"),
        ("-", "no suffix"),
        ("missing/report.html", "does not exist"),
        ("folder.html", "is a folder"),
    ],
)
def test_impossible_targets_are_refused(tmp_path, name, message):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(FileError, match=message):
        check_target(tmp_path / name)
