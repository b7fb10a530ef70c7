"""Curate in a real Chromium, with the server as a process of its own: from labelled examples to a published set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from webapp import Process, started_server, write_texts
from webpages import client, opened_page, tab_to, visit

from divscore.control.controlfile import save_control
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_adaptive
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.publishing.edition import check_published

pytestmark = pytest.mark.browser


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[Process]:
    """A server with a control set of 120 texts."""
    write_texts(tmp_path / "labelled.csv", {"sea": 60, "wood": 60}, seed=3, groups=True)
    with Encoding() as encoding:
        save_control(read_control(tmp_path / "labelled.csv", encoding), tmp_path / "places")
    words = ["--port", "0", "--control", str(tmp_path / "places")]
    with started_server(tmp_path / "project", *words) as server:
        yield server


def chosen(page: Any, number: int) -> None:
    """Wait until so many representatives are shown."""
    page.wait_for_selector(f".tabs button:has-text('Representatives {number}')")
    assert page.locator(".panel .example").count() == number


def lonely(points: Any, box: dict[str, float]) -> tuple[int, tuple[float, float]]:
    """The point that is farthest from its neighbours on the map, and its place on the screen."""
    room = np.array([box["width"], box["height"]])
    unit = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    unit[:, 1] = 1 - unit[:, 1]
    places = 18 + unit * (room - 36)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(apart, np.inf)
    row = int(apart.min(axis=1).argmax())
    return row, (box["x"] + float(places[row, 0]), box["y"] + float(places[row, 1]))


def test_examples_are_curated_and_published_by_keyboard_alone(
    browser: Any, texts: Process, tmp_path: Path
) -> None:
    with opened_page(browser, texts) as page, client(texts) as api:
        press, type_text = page.keyboard.press, page.keyboard.type
        tab_to(page, "#nav a[href='#/curate']")
        press("Enter")
        page.wait_for_selector("main.curate .list a")
        tab_to(page, ".list a")
        press("Enter")
        chosen(page, 50)

        # Both sliders, faster than the server answers: what is shown is what was asked for last.
        tab_to(page, ".sliders input")
        for _ in range(10):
            press("ArrowLeft")
        chosen(page, 30)
        tab_to(page, ".sliders > :last-child input")
        for _ in range(8):
            press("ArrowLeft")
        pool = read_control(tmp_path / "places", Encoding())
        alpha = float(page.inner_text(".sliders > :last-child output"))
        assert alpha < 1
        expected = np.flatnonzero(select_adaptive(pool, 30, alpha=alpha).representative).tolist()
        page.wait_for_function(
            "rows => JSON.stringify([...document.querySelectorAll('.panel .example')].map(e => +e.dataset.row)"
            ".sort((a, b) => a - b)) === rows",
            arg=str(expected).replace(" ", ""),
        )
        gaps = api.post("/control-sets/1/selection", json={"size": 30, "alpha": alpha}).json()["gaps"]
        assert f"{gaps['count']} of 120 labelled items have no representative near" in page.inner_text(
            ".gaps"
        )
        assert gaps["count"] > 0

        # An example of the map is dropped, with the reason.
        tab_to(page, ".map canvas")
        press("ArrowRight")
        press("Enter")
        page.wait_for_selector("dialog[open]")
        assert "Representative" in page.inner_text("dialog dl")
        press("Enter")
        assert "Say why" in page.inner_text("dialog .wrong:not(:empty)")
        type_text("twice the same")
        press("Enter")
        chosen(page, 29)
        for name in ("first", "second"):
            tab_to(page, "button:text-is('Save choice')", backwards=True)
            press("Enter")
            page.wait_for_selector("dialog[open]")
            press("Control+a")
            type_text(name)
            press("Enter")
            page.wait_for_selector(f".kept th:text-is('{name}')")
            if name == "first":
                tab_to(page, ".sliders input")
                press("ArrowRight")
                chosen(page, 31)
        choices = api.get("/control-sets/1/choices").json()
        assert [(each["name"], each["size"]) for each in choices] == [("first", 30), ("second", 32)]
        assert choices[0]["dropped"][0]["reason"] == "twice the same"

        tab_to(page, "button:text-is('Compare')")
        press("Enter")
        page.wait_for_selector(".compared h3")
        compared = api.get("/control-sets/1/choices/compare", params={"a": 1, "b": 2}).json()
        assert f"{len(compared['both'])} representatives are in both" in page.inner_text(".compared")
        assert page.locator(".sides section:last-child .example").count() == len(compared["only_b"]) > 0

        # What was typed is kept if the dialog is closed by mistake.
        for closing in ("Escape", "Enter"):
            tab_to(page, "button:text-is('Publish')", backwards=True)
            press("Enter")
            page.wait_for_selector("dialog[open]")
            tab_to(page, "dialog input[name=contact]")
            if closing == "Escape":
                type_text("somebody@example.org")
            press(closing)
            page.wait_for_selector("dialog[open]", state="detached")
        page.wait_for_selector("h2:text-is('Edition 1 is published')")
        assert "without an answer" in page.inner_text(".place")
        (folder,) = (tmp_path / "project" / "published").iterdir()
        verdict = check_published(folder)
        assert verdict.problems == ()
        assert verdict.control is not None
        assert int(verdict.control.representative.sum()) == 31
        answers = {
            each["name"]: each["answer"]
            for each in api.get("/control-sets/1/publication").json()["questions"]
        }
        assert answers["contact"] == "somebody@example.org"


def test_pictures_are_curated_and_published_by_mouse_alone(browser: Any, tmp_path: Path) -> None:
    pictures = tiny.folder(tmp_path / "pictures", {"red": 30, "blue": 30}, seed=1)
    model = tiny.image_model(tmp_path / "model.onnx")
    words = ["--port", "0", "--source", str(pictures), "--encoder", "onnx", "--model", str(model)]
    with started_server(tmp_path / "project", *words) as server, opened_page(browser, server) as page:
        page.click("#nav a[href='#/curate']")
        page.click("button:text-is('Read labelled examples')")
        page.click("dialog button:text-is('Read')")
        chosen(page, 50)
        slider = page.locator(".sliders input").first.bounding_box()
        page.mouse.click(slider["x"] + 0.25 * slider["width"], slider["y"] + slider["height"] / 2)
        page.wait_for_function("() => document.querySelectorAll('.panel .example').length < 30")
        page.wait_for_function("() => document.querySelector('.panel .example img')?.naturalWidth > 0")
        number = page.locator(".panel .example").count()

        page.locator(".panel .example").first.click()
        page.click(".usual button:text-is('Stereotype')")
        page.click("dialog button:text-is('Drop')")
        chosen(page, number - 1)
        page.click(".tabs button:has-text('Gaps')")
        page.locator(".panel .example").first.click()
        page.click(".usual button:text-is('Fills a gap')")
        page.click("dialog button:text-is('Add')")
        page.click(".tabs button:text-is('By hand 2')")
        assert "Stereotype" in page.inner_text(".panel")
        assert "Fills a gap" in page.inner_text(".panel")
        page.locator(".panel button:text-is('Undo')").first.click()
        page.wait_for_selector(".tabs button:text-is('By hand 1')")

        # The pointer on the map shows the example below it, and a click opens it.
        with client(server) as api:
            plane = api.get("/control-sets/1/map").json()
        row, place = lonely(np.array(plane["points"]), page.locator(".map canvas").bounding_box())
        page.mouse.move(*place)
        page.wait_for_selector(".tip img")
        page.mouse.click(*place)
        page.wait_for_selector("dialog[open]")
        assert plane["ids"][row] in page.inner_text("dialog dl")
        page.click("dialog button:text-is('Close')")

        page.click("button:text-is('Publish')")
        page.click(".tick input")  # do not measure
        page.click("dialog button:text-is('Publish')")
        page.wait_for_selector("h2:text-is('Edition 1 is published')")
        with page.expect_download() as download:
            page.click("text=Save as a zip file")
        assert download.value.suggested_filename == "control-set-1.zip"

        # Somebody objects in the published folder: it is shown next to the example.
        (folder,) = (tmp_path / "project" / "published").iterdir()
        verdict = check_published(folder)
        assert verdict.control is not None
        with open(folder / "objections.csv", "a", encoding="utf-8") as table:
            table.write(f"{verdict.control.ids[7]},looks staged,,Kim,,2026-01-31,open\n")
        page.reload()
        page.click(".tabs button:text-is('Objections 1')")
        assert "looks staged" in page.inner_text(".panel")
        page.click(".panel button:has-text('Show')")
        page.wait_for_selector("dialog .objections")
        assert "looks staged" in page.inner_text("dialog .objections")
        assert "Kim" in page.inner_text("dialog .objections")


def test_names_and_texts_are_never_markup(browser: Any, tmp_path: Path) -> None:
    nasty = '<img src=x onerror="document.title=1"><b>text</b>'
    lines = [
        f"{number},{nasty.replace(chr(34), chr(39))} {number},<i>g{number % 2}</i>" for number in range(40)
    ]
    (tmp_path / "<u>labelled.csv").write_text("id,text,group\n" + "\n".join(lines) + "\n")
    words = ["--port", "0", "--source", str(tmp_path / "<u>labelled.csv")]
    with started_server(tmp_path / "project", *words) as server, opened_page(browser, server) as page:
        with client(server) as api:
            body = {"source": 1, "attribute": "group", "name": "<u>set</u>"}
            job = api.post("/control-sets", json=body).json()["job"]
            while api.get(f"/jobs/{job}").json()["state"] in ("queued", "running"):
                time.sleep(0.02)
            body = {
                "name": "<s>choice</s>",
                "size": 20,
                "alpha": 1,
                "added": [{"row": 1, "reason": "<em>why</em>"}],
            }
            api.post("/control-sets/1/choices", json=body).raise_for_status()
            api.post(
                "/collections", json={"name": "<u>c</u>", "control": 1, "kind": "text"}
            ).raise_for_status()
        for address, text in {
            "#/curate": "<u>set</u>",
            "#/audits": "<u>c</u>",
            "#/watch/1": "<u>c</u>",
            "#/curate/1": "<s>choice</s>",
        }.items():
            visit(page, address)
            page.wait_for_selector(f"main :text('{text}')")
            if address == "#/curate/1":
                page.wait_for_selector(".panel .example :text('<b>text</b>')")
            assert page.locator(":is(main, dialog) :is(u, i, b, s, em, img)").count() == 0, address
        page.click("button:text-is('Load')")
        page.click(".tabs button:text-is('By hand 1')")
        page.wait_for_selector(".panel :text('<em>why</em>')")
        page.click(".panel button:text-is('Open')")
        page.wait_for_selector("dialog :text('<b>text</b>')")
        assert page.locator(":is(main, dialog) :is(u, i, b, s, em, img)").count() == 0
        assert page.title() == "<u>set</u> · divscore"


def test_a_dialog_does_not_outlive_its_page(browser: Any, texts: Process) -> None:
    with opened_page(browser, texts) as page:
        page.click("#nav a[href='#/curate']")
        page.click(".list a")
        page.click("button:text-is('Publish')")
        page.wait_for_selector("dialog[open]")
        page.go_back()
        page.wait_for_selector("main.curate .list a")
        assert page.locator("dialog").count() == 0
        page.click("#nav a[href='#/watch']")
        page.wait_for_selector("main.watch h1")


def test_face_descriptors_are_published_only_after_the_warning(browser: Any, tmp_path: Path) -> None:
    write_texts(tmp_path / "labelled.csv", {"sea": 20, "wood": 20}, seed=3, groups=True)
    with Encoding() as encoding:
        control = read_control(tmp_path / "labelled.csv", encoding)
    groups = [control.groups[label] for label in control.labels]
    faces = ControlSet(control.vectors, groups, ids=control.ids, encoder="faces/2 weights=451b8db9f59cac8a")
    save_control(faces, tmp_path / "faces")
    words = ["--port", "0", "--control", str(tmp_path / "faces")]
    with started_server(tmp_path / "project", *words) as server, opened_page(browser, server) as page:
        visit(page, "#/curate/1")
        page.click("button:text-is('Publish')")
        page.click("dialog button:text-is('Publish')")
        page.wait_for_selector("dialog .wrong:text-is('Tick this to publish, or cancel.')")
        assert "face descriptors" in page.inner_text("dialog .note")
        assert not (tmp_path / "project" / "published").exists()
        page.click("text=I may publish the face descriptors of these people")
        page.click("text=Measure error and coverage")  # off
        page.click("dialog button:text-is('Publish')")
        page.wait_for_selector("text=Edition 1 is published")
        assert "face descriptors" in page.inner_text(".place")
