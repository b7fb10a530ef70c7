"""What a sketch from a file costs over merely reading the file, and how much memory it takes.

For each format the bare read (the format's own reader, the same blocks, every number summed) and the whole sketch
pass (`open_table`, then `Sketch.add`) take turns, each in a new process. Times are of the work alone,
without interpreter start and imports; the control set is fitted before. Files are written into a
temporary folder one at a time and read from the page cache.

Memory comes from one more run of each pass. Pages of a memory-mapped file count as resident although the system may
drop them at any time, so the peak of anonymous memory (RssAnon, sampled every few milliseconds) is what
is held against the target; the peak of all resident memory (VmHWM) is shown beside it.
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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from record import Check, Record, Table, parser, progress

FORMATS = {
    "npy": ("vectors.npy", 1.5),
    "arrow": ("vectors.arrow", 1.5),
    "parquet-list": ("list.parquet", 1.3),
    "parquet-list-zstd": ("list-zstd.parquet", 1.3),
    "parquet-fixed": ("fixed.parquet", 1.3),
}
MEMORY = 500.0  # MB
BLOCK_BYTES = 16 << 20  # the blocks in which divscore reads
WRITTEN = 65_536  # rows of a record batch or row group
LABELLED = 200


def made(rows: int, dimension: int, start: int) -> NDArray[np.float32]:
    """Vectors that depend on where they stand only."""
    rng = np.random.default_rng([start, 5])
    return rng.standard_normal((rows, dimension), dtype=np.float32)


def write(kind: str, path: Path, rows: int, dimension: int) -> None:
    """Write the vectors in one format, a batch at a time."""
    starts = range(0, rows, WRITTEN)
    blocks = (made(min(WRITTEN, rows - start), dimension, start) for start in starts)
    if kind == "npy":
        out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dimension))
        for start, block in zip(starts, blocks, strict=True):
            out[start : start + len(block)] = block
        out.flush()
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    fixed = kind in ("arrow", "parquet-fixed")
    field = pa.list_(pa.field("item", pa.float32()), dimension if fixed else -1)
    schema = pa.schema([pa.field("embedding", field)])
    if kind == "arrow":
        writer: Any = pa.ipc.new_file(path, schema)
    else:
        writer = pq.ParquetWriter(path, schema, compression="zstd" if kind.endswith("zstd") else "snappy")
    with writer:
        for block in blocks:
            numbers = pa.array(block.ravel())
            if fixed:
                column: Any = pa.FixedSizeListArray.from_arrays(numbers, type=field)
            else:
                edges = pa.array(np.arange(len(block) + 1, dtype=np.int32) * dimension)
                column = pa.ListArray.from_arrays(edges, numbers, type=field)
            writer.write_batch(pa.record_batch([column], schema=schema))


def read(kind: str, path: Path, dimension: int) -> Iterator[NDArray[Any]]:
    """Read the blocks with the format's own reader."""
    rows = BLOCK_BYTES // (4 * dimension)
    if kind == "npy":
        mapped = np.asarray(np.load(path, mmap_mode="r"))
        for start in range(0, len(mapped), rows):
            yield mapped[start : start + rows]
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "arrow":
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows).column(0).flatten().to_numpy()
        return
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=8 << 20) as file:
        for batch in file.iter_batches(batch_size=rows, columns=["embedding"]):
            yield batch.column(0).flatten().to_numpy()


def bare_pass(kind: str, path: Path, dimension: int) -> Callable[[], int]:
    """Prepare a pass that touches every number and does nothing with it."""

    def run() -> int:
        total, count = 0.0, 0
        for block in read(kind, path, dimension):
            total += float(block.sum())
            count += block.size // dimension
        assert np.isfinite(total)
        return count

    return run


def sketch_pass(path: Path, dimension: int) -> Callable[[], int]:
    """Prepare a sketch, its control set fitted, and the pass that fills it."""
    from divscore import ControlSet, Sketch
    from divscore.sources import open_table

    few = made(LABELLED, dimension, -1 % 2**32)
    names = ["first", "second"] * (LABELLED // 2)
    few[::2, 0] += 2.0
    sketch = Sketch(ControlSet(few, names, attribute="group"))

    def run() -> int:
        for block in open_table(path):
            sketch.add(block.vectors)
        return sketch.count

    return run


def child(side: str, kind: str, path: Path, dimension: int, sampled: bool) -> dict[str, float]:
    """Run one side in this process and measure it."""
    if kind != "npy":
        import pyarrow as pa
        import pyarrow.parquet

        # Imports are no part of a pass. The first conversion makes pyarrow import pandas where that is
        # installed: 0.2 s on either side, which would draw the ratio towards 1.
        pa.array(np.zeros(1)).to_numpy()
    run = bare_pass(kind, path, dimension) if side == "bare" else sketch_pass(path, dimension)
    peak = Peak() if sampled else None
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    count = run()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {"rows": count, "wall": wall, "cpu": cpu}
    if peak is not None:
        found |= {"anonymous": peak.stop(), "resident": status("VmHWM")}
    return found


def status(name: str) -> float:
    """Return a line of /proc/self/status in MB, NaN where the system has none.

    Not ru_maxrss: after fork and exec that still includes what the parent held.
    """
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), float("nan"))


class Peak:
    """Highest anonymous memory of this process, sampled by a thread."""

    def __init__(self, every: float = 0.004) -> None:
        self.highest = status("RssAnon")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(every,), daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """End the sampling and return the peak in MB."""
        self._done.set()
        self._thread.join()
        return max(self.highest, status("RssAnon"))

    def _sample(self, every: float) -> None:
        while not self._done.wait(every):
            self.highest = max(self.highest, status("RssAnon"))


def spawn(*arguments: str) -> dict[str, float]:
    """Run this file's child mode in a new process."""
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.stdout.strip() else {}


def measure(kind: str, folder: Path, options: argparse.Namespace) -> tuple[list[Any], list[Check]]:
    """Write, measure and delete the file of one format."""
    name, limit = FORMATS[kind]
    path = folder / name
    progress(f"{kind}: written and measured", 0, options.repetitions)
    size = [str(options.rows), str(options.dimension)]
    spawn("write", kind, str(path), *size)
    spawn("bare", kind, str(path), *size)  # brings the file into the page cache
    sides: dict[str, list[dict[str, float]]] = {"bare": [], "sketch": []}
    for turn in range(options.repetitions):
        for side, found in sides.items():
            found.append(spawn(side, kind, str(path), *size))
            if found[-1]["rows"] != options.rows:
                raise SystemExit(f"{kind}: {side} saw {found[-1]['rows']:.0f} of {options.rows} rows")
        progress(f"{kind}: written and measured", turn + 1, options.repetitions)
    memory = spawn("sketch", kind, str(path), *size, "sampled")
    smaller = path.with_name(f"quarter-{name}")
    spawn("write", kind, str(smaller), str(options.rows // 4), str(options.dimension))
    quarter = spawn("sketch", kind, str(smaller), *size, "sampled")
    megabytes = path.stat().st_size / 2**20
    path.unlink()
    smaller.unlink()
    least = {(s, m): min(f[m] for f in found) for s, found in sides.items() for m in ("cpu", "wall")}
    usual = {s: median(f["cpu"] for f in found) for s, found in sides.items()}
    cpu = least["sketch", "cpu"] / least["bare", "cpu"]
    wall = least["sketch", "wall"] / least["bare", "wall"]
    row = [
        kind,
        megabytes,
        least["bare", "cpu"],
        least["sketch", "cpu"],
        cpu,
        usual["sketch"] / usual["bare"],
    ]
    row += [wall, quarter["anonymous"], memory["anonymous"], memory["resident"]]
    checks = [
        Check(f"sketch over bare read, processor time, {kind}", cpu, limit),
        Check(f"anonymous memory, {kind}", memory["anonymous"], MEMORY, unit=" MB"),
    ]
    return row, checks


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        _serve(sys.argv[2:])
        return
    options = _options()
    names = ("rows", "dimension", "repetitions", "formats")
    record = Record("files", {name: getattr(options, name) for name in names})
    rows = []
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        for kind in options.formats:
            row, checks = measure(kind, Path(folder), options)
            rows.append(row)
            record.checks += checks
    columns = ["format", "file MB", "bare CPU s", "sketch CPU s", "CPU ratio", "of medians", "wall ratio"]
    columns += ["anonymous MB, N/4", "anonymous MB", "resident MB"]
    record.tables.append(Table(f"Sketch from a file of {options.rows:,} vectors", columns, rows))
    record.finish(options.out)


def _serve(arguments: list[str]) -> None:
    side, kind, path, rows, dimension, *rest = arguments
    if side == "write":
        write(kind, Path(path), int(rows), int(dimension))
    else:
        print(json.dumps(child(side, kind, Path(path), int(dimension), bool(rest))))


def _options() -> argparse.Namespace:
    options = parser("files", (__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=1_000_000, help="vectors in a file")
    options.add_argument("--dimension", type=int, default=300, help="their length")
    options.add_argument("--repetitions", type=int, default=5, help="runs of each side")
    options.add_argument("--dir", type=Path, default=None, help="where the temporary folder is made")
    options.add_argument(
        "--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="formats to measure"
    )
    return options.parse_args()


if __name__ == "__main__":
    main()
