"""SketchState: the numbers of a sketch, without the control set that gives them meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.errors import InputError
from divscore.sketch.cells import CellCounts
from divscore.sketch.codes import CodeRows

if TYPE_CHECKING:
    from divscore.sketch.sharedsample import SharedSample

__all__ = ["SKIPS", "SketchState", "floors"]

# zero and nonfinite vectors; items that could not be read; items with nothing to encode (no face, no known word).
SKIPS = ("zero", "nonfinite", "unreadable", "empty")
# At most this many items are scored by every refitted direction. Only differences between directions on the same
# items matter, so few will do: against 5,000 items, 300 widened the interval by 2 % (PPB skin tone) and 7 % (gender).
REPLICATE_ITEMS = 512
SHARED_ITEMS = 1_024  # in the sample that many collections share
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
    replicate_cells: CodeRows
    shared: SharedSample | None = (
        None  # whose stand-ins `replicate_cells` are, in a pass over many collections
    )

    def absorb(self, other: SketchState) -> None:
        """Add the numbers of another state."""
        self._combine(other, 1)
        self.cells.merge(other.cells)
        self.replicate_cells.merge(other.replicate_cells)
        self.raise_floors()

    def release(self, other: SketchState) -> None:
        """Take away the numbers of another state, all of whose items must be in this one.

        Nothing is changed if they are not.
        """
        cells, replicate_cells = self.cells.copy(), self.replicate_cells.copy()
        cells.merge(other.cells, -1)
        replicate_cells.merge(other.replicate_cells, -1)
        lacking = [kind for kind in SKIPS if self.skipped[kind] < other.skipped[kind]]
        if self.count < other.count or (self.levels < other.levels).any() or lacking:
            raise InputError("more items to remove than were added to this sketch; nothing was removed")
        self._combine(other, -1)
        self.cells, self.replicate_cells = cells, replicate_cells
        self.clear_rounding()

    def clear_rounding(self) -> None:
        """Without any item the sums are zero, not what rounding left of them."""
        if not self.count:
            self.total, self.similarity_total = (
                np.zeros_like(self.total),
                np.zeros_like(self.similarity_total),
            )

    def raise_floors(self) -> None:
        """Give up the levels that would make a sample too large."""
        if self.groups > 2:
            self.cells.raise_floor(int(floors(self.levels, JOINT_ITEMS)))
        self.replicate_cells.raise_floor(int(floors(self.levels, REPLICATE_ITEMS)))

    def _combine(self, other: SketchState, sign: int) -> None:
        self.count += sign * other.count
        self.total = self.total + sign * other.total
        self.similarity_total = self.similarity_total + sign * other.similarity_total
        self.levels = self.levels + sign * other.levels
        self.skipped = {kind: self.skipped[kind] + sign * other.skipped[kind] for kind in SKIPS}


def floors(levels: NDArray[np.int64], most: int) -> NDArray[np.intp]:
    """First level (…) of items by level (…, LEVELS) from which on at most `most` are left, unless hardly any are.

    Copies of an item share its level, so a collection of many copies can lose nearly everything at one step;
    the level before is then kept, however many items it has.
    """
    deeper = np.cumsum(levels[..., ::-1], axis=-1)[..., ::-1]
    floor = np.minimum((deeper > most).sum(axis=-1), levels.shape[-1] - 1)
    few = np.take_along_axis(deeper, floor[..., None], axis=-1)[..., 0] < FEWEST_KEPT
    return np.asarray(np.where((floor > 0) & few, floor - 1, floor))
