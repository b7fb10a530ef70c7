"""Sketches on disk: written, read, joined and taken apart, the latter two without their control set."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError, MismatchError
from divscore.files import CheckedReader, CheckedWriter, FileRows, unreadable
from divscore.sketch.codes import CellCounts, CodeRows, Rows
from divscore.sketch.missing import Missing, MissingPart
from divscore.sketch.scorer import LEVELS, REPLICATES, coarse_half, fine_half
from divscore.sketch.sketch import SHARED, SKIPS, Sketch, SketchState
from divscore.text import printable

__all__ = [
    "Made",
    "SketchFile",
    "StoredSketches",
    "check_codes",
    "check_header",
    "check_numbers",
    "check_shapes",
    "is_sketch",
    "merge_sketches",
    "open_sketches",
    "read_sketches",
    "read_stored",
    "subtract_sketches",
    "write_sketches",
    "write_stored",
]


# What the content of a sketch file must be like: a checksum only tells that it is as somebody wrote it.
#
# Every check raises a ValueError that says what is wrong; the reader of the file says which file it is.

MOST = 1 << 48  # items of anything; sums of a few such numbers stay exact
MOST_GROUPS = 64
AT_ONCE = 1 << 22  # bytes of codes that are looked at together
WIDTHS = {"levels": LEVELS, "skipped": len(SKIPS), "floors": 2, "sizes": 2}

Arrays = Mapping[str, NDArray[Any]]


def check_header(header: Mapping[str, Any]) -> None:
    """Check the facts that all collections of the file share, and their names."""
    for key in ("control", "attribute"):
        _demand(isinstance(header[key], str), f"{key} is no text")
    for key, least, most in (("seed", 0, 1 << 64), ("groups", 2, MOST_GROUPS)):
        value = header[key]
        _demand(
            isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
            f"{key} is {str(value)[:40]!r}, expected a number from {least}",
        )
    groups = header["groups"]
    expected = {
        "rows": REPLICATES + 1,
        "side": 2 * coarse_half(groups) + 1,
        "cells": (2 * fine_half(groups) + 1) ** (groups - 1),
    }
    for key, value in expected.items():
        _demand(
            header[key] == value, f"{key} is {str(header[key])[:40]!r}, expected {value} for {groups} groups"
        )
    names = header["collections"]
    _demand(
        isinstance(names, list) and len(names) > 0 and all(isinstance(name, str) for name in names),
        "no list of names",
    )
    _demand(len(set(names)) == len(names), "two collections of the same name")


def check_shapes(
    shapes: Mapping[str, Any], each: Mapping[str, str], long: Mapping[str, str], names: int
) -> None:
    """Check that arrays have as many rows as there are collections, and as many columns as they must."""
    _demand(isinstance(shapes, dict), "no list of arrays")
    for key in (*each, *long):
        shape = shapes[key]
        ranks = 2 if key in each else 1
        _demand(
            isinstance(shape, list)
            and len(shape) == ranks
            and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST for n in shape),
            f"{key} has no such shape",
        )
        if key in each:
            _demand(shape[0] == names, "numbers of collections that do not add up")
            _demand(shape[1] == WIDTHS.get(key, shape[1]), f"{key} has {shape[1]} columns")


def check_numbers(header: Mapping[str, Any], found: Arrays) -> None:
    """Check that the numbers of every collection are possible and agree with each other."""
    for key in ("levels", "skipped", "sizes", "item_times", "cell_counts"):
        least = 1 if key in ("item_times", "cell_counts") else 0
        _demand(_within(found[key], least, MOST), f"{key} has a number below {least}, or far too large a one")
    floors, levels = found["floors"], found["levels"]
    _demand(_within(floors, 0, LEVELS - 1), "a floor that is no level")
    for key in ("totals", "similarities"):
        _demand(bool(np.isfinite(found[key]).all()), f"{key} has a number that is not finite")
    counts = levels.sum(axis=1)
    # Each item adds a unit vector; what rounding leaves after many were removed is far below one.
    _demand(
        bool((np.abs(found["totals"]) <= 2.0 * counts[:, None] + 1.0).all()), "totals larger than their items"
    )
    sizes = found["sizes"]
    for at, key in enumerate(("cell_keys", "item_levels")):
        _demand(
            int(sizes[:, at].astype(object).sum()) == len(found[key]), "numbers of items that do not add up"
        )
    _check_cells(header, found, np.repeat(np.arange(len(sizes)), sizes[:, 0]))
    owner = np.repeat(np.arange(len(sizes)), sizes[:, 1])
    _check_levels(levels, floors[:, 1], owner, found["item_levels"].astype(np.int64), found["item_times"])


def _check_cells(header: Mapping[str, Any], found: Arrays, owner: NDArray[np.intp]) -> None:
    keys, counts, floors = found["cell_keys"], found["cell_counts"], found["floors"]
    two = header["groups"] == 2
    _demand(_within(keys, 0, header["cells"] * (1 if two else LEVELS) - 1), "a cell that does not exist")
    same = owner[1:] == owner[:-1]
    _demand(bool((keys[1:][same] > keys[:-1][same]).all()), "cells out of order")
    if two:
        _demand(not floors[:, 0].any(), "a floor of cells with two groups")
        summed = np.zeros(len(floors), dtype=np.int64)
        np.add.at(summed, owner, counts)
        _demand(bool((summed == found["levels"].sum(axis=1)).all()), "counts that do not add up")
        return
    _check_levels(found["levels"], floors[:, 0], owner, keys // header["cells"], counts)


def _check_levels(
    levels: NDArray[Any],
    floors: NDArray[Any],
    owner: NDArray[np.intp],
    level: NDArray[np.int64],
    counts: NDArray[Any],
) -> None:
    """Items that are held, from the floor upwards, must be those that the levels count."""
    _demand(_within(level, 0, LEVELS - 1), "a level that does not exist")
    summed = np.zeros_like(levels)
    np.add.at(summed, (owner, level), counts)
    kept = np.arange(LEVELS) >= floors[:, None]
    _demand(bool((summed == np.where(kept, levels, 0)).all()), "counts that do not add up")


def check_codes(codes: FileRows, rows: int, width: int, side: int) -> None:
    """Check that every score of every sampled item lies on its grid."""
    at_once = max(1, AT_ONCE // max(width, 1))
    for start in range(0, rows, at_once):
        block = codes[start : min(start + at_once, rows)]
        _demand(not block.size or int(block.max()) < side, "a score beyond its grid")


def _within(numbers: NDArray[Any], least: int, most: int) -> bool:
    return not numbers.size or (int(numbers.min()) >= least and int(numbers.max()) <= most)


def _demand(fine: bool, otherwise: str) -> None:
    if not fine:
        raise ValueError(otherwise)


# StoredSketches: what a sketch file holds; a few large arrays for all collections together, and a JSON header.
#
# Magic, codes of the sampled items, arrays, header, length of the header, SHA-256 of all of that. Codes come first
# because they are most of a file: written one collection after the other, and read when somebody looks at them.

FORMAT = "divscore.sketch/2"
MAGIC = b"divscore sketch\n"
OLD_HEADER = "header.json"  # of the zip files that were format 1
IN_MEMORY = 32 << 20  # bytes of codes that may be read at once
# Number by number: a name, the type, and whether there is one for each collection or as many as it says.
EACH = {
    "totals": "<f8",
    "similarities": "<f8",
    "levels": "<i8",
    "skipped": "<i8",
    "floors": "<i8",
    "sizes": "<i8",
}
LONG = {"cell_keys": "<i8", "cell_counts": "<i8", "item_levels": "|u1", "item_times": "<i8"}


@dataclass(frozen=True)
class Made:
    """What all sketches of a file have in common."""

    control: str
    attribute: str
    seed: int
    groups: int
    cells: int
    rows: int
    side: int


@dataclass(frozen=True)
class StoredSketches:
    """A sketch file's content: how it was made, the state of every collection, and what could not be read."""

    made: Made
    states: dict[str, SketchState]
    dimension: int
    similarities: int
    gaps: Missing = field(default_factory=Missing)


def is_sketch(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like one that `write_sketches` wrote, now or in an earlier version."""
    if not Path(path).is_file():
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC or _is_old(path)
    except OSError as error:
        raise unreadable(path, error) from error


def _is_old(path: str | os.PathLike[str]) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return OLD_HEADER in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def write_stored(
    path: str | os.PathLike[str], made: Made, states: Iterable[tuple[str, SketchState]], gaps: Missing
) -> None:
    """Write the states of collections, one after the other as they come."""
    names: list[str] = []
    each: dict[str, list[Any]] = {name: [] for name in EACH}
    long: dict[str, list[Any]] = {name: [] for name in LONG}
    with CheckedWriter(path, MAGIC, "the sketch") as file:
        for name, state in states:
            level, codes, times = state.replicate_cells.settled()
            file.write(codes)
            names.append(name)
            sizes = len(state.cells.keys), len(level)
            floors = state.cells.floor, state.replicate_cells.floor
            skipped = [state.skipped[kind] for kind in SKIPS]
            values = (state.total, state.similarity_total, state.levels, skipped, floors, sizes)
            for key, value in zip(EACH, values, strict=True):
                each[key].append(value)
            for key, array in zip(LONG, (state.cells.keys, state.cells.counts, level, times), strict=True):
                long[key].append(array)
        arrays = {key: np.array(found, dtype=EACH[key]) for key, found in each.items()}
        arrays |= {key: np.concatenate(found).astype(LONG[key]) for key, found in long.items()}
        for array in arrays.values():
            file.write(array)
        header = {
            "format": FORMAT,
            "replicates": REPLICATES,
            **asdict(made),
            "skips": SKIPS,
            "missing": gaps.to_dict(),
            "shapes": {key: array.shape for key, array in arrays.items()},
            "collections": names,
        }
        file.finish(json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def read_stored(path: str | os.PathLike[str], *, lasting: bool = False) -> StoredSketches:
    """Read a file; `lasting` sketches should outlive it where their codes are not too many to be held."""
    try:
        with CheckedReader(path, MAGIC) as file:
            header = json.loads(file.header.decode("utf-8", "surrogatepass"))
            if header.get("format") != FORMAT:
                raise FileError(f"{path} has format {header.get('format')!r}; this version reads {FORMAT}")
            if header["replicates"] != REPLICATES or tuple(header["skips"]) != SKIPS:
                raise FileError(f"{path} was made by another version of divscore; make the sketch anew")
            return _stored(file, header, lasting)
    except OSError as error:
        raise unreadable(path, error) from error
    except DivscoreError:
        if _is_old(path):
            raise FileError(
                f"{path} has format 'divscore.sketch/1', of an earlier version; this version reads {FORMAT}. "
                "Make the sketch anew"
            ) from None
        raise
    except Exception as error:  # a file that is whole but wrong inside can fail in a dozen ways
        raise FileError(f"{path} is not a sketch, or is damaged ({error}); make it anew") from error


def _stored(file: CheckedReader, header: dict[str, Any], lasting: bool) -> StoredSketches:
    check_header(header)
    check_shapes(header["shapes"], EACH, LONG, len(header["collections"]))
    gaps = Missing.from_dict(header.get("missing", {}))
    made = Made(**{key: header[key] for key in Made.__annotations__})
    shapes, width = header["shapes"], made.rows * (made.groups - 1)
    items = shapes["item_levels"][0]
    codes = file.rows(items, width)
    found = {key: file.array(kind, shapes[key]) for key, kind in {**EACH, **LONG}.items()}
    file.end()
    check_numbers(header, found)
    check_codes(codes, items, width, made.side)
    held = codes[0:items] if lasting and items * width <= IN_MEMORY else codes
    ends = np.cumsum(found["sizes"], axis=0)
    starts = ends - found["sizes"]
    states = {
        name: _state(made, found, held, at, starts[at].tolist(), ends[at].tolist())
        for at, name in enumerate(header["collections"])
    }
    return StoredSketches(made, states, shapes["totals"][1], shapes["similarities"][1], gaps)


def _state(
    made: Made,
    found: dict[str, Any],
    codes: FileRows | NDArray[np.uint8],
    at: int,
    start: Sequence[int],
    end: Sequence[int],
) -> SketchState:
    state, cells, items = SketchState(), slice(start[0], end[0]), slice(start[1], end[1])
    state.levels = found["levels"][at]
    state.count, state.groups = int(state.levels.sum()), made.groups
    state.total, state.similarity_total = found["totals"][at], found["similarities"][at]
    state.skipped = dict(zip(SKIPS, found["skipped"][at].tolist(), strict=True))
    floors = found["floors"][at].tolist()
    state.cells = CellCounts(made.cells)
    state.cells.restore(floors[0], found["cell_keys"][cells], found["cell_counts"][cells])

    def rows() -> Rows:
        return found["item_levels"][items], codes[items], found["item_times"][items]

    state.replicate_cells = CodeRows(made.rows, made.groups - 1, made.side)
    state.replicate_cells.restore(floors[1], rows)
    return state


Place = str | os.PathLike[str]


@dataclass(frozen=True)
class SketchFile:
    """The sketches of a file by the names of their collections, and what was missing when they were made."""

    sketches: dict[str, Sketch]
    gaps: Missing


def write_sketches(path: Place, sketches: Mapping[str, Sketch], missing: Iterable[MissingPart] = ()) -> None:
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
    write_stored(path, made, sketches.items(), Missing.of(missing))


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

    write_stored(out, files[0].made, merged(), sum((stored.gaps for stored in files), Missing()))
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
