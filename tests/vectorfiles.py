"""Small files of vectors in every format, and fingerprints of their sketches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plainshell
import pyarrow as pa
import pyarrow.parquet as pq

from divscore import ControlSet, Sketch
from divscore.audit.audit import audit
from divscore.sources import open_table

ROWS, DIMENSION = 300, 8
NAMES = ("first", "second", "third")
CLEAN = 12  # from this row on, all vectors are usable
FORMATS = ("npy", "npz", "parquet", "arrow", "csv", "jsonl")


def fingerprint(sketch: Sketch, control: ControlSet) -> tuple[Any, ...]:
    """Everything that a result depends on, to the last bit."""
    result = json.dumps(audit(sketch, control, name="x").to_dict())
    return sketch.count, tuple(sketch.skipped.items()), *plainshell.numbers(sketch), result


def fingerprints(found: Any, control: ControlSet) -> dict[str, tuple[Any, ...]]:
    return {name: fingerprint(sketch, control) for name, sketch in found.sketches.items()}


def matrix(seed: int, rows: int = ROWS) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    found[seed % rows] = 0.0
    found[(seed + 7) % rows, 2] = np.nan
    return found


def write(path: Path, vectors: np.ndarray) -> None:
    names = [NAMES[row % 3] for row in range(len(vectors))]
    if path.suffix == ".npy":
        np.save(path, vectors)
    elif path.suffix == ".npz":
        np.savez(path, embedding=vectors, kind=np.array(names))
    elif path.suffix == ".csv":
        rows = (f'"{json.dumps([float(x) for x in v])}",{n}' for v, n in zip(vectors, names, strict=True))
        path.write_text("\n".join(["embedding,kind", *rows]) + "\n")
    elif path.suffix == ".jsonl":
        rows = (
            json.dumps({"embedding": [float(x) for x in v], "kind": n})
            for v, n in zip(vectors, names, strict=True)
        )
        path.write_text("\n".join(rows) + "\n")
    else:
        table = pa.table({"embedding": list(vectors), "kind": names})
        if path.suffix == ".parquet":
            pq.write_table(table, path, row_group_size=40)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=40)


def letters() -> ControlSet:
    """Forty labelled examples."""
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(40, DIMENSION)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    return ControlSet(vectors, ["a"] * 20 + ["b"] * 20, attribute="letter")


def opened(folder: Path, form: str, by: str | None = None) -> Any:
    return open_table(str(folder / f"*.{form}"), extra=[by] if by else [])
