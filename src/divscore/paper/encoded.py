"""Items of a data set through an encoder: parts of a few thousand vectors, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np

from divscore.errors import FileError
from divscore.jobs.cache import default_cache
from divscore.jobs.encode import Encoding
from divscore.jobs.source import EncodedSource
from divscore.paper.labelleddata import LabelledData, Texts, text_columns
from divscore.sources.items import Items, ItemSource

__all__ = ["ListedItems", "Progress", "encoded"]

RUN = 1024
Progress = Callable[[int], None] | None  # told of numbers of items as they are finished


class ListedItems(ItemSource):
    """Items that are known one by one, with the columns of their labels."""

    def __init__(
        self,
        path: str,
        name: str,
        kind: Literal["image", "text"],
        contents: Sequence[str],
        ids: Sequence[str],
        columns: Mapping[str, Texts],
    ) -> None:
        super().__init__(path, name, kind, dict.fromkeys(columns, "text"))
        self.rows = len(ids)
        self.extra = tuple(columns)
        self._contents, self._ids, self._values = contents, ids, columns

    def __iter__(self) -> Iterator[Items]:
        for start in range(0, len(self._ids), RUN):
            some = slice(start, start + RUN)
            values = {name: column[some].tolist() for name, column in self._values.items()}
            yield Items(self._contents[some], self._ids[some], values)


def encoded(
    items: ItemSource, encoding: Encoding | None = None, progress: Progress = None
) -> Iterator[LabelledData]:
    """Encode items part by part; without an encoding by the default encoder, remembered in the user's cache.

    Every part tells in `left_out` which items since the part before have no vector, the last one also how many
    entries could not be read.
    """
    with _opened(encoding) as used:
        used.fit(items)
        source = EncodedSource(items, used, single=True)
        identity = used.identity(items.kind)
        source.on_items = progress or source.on_items
        told: Counter[tuple[str, tuple[str, ...]]] = Counter()
        made = 0
        for block in source:
            lost = _left_out(source.skips - told, items.extra)
            told, made = source.skips.copy(), made + len(block.vectors)
            yield LabelledData(
                items.name, block.vectors, text_columns(block.values), tuple(block.ids), identity, lost
            )
        if not made:
            reasons = "; ".join(source.problems[:3]) or "there are none"
            raise FileError(f"{items.path}: none of the items could be encoded: {reasons}")
        rest = source.skips - told
        if rest or items.unreadable:
            none = np.empty((0, source.dimension), dtype=np.float32)
            empty = text_columns({name: [] for name in items.extra})
            lost = _left_out(rest, items.extra)
            yield LabelledData(items.name, none, empty, (), identity, lost, items.unreadable)


@contextmanager
def _opened(encoding: Encoding | None) -> Iterator[Encoding]:
    if encoding is not None:
        yield encoding
        return
    with Encoding(cache=default_cache()) as own:
        yield own


def _left_out(skips: Mapping[tuple[str, tuple[str, ...]], int], names: Sequence[str]) -> dict[str, Texts]:
    lost = [values for (_, values), count in skips.items() for _ in range(count)]
    return (
        text_columns({name: [values[at] for values in lost] for at, name in enumerate(names)}) if lost else {}
    )
