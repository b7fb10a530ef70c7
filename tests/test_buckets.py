"""Object stores: ranged reads, patterns and folders, against a real S3 server on loopback."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from buckets import Counting, s3_server
from click.testing import CliRunner
from test_engines import FORMATS, fingerprints, matrix, opened, write

from divscore import ControlSet
from divscore.cli import main
from divscore.errors import FileError, MissingExtraError
from divscore.passes import sketch_source
from divscore.sources import arrays, location, open_many, open_vectors, tables

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
BUCKET = "s3://collections"


@pytest.fixture(scope="module")
def server() -> Iterator[Counting]:
    with s3_server() as found:
        filesystem().mkdir("collections")
        yield found


@pytest.fixture(scope="module")
def control() -> ControlSet:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(40, 8)) + np.repeat([[1.0], [-1.0]], 20, axis=0)
    return ControlSet(vectors, ["a"] * 20 + ["b"] * 20, attribute="letter")


def filesystem() -> Any:
    import s3fs

    return s3fs.S3FileSystem()


def upload(path: Path, name: str) -> str:
    filesystem().put_file(str(path), f"{BUCKET}/{name}")
    return f"{BUCKET}/{name}"


@pytest.mark.parametrize("form", FORMATS)
def test_a_pattern_in_a_bucket_gives_what_the_files_give(
    server: Counting, control: ControlSet, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PIECE_ROWS", 70)
    monkeypatch.setattr(tables, "PIECE_ROWS", 70)
    monkeypatch.setattr(tables, "PIECE_BYTES", 4000)
    by = None if form == "npy" else "kind"
    for at in range(2):
        write(tmp_path / f"{at}.{form}", matrix(at))
        upload(tmp_path / f"{at}.{form}", f"{form}/{at}.{form}")
    here = sketch_source(opened(tmp_path, form, by), control, by=by)
    extra = [by] if by else []
    there = sketch_source(open_many(f"{BUCKET}/{form}/*.{form}", extra=extra), control, by=by, workers=2)
    pairs = zip(fingerprints(here, control).values(), fingerprints(there, control).values(), strict=True)
    assert all(a == b for a, b in pairs)
    assert there.rows == here.rows


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_only_the_columns_that_are_needed_are_fetched(server: Counting, tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(0)
    rows = 2000
    table = pa.table(
        {
            "picture": [rng.bytes(2000) for _ in range(rows)],
            "embedding": list(rng.normal(size=(rows, 16)).astype(np.float32)),
            "note": [rng.bytes(500).hex() for _ in range(rows)],
            "kind": ["a", "b"] * (rows // 2),
        }
    )
    path = tmp_path / f"wide.{form}"
    if form == "parquet":
        pq.write_table(table, path, row_group_size=500, compression="none")
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=500)
    url = upload(path, f"wide.{form}")
    server.reset()
    read = sum(len(block.vectors) for block in open_vectors(url, extra=["kind"]))
    assert read == rows
    wanted = rows * 16 * 4
    assert wanted < server.bytes < 3 * wanted < path.stat().st_size / 10
    assert server.ranges == server.requests


def test_a_range_of_rows_is_fetched_alone(
    server: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from divscore.sources.partition import partitions_of

    monkeypatch.setattr(arrays, "PIECE_ROWS", 1000)
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(10_000, 16)))
    parts = list(partitions_of(open_vectors(upload(tmp_path / "a.npy", "rows/a.npy"))))
    server.reset()
    read = np.concatenate([block.vectors for block in parts[7].open()])
    np.testing.assert_array_equal(read, np.load(tmp_path / "a.npy")[7000:8000])
    assert server.bytes < 1.3 * read.nbytes


def test_a_bucket_of_hive_folders_is_audited_by_its_partition_columns(
    server: Counting, control: ControlSet, tmp_path: Path
) -> None:
    for at, country in enumerate(("SA", "SE", "ZA")):
        write(tmp_path / f"{country}.parquet", matrix(at)[12:])
        upload(tmp_path / f"{country}.parquet", f"posts/country={country}/part-0.parquet")
    np.savez(tmp_path / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    command = ["audit", f"{BUCKET}/posts/", "--control", str(tmp_path / "c.npz"), "--by", "country"]
    done = CliRunner().invoke(main, [*command, "--json", "-"])
    assert done.exit_code == 0, done.stderr
    found = {each["name"]: each["count"] for each in json.loads(done.stdout)["collections"]}
    assert found == {"SA": 288, "SE": 288, "ZA": 288}


def test_what_is_not_in_the_bucket_is_told(server: Counting) -> None:
    with pytest.raises(FileError, match="no file matches"):
        open_many(f"{BUCKET}/nothing/*.parquet")
    with pytest.raises(FileError, match="does not exist"):
        open_vectors(f"{BUCKET}/nothing.parquet")


def test_copies_of_remote_tables_do_not_pile_up(
    server: Counting, control: ControlSet, tmp_path: Path
) -> None:
    import fsspec

    for at in range(2):
        write(tmp_path / f"{at}.csv", matrix(at))
        upload(tmp_path / f"{at}.csv", f"copies/{at}.csv")
    sketch_source(open_many(f"{BUCKET}/copies/*.csv"), control)
    cache, path = fsspec.core.url_to_fs(f"simplecache::{BUCKET}/copies/0.csv")
    assert not cache._check_file(path)


def test_without_s3fs_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(registry, "s3", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'divscore\[s3\]'"):
        location.locate("s3://bucket/a.parquet")
