"""Sketches: thousands of named collections in one pass."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet, checked_vectors
from divscore.errors import MismatchError
from divscore.sketch.sample import Owners
from divscore.sketch.scan import Block, Limits, Mapper, Scan, scan_blocks
from divscore.sketch.scorer import Scorer
from divscore.sketch.sketch import Origin, Sketch, SketchTable
from divscore.text import printable

Coded = tuple[Sequence[str], NDArray[np.intp]]  # names, and for every row the position of its name


class Sketches:
    """A table of sketches and the names of their collections; it can be pickled, merged and stored."""

    def __init__(self, origin: Origin) -> None:
        self.names: dict[str, int] = {}
        self._table = SketchTable(origin, 0)
        self._scans: list[tuple[Owners, Scan]] = []  # their items are not yet in the table

    @classmethod
    def of(cls, sketches: Mapping[str, Sketch]) -> Sketches:
        """Collect sketches that were made with one control set and seed."""
        first = next(iter(sketches.values()))
        gathered = cls(first.table.origin)
        at = gathered.positions(list(sketches))
        rest = list(sketches.values())
        if all(sketch.table is first.table for sketch in rest):
            gathered._table = first.table.take(np.array([sketch.at for sketch in rest]))
            return gathered
        for position, (name, sketch) in zip(at, sketches.items(), strict=True):
            _check_same(sketch.table.origin, gathered.table.origin, f"the sketch of '{printable(name)}'")
            gathered.table.merge(sketch.table.take(np.array([sketch.at])), at[position : position + 1])
        return gathered

    @classmethod
    def restored(cls, names: Iterable[str], table: SketchTable) -> Sketches:
        """Put names and table together again."""
        sketches = cls(table.origin)
        sketches.names, sketches._table = {name: at for at, name in enumerate(names)}, table
        return sketches

    def __reduce__(self) -> tuple[Any, ...]:
        return Sketches.restored, (list(self.names), self.table)

    @property
    def table(self) -> SketchTable:
        """The numbers of all collections."""
        scans, self._scans = self._scans, []
        for at, scan in scans:
            self._table.add_items(at, scan)
        return self._table

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        return self._table.nbytes + sum(scan.sample.rows.nbytes for _, scan in self._scans)

    def positions(self, names: Sequence[str]) -> Owners:
        """Return the positions of different collections in the table; new ones get a place."""
        if not self.names:
            self.names.update(zip(names, range(len(names)), strict=True))
        at = self.known(names)
        for new in np.flatnonzero(at < 0).tolist():
            at[new] = self.names.setdefault(names[new], len(self.names))
        if len(self.names) > len(self._table.count):
            self._table.grow(len(self.names))
        return at

    def known(self, names: Iterable[str]) -> Owners:
        """Return the positions of collections in the table, −1 for those without a place."""
        # Without a loop in Python: with thousands of names in every block, that would take as long as the scan.
        return np.fromiter(map(self.names.get, names, repeat(-1)), dtype=np.intp)

    def merge(self, other: Sketches) -> None:
        """Count everything that another has seen; collections of the same name are joined."""
        _check_same(other._table.origin, self._table.origin, "the other")
        if not self.names:  # the first of many, or the only one
            self.names, self._table, self._scans = other.names, other._table, other._scans
            return
        at, table = self.positions(list(other.names)), self.table
        table.merge(other._table, at)
        for there, scan in other._scans:
            table.add_items(at[there], scan)

    def subtract(self, name: str, other: SketchTable) -> None:
        """Take the only collection of another table out of the one with this name."""
        self.table.merge(other, np.array([self.names[name]]), -1)

    def sketches(self, control: ControlSet, scorer: Scorer) -> dict[str, Sketch]:
        """Return all sketches by name; they share the table until you change them."""
        table, collecting = self.table, gc.isenabled()
        gc.disable()  # the garbage collector would look through thousands of new objects a dozen times
        try:
            return {name: Sketch.row(control, scorer, table, at) for name, at in self.names.items()}
        finally:
            if collecting:
                gc.enable()


def sketch_blocks(
    blocks: Iterable[tuple[Any, Coded | None]],
    control: ControlSet,
    scorer: Scorer,
    *,
    name: str = "collection",
    mapper: Mapper = map,
    seen: int = 0,
    part_of: Sketches | None = None,
    progress: Callable[[int], None] | None = None,
) -> Sketches:
    """Sketch every collection of a stream of blocks in one pass.

    A block is (vectors, (names, codes)): row i belongs to the collection ``names[codes[i]]``; or (vectors, None) if
    all rows belong to `name`. `seen` rows of the same collections came before, in other passes. `mapper` may share
    the work among threads.

    With `part_of`, the blocks are a small partition that will be merged into these sketches: nothing is sorted before
    that, and items that cannot be in their samples are left out.
    """
    sketches = Sketches(Origin.of(control, scorer.seed))
    there: list[Owners] = [np.empty(0, dtype=np.intp)]  # places of all collections in `part_of`

    def coded_blocks() -> Iterator[Block]:
        for vectors, coded in blocks:
            names, codes = ([name], None) if coded is None else coded
            if len(set(names)) < len(names):  # a dictionary may list a text twice
                places = {each: at for at, each in enumerate(dict.fromkeys(names))}
                names, codes = list(places), np.array([places[each] for each in names])[codes]
            yield checked_vectors(vectors, control), codes, names

    def limits(at: Owners) -> Limits:
        if part_of is None:
            return sketches.table.limits(at)
        if len(there[0]) < len(sketches.names):
            there[0] = part_of.known(sketches.names)
        return part_of._table.limits(there[0][at])

    for chunk in scan_blocks(
        coded_blocks(), control, scorer, sketches.positions, limits, seen=seen, mapper=mapper
    ):
        if part_of is None:
            sketches.table.add_items(chunk.at, chunk.scan)
        else:
            # The sums are in the table, added up as another process would: the last bit depends on their order.
            sketches._scans.append((chunk.at, replace(chunk.scan, totals=np.empty((0, 0)))))
        sketches._table.add_counts(chunk)
        if progress is not None:
            progress(int(chunk.scan.tally.sum()))
    return sketches


def _check_same(origin: Origin, expected: Origin, what: str) -> None:
    if origin != expected:
        raise MismatchError(f"{what} was made with another control set or seed and cannot be merged")
