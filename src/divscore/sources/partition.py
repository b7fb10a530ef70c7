"""Partition: a file, or a run of its rows, described so that any worker can read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from divscore.errors import FileError
from divscore.sources.open import open_one, parts_of
from divscore.sources.places import Location, UnseenError, unseen
from divscore.sources.table import Request, VectorSource

__all__ = ["Partition", "UnseenError", "check_here", "partitions_of"]


@dataclass(frozen=True)
class Partition:
    """What to read where; how files are cut into partitions depends on the files alone, never on the workers."""

    location: Location
    request: Request
    rows: int | None
    size: int  # bytes of the file when the work was planned

    @property
    def label(self) -> str:
        """What messages call it."""
        piece = self.request.piece
        return f"{self.location.label}, {piece}" if piece else self.location.label

    def __str__(self) -> str:
        return self.label

    def open(self, block_bytes: int | None = None) -> VectorSource:
        """Open it for reading, wherever this is, perhaps in larger blocks than usual."""
        check_here(self.location, self.size)
        request = self.request if block_bytes is None else replace(self.request, block_bytes=block_bytes)
        return open_one(self.location, request)


def check_here(location: Location, size: int) -> None:
    """Refuse a file that is not there for this worker, or has another size than when the work was planned."""
    if not location.remote and not os.path.exists(location.url):
        raise UnseenError(unseen(location.label))
    found = location.size()
    if found != size:
        raise FileError(
            f"{location.label} has {found:,} bytes, and had {size:,} when the work was planned: it was "
            "changed, or another copy lies here"
        )


def partitions_of(source: VectorSource) -> Iterator[Partition]:
    """Cut a source into partitions: file by file, each from its start to its end."""
    for part in parts_of(source):
        request = replace(part.request, dimension=part.dimension)
        location, size = part.location.anywhere, part.location.size()
        pieces = part.pieces()
        if len(pieces) < 2:
            yield Partition(location, request, part.rows, size)
            continue
        for piece in pieces:
            yield Partition(location, replace(request, piece=piece), piece.rows, size)
