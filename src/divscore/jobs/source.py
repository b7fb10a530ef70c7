"""EncodedSource: items that look like vectors to whatever reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from divscore.errors import FileError
from divscore.jobs.encode import Encoding
from divscore.jobs.outcome import EMPTY, READ, UNREADABLE, Outcome
from divscore.sources.items import Items, ItemSource
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.places import Location
from divscore.sources.table import PROBLEMS_KEPT, Block, Request, VectorSource

__all__ = ["EncodedSource"]

BLOCK = 4096


class EncodedSource(VectorSource):
    """Vectors of a source of items, encoded while they are read.

    After an iteration `skips` counts, by kind and by the values of the extra columns, the items that have no
    vector; `several` those that showed more than one face. `on_items` is called with numbers of items as they are
    finished.
    """

    def __init__(
        self, items: ItemSource, encoding: Encoding, *, strict: bool = False, single: bool = False
    ) -> None:
        super().__init__(Location(items.path, items.path), Request(extra=items.extra, strict=strict))
        self.items = items
        self.encoding = encoding
        self.name, self.path, self.label = items.name, items.path, items.path
        self.rows, self.columns = items.rows, items.columns
        self.dimension = encoding.encoder(items.kind).dimension
        if encoding.projection is not None:
            self.dimension = encoding.projection.size
        self.metadata = {ENCODER_KEY: encoding.identity(items.kind)}
        self.single = single  # one vector an item, whatever was asked for
        self.skips: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.several = 0
        self.encoded = 0
        self.on_items: Callable[[int], None] = lambda count: None

    def _blocks(self) -> Iterator[Block]:
        self.skips, self.several, self.encoded = Counter(), 0, 0
        if self.request.strict and self.items.problems:
            raise FileError(f"{self.items.problems[0]}; mend it, or leave out --strict")
        waiting: list[Block] = []
        items = 0
        for some, outcome in self.encoding.run(self.items, single=self.single):
            self._account(some, outcome)
            waiting.append(_block(some, outcome))
            items += len(some)
            if items >= BLOCK:
                yield from self._block(waiting)
                waiting, items = [], 0
        yield from self._block(waiting)
        self.unreadable += self.items.unreadable
        self.problems = [*self.items.problems, *self.problems][:PROBLEMS_KEPT]

    def _block(self, waiting: Sequence[Block]) -> Iterator[Block]:
        if any(len(block.vectors) for block in waiting):
            vectors = self.encoding.finished(np.concatenate([block.vectors for block in waiting]))
            names = self.items.extra
            values = {name: [text for block in waiting for text in block.values[name]] for name in names}
            yield Block(vectors, values, ids=[name for block in waiting for name in block.ids])

    def _account(self, some: Items, outcome: Outcome) -> None:
        self.on_items(len(some))
        self.several += int((outcome.found > 1).sum())
        self.encoded += len(some)
        if not any(outcome.kinds):
            return
        for item, kind in enumerate(outcome.kinds):
            if kind == READ:
                continue
            problem = f"{self.path}, {some.ids[item]}: {outcome.reasons[item]}"
            if self.request.strict:
                raise FileError(
                    f"{problem}; mend it or leave it out, or leave out --strict to skip such items"
                )
            values = tuple(some.values[name][item] for name in self.items.extra)
            self.skips[kind, values] += 1
            self.unreadable += kind == UNREADABLE
            if len(self.problems) < PROBLEMS_KEPT:
                self.problems.append(problem)

    def skipped(self, value: str | None = None) -> dict[str, int]:
        """Items without a vector by kind, of one value of the first extra column or of all."""
        kinds = dict.fromkeys((UNREADABLE, EMPTY), 0)
        for (kind, values), count in self.skips.items():
            if value is None or values[0] == value:
                kinds[kind] += count
        if value is None:
            kinds[UNREADABLE] += self.items.unreadable
        return kinds


def _block(some: Items, outcome: Outcome) -> Block:
    """The vectors, with the columns and the name of the item of each."""
    owner = outcome.owner.tolist()
    values = {name: [column[item] for item in owner] for name, column in some.values.items()}
    return Block(outcome.vectors, values, ids=[some.ids[item] for item in owner])
