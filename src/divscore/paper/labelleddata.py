"""LabelledData: the vectors of a published data set with the labels of every item."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.files import PathLike
from divscore.jobs.encode import Encoding
from divscore.sources.items import ItemBatch, Items

Rows = NDArray[np.intp]
Texts = NDArray[np.str_]
Progress = Callable[[int], None] | None  # called with numbers of items as they are finished
LONGEST = 60  # letters of a line that a message quotes
RUN = 1024  # items handed to the encoder at a time


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Vectors, and a column of names for each kind of label.

    `encoder` is the identity of what made the vectors, if known. `skipped` items have no vector, such as pictures
    without a face: these are not missing at random. `unreadable` counts broken entries of the files. A `stand_in` has
    the form of the data set, but other items.
    """

    name: str
    vectors: NDArray[Any]
    columns: dict[str, Texts]
    ids: tuple[str, ...]
    encoder: str | None = None
    skipped: int = 0
    unreadable: int = 0
    stand_in: bool = False

    def __len__(self) -> int:
        return len(self.ids)


class ListedItems(Items):
    """Items that are known one by one, with the columns of their labels."""

    def __init__(self, path: str, name: str, kind: Literal["image", "text"], batch: ItemBatch) -> None:
        super().__init__(path, name, kind, dict.fromkeys(batch.values, "text"))
        self.rows, self.extra, self._batch = len(batch), tuple(batch.values), batch

    def __iter__(self) -> Iterator[ItemBatch]:
        for start in range(0, len(self._batch), RUN):
            yield self._batch.slice(start, start + RUN)


def encode(
    items: Items, encoding: Encoding | None = None, progress: Progress = None, *, stand_in: bool = False
) -> LabelledData:
    """Encode items; without an encoding by the default encoder and the user's cache."""
    with nullcontext(encoding) if encoding is not None else Encoding(cache=True) as used:
        used.fit(items)
        source = used.encode(items, single=True)
        source.watch(progress or (lambda number: None))
        blocks = list(source)
        if not blocks:
            reasons = "; ".join(source.problems[:3]) or "there are none"
            raise FileError(f"{items.path}: no item could be encoded: {reasons}")
        return LabelledData(
            items.name,
            np.concatenate([block.vectors for block in blocks]),
            text_columns({name: [text for b in blocks for text in b.values[name]] for name in items.extra}),
            tuple(name for block in blocks for name in block.ids),
            used.identity(items.kind),
            source.skipped_values().total(),
            items.unreadable,
            stand_in,
        )


def text_columns(values: Mapping[str, Sequence[str]]) -> dict[str, Texts]:
    """Turn lists of strings into columns."""
    return {name: np.array(list(texts), dtype=np.str_) for name, texts in values.items()}


def not_there(path: PathLike, expected: str, origin: str) -> FileError:
    """The error for a file that is not there: what was expected, and where to get it."""
    return FileError(f"{os.fspath(path)} has no {expected}. Get {origin}, then give the path of your copy")


def quote(line: bytes) -> str:
    """A line of a file as a message shows it."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")
