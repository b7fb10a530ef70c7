"""LabelledData: vectors of a published data set, with what its labels say of every item."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.jobs.cache import default_cache
from divscore.jobs.encode import EncodedSource, Encoding
from divscore.sources.items import ItemBatch, Items
from divscore.sources.places import quoted

__all__ = [
    "LabelledData",
    "ListedItems",
    "Origin",
    "Progress",
    "Texts",
    "Vectors",
    "encoded",
    "joined",
    "shown",
    "text_columns",
]


Vectors = NDArray[np.float32] | NDArray[np.float64]
Texts = NDArray[np.str_]
LONGEST = 60  # letters of a line that a message quotes


@dataclass(frozen=True)
class Origin:
    """Where a data set is obtained, and under what terms."""

    name: str
    where: str
    terms: str

    def missing(self, path: str | os.PathLike[str], expected: str) -> FileError:
        """Say that something is not there, and how to get it."""
        return FileError(
            f"{os.fspath(path)} does not hold {expected}. {self.name} is obtained from {self.where}; terms: "
            f"{self.terms}. Then give the path of your copy"
        )


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Vectors, and for each the values of the labels' columns; a part of a large set looks the same.

    `encoder` is the identity of what made the vectors, where that is known. `left_out` has the same columns for the
    items without a vector, such as pictures in which no face was found: these are not missing at random. `unreadable`
    counts entries of the files that are not of their format.

    >>> data = LabelledData("two", np.eye(2), {"gender": np.array(["female", "male"])}, ("x.jpg", "y.jpg"))
    >>> data.where(data.columns["gender"] == "male").ids
    ('y.jpg',)
    """

    name: str
    vectors: Vectors
    columns: dict[str, Texts]
    ids: tuple[str, ...]
    encoder: str | None = None
    left_out: dict[str, Texts] = field(default_factory=dict)
    unreadable: int = 0

    def __post_init__(self) -> None:
        lengths = {"vectors": len(self.vectors), "ids": len(self.ids)}
        lengths |= {f"'{name}'": len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{count} {what}" for what, count in lengths.items())
            raise InputError(f"{self.name}: {told}; expected one of each an item")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<LabelledData {self.name}: {len(self)} × {self.vectors.shape[1]}; {', '.join(self.columns)}>"

    def column(self, name: str) -> Texts:
        """Return the values of one column, or say which columns there are."""
        if name not in self.columns:
            raise InputError(f"{self.name} has no column '{name}'; it has {quoted(self.columns)}")
        return self.columns[name]

    def where(self, mask: NDArray[Any]) -> LabelledData:
        """Keep the items that a mask, or a list of row numbers, names."""
        rows = self._rows(mask)
        return replace(
            self,
            vectors=self.vectors[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            ids=tuple(self.ids[row] for row in rows.tolist()),
        )

    def control(
        self, rows: NDArray[Any] | Sequence[int], attribute: str, order: Sequence[str] | None = None
    ) -> ControlSet:
        """Make some items labelled examples of an attribute; `order` fixes the sign of the disparity."""
        chosen = self._rows(np.asarray(rows))
        return ControlSet(
            self.vectors[chosen],
            self.column(attribute)[chosen].tolist(),
            attribute=attribute,
            order=order,
            ids=[self.ids[row] for row in chosen.tolist()],
            encoder=self.encoder,
        )

    def _rows(self, mask: NDArray[Any]) -> NDArray[np.intp]:
        if mask.dtype != bool:
            return mask.astype(np.intp)
        if mask.shape != (len(self),):
            raise InputError(f"{self.name}: a mask of shape {mask.shape} for {len(self)} items")
        return np.flatnonzero(mask)


def joined(parts: Iterable[LabelledData]) -> LabelledData:
    """Put parts of one data set together; only where they are known to fit into memory."""
    all_parts = list(parts)
    if not all_parts:
        raise InputError("no part of a data set was given; there is nothing to put together")
    first = all_parts[0]
    known = [part.left_out for part in all_parts if part.left_out]
    return LabelledData(
        first.name,
        np.concatenate([part.vectors for part in all_parts]),
        {name: np.concatenate([part.columns[name] for part in all_parts]) for name in first.columns},
        tuple(name for part in all_parts for name in part.ids),
        first.encoder,
        {name: np.concatenate([some[name] for some in known]) for name in known[0]} if known else {},
        sum(part.unreadable for part in all_parts),
    )


def text_columns(values: Mapping[str, Sequence[str]]) -> dict[str, Texts]:
    """Turn lists of strings into columns."""
    return {name: np.array(list(texts), dtype=np.str_) for name, texts in values.items()}


def shown(line: bytes) -> str:
    """How a message quotes a line of a file."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")


# Items of a data set through an encoder: parts of a few thousand vectors, one after the other.

RUN = 1024
Progress = Callable[[int], None] | None  # told of numbers of items as they are finished


class ListedItems(Items):
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

    def __iter__(self) -> Iterator[ItemBatch]:
        for start in range(0, len(self._ids), RUN):
            some = slice(start, start + RUN)
            values = {name: column[some].tolist() for name, column in self._values.items()}
            yield ItemBatch(self._contents[some], self._ids[some], values)


def encoded(
    items: Items, encoding: Encoding | None = None, progress: Progress = None
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
