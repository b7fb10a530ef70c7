"""Past one machine: a Dask cluster on loopback against one process, thousands of collections, ten million rows.

Everything is measured in one run, beside the bare read of the same files. Times are processor seconds of the pass
alone: for one process its own, for the cluster those of all workers, the scheduler and the client together, read from
/proc before and after. Imports and what else is done once a process are left out. The cluster is the one of the tests,
set up as docs/scale.md says: a scheduler and two nodes of one worker each. Data lie in a temporary folder and are read
from the page cache. The largest pass reads a tenth as many different rows, each ten times.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import files
import numpy as np
from record import HERE, Check, Record, Table, parser, progress

sys.path.insert(0, str(HERE.parent / "tests"))

DIMENSION = 300
NODES = 2
MEMORY = 600.0  # MB a worker
COLLECTIONS = 10_000
FORMATS = ("npy", "arrow", "parquet-fixed", "parquet-list", "csv", "jsonl")
TIMES = (1, 2, 4)  # how often a pass goes over the same files: the longest is predicted from the shorter ones
TEXT = 20  # tables of text get a twentieth of the rows


def control() -> Any:
    from divscore import ControlSet

    few = files.made(files.LABELLED, DIMENSION, 2**32 - 1)
    few[::2, 0] += 2.0
    return ControlSet(few, ["first", "second"] * (files.LABELLED // 2), attribute="group")


def state_of(sketches: dict[str, Any], labelled: Any) -> str:
    """Everything that an answer depends on, to the last bit, and the answer; names of collections are left out."""
    import hashlib

    from divscore.audit.audit import audit

    state = hashlib.sha256()
    for sketch in sketches.values():
        sample = sketch.sample
        sampled = (sample.hash, sample.rows, sample.step, sample.copies)
        arrays = (sketch.total, sketch.similarity_total, *sketch.scores(), *sampled)
        for array in arrays:
            state.update(array.tobytes())
        measured = audit(sketch, labelled).to_dict()
        numbers = (sketch.count, sketch.skipped, sketch.seed, sample.limit, measured)
        state.update(json.dumps(numbers).encode())
    return state.hexdigest()


def write(kind: str, path: Path, rows: int) -> None:
    """Write vectors in a format."""
    if kind in files.FORMATS:
        files.write(kind, path, rows, DIMENSION)
        return
    block = files.made(rows, DIMENSION, 0)
    with open(path, "w", encoding="utf-8") as stream:
        if kind == "csv":
            stream.write("embedding\n")
        for row in block:
            text = json.dumps([round(float(x), 6) for x in row])
            stream.write(f'"{text}"\n' if kind == "csv" else f'{{"embedding": {text}}}\n')


def write_collections(path: Path, rows: int) -> None:
    """Write vectors to an Arrow or Parquet file with a column of as many names as there are collections."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.list_(pa.field("item", pa.float32()), DIMENSION)
    names = pa.array([f"collection {at:05}" for at in range(COLLECTIONS)])
    schema = pa.schema([("embedding", numbers), ("kind", pa.dictionary(pa.int32(), pa.string()))])
    arrow = path.suffix == ".arrow"
    with (
        pa.ipc.new_file(path, schema)
        if arrow
        else pq.ParquetWriter(path, schema, use_dictionary=["kind"]) as writer
    ):
        for start in range(0, rows, files.WRITTEN):
            block = files.made(min(files.WRITTEN, rows - start), DIMENSION, start)
            codes = np.random.default_rng(start).integers(0, COLLECTIONS, len(block)).astype(np.int32)
            columns = [
                pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), type=numbers),
                pa.DictionaryArray.from_arrays(pa.array(codes), names),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def bare(kind: str, pattern: str) -> int:
    """Read all vectors with the format's own reader."""
    count = 0
    for path in sorted(Path(pattern).parent.glob(Path(pattern).name)):
        if kind in files.FORMATS:
            count += sum(
                block.size // DIMENSION for block in files.read(kind, path, DIMENSION) if block.sum() < 1e30
            )
        else:
            count += sum(np.isfinite(vector.sum()) for vector in _texts(kind, path))
    return int(count)


def _texts(kind: str, path: Path) -> Iterator[Any]:
    """Vectors of a table of text, as numbers."""
    if kind == "csv":
        import pyarrow.csv as pc

        cells = (cell for batch in pc.open_csv(path) for cell in batch.column(0).to_pylist())
        yield from (np.array(json.loads(cell), dtype=np.float32) for cell in cells)
        return
    with open(path, "rb") as stream:
        yield from (np.array(json.loads(line)["embedding"], dtype=np.float32) for line in stream)


def child(side: str, kind: str, pattern: str, by: str) -> dict[str, Any]:
    """One process: the bare read or the whole pass, measured."""
    from divscore.jobs.sketching import sketch_source
    from divscore.sources import open_table

    # What is loaded or set up once is no part of a pass: one over the first file goes before.
    first = min(Path(pattern).parent.glob(Path(pattern).name))
    found: Any = None
    if side == "bare":
        next(iter(_texts(kind, first) if kind not in files.FORMATS else files.read(kind, first, DIMENSION)))
    else:
        labelled = control()
        sketch_source(open_table(first, extra=[by] if by else []), labelled, by=by or None)
    peak = files.Peak()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    if side == "bare":
        rows = bare(kind, pattern)
    else:
        source = open_table(pattern, extra=[by] if by else [])
        found = sketch_source(source, labelled, by=by or None)
        rows = found.rows
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    measured: dict[str, Any] = {"rows": rows, "wall": wall, "cpu": cpu, "anonymous": peak.stop()}
    if found is not None:
        measured |= {"collections": len(found.sketches), "partitions": found.partitions}
        if not by:  # nobody compares those of many collections
            measured["state"] = state_of(found.sketches, labelled)
    return measured


def alone(side: str, kind: str, pattern: Path, by: str = "", repetitions: int = 1) -> dict[str, Any]:
    """Best of some runs, each in a new process."""
    command = [sys.executable, __file__, "--child", side, kind, str(pattern), by]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(repetitions)
    ]
    return min(runs, key=lambda run: run["cpu"])


def processor_seconds(process: int) -> float:
    """What a process has used; those that it started are asked themselves."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def cluster_passes(pattern: Path, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Measured passes on a cluster, and one during which a worker and then a node are killed."""
    from loopback import LoopbackCluster, worker_processes

    from divscore.jobs.cluster import ClusterEngine
    from divscore.jobs.sketching import sketch_source
    from divscore.sources import open_table

    labelled = control()
    with LoopbackCluster(scratch, nodes=NODES) as cluster, ClusterEngine(cluster.address) as engine:
        nannies = [node.pid for node in cluster.nodes]
        workers = [pid for nanny in nannies for pid in worker_processes(nanny)]

        def used() -> float:
            return sum(map(processor_seconds, [os.getpid(), cluster.scheduler.pid, *nannies, *workers]))

        def once(files: Path) -> dict[str, Any]:
            source = open_table(str(files))
            before, start = used(), time.perf_counter()
            found = sketch_source(source, labelled, engine=engine)
            wall, cpu = time.perf_counter() - start, used() - before
            state = state_of(found.sketches, labelled)
            return {"cpu": cpu, "wall": wall, "state": state, "partitions": found.partitions}

        once(pattern)  # workers load what they need
        runs = [once(pattern) for _ in range(options.repetitions)]
        quarter, half, whole = (
            min(
                (once(pattern.parents[1] / f"times-{times}" / "*.npy") for _ in range(options.repetitions)),
                key=lambda run: run["wall"],
            )
            for times in TIMES
        )
        memory = max(cluster.peak_memory())
        done, killed = 0, []

        def kill(rows: int) -> None:
            nonlocal done
            done += rows
            if not killed and done >= options.rows / 16:
                killed.append(cluster.kill_worker(0))
            elif len(killed) == 1 and done >= options.rows / 3:
                killed.append(cluster.kill_node(1))

        cluster.add_node()
        survived = state_of(pass_on(pattern, labelled, engine, kill).sketches, labelled)
        damaged = pass_on(pattern.parents[1] / "damaged" / pattern.name, labelled, engine)
    best = min(runs, key=lambda run: run["cpu"])
    states = {run["state"] for run in runs}
    each = (half["wall"] - quarter["wall"]) / (half["partitions"] - quarter["partitions"])
    start = quarter["wall"] - each * quarter["partitions"]
    simulated = predicted_wall(whole["partitions"], each * NODES, NODES) + start
    return {
        **best,
        "wall": min(run["wall"] for run in runs),
        "simulated": simulated / whole["wall"],
        "longest": whole,
        "states": states,
        "memory": memory,
        "survived": survived,
        "killed": len(killed),
        "missing": [Path(each.part).name for each in damaged.missing],
        "rest": state_of(damaged.sketches, labelled),
    }


def pass_on(
    pattern: Path, labelled: Any, engine: Any, watch: Callable[[int], None] = lambda rows: None
) -> Any:
    """A pass of which only the outcome is of interest: where processes vanish their seconds cannot be added up."""
    from divscore.jobs.sketching import sketch_source
    from divscore.sources import open_table

    return sketch_source(open_table(str(pattern)), labelled, engine=engine, progress=watch)


def with_a_corrupt_file(place: Path, count: int) -> str:
    """Make folders beside `place`: the same files but for a corrupt one in the middle, and those without it."""
    bad = f"part-{count // 2:02}.npy"
    for name in ("damaged", "rest"):
        folder = place.parent / name
        folder.mkdir()
        for path in sorted(place.iterdir()):
            if path.name != bad:
                (folder / path.name).symlink_to(path)
    with open(place / bad, "rb") as whole, open(place.parent / "damaged" / bad, "wb") as cut:
        cut.write(whole.read((place / bad).stat().st_size // 2))
    return bad


def predicted_wall(partitions: int, seconds: float, workers: int) -> float:
    """Seconds of a pass by simulation: parts that take equally long, in order, each by whoever is free first.

    How long a part takes is not known beforehand: it is read off two shorter passes on the same cluster. What is
    tested is thus that a longer pass grows by its parts and nothing else, not what another cluster would do.
    """
    free = [0.0] * workers
    for _ in range(partitions):
        free[free.index(min(free))] += seconds
    return max(free)


def on_a_cluster(folder: Path, options: argparse.Namespace, record: Record) -> None:
    place = folder / "many"
    place.mkdir()
    for at in range(options.files):
        progress("files for the cluster", at, options.files)
        np.save(place / f"part-{at:02}.npy", files.made(options.rows // options.files, DIMENSION, at))
    pattern = place / "part-*.npy"
    alone("bare", "npy", pattern)  # brings the files into the page cache
    read = alone("bare", "npy", pattern, repetitions=options.repetitions)
    one = alone("sketch", "npy", pattern, repetitions=options.repetitions)
    bad = with_a_corrupt_file(place, options.files)
    rest = alone("sketch", "npy", folder / "rest" / pattern.name)
    for times in TIMES:
        again = folder / f"times-{times}"
        again.mkdir()
        for path in place.iterdir():
            for at in range(times):
                (again / f"{at}-{path.name}").symlink_to(path)
    scratch = folder / "cluster"
    scratch.mkdir()
    many = cluster_passes(pattern, options, scratch)
    same = len({one["state"], *many["states"]}) == 1
    record.checks += [
        Check("cluster over one process, processor seconds", many["cpu"] / one["cpu"], 1.5),
        Check("peak memory of a worker", many["memory"], MEMORY, unit=" MB"),
        Check("cluster bit-identical to one process", float(same), 1.0, upper=False),
        Check(
            "still bit-identical after a worker and a node were killed",
            float(many["survived"] == one["state"] and many["killed"] == 2),
            1.0,
            upper=False,
        ),
        Check(
            "a corrupt file in the middle is named, the rest bit-identical to a pass without it",
            float(many["missing"] == [bad] and many["rest"] == rest["state"]),
            1.0,
            upper=False,
        ),
        Check(
            f"wall seconds of {TIMES[-1]} × as many files, simulated from passes over {TIMES[0]} × and {TIMES[1]} ×, "
            "over measured",
            many["simulated"],
            1.25,
            least=0.8,
        ),
    ]
    rows = [
        ["bare read", read["cpu"], read["wall"], None],
        ["one process", one["cpu"], one["wall"], one["anonymous"]],
    ]
    rows.append([f"cluster of {NODES} workers", many["cpu"], many["wall"], many["memory"]])
    rows.append([f"sizing rule: one process ÷ {NODES}", None, one["cpu"] / NODES, None])
    longest = many["longest"]
    rows.append([f"the same files {TIMES[-1]} times", longest["cpu"], longest["wall"], many["memory"]])
    rows.append(["sizing rule", None, TIMES[-1] * one["cpu"] / NODES, None])
    title = f"{options.rows:,} vectors in {options.files} files"
    record.tables.append(Table(title, ["pass", "CPU s", "wall s", "memory MB"], rows))


def many_collections(folder: Path, options: argparse.Namespace, record: Record) -> None:
    """Arrow, the fastest to read of the formats with columns, and Parquet, the usual one."""
    rows: list[list[Any]] = []
    for kind, repetitions in (("arrow", options.repetitions), ("parquet", max(1, options.repetitions - 1))):
        path = folder / f"collections.{kind}"
        write_collections(path, options.rows)
        alone("bare", f"{kind}-fixed" if kind == "parquet" else kind, path)  # into the page cache
        passes = []
        for by in ("", "kind"):
            progress(f"collections, {kind}", len(passes), 2)
            passes.append(found := alone("sketch", kind, path, by, repetitions))
            rows.append([kind, found["collections"], found["cpu"], found["wall"], found["anonymous"]])
        path.unlink()
        one, many = passes
        title = f"{COLLECTIONS:,} collections over one, processor seconds, {kind}"
        record.checks.append(Check(title, many["cpu"] / one["cpu"], 3.0))
        title = f"anonymous memory of {COLLECTIONS:,} collections, {kind}"
        record.checks.append(Check(title, many["anonymous"], 700.0, unit=" MB"))
    columns = ["format", "collections", "CPU s", "wall s", "anonymous MB"]
    record.tables.append(Table(f"Collections in one pass over {options.rows:,} vectors", columns, rows))


def linear(folder: Path, options: argparse.Namespace, record: Record) -> None:
    """Ten different files, and as many names for them as it takes: more would not fit on many machines."""
    size = options.linear // 100
    place = folder / "linear"
    place.mkdir()
    for at in range(10):
        np.save(place / f"kept-{at}.npy", files.made(size, DIMENSION, 1000 + at))
    rows, each = [], []
    for count in (1, 10, 100):
        for at in range(count):
            (place / f"x-{at:03}.npy").unlink(missing_ok=True)
            (place / f"x-{at:03}.npy").symlink_to(place / f"kept-{at % 10}.npy")
        # The shortest pass takes a twentieth of a second, and its best of three would be chance.
        times = max(2, options.repetitions) * (5 if count == 1 else 1)
        found = alone("sketch", "npy", place / "x-*.npy", repetitions=times)
        each.append(found["cpu"] / found["rows"])
        rows.append([found["rows"], found["cpu"], 1e6 * each[-1], found["anonymous"]])
        progress("linear in rows", count, 100)
    record.checks.append(Check("processor seconds a row, largest over smallest", max(each) / min(each), 1.15))
    title = f"Linear in rows: ten files of {size:,}, the last pass reading each ten times, {10 * size:,} different rows"
    record.tables.append(Table(title, ["rows", "CPU s", "CPU µs a row", "anonymous MB"], rows))


def formats(folder: Path, options: argparse.Namespace, record: Record) -> None:
    rows = []
    for kind in FORMATS:
        progress("formats", FORMATS.index(kind), len(FORMATS))
        count = options.format_rows // (TEXT if kind in ("csv", "jsonl") else 1)
        path = folder / f"vectors.{kind.partition('-')[0]}"
        write(kind, path, count)
        alone("bare", kind, path)
        read = alone("bare", kind, path, repetitions=options.repetitions)
        whole = alone("sketch", kind, path, repetitions=options.repetitions)
        rate = count / whole["cpu"]
        size = path.stat().st_size / count
        rows.append([kind, size, count / read["cpu"], rate, whole["cpu"] / read["cpu"], 1e9 / rate / 3600])
        path.unlink()
    columns = ["format", "bytes a row", "rows/s a core, bare", "rows/s a core, sketch", "ratio"]
    record.tables.append(Table("Formats", [*columns, "core hours a billion rows"], rows))


PARTS = {"cluster": on_a_cluster, "collections": many_collections, "linear": linear, "formats": formats}


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*sys.argv[2:])))
        return
    options = _options()
    names = ("rows", "files", "linear", "format_rows", "repetitions")
    threads = {name: os.environ[name] for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    settings = {name: getattr(options, name) for name in names} | {"dimension": DIMENSION} | threads
    record = Record("scale", settings)
    for name in options.only:
        part, start = PARTS[name], time.perf_counter()
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            part(Path(folder), options, record)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("scale", (__doc__ or "").partition("\n")[0])
    options.add_argument(
        "--rows", type=int, default=2_000_000, help="vectors for the cluster and for many collections"
    )
    options.add_argument("--files", type=int, default=16, help="files they lie in")
    options.add_argument(
        "--linear", type=int, default=10_000_000, help="most rows of the passes that must be linear"
    )
    options.add_argument("--format-rows", type=int, default=400_000, help="vectors in each format")
    options.add_argument("--repetitions", type=int, default=3, help="runs of each pass")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="which parts")
    options.add_argument("--dir", type=Path, default=None, help="where the temporary folders are made")
    return options.parse_args()


if __name__ == "__main__":
    main()
