"""Object stores: ranged reads, patterns and folders, against a real S3 server on loopback."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from buckets import Counting, pointed_to
from click.testing import CliRunner
from vectorfiles import FORMATS, fingerprints, letters, matrix, opened, write

from divscore import ControlSet
from divscore.cli import main
from divscore.errors import FileError, MissingExtraError
from divscore.jobs import sketching as partial
from divscore.jobs.sketching import running, sketch_source
from divscore.sources import arrays, open_table
from divscore.sources import arrow as ipc
from divscore.sources import arrow as tables
from divscore.sources import places as address
from divscore.sources import places as locate
from divscore.sources import places as location
from divscore.sources.recognise import named_files

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
BUCKET = "s3://collections"


@pytest.fixture(scope="module")
def server(s3_server: Counting) -> Iterator[Counting]:
    with pointed_to(s3_server) as found:
        filesystem().mkdir("collections")
        yield found


@pytest.fixture(scope="module")
def control() -> ControlSet:
    return letters()


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
    monkeypatch.setattr(ipc, "PIECE_BYTES", 4000)
    by = None if form == "npy" else "kind"
    for at in range(2):
        write(tmp_path / f"{at}.{form}", matrix(at))
        upload(tmp_path / f"{at}.{form}", f"{form}/{at}.{form}")
    here = sketch_source(opened(tmp_path, form, by), control, by=by)
    extra = [by] if by else []
    there = sketch_source(open_table(f"{BUCKET}/{form}/*.{form}", extra=extra), control, by=by, workers=2)
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
    read = sum(len(block.vectors) for block in open_table(url, extra=["kind"]))
    assert read == rows
    wanted = rows * 16 * 4
    assert wanted < server.bytes < 3 * wanted < path.stat().st_size / 10
    assert server.ranges == server.requests


def test_a_range_of_rows_is_fetched_alone(
    server: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(arrays, "PIECE_ROWS", 1000)
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(10_000, 16)))
    parts = list(open_table(upload(tmp_path / "a.npy", "rows/a.npy")).divided())
    server.reset()
    read = np.concatenate([block.vectors for block in parts[7]])
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
        open_table(f"{BUCKET}/nothing/*.parquet")
    with pytest.raises(FileError, match="does not exist"):
        open_table(f"{BUCKET}/nothing.parquet")


def test_copies_of_remote_tables_do_not_pile_up(
    server: Counting, control: ControlSet, tmp_path: Path
) -> None:
    import fsspec

    for at in range(2):
        write(tmp_path / f"{at}.csv", matrix(at))
        upload(tmp_path / f"{at}.csv", f"copies/{at}.csv")
    sketch_source(open_table(f"{BUCKET}/copies/*.csv"), control)
    cache, path = fsspec.core.url_to_fs(f"simplecache::{BUCKET}/copies/0.csv")
    assert not cache._check_file(path)


@pytest.fixture
def two_files(server: Counting, tmp_path: Path) -> Iterator[str]:
    for at in range(2):
        write(tmp_path / f"{at}.npy", matrix(at))
        upload(tmp_path / f"{at}.npy", f"two/{at}.npy")
    yield f"{BUCKET}/two/*.npy"
    server.refused.clear()


def test_a_file_that_fails_for_a_moment_is_tried_again(
    server: Counting, control: ControlSet, two_files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "WAIT_SECONDS", 0.01)
    source = open_table(two_files)
    server.refused["1.npy"] = 2
    assert sketch_source(source, control).rows == 600
    assert server.refused["1.npy"] == 0


def test_a_file_that_goes_on_to_fail_is_named_and_left_out(
    server: Counting, control: ControlSet, two_files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "WAIT_SECONDS", 0.01)
    source = open_table(two_files)
    server.refused["1.npy"] = 1000
    found = sketch_source(source, control)
    assert found.rows == 300
    assert [each.part for each in found.missing] == [f"{BUCKET}/two/1.npy"]
    assert "permission denied; check your keys" in found.missing[0].reason


@pytest.mark.parametrize("form", ["npy", "csv"])
def test_self_training_tries_again_and_leaves_no_copies(
    server: Counting, control: ControlSet, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    monkeypatch.setattr(partial, "WAIT_SECONDS", 0.01)
    for at in range(2):
        write(tmp_path / f"{at}.{form}", matrix(at)[12:])
        upload(tmp_path / f"{at}.{form}", f"whole-{form}/{at}.{form}")
    source = open_table(f"{BUCKET}/whole-{form}/*.{form}")
    for part in source.parts:
        part.location.release()
    server.refused[f"1.{form}"] = 2
    try:
        with running(cache=False) as run:
            vectors, _, missing = run.read_vectors(source)
        assert server.refused[f"1.{form}"] == 0
        assert (len(vectors), missing) == (576, [])
        cache, path = fsspec.core.url_to_fs(f"simplecache::{BUCKET}/whole-{form}/0.{form}")
        assert not cache._check_file(path)
        server.refused[f"1.{form}"] = 1000
        with running(cache=False) as run:
            vectors, _, missing = run.read_vectors(source)
    finally:
        server.refused.clear()
    assert len(vectors) == 288
    assert [each.part for each in missing] == [f"{BUCKET}/whole-{form}/1.{form}"]
    assert "permission denied; check your keys" in missing[0].reason


def test_what_embed_could_not_read_is_known_in_a_bucket(
    server: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("posts").mkdir()
    for at in range(2):
        pq.write_table(
            pa.table({"text": [f"{name} {at}" for name in ("anna", "bob") * 20]}), f"posts/{at}.parquet"
        )
    Path("posts/1.parquet").write_bytes(Path("posts/1.parquet").read_bytes()[:-30])
    rows = [f"{name} {at},{name[0]}" for at in range(20) for name in ("anna", "bob")]
    Path("c.csv").write_text("\n".join(["text,group", *rows]))
    made = CliRunner().invoke(main, ["embed", "posts", "-o", "vectors", "--column", "text"])
    assert made.exit_code == 0, made.stderr
    for folder in ("with", "without"):
        for path in Path("vectors").iterdir():
            if folder == "with" or path.name != "manifest.json":
                upload(path, f"embedded/{folder}/{path.name}")
    for asked in ("embedded", "embedded/", "embedded/with/*.arrow", "embedded/*/*.arrow"):
        done = CliRunner().invoke(main, ["audit", f"{BUCKET}/{asked}", "--control", "c.csv", "--json", "-"])
        assert done.exit_code == 0, done.stderr
        told = json.loads(done.stdout)["missing"]["listed"]
        assert [each["part"] for each in told] == ["posts/1.parquet"]
        assert f"{BUCKET}/embedded/with was embedded without it" in told[0]["reason"]
    asked = {}
    for name, find in (("files", locate.locate), ("missing", named_files)):
        for folder in ("with", "without"):
            filesystem().invalidate_cache()
            server.reset()
            find(f"{BUCKET}/embedded/{folder}/*.arrow")
            asked[name, folder] = server.asked
    assert asked["missing", "with"] <= asked["files", "with"] + 2  # whether it is there, and what it says
    assert asked["missing", "without"] <= asked["files", "without"] + 1
    place = Path("vectors/manifest.json")
    place.write_text(json.dumps({**json.loads(place.read_text()), "finished": False}))
    upload(place, "embedded/with/manifest.json")
    filesystem().invalidate_cache()
    for path in ("embedded", "embedded/with/*.arrow"):
        done = CliRunner().invoke(main, ["audit", f"{BUCKET}/{path}", "--control", "c.csv"])
        assert done.exit_code == 2
        assert f"{BUCKET}/embedded/with is not finished: its job is running or was stopped" in done.stderr


@pytest.fixture
def nobody(server: Counting, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No keys, and no patience with what does not answer."""
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    yield monkeypatch
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("path", ["a.npy", "*.npy", "", "folder/"])
@pytest.mark.parametrize("answers", [True, False], ids=["no keys", "no server"])
def test_a_store_that_cannot_be_reached_is_told_in_one_line(
    nobody: pytest.MonkeyPatch, tmp_path: Path, control: ControlSet, path: str, answers: bool
) -> None:
    if not answers:
        nobody.setenv("AWS_ACCESS_KEY_ID", "tests")
        nobody.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        nobody.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    np.savez(tmp_path / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    for arguments in (
        [f"{BUCKET}/{path}", "--control", str(tmp_path / "c.npz")],
        [str(tmp_path / "c.npz"), "--control", f"{BUCKET}/{path}"],
    ):
        done = CliRunner().invoke(main, ["audit", *arguments])
        assert done.exit_code == 2
        assert f"{BUCKET}/{path} cannot be fetched" in done.stderr
        assert ("locate credentials" if answers else "connect to the endpoint") in done.stderr
        assert len(done.stderr.splitlines()) == 1


# Addresses of the web


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A server of files, and its address with a password."""
    pytest.importorskip("aiohttp", reason="the extra 's3' is not installed")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://me:word@127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_what_opens_an_address_is_not_told(web: str, tmp_path: Path, control: ControlSet) -> None:
    np.savez(tmp_path / "c.npz", embedding=control.vectors, group=np.array(["a"] * 20 + ["b"] * 20))
    write(tmp_path / "feed.csv", matrix(1))
    shared = ["--control", str(tmp_path / "c.npz"), "--json", str(tmp_path / "out.json")]
    done = CliRunner().invoke(main, ["audit", f"{web}/feed.csv?token=s3cret", *shared, "--verbose"])
    assert done.exit_code == 0, done.stderr
    told = json.loads((tmp_path / "out.json").read_text())["collections"][0]
    assert (told["name"], told["count"]) == ("feed", 298)
    (tmp_path / "latin.csv").write_bytes("embedding,name\n[1],Zoë\n".encode("latin-1"))
    every = done.output + (tmp_path / "out.json").read_text()
    for file in ("latin.csv", "nothing.npy", "c.npz"):
        done = CliRunner().invoke(main, ["audit", f"{web}/{file}?token=s3cret", *shared, "--by", "x"])
        assert done.exit_code == 2
        assert f"127.0.0.1:{web.rpartition(':')[2]}/{file}?…" in done.stderr
        every += done.output
    assert "s3cret" not in every
    assert "word" not in every


def test_an_address_is_shown_without_what_opens_it() -> None:
    secret = "https://me:word@host/a.Npy?token=s3cret"
    found = location.Location(secret, secret)
    assert (found.label, found.name, found.suffix) == ("https://…host/a.Npy?…", "a", ".npy")
    assert not address.is_pattern(secret)
    assert not locate.is_folder(secret)
    assert address.is_pattern("https://host/*.npy?token=1")
    assert address.is_pattern("s3://bucket/part-?.npy")


def test_without_s3fs_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(registry, "s3", raising=False)
    with pytest.raises(MissingExtraError, match="s3:// needs a package: pip install s3fs"):
        locate.locate("s3://bucket/a.parquet")
