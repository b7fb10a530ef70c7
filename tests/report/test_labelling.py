"""The page for labelling: what it contains, and what it does in a real browser."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from commands import run
from pages import Outline, assert_inert
from PIL import Image
from test_browser import CONTRAST, SIZES, options

from divscore import audit, draw_sample
from divscore.jobs.drawfile import Draw

SCRIPT = "<script>alert(1)</script>"
TEXTS = [
    SCRIPT,
    "</script><img src=x onerror=alert(2)>",
    "مرحبا بالعالم، هذا نص",
    '=HYPERLINK("http://x")',
    'two\nlines, "quoted"',
    "y" * 3000,
    "plain",
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def texts(place: Path) -> Draw:
    """Fourteen hostile texts, two of each kind."""
    import pyarrow as pa

    return draw_sample(
        pa.table({"text": [f"{text} {at}" for text in TEXTS for at in range(2)]}), 14, groups=["a", "b"]
    )


@pytest.fixture
def photos(place: Path) -> Draw:
    tiny.folder(place / "photos", {"red": 30, "blue": 20}, 3)
    return draw_sample("photos", 12, groups=["red", "blue"], attribute="colour")


def is_red(draw: Draw, at: int) -> bool:
    return draw.ids[at].startswith("red/")


# What it contains


def test_the_page_is_one_inert_file(texts: Draw) -> None:
    texts.save("to-label.html")
    page = Path("to-label.html").read_text(encoding="utf-8")
    assert_inert(page)
    assert SCRIPT not in page
    assert page.count("</script>") == 2
    policy = next(meta["content"] for meta in Outline(page).all("meta") if "http-equiv" in meta)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_pictures_are_small_upright_and_without_metadata(place: Path) -> None:
    from base64 import b64decode

    tiny.folder(place / "photos", {"red": 3}, 3, sub_folders=False)
    wide = Image.fromarray(np.zeros((900, 1800, 3), dtype=np.uint8))
    about = Image.Exif()
    about[274], about[271] = 6, "a camera"  # stored on its side
    wide.save("photos/turned.jpg", exif=about)
    (place / "photos" / "cut.jpg").write_bytes((place / "photos" / "turned.jpg").read_bytes()[:2000])
    draw_sample("photos", 5, groups=["a", "b"]).save("to-label.html")
    page = Path("to-label.html").read_text()
    pictures = [b64decode(data) for data in re.findall(r"data:image/jpeg;base64,([^\"]+)", page)]
    sizes = sorted(Image.open(io.BytesIO(data)).size for data in pictures)
    assert sizes == [(24, 24)] * 3 + [(320, 640)]
    assert not any(b"a camera" in data for data in pictures)
    assert '"problem":"is cut off"' in page


# What it does


class Shown:
    """A page in a browser, what it asked before it was left, and all that it must not do."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.trouble: list[str] = []
        self.asked = 0
        self.leave = True  # what a person answers
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url))
        self.page.on("dialog", self._answer)

    def _check(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.trouble.append(url)

    def _answer(self, dialog: Any) -> None:
        if dialog.type != "beforeunload":
            self.trouble.append(dialog.message)
        self.asked += 1
        dialog.accept() if self.leave else dialog.dismiss()


@contextmanager
def opened(browser: Any, path: str, **settings: Any) -> Iterator[Shown]:
    context = browser.new_context(accept_downloads=True, **{**options("desktop"), **settings})
    shown = Shown(context)
    shown.page.goto(Path(path).resolve().as_uri())
    yield shown
    context.close()
    assert shown.trouble == []


def counted(page: Any) -> str:
    return str(page.locator("#counted").inner_text())


def saved(page: Any) -> bytes:
    with page.expect_download() as waiting:
        page.click("#save")
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.browser
def test_labels_are_given_with_keys_kept_and_saved(browser: Any, photos: Draw, place: Path) -> None:
    photos.save("to-label.html")
    with opened(browser, "to-label.html") as shown:
        page = shown.page
        assert page.locator("#save").is_disabled()
        for at in range(5):
            assert page.locator("#position").inner_text() == f"Item {at + 1} of 12"
            page.keyboard.press("1" if is_red(photos, at) else "2")
        page.keyboard.press("u")
        assert counted(page) == "5 of 12 labelled, 1 unsure"
        assert page.locator("#state").inner_text() == "Not saved yet"
        page.reload()  # all is there again, and the next item is shown
        assert counted(page) == "5 of 12 labelled, 1 unsure"
        assert page.locator("#position").inner_text() == "Item 7 of 12"
        for at in range(6, 12):
            page.click(f"#choices button:nth-child({1 if is_red(photos, at) else 2})")
        assert counted(page) == "11 of 12 labelled, 1 unsure"
        assert "All 12 items are done: save the table" in page.locator("#news").inner_text()
        data = saved(page)
        assert page.locator("#state").inner_text() == "Saved"
        assert shown.asked == 1  # before the page was left with labels that no table has
    names = ["unsure" if at == 5 else "red" if is_red(photos, at) else "blue" for at in range(12)]
    assert data.decode() == photos.labelled(names).csv()
    Path("to-label.csv").write_bytes(data)
    tiny.image_model(place / "tiny.onnx")
    done = run(
        "audit", "photos", "--encoder", "onnx", "--model", "tiny.onnx", "--labelled-sample", "to-label.csv"
    )
    assert "Between" in done.stdout
    result = audit("photos", sample=Draw.read("to-label.csv"), encoder="onnx", model="tiny.onnx")
    assert result.labels is not None
    assert (result.labels.labelled, result.labels.without_label) == (11, 1)


@pytest.mark.browser
def test_going_back_undoing_and_jumping(browser: Any, photos: Draw) -> None:
    photos.save("to-label.html")
    with opened(browser, "to-label.html") as shown:
        page = shown.page
        for key in ("1", "2", "ArrowRight", "1"):
            page.keyboard.press(key)
        assert page.locator("#position").inner_text() == "Item 5 of 12"
        page.keyboard.press("Backspace")
        assert page.locator("#position").inner_text() == "Item 4 of 12"
        assert counted(page) == "2 of 12 labelled"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert page.locator("#label").inner_text() == "Labelled: blue"
        assert page.locator("#choices button[aria-pressed=true]").inner_text().startswith("blue")
        page.keyboard.press("1")  # another label, and on to the first item without one
        assert page.locator("#position").inner_text() == "Item 3 of 12"
        assert page.locator("#overview li:nth-child(2) button").get_attribute("aria-label") == "Item 2: red"
        page.click("#overview li:nth-child(9) button")
        assert page.locator("#position").inner_text() == "Item 9 of 12"
        page.keyboard.press("3")  # no third group
        page.keyboard.press("Control+1")
        assert counted(page) == "2 of 12 labelled"
        page.keyboard.press("Backspace")
        page.keyboard.press("Backspace")
        assert counted(page) == "1 of 12 labelled"


@pytest.mark.browser
def test_the_page_asks_for_names(browser: Any, place: Path) -> None:
    Path("names.txt").write_text("José\n" + "\n".join(f"name {at}" for at in range(19)) + "\n")
    draw_sample("names.txt", 20).save("to-label.html")
    with opened(browser, "to-label.html") as shown:
        page = shown.page
        assert page.locator("#work").is_hidden()
        page.fill("#names li:nth-child(1) input", "unsure")
        page.fill("#names li:nth-child(2) input", "b")
        page.click("text=Start labelling")
        assert "“unsure” cannot be the name of a group" in page.locator("#problem").inner_text()
        page.fill("#names li:nth-child(1) input", "B ")
        page.click("text=Start labelling")
        assert "Two groups have the same name" in page.locator("#problem").inner_text()
        page.fill("#names li:nth-child(1) input", "a")
        for _ in range(10):
            page.click("#more")
        assert page.locator("#more").is_disabled()
        for at in range(3, 13):
            page.fill(f"#names li:nth-child({at}) input", f"group {at}")
        page.keyboard.press("Enter")
        for key in ("1", "2", "0", "-", "="):
            page.keyboard.press(key)
        page.click("#rename")
        page.fill("#names li:nth-child(1) input", "first, really")
        page.keyboard.press("Enter")
        Path("to-label.csv").write_bytes(saved(page))
    drawn = Draw.read("to-label.csv")
    assert drawn.groups[:3] == ("first, really", "b", "group 3")
    labels = [item.group for item in drawn.items[:6]]
    assert labels == ["first, really", "b", "group 10", "group 11", "group 12", ""]
    assert "José" in {item.content for item in drawn.items}


@pytest.mark.browser
def test_texts_are_shown_as_they_are(browser: Any, texts: Draw) -> None:
    texts.save("to-label.html")
    with opened(browser, "to-label.html") as shown:
        page = shown.page
        for item in texts.items:
            quote = page.locator("#item blockquote")
            assert quote.evaluate("quote => quote.textContent") == item.content
            way = "rtl" if str(item.content).startswith("مرحبا") else "ltr"
            assert quote.evaluate("quote => getComputedStyle(quote).direction") == way
            page.keyboard.press("1")
        assert saved(page).decode() == texts.labelled(["a"] * 14).csv()


@pytest.mark.browser
def test_labels_are_not_lost_by_closing(browser: Any, photos: Draw) -> None:
    photos.save("to-label.html")
    with opened(browser, "to-label.html") as shown:
        page = shown.page
        page.keyboard.press("1")
        shown.leave = False
        with page.expect_event("dialog"):
            page.close(run_before_unload=True)
        page.wait_for_timeout(300)  # in which it would close
        assert (shown.asked, page.is_closed()) == (1, False)
        saved(page)
        with page.expect_event("close"):
            page.close(run_before_unload=True)
        assert shown.asked == 1


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(browser: Any, photos: Draw, scheme: str) -> None:
    photos.save("to-label.html")
    with opened(browser, "to-label.html", color_scheme=scheme) as shown:
        page = shown.page
        page.keyboard.press("1")
        page.keyboard.press("u")
        for width, height in SIZES.values():
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [each for each in page.evaluate(CONTRAST) if each[0] < 4.5] == []


@pytest.mark.browser
def test_groups_have_names_and_keys_for_everybody(browser: Any, photos: Draw) -> None:
    photos.save("to-label.html")
    with opened(browser, "to-label.html") as shown:
        page = shown.page
        names = [button.inner_text().split() for button in page.locator("#choices button").all()]
        assert names == [["red", "1"], ["blue", "2"], ["Unsure", "U"]]
        page.focus("#choices button:nth-child(2)")
        page.keyboard.press("Enter")  # a real button
        assert counted(page) == "1 of 12 labelled"
        assert page.evaluate("document.activeElement.dataset.group") == "blue"
        assert page.locator("#news").get_attribute("aria-live") == "polite"
        assert page.locator("#item img").get_attribute("alt") == "Item 2"
