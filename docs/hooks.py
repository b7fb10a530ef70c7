"""For mkdocs: links to repository files outside the site become plain text."""

from __future__ import annotations

import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Show the path instead, so that pages work in the repository and on the site."""
    depth = page.file.src_uri.count("/")

    def plain(match: re.Match[str]) -> str:
        text, target = match.groups()
        return f"{text} (`{target.lstrip('./')}`)" if target.count("../") > depth else match[0]

    return LINK.sub(plain, markdown)
