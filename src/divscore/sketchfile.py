"""Sketches on disk: a zip of plain arrays with a JSON header; every member carries a checksum."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divscore.cells import CellCounts
from divscore.control import ControlSet
from divscore.errors import FileError, MismatchError
from divscore.scorer import REPLICATES
from divscore.sketch import Sketch
from divscore.state import SKIPS, SketchState

__all__ = ["is_sketch", "merge_sketches", "read_sketches", "write_sketches"]

FORMAT = "divscore.sketch/1"
HEADER = "header.json"
ARRAYS = ("total", "similarity_total", "levels")
COUNTS = ("cells", "replicate_cells")


@dataclass(frozen=True)
class _Stored:
    """A sketch file's content: whose control set, which seed, and the state of every collection."""

    control: str
    attribute: str
    seed: int
    states: dict[str, SketchState]


def write_sketches(path: str | os.PathLike[str], sketches: Mapping[str, Sketch]) -> None:
    """Write the sketches of named collections to one file, which appears whole or not at all."""
    first = next(iter(sketches.values()))
    _write(path, _Stored(first.control.digest, first.control.attribute, first.seed, dict(sketches)))


def read_sketches(path: str | os.PathLike[str], control: ControlSet) -> dict[str, Sketch]:
    """Read the sketches of a file; they must have been made with `control`."""
    stored = _read(path)
    if stored.control != control.digest:
        raise MismatchError(
            f"{path} was made with another control set (of attribute '{stored.attribute}'); "
            "give that control set, or make the sketch anew with this one"
        )
    found = {}
    for name, state in stored.states.items():
        found[name] = Sketch(control, seed=stored.seed)
        found[name].__dict__.update(state.__dict__)
    return found


def merge_sketches(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> dict[str, int]:
    """Join sketch files without their control set; returns the number of items of each collection.

    Files of one collection each become one collection, named after `out`; otherwise collections of the same
    name are joined.
    """
    files = [_read(path) for path in paths]
    first = files[0]
    for path, other in zip(paths, files, strict=True):
        if (other.control, other.seed) != (first.control, first.seed):
            raise MismatchError(
                f"{path} and {paths[0]} were made with different control sets or seeds and cannot be merged"
            )
    single = all(len(stored.states) == 1 for stored in files)
    merged: dict[str, SketchState] = {}
    for stored in files:
        for own, state in stored.states.items():
            name = Path(out).stem if single else own
            if name in merged:
                merged[name].absorb(state)
            else:
                merged[name] = state
    _write(out, _Stored(first.control, first.attribute, first.seed, merged))
    return {name: state.count for name, state in merged.items()}


def is_sketch(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like one that `write_sketches` wrote."""
    if not Path(path).is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return HEADER in archive.namelist()


def _write(path: str | os.PathLike[str], stored: _Stored) -> None:
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    header = {
        "format": FORMAT,
        "control": stored.control,
        "attribute": stored.attribute,
        "seed": stored.seed,
        "replicates": REPLICATES,
        "collections": [_entry(name, state) for name, state in stored.states.items()],
    }
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(HEADER, json.dumps(header, ensure_ascii=False))
            for at, state in enumerate(stored.states.values()):
                for name in ARRAYS:
                    _save(archive, f"{at}/{name}.npy", getattr(state, name))
                for name in COUNTS:
                    _save(archive, f"{at}/{name}_keys.npy", getattr(state, name).keys)
                    _save(archive, f"{at}/{name}_counts.npy", getattr(state, name).counts)
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"cannot write the sketch to {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _entry(name: str, state: SketchState) -> dict[str, Any]:
    shapes = {
        which: {"cells": counts.cells, "rows": counts.rows, "floor": counts.floor}
        for which, counts in ((c, getattr(state, c)) for c in COUNTS)
    }
    return {"name": name, "count": state.count, "groups": state.groups, "skipped": state.skipped, **shapes}


def _read(path: str | os.PathLike[str]) -> _Stored:
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read(HEADER))
            if header.get("format") != FORMAT:
                raise FileError(f"{path} has format {header.get('format')!r}; this version reads {FORMAT}")
            if header["replicates"] != REPLICATES:
                raise FileError(f"{path} was made by another version of divscore; make the sketch anew")
            states = {
                str(entry["name"]): _state(archive, at, entry)
                for at, entry in enumerate(header["collections"])
            }
            return _Stored(header["control"], header["attribute"], int(header["seed"]), states)
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except FileError:
        raise
    except Exception as error:  # a damaged zip can fail in a dozen ways, and all mean the same here
        raise FileError(f"{path} is not a sketch, or is damaged ({error}); make it anew") from error


def _state(archive: zipfile.ZipFile, at: int, entry: dict[str, Any]) -> SketchState:
    state = SketchState()
    state.count, state.groups = int(entry["count"]), int(entry["groups"])
    state.skipped = {kind: int(entry["skipped"].get(kind, 0)) for kind in SKIPS}
    for name in ARRAYS:
        setattr(state, name, _load(archive, f"{at}/{name}.npy"))
    for name in COUNTS:
        counts = CellCounts(int(entry[name]["cells"]), int(entry[name]["rows"]))
        keys, numbers = (_load(archive, f"{at}/{name}_{part}.npy") for part in ("keys", "counts"))
        counts.restore(int(entry[name]["floor"]), keys, numbers)
        setattr(state, name, counts)
    return state


def _save(archive: zipfile.ZipFile, name: str, array: Any) -> None:
    with archive.open(name, "w") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def _load(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
