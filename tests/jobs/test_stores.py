"""Results in a store: what a command writes to `s3://…` is complete or not there, and embed resumes as it does here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from buckets import Counting, pointed_to
from click.testing import Result
from commands import invoke, run

from divscore.control.controlfile import save_control
from divscore.control.controlset import ControlSet
from divscore.errors import FileError
from divscore.files import atomic_file, check_writable, write_file
from divscore.jobs import parts
from divscore.jobs.cache import default_cache
from divscore.jobs.parts import _Part

BUCKET = "s3://results"


@pytest.fixture
def server(s3_server: Counting) -> Iterator[Counting]:
    with pointed_to(s3_server) as server:
        if not filesystem().exists("results"):
            filesystem().mkdir("results")
        yield server
        filesystem().invalidate_cache()
        for path in filesystem().find("results"):
            filesystem().rm_file(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixty texts in three parts, and a control set."""
    monkeypatch.setitem(parts.ROWS, "text", 20)
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    texts = [f"{name} {at}" for at in range(30) for name in ("anna", "bob")]
    texts[7] = ""
    pq.write_table(pa.table({"text": texts}), "posts.parquet", row_group_size=20)
    rows = [f"{name} {at},{name[0]}" for at in range(20) for name in ("anna", "bob")]
    Path("c.csv").write_text("\n".join(["text,group", *rows]))
    return tmp_path


def filesystem() -> Any:
    import s3fs

    return s3fs.S3FileSystem()


def stored(at: str = BUCKET) -> dict[str, bytes]:
    """Every file in the bucket by name."""
    store, path = fsspec.core.url_to_fs(at)
    store.invalidate_cache()
    return {name.removeprefix(path).strip("/"): store.cat_file(name) for name in store.find(path)}


def local(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def staged() -> list[str]:
    return sorted(os.listdir(default_cache())) if default_cache().exists() else []


def stop_after(patch: pytest.MonkeyPatch, made: int) -> None:
    """Interrupt a job when so many parts are made."""
    real, calls = _Part.write, []

    def write(*arguments: Any, **asked: Any) -> None:
        if len(calls) == made:
            raise KeyboardInterrupt
        calls.append(1)
        real(*arguments, **asked)

    patch.setattr(_Part, "write", write)


def refuse_puts(patch: pytest.MonkeyPatch, end: str) -> None:
    """Let uploads of some files fail, as a network does."""
    import s3fs

    real = s3fs.S3FileSystem._put_file

    async def put(self: Any, lpath: str, rpath: str, **asked: Any) -> None:
        if rpath.endswith(end):
            raise ConnectionError("the network is down, https://me:secret@host/?signature=1f2e")
        await real(self, lpath, rpath, **asked)

    patch.setattr(s3fs.S3FileSystem, "_put_file", put)


def told(done: Result, code: int = 2) -> str:
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return " ".join(done.stderr.split())


def test_a_file_is_uploaded_when_it_is_complete(server: Counting) -> None:
    place = f"{BUCKET}/a/b.json"
    write_file(place, "before")
    with suppress(KeyError), atomic_file(place) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert stored() == {"a/b.json": b"before"}
    write_file(place, "after")
    assert stored() == {"a/b.json": b"after"}
    check_writable(place, "--json")
    check_writable(f"{BUCKET}/new.json", "--json")
    assert stored() == {"a/b.json": b"after"}  # a check leaves nothing, and takes nothing
    assert not temporary.exists()


def test_any_store_of_fsspec(folder: Path) -> None:
    run("embed", "posts.parquet", "-o", "memory://stores/v.arrow")
    done = run("audit", "memory://stores/v.arrow", "--control", "c.csv", "--json", "memory://stores/a.json")
    assert "wrote memory://stores/a.json" in done.stderr
    assert json.loads(stored("memory://stores")["a.json"])["collections"][0]["count"] == 59
    run("audit", "memory://stores/v.arrow", "--control", "c.csv", "--json", "memory://stores/a.json")
    assert sorted(os.listdir()) == ["c.csv", "cache", "posts.parquet"]


@pytest.mark.parametrize("name", ["v.arrow", "deep/vectors/"])
def test_embed_writes_what_it_writes_here(server: Counting, folder: Path, name: str) -> None:
    run("embed", "posts.parquet", "-o", Path("here", name))
    done = run("embed", "posts.parquet", "-o", f"{BUCKET}/{name}", "--json")
    assert stored() == local(Path("here"))
    facts = json.loads(done.stdout)
    assert facts["path"] == f"{BUCKET}/{name}".rstrip("/")
    assert f"listed in {BUCKET}/{name}" in done.stderr
    assert staged() == []
    one, other = (
        json.loads(run("audit", place, "--control", "c.csv", "--json", "-").stdout)["collections"]
        for place in (f"here/{name}", f"{BUCKET}/{name}")
    )
    assert one == other


@pytest.mark.parametrize("name", ["v.arrow", "vectors/"])
def test_an_interrupted_job_resumes(server: Counting, folder: Path, name: str) -> None:
    target = f"{BUCKET}/{name}"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        assert invoke("embed", "posts.parquet", "-o", target).exit_code == 130
    assert stored() == {}
    assert len(staged()) == 1
    with pytest.MonkeyPatch.context() as patch:
        refuse_puts(patch, "v.arrow" if name == "v.arrow" else "part-00001.arrow")
        said = told(invoke("embed", "posts.parquet", "-o", target))
    assert "cannot be written (the network is down, https://…host/?…" in said
    assert "secret" not in said
    assert "1f2e" not in said
    assert len(staged()) == 1
    if name == "vectors/":
        said = told(invoke("audit", target, "--control", "c.csv"))
        assert f"{BUCKET}/vectors is not finished" in said
    else:
        assert "v.arrow" not in stored()
    done = run("embed", "posts.parquet", "-o", target)
    assert "(60 of the items were finished before)" in done.stderr  # nothing is encoded again
    assert staged() == []
    run("embed", "posts.parquet", "-o", Path("here", name))
    assert stored() == local(Path("here"))


@pytest.mark.parametrize("name", ["v.arrow", "vectors/"])
def test_vectors_of_another_encoder_are_kept(server: Counting, folder: Path, name: str) -> None:
    target, other = f"{BUCKET}/{name}", ("--encoder", "ngrams", "-E", "dimension=64")
    run("embed", "posts.parquet", "-o", target)
    before = stored()
    said = told(invoke("embed", "posts.parquet", "-o", target, *other))
    assert f"{target.rstrip('/')} has" in said
    assert "not of posts by ngrams/1 dimension=64; choose another name, or --overwrite" in said
    assert stored() == before
    pq.write_table(pq.read_table("posts.parquet").slice(0, 20), "posts.parquet")
    run("embed", "posts.parquet", "-o", target, *other, "--overwrite")
    run("embed", "posts.parquet", "-o", Path("here", name), *other)
    assert stored() == local(Path("here"))  # nothing is left of the parts that there were more of


def test_files_of_others_and_the_source_are_left_alone(server: Counting, folder: Path) -> None:
    write_file(f"{BUCKET}/mine/notes.txt", "mine")
    for at in range(2):
        write_file(f"{BUCKET}/posts/{at}.csv", "text\nanna\n")
    before = stored()
    said = told(invoke("embed", "posts.parquet", "-o", f"{BUCKET}/mine/"))
    assert "files that no embedding job made (notes.txt)" in said
    assert "contains the source" in told(invoke("embed", f"{BUCKET}/posts", "-o", f"{BUCKET}/posts/"))
    assert "inside the source" in told(invoke("embed", f"{BUCKET}/posts", "-o", f"{BUCKET}/posts/v/"))
    assert stored() == before


def test_a_projection_goes_with_the_vectors(server: Counting, folder: Path) -> None:
    done = run("embed", "posts.parquet", "-o", f"{BUCKET}/v.arrow", "--pca", 4)
    assert f"wrote {BUCKET}/v.arrow.pca.npz" in done.stderr
    run("embed", "posts.parquet", "-o", "here/v.arrow", "--pca", 4)
    assert stored()["v.arrow"] == Path("here/v.arrow").read_bytes()
    assert sorted(stored()) == ["v.arrow", "v.arrow.pca.npz", "v.arrow.skipped.csv"]
    assert staged() == []


def test_sketches_reports_and_documents(server: Counting, folder: Path) -> None:
    audit = ("audit", "posts.parquet", "--control", "c.csv")
    done = run(
        *audit, "--json", f"{BUCKET}/a.json", "--report", f"{BUCKET}/r.html", "--report", f"{BUCKET}/r.md"
    )
    assert [line for line in done.stderr.splitlines() if line.startswith("wrote")] == [
        f"wrote {BUCKET}/{name}" for name in ("a.json", "r.html", "r.md")
    ]
    run(*audit, "--json", "a.json")
    run("diff", f"{BUCKET}/a.json", "a.json", "--json", f"{BUCKET}/d.json")
    said = told(invoke("diff", f"{BUCKET}/none.json", "a.json"))
    assert f"{BUCKET}/none.json cannot be fetched" in said
    sketch = ("sketch", "posts.parquet", "--control", "c.csv", "-o")
    run(*sketch, "here.sketch")
    assert " bytes" in run(*sketch, f"{BUCKET}/s.sketch").stderr
    run("merge", "here.sketch", "-o", f"{BUCKET}/m.sketch")
    run("sketch", "c.csv", "--column", "text", "--control", "c.csv", "-o", "other.sketch")
    run("merge", "here.sketch", "other.sketch", "--without", "other.sketch", "-o", f"{BUCKET}/w.sketch")
    files = stored()
    assert sorted(files) == ["a.json", "d.json", "m.sketch", "r.html", "r.md", "s.sketch", "w.sketch"]
    assert files["a.json"] == Path("a.json").read_bytes()
    assert files["s.sketch"] == Path("here.sketch").read_bytes()
    assert b"<html" in files["r.html"]
    assert not Path("s3:").exists()


NOWHERE = "s3://no-such-bucket"


@pytest.mark.parametrize(
    "command",
    [
        ("embed", "posts.parquet", "-o", f"{NOWHERE}/v.arrow"),
        ("embed", "posts.parquet", "-o", f"{NOWHERE}/vectors/"),
        ("sketch", "posts.parquet", "--control", "c.csv", "-o", f"{NOWHERE}/x.sketch"),
        ("merge", "x.sketch", "-o", f"{NOWHERE}/x.sketch"),
        ("audit", "posts.parquet", "--control", "c.csv", "--json", f"{NOWHERE}/a.json"),
        ("audit", "posts.parquet", "--control", "c.csv", "--report", f"{NOWHERE}/a.html"),
        ("diff", "a.json", "b.json", "--json", f"{NOWHERE}/d.json"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_a_bucket_that_is_not_there_is_known_before_the_work(
    server: Counting, folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("this takes hours")

    monkeypatch.setattr("divscore.jobs.encode.Encoding.run", work)
    said = told(invoke(*command))
    assert f"{NOWHERE}/" in said
    assert "cannot be written (The specified bucket does not exist); check the address" in said
    assert said.count("divscore:") == 1


def test_a_folder_of_results_is_local(folder: Path) -> None:
    np.savez("c.npz", embedding=np.random.default_rng(0).normal(size=(80, 4)), group=["a", "b"] * 40)
    for command in (
        ("compare", "c.npz", "--out", "s3://me:secret@bucket/x"),
        ("demo", "--out", "s3://me:secret@bucket/x"),
        ("reproduce", "ppb", "--data", "c.npz", "--out", "s3://me:secret@bucket/x"),
        ("control", "select", "c.npz", "-o", "s3://me:secret@bucket/x"),
        ("control", "publish", "c.npz", "-o", "s3://me:secret@bucket/x"),
    ):
        said = told(invoke(*command))
        what = "a control set" if command[0] == "control" else "a folder of results"
        assert f"s3://…bucket/x is a URL; {what} can only be written to a local" in said
    with pytest.raises(FileError, match="x is a URL"):
        save_control(ControlSet.read("c.npz"), "s3://bucket/x")
    assert not Path("s3:").exists()
