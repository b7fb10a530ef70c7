"""Partition: a file, or a run of its rows, described so that any worker can read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from divscore.errors import FileError
from divscore.sources.block import Request, VectorSource
from divscore.sources.location import Location, UnseenError, unseen
from divscore.sources.open import open_one, parts_of

__all__ = ["Partition", "UnseenError", "partitions_of"]


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
        if not self.location.remote and not os.path.exists(self.location.url):
            raise UnseenError(unseen(self.location.label))
        size = self.location.size()
        if size != self.size:
            raise FileError(
                f"{self.location.label} has {size:,} bytes, and had {self.size:,} when the work was planned: it was "
                "changed, or another copy lies here"
            )
        request = self.request if block_bytes is None else replace(self.request, block_bytes=block_bytes)
        return open_one(self.location, request)


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
