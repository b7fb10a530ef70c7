"""For mkdocs: links to files of the repository that are not part of the site become plain text."""

from __future__ import annotations

import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Name the file instead; pages stay readable in the repository and on the site."""
    depth = page.file.src_uri.count("/")

    def told(match: re.Match[str]) -> str:
        text, target = match.groups()
        return f"{text} (`{target.lstrip('./')}`)" if target.count("../") > depth else match[0]

    return LINK.sub(told, markdown)
