"""Sketches on disk: written, read, joined and taken apart, the latter two without their control set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divscore.audit.missing import Gaps, Missing
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError, MismatchError
from divscore.sketch.sketch import SHARED, Sketch
from divscore.sketch.sketchstore import Made, StoredSketches, is_sketch, read_stored, write_stored
from divscore.sketch.state import SketchState
from divscore.text import printable

__all__ = [
    "SketchFile",
    "is_sketch",
    "merge_sketches",
    "open_sketches",
    "read_sketches",
    "subtract_sketches",
    "write_sketches",
]

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class SketchFile:
    """The sketches of a file by the names of their collections, and what was missing when they were made."""

    sketches: dict[str, Sketch]
    gaps: Gaps


def write_sketches(path: Place, sketches: Mapping[str, Sketch], missing: Iterable[Missing] = ()) -> None:
    """Write the sketches of named collections to one file, which appears whole or not at all.

    What was `missing` from the source when they were made is kept with them, for whoever audits them.
    """
    if not sketches:
        raise InputError(f"there is no sketch to write to {path}")
    if any(sketch.shared for sketch in sketches.values()):
        raise InputError(SHARED)
    first = next(iter(sketches.values()))
    sample = first.replicate_cells
    made = Made(
        first.control.digest,
        first.control.attribute,
        first.seed,
        first.groups,
        first.cells.cells,
        sample.rows,
        sample.side,
    )
    write_stored(path, made, sketches.items(), Gaps.among(missing))


def read_sketches(path: Place, control: ControlSet) -> dict[str, Sketch]:
    """Read the sketches of a file; they must have been made with `control`."""
    return open_sketches(path, control).sketches


def open_sketches(path: Place, control: ControlSet) -> SketchFile:
    """Read the sketches of a file, and what was missing when they were made."""
    stored = read_stored(path, lasting=True)
    if stored.made.control != control.digest:
        raise MismatchError(
            f"{path} was made with another control set (of attribute '{printable(stored.made.attribute)}'); "
            "give that control set, or make the sketch anew with this one"
        )
    blank = Sketch(control, seed=stored.made.seed)
    sizes = stored.made.groups, stored.dimension, stored.similarities
    expected = blank.groups, len(blank.total), len(blank.similarity_total)
    if sizes != expected:
        raise FileError(
            f"{path} is not a sketch, or is damaged (groups, dimensions and similarities are {sizes}, those of its "
            f"control set {expected}); make it anew"
        )
    return SketchFile({name: blank.holding(state) for name, state in stored.states.items()}, stored.gaps)


def merge_sketches(paths: Sequence[Place], out: Place) -> dict[str, int]:
    """Join sketch files without their control set; returns the number of items of each collection.

    Files of one collection each become one collection, named after `out`; otherwise collections of the same
    name are joined.
    """
    files = [read_stored(path) for path in paths]
    for path, other in zip(paths, files, strict=True):
        _same(other, path, files[0], paths[0], "merged")
    single = all(len(stored.states) == 1 for stored in files)
    parts: dict[str, list[SketchState]] = {}
    for stored in files:
        for own, state in stored.states.items():
            parts.setdefault(Path(out).stem if single else own, []).append(state)
        stored.states.clear()
    counts: dict[str, int] = {}

    def merged() -> Iterator[tuple[str, SketchState]]:
        for name in list(parts):  # one at a time, and let go when it is written: codes are many
            state, *others = parts.pop(name)
            for other in others:
                state.absorb(other)
            counts[name] = state.count
            yield name, state

    write_stored(out, files[0].made, merged(), sum((stored.gaps for stored in files), Gaps()))
    return counts


def subtract_sketches(path: Place, minus: Sequence[Place], out: Place) -> dict[str, int]:
    """Take sketch files out of another without their control set; returns the items left in each collection.

    If every file holds one collection, it is taken out of that one; otherwise collections of the same name are
    taken out of each other. All that is taken out must have been counted in.
    """
    whole, files = read_stored(path), [read_stored(each) for each in minus]
    for each, other in zip(minus, files, strict=True):
        _same(other, each, whole, path, "taken apart")
    single = all(len(stored.states) == 1 for stored in (whole, *files))
    only = next(iter(whole.states))
    gone: dict[str, list[tuple[Any, SketchState]]] = {}
    for each, other in zip(minus, files, strict=True):
        for own, state in other.states.items():
            name = only if single else own
            if name not in whole.states:
                raise InputError(f"{each} holds the collection '{printable(name)}', which {path} does not")
            gone.setdefault(name, []).append((each, state))
    counts: dict[str, int] = {}

    def left() -> Iterator[tuple[str, SketchState]]:
        for name in list(whole.states):
            state = whole.states.pop(name)
            for each, other in gone.pop(name, []):
                try:
                    state.release(other)
                except InputError as error:
                    raise InputError(
                        f"{each} cannot be taken out of {path}: not all of its items are in there"
                        f"{'' if single else f' (collection {printable(name)!r})'}; nothing was written"
                    ) from error
            counts[name] = state.count
            yield name, state

    write_stored(out, whole.made, left(), whole.gaps)
    return counts


def _same(other: StoredSketches, path: Place, first: StoredSketches, origin: Place, what: str) -> None:
    if (other.made.control, other.made.seed) != (first.made.control, first.made.seed):
        raise MismatchError(
            f"{path} and {origin} were made with different control sets or seeds and cannot be {what}"
        )
    if _sizes(other) != _sizes(first):
        raise FileError(
            f"{path} or {origin} is damaged: they name the same control set, but have vectors or groups of different "
            "numbers; make them anew"
        )


def _sizes(stored: StoredSketches) -> tuple[int, ...]:
    return stored.made.groups, stored.dimension, stored.similarities
