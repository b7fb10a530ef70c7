"""Sketches on disk: a few large arrays for all collections together, a JSON header at the end, and a checksum.

Magic, codes of the sampled items, arrays, header, length of the header, SHA-256 of all of that. Codes come first
because they are most of a file: written one collection after the other, and read when somebody looks at them.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divscore.cells import CellCounts
from divscore.checkedfile import CheckedReader, CheckedWriter, FileRows
from divscore.codes import CodeRows, Rows
from divscore.control import ControlSet
from divscore.errors import DivscoreError, FileError, InputError, MismatchError
from divscore.scorer import REPLICATES
from divscore.sketch import Sketch
from divscore.state import SKIPS, SketchState
from divscore.wording import printable

__all__ = ["is_sketch", "merge_sketches", "read_sketches", "subtract_sketches", "write_sketches"]

FORMAT = "divscore.sketch/2"
MAGIC = b"divscore sketch\n"
OLD_HEADER = "header.json"  # of the zip files that were format 1
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
class _Made:
    """What all sketches of a file have in common."""

    control: str
    attribute: str
    seed: int
    groups: int
    cells: int
    rows: int
    side: int


@dataclass(frozen=True)
class _Stored:
    """A sketch file's content: how it was made, and the state of every collection."""

    made: _Made
    states: dict[str, SketchState]


def write_sketches(path: str | os.PathLike[str], sketches: Mapping[str, Sketch]) -> None:
    """Write the sketches of named collections to one file, which appears whole or not at all."""
    if not sketches:
        raise InputError(f"there is no sketch to write to {path}")
    first = next(iter(sketches.values()))
    sample = first.replicate_cells
    made = _Made(
        first.control.digest,
        first.control.attribute,
        first.seed,
        first.groups,
        first.cells.cells,
        sample.rows,
        sample.side,
    )
    _write(path, made, sketches.items())


def read_sketches(path: str | os.PathLike[str], control: ControlSet) -> dict[str, Sketch]:
    """Read the sketches of a file; they must have been made with `control`."""
    stored = _read(path)
    if stored.made.control != control.digest:
        raise MismatchError(
            f"{path} was made with another control set (of attribute '{printable(stored.made.attribute)}'); "
            "give that control set, or make the sketch anew with this one"
        )
    blank = Sketch(control, seed=stored.made.seed)
    return {name: blank.holding(state) for name, state in stored.states.items()}


def merge_sketches(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> dict[str, int]:
    """Join sketch files without their control set; returns the number of items of each collection.

    Files of one collection each become one collection, named after `out`; otherwise collections of the same
    name are joined.
    """
    files = [_read(path) for path in paths]
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

    _write(out, files[0].made, merged())
    return counts


def subtract_sketches(
    path: str | os.PathLike[str], minus: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> dict[str, int]:
    """Take sketch files out of another without their control set; returns the items left in each collection.

    If every file holds one collection, it is taken out of that one; otherwise collections of the same name are
    taken out of each other. All that is taken out must have been counted in.
    """
    whole, files = _read(path), [_read(each) for each in minus]
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

    _write(out, whole.made, left())
    return counts


def is_sketch(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like one that `write_sketches` wrote, now or in an earlier version."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC or _is_old(path)


def _is_old(path: str | os.PathLike[str]) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return OLD_HEADER in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _same(
    other: _Stored, path: str | os.PathLike[str], first: _Stored, origin: str | os.PathLike[str], what: str
) -> None:
    if (other.made.control, other.made.seed) != (first.made.control, first.made.seed):
        raise MismatchError(
            f"{path} and {origin} were made with different control sets or seeds and cannot be {what}"
        )


def _write(path: str | os.PathLike[str], made: _Made, states: Iterable[tuple[str, SketchState]]) -> None:
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
            for key, value in zip(LONG, (state.cells.keys, state.cells.counts, level, times), strict=True):
                long[key].append(value)
        arrays = {key: np.array(found, dtype=EACH[key]) for key, found in each.items()}
        arrays |= {key: np.concatenate(found).astype(LONG[key]) for key, found in long.items()}
        for array in arrays.values():
            file.write(array)
        header = {
            "format": FORMAT,
            "replicates": REPLICATES,
            **made.__dict__,
            "skips": SKIPS,
            "shapes": {key: array.shape for key, array in arrays.items()},
            "collections": names,
        }
        file.finish(json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _read(path: str | os.PathLike[str]) -> _Stored:
    try:
        with CheckedReader(path, MAGIC) as file:
            header = json.loads(file.header.decode("utf-8", "surrogatepass"))
            if header.get("format") != FORMAT:
                raise FileError(f"{path} has format {header.get('format')!r}; this version reads {FORMAT}")
            if header["replicates"] != REPLICATES or tuple(header["skips"]) != SKIPS:
                raise FileError(f"{path} was made by another version of divscore; make the sketch anew")
            made = _Made(**{key: header[key] for key in _Made.__annotations__})
            return _Stored(made, _states(file, header, made))
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except DivscoreError:
        if _is_old(path):
            raise FileError(
                f"{path} has format 'divscore.sketch/1', of an earlier version; this version reads {FORMAT}. "
                "Make the sketch anew"
            ) from None
        raise
    except Exception as error:  # a file that is whole but wrong inside can fail in a dozen ways
        raise FileError(f"{path} is not a sketch, or is damaged ({error}); make it anew") from error


def _states(file: CheckedReader, header: dict[str, Any], made: _Made) -> dict[str, SketchState]:
    shapes, width = header["shapes"], made.rows * (made.groups - 1)
    items = int(shapes["item_levels"][0])
    codes = file.rows(items, width)
    found = {key: file.array(kind, shapes[key]) for key, kind in {**EACH, **LONG}.items()}
    ends = np.cumsum(found["sizes"], axis=0)
    if len(ends) != len(header["collections"]) or (
        len(ends) and ends[-1].tolist() != [len(found["cell_keys"]), items]
    ):
        raise ValueError("numbers of items that do not add up")
    starts = ends - found["sizes"]
    return {
        str(name): _state(made, found, codes, at, starts[at].tolist(), ends[at].tolist())
        for at, name in enumerate(header["collections"])
    }


def _state(
    made: _Made, found: dict[str, Any], codes: FileRows, at: int, start: list[int], end: list[int]
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
