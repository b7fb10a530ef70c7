"""SketchState: the numbers of a sketch, without the control set that gives them meaning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from divscore.cells import CellCounts
from divscore.similarity import FloatArray

__all__ = ["SKIPS", "SketchState"]

# zero and nonfinite vectors; items that could not be read; items with nothing to encode (no face, no known word).
SKIPS = ("zero", "nonfinite", "unreadable", "empty")
# At most this many items are scored by every refitted direction. Only differences between directions on the same
# items matter, so few will do: against 5,000 items, 300 widened the interval by 2 % (PPB skin tone) and 7 % (gender).
REPLICATE_ITEMS = 512
FEWEST_KEPT = 64
JOINT_ITEMS = 65_536  # with three groups or more: at most this many items in the joint histogram


class SketchState:
    """Count, Σ x̂ and counts of cells: a commutative group as long as no level of a sample is given up.

    Two groups: every item is in `cells`. The items in `replicate_cells`, and with three groups or more those in
    `cells`, are a sample that a hash of the vector decides, in levels; when the sample grows too large its
    lowest level is given up for good. What is kept depends only on which items were added, never on their
    order or on how they were split, unless items are removed after a level was given up: the estimate is
    then still exact (two groups) and the interval rests on the smaller sample.
    """

    count: int
    groups: int
    total: FloatArray
    similarity_total: FloatArray
    skipped: dict[str, int]
    levels: NDArray[np.int64]
    cells: CellCounts
    replicate_cells: CellCounts

    def absorb(self, other: SketchState) -> None:
        """Add the numbers of another state."""
        self.count += other.count
        self.total = self.total + other.total
        self.similarity_total = self.similarity_total + other.similarity_total
        self.levels = self.levels + other.levels
        self.skipped = {kind: self.skipped[kind] + other.skipped[kind] for kind in SKIPS}
        self.cells.merge(other.cells)
        self.replicate_cells.merge(other.replicate_cells)
        self.raise_floors()

    def raise_floors(self) -> None:
        """Give up the levels that would make a sample too large."""
        deeper = np.cumsum(self.levels[::-1])[::-1]
        if self.groups > 2:
            self.cells.raise_floor(_floor(deeper, JOINT_ITEMS))
        self.replicate_cells.raise_floor(_floor(deeper, REPLICATE_ITEMS))


def _floor(deeper: NDArray[np.int64], most: int) -> int:
    """First level from which on at most `most` items are left, unless that would leave hardly any.

    Copies of an item share its level, so a collection of many copies can lose nearly everything at one step;
    the level before is then kept, however many items it has.
    """
    floor = int((deeper > most).sum())
    return floor - 1 if floor and deeper[floor] < FEWEST_KEPT else floor
