"""A real cluster on loopback: the same answer to the last bit, also when workers and nodes die meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plainshell
import pytest
from click.testing import CliRunner

pytest.importorskip("distributed", reason="the extra 'dask' is not installed")

from loopback import LoopbackCluster, worker_processes
from vectorfiles import CLEAN, FORMATS, fingerprints, letters, matrix, opened, write

from divscore import ControlSet
from divscore.cli import main
from divscore.errors import DivscoreError, FileError, InputError, MissingExtraError
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.encode import Encoding
from divscore.jobs.sketching import sketch_source
from divscore.sources import arrays, open_table
from divscore.sources import arrow as ipc
from divscore.sources import arrow as tables
from divscore.sources.items import ItemBatch

# Nodes go down in these tests, and Dask's client speaks of it.
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default::ResourceWarning")]
DIMENSION = 300
FILES, ROWS = 8, 125_000
FEW = 20_000  # rows of a file where few will do
MOST_MEMORY = 600  # MB a worker
DISK, MEMORY = 3, 5  # GB that must be free for the files of a million vectors
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def engine(cluster: LoopbackCluster) -> Iterator[ClusterEngine]:
    with ClusterEngine(cluster.address) as found:
        yield found


@pytest.fixture(scope="module")
def control() -> ControlSet:
    return letters()


@pytest.mark.parametrize("form", FORMATS)
def test_a_cluster_agrees_with_one_process_to_the_bit(
    engine: ClusterEngine,
    control: ControlSet,
    tmp_path: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrays, "PIECE_ROWS", 70)
    monkeypatch.setattr(tables, "PIECE_ROWS", 70)
    monkeypatch.setattr(ipc, "PIECE_BYTES", 4000)
    by = None if form == "npy" else "kind"
    for at in range(3):
        write(tmp_path / f"{at}.{form}", matrix(at))
    source = opened(tmp_path, form, by)
    alone = sketch_source(source, control, by=by)
    assert fingerprints(sketch_source(source, control, by=by, engine=engine), control) == fingerprints(
        alone, control
    )


def test_an_executor_of_a_client_will_do(
    cluster: LoopbackCluster, control: ControlSet, tmp_path: Path
) -> None:
    from distributed import Client

    for at in range(3):
        write(tmp_path / f"{at}.npy", matrix(at))
    source = open_table(str(tmp_path / "*.npy"))
    with Client(cluster.address, set_as_default=False) as client:
        found = sketch_source(source, control, executor=client.get_executor(pure=False))
    assert fingerprints(found, control) == fingerprints(sketch_source(source, control), control)


def available_memory() -> float:
    """GB that processes may still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 2**20


def roomy(usual: Path) -> Path:
    """A folder with room for the files: in memory where there is enough, else the usual one."""
    in_memory = [SHARED_MEMORY] if SHARED_MEMORY.is_dir() and available_memory() > MEMORY else []
    for place in (*in_memory, usual):
        if os.access(place, os.W_OK) and shutil.disk_usage(place).free > DISK * 2**30:
            return place
    pytest.skip(
        f"a million vectors need {DISK} GB free in {usual}, or in {SHARED_MEMORY} with {MEMORY} GB of memory to spare"
    )


@pytest.fixture(scope="module")
def millions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A million different vectors in 8 files, which go when the tests of this module are done."""
    with tempfile.TemporaryDirectory(prefix="divscore-", dir=roomy(tmp_path_factory.getbasetemp())) as folder:
        drawn = np.random.default_rng(4).standard_normal((ROWS, DIMENSION), dtype=np.float32)
        for at in range(FILES):
            # The same numbers in other places: other vectors, in half the time that new numbers take.
            np.save(f"{folder}/part-{at:02}.npy", np.roll(drawn, at, axis=1))
        yield Path(folder)


@pytest.fixture(scope="module")
def wide_control() -> ControlSet:
    rng = np.random.default_rng(9)
    vectors = rng.normal(size=(200, DIMENSION)) + np.repeat([[0.2], [-0.2]], 100, axis=0)
    return ControlSet(vectors, ["a"] * 100 + ["b"] * 100, attribute="letter")


def events(*steps: tuple[int, Callable[[], bool]]) -> Callable[[int], None]:
    """Progress that tries each step after so many rows, until it says that it happened."""
    waiting, done = list(steps), 0

    def progress(rows: int) -> None:
        nonlocal done
        done += rows
        if waiting and done >= waiting[0][0] and waiting[0][1]():
            waiting.pop(0)

    return progress


@pytest.mark.slow
def test_a_worker_and_then_a_node_die_and_nothing_is_lost(
    millions: Path,
    wide_control: ControlSet,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from distributed import Client

    # Many small tasks, so that the second worker is still busy when its node is to be killed.
    monkeypatch.setattr(arrays, "PIECE_ROWS", ROWS // 8)
    source = open_table(str(millions / "*.npy"))
    alone = fingerprints(sketch_source(source, wide_control), wide_control)
    memory: list[float] = []
    happened: list[str] = []
    with (
        LoopbackCluster(tmp_path) as cluster,
        ClusterEngine(cluster.address) as engine,
        Client(cluster.address, set_as_default=False) as watcher,
    ):
        watcher.wait_for_workers(2)
        address = {process: worker for worker, process in watcher.run(os.getpid).items()}
        first, second = (address[worker_processes(node.pid)[0]] for node in cluster.nodes)
        whole = sketch_source(source, wide_control, engine=engine)

        def kill(what: str, worker: str, strike: Callable[[int], None], node: int) -> bool:
            if not watcher.processing()[worker]:
                return False  # it has nothing to lose at this moment
            memory.extend(cluster.peak_memory())
            strike(node)
            happened.append(what)
            return True

        progress = events(
            (ROWS, lambda: kill("worker", first, cluster.kill_worker, 0)),
            (5 * ROWS, lambda: kill("node", second, cluster.kill_node, 1)),
        )
        found = sketch_source(source, wide_control, engine=engine, progress=progress)
        memory += cluster.peak_memory()
    assert happened == ["worker", "node"]
    for each in (whole, found):
        assert each.rows == FILES * ROWS
        assert fingerprints(each, wide_control) == alone
    record_property("peak memory of workers, MB", memory)
    assert max(memory) <= MOST_MEMORY


def test_a_corrupt_file_is_named_and_the_rest_survives(
    cluster: LoopbackCluster, tmp_path: Path, control: ControlSet
) -> None:
    for at in range(5):
        write(tmp_path / f"{at}.parquet", matrix(at)[CLEAN:])
    np.savez(tmp_path / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    bad = tmp_path / "2.parquet"
    data = bytearray(bad.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 1000] = bytes(1000)
    bad.write_bytes(data)
    command = ["audit", str(tmp_path / "*.parquet"), "--control", str(tmp_path / "c.npz"), "--json", "-"]
    done = CliRunner().invoke(main, [*command, "--cluster", cluster.address])
    assert done.exit_code == 0, done.output
    assert "2.parquet cannot be read as Parquet" in done.stderr
    told = json.loads(done.stdout)["collections"][0]
    assert told["count"] == 4 * (300 - CLEAN)
    assert told["skipped"]["unreadable"] == 300 - CLEAN
    assert any("2.parquet" in warning and "288 rows" in warning for warning in told["warnings"])
    alone = CliRunner().invoke(main, [*command, "--workers", "1"])
    assert alone.stdout == done.stdout
    strict = CliRunner().invoke(main, [*command, "--cluster", cluster.address, "--strict"])
    assert strict.exit_code == 2
    assert "2.parquet cannot be read as Parquet" in strict.stderr


def test_a_sketch_made_on_the_cluster_is_the_same(
    cluster: LoopbackCluster, tmp_path: Path, control: ControlSet
) -> None:
    for at in range(2):
        write(tmp_path / f"{at}.npy", matrix(at))
    np.savez(tmp_path / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    shared = ["sketch", str(tmp_path / "*.npy"), "--control", str(tmp_path / "c.npz")]
    told = []
    for name, where in (("here", ["--workers", "1"]), ("there", ["--cluster", cluster.address])):
        out = str(tmp_path / f"{name}.sketch")
        assert CliRunner().invoke(main, [*shared, "-o", out, *where]).exit_code == 0
        audit = ["audit", out, "--control", str(tmp_path / "c.npz"), "--json", "-"]
        told.append(CliRunner().invoke(main, audit).stdout)
    assert told[0] == told[1]


def test_no_cluster_at_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divscore.jobs.cluster.CONNECT_SECONDS", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=f"no cluster answers at tcp://127.0.0.1:{port}"):
        ClusterEngine(f"tcp://127.0.0.1:{port}")
    for address in ("nonsense", "", "tls://127.0.0.1:8786", "http://127.0.0.1:1", str(tmp_path)):
        with pytest.raises(InputError, match="expected the address that 'dask scheduler' prints"):
            ClusterEngine(address)
    for name in ("nothere.json", str(tmp_path / "nothere.json"), "nonsense"):
        with pytest.raises(
            InputError, match=f"^{re.escape(name)} does not exist, and it is not an address: it has no port; "
        ):
            ClusterEngine(name)
    with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))} is a folder"):
        ClusterEngine(str(tmp_path))
    for text in ("{}", "[1]", '{"address": 7}', "no JSON"):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(InputError, match=r"s\.json has no scheduler's address"):
            ClusterEngine(str(tmp_path / "s.json"))


def test_somebody_else_answers_at_an_address(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    with socket.socket() as silent, monkeypatch.context() as patch:
        patch.setattr("divscore.jobs.cluster.CONNECT_SECONDS", 1.0)  # a worker, below, may need longer
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(InputError, match="no answer, or the answer of another program than Dask"):
            ClusterEngine(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(1)
        worker = next(iter(client.scheduler_info()["workers"]))
    with pytest.raises(InputError, match="is the address of a Worker, not of a scheduler"):
        ClusterEngine(worker)


def test_an_empty_address_is_an_error(tmp_path: Path) -> None:
    for command in (["audit", "x", "--control", "c"], ["embed", "x", "-o", "y/"]):
        done = CliRunner().invoke(main, [*command, "--cluster", ""])
        assert done.exit_code == 2
        assert "'--cluster': is empty" in done.stderr


def test_the_file_of_a_scheduler_will_do(cluster: LoopbackCluster) -> None:
    with ClusterEngine(str(cluster.file)) as engine:
        assert [found for _, found in engine.map(abs, [-1, -2])] == [1, 2]


def test_a_plain_shell_gives_the_same_bits_on_a_cluster(cluster: LoopbackCluster, tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in plainshell.SETTINGS}
    command = [sys.executable, plainshell.__file__, str(tmp_path), cluster.address]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["one", "cluster"]
    assert found["one"] == found["cluster"]


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_goes_is_told(tmp_path: Path) -> None:
    with (
        LoopbackCluster(tmp_path, nodes=1) as cluster,
        ClusterEngine(cluster.address) as engine,
    ):
        engine.patience = 1.0

        def run() -> None:
            for task, _ in engine.map(time.sleep, [0.0, *[0.2] * 1000]):
                if task == 0.0:
                    cluster.kill_scheduler()

        with pytest.raises(DivscoreError, match=r"has had no worker for 1 seconds|was it stopped\?"):
            run()


DEADLY = """
import os

import numpy as np


def deadly(left, right):
    if abs(left).max() > 1e6:
        os._exit(1)
    return np.exp(left @ right.T / 100)
"""


def test_a_part_that_workers_die_over_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_similarity.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    deadly = __import__("deadly_similarity").deadly
    rng = np.random.default_rng(5)
    pool = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    control = ControlSet(pool, ["a"] * 20 + ["b"] * 20, attribute="letter", similarity=deadly)
    for at in range(3):
        vectors = rng.normal(size=(50, 8)).astype(np.float32)
        vectors[7, 2] = 1e7 if at == 1 else 0.0
        np.save(tmp_path / f"{at}.npy", vectors)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0", "PYTHONPATH": path}
    with LoopbackCluster(tmp_path, nodes=1, **settings) as cluster, ClusterEngine(cluster.address) as engine:
        # Dask blames all that a worker had before it when it died; the others are cleared.
        found = sketch_source(open_table(str(tmp_path / "*.npy")), control, engine=engine)
        assert found.rows == 100
        assert [(each.part, each.rows) for each in found.missing] == [(str(tmp_path / "1.npy"), 50)]
        assert "1.npy: several workers died on it" in found.missing[0].reason
        with pytest.raises(FileError, match=r"1\.npy: several workers died on it"):
            sketch_source(open_table(str(tmp_path / "*.npy")), control, engine=engine, strict=True)


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures and a model in the working folder, to be named by relative paths."""
    for module in ("PIL", "onnx", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    import tiny

    tiny.image_model(tmp_path / "tiny.onnx")
    tiny.folder(tmp_path / "labelled", {"red": 20, "blue": 20}, 2)
    tiny.folder(tmp_path / "photos", {"red": 60, "blue": 40}, 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pictures_are_encoded_on_the_cluster(cluster: LoopbackCluster, pictures: Path) -> None:
    command = ["audit", "photos", "--control", "labelled", "--encoder", "onnx", "--model", "tiny.onnx"]
    command += ["--no-cache", "--json", "-"]
    alone = CliRunner().invoke(main, [*command, "--workers", "1"])
    assert alone.exit_code == 0, alone.stderr
    assert json.loads(alone.stdout)["collections"][0]["count"] == 100
    done = CliRunner().invoke(main, [*command, "--cluster", cluster.address])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == alone.stdout


def test_a_picture_that_a_worker_does_not_see_is_named(engine: ClusterEngine, pictures: Path) -> None:
    encoding = Encoding("onnx", model="tiny.onnx")
    encoding.engines.cluster = engine
    hidden = "/proc/self/fd/987"  # open here and under this number, and not for others
    with open(next((pictures / "photos").rglob("*.png")), "rb") as stream:
        os.dup2(stream.fileno(), 987)
    try:
        with pytest.raises(FileError, match=r"does not exist on .*every worker must see the files"):
            list(encoding.run([ItemBatch([hidden], ["a"])], "image"))
    finally:
        os.close(987)
    # What is not even here is an item that cannot be read, wherever it is tried.
    ((_, (result,)),) = encoding.run([ItemBatch(["photos/nothing.png"], ["a"])], "image")
    assert result.reason == "does not exist"


def test_texts_are_encoded_on_the_cluster(cluster: LoopbackCluster, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    words = {"a": ["anna", "ada", "alma"], "b": ["bruno", "bela", "bob"]}
    rows = [(" ".join(rng.choice(words[group], 3)), group) for group in "ab" for _ in range(60)]
    labelled = "\n".join(["text,group", *(f"{text},{group}" for text, group in rows)])
    (tmp_path / "c.csv").write_text(labelled)
    (tmp_path / "feed.csv").write_text("\n".join(["text", *(text for text, _ in rows[20:])]))
    command = ["audit", str(tmp_path / "feed.csv"), "--control", str(tmp_path / "c.csv"), "--json", "-"]
    alone = CliRunner().invoke(main, [*command, "--workers", "1"])
    assert alone.exit_code == 0, alone.stderr
    done = CliRunner().invoke(main, [*command, "--cluster", cluster.address])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == alone.stdout


def test_a_cluster_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with LoopbackCluster(tmp_path, nodes=0) as empty:
        with pytest.raises(
            InputError, match=f"has no workers; start some with 'dask worker {empty.address}'$"
        ):
            ClusterEngine(empty.address, patience=0.5, notify=told.append)
        assert told == []
        monkeypatch.setattr("divscore.jobs.cluster.NOTIFY_SECONDS", 0.2)
        file = str(empty.file)
        with pytest.raises(InputError, match=f"start some with 'dask worker --scheduler-file {file}'$"):
            ClusterEngine(file, patience=1.0, notify=told.append)
        assert told[-1] == f"waiting for the first worker of {file} (up to 1 s)"
        assert sum(line.startswith("waiting") for line in told) == 1
        time.sleep(0.5)
        assert told[-1].startswith("waiting")


def test_a_cluster_that_does_not_answer_is_told_of_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divscore.jobs.cluster.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("divscore.jobs.cluster.NOTIFY_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = CliRunner().invoke(main, ["audit", "x", "--control", "c", "--cluster", address])
    assert done.exit_code == 2
    told = done.stderr.splitlines()
    assert told[0] == f"connecting to {address}"
    assert told[1].startswith(f"divscore: no cluster answers at {address}")
    assert len(told) == 2


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match="--cluster needs Dask: pip install distributed"):
        ClusterEngine("tcp://127.0.0.1:1")


def test_a_file_that_a_worker_does_not_see_is_named(
    engine: ClusterEngine, control: ControlSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(2):
        write(tmp_path / f"{at}.npy", matrix(at))
    monkeypatch.chdir(tmp_path)
    # Workers run in another folder, which does not matter.
    assert sketch_source(open_table("*.npy"), control, engine=engine).rows == 600
    # What this process has open under a number is not there for others.
    Path("0.npy").rename("kept")
    with open("kept", "rb") as stream:
        os.dup2(stream.fileno(), 987)
    try:
        os.symlink("/proc/self/fd/987", "0.npy")
        with pytest.raises(FileError, match=r"0\.npy does not exist on .*every worker must see the files"):
            sketch_source(open_table("*.npy"), control, engine=engine)
    finally:
        os.close(987)


def test_nothing_large_travels(engine: ClusterEngine, wide_control: ControlSet, tmp_path: Path) -> None:
    """Home comes one small state a partition; out goes one fitted scorer, not the control set to be fitted."""
    import pickle
    from functools import partial

    from divscore.jobs.sketching import sketch_partition
    from divscore.sketch.scorer import scorer_for

    for at in range(2):
        rng = np.random.default_rng(at)
        np.save(tmp_path / f"{at}.npy", rng.standard_normal((FEW, DIMENSION), dtype=np.float32))
    work = partial(sketch_partition, scorer_for(wide_control), "x", None, "", 0)
    parts = list(open_table(str(tmp_path / "*.npy")).divided())
    results = [found for _, found in engine.map(work, parts)]
    vectors = FEW * DIMENSION * 4
    assert len(pickle.dumps(work)) < vectors / 10
    assert all(len(pickle.dumps(each)) < vectors / 10 for each in results)
