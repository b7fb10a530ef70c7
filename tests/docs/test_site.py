"""The documentation as a site: generated parts are up to date, it builds, and reading it fetches nothing."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import divscore

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "api.md", "json.md"])
def test_generated_parts_are_up_to_date(generate: ModuleType, name: str) -> None:
    """If this fails: python docs/generate.py."""
    assert (DOCS / name).read_text(encoding="utf-8") == generate.pages()[DOCS / name]


def test_every_command_is_in_the_reference(generate: ModuleType) -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    words = list(generate.commands())
    assert len(words) > 15
    for each in words:
        assert re.search(rf"^##+ {' '.join(['divscore', *each])}$", text, re.M)


def documented() -> list[str]:
    marks = re.findall(r"<!-- api: (.*?) -->", (DOCS / "api.md").read_text(encoding="utf-8"))
    return [name for mark in marks for name in mark.split()]


def test_every_public_name_is_in_the_reference() -> None:
    names = documented()
    assert {f"divscore.{name}" for name in divscore.__all__} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", ["Audit", "ControlSet", "Interval", "Sketch"])
def test_everything_public_of_a_class_is_in_the_reference(kind: str) -> None:
    cls = getattr(divscore, kind)
    fields = set(getattr(cls, "__dataclass_fields__", ()))
    own = {name for name in vars(cls) if not name.startswith("_")} - fields
    assert {f"divscore.{kind}.{name}" for name in own} <= set(documented())


def test_every_parameter_of_an_audit_is_explained() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    for name in inspect.signature(divscore.audit).parameters:
        if name not in {"control", "seed", "name"}:
            assert f"- `{name}`" in text


class Fetched(HTMLParser):
    """What a browser fetches to show a page: scripts, styles, fonts, images, frames, hints to connect."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "link" and found.get("rel") not in {"canonical", "next", "prev"}:
            self.addresses.append(found.get("href", ""))
        if tag not in {"a", "link"}:
            self.addresses += [found[name] for name in ("src", "srcset", "data", "poster") if name in found]
        self.addresses += re.findall(r"url\(([^)]*)\)", found.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[docs]'")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target


@pytest.mark.slow
def test_site_has_every_page(site: Path) -> None:
    for page in DOCS.glob("**/*.md"):
        made = page.relative_to(DOCS).with_suffix(".html")
        assert (site / made).exists() or (
            made.stem == "README" and (site / made.parent / "index.html").exists()
        )
    assert (site / "schema/divscore.audit-1.json").exists()
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_reading_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses
        for address in parser.addresses:
            assert not re.match(r"\w+:|//", address) or address.startswith("data:"), f"{page.name}: {address}"
    for style in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")]+)", style.read_text(encoding="utf-8")):
            assert not re.match(r"https?:|//", address), f"{style.name}: {address}"


@pytest.mark.slow
@pytest.mark.browser
def test_pages_open_in_a_browser_without_a_request_or_an_error(site: Path, browser: Any) -> None:
    """From the disk, at the width of a phone: nothing is fetched from elsewhere, nothing is wider than the screen."""
    page = browser.new_page(viewport={"width": 390, "height": 800})
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path.name} is {wide} pixels too wide"
        loaded = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
        assert page.evaluate(loaded), path
    page.close()
    assert not [address for address in requests if not address.startswith(("file:", "data:", "blob:"))]
    assert not errors
