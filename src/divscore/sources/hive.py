"""Columns in the names of folders: ``country=SA/part-0.parquet``, as Hive and its successors write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from divscore.sources.table import Block, Piece, VectorSource
from divscore.sources.texts import Texts

__all__ = ["HiveSource"]


class HiveSource(VectorSource):
    """A file whose folders add columns to it, each with one value throughout."""

    def __init__(self, inner: VectorSource, values: Mapping[str, str]) -> None:
        extra = (*inner.request.extra, *values)
        super().__init__(inner.location, replace(inner.request, extra=extra))
        self.inner, self.values = inner, dict(values)
        self.rows, self.dimension, self.metadata = inner.rows, inner.dimension, inner.metadata
        self.unopened = inner.unopened
        self.columns = {**inner.columns, **dict.fromkeys(values, "text")}

    def pieces(self, rows: int | None = None) -> list[Piece]:
        """Those of the file."""
        return self.inner.pieces(rows)

    def _blocks(self) -> Iterator[Block]:
        for block in self.inner:
            rows = np.zeros(len(block.vectors), dtype=np.intp)
            own = {name: Texts([value], rows) for name, value in self.values.items()}
            yield replace(block, values={**block.values, **own})
            self.unreadable, self.problems = self.inner.unreadable, self.inner.problems
        self.unreadable, self.problems = self.inner.unreadable, self.inner.problems
