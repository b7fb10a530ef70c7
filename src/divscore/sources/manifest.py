"""Manifest: what `embed` says of a folder of parts that it wrote."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from divscore.errors import FileError
from divscore.missing import LONGEST, MOST_ROWS, Missing
from divscore.sources.location import Location
from divscore.wording import brief, public

__all__ = ["FORMAT", "MANIFEST", "Manifest", "read_manifest"]

MANIFEST = "manifest.json"
FORMAT = "divscore.parts/1"
BESIDE = re.compile(r"(?!\.)[^/\\\0]+")
LARGEST = 256 << 20  # bytes: millions of parts
HEAD = 200  # bytes, among which a manifest of ours names its format


@dataclass(frozen=True)
class Manifest:
    """Names of the files that are parts, and what could not be embedded."""

    parts: tuple[str, ...]
    missing: tuple[Missing, ...]
    finished: bool


def read_manifest(folder: str) -> Manifest | None:
    """What a folder's manifest says; None where there is none, or one of somebody else's.

    Nothing of it is believed that `embed` would not have written: a damaged one is an error, as the collection would
    look whole without it.
    """
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    location = Location(place, place)
    if not location.exists():
        return None
    with location.reading("a manifest"), location.open() as stream:
        data = stream.read(LARGEST + 1)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        if FORMAT.encode() not in data[:HEAD]:
            return None
        raise FileError(_damaged(location, "is cut off or not JSON")) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    parts = _parts(found.get("parts"))
    if parts is None:
        raise FileError(_damaged(location, "does not list the files that lie beside it"))
    missing = _missing(found.get("missing", []), public(folder).rstrip("/"))
    if missing is None:
        raise FileError(_damaged(location, "does not say what is missing as 'divscore embed' does"))
    return Manifest(parts, missing, bool(found.get("finished")))


def _damaged(location: Location, how: str) -> str:
    return f"{location.label} {how}; it is damaged: let 'divscore embed' make it again"


def _parts(listed: Any) -> tuple[str, ...] | None:
    """Names of the files that are listed; they lie beside the manifest, or it is not to be trusted."""
    found = listed if isinstance(listed, list) else [None]
    names = [each.get("file") if isinstance(each, dict) else None for each in found]
    if not all(isinstance(name, str) and BESIDE.fullmatch(name) for name in names):
        return None
    return tuple(map(str, names))


def _missing(listed: Any, folder: str) -> tuple[Missing, ...] | None:
    """Parts of the source that are noted as missing, their texts as short and plain as a message has to be."""
    found = []
    for each in listed if isinstance(listed, list) else [None]:
        told = each if isinstance(each, dict) else {}
        part, reason, rows = told.get("of"), told.get("reason"), told.get("rows")
        if not isinstance(part, str) or not isinstance(reason, str):
            return None
        if rows is not None and (type(rows) is not int or not 0 <= rows < MOST_ROWS):
            return None
        why = brief(reason[:LONGEST], LONGEST)
        found.append(
            Missing(brief(part[:LONGEST], LONGEST), f"{folder} was embedded without it: {why}", rows)
        )
    return tuple(found)
