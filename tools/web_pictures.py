"""Make the pictures of docs/web.md: the web app in Chromium, with first names of the demo.

Run `python tools/web_pictures.py` after a change of the pages, look at the pictures, and commit them.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from divscore.paper.names import first_names

OUT = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, TALL, COLOURS = 1200, 1180, 128
COUNTS = {"female": 700, "male": 200}


def write_names(path: Path) -> dict[str, str]:
    """Write a table of names; return the recorded sex of each."""
    rng = np.random.default_rng(0)
    every = dict(zip(*first_names(), strict=True))
    some = [
        name
        for sex, number in COUNTS.items()
        for name in rng.choice([name for name, own in every.items() if own == sex], number, replace=False)
    ]
    with open(path, "w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerows([["name"], *([str(name)] for name in rng.permutation(some))])
    return every


def save(page: Any, name: str, height: int) -> None:
    """Store what the window shows, with few colours."""
    from PIL import Image

    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_timeout(500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(OUT / f"web-{name}.png", optimize=True)


def main() -> None:
    """Use the app as a first-time user does, and store four pictures on the way."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        sexes = write_names(folder / "names.csv")
        command = [sys.executable, "-m", "divscore", "label", "names.csv", "--no-browser", "--port", "0"]
        server = subprocess.Popen(
            [*command, "--groups", "female,male", "--attribute", "sex"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"DIVSCORE_CACHE": str(folder / "cache")},
        )
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            assert server.stdout is not None
            page = browser.new_page(viewport={"width": WIDTH, "height": TALL}, reduced_motion="reduce")
            page.goto(server.stdout.readline().strip())
            page.wait_for_selector("text=900 texts")
            page.evaluate("document.activeElement.blur()")
            save(page, "start", TALL)
            page.get_by_label("Your name").fill("Ann")
            page.click("button[type=submit]")
            page.wait_for_selector(".stage blockquote")
            for number in range(60):
                page.wait_for_function(
                    "number => document.querySelector('.position').textContent.startsWith(`${number} of`) "
                    "&& !document.querySelector('.stage[aria-busy]')",
                    arg=number + 1,
                )
                if number == 34:
                    page.wait_for_selector("text=Saved 34/60")
                    save(page, "label", 700)
                page.keyboard.press("1" if sexes[page.inner_text(".stage blockquote")] == "female" else "2")
            page.wait_for_selector(".shares svg")
            page.evaluate("document.activeElement.blur()")
            save(page, "answer", 700)
            page.click("text=Make a control set")
            page.wait_for_selector("main.curate .panel li")
            page.mouse.move(0, 0)
            save(page, "curate", 900)
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
