"""Label in a real Chromium, with the server as a process of its own: from a folder to an answer."""

from __future__ import annotations

import io
import shutil
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from webapp import Process, own_cache, started_server, write_texts  # noqa: F401  a fixture
from webpages import (
    client,
    drawn,
    make_project,
    open_labels,
    opened_page,
    press_all,
    press_quickly,
    tab_to,
    wait_for_item,
    wait_saved,
    wait_text,
)

PORTRAITS = Path(__file__).parents[3] / "shared" / "data" / "ppb2017_images"

pytestmark = pytest.mark.browser


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Options of the server for 160 pictures of two colours, and the colour of each."""
    folder = tmp_path / "pictures"
    truth = {}
    for number, (colour, count) in enumerate({"red": 50, "blue": 110}.items()):
        before = set(folder.iterdir()) if folder.exists() else set()
        tiny.folder(folder, {colour: count}, seed=number, sub_folders=False)
        truth |= {path.name: colour for path in set(folder.iterdir()) - before}
    model = tiny.image_model(tmp_path / "model.onnx")
    return ["--source", str(folder), "--encoder", "onnx", "--model", str(model)], truth


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[tuple[Process, dict[str, str]]]:
    """A server with 300 texts, and the group of each."""
    truth = write_texts(tmp_path / "posts.csv", {"sea": 75, "wood": 225})
    with started_server(
        tmp_path / "project", "--port", "0", "--source", str(tmp_path / "posts.csv")
    ) as server:
        yield server, truth


def assert_answer(page: Any, server: Process, share: float, group: str) -> None:
    """The page shows an answer that holds the truth, and its report opens."""
    page.wait_for_selector(".shares svg")
    with client(server) as api:
        audit = api.get("/audits").json()[0]
        result = api.get(f"/audits/{audit['id']}").json()["collections"][0]
        low, high = result["share_intervals"][group]
        assert low <= share <= high
        assert page.inner_text(".answer h1") == audit["headline"]
        assert f"({100 * low:.0f}–{100 * high:.0f})" in page.text_content(".shares svg")
        assert audit["headline"] in api.get(f"/audits/{audit['id']}/report").text


def assert_published(page: Any, server: Process, labelled: int) -> None:
    """The page says so, and others can read what was published."""
    page.wait_for_selector("text=Edition 1 is published")
    with client(server) as api:
        control = api.get("/control-sets/1").json()
        assert (control["labelled"], control["published"]) == (labelled, True)
        names = zipfile.ZipFile(io.BytesIO(api.get("/control-sets/1/publication.zip").content)).namelist()
        assert any(name.endswith("README.md") for name in names)


def assert_report(page: Any) -> None:
    """The report of the command line is in the page."""
    page.frame_locator("iframe.report").locator("h2:has-text('How far to trust this')").wait_for()


def test_a_first_time_user_comes_to_an_answer_by_keyboard_alone(
    browser: Any, tmp_path: Path, pictures: tuple[list[str], dict[str, str]]
) -> None:
    options, truth = pictures
    with (
        started_server(tmp_path / "project", "--port", "0", *options) as server,
        opened_page(browser, server) as page,
    ):
        page.wait_for_selector("text=160 pictures")
        press, type_text = page.keyboard.press, page.keyboard.type
        type_text("colour")  # the first thing that is missing has the focus
        for _ in range(4):
            press("Tab")  # past three examples
        type_text("red")
        press("Enter")
        type_text("blue")
        press("Enter")
        press("Tab")  # perceived
        press("Tab")  # no target
        press("Tab")  # no labelled examples
        press("ArrowLeft")
        assert page.inner_text("button[type=submit]") == "Draw 30 items and start"
        press("Tab")
        press("Control+A")
        type_text("Ann")
        press("Enter")
        page.wait_for_selector(".stage img")
        press_all(page, ["1" if truth[item["name"]] == "red" else "2" for item in drawn(server)])
        assert_answer(page, server, 50 / 160, "red")
        tab_to(page, "button:has-text('Make a control set')")
        press("Enter")
        page.wait_for_selector("main.curate h1")
        tab_to(page, "button:text-is('Publish')")
        press("Enter")
        page.wait_for_selector("dialog")
        press("Tab")
        type_text("Pictures of two colours")
        press("Enter")
        assert_published(page, server, 30)
        tab_to(page, "#nav a[href='#/audits']", backwards=True)
        press("Enter")
        page.wait_for_selector("main.audits h1")
        tab_to(page, "a[href='#/audits/1']")
        press("Enter")
        assert_report(page)


def test_a_first_time_user_comes_to_an_answer_by_mouse_alone(
    browser: Any, texts: tuple[Process, dict[str, str]]
) -> None:
    server, truth = texts
    with opened_page(browser, server) as page:
        page.click("text=skin tone: lighter, darker")
        page.click("label:has-text('Self-declared')")
        page.click("label:has(input[value='30'])")
        page.click("text=Draw 30 items and start")
        page.wait_for_selector(".stage blockquote")
        for number, item in enumerate(drawn(server), start=1):
            wait_for_item(page, number)
            assert page.inner_text(".stage blockquote") == item["text"]
            page.click(
                f".choices button:has-text('{'lighter' if truth[item['name']] == 'sea' else 'darker'}')"
            )
        assert_answer(page, server, 75 / 300, "lighter")
        with client(server) as api:
            assert api.get("/projects/1").json()["basis"] == "self-declared"
        page.click("text=Make a control set")
        page.click("main.curate button:has-text('Publish')")
        page.click("dialog button:has-text('Publish')")
        assert_published(page, server, 30)
        page.click("nav >> text=Audits")
        page.click("main.audits .list a >> nth=0")
        assert_report(page)


@pytest.mark.slow
def test_portraits_of_parliamentarians_come_to_an_answer(browser: Any, tmp_path: Path) -> None:
    if not PORTRAITS.is_dir():
        pytest.skip(f"the portraits are not at {PORTRAITS}")
    folder = tmp_path / "portraits"
    folder.mkdir()
    paths = [path for path in sorted(PORTRAITS.iterdir()) if path.suffix == ".jpg"][::8]
    for path in paths:
        shutil.copy(path, folder)
    female = {path.name for path in paths if "_f_" in path.name}
    with (
        started_server(tmp_path / "project", "--port", "0", "--source", str(folder)) as server,
        opened_page(browser, server) as page,
    ):
        page.click("text=gender: women, men")
        page.click("text=Draw 60 items and start")
        page.wait_for_selector(".stage img")
        press_all(page, ["1" if item["name"] in female else "2" for item in drawn(server)])
        page.wait_for_selector(".shares svg")
        assert_answer(page, server, len(female) / len(paths), "women")


def test_undo_goes_back_to_the_first_label_and_skips_are_undone_too(
    browser: Any, texts: tuple[Process, dict[str, str]]
) -> None:
    server, _ = texts
    make_project(server, ["sea", "wood"], 30)
    with opened_page(browser, server) as page:
        open_labels(page)
        press_all(page, ["1", "2", "u", "s", "1"])
        wait_saved(page, "Saved 5/30")
        labels = [item["label"] for item in drawn(server, annotator="Ann")]
        assert labels[:6] == ["sea", "wood", "unsure", "skip", "sea", None]
        for number in (5, 4, 3, 2):
            page.keyboard.press("Backspace" if number % 2 else "Control+z")
            wait_for_item(page, number)
        page.click("text=Undo")
        wait_for_item(page, 1)
        assert page.is_disabled("button:has-text('Undo')")
        wait_saved(page, "Saved 0/30")
        assert {item["label"] for item in drawn(server, annotator="Ann")} == {None}


def test_a_key_that_is_held_down_is_one_label(browser: Any, texts: tuple[Process, dict[str, str]]) -> None:
    server, _ = texts
    make_project(server, ["sea", "wood"], 30)
    with opened_page(browser, server) as page:
        open_labels(page)
        for _ in range(10):
            page.keyboard.down("1")  # the second and later ones repeat
        page.keyboard.up("1")
        wait_for_item(page, 2)
        wait_saved(page, "Saved 1/30")
        assert [item["label"] for item in drawn(server, annotator="Ann")] == ["sea", *[None] * 29]


def test_the_grid_labels_what_is_selected_and_undo_takes_all_of_it_back(
    browser: Any, texts: tuple[Process, dict[str, str]]
) -> None:
    server, _ = texts
    make_project(server, ["sea", "wood"], 200)
    with opened_page(browser, server) as page:
        open_labels(page)
        page.keyboard.press("g")
        page.wait_for_selector("[role=gridcell]:focus")
        assert page.locator("[role=gridcell]").count() < 60  # of 200: only what is visible exists
        columns = int(page.get_attribute("[role=grid]", "aria-colcount"))
        assert int(page.get_attribute("[role=grid]", "aria-rowcount")) == -(-200 // columns)
        # Keys: two cells with arrows and space
        page.keyboard.press("Space")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        wait_text(page, ".position", "2 selected")
        page.keyboard.press("1")
        wait_saved(page, "Saved 2/200")
        # Mouse: a range with the shift key, then a block by dragging
        cells = page.locator("[role=gridcell]")
        cells.nth(columns).click()
        cells.nth(columns + 2).click(modifiers=["Shift"])
        wait_text(page, ".position", "3 selected")
        page.click(".choices button:has-text('wood')")
        wait_saved(page, "Saved 5/200")
        boxes = [cells.nth(number).bounding_box() for number in (2, columns + 3)]
        page.mouse.move(boxes[0]["x"] + 20, boxes[0]["y"] + 20)
        page.mouse.down()
        page.mouse.move(boxes[1]["x"] + 20, boxes[1]["y"] + 20, steps=5)
        page.mouse.up()
        wait_text(page, ".position", "4 selected")
        page.keyboard.press("s")
        labels = {0: "sea", 1: "sea", 2: "skip", 3: "skip", columns: "wood", columns + 1: "wood"}
        labels |= {columns + 2: "skip", columns + 3: "skip"}
        wait_saved(page, "Saved 8/200")
        assert {n: i["label"] for n, i in enumerate(drawn(server, annotator="Ann")) if i["label"]} == labels
        page.keyboard.press("Control+z")
        wait_saved(page, "Saved 5/200")
        page.keyboard.press("End")
        page.wait_for_selector("[role=gridcell][data-row='199']:focus")


def test_keys_can_be_changed_and_are_kept(browser: Any, texts: tuple[Process, dict[str, str]]) -> None:
    server, _ = texts
    make_project(server, ["sea", "wood"], 30)
    with opened_page(browser, server) as page:
        open_labels(page)
        page.keyboard.press("?")
        page.get_by_label("Key for sea").press("f")
        page.get_by_label("Key for wood").press("f")
        page.wait_for_selector("dialog :text('F is the key for “sea” already')")
        page.click("text=Done")
        page.wait_for_selector("dialog", state="detached")
        wait_text(page, ".choices button kbd", "F")
        page.keyboard.press("1")  # does nothing now
        page.keyboard.press("f")
        wait_for_item(page, 2)
        wait_saved(page, "Saved 1/30")
        open_labels(page)
        wait_text(page, ".choices button kbd", "F")


def test_two_people_label_blind_and_settle_where_they_differ(
    browser: Any, texts: tuple[Process, dict[str, str]]
) -> None:
    server, truth = texts
    make_project(server, ["sea", "wood"], 30)
    keys = ["1" if truth[item["name"]] == "sea" else "2" for item in drawn(server)]
    other = [{"1": "2", "2": "1"}[key] if number in (3, 17) else key for number, key in enumerate(keys)]
    other[5] = "u"
    expected = [number for number in range(30) if keys[number] != other[number]]
    with opened_page(browser, server) as page:
        open_labels(page)
        press_all(page, keys)
        page.wait_for_selector(".shares svg")
        page.click("text=Label as somebody else")
        page.click("text=Make a link for another browser")
        page.wait_for_selector("text=Copy the link")
        link = page.get_by_label("Link", exact=True).input_value()
        page.get_by_label("Name of the other person").fill("Bo")
        page.keyboard.press("Enter")
        page.wait_for_selector(".stage blockquote")
        wait_saved(page, "Saved 0/30")  # nothing of Ann's is shown
        page.click("#nav a[href='#/audits']")
        page.wait_for_selector("text=Label all items first")
        assert page.locator("a[href='#/audits/1']").count() == 0
        page.evaluate("location.hash = '#/audits/1'")
        page.wait_for_selector("h1:text-is('Not yet')")
        assert page.locator("iframe.report").count() == 0
        page.click("text=I do not label them: show")
        page.wait_for_selector("iframe.report")  # on purpose, in this tab
        page.click("#nav a[href='#/audits']")
        page.wait_for_selector("a[href='#/audits/1']")
        page.evaluate("sessionStorage.clear()")
        page.click("#nav a[href='#/label']")
        page.wait_for_selector("text=0 of 30 items labelled by you")
        page.click(".projects a")
        page.wait_for_selector(".stage blockquote")
        press_all(page, other[:3])
        wait_saved(page, "Saved 3/30")
        page.evaluate("location.hash = '#/settle/1'")
        page.wait_for_selector("text=Label all items first")
        assert page.locator(".facts, .said").count() == 0
        page.click("text=Open the labels")
        page.wait_for_selector(".stage blockquote")
        press_all(page, other[3:], first=4)
        page.wait_for_selector(".shares svg")
        page.get_by_role("link", name="Download the labelled sample").wait_for()  # one, or it is an error
        page.click(f"text=Settle {len(expected)} disagreements")
        page.wait_for_selector(".settling")
        last = page.locator(".settling .choices button").last.bounding_box()
        assert last["y"] + last["height"] <= 800  # all that settling needs is on the screen
        with client(server) as api:
            kappa = api.get("/projects/1/agreement", params={"annotator": "Bo"}).json()["kappa"]
        assert f"{kappa['value']:.2f}" in page.inner_text(".facts")
        assert page.locator(".chips li").count() == len(expected)
        for number in range(len(expected)):
            wait_text(page, ".settling h2", f"Disagreement {number + 1} of {len(expected)}")
            page.keyboard.press("1")
            page.wait_for_selector(f".chips li:nth-child({number + 1}) .done")
        page.click("text=Compute the answer")
        page.wait_for_selector(".shares svg")
        with client(server) as api:
            settled = api.get("/projects/1/agreement", params={"annotator": "Bo"}).json()["disagreements"]
            reports = [api.get(f"/audits/{each['id']}/report").text for each in api.get("/audits").json()]
        number = len(expected)
        told = f"by 2 people (Cohen’s κ {kappa['value']:.2f}). They differ on {number} of 30 items; "
        assert f"{told}{number} settled, 0 open" in reports[0]
        assert f"{told}0 settled, {number} open" in reports[1]
        assert "people" not in reports[-1].partition("Labels: ")[2][:100]
        assert {each["settled"] for each in settled} == {"sea"}
        page.click("#nav a[href='#/audits']")
        page.wait_for_selector("h2:text-is('Latest results')")
        assert page.locator("main .list a").count() == 1  # the newest answer, not each that was computed
    with browser.new_context() as context:
        second = context.new_page()
        second.goto(link)
        second.wait_for_selector("form")


def test_parts_of_a_collection_are_compared(browser: Any, tmp_path: Path) -> None:
    truth = write_texts(tmp_path / "posts.csv", {"sea": 60, "wood": 60})
    lines = (tmp_path / "posts.csv").read_text().splitlines()
    feeds = ["feed", *("north" if number % 2 else "south" for number in range(120))]
    table = "\n".join(f"{line},{feed}" for line, feed in zip(lines, feeds, strict=True))
    (tmp_path / "posts.csv").write_text(table + "\n")
    words = ("--port", "0", "--source", str(tmp_path / "posts.csv"))
    with started_server(tmp_path / "project", *words) as server, opened_page(browser, server) as page:
        # While the items are counted, which takes long in a large table, people choose already.
        counted = threading.Event()

        def show_sources(route: Any) -> None:
            answer = route.fetch()
            late = {} if counted.is_set() else {"items": None, "counting": True}
            route.fulfill(response=answer, json=[source | late for source in answer.json()])

        page.route("**/api/v1/sources", show_sources)
        page.reload()
        page.wait_for_selector("text=Counting …")
        page.click("text=gender: women, men")
        page.click("summary:has-text('Compare parts of it')")
        page.select_option("label:text-is('Column with the text')", "text")
        page.select_option("label:text-is('Column with the text')", "feed")
        page.focus("label:text-is('One answer for') + select")
        counted.set()
        page.wait_for_selector("text=120 texts")
        assert page.input_value("label:text-is('Column with the text') + select") == "feed"
        assert page.evaluate("document.activeElement.matches('details[open] select')")
        page.unroute_all(behavior="wait")
        page.select_option("label:text-is('Column with the text')", "text")
        page.select_option("label:text-is('One answer for')", "feed")
        page.click("label:has(input[value='30'])")
        page.click("text=Draw 30 items of each feed and start")
        page.wait_for_selector(".stage blockquote")
        items = drawn(server)
        assert len(items) == 60
        press_quickly(page, ["1" if truth[item["name"]] == "sea" else "2" for item in items])
        page.wait_for_selector(".shares svg")
        shown = page.text_content(".shares")
        assert all(words in shown for words in ("Share of women", "north", "south", "even split 50%"))
        with client(server) as api:
            assert page.inner_text(".answer h1") == api.get("/audits").json()[0]["headline"]
