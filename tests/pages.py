"""Read report pages: their elements and text, and the JSON inside."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "img", "input", "link", "br", "wbr"}
Attributes = dict[str, str | None]


class Outline(HTMLParser):
    """The elements of a page, checked for nesting, and its text without scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, Attributes]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.text.append(data)

    def all(self, tag: str) -> list[Attributes]:
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


def assert_inert(text: str) -> None:
    """The page runs its own script only, and fetches nothing."""
    outline = Outline(text)
    assert [a.get("type") for a in outline.all("script")] == ["application/json", None]
    for _, attrs in outline.elements:
        assert not {name for name in attrs if name.startswith("on") or name == "style"}
        for name in ("href", "src"):
            address = attrs.get(name) or "#a"
            assert re.match(r"#\w+$|data:(application/(json|gzip)|image/jpeg);base64,", address)
    text.encode("utf-8")


def inside(text: str) -> Any:
    """The JSON in the page."""
    data = re.search(r'<script type="application/json" id="audit">(.*?)</script>', text, re.S)
    assert data
    return json.loads(data[1])


def downloaded(text: str) -> Any:
    """The JSON in the download link."""
    link = re.search(r'href="data:application/(json|gzip);base64,([^"]*)"', text)
    assert link
    data = base64.b64decode(link[2])
    return json.loads(gzip.decompress(data) if link[1] == "gzip" else data)
