"""StoredSketches: what a sketch file holds; a few large arrays for all collections together, and a JSON header.

Magic, codes of the sampled items, arrays, header, length of the header, SHA-256 of all of that. Codes come first
because they are most of a file: written one collection after the other, and read when somebody looks at them.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.audit.missing import Gaps
from divscore.errors import DivscoreError, FileError
from divscore.files import CheckedReader, CheckedWriter, FileRows, unreadable
from divscore.sketch.cells import CellCounts
from divscore.sketch.codes import CodeRows, Rows
from divscore.sketch.scorer import REPLICATES
from divscore.sketch.sketchcheck import check_codes, check_header, check_numbers, check_shapes
from divscore.sketch.state import SKIPS, SketchState

__all__ = ["Made", "StoredSketches", "is_sketch", "read_stored", "write_stored"]

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
    gaps: Gaps = field(default_factory=Gaps)


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
    path: str | os.PathLike[str], made: Made, states: Iterable[tuple[str, SketchState]], gaps: Gaps
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
    gaps = Gaps.of(header.get("missing", {}))
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
