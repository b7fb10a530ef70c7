"""A pass on every engine in a process without settings for linear algebra, as in most shells; prints what each gave."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from divscore import ControlSet, Sketch
from divscore.audit.audit import audit
from divscore.jobs.auditing import audit_many
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.engine import Engine
from divscore.jobs.sketching import sketch_source
from divscore.sketch.many import sketch_blocks
from divscore.sketch.scorer import scorer_for
from divscore.sources import open_table

FILES, ROWS, DIMENSION = 2, 17_000, 300  # more than 32,768 rows, from which on sums are taken over strips
SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def numbers(sketch: Sketch) -> list[bytes]:
    """Everything that a result depends on, to the last bit."""
    sample = sketch.sample
    arrays = (sketch.total, *sketch.scores(), sample.hash, sample.rows, sample.step, sample.copies)
    return [str(sample.limit).encode(), *(each.tobytes() for each in arrays)]


def digest(sketch: Sketch, control: ControlSet) -> str:
    result = json.dumps(audit(sketch, control, name="x").to_dict())
    return hashlib.sha256(b"".join([*numbers(sketch), result.encode()])).hexdigest()


def run(folder: str, address: str | None) -> dict[str, str]:
    for at in range(FILES):
        vectors = np.random.default_rng(at).standard_normal((ROWS, DIMENSION), dtype=np.float32)
        np.save(Path(folder) / f"{at}.npy", vectors)
    rng = np.random.default_rng(9)
    pool = rng.normal(size=(200, DIMENSION)) + np.repeat([[0.2], [-0.2]], 100, axis=0)
    control = ControlSet(pool, ["a"] * 100 + ["b"] * 100, attribute="letter")
    source = open_table(f"{folder}/*.npy")
    engines: dict[str, Any] = {"one": Engine(1)}
    if address:
        engines["cluster"] = ClusterEngine(address)
    else:
        engines |= {"threads": Engine(2), "processes": Engine(2, processes=True)}
    found = {}
    for name, engine in engines.items():
        with engine:
            done = sketch_source(source, control, engine=engine)
            told = audits(control, engine)
        assert done.rows == FILES * ROWS
        found[name] = digest(next(iter(done.sketches.values())), control) + told
    return found


def audits(control: ControlSet, engine: Engine) -> str:
    """Digest of the audits of several collections."""
    rows = np.random.default_rng(8).standard_normal((1500, DIMENSION), dtype=np.float32)
    stream, scorer = [(rows, ([f"c{at}" for at in range(3)], np.arange(len(rows)) % 3))], scorer_for(control)
    sketches = sketch_blocks(stream, control, scorer).sketches(control, scorer)
    results = [each.to_dict(replicates=True) for each in audit_many(sketches, control, engine=engine)]
    assert len(results) == 3
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)))
