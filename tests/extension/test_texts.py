"""Posts and paragraphs, layouts of known pages, settings, runs, and a worker that is stopped."""

from __future__ import annotations

import html
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import EXTENSION, Browsing, Site, api, latest, page_audits, until
from webapp import WORDS, Process, started_server
from webpages import violations

from .conftest import Dialects, People

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def text_server(
    server: Process,
    browsing: Browsing,
    people: People,
    places: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Process]:
    """The server of all tests; another one if that has the model of pictures for everything."""
    if not people.options:
        yield server
        return
    controls = ("--control", str(people.control), "--control", str(places))
    with started_server(tmp_path_factory.mktemp("texts"), *controls, "--port", "0") as process:
        browsing.pair(process)
        yield process
        browsing.pair(server)


def posts(sea: int, wood: int, seed: int = 0) -> list[str]:
    """Made-up posts of two groups, all different."""
    rng = random.Random(seed)
    texts = [
        f"{' '.join(rng.choices(WORDS[name], k=4))} {name[0]}{at}{seed}"
        for name, number in (("sea", sea), ("wood", wood))
        for at in range(number)
    ]
    rng.shuffle(texts)
    return texts


def articles(texts: list[str]) -> str:
    return "".join(f"<article><p>{html.escape(text)}</p></article>" for text in texts)


def test_the_dialect_of_posts(
    browsing: Browsing, site: Site, text_server: Process, dialects: Dialects
) -> None:
    if dialects.control is None:
        pytest.skip("the posts with their dialects are not here")
    texts = dialects.posts["AAE"][:60] + dialects.posts["WHE"][:140]
    random.Random(0).shuffle(texts)
    browsing.tell("keep", values={"control": 3})
    page = browsing.open(site.page(articles(texts), "/posts"))
    browsing.click(page)
    browsing.says(page, "200 texts used", "Trust")
    result = until(lambda: (r := latest(text_server))["used"] == 200 and r["state"] == "ready" and r)
    low, high = result["share_intervals"]["AAE"]
    assert low <= 0.3 <= high
    assert result["trust"] != "poor"


def test_paragraphs_runs_and_a_target(browsing: Browsing, site: Site, text_server: Process) -> None:
    target = {"2": {"shares": {"sea": 0.4}, "source": "Register of coasts, 2024"}}
    for at, (sea, wood) in enumerate([(30, 50), (34, 46)]):
        settings = {"control": 2, "targets": target, "study": "places", "run": f"repetition {at}"}
        browsing.tell("keep", values=settings)
        texts = "".join(f"<p>{text}</p>" for text in posts(sea, wood, at))
        page = browsing.open(site.page(f"<nav><li>short</li></nav>{texts}", f"/paragraphs{at}"))
        browsing.click(page)
        text = browsing.says(page, "80 texts used", "Trust")
        assert "40 %" in text
        assert "Register of coasts, 2024" in text
        low, high = latest(text_server)["share_intervals"]["sea"]
        assert low <= sea / 80 <= high
        panel = browsing.panel(page)
        browsing.press(page, "#save", "Enter")
        panel.get_by_text("Saved as audit").wait_for()
        # Who works with the keyboard is still where they were.
        assert panel.evaluate("() => document.hasFocus() && document.activeElement.id") == "save"
    saved = [each for each in api(text_server, "GET", "/page-audits?saved=true") if each["study"] == "places"]
    assert [each["run"] for each in saved] == ["repetition 1", "repetition 0"]
    one, two = (each["shares"]["sea"] for each in saved)
    assert saved[0]["variation"]["runs"] == 2
    assert saved[0]["variation"]["spread"]["sea"] == pytest.approx(abs(one - two) / 2**0.5)
    browsing.says(page, "Between 2 saved runs")
    # The popup lists both, and exports the evidence.
    popup = browsing.open(browsing.url("popup.html"))
    popup.get_by_text("repetition 0").wait_for()
    with popup.expect_download() as started:
        popup.get_by_role("button", name=f"Evidence (zip) {saved[0]['id']}").click()
    assert Path(started.value.path()).read_bytes() == api(
        text_server, "GET", f"/page-audits/{saved[0]['id']}/evidence.zip"
    )
    page.bring_to_front()
    # The full report opens in a tab for whoever has opened the app in this browser.
    browsing.open(text_server.url).close()
    page.bring_to_front()
    with browsing.context.expect_page() as opened:
        panel.locator("#report").click()
    opened.value.wait_for_url(f"**/page-audits/{saved[0]['id']}/report")
    opened.value.get_by_text("these 80 texts").first.wait_for()


def test_clicks_at_once_hidden_posts_short_ones_and_another_search(
    browsing: Browsing, site: Site, text_server: Process
) -> None:
    browsing.tell("keep", values={"control": 2})
    before = page_audits(text_server)
    body = f"<main>{articles(posts(14, 14, 21))}</main>{articles(['so true', 'me too', 'so true'])}"
    page = browsing.open(site.page(body, "/single") + "?p=1")
    # No page can stop an audit like this.
    page.evaluate("() => { document.documentElement.lang = '\\udfff'; }")
    browsing.click(page)
    browsing.panel(page)
    browsing.in_worker(
        page,
        "async () => { const [tab] = await chrome.tabs.query({ active: true, lastFocusedWindow: true });"
        " for (let n = 0; n < 3; n++) chrome.action.onClicked.dispatch(tab); }",
    )
    browsing.says(page, "28 texts used", "under 20 characters: 2", "Trust")
    # What the page hides has left it; an address that changes alone is no other search.
    page.evaluate(
        "() => { history.replaceState({}, '', '?p=2#end');"
        " [...document.querySelectorAll('main > *')].slice(24).forEach((e) => { e.hidden = true; }); }"
    )
    browsing.says(page, "24 texts used")
    # The same document shows the results of another search: they are not mixed.
    used = latest(text_server)["used"]
    page.evaluate(
        "h => { history.pushState({}, '', '?q=forest'); document.querySelector('main').innerHTML = h; }",
        articles(posts(10, 18, 22)),
    )
    browsing.says(page, "another search")
    assert latest(text_server)["used"] <= used
    # The same where the search is in the path, and the page needs a moment to load it.
    page.evaluate("() => { history.replaceState({}, '', '/search#/coast'); }")
    browsing.click(page)
    browsing.says(page, "28 texts used")
    page.evaluate("() => { history.pushState({}, '', '/search#/forest'); }")
    page.wait_for_timeout(600)
    page.evaluate("h => { document.querySelector('main').innerHTML = h; }", articles(posts(20, 8, 23)))
    browsing.says(page, "another search")
    # However often it was begun, nothing is left of it.
    page.close()
    until(lambda: page_audits(text_server) <= before)


def test_the_first_results_are_those_of_the_layout(
    browsing: Browsing, site: Site, text_server: Process
) -> None:
    """In columns, or in any order: the source has the wood first, the page shows the sea first."""
    browsing.tell("keep", values={"control": 2})
    texts = [*posts(0, 30, 25), *posts(30, 0, 25)]
    rows = "".join(f"<li data-idx={59 - at}><div class=it>{text}</div></li>" for at, text in enumerate(texts))
    style = "<style>ul { display: flex; flex-direction: column-reverse; }</style>"
    page = browsing.open(site.page(f"<ul>{rows}</ul>", "/ranks", style))
    browsing.click(page)
    browsing.says(page, "60 texts used")
    for rank, depth in (("data-idx", 30), ("place", 25)):
        browsing.in_worker(
            page,
            """async ([rank, depth]) => {
              const [tab] = await chrome.tabs.query({ active: true, lastFocusedWindow: true });
              const { nonce } = (await chrome.storage.session.get())[`run:${tab.id}`];
              const layout = { text: '.it', rank };
              const plan = { nonce, mode: 'text', depth, area: false, layout, panel: '' };
              await chrome.tabs.sendMessage(tab.id, { type: 'collect', plan }, { frameId: 0 });
            }""",
            [rank, depth],
        )
        browsing.says(page, f"{depth} texts used", "Trust")
        assert latest(text_server, "/ranks")["shares"]["sea"] > 0.9, rank


def test_the_audit_goes_on_when_the_service_worker_is_stopped(
    browsing: Browsing, site: Site, text_server: Process
) -> None:
    browsing.tell("keep", values={"control": 2})
    first, more = posts(20, 20, 5), posts(20, 20, 6)
    page = browsing.open(site.page(f"<main>{articles(first)}</main>", "/stopped"))
    browsing.click(page)
    browsing.says(page, "texts used")
    stopped = []
    for at in range(0, 40, 4):
        added = articles(more[at : at + 4])
        page.evaluate("h => document.querySelector('main').insertAdjacentHTML('beforeend', h)", added)
        stopped.append(browsing.stop_worker())
        page.wait_for_timeout(120)
    browsing.says(page, "80 texts used", "Trust")
    # Also if it was stopped before the page was read: this is what it leaves behind then.
    before = latest(text_server)["id"]
    stopped.append(browsing.stop_worker())
    popup = browsing.open(browsing.url("popup.html"))
    popup.evaluate(
        """async () => { for (const [name, run] of Object.entries(await chrome.storage.session.get(null)))
        if (run.page) await chrome.storage.session.set({ [name]: { ...run, state: 'starting' } }); }"""
    )
    popup.close()

    def finished() -> Any:
        page.wait_for_timeout(50)
        result = latest(text_server, "/stopped")
        return result["used"] == 80 and result["id"] != before and result["state"] == "ready" and result

    result = until(finished)
    assert any(stopped)  # the next message starts it again, sometimes at once
    low, high = result["share_intervals"]["sea"]
    assert low <= 0.5 <= high


STRUCTURES = {
    "Google Images": '<div data-id="x"><h3><a><img ITEM></a></h3></div>',
    "Bing Images": '<a class="iusc"><div class="img_cont"><img class="mimg" ITEM></div></a>',
    "DuckDuckGo Images": '<div data-testid="image-result"><img ITEM></div>',
    "Yandex Images": '<div class="serp-item"><img class="serp-item__thumb" ITEM></div>',
    "Wikimedia Commons": '<ul><li class="gallerybox"><div class="thumb"><img ITEM></div></li></ul>',
    "Unsplash, Pexels, Pixabay": "<article><a><img ITEM></a></article>",
    "X, formerly Twitter": '<article><p>N</p><div data-testid="tweetText" ITEM>t</div></article>',
    "Bluesky": '<div><span>name</span><div data-testid="postText" ITEM>t</div></div>',
    "Mastodon": '<div class="status"><p>N</p><div class="status__content__text" ITEM>t</div></div>',
    "Reddit": '<shreddit-comment><div slot="comment" ITEM>t</div><div slot="actionRow">reply</div></shreddit-comment>',
    "YouTube comments": '<div id="body"><span id="author">a</span><div id="content-text" ITEM>t</div></div>',
}


def test_layouts_find_the_items_of_pages_of_their_structure(browsing: Browsing, site: Site) -> None:
    layouts = json.loads((EXTENSION / "layouts.json").read_text())["layouts"]
    assert {each["name"] for each in layouts} == set(STRUCTURES)
    page = browsing.open(site.page("<main></main>", "/layouts"))
    for layout in layouts:
        item = STRUCTURES[layout["name"]].replace("ITEM", 'data-mine="1"')
        around = f'<header><img alt="logo"><p>menu</p></header>{item * 3}<footer><img alt="f"></footer>'
        page.evaluate("h => { document.body.innerHTML = h; }", around)
        selector = layout["image"] if "<img" in item else layout["text"]
        found = page.evaluate(
            "s => [...document.querySelectorAll(s)].map((e) => e.hasAttribute('data-mine'))", selector
        )
        assert found == [True] * 3, layout["name"]


def test_the_panel_speaks_the_chosen_language_and_keys_work(
    browsing: Browsing, site: Site, text_server: Process
) -> None:
    browsing.tell("keep", values={"control": 2, "language": "de"})
    page = browsing.open(site.page(articles(posts(5, 5, 9)), "/german"))
    browsing.click(page)
    browsing.says(page, "Zu wenige: 10 Einträge")
    panel = browsing.panel(page)
    assert panel.locator("html").get_attribute("lang") == "de"
    names = []
    panel.locator("#settings").focus()
    for _ in range(4):
        names.append(panel.evaluate("() => document.activeElement.textContent"))
        page.keyboard.press("Tab")
    assert names == ["Einstellungen", "Schließen", "Beleg speichern", "Ganzer Bericht"]
    assert panel.locator("[role=status]").count() == 2
    # The browser does not give every key: Alt+D is that of its address bar on some systems.
    options = browsing.open(browsing.url("options.html"))
    given = options.evaluate("() => chrome.commands.getAll()")
    shortcuts = {each["name"]: each["shortcut"] for each in given}
    assert shortcuts["_execute_action"]
    assert shortcuts["area"]
    options.locator("#address:enabled").wait_for()
    rows = options.locator("#keys li").all_inner_texts()
    assert rows[0].startswith(f"Diese Seite prüfen: {shortcuts['_execute_action']}")
    assert rows[1] == f"Einen Teil der Seite prüfen: {shortcuts['area']}"
    popup = browsing.open(browsing.url("popup.html"))
    popup.locator("#history").wait_for()
    for colours in ("light", "dark"):
        for place in (page, options, popup):
            place.emulate_media(color_scheme=colours)
        for place in (panel, options, popup):
            assert violations(place) == [], (place.url, colours)
    options.close()
    popup.close()
    page.bring_to_front()
    browsing.press(page, "#close", "Escape")
    until(lambda: page.wait_for_timeout(20) or len(page.frames) == 1)
