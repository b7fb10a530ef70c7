"""Pages for everybody: axe-core finds nothing serious, the focus is visible, and narrow or dark windows work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from webapp import Process, started_server, write_texts
from webpages import (
    client,
    drawn,
    make_project,
    open_labels,
    opened_page,
    overflow,
    press_all,
    violations,
    visit,
    wait_text,
)

pytestmark = pytest.mark.browser

SIZES = {"laptop": (1280, 800), "phone": (390, 760), "200 %": (640, 400), "wide": (1600, 1000)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server with a project that Ann and Bo labelled."""
    folder = tmp_path_factory.mktemp("looks")
    truth = write_texts(folder / "a table with a rather long name.csv", {"sea": 75, "wood": 225})
    words = ("--port", "0", "--source", str(folder / "a table with a rather long name.csv"))
    with started_server(folder / "project", *words) as started:
        make_project(started, ["sea", "wood"], 30)
        make_project(started, [f"a group with number {number}" for number in range(12)], 30)
        with client(started) as api:
            for name, change in (("Ann", 0), ("Bo", 4)):
                changes = [
                    {
                        "key": f"{name}-{item['id']}",
                        "item": item["id"],
                        "label": "sea" if number < change else truth[item["name"]],
                        "at": "2026-01-31T12:00:00Z",
                    }
                    for number, item in enumerate(drawn(started))
                ]
                api.post(
                    "/projects/1/labels", json={"annotator": name, "changes": changes}
                ).raise_for_status()
        yield started


@pytest.fixture(scope="module")
def cookie(browser: Any, server: Process) -> Any:
    """What the browser keeps after the link was used."""
    with opened_page(browser, server) as page:
        return page.context.storage_state()


def pages(page: Any, annotator: str = "Cy") -> Iterator[str]:
    """Every page of labelling, one after the other."""
    page.wait_for_selector("form")
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    yield "start"
    visit(page, "#/label")
    page.wait_for_selector("h1:text-is('Label')")  # the start page lists projects, too
    page.wait_for_selector(".projects")
    yield "projects"
    for project in (1, 2):
        open_labels(page, project, annotator)
        yield f"label {project}"
    visit(page, "#/audits")
    page.wait_for_selector("text=Label all items first")
    yield "what others labelled"
    open_labels(page, 2, annotator)
    page.keyboard.press("g")
    page.wait_for_selector("[role=gridcell]")
    page.keyboard.press("Space")
    page.keyboard.press("1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    wait_text(page, ".position", "1 selected")
    yield "grid"
    page.keyboard.press("?")
    page.wait_for_selector("dialog")
    yield "keys"
    page.keyboard.press("Escape")
    open_labels(page, 1, "Ann", ready=".next li")  # the last part of the answer
    page.wait_for_selector(".shares svg")
    yield "answer"
    visit(page, "#/settle/1")
    page.wait_for_selector(".settling")
    yield "settle"
    visit(page, "#/nowhere")
    page.wait_for_selector("text=There is no such page")
    yield "nowhere"


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, server: Process, cookie: Any, colours: str) -> None:
    with opened_page(browser, server, storage_state=cookie, color_scheme=colours) as page:
        for name in pages(page, f"Cy {colours}"):
            assert violations(page) == [], name


@pytest.mark.parametrize("size", SIZES)
def test_no_window_needs_sideways_scrolling(browser: Any, server: Process, cookie: Any, size: str) -> None:
    width, height = SIZES[size]
    with opened_page(
        browser, server, storage_state=cookie, viewport={"width": width, "height": height}
    ) as page:
        for name in pages(page, f"Dee {size}"):
            assert overflow(page) <= 0, name
            if name == "label 1":  # all that labelling needs is on the screen
                last = page.locator(".choices button").last.bounding_box()
                assert last["y"] + last["height"] <= height
                assert page.locator(".stage > *").bounding_box()["height"] > 60


def test_the_focus_is_always_visible(browser: Any, server: Process, cookie: Any) -> None:
    with opened_page(browser, server, storage_state=cookie) as page:
        page.wait_for_selector("form")
        seen = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            name, ring = page.evaluate(
                """() => {
                    const focused = document.activeElement;
                    const shown = focused.closest(".choice label") ?? focused;
                    const { outlineStyle, outlineWidth } = getComputedStyle(shown);
                    const ring = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
                    return [focused.tagName + focused.textContent, ring];
                }"""
            )
            assert ring or name.startswith("BODY"), name
            seen.add(name)
        assert len(seen) > 10
        assert any("Draw" in name for name in seen)


def test_text_of_a_source_is_never_markup(browser: Any, tmp_path: Path) -> None:
    nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    lines = [f'{number},"{nasty.replace(chr(34), chr(34) * 2)} {number}"' for number in range(40)]
    (tmp_path / "nasty.csv").write_text("id,text\n" + "\n".join(lines) + "\n")
    with started_server(
        tmp_path / "project", "--port", "0", "--source", str(tmp_path / "nasty.csv")
    ) as started:
        make_project(started, ["<b>a</b>", "&amp;"], 30, name="<i>name</i>")
        with opened_page(browser, started) as page:
            open_labels(page, annotator="<u>Ann</u>")
            assert page.inner_text(".stage blockquote").startswith(nasty)
            assert page.locator(".choices b, h1 i, u, .stage img, .stage script").count() == 0
            press_all(page, ["1"])
            page.keyboard.press("g")
            wait_text(page, ".cell.labelled .tag", "<b>a</b>")
            assert page.locator(".grid img").count() == 0
