"""Audits and watched collections in a real Chromium, with the server as a process of its own."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from webapp import Process, started_server, write_texts
from webpages import client, opened_page, overflow, tab_to, violations, visit

from divscore.control.controlfile import save_control
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control

pytestmark = pytest.mark.browser


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    """A server with a control set of 120 texts, and 300 others."""
    write_texts(tmp_path / "labelled.csv", {"sea": 60, "wood": 60}, seed=3, groups=True)
    with Encoding() as encoding:
        save_control(read_control(tmp_path / "labelled.csv", encoding), tmp_path / "places")
    write_texts(tmp_path / "posts.csv", {"sea": 100, "wood": 200}, seed=1)
    words = ["--port", "0", "--source", str(tmp_path / "posts.csv"), "--control", str(tmp_path / "places")]
    with started_server(tmp_path / "project", *words) as started:
        yield started


def items_of(path: Path) -> dict[str, Any]:
    with open(path, encoding="utf-8", newline="") as stream:
        return {"items": [{"id": row["id"], "text": row["text"]} for row in csv.DictReader(stream)]}


def headline(page: Any) -> str:
    """What the report in the page says, once it is there to its end."""
    report = page.frame_locator("iframe.report")
    report.locator("footer").wait_for()
    text: str = report.locator("h1").inner_text()
    return " ".join(text.split())


def test_a_source_is_audited_again_and_compared(browser: Any, server: Process, tmp_path: Path) -> None:
    with opened_page(browser, server) as page, client(server) as api:
        page.click("#nav a[href='#/audits']")
        page.click("text=New audit")
        page.click("button:text-is('Audit')")
        page.wait_for_selector("iframe.report")
        (first,) = api.get("/audits").json()
        assert headline(page) == first["headline"]
        low, high = first["share_intervals"]["sea"]
        assert low <= 1 / 3 <= high

        # The texts change; the second audit is started by keyboard alone.
        write_texts(tmp_path / "posts.csv", {"sea": 220, "wood": 80}, seed=1)
        page.click("text=History of this collection")
        tab_to(page, "button:text-is('Audit again')")
        page.keyboard.press("Enter")
        page.wait_for_selector(".box tbody tr:nth-child(2)")
        after, before = api.get("/audits").json()
        assert page.locator(".plot .mark").count() == 2
        assert f"{100 * after['shares']['sea']:.0f}%" in page.inner_text(".box tbody tr:first-child")
        assert f"{100 * before['shares']['sea']:.0f}%" in page.inner_text(".box tbody tr:last-child")
        tab_to(page, "button:text-is('Compare the two')")
        page.keyboard.press("Enter")
        page.wait_for_selector("th:text-is('Verdict')")
        change = api.get("/audits/difference", params={"before": before["id"], "after": after["id"]}).json()
        assert page.inner_text("h1") == change["headline"]
        assert change["collections"][0]["verdict"] in page.inner_text(".box tbody")

        # A collection has one history, however often its audit is begun from the list.
        visit(page, "#/audits/new")
        page.click("summary:has-text('Compare with a target')")
        page.fill("label:text-is('wood, %')", "60")
        page.fill("label:has-text('Where do these numbers')", "Atlas")
        page.click("button:text-is('Audit')")
        page.wait_for_selector("iframe.report")
        assert "(the target is 40%, Atlas)" in headline(page)
        (collection,) = api.get("/collections").json()
        assert collection["target"] == {"sea": 0.4, "wood": 0.6}
        page.click("text=History of this collection")
        page.wait_for_selector(".plot text:has-text('target 40%')")
        page.go_back()
        page.wait_for_selector("iframe.report")
        page.click("button:text-is('Remove')")
        page.click("dialog button:text-is('Remove')")
        page.wait_for_selector("h2:text-is('Latest results')")
        assert len(api.get("/audits").json()) == 2


def test_a_long_audit_shows_its_speed_stops_and_is_started_again(
    browser: Any, server: Process, tmp_path: Path
) -> None:
    most = 800_000  # far more than are read before a browser that waits for its turn presses Stop
    lines = [f"t{number},wave {number} and oak {number % 977}" for number in range(most)]
    (tmp_path / "posts.csv").write_text("id,text\n" + "\n".join(lines) + "\n")
    with opened_page(browser, server) as page, client(server) as api:
        visit(page, "#/audits/new")
        page.click("button:text-is('Audit')")
        page.wait_for_selector(".job .speed:has-text('a second')")
        # Whoever comes to the list in the meantime sees it, too.
        page.click("#nav a[href='#/audits']")
        page.wait_for_selector(".job .speed:has-text('a second')")
        page.click(".job button:text-is('Stop')")
        page.wait_for_selector(".job", state="detached")
        (job,) = api.get("/jobs").json()
        assert job["state"] == "cancelled"
        assert 0 < job["done"] < most
        assert api.get("/audits").json() == []
        api.post("/collections/1/audits", json={}).raise_for_status()
    server.kill()
    port = server.base.rpartition(":")[2]
    words = ("--port", port, "--source", str(tmp_path / "posts.csv"))
    with started_server(tmp_path / "project", *words) as again, opened_page(browser, again) as page:
        page.click("#nav a[href='#/audits']")
        page.wait_for_selector("h2:text-is('Interrupted')")
        page.click("button:text-is('Start again')")
        page.wait_for_selector("h2:text-is('Interrupted')", state="detached")
        page.click(".job button:text-is('Stop')")


def test_a_watched_collection_follows_what_programs_add(
    browser: Any, server: Process, tmp_path: Path
) -> None:
    with opened_page(browser, server) as page, client(server) as api:
        page.click("#nav a[href='#/watch']")
        page.click("button:text-is('New collection')")
        page.click("dialog button:text-is('Make')")
        page.click("button:text-is('Make a token')")
        page.wait_for_selector("text=The token is in the commands")
        # The command of the page works as it is.
        command = page.locator("pre code").first.inner_text()
        run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        assert '"added":1' in run.stdout
        page.wait_for_selector("text=1 item ·")
        api.put("/collections/1/items", json=items_of(tmp_path / "posts.csv")).raise_for_status()
        page.wait_for_selector("text=301 items ·")
        page.wait_for_selector(".headline:has-text('301 texts')")
        (audit, *_) = api.get("/audits").json()
        assert page.inner_text(".headline") == audit["headline"]
        assert page.locator(".plot").first.get_attribute("aria-label").startswith("Shares. sea: 33%")

        gone = [f"t{number}" for number in range(150)]
        api.post("/collections/1/remove", json={"ids": [*gone, "post-1"]}).raise_for_status()
        page.wait_for_selector(".headline:has-text('150 texts')")
        page.wait_for_selector("h2:text-is('Over time')")
        page.click("button:text-is('Pause')")
        page.wait_for_selector("text=paused")
        assert api.get("/collections/1").json()["live"] is False


ADDRESSES = {
    "#/curate": ".list a",
    "#/curate/1": ".panel .example",
    "#/audits": ".list a",
    "#/audits/1": "iframe.report",
    "#/audits/new": "select",
    "#/audits/collection/1": ".plot",
    "#/audits/difference?before=1&after=2": "td",
    "#/watch": ".empty",
    "#/watch/1": ".plot",
}


def test_pages_are_readable_by_everyone(browser: Any, server: Process) -> None:
    with client(server) as api:
        api.post("/collections", json={"name": "posts", "control": 1, "source": 1}).raise_for_status()
        for size in (20, 40):
            api.post("/control-sets/1/choices", json={"name": f"{size}", "size": size, "alpha": 1.0})
        for _ in range(2):
            job = api.post("/collections/1/audits", json={}).json()["job"]
            while api.get(f"/jobs/{job}").json()["state"] in ("queued", "running"):
                time.sleep(0.02)
    with opened_page(browser, server) as page:
        for width, scheme in (
            (390, "dark"),
            (640, "light"),
            (1200, "light"),
        ):  # 640: a window of 1,280 at 200 %
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            for address, ready in ADDRESSES.items():
                visit(page, address)
                page.wait_for_selector(ready)
                assert overflow(page) <= 0, (address, width)
                assert width == 640 or violations(page) == [], (address, width)
            if width == 390:
                visit(page, "#/curate/1")
                for opening in (".panel .example", "button:text-is('Publish')"):
                    page.locator(opening).first.click()
                    page.wait_for_selector("dialog[open]")
                    assert violations(page) == [], opening
                    page.keyboard.press("Escape")
        page.evaluate("() => document.querySelector('h1').append(document.createElement('input'))")
        assert [each.partition(":")[0] for each in violations(page)] == ["label"]  # so it looks


def test_an_extension_is_paired_and_its_saved_runs_are_compared(
    browser: Any, server: Process, tmp_path: Path
) -> None:
    extension = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
    asking = httpx.Client(
        base_url=f"{server.base}/api/v1", headers={"Origin": extension}, timeout=60, trust_env=False
    )
    with opened_page(browser, server) as page, asking:
        page.click("#nav a[href='#/pages']")
        page.wait_for_selector("text=No extension is paired")
        asked = asking.post("/pair", json={"name": "divscore in Chromium", "extension": extension}).json()
        page.wait_for_selector(f"code:text-is('{asked['code']}')")
        tab_to(page, "button:text-is('Accept')")
        page.keyboard.press("Enter")
        page.wait_for_selector("button:text-is('Revoke')")
        token = asking.get(f"/pair/{asked['request']}").json()["token"]
        asking.headers["Authorization"] = f"Bearer {token}"
        posts = items_of(tmp_path / "posts.csv")["items"]
        for run, some in (("first", posts[:150]), ("second", posts[150:])):
            wish = {
                "control": 1,
                "mode": "text",
                "url": "https://example.org/?q=trip",
                "run": run,
                "study": "Trips",
                "target": {"sea": 0.4},
                "target_source": "Register of trips",
            }
            number = asking.post("/page-audits", json=wish).raise_for_status().json()["id"]
            for at in range(0, len(some), 50):
                sent = [{**each, "rank": at + n + 1} for n, each in enumerate(some[at : at + 50])]
                asking.post(f"/page-audits/{number}/items", json={"items": sent}).raise_for_status()
            while asking.get(f"/page-audits/{number}").json()["state"] != "ready":
                time.sleep(0.05)
            asking.post(f"/page-audits/{number}/save", json={}).raise_for_status()
        page.reload()
        page.wait_for_selector("h3:text-is('Trips')")
        assert "2 runs; standard deviation between them: sea " in page.inner_text("section.card")
        assert page.locator("section.card svg.plot").count() == 2
        assert page.locator("section.card path.wanted").count() == 4
        assert "Target: sea 40%, wood 60% (Register of trips)" in page.inner_text("section.card")
        assert "even split" not in page.inner_text("section.card")
        assert violations(page) == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert overflow(page) <= 0
        page.click("button:text-is('Revoke')")
        page.click("dialog button:text-is('Revoke')")
        page.wait_for_selector("text=No extension is paired")
        assert asking.get("/page-audits").status_code in (401, 403)
