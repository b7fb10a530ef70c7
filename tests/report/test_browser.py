"""Reports in a real browser: no request, no error, no script from outside, readable by everyone."""

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from divscore.audit.document import document
from divscore.estimators.interval import Interval
from divscore.report.page import render_html
from divscore.report.summary import Context, Example, Examples

pytestmark = pytest.mark.browser
SIZES = {"phone": (390, 844), "small phone": (360, 640), "desktop": (1280, 900)}
SCRIPT = "<script>alert(1)</script>"
NAMES = [
    SCRIPT,
    "</script><img src=x onerror=alert(2)>",
    "<!--",
    "\u202eabc",
    "y" * 10_000,
    "مجموعة",
    "plain",
]

# Contrast of every piece of text with what lies behind it (WCAG 2: relative luminance), in the page itself.
CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = ([r, g, b]) => {
    const linear = (v) => v <= 10 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map(linear);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    if (style.visibility === "hidden") continue;
    const inside = element instanceof SVGElement;
    const one = light(parse(inside ? style.fill : style.color)), other = light(ground(element));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push([ratio, element.tagName, walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def made(audits, crossed):
    """Return the audits of each report, by name."""
    first, poor = audits[0], audits[3]
    wicked = [replace(poor if at == 6 else first, name=name) for at, name in enumerate(NAMES)]
    rng = np.random.default_rng(0)
    many = []
    for at, value in enumerate(rng.uniform(-0.9, 0.9, 300)):
        each = replace(first, name=f"place {at}", count=int(rng.integers(20, 9000)), disparity=float(value))
        limits = Interval(value - 0.05, value + 0.05, 0.95, "bayesian bootstrap")
        trust = ["good", "caution", "poor"][at % 3]
        many.append(replace(each, interval=limits, trust=trust, divscore=float(2 * rng.normal())))
    return {"wicked": wicked, "many": many, "crossed": [crossed], "single": [first]}


@pytest.fixture(scope="module")
def files(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    shown = Examples([Example("a", text=SCRIPT), Example("b", text="<b>bold</b>")], "Two are shown.")
    for name, audits in made.items():
        context = Context(command=f"divscore audit '{SCRIPT}'", limit=0.2, examples=shown)
        (folder / f"{name}.html").write_text(render_html(audits, context), encoding="utf-8")
    return folder


class Opened:
    """A page, and all that it did which a report must not do."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.trouble, self.requests = [], []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.trouble.append(dialog.message), dialog.dismiss()))
        self.failed = {}
        self.page.on("requestfailed", lambda request: self.failed.update({request.url: request.failure}))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def options(size, scheme="light", **more):
    width, height = SIZES[size]
    return {"viewport": {"width": width, "height": height}, "color_scheme": scheme, **more}


@pytest.mark.parametrize("name", ["wicked", "many", "crossed", "single"])
def test_a_page_is_quiet_fits_and_can_be_read(browser, files, name):
    with Opened(browser, files / f"{name}.html", **options("desktop")) as opened:
        page = opened.page
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            drawn = page.locator("svg.plot:visible").evaluate_all("all => all.map(e => e.classList[1])")
            assert set(drawn) == {"wide" if size == "desktop" else "narrow"}
        for scheme in ("light", "dark"):  # colours do not depend on the size
            page.emulate_media(color_scheme=scheme)
            ratios = page.evaluate(CONTRAST)
            assert len(ratios) > 100
            assert [each for each in ratios if each[0] < 4.5] == []
        assert opened.trouble == []
        assert opened.requests == [(files / f"{name}.html").as_uri()]


def test_wicked_names_stay_text(browser, files):
    with Opened(browser, files / "wicked.html", **options("desktop")) as opened:
        page = opened.page
        names = page.locator("#collections tbody th").all_inner_texts()
        assert SCRIPT in names
        assert "<!--" in names
        assert "\\u202eabc" in names
        assert page.locator("script").count() == 2
        assert page.locator("img").count() == 0
        assert max(map(len, names)) <= 60
        assert SCRIPT in page.locator("ul.texts").first.inner_text()
        assert "<b>bold</b>" in page.locator("ul.texts").last.inner_text()
        assert len(page.locator("#collections tbody th[title]").first.get_attribute("title")) <= 300
        assert opened.trouble == []


def test_the_policy_runs_nothing_else(browser, files):
    with Opened(browser, files / "single.html", **options("desktop")) as opened:
        blocked = opened.page.expect_event("console", lambda said: "Content Security Policy" in said.text)
        with blocked, opened.page.expect_event("requestfailed"):
            opened.page.evaluate(
                """() => {
              const added = document.createElement("script");
              added.textContent = "window.ran = true";
              document.body.append(added);
              const picture = new Image();
              picture.src = "https://example.org/a.png";
              document.body.append(picture);
              return new Promise((done) => { picture.onerror = done; });
            }"""
            )
        assert opened.page.evaluate("window.ran") is None
        assert any("Content Security Policy" in text for text in opened.trouble)
        assert opened.failed == {"https://example.org/a.png": "csp"}  # refused before it was sent


def numbers(page, column):
    texts = page.locator(f"#collections tbody tr:visible :nth-child({column})").all_inner_texts()
    return [float(re.sub(r"[(),]", "", text).replace("−", "-")) for text in texts]


def test_the_table_sorts_and_filters(browser, files, made):
    with Opened(browser, files / "many.html", **options("desktop")) as opened:
        page = opened.page
        heads = page.locator("#collections thead th")
        assert heads.nth(2).get_attribute("aria-sort") == "ascending"
        items = page.get_by_role("button", name="items")
        items.click()
        assert heads.nth(1).get_attribute("aria-sort") == "ascending"
        assert heads.nth(2).get_attribute("aria-sort") is None
        assert numbers(page, 2) == sorted(a.count for a in made["many"])
        items.press("Enter")
        assert heads.nth(1).get_attribute("aria-sort") == "descending"
        assert numbers(page, 2) == sorted((a.count for a in made["many"]), reverse=True)
        page.get_by_role("button", name="95% interval").click()
        assert heads.nth(3).get_attribute("aria-sort") == "ascending"
        page.get_by_role("button", name="collection").click()
        names = page.locator("#collections tbody th").all_inner_texts()
        assert names[:3] == ["place 0", "place 1", "place 2"]
        page.get_by_label("Filter by name, limit or trust").fill("place 29")
        assert page.locator("#collections tbody tr:visible").count() == 11
        assert page.get_by_role("status").inner_text() == "11 of 300"
        page.get_by_label("Filter by name, limit or trust").fill("CAUTION")
        assert page.locator("#collections tbody tr:visible").count() == 100
        page.get_by_label("Filter by name, limit or trust").fill("fail")
        failing = page.locator("#collections tbody tr:visible").evaluate_all(
            "all => all.map(e => e.className)"
        )
        assert set(failing) == {"fail"}
        page.get_by_label("Filter by name, limit or trust").fill("")
        assert page.locator("#collections tbody tr:visible").count() == 300
        assert opened.trouble == []


def test_the_filter_knows_whole_names_and_numbers_have_an_order(browser, made, tmp_path):
    first = made["single"][0]
    shares = [0.0001, 0.5, 0.02, 0.99999, *(0.1 + at / 20 for at in range(8))]
    named = [
        replace(first, name=f"{'x' * 60}needle {at}{'y' * 60}", shares={"a": share, "b": 1 - share})
        for at, share in enumerate(shares)
    ]
    (tmp_path / "named.html").write_text(render_html(named), encoding="utf-8")
    with Opened(browser, tmp_path / "named.html", **options("desktop")) as opened:
        page = opened.page
        assert not any("needle" in text for text in page.locator("#collections tbody th").all_inner_texts())
        page.get_by_label("Filter by name, limit or trust").fill("NEEDLE 3")
        assert page.locator("#collections tbody tr:visible").count() == 1
        page.get_by_label("Filter by name, limit or trust").fill("")
        page.get_by_role("button", name="items").click()
        page.get_by_role("button", name="a", exact=True).click()
        cells = page.locator("#collections tbody td:nth-child(3)").all_inner_texts()
        assert (cells[0], cells[1], cells[-1]) == ("<0.1%", "2%", ">99.9%")


def test_focus_can_be_seen(browser, files):
    with Opened(browser, files / "many.html", **options("desktop")) as opened:
        opened.page.keyboard.press("Tab")
        outline = opened.page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert float(outline.removesuffix("px")) >= 2


@pytest.mark.parametrize("name", ["many", "single"])
def test_without_script_everything_is_there(browser, files, made, name):
    with Opened(browser, files / f"{name}.html", **options("phone", java_script_enabled=False)) as opened:
        page = opened.page
        assert page.locator("h1").is_visible()
        assert page.locator("#collections tbody tr").count() == (len(made[name]) if name == "many" else 2)
        assert not page.locator("details dl").is_visible()
        page.locator("summary").click()
        assert page.locator("details dl").is_visible()
        assert page.locator("#collections thead button").count() == 0
        assert not page.locator(".tools").is_visible()
        assert page.locator("#download").is_visible()
        assert opened.trouble == []


@pytest.mark.parametrize("name", ["wicked", "many"])
def test_the_download_is_the_document(browser, files, made, name):
    wanted = json.loads(json.dumps(document(made[name], limit=0.2)))
    with Opened(browser, files / f"{name}.html", **options("desktop")) as opened:
        with opened.page.expect_download() as waiting:
            opened.page.locator("#download").click()
        data = Path(waiting.value.path()).read_bytes()
        if name == "many":
            assert waiting.value.suggested_filename == "audit.json.gz"
            data = gzip.decompress(data)
        assert json.loads(data) == wanted
        inside = opened.page.evaluate("JSON.parse(document.getElementById('audit').textContent)")
        assert [each["name"] for each in inside["collections"]] == [a.name for a in made[name]]
        href = opened.page.locator("#download").get_attribute("href")
        assert base64.b64decode(href.partition(",")[2])


def test_it_prints_with_every_row_and_light(browser, files, tmp_path):
    with Opened(browser, files / "crossed.html", **options("desktop", "dark")) as opened:
        opened.page.emulate_media(media="print", color_scheme="dark")
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not opened.page.locator("nav").is_visible()
        assert opened.page.locator("svg.wide").first.is_visible()
        assert opened.page.locator("details dl").is_visible()  # before any script opens it
        assert [each for each in opened.page.evaluate(CONTRAST) if each[0] < 4.5] == []
        opened.page.pdf(path=tmp_path / "a.pdf", format="A4")
        assert (tmp_path / "a.pdf").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["many", "crossed"])
def test_tables_stack_on_a_phone(browser, files, name):
    with Opened(browser, files / f"{name}.html", **options("phone")) as opened:
        cells = opened.page.locator("#collections tbody tr").first.locator("td:not(:empty)")
        boxes = [cell.bounding_box() for cell in cells.all()]
        assert len({round(box["x"]) for box in boxes}) == 1
        assert len({round(box["y"]) for box in boxes}) == len(boxes)
        assert all(box["x"] + box["width"] <= 390 for box in boxes)
        labels = cells.evaluate_all("all => all.map(e => e.dataset.label)")
        assert "95% interval" in labels
        assert name == "crossed" or labels[-1] == "trust"


def test_thumbnails_are_cropped_alike(browser, made, tmp_path):
    import io

    from PIL import Image

    shown = []
    for size in ((64, 30), (20, 64)):
        stream = io.BytesIO()
        Image.new("RGB", size, "teal").save(stream, "JPEG")
        shown.append(Example("a", picture=stream.getvalue()))
    page_file = tmp_path / "pictures.html"
    page_file.write_text(render_html(made["single"], Context(examples=Examples(shown))), encoding="utf-8")
    with Opened(browser, page_file, **options("desktop")) as opened:
        for image in opened.page.locator("img").all():
            box = image.bounding_box()
            assert (box["width"], box["height"]) == (64, 64)
            assert image.evaluate("e => getComputedStyle(e).objectFit") == "cover"
