"""The extension in a real Chromium: pages that tests serve, clicks on its icon, its panel, and a paired server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from webapp import Process

EXTENSION = Path(__file__).parents[1] / "extension"


@dataclass
class Site:
    """A web site on loopback: files by path, seconds that some take, where others are, and what was asked for."""

    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, body: str, path: str = "/", head: str = "") -> str:
        """Add a page; return its address."""
        text = f"<!doctype html><html lang=en><head><title>Results</title>{head}</head><body>{body}</body></html>"
        self.files[path] = ("text/html; charset=utf-8", text.encode())
        return self.address + path


@contextmanager
def served(headers: dict[str, str] | None = None) -> Iterator[Site]:
    """Serve a site."""
    site = Site(headers=headers or {})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode("utf-8", "replace")
            site.asked.append((self.command, self.path, f"{self.headers}{body}"))
            kind, data = site.files.get(self.path.partition("?")[0], ("", b""))
            moved = site.moved.get(self.path)
            time.sleep(site.slow.get(self.path, 0))
            self.send_response(302 if moved else 200 if kind else 404)
            if moved:
                self.send_header("Location", moved)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(data)))
            for name, value in site.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # browsers hang up as they like
    site.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


def until(check: Callable[[], Any], seconds: float = 30, what: str = "") -> Any:
    """Wait for something true, and return it."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what} {value!r}")
        time.sleep(0.05)


class Browsing:
    """A browser with the extension."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.worker = (
            context.service_workers[0] if context.service_workers else context.wait_for_event("serviceworker")
        )
        self.id = self.worker.url.split("/")[2]
        self.browser = context.browser.new_browser_cdp_session()

        def installed() -> bool:
            context.pages[0].wait_for_timeout(20)  # lets Playwright hear of new pages
            return any(page.url == self.url("options.html") for page in context.pages)

        until(installed, what="the options, which open after the installation")

    def url(self, name: str) -> str:
        """The address of a page of the extension."""
        return f"chrome-extension://{self.id}/{name}"

    def open(self, url: str) -> Any:
        """Show a page."""
        page = self.context.new_page()
        page.goto(url)
        return page

    def click(self, page: Any) -> None:
        """Click the icon of the extension while a page is shown, as a user does."""
        page.bring_to_front()
        session = self.context.new_cdp_session(page)
        target = session.send("Target.getTargetInfo")["targetInfo"]
        tabs = self.browser.send("Target.getTargets", {"filter": [{"type": "tab"}]})["targetInfos"]
        (tab,) = [each["targetId"] for each in tabs if each["url"] == target["url"]]
        self.browser.send("Extensions.triggerAction", {"id": self.id, "targetId": tab})

    def panel(self, page: Any) -> Any:
        """The panel in a page: a frame of the extension in a closed shadow root."""

        def find() -> Any:
            page.wait_for_timeout(20)  # lets Playwright hear of new frames
            return next((frame for frame in page.frames if frame.url == self.url("panel.html")), None)

        return until(find, what="panel")

    def text(self, page: Any) -> tuple[str, bool]:
        """What the panel says, and whether more is to come; nothing while a new panel takes its place."""
        try:
            text, busy = (
                self.panel(page).locator("#result").evaluate("e => [e.innerText, e.ariaBusy !== 'false']")
            )
        except Exception as error:
            if "detached" in str(error) or "has been closed" in str(error):
                return "", True
            raise
        return text, busy

    def says(self, page: Any, *words: str, seconds: float = 30, finished: bool = True) -> str:
        """Wait until the panel says something, and that nothing more is to come; return all it says."""
        last: tuple[str, bool] = "", True

        def check() -> bool:
            nonlocal last
            page.wait_for_timeout(50)
            last = self.text(page)
            return all(word in last[0] for word in words) and not (finished and last[1])

        try:
            until(check, seconds)
        except AssertionError as error:
            raise AssertionError(f"the panel does not say {words}, but {last!r}") from error
        return last[0]

    def press(self, page: Any, element: str, key: str) -> None:
        """Press a key on an element of the panel.

        Chromium may never confirm a key that closes or hides the frame it was pressed in, and `keyboard.press` would
        wait for that for ever.
        """
        try:
            self.panel(page).locator(element).press(key, timeout=5000)
        except Exception as error:
            if "Timeout" not in str(error) and "detached" not in str(error) and "closed" not in str(error):
                raise

    def tell(self, name: str, page: Any = None, **message: Any) -> Any:
        """What the popup would get as an answer."""
        own = page or self.open(self.url("popup.html"))
        answer = own.evaluate("(m) => chrome.runtime.sendMessage(m)", {"type": name, **message})
        if page is None:
            own.close()
        return answer

    def in_worker(self, page: Any, script: str, value: Any = None) -> Any:
        """Run something in the service worker while a page is shown; Playwright waits for a stopped one for ever."""
        self.tell("settings")  # starts it
        page.bring_to_front()
        return self.context.service_workers[-1].evaluate(script, value)

    def stop_worker(self) -> bool:
        """Stop the service worker, as the browser does with idle ones; whether it was seen to be gone."""
        page = self.context.pages[0]
        session = self.context.new_cdp_session(page)
        session.send("ServiceWorker.enable")
        session.send("ServiceWorker.stopAllWorkers")
        targets = self.browser.send("Target.getTargets")["targetInfos"]
        session.detach()
        return not any(each["type"] == "service_worker" for each in targets)

    def reset(self) -> None:
        """Close all pages but one, and forget settings and permissions."""
        first, *others = self.context.pages
        for page in others:
            page.close()
        first.goto(self.url("options.html"))
        first.evaluate("() => chrome.storage.local.remove(['settings', 'origins'])")
        first.goto("about:blank")

    def pair(self, server: Process) -> int:
        """Pair by the options page and the API of the app; return the number of the pairing."""
        page = self.open(self.url("options.html"))
        page.fill("#address", server.base)
        page.click("#pair")
        try:
            code = page.locator("code.code").inner_text(timeout=20_000)
        except Exception as error:
            raise AssertionError(f"no code, but {page.locator('main').inner_text()!r}") from error
        waiting = [each for each in api(server, "GET", "/pairings") if each["state"] == "pending"]
        (mine,) = [each for each in waiting if each["code"] == code]
        pairing = api(server, "POST", f"/pairings/{mine['request']}/accept", {})
        page.get_by_text("Paired with divscore").wait_for()
        page.close()
        return int(pairing["id"])


def asked(server: Process, method: str, path: str, body: Any = None) -> httpx.Response:
    """What the server answers to its owner."""
    headers = {"Authorization": f"Bearer {server.secret}"}
    return httpx.request(method, f"{server.base}/api/v1{path}", headers=headers, json=body, timeout=60)


def api(server: Process, method: str, path: str, body: Any = None) -> Any:
    """Call the server as its owner."""
    answer = asked(server, method, path, body)
    assert answer.status_code < 300, answer.text
    return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content


def page_audits(server: Process) -> set[int]:
    """The numbers of all page audits; those of tabs that a test before has closed may still go."""
    return {each["id"] for each in api(server, "GET", "/page-audits")}


def latest(server: Process, path: str = "") -> dict[str, Any]:
    """The newest page audit, if its address has this path."""
    made = api(server, "GET", "/page-audits")
    if made and path in made[0]["url"]:
        answer = asked(server, "GET", f"/page-audits/{made[0]['id']}")
        if answer.status_code != 404:  # removed a moment ago
            result: dict[str, Any] = answer.raise_for_status().json()
            return result
    return {"used": -1, "state": "none"}


@contextmanager
def opened_browser(
    driver: Any, chromium: str, profile: Path, *public: int, folder: Path = EXTENSION
) -> Iterator[Browsing]:
    """Start Chromium with the extension; the ports are those of sites that count as public."""
    spaces = ",".join(f"127.0.0.1:{port}=public" for port in public)
    context = driver.chromium.launch_persistent_context(
        str(profile),
        executable_path=chromium,
        headless=True,
        viewport={"width": 1280, "height": 900},
        locale="en-GB",
        args=[
            "--no-sandbox",
            "--headless=new",
            f"--disable-extensions-except={folder}",
            f"--load-extension={folder}",
            "--disable-features=DisableLoadExtensionCommandLineSwitch,WebUIOmniboxPopup,WebUIOmniboxAimPopup",
            "--enable-unsafe-extension-debugging",
            f"--ip-address-space-overrides={spaces}",
        ],
        ignore_default_args=["--disable-extensions", "--headless"],
    )
    try:
        yield Browsing(context)
    finally:
        context.close()


def gallery(names: list[str], extra: str = "") -> str:
    """A page of results: one figure for each picture, most of them loaded later."""
    figures = "".join(
        f'<figure><img src="/{name}" width=150 height=190 loading="{"lazy" if at > 20 else "eager"}"></figure>'
        for at, name in enumerate(names)
    )
    style = "<style>main{display:flex;flex-wrap:wrap}figure{margin:4px}</style>"
    return f"{style}<main>{figures}</main>{extra}"
