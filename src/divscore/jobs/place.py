"""Where items lie: what a job calls its source to know it again, and the files and folders that it must not touch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

from divscore.jobs.contents import KEY_BYTES
from divscore.sources.folder import PictureFiles
from divscore.sources.items import ItemSource
from divscore.sources.places import Location
from divscore.sources.tableitems import TableItems

__all__ = ["origin_of", "place_of", "places_of"]


def place_of(source: ItemSource) -> str:
    """What a job calls its source, to know it again."""
    return source.path if "://" in source.path else os.path.normpath(source.path)


def origin_of(source: ItemSource) -> str:
    """Tells sources of the same name apart without saying where they lie."""
    local = "://" not in source.path and source.path != "-"
    place = os.path.abspath(source.path) if local else source.path
    return hashlib.blake2b(place.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).hexdigest()


def places_of(source: ItemSource) -> Iterator[str]:
    """Files and folders that the items come from, as far as they are here."""
    found: Sequence[Location] = ()
    if isinstance(source, TableItems):
        found = source.locations
    elif isinstance(source, PictureFiles):
        found = source.found
    for path in (source.path, *(location.url for location in found)):
        if "://" not in path and os.path.exists(path):
            yield path
