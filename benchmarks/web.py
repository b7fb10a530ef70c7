"""The web app in a real Chromium: from key to paint, the next item, the first page, and large collections.

A key counts as painted when the frame after it has been drawn: a message that is posted in the frame's callback arrives
after style, layout and paint. The second figure is the browser's own (Event Timing), which ends when the frame is
presented and is rounded to 8 ms. Times depend on what else the machine does.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import Check, Record, Table, parser, progress

DIFFERENT = 200  # pictures that differ in more than their last bytes
WATCH = """() => {
  window.painted = []; window.ready = []; window.presented = [];
  let pressed = 0;
  addEventListener("keydown", (event) => {
    pressed = event.timeStamp;
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => painted.push(performance.now() - pressed);
      channel.port2.postMessage(0);
    });
  }, true);
  new MutationObserver((changes) => {
    if (changes.some((each) => each.attributeName === "aria-busy") && !document.querySelector(".stage[aria-busy]"))
      ready.push(performance.now() - pressed);
  }).observe(document.querySelector(".stage"), { attributes: true, attributeFilter: ["aria-busy"] });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.name === "keydown") presented.push(entry.duration);
  }).observe({ type: "event", durationThreshold: 16 });
}"""


@dataclass
class Served:
    """A server and what its start took."""

    process: subprocess.Popen[str]
    url: str
    secret: str
    seconds: float

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API."""
        request = urllib.request.Request(self.url.partition("/?")[0] + "/api/v1" + path, method=method)
        request.add_header("Authorization", f"Bearer {self.secret}")
        if method != "GET":
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body or {}).encode()
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=600
        ) as answer:
            return json.load(answer)

    def finish(self, started: dict[str, Any]) -> None:
        """Wait for a job."""
        while (job := self.call("GET", f"/jobs/{started['job']}"))["state"] in ("queued", "running"):
            time.sleep(0.05)
        assert job["state"] == "done", job

    def project(self, size: int) -> int:
        """A project with its sample."""
        while any(source["state"] == "reading" for source in self.call("GET", "/sources")):
            time.sleep(0.05)
        body = {"source": 1, "attribute": "colour", "groups": ["a", "b"], "basis": "perceived", "size": size}
        number = int(self.call("POST", "/projects", body)["id"])
        self.finish(self.call("POST", f"/projects/{number}/sample", {"size": size}))
        return number

    @property
    def memory(self) -> float:
        """The most memory that it had, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


@contextmanager
def served(folder: Path, *words: str) -> Iterator[Served]:
    """Start `divscore serve` with some options."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "divscore", "serve", str(folder), "--headless", "--port", "0"]
    process = subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        url, secret = process.stdout.readline().strip(), process.stdout.readline().rpartition(" ")[2].strip()
        yield Served(process, url, secret, time.perf_counter() - begun)
    finally:
        process.kill()
        process.communicate()


def write_pictures(folder: Path, number: int, size: tuple[int, int]) -> None:
    """Write JPEG files as cameras do; most differ in their last bytes only."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    kinds = []
    for _ in range(min(DIFFERENT, number)):
        small = rng.integers(0, 255, size=(12, 16, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)
        stream = io.BytesIO()
        picture.save(stream, "jpeg", quality=85)
        kinds.append(stream.getvalue())
    for place in range(number):
        (folder / f"{place:06}.jpg").write_bytes(kinds[place % len(kinds)] + place.to_bytes(4, "little"))


def write_texts(path: Path, number: int) -> None:
    """Write a table of short texts."""
    with open(path, "w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "text"])
        table.writerows([f"t{place}", f"A short text with the number {place}"] for place in range(number))


def open_first_page(browser: Any, server: Served) -> tuple[Any, float]:
    """Use the link; return the page and the seconds until its form can be used."""
    page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
    begun = time.perf_counter()
    page.goto(server.url)
    page.wait_for_selector("form button[type=submit]")
    return page, time.perf_counter() - begun


def quantiles(values: list[float]) -> list[float]:
    """Median, 95 % and the largest."""
    return [statistics.median(values), float(np.quantile(values, 0.95)), max(values)]


def label(page: Any, project: int, number: int, pause: float) -> dict[str, list[float]]:
    """Label items with keys at an even pace; return milliseconds."""
    page.evaluate("localStorage.setItem('divscore:annotator', 'Ann')")
    page.evaluate(f"location.hash = '#/label/{project}'; location.reload()")
    page.wait_for_selector(".stage > *")
    page.wait_for_function("() => !document.querySelector('.stage[aria-busy]')")
    time.sleep(2)  # a person reads the page first
    page.evaluate(WATCH)
    begun = time.perf_counter()
    for place in range(number):
        page.keyboard.press("12"[place % 2])
        time.sleep(max(0.0, begun + (place + 1) * pause - time.perf_counter()))
        if place % 100 == 99:
            progress("labels", place + 1, number)
    labelled = int(page.evaluate("document.querySelector('.desk progress').value"))
    page.wait_for_function(
        "number => document.querySelector('.saved').textContent.startsWith(`Saved ${number}/`)", arg=labelled
    )
    times = {name: page.evaluate(f"window.{name}") for name in ("painted", "ready", "presented")}
    return times | {"early": [float(number - labelled)]}


def main() -> None:
    options = parser("web", (__doc__ or "").partition("\n")[0])
    options.add_argument("--pictures", type=int, default=5000, help="pictures in the folder, all drawn")
    options.add_argument("--labels", type=int, default=500, help="labels that are given, ten a second")
    options.add_argument("--items", type=int, default=100_000, help="items of the large collections")
    options.add_argument(
        "--repetitions", type=int, default=5, help="starts of the server, small and large in turn"
    )
    found = options.parse_args()
    record = Record(
        "web", {name: getattr(found, name) for name in ("pictures", "labels", "items", "repetitions")}
    )
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        os.environ["DIVSCORE_CACHE"] = str(folder / "cache")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        write_pictures(folder / "pictures", found.pictures, (1600, 1200))
        with served(folder / "project", "--source", str(folder / "pictures")) as server:
            project = server.project(min(found.pictures, 20_000))
            page, _ = open_first_page(browser, server)
            times = label(page, project, found.labels, 0.1)
            page.context.close()
        rows: list[list[Any]] = [
            ["key to paint", *quantiles(times["painted"])],
            ["key to the next item being ready", *quantiles(times["ready"])],
        ]
        # Events that the browser presented within 16 ms are not in its list.
        quick = [8.0] * max(0, found.labels - len(times["presented"]))
        rows.append(["the browser's own: key to presented frame", *quantiles([*times["presented"], *quick])])
        columns = ["ms", "median", "95 %", "largest"]
        record.tables.append(
            Table(f"{found.labels} labels, ten a second, {found.pictures:,} pictures", columns, rows)
        )

        write_texts(folder / "few.csv", 100)
        write_texts(folder / "many.csv", found.items)
        write_pictures(folder / "many", found.items, (64, 48))
        starts: dict[str, list[float]] = {}
        memory: dict[str, float] = {}
        for round_ in range(found.repetitions):
            for what in ("few.csv", "many.csv", "many"):
                with served(folder / f"{what}-{round_}", "--source", str(folder / what)) as server:
                    page, seconds = open_first_page(browser, server)
                    starts.setdefault(what, []).append(server.seconds + seconds)
                    if round_ == 0:
                        project = server.project(60)
                        page.evaluate(f"location.hash = '#/label/{project}'")
                        page.wait_for_selector("dialog, .stage > *")
                        memory[what] = server.memory
                    page.context.close()
            progress("starts", round_ + 1, found.repetitions)
        browser.close()
        names = {
            "few.csv": "100 texts",
            "many.csv": f"{found.items:,} texts",
            "many": f"{found.items:,} pictures",
        }
        rows = [
            [names[what], min(seconds), statistics.median(seconds), memory[what]]
            for what, seconds in starts.items()
        ]
        columns = ["collection", "least s", "median s", "memory MB"]
        record.tables.append(Table("From the command to a first page that can be used", columns, rows))
        more = max(min(starts[what]) - min(starts["few.csv"]) for what in ("many.csv", "many"))
        record.checks = [
            Check("key to paint, median", quantiles(times["painted"])[0], 30, unit=" ms"),
            Check("key to paint, 95 %", quantiles(times["painted"])[1], 60, unit=" ms"),
            Check("next item ready, 95 %", quantiles(times["ready"])[1], 50, unit=" ms"),
            Check("keys that came before the item was painted", times["early"][0], 0.01 * found.labels),
            Check("first page after the command", min(starts["few.csv"]), 1.5, unit=" s"),
            Check(f"start with {found.items:,} items, more", more, 3, unit=" s"),
            Check(f"memory with {found.items:,} items", max(memory.values()), 400, unit=" MB"),
        ]
        record.finish(found.out)


if __name__ == "__main__":
    main()
