"""The page for labelling: one file that shows drawn items one by one, and saves the table; works from disk."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from divscore.control.controlset import MAX_GROUPS
from divscore.errors import DivscoreError, FileError, MissingExtraError
from divscore.jobs.drawfile import Draw, DrawnItem
from divscore.report.examples import NO_PILLOW, thumbnail
from divscore.report.page import render_page, script_data
from divscore.sources.pictures import read_picture
from divscore.text import count, printable

SIDE = 640  # pixels of a picture's longer side
NOUNS = {"image": "pictures", "text": "texts"}


def render_labelling(draw: Draw, file: str, advance: Callable[[int], None] | None = None) -> str:
    """One self-contained page; `file` is the name of the table that it saves.

    A picture that cannot be decoded is named as such, so that nobody waits for it. Texts reach the page as data, never
    as markup.
    """
    if draw.kind == "vectors":
        raise FileError(
            "vectors cannot be shown on a page; draw from the images or texts that they were made from, or write a "
            ".csv table"
        )
    columns, rows = draw.cells()
    shown = []
    for item in draw.items:
        shown.append(_shown(item, draw.kind))
        if advance is not None:
            advance(1)
    data: dict[str, Any] = {
        "file": file,
        "columns": columns,
        "rows": rows,
        "groups": list(draw.groups),
        "labels": [item.group for item in draw.items],
        "items": shown,
    }
    noun = NOUNS[draw.kind]
    return render_page(
        "labelling.html.j2",
        ("report.css", "labelling.css"),
        "labelling.js",
        title=f"Label {count(len(draw), noun)}",
        kicker=printable(draw.attribute) or "A sample of the collection",
        number=len(draw),
        most=MAX_GROUPS,
        key=draw.key,
        data=script_data(data),
    )


def _shown(item: DrawnItem, kind: str) -> dict[str, str]:
    """What the page shows of an item: a text, a picture made from its pixels alone, or why there is none."""
    if kind == "text":
        return {"text": str(item.content)}
    try:
        if item.content is None:
            raise FileError("is not at hand")
        picture = thumbnail(read_picture(item.content), side=SIDE)
    except ImportError as error:
        raise MissingExtraError(NO_PILLOW) from error
    except DivscoreError as error:
        return {"problem": printable(str(error))}
    return {"image": f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"}
