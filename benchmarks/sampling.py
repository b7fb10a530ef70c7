"""What it costs to draw items to label, against a sketch of the same vectors, and how many rows a draw reads.

A sketch with a control set, a draw in pairs with the same control set and a random draw take turns, each in a new
process. Times are of the work alone, without interpreter start and imports; the control set is fitted before. Files are
written into a temporary folder one at a time and read from the page cache. Memory is the peak of anonymous memory.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from files import FORMATS, LABELLED, Peak, made, write
from record import Check, Record, Table, parser, progress

KINDS = ("npy", "arrow", "parquet-fixed")
LIMIT = 1.5  # of the time of a sketch
MEMORY = 500.0  # MB
SIDES = ("sketch", "pairs", "random")


def work(side: str, path: str, size: int, dimension: int, workers: int) -> Callable[[], int]:
    """Prepare one side, its control set fitted; it returns the number of items that it counted."""
    from divscore import ControlSet
    from divscore.jobs.sampling import sample_source
    from divscore.jobs.sketching import sketch_source
    from divscore.sketch.scorer import scorer_for
    from divscore.sources import open_table

    few = made(LABELLED, dimension, -1 % 2**32)
    few[::2, 0] += 2.0
    control = ControlSet(few, ["first", "second"] * (LABELLED // 2), attribute="group")
    scorer_for(control)
    if side == "sketch":

        def sketched() -> int:
            done = sketch_source(open_table(path), control, workers=workers)
            return sum(sketch.count for sketch in done.sketches.values())

        return sketched
    examples = control if side == "pairs" else None
    return lambda: sample_source(path, size, examples, workers=workers).items[0].size or 0


def child(side: str, kind: str, path: str, size: int, dimension: int, workers: int, watched: bool) -> Any:
    """Run one side in this process and measure it; `watched` also counts the rows that are read, and memory."""
    from divscore.sources.table import Table as Source

    if kind != "npy":
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet

        pa.array(np.zeros(1)).to_numpy()  # imports pandas, if it is installed
    run = work(side, path, size, dimension, workers)
    rows = 0
    if watched:
        plain = Source.__iter__

        def counted(self: Source) -> Any:
            nonlocal rows
            for block in plain(self):
                rows += len(block.vectors) if self.request.vectors else 0
                yield block

        Source.__iter__ = counted  # type: ignore[method-assign]
    peak = Peak() if watched else None
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    count = run()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"count": count, "wall": wall, "cpu": cpu, "rows": rows, "memory": peak.stop() if peak else None}


def spawn(*arguments: object) -> Any:
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measure(kind: str, folder: Path, options: argparse.Namespace) -> tuple[list[list[Any]], list[Check]]:
    """Write a file, let the sides take turns, and remove it."""
    path = folder / FORMATS[kind][0]
    write(kind, path, options.rows, options.dimension)
    about = (kind, path, options.size, options.dimension, options.workers)
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    spawn("sketch", *about, 0)  # brings the file into the page cache
    for turn in range(options.repetitions):
        for side in SIDES:
            runs[side].append(spawn(side, *about, 0))
            if runs[side][-1]["count"] != options.rows:
                raise SystemExit(f"{kind}: {side} saw {runs[side][-1]['count']} of {options.rows} rows")
        progress(kind, turn + 1, options.repetitions)
    seen = {side: spawn(side, *about, 1) for side in SIDES}
    path.unlink()
    least = {side: {m: min(run[m] for run in runs[side]) for m in ("wall", "cpu")} for side in SIDES}
    rows, checks = [], []
    for side in SIDES:
        usual = median(run["wall"] for run in runs[side])
        ratios = [least[side][m] / least["sketch"][m] for m in ("wall", "cpu")]
        passes = seen[side]["rows"] / options.rows
        rows.append([kind, side, least[side]["wall"], usual, *ratios, passes, seen[side]["memory"]])
        if side == "pairs":
            checks += [
                Check(f"pairs over sketch, {kind}", ratios[0], LIMIT),
                Check(f"rows that pairs read over rows, {kind}", passes, 1.0),
                Check(f"anonymous memory, {kind}", seen[side]["memory"], MEMORY, unit=" MB"),
            ]
    return rows, checks


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        side, kind, path, *numbers = sys.argv[2:]
        size, dimension, workers, watched = map(int, numbers)
        print(json.dumps(child(side, kind, path, size, dimension, workers, bool(watched))))
        return
    found = parser("sampling", (__doc__ or "").partition("\n")[0])
    found.add_argument("--rows", type=int, default=1_000_000, help="vectors in a file")
    found.add_argument("--dimension", type=int, default=300, help="their length")
    found.add_argument("--size", type=int, default=60, help="items to draw")
    found.add_argument("--workers", type=int, default=1, help="number of threads")
    found.add_argument("--repetitions", type=int, default=7, help="runs of each side")
    found.add_argument("--dir", type=Path, default=None, help="where the temporary folder is made")
    options = found.parse_args()
    names = ("rows", "dimension", "size", "workers", "repetitions")
    record = Record("sampling", {name: getattr(options, name) for name in names})
    rows = []
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        for kind in KINDS:
            more, checks = measure(kind, Path(folder), options)
            rows += more
            record.checks += checks
    columns = ["format", "side", "least s", "median s", "wall ratio", "CPU ratio", "vectors read / rows"]
    columns.append("anonymous MB")
    title = f"{options.size} of {options.rows:,} vectors"
    record.tables.append(Table(title, columns, rows))
    record.finish(options.out)


if __name__ == "__main__":
    main()
