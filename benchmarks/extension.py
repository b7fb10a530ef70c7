"""The extension in a real Chromium: from the click to the result, how often the truth is inside, and long tasks.

Each page shows 120 portraits, 36 of women, then 60 more, 24 of women. Women come first more often than by chance, so
that shares by rank differ from plain ones. Control set: 100 other portraits. The truth by rank is the mean of the
portraits' own groups, each with weight 1 / log2(rank + 1). Times depend on what else the machine does.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from portraits import DATA
from record import HERE, Check, Record, Table, parser, progress

sys.path.insert(0, str(HERE.parent / "tests"))

from browsing import Browsing, gallery, latest, opened_browser, served, until
from webapp import Process, started_server

from divscore.control.controlfile import save_control
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control

PICTURES = DATA.parent / "ppb2017_images"
FIRST, MORE = (36, 84), (24, 36)  # women, men
TASKS = """() => { window.tasks = [];
  new PerformanceObserver((list) => { for (const each of list.getEntries()) tasks.push(each.duration); })
    .observe({ type: 'longtask' });
  const add = () => { const image = new Image(50, 50); image.loading = 'lazy';
    image.src = '/none.png?' + Math.random(); document.body.append(image); };
  for (let n = 0; n < 10000; n++) add();
  setInterval(() => { document.images[40 + Math.floor(Math.random() * 5000)].remove(); add(); }, 15); }"""


def split(files: list[Path], counts: tuple[int, int], rng: np.random.Generator) -> list[Path]:
    """Take portraits of women and men, the women first more often than by chance."""
    places = []
    for letter, number in zip("fm", counts, strict=True):
        own = [file for file in files if file.stem.split("_")[2] == letter]
        for at in rng.choice(len(own), number, replace=False):
            places.append((rng.normal(loc=float(letter == "m")), own[at]))
    return [file for _, file in sorted(places)]


def truths(shown: list[Path]) -> tuple[float, float]:
    """The share of women, plain and by rank."""
    women = [float(file.stem.split("_")[2] == "f") for file in shown]
    weights = [1 / math.log2(rank + 1) for rank in range(1, len(shown) + 1)]
    return statistics.fmean(women), float(np.average(women, weights=weights))


def finished(browsing: Browsing, page: Any, server: Process, path: str, least: int) -> dict[str, Any]:
    """Wait for the result of a page of which at least so many pictures have a face."""
    browsing.says(page, "Trust")
    until(lambda: latest(server, path)["used"] >= least)
    browsing.says(page, "Trust")
    return latest(server, path)


def main() -> None:
    options = parser("extension", (__doc__ or "").partition("\n")[0])
    options.add_argument("--pages", type=int, default=40, help="pages that are audited")
    found = options.parse_args()
    if not PICTURES.is_dir():
        raise SystemExit(f"the portraits are not at {PICTURES}")
    from playwright.sync_api import sync_playwright

    record = Record("extension", {"pages": found.pages, "first": sum(FIRST), "more": sum(MORE)})
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {"the first 120": [], "60 more": []}
    inside: dict[str, list[float]] = {"share": [], "share by rank": []}
    errors: dict[str, list[float]] = {"share": [], "share by rank": []}
    widths: dict[str, list[float]] = {"share": [], "share by rank": []}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver, served() as site:
        folder = Path(name)
        os.environ["DIVSCORE_CACHE"] = str(folder / "cache")
        files = sorted(PICTURES.glob("*.jpg"))
        labelled = split(files, (50, 50), rng)
        for file in labelled:
            inner = folder / "labelled" / ("women" if file.stem.split("_")[2] == "f" else "men")
            inner.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, inner)
        with Encoding() as encoding:
            save_control(read_control(folder / "labelled", encoding), folder / "gender")
        rest = [file for file in files if file not in set(labelled)]
        site.files = {f"/{file.name}": ("image/jpeg", file.read_bytes()) for file in rest}
        chromium = shutil.which("chromium") or ""
        with (
            started_server(folder / "project", "--control", str(folder / "gender"), "--port", "0") as server,
            opened_browser(driver, chromium, folder / "profile", site.port) as browsing,
        ):
            browsing.pair(server)
            for number in range(found.pages):
                shown = split(rest, FIRST, rng)
                page = browsing.open(site.page(gallery([file.name for file in shown]), f"/page{number}"))
                begun = time.perf_counter()
                browsing.click(page)
                result = finished(browsing, page, server, f"/page{number}", 116)
                seconds["the first 120"].append(time.perf_counter() - begun)
                plain, weighted = truths(shown)
                for what, truth, key in (
                    ("share", plain, "share"),
                    ("share by rank", weighted, "rank_weighted"),
                ):
                    low, high = result[f"{key}_intervals"]["women"]
                    value = result["shares" if key == "share" else key]["women"]
                    inside[what].append(float(low <= truth <= high))
                    errors[what].append(abs(value - truth))
                    widths[what].append(high - low)
                others = split([file for file in rest if file not in set(shown)], MORE, rng)
                added = "".join(
                    f'<figure><img src="/{f.name}" width=150 height=190></figure>' for f in others
                )
                begun = time.perf_counter()
                page.evaluate("h => document.querySelector('main').insertAdjacentHTML('beforeend', h)", added)
                finished(browsing, page, server, f"/page{number}", 174)
                seconds["60 more"].append(time.perf_counter() - begun)
                page.close()
                progress("pages", number + 1, found.pages)
            page = browsing.open(site.page(gallery([file.name for file in rest[:30]]), "/hostile"))
            page.evaluate(TASKS)
            page.wait_for_timeout(2000)
            page.evaluate("() => { tasks.length = 0; }")
            browsing.click(page)
            until(lambda: latest(server, "/hostile")["used"] >= 28)
            page.wait_for_timeout(2000)
            longest = max(page.evaluate("() => tasks"), default=0.0)
    columns = ["from the click or the change to the result, s", "least", "median", "most"]
    rows: list[list[Any]] = [
        [what, min(some), statistics.median(some), max(some)] for what, some in seconds.items()
    ]
    record.tables.append(Table("Time", columns, rows))
    columns = ["of women", "truth inside", "mean error", "mean width"]
    rows = [[what, *(statistics.fmean(each[what]) for each in (inside, errors, widths))] for what in inside]
    record.tables.append(Table(f"Result of {found.pages} pages of 120 portraits", columns, rows))
    record.checks = [
        Check(
            "120 pictures, from the click to the result, most", max(seconds["the first 120"]), 10, unit=" s"
        ),
        Check("truth inside the interval", statistics.fmean(inside["share"]), 0.92, upper=False),
        Check(
            "truth by rank inside its interval", statistics.fmean(inside["share by rank"]), 0.92, upper=False
        ),
        Check("longest task in a page with 10,000 pictures (0: none above 50 ms)", longest, 100, unit=" ms"),
    ]
    record.finish(found.out)


if __name__ == "__main__":
    main()
