"""Sketches on disk: a zip of plain arrays with a JSON header; every member carries a checksum."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from divscore.control import ControlSet
from divscore.errors import FileError, MismatchError
from divscore.scorer import REPLICATES
from divscore.sketch import Sketch

__all__ = ["is_sketch", "read_sketches", "write_sketches"]

FORMAT = "divscore.sketch/1"
HEADER = "header.json"
ARRAYS = ("total", "similarity_total", "levels")
COUNTS = ("cells", "replicate_cells")


def write_sketches(path: str | os.PathLike[str], sketches: Mapping[str, Sketch]) -> None:
    """Write the sketches of named collections to one file, which appears whole or not at all."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    first = next(iter(sketches.values()))
    header: dict[str, Any] = {
        "format": FORMAT,
        "control": first.control.digest,
        "attribute": first.control.attribute,
        "seed": first.seed,
        "replicates": REPLICATES,
        "collections": [_entry(name, sketch) for name, sketch in sketches.items()],
    }
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(HEADER, json.dumps(header, ensure_ascii=False))
            for at, sketch in enumerate(sketches.values()):
                for name in ARRAYS:
                    _write(archive, f"{at}/{name}.npy", getattr(sketch, name))
                for name in COUNTS:
                    _write(archive, f"{at}/{name}_keys.npy", getattr(sketch, name).keys)
                    _write(archive, f"{at}/{name}_counts.npy", getattr(sketch, name).counts)
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"cannot write the sketch to {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def is_sketch(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like one that `write_sketches` wrote."""
    if not Path(path).is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return HEADER in archive.namelist()


def read_sketches(path: str | os.PathLike[str], control: ControlSet) -> dict[str, Sketch]:
    """Read the sketches of a file; they must have been made with `control`."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read(HEADER))
            _check(path, header, control)
            return {
                entry["name"]: _read_one(archive, at, entry, control, header["seed"])
                for at, entry in enumerate(header["collections"])
            }
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        if isinstance(error, MismatchError | FileError):
            raise
        raise FileError(f"{path} is not a sketch, or is damaged ({error}); make it anew") from error


def _entry(name: str, sketch: Sketch) -> dict[str, Any]:
    floors = {f"{which}_floor": getattr(sketch, which).floor for which in COUNTS}
    return {"name": name, "count": sketch.count, "skipped": sketch.skipped, **floors}


def _check(path: str | os.PathLike[str], header: dict[str, Any], control: ControlSet) -> None:
    if header.get("format") != FORMAT:
        raise FileError(f"{path} has format {header.get('format')!r}; this version reads {FORMAT}")
    if header["control"] != control.digest:
        raise MismatchError(
            f"{path} was made with another control set (of attribute '{header['attribute']}'); "
            "give that control set, or make the sketch anew with this one"
        )
    if header["replicates"] != REPLICATES:
        raise FileError(f"{path} was made by another version of divscore; make the sketch anew")


def _read_one(archive: zipfile.ZipFile, at: int, entry: dict[str, Any], control: ControlSet, seed: int) -> Sketch:
    sketch = Sketch(control, seed=seed)
    sketch.count = int(entry["count"])
    sketch.skipped = {kind: int(entry["skipped"][kind]) for kind in sketch.skipped}
    for name in ARRAYS:
        setattr(sketch, name, _read(archive, f"{at}/{name}.npy"))
    for name in COUNTS:
        counts = getattr(sketch, name)
        counts.floor = int(entry[f"{name}_floor"])
        counts.keys = _read(archive, f"{at}/{name}_keys.npy")
        counts.counts = _read(archive, f"{at}/{name}_counts.npy")
    return sketch


def _write(archive: zipfile.ZipFile, name: str, array: Any) -> None:
    with archive.open(name, "w") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def _read(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
