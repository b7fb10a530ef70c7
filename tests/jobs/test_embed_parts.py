"""Embedding in parts: a file a partition, the same bytes whoever makes them, only missing ones after a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from click.testing import CliRunner

from divscore import sources
from divscore.cli import main
from divscore.errors import FileError
from divscore.jobs import embed as itempart
from divscore.jobs.embed import embed
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_items
from divscore.jobs.parts import PartsResult, embed_parts
from divscore.sources import items as folders

WORDS = ("river", "stone", "cloud", "window", "paper", "morning", "letter", "yellow")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "RUN", 30)
    monkeypatch.setitem(itempart.ROWS, "text", 40)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.image_model(tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tiny.folder(tmp_path_factory.mktemp("photos"), {"red": 40, "blue": 60}, 1)
    (root / "blue" / "0007.png").write_bytes(b"no picture")
    return root


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    root = tmp_path / "posts"
    root.mkdir()
    for at in range(3):
        texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(100)]
        table = pa.table({"text": texts, "country": ["SA", "SE"] * 50})
        pq.write_table(table, root / f"{at}.parquet", row_group_size=20)
    return root


def parts(
    source: Path, out: Path, engine: Engine, name: str, model: Path | None = None, **asked: Any
) -> PartsResult:
    with Encoding(name, model=model) as encoding:
        return embed_parts(open_items(source, extra=None), out, encoding, engine, **asked)


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def test_one_file_a_partition_with_a_manifest(tmp_path: Path, photos: Path, model: Path) -> None:
    with Engine(1) as engine:
        done = parts(photos, tmp_path / "out", engine, "onnx", model)
    assert (done.items, done.vectors, done.parts, done.skipped["unreadable"]) == (100, 99, 4, 1)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        "manifest.json",
        "part-00000.arrow",
        "part-00000.arrow.skipped.csv",
        "part-00001.arrow",
        "part-00002.arrow",
        "part-00003.arrow",
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["finished"]
    assert [part["file"] for part in manifest["parts"]] == [f"part-0000{at}.arrow" for at in range(4)]
    found = sources.open(tmp_path / "out")
    assert [Path(each.url).name for each in found.locations] == [part["file"] for part in manifest["parts"]]


@pytest.mark.parametrize("workers", [1, 3])
def test_parts_are_the_same_to_the_byte_whoever_made_them(
    tmp_path: Path, photos: Path, posts: Path, model: Path, workers: int
) -> None:
    with Engine(1) as alone, Engine(workers) as several:
        parts(photos, tmp_path / "a", alone, "onnx", model)
        parts(photos, tmp_path / "b", several, "onnx", model)
        parts(posts, tmp_path / "c", alone, "ngrams")
        parts(posts, tmp_path / "d", several, "ngrams")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "c") == contents(tmp_path / "d")
    assert len(list((tmp_path / "c").glob("*.arrow"))) == 9


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "txt"])
def test_a_single_text_file_is_cut_too(tmp_path: Path, form: str) -> None:
    """The items, their names and what is wrong with some are those of the whole file; parts are resumed."""
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(130)]
    lines = [json.dumps({"text": text}) if form == "jsonl" else text for text in texts]
    if form in {"csv", "tsv"}:
        lines[70] = '"a river\nand a ""stone"" here"' if form == "csv" else '"quoted\n"bare"'
        lines.insert(0, "text")
    lines[50:50] = [
        "",
        "a,b" if form == "csv" else "a\tb" if form == "tsv" else "{oops" if form == "jsonl" else "",
    ]
    source, out = tmp_path / f"posts.{form}", tmp_path / "out"
    source.write_text("\n".join(lines))
    with Encoding("ngrams") as encoding:
        embed(open_items(source, extra=None), tmp_path / "whole.arrow", encoding)
    with Engine(1) as alone, Engine(2) as several:
        made = parts(source, out, alone, "ngrams")
        parts(source, tmp_path / "again", several, "ngrams")
        assert contents(out) == contents(tmp_path / "again")
        (out / "part-00002.arrow").unlink()
        assert parts(source, out, alone, "ngrams").resumed == 90 + made.items - 130
        assert contents(out) == contents(tmp_path / "again")
    assert (made.parts, made.vectors, made.skipped["unreadable"]) == (4, 130, 0 if form == "txt" else 1)
    whole = pa.ipc.open_file(tmp_path / "whole.arrow").read_all()
    read = [pa.ipc.open_file(path).read_all() for path in sorted(out.glob("*.arrow"))]
    assert pa.concat_tables(read).replace_schema_metadata() == whole.replace_schema_metadata()
    told = [path.read_text().splitlines()[1:] for path in sorted(out.glob("*.skipped.csv"))]
    listing = Path(f"{tmp_path / 'whole.arrow'}.skipped.csv")
    assert [line for some in told for line in some] == (
        listing.read_text().splitlines()[1:] if listing.exists() else []
    )


def test_a_text_file_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    source = tmp_path / "posts.csv"
    source.write_text("text\n" + "a river\n" * 100)
    found = list(itempart.item_partitions(open_items(source)))
    source.write_text("text\n" + "a\n" * 400)
    with pytest.raises(FileError, match="bytes 0 to 324 hold 160 rows, not 40"):
        list(found[0].open())
    source.write_text("text\n" + "a" * 799 + "\n")
    with pytest.raises(FileError, match="no row begins at byte 325"):
        list(found[1].open())
    source.write_text("text\n")
    with pytest.raises(FileError, match="had 805 when the work was planned"):
        found[0].open()
    source.unlink()
    with pytest.raises(FileError, match="every worker must see the files under the same path"):
        found[0].open()


def test_only_missing_parts_are_made_again(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    with Engine(1) as engine:
        parts(posts, out, engine, "ngrams")
        before = contents(out)
        (out / "part-00004.arrow").unlink()
        kept = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
        done = parts(posts, out, engine, "ngrams")
        assert done.resumed == 300 - 40
        assert contents(out) == before
        assert {name: (out / name).stat().st_mtime_ns for name in kept} == kept


def test_parts_of_changed_files_or_another_encoder_are_made_anew(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    with Engine(1) as engine:
        parts(posts, out, engine, "ngrams")
        table = pq.read_table(posts / "1.parquet").slice(0, 50)
        pq.write_table(table, posts / "1.parquet", row_group_size=20)
        done = parts(posts, out, engine, "ngrams")
        assert (done.items, done.resumed) == (250, 100)  # the parts before the changed file
        with Encoding("ngrams", options={"dimension": "256"}) as other:
            again = embed_parts(open_items(posts, extra=None), out, other, engine, overwrite=True)
        assert again.resumed == 0


def test_a_bad_file_is_named_and_the_rest_is_made(tmp_path: Path, posts: Path) -> None:
    data = (posts / "1.parquet").read_bytes()
    (posts / "1.parquet").write_bytes(data[:-30])
    with Engine(2) as engine:
        done = parts(posts, tmp_path / "out", engine, "ngrams")
        assert done.items == 200
        assert "1.parquet" in done.missing[0].part
        (posts / "1.parquet").write_bytes(data)
        mended = parts(posts, tmp_path / "out", engine, "ngrams")
    assert (mended.items, mended.missing) == (300, ())


def test_an_unfinished_folder_is_no_collection(tmp_path: Path, posts: Path) -> None:
    with Engine(1) as engine:
        parts(posts, tmp_path / "out", engine, "ngrams")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    with pytest.raises(FileError, match="Let 'divscore embed' finish"):
        sources.open(tmp_path / "out")


def test_the_folder_is_audited_like_the_items(tmp_path: Path, photos: Path, model: Path) -> None:
    labelled = tiny.folder(tmp_path / "labelled", {"red": 30, "blue": 30}, 2)
    shared = ["--model", str(model), "--no-cache"]
    for command in (
        ["embed", str(photos), "-o", str(tmp_path / "out")],
        ["control", "select", str(labelled), "-o", str(tmp_path / "C"), "--size", "20"],
    ):
        done = CliRunner().invoke(main, [*command, "--encoder", "onnx", *shared])
        assert done.exit_code == 0, done.stderr
    told = []
    for collection in (tmp_path / "out", photos):
        asked = ["audit", str(collection), "--control", str(tmp_path / "C"), *shared, "--by", "folder"]
        found = CliRunner().invoke(main, [*asked, "--json", "-"])
        assert found.exit_code == 0, found.stderr
        told.append({each["name"]: each for each in json.loads(found.stdout)["collections"]})
    for name in ("red", "blue"):
        assert told[0][name]["count"] == told[1][name]["count"]
        assert told[0][name]["skipped"] == told[1][name]["skipped"]
        assert told[0][name]["disparity"] == pytest.approx(told[1][name]["disparity"], abs=1e-6)


def test_killed_by_force_the_same_command_makes_the_rest(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    texts = [" ".join(words) for words in rng.choice(WORDS, (200_000, 6))]
    pq.write_table(pa.table({"text": texts}), tmp_path / "posts.parquet", row_group_size=4096)
    command = [
        sys.executable,
        "-m",
        "divscore",
        "embed",
        str(tmp_path / "posts.parquet"),
        "--workers",
        "1",
        "-o",
    ]
    out = tmp_path / "out"
    with subprocess.Popen([*command, str(out)], stderr=subprocess.DEVNULL) as job:
        deadline = time.monotonic() + 60
        while not list(out.glob("part-*.arrow")) and job.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(job.pid, signal.SIGKILL)
    finished = len(list(out.glob("part-*.arrow")))
    assert 1 <= finished < 13
    again = subprocess.run([*command, str(out)], capture_output=True, text=True, check=True)
    assert "were finished before" in again.stderr
    subprocess.run([*command, str(tmp_path / "whole")], capture_output=True, check=True)
    assert contents(out) == contents(tmp_path / "whole")


def write_one_part(path: Path, texts: list[str]) -> Path:
    """A row group is never divided."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"text": texts}), path, row_group_size=len(texts))
    return path


def write_long_posts(path: Path, rows: int = 30_000) -> Path:
    """Some seconds of work, in a file that is one part."""
    rng = np.random.default_rng(2)
    return write_one_part(path, [" ".join(words) for words in rng.choice(WORDS, (rows, 50))])


# A job for processes, which on the command line only one encoder asks for.
WITH_PROCESSES = """
import sys
from divscore.jobs.encode import Encoding
from divscore.jobs.opening import open_items
from divscore.jobs.parts import embed_parts
from divscore.jobs.engine import Engine

if __name__ == "__main__":
    try:
        with Engine(2, processes=True) as engine, Encoding("ngrams") as encoding:
            embed_parts(open_items(sys.argv[1], extra=None), sys.argv[2], encoding, engine)
    except KeyboardInterrupt:
        sys.exit(130)
"""


CHUNK_BYTES = 9_000_000  # 4,096 texts with 512 numbers each, of 30,000


def stop_at_work(command: list[str], out: Path, number: signal.Signals) -> tuple[int, str, int]:
    """Start a job, stop it when it has some chunks, and tell its code, its words and how much it wrote after that."""
    journal = out / "part-00000.arrow.part"
    enough = 10_000_000 + (journal.stat().st_size if journal.exists() else 0)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        until = time.monotonic() + 60
        while not journal.exists() or journal.stat().st_size < enough:
            assert job.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        job.send_signal(number)
        before = journal.stat().st_size
        said = job.communicate(timeout=60)[1]
    return job.returncode, said, journal.stat().st_size - before


@pytest.mark.parametrize("workers", [1, 2])
def test_asked_to_stop_a_part_is_left_in_the_middle(tmp_path: Path, workers: int) -> None:
    source, out = write_long_posts(tmp_path / "posts.parquet"), tmp_path / "out"
    command = [sys.executable, "-m", "divscore", "embed", str(source), "--workers", str(workers), "-o"]
    code, said, more = stop_at_work([*command, str(out)], out, signal.SIGTERM)
    assert (code, said.splitlines()) == (128 + signal.SIGTERM, ["stopped"])
    assert more <= 2 * CHUNK_BYTES
    assert sorted(contents(out)) == ["manifest.json", "part-00000.arrow.part"]
    code, said, more = stop_at_work([*command, str(out)], out, signal.SIGINT)
    assert (code, said.splitlines()) == (
        130,
        [f"stopped; what is finished is kept in {out}, and the same command goes on from there"],
    )
    assert more <= 2 * CHUNK_BYTES
    assert sorted(contents(out)) == ["manifest.json", "part-00000.arrow.part"]
    with Engine(1) as engine:
        done = parts(source, out, engine, "ngrams")
    assert done.items == 30_000
    assert done.resumed >= 2 * 4096  # from the journal, which both jobs added to
    assert sorted(contents(out)) == ["manifest.json", "part-00000.arrow"]


def test_asked_to_stop_processes_end_too(tmp_path: Path) -> None:
    source, out = write_long_posts(tmp_path / "posts.parquet"), tmp_path / "out"
    (tmp_path / "job.py").write_text(WITH_PROCESSES)
    code, said, more = stop_at_work(
        [sys.executable, str(tmp_path / "job.py"), str(source), str(out)], out, signal.SIGINT
    )
    assert (code, said) == (130, "")
    assert more <= 2 * CHUNK_BYTES
    size = (out / "part-00000.arrow.part").stat().st_size
    assert sorted(contents(out)) == ["manifest.json", "part-00000.arrow.part"]
    time.sleep(0.5)
    assert (out / "part-00000.arrow.part").stat().st_size == size  # nobody goes on in secret


@pytest.mark.parametrize("workers", [1, 2])
def test_stopped_while_the_file_is_written_no_half_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Threads are told in the middle of writing; nothing but the journals stays."""
    from divscore.jobs import embed as arrowfile

    for at in range(2):
        write_one_part(tmp_path / "posts" / f"{at}.parquet", ["a river"] * (10_000 if at else 5000))
    real = arrowfile._put
    seen: list[list[str]] = []
    out = tmp_path / "out"

    def put(writer: Any, batches: list[Any], schema: Any) -> None:
        real(writer, batches, schema)
        seen.append([path.name for path in out.glob(".part-*")])
        raise KeyboardInterrupt

    monkeypatch.setattr(arrowfile, "_put", put)
    with pytest.raises(KeyboardInterrupt), Engine(workers) as engine:
        parts(tmp_path / "posts", out, engine, "ngrams")
    assert seen[0]  # it had been begun
    assert all(name.endswith((".part", ".json")) for name in contents(out))
    monkeypatch.undo()
    with Engine(workers) as engine:
        done = parts(tmp_path / "posts", out, engine, "ngrams")
    assert done.items == 15_000
    assert done.resumed >= 5000  # from the journals


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_told_as_items_are_encoded(tmp_path: Path, workers: int) -> None:
    source = write_one_part(tmp_path / "posts.parquet", ["a river"] * 20_000)
    steps: list[int] = []
    with Engine(workers) as engine:
        parts(source, tmp_path / "out", engine, "ngrams", progress=steps.append)
    assert sum(steps) == 20_000
    assert len(steps) >= 5
    steps.clear()
    with Engine(workers) as engine:
        parts(source, tmp_path / "out", engine, "ngrams", progress=steps.append)
    assert steps == [20_000]


def test_progress_of_processes_is_told_by_part(tmp_path: Path, posts: Path) -> None:
    steps: list[int] = []
    with Engine(2, processes=True) as engine:
        parts(posts, tmp_path / "out", engine, "ngrams", progress=steps.append)
    assert steps == [40, 40, 20] * 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    from loopback import LoopbackCluster

    with LoopbackCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.mark.cluster
def test_a_cluster_makes_the_same_parts(
    tmp_path: Path, photos: Path, posts: Path, model: Path, cluster: Any
) -> None:
    from divscore.jobs.cluster import ClusterEngine

    with Engine(1) as alone, ClusterEngine(cluster.address) as engine:
        parts(photos, tmp_path / "a", alone, "onnx", model)
        killed: list[int] = []

        def kill(_: int) -> None:
            if not killed:
                killed.append(1)
                cluster.kill_worker(0)

        parts(photos, tmp_path / "b", engine, "onnx", model, progress=kill)
        parts(posts, tmp_path / "c", alone, "ngrams")
        parts(posts, tmp_path / "d", engine, "ngrams")
    # What a killed worker had finished, and nobody had fetched, Dask does again, perhaps after the job is through.
    for _ in range(200):
        if not list((tmp_path / "b").glob("*.part")):
            break
        time.sleep(0.1)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "c") == contents(tmp_path / "d")


def test_on_a_cluster_one_file_is_refused(tmp_path: Path, posts: Path) -> None:
    asked = ["embed", str(posts), "-o", str(tmp_path / "out.arrow"), "--cluster", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 2
    assert "give a folder in place of" in done.stderr
