"""Audit documents with one field changed."""

from __future__ import annotations

import json
from typing import Any


def changed(document: dict[str, Any], path: str, value: Any) -> str:
    """The document as JSON with the field at `path`, such as collections/0/trust, set; KeyError removes it."""
    copy = json.loads(json.dumps(document))
    *parents, last = path.split("/")
    place: Any = copy
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return json.dumps(copy)
