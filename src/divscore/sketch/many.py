"""Sketches: thousands of collections in one pass."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.sketch.codes import CodeRows
from divscore.sketch.rowsums import Positions
from divscore.sketch.scan import ZERO, Owners, Scan
from divscore.sketch.scorer import LEVELS
from divscore.sketch.sharedsample import SharedSample
from divscore.sketch.sketch import Sketch, similarity_sum
from divscore.sketch.sketchtable import AT_ONCE, Shape, SketchTable
from divscore.sketch.state import SKIPS

__all__ = ["Sketches"]

ZERO_AT, NONFINITE_AT = SKIPS.index("zero"), SKIPS.index("nonfinite")


class Sketches:
    """The sketches of named collections while they are being made; `sketches()` hands them out at the end.

    What is counted is held in `table`, which knows nothing of the control set, can be sent home and merged there.
    With `shared`, all collections together have one sample of items for their intervals, in place of one each.
    """

    def __init__(self, control: ControlSet, *, seed: int = 0, shared: bool = False) -> None:
        self._blank = Sketch(control, seed=seed)
        self.shared = shared
        self.control, self.scorer = control, self._blank.scorer
        replicates = self.scorer.replicates
        self.table = SketchTable(
            Shape(
                control=control.digest,
                seed=seed,
                dimension=control.dimension,
                similarities=len(self._blank.similarity_total),
                groups=self.scorer.groups,
                levels=LEVELS,
                cells=self.scorer.grid.cells,
                stride=self.scorer.stride,
                rows=replicates.count,
                side=replicates.grid.side,
                shared=shared,
            )
        )

    def __len__(self) -> int:
        return len(self.table)

    def checked(self, batch: Any) -> NDArray[Any]:
        """Return a batch as an array of the right dimension, or say what is wrong with it."""
        return self._blank.checked(batch)

    def positions(self, names: Sequence[str]) -> Positions:
        """Positions of different collections in the table; new ones get a place."""
        return self.table.positions(names)

    def fold(self, at: Positions, rows: NDArray[Any], owner: Owners | None, found: Scan) -> None:
        """Count in the result of a scan of `rows` that was made for the collections at `at`."""
        table = self.table
        if not self.control.similarity.collapses:
            # First, because a similarity may refuse, and nothing must be half counted then.
            everyone = _by_owner(np.flatnonzero(found.level < ZERO), owner, len(at))
            table.similarities[at] += [similarity_sum(self.control, rows, members) for members in everyone]
        table.skipped[at, ZERO_AT] += found.zero
        table.skipped[at, NONFINITE_AT] += found.nonfinite
        table.add(at, found.totals, found.levels)
        table.count_cells(at, found.keys, found.counts)
        self._count_sampled(at, rows, owner, found.level)

    def merge(self, other: SketchTable) -> None:
        """Count in everything that another table has seen; collections of the same name are joined."""
        if len(self) or self.table.shape != other.shape:
            self.table.merge(other)
        else:
            self.table = other  # the first of many, or the only one: taken over as it is

    def sketches(self) -> dict[str, Sketch]:
        """All of them, by name. No more items can be added to the table afterwards."""
        sample = None if self.table.sample is None else SharedSample(self.scorer, self.table.sample)
        with _without_collections():
            found = {name: self._blank.holding(state) for name, state in self.table.states()}
            if sample is not None:
                for sketch in found.values():
                    sample.lend(sketch)
        return found

    def _count_sampled(
        self, at: Positions, rows: NDArray[Any], owner: Owners | None, level: NDArray[np.uint8]
    ) -> None:
        """Find the sampled items' codes under every refitted direction."""
        if self.table.sample is not None:
            self._share_sampled(self.table.sample, rows, level)
            return
        floor = self.table.floors[at, 1]
        sampled = np.flatnonzero((level >= floor.min()) & (level < ZERO))
        if owner is not None:
            sampled = sampled[level[sampled] >= floor[owner[sampled]]]
        for start in range(0, len(sampled), AT_ONCE):
            some = sampled[start : start + AT_ONCE]
            codes = self.scorer.replicates.codes(rows[some])
            whose = np.full(len(some), at[0]) if owner is None else at[owner[some]]
            self.table.hold(whose, (level[some], codes, np.ones(len(some), dtype=np.int64)))
        self.table.tidy()

    def _share_sampled(self, sample: CodeRows, rows: NDArray[Any], level: NDArray[np.uint8]) -> None:
        sampled = np.flatnonzero((level >= sample.floor) & (level < ZERO))
        for start in range(0, len(sampled), AT_ONCE):
            some = sampled[start : start + AT_ONCE]
            sample.add(level[some], self.scorer.replicates.codes(rows[some]))


@contextmanager
def _without_collections() -> Iterator[None]:
    """A hundred thousand objects that all stay would be looked through for garbage a dozen times."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _by_owner(members: NDArray[np.intp], owner: Owners | None, owners: int) -> list[NDArray[np.intp]]:
    """Row numbers, split by the collection that they belong to."""
    if owner is None:
        return [members]
    order = members[np.argsort(owner[members], kind="stable")]
    return np.split(order, np.searchsorted(owner[order], np.arange(1, owners)))
