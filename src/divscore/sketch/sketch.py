"""Sketch: everything an audit needs to know of a collection, in about 100 kilobytes.

The state (count, Σ x̂, counts of cells) is a commutative group: adding, removing and merging are exact, which is
the paper's "variable-sized collections" and also what lets batches, threads and machines share one pass.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, as_matrix
from divscore.errors import InputError, MismatchError, VectorError
from divscore.sketch.codes import CellCounts, CodeRows
from divscore.sketch.scan import ZERO, scan
from divscore.sketch.scorer import LEVELS, scorer_for

if TYPE_CHECKING:
    from divscore.sketch.many import SharedSample

__all__ = ["SHARED", "SKIPS", "Sketch", "SketchState", "floors", "similarity_sum"]


# SketchState: the numbers of a sketch, without the control set that gives them meaning.

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


SMALLEST_SET = 5
SHARED = (
    "the sketch was made in a pass whose collections share one sample for their intervals: it can be audited, but not "
    "changed, merged or written; make it with samples of its own (samples='own')"
)
FEWEST_LEVELS = 5  # levels of a sample that are not empty; hundreds of different items fill eight or more


class Sketch(SketchState):
    """A summary of a collection, as seen from one control set.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    >>> control = ControlSet(vectors, ["a"] * 20 + ["b"] * 20, attribute="letter")
    >>> sketch = Sketch(control)
    >>> sketch.add(rng.normal(size=(100, 8)))
    >>> sketch.count
    100
    """

    def __init__(self, control: ControlSet, *, seed: int = 0) -> None:
        self.control = control
        self.seed = seed
        self.scorer = scorer_for(control, seed)
        self.count = 0
        self.groups = len(control.groups)
        self.total = np.zeros(control.dimension)
        self.similarity_total = np.zeros(_general(control))
        self.skipped = dict.fromkeys(SKIPS, 0)
        self.levels = np.zeros(LEVELS, dtype=np.int64)
        self.cells = CellCounts(self.scorer.grid.cells)
        replicates = self.scorer.replicates
        self.replicate_cells = CodeRows(replicates.count, self.groups - 1, replicates.grid.side)

    @property
    def mean(self) -> FloatArray:
        """Mean of the unit vectors."""
        if not self.count:
            raise InputError("the sketch is empty: no item with a usable vector was added")
        return self.total / self.count

    @property
    def individual(self) -> bool:
        """Whether a statement about this set would be one about single items."""
        return self.count < SMALLEST_SET or len(self.cells.keys) < 2

    @property
    def few_distinct(self) -> bool:
        """Whether the items are copies of so few that the sample of them cannot stand for the rest.

        Copies share one hash and enter the sample together, or not at all.
        """
        return self._badly_sampled and not self.thinned

    @property
    def thinned(self) -> bool:
        """Whether so many items were removed that too few of the rest are in the sample: given-up levels stay so."""
        return self._badly_sampled and self._floor > int(floors(self.levels, REPLICATE_ITEMS))

    @property
    def _badly_sampled(self) -> bool:
        return self._floor > 0 and int((self.levels[self._floor :] > 0).sum()) < FEWEST_LEVELS

    @property
    def _floor(self) -> int:
        """Level from which on items are in its sample, or would be if it had one of its own."""
        if self.shared:
            return int(floors(self.levels, REPLICATE_ITEMS))
        return max(self.replicate_cells.floor, self.cells.floor)

    def add(self, batch: Any, *, workers: int = 1) -> None:
        """Count a batch of vectors in; zero and non-finite ones are skipped and counted."""
        self._own_sample()
        self._count(self.checked(batch), workers, 1)

    def remove(self, batch: Any, *, workers: int = 1) -> None:
        """Take a batch out again; it must have been added before."""
        self._own_sample()
        backup = self.copy()
        try:
            self._count(self.checked(batch), workers, -1)
            if self.count < 0 or min(self.skipped.values()) < 0:
                raise InputError("more items to remove than were added to this sketch; nothing was removed")
        except InputError:
            self.__dict__.update(backup.__dict__)
            raise
        self.clear_rounding()

    def merge(self, other: Sketch) -> None:
        """Count in everything that another sketch of the same control set has seen."""
        self._same_control(other)
        self.absorb(other)

    def subtract(self, other: Sketch) -> None:
        """Take out everything that another sketch has seen; all of it must have been counted in before."""
        self._same_control(other)
        self.release(other)

    def holding(self, state: SketchState) -> Sketch:
        """Return a sketch of other items for the same control set and seed."""
        clone = object.__new__(Sketch)
        clone.__dict__.update(self.__dict__)
        clone.__dict__.update(state.__dict__)
        return clone

    def skip(self, kind: str, count: int = 1) -> None:
        """Record items that could not be turned into vectors."""
        self.skipped[kind] += count

    def copy(self) -> Sketch:
        """Return an independent copy."""
        clone = object.__new__(Sketch)
        clone.__dict__.update(self.__dict__)
        clone.total, clone.levels = self.total.copy(), self.levels.copy()
        clone.similarity_total, clone.skipped = self.similarity_total.copy(), dict(self.skipped)
        clone.cells, clone.replicate_cells = self.cells.copy(), self.replicate_cells.copy()
        return clone

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `Sketch.load` reads back; it appears whole or not at all."""
        from divscore.sketch.sketchfile import write_sketches

        write_sketches(path, {"": self})

    @classmethod
    def load(cls, path: str | os.PathLike[str], control: ControlSet) -> Sketch:
        """Read a sketch of one collection, made with this control set."""
        from divscore.sketch.sketchfile import read_sketches

        sketches = read_sketches(path, control)
        if len(sketches) != 1:
            raise InputError(f"{path} holds {len(sketches)} collections; read them with read_sketches")
        return next(iter(sketches.values()))

    def __repr__(self) -> str:
        return f"<Sketch of {self.count} items, {self.control.attribute}>"

    def checked(self, batch: Any) -> NDArray[Any]:
        """Return a batch as an array of the right dimension, or say what is wrong with it."""
        rows = as_matrix(batch, "the collection's vectors")
        if rows.shape[1] != self.control.dimension:
            raise VectorError(
                f"the collection's vectors have {rows.shape[1]} dimensions, the control set's "
                f"{self.control.dimension}; both must come from the same encoder"
            )
        return rows

    def _count(self, rows: NDArray[Any], workers: int, sign: int) -> None:
        found = scan(rows, self.scorer, workers=workers, seen=self.count)
        if not self.control.similarity.collapses:
            # First, because a similarity may refuse, and nothing must be half counted then.
            summed = similarity_sum(self.control, rows, np.flatnonzero(found.level < ZERO))
            self.similarity_total = self.similarity_total + sign * summed
        self.skipped["zero"] += sign * int(found.zero[0])
        self.skipped["nonfinite"] += sign * int(found.nonfinite[0])
        self.count += sign * int(found.levels[0].sum())
        self.total = self.total + sign * found.totals[0]
        self.levels = self.levels + sign * found.levels[0]
        if sign > 0:
            self.raise_floors()
        self.cells.update(found.keys, found.counts, sign)
        self._count_sampled(rows, found.level, sign)

    def _count_sampled(self, rows: NDArray[Any], level: NDArray[np.uint8], sign: int) -> None:
        """Count the sampled items' codes under every refitted direction."""
        held = self.replicate_cells
        count = held.add if sign > 0 else held.remove
        sampled = np.flatnonzero((level >= held.floor) & (level < ZERO))
        for start in range(0, len(sampled), 4096):
            some = sampled[start : start + 4096]
            count(level[some], self.scorer.replicates.codes(rows[some]))

    def _own_sample(self) -> None:
        if self.shared:
            raise InputError(SHARED)

    def _same_control(self, other: Sketch) -> None:
        self._own_sample()
        other._own_sample()
        if self.control.digest != other.control.digest:
            raise MismatchError(
                "the sketches were made with different control sets and cannot be merged; "
                "make both with the same control set"
            )
        if self.seed != other.seed:
            raise MismatchError(f"the sketches were made with different seeds ({self.seed} and {other.seed})")


def similarity_sum(control: ControlSet, rows: NDArray[Any], members: NDArray[np.intp]) -> FloatArray:
    """Σ_x sim(x, t_j) for every representative j: the general path, m numbers instead of d."""
    chosen = control.vectors[control.representative].astype(np.float64)
    total = np.zeros(len(chosen))
    for start in range(0, len(members), 4096):
        block = rows[members[start : start + 4096]].astype(np.float64)
        total += control.similarity.pairs(block, chosen).sum(axis=0)
    return total


def _general(control: ControlSet) -> int:
    return 0 if control.similarity.collapses else int(control.representative.sum())
