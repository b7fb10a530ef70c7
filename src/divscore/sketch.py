"""Sketch: everything an audit needs to know of a collection, in tens of kilobytes.

The state (count, Σ x̂, counts of cells) is a commutative group: adding, removing and merging are exact, which is
the paper's "variable-sized collections" and also what lets batches, threads and machines share one pass.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.cells import CellCounts
from divscore.codes import CodeRows
from divscore.control import ControlSet
from divscore.errors import InputError, MismatchError, VectorError
from divscore.scan import ZERO, Scan, scan
from divscore.scorer import LEVELS, scorer_for
from divscore.similarity import FloatArray, as_matrix
from divscore.state import SKIPS, SketchState

__all__ = ["Sketch", "add_by", "by_owner", "fold", "similarity_sum"]

SMALLEST_SET = 5
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
        floor = max(self.replicate_cells.floor, self.cells.floor)
        return floor > 0 and int((self.levels[floor:] > 0).sum()) < FEWEST_LEVELS

    def add(self, batch: Any, *, workers: int = 1) -> None:
        """Count a batch of vectors in; zero and non-finite ones are skipped and counted."""
        add_by([self], self.checked(batch), None, workers=workers)

    def remove(self, batch: Any, *, workers: int = 1) -> None:
        """Take a batch out again; it must have been added before."""
        backup = self.copy()
        try:
            add_by([self], self.checked(batch), None, workers=workers, sign=-1)
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
        from divscore.sketchfile import write_sketches

        write_sketches(path, {"": self})

    @classmethod
    def load(cls, path: str | os.PathLike[str], control: ControlSet) -> Sketch:
        """Read a sketch of one collection, made with this control set."""
        from divscore.sketchfile import read_sketches

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

    def _same_control(self, other: Sketch) -> None:
        if self.control.digest != other.control.digest:
            raise MismatchError(
                "the sketches were made with different control sets and cannot be merged; "
                "make both with the same control set"
            )
        if self.seed != other.seed:
            raise MismatchError(f"the sketches were made with different seeds ({self.seed} and {other.seed})")


def add_by(
    sketches: Sequence[Sketch],
    rows: NDArray[Any],
    owner: NDArray[np.intp] | None,
    *,
    workers: int = 1,
    sign: int = 1,
) -> None:
    """Count one batch into several sketches in a single pass; `owner` gives the position of each row's sketch."""
    listed = list(sketches)
    seen = sum(sketch.count for sketch in listed)
    found = scan(rows, listed[0].scorer, owner, len(listed), workers=workers, seen=seen)
    fold(listed, rows, owner, found, sign)


def fold(
    sketches: Sequence[Sketch], rows: NDArray[Any], owner: NDArray[np.intp] | None, found: Scan, sign: int = 1
) -> None:
    """Count the result of a scan of `rows` into the sketches that it was made for."""
    listed = list(sketches)
    if not listed[0].control.similarity.collapses:
        # First, because a similarity may refuse, and nothing must be half counted then.
        everyone = by_owner(np.flatnonzero(found.level < ZERO), owner, len(listed))
        for sketch, members in zip(listed, everyone, strict=True):
            summed = similarity_sum(sketch.control, rows, members)
            sketch.similarity_total = sketch.similarity_total + sign * summed
    stride = listed[0].scorer.stride
    edges = np.searchsorted(found.keys, stride * np.arange(len(listed) + 1))
    for at, sketch in enumerate(listed):
        sketch.skipped["zero"] += sign * int(found.zero[at])
        sketch.skipped["nonfinite"] += sign * int(found.nonfinite[at])
        sketch.count += sign * int(found.levels[at].sum())
        sketch.total = sketch.total + sign * found.totals[at]
        sketch.levels = sketch.levels + sign * found.levels[at]
        if sign > 0:
            sketch.raise_floors()
        mine = slice(edges[at], edges[at + 1])
        sketch.cells.update(found.keys[mine] - at * stride, found.counts[mine], sign)
    _count_replicates(listed, rows, owner, found.level, sign)


def by_owner(
    members: NDArray[np.intp], owner: NDArray[np.intp] | None, owners: int
) -> list[NDArray[np.intp]]:
    """Row numbers, split by the collection that they belong to."""
    if owner is None:
        return [members]
    order = members[np.argsort(owner[members], kind="stable")]
    return np.split(order, np.searchsorted(owner[order], np.arange(1, owners)))


def _count_replicates(
    sketches: list[Sketch],
    rows: NDArray[Any],
    owner: NDArray[np.intp] | None,
    level: NDArray[np.uint8],
    sign: int,
) -> None:
    """Count the sampled items' codes under every refitted direction."""
    floors = np.array([sketch.replicate_cells.floor for sketch in sketches])
    sampled = np.flatnonzero((level >= floors.min()) & (level < ZERO))
    if owner is not None:
        sampled = sampled[level[sampled] >= floors[owner[sampled]]]
        sampled = sampled[np.argsort(owner[sampled], kind="stable")]
    for start in range(0, len(sampled), 4096):
        some = sampled[start : start + 4096]
        codes = sketches[0].scorer.replicates.codes(rows[some])
        whose = np.zeros(len(some), dtype=np.intp) if owner is None else owner[some]
        edges = np.flatnonzero(np.concatenate([[True], whose[1:] != whose[:-1], [True]]))
        for low, high in pairwise(edges.tolist()):
            held = sketches[whose[low]].replicate_cells
            count = held.add if sign > 0 else held.remove
            count(level[some[low:high]], codes[low:high])


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
