"""Sketches: thousands of named collections in one pass."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.errors import InputError, MismatchError
from divscore.sketch.sample import Owners
from divscore.sketch.scorer import Scorer
from divscore.sketch.sketch import Block, Origin, Sketch, SketchTable, checked_rows, fold_blocks
from divscore.text import printable

Coded = tuple[Sequence[str], NDArray[np.intp]]  # names, and for every row the position of its name


class Sketches:
    """A table of sketches and the names of their collections; it can be pickled, merged and stored."""

    def __init__(self, origin: Origin) -> None:
        self.names: dict[str, int] = {}
        self.table = SketchTable(origin, 0)

    @classmethod
    def of(cls, sketches: Mapping[str, Sketch]) -> Sketches:
        """Collect sketches that were made with one control set and seed."""
        if not sketches:
            raise InputError("there are no sketches")
        first = next(iter(sketches.values()))
        gathered = cls(first.table.origin)
        at = gathered.positions(list(sketches))
        rest = list(sketches.values())
        if all(sketch.table is first.table for sketch in rest):
            gathered.table = first.table.take(np.array([sketch.at for sketch in rest]))
            return gathered
        for position, (name, sketch) in zip(at, sketches.items(), strict=True):
            _check_same(sketch.table.origin, gathered.table.origin, f"the sketch of '{printable(name)}'")
            gathered.table.merge(sketch.table.take(np.array([sketch.at])), at[position : position + 1])
        return gathered

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        return self.table.nbytes

    def positions(self, names: Sequence[str]) -> Owners:
        """Return the positions of different collections in the table; new ones get a place."""
        known = self.names
        if len(names) != len(known) or any(map(ne, names, known)):  # mostly all of them, in the same order
            at = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.intp)
            if len(known) > len(self.table):
                self.table.grow(len(known))
            return at
        return np.arange(len(names))

    def merge(self, other: Sketches) -> None:
        """Count everything that another has seen; collections of the same name are joined."""
        _check_same(other.table.origin, self.table.origin, "the other")
        if self.names:
            self.table.merge(other.table, self.positions(list(other.names)))
        else:
            self.names, self.table = other.names, other.table  # the first of many, or the only one

    def subtract(self, name: str, other: SketchTable) -> None:
        """Take the only collection of another table out of the one with this name."""
        self.table.merge(other, np.array([self.names[name]]), -1)

    def sketches(self, control: ControlSet, scorer: Scorer) -> dict[str, Sketch]:
        """Return all sketches by name; they share the table until you change them."""
        with _without_collections():
            return {name: Sketch.row(control, scorer, self.table, at) for name, at in self.names.items()}


def sketch_blocks(
    blocks: Iterable[tuple[Any, Coded | None]],
    control: ControlSet,
    scorer: Scorer,
    *,
    name: str = "collection",
    workers: int = 1,
    seen: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Sketches:
    """Sketch every collection of a stream of blocks in one pass.

    A block is (vectors, (names, codes)): row i belongs to the collection ``names[codes[i]]``; or (vectors, None) if
    all rows belong to `name`. `seen` rows of the same collections came before, in other passes. At most `workers` + 1
    chunks are in memory at a time; one worker means this thread.
    """
    sketches = Sketches(Origin.of(control, scorer.seed))

    def placed() -> Iterator[Block]:
        for vectors, coded in blocks:
            rows = checked_rows(vectors, control)
            names, owner = ([name], None) if coded is None else _present(*coded)
            if len(names):
                yield rows, owner if len(names) > 1 else None, sketches.positions(names)

    for rows in fold_blocks(sketches.table, control, scorer, placed(), seen, workers):
        if progress is not None:
            progress(rows)
    return sketches


def _present(names: Sequence[str], codes: NDArray[np.intp]) -> tuple[Sequence[str], Owners]:
    """Return the different names that occur, and the position of each row's name among them."""
    present = np.flatnonzero(np.bincount(codes))
    occurring = [names[at] for at in present.tolist()]
    places = {
        each: at for at, each in enumerate(dict.fromkeys(occurring))
    }  # a dictionary may list a text twice
    position = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.intp)
    position[present] = [places[each] for each in occurring]
    return list(places), position[codes]


def _check_same(origin: Origin, expected: Origin, what: str) -> None:
    if origin != expected:
        raise MismatchError(f"{what} was made with another control set or seed and cannot be merged")


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the garbage collector: it would look through thousands of new objects a dozen times."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
