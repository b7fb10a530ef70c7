"""The pages of the web app in a real browser: what tests do in them again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from webapp import Process


@contextmanager
def opened_page(browser: Any, server: Process, *, quiet: bool = True, **options: Any) -> Iterator[Any]:
    """A page of its own profile that has used the link; nothing may go wrong in it, and nothing may leave the machine.

    With `quiet` false, requests may fail, as they do where a test ends the server. Nothing moves by itself: a bar that
    moves is painted all the time.
    """
    usual = {"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce"}
    context = browser.new_context(**usual | options)
    context.set_default_timeout(240_000)  # an audit waits for its turn on a busy machine
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" and quiet else None
    )
    context.on("request", lambda request: faults.append(request.url) if not _local(request.url) else None)
    try:
        # The link works once: whoever has its cookie needs none.
        page.goto(server.base if "storage_state" in options else server.url)
        page.wait_for_selector("main h1")
        yield page
        assert faults == []
    finally:
        context.close()


def _local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))


def client(server: Process) -> httpx.Client:
    """A program that reads what the page saved."""
    headers = {"Authorization": f"Bearer {server.secret}"}
    return httpx.Client(base_url=f"{server.base}/api/v1", headers=headers, timeout=60, trust_env=False)


def drawn(server: Process, project: int = 1, annotator: str = "-") -> list[dict[str, Any]]:
    """The items of a project, in their order."""
    with client(server) as api:
        items: list[dict[str, Any]] = api.get(
            f"/projects/{project}/items", params={"annotator": annotator}
        ).json()["items"]
        return items


def make_project(server: Process, groups: list[str], size: int, source: int = 1, **more: Any) -> int:
    """A project with its sample, as the start page makes it."""
    with client(server) as api:
        body = {"source": source, "attribute": "group", "groups": groups, "basis": "perceived", "size": size}
        number = int(api.post("/projects", json=body | more).raise_for_status().json()["id"])
        job = api.post(f"/projects/{number}/sample", json={"size": size}).json()["job"]
        while (state := api.get(f"/jobs/{job}").json()["state"]) in ("queued", "running"):
            time.sleep(0.02)
        assert state == "done"
        return number


def open_labels(
    page: Any, project: int = 1, annotator: str = "Ann", ready: str = ".stage:not([aria-busy]) > *"
) -> None:
    """Go to the labels as a person whose name is known, in a page that is loaded again."""
    page.evaluate("name => localStorage.setItem('divscore:annotator', name)", annotator)
    page.evaluate("place => history.replaceState(null, '', place)", f"#/label/{project}")
    page.reload()  # returns when the new page is there, so that nothing of the old one is taken for it
    page.wait_for_selector(ready)


def visit(page: Any, address: str) -> None:
    """Go to another page of the app, until it is complete; nothing of the page before is there any more."""
    page.evaluate(
        "place => new Promise((done) => {"
        "  addEventListener('hashchange', () => setTimeout(done), { once: true });"
        "  location.hash = place; })",
        address,
    )
    page.wait_for_selector("main:not([aria-busy])")


def wait_for_item(page: Any, number: int) -> None:
    """Wait until an item is on the screen, as a person does."""
    page.wait_for_function(
        "number => document.querySelector('.position').textContent.startsWith(number + ' of') "
        "&& !document.querySelector('.stage[aria-busy]')",
        arg=f"{number:,}",
    )


def tab_to(page: Any, selector: str, *, backwards: bool = False) -> None:
    """Press Tab until an element has the focus, which has to be visible there."""
    wanted = page.locator(selector).first
    wanted.wait_for()
    for _ in range(400):
        if wanted.evaluate("element => element === document.activeElement"):
            ring = wanted.evaluate("element => getComputedStyle(element).outline")
            assert "3px" in ring, f"{selector}: the focus is not visible"
            return
        page.keyboard.press("Shift+Tab" if backwards else "Tab")
    raise AssertionError(f"{selector} cannot be reached with Tab")


def violations(page: Any) -> list[str]:
    """What axe-core finds on a page that keeps people out; reports in frames have tests of their own."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install -e '.[dev]'").Axe()
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in axe.run(page, context={"exclude": [["iframe"]]}).response["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def overflow(page: Any) -> int:
    """Pixels by which a page is wider than its window."""
    return int(page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))


def press_all(page: Any, keys: list[str], first: int = 1) -> None:
    """Label items in their order with keys."""
    for number, key in enumerate(keys, start=first):
        wait_for_item(page, number)
        page.keyboard.press(key)


QUICKLY = """async ([keys, first]) => {
  const at = () => document.querySelector(".position").textContent;
  const painted = (number) => at().startsWith(`${number.toLocaleString("en")} of`)
    && !document.querySelector(".stage[aria-busy]");
  for (const [place, key] of keys.entries()) {
    while (!painted(first + place)) await new Promise((done) => setTimeout(done, 1));
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  }
}"""


def press_quickly(page: Any, keys: list[str], first: int = 1) -> None:
    """Label items in their order as fast as the page shows them, with events that a script makes."""
    page.evaluate(QUICKLY, [keys, first])


def wait_saved(page: Any, text: str) -> None:
    """Wait for what the page says about saved labels."""
    wait_text(page, ".saved", text)


def wait_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element has a text, and no other."""
    page.wait_for_function(
        "([place, text]) => document.querySelector(place)?.textContent === text", arg=[selector, text]
    )
