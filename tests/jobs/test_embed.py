from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tiny
from family import alive, children

from divscore.audit.audit import audit
from divscore.control.controlfile import save_control
from divscore.control.selection import select_random
from divscore.encoders.registry import EncoderSpec
from divscore.errors import ControlError, FileError, InputError, MismatchError
from divscore.jobs.cache import Cache, Entry
from divscore.jobs.embed import EmbedResult, Journal, embed
from divscore.jobs.encode import BATCH, Encoding, Pipeline, Task, chunks, fingerprint
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_any, open_items
from divscore.jobs.pool import read_control
from divscore.jobs.projection import Projection
from divscore.sources.items import ItemBatch

PYTHON = [sys.executable, "-m", "divscore"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.image_model(tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("photos"), {"red": 60, "blue": 140}, 1, sub_folders=False)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("labelled"), {"red": 40, "blue": 40}, 2)


def encoding(model: Path, **asked: Any) -> Encoding:
    return Encoding("onnx", model=model, **asked)


def table_of(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as mapped:
        return pa.ipc.open_file(mapped).read_all()


def vectors_of(path: Path) -> np.ndarray:
    column = table_of(path)["embedding"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


def run_embed(source: Path, out: Path, encoding: Encoding, **asked: Any) -> EmbedResult:
    return embed(open_items(source, extra=None), out, encoding, **asked)


def test_embed_writes_one_vector_an_item_with_its_columns(tmp_path: Path, photos: Path, model: Path) -> None:
    with encoding(model) as one:
        done = run_embed(photos, tmp_path / "one.arrow", one)
        expected = one.encoder("image").encode(
            [np.asarray(tiny.Image.open(p)) for p in sorted(photos.iterdir())]
        )
    table = table_of(tmp_path / "one.arrow")
    assert (done.items, done.vectors, done.resumed, done.skipped) == (
        200,
        200,
        0,
        {"unreadable": 0, "empty": 0},
    )
    assert table["id"].to_pylist() == sorted(p.name for p in photos.iterdir())
    assert table.column_names == ["id", "file", "folder", "embedding"]
    assert not any(field.nullable for field in table.schema)
    np.testing.assert_allclose(vectors_of(tmp_path / "one.arrow"), expected.vectors, atol=1e-5)
    assert sorted(os.listdir(tmp_path)) == ["one.arrow"]
    with encoding(model, workers=3) as three:
        run_embed(photos, tmp_path / "three.arrow", three)
    np.testing.assert_allclose(
        vectors_of(tmp_path / "three.arrow"), vectors_of(tmp_path / "one.arrow"), atol=1e-6
    )


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.3, 0.5, 0.77, 0.999, 1.0])
def test_a_job_cut_off_anywhere_goes_on(tmp_path: Path, photos: Path, model: Path, keep: float) -> None:
    out = tmp_path / "out.arrow"
    with encoding(model) as one:
        run_embed(photos, tmp_path / "whole.arrow", one)
        # Stop when the journal is complete, just before the file is written.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("divscore.jobs.embed.Layout.write", _stop)
            with pytest.raises(KeyboardInterrupt):
                run_embed(photos, out, one)
        part = tmp_path / "out.arrow.part"
        data = part.read_bytes()
        part.write_bytes(data[: int(len(data) * keep)])
        assert not out.exists()
        done = run_embed(photos, out, one)
    assert out.read_bytes() == (tmp_path / "whole.arrow").read_bytes()
    # At most the record that was cut is made again; all of them if the header is gone.
    assert done.resumed >= (200 * keep - 16 - 8 if keep > 0.01 else 0)
    assert not part.exists()


def _stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_journal_of_other_items_or_another_encoder_is_not_used(
    tmp_path: Path, photos: Path, model: Path
) -> None:
    out = tmp_path / "out.arrow"
    copy = tmp_path / "photos"
    copy.mkdir()
    for path in photos.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    names = sorted(os.listdir(copy))
    with encoding(model) as one, pytest.MonkeyPatch.context() as patch:
        patch.setattr("divscore.jobs.embed.Layout.write", _stop)
        with pytest.raises(KeyboardInterrupt):
            run_embed(copy, out, one)
    rng = np.random.default_rng(0)
    (copy / names[100]).write_bytes(tiny.png(tiny.picture(rng, "red")))
    with encoding(model) as one:
        done = run_embed(copy, out, one)
        assert 80 <= done.resumed <= 100  # up to the chunk with the changed picture
        run_embed(copy, tmp_path / "fresh.arrow", one)
    assert vectors_of(out).tobytes() == vectors_of(tmp_path / "fresh.arrow").tobytes()


def test_no_more_than_a_batch_is_on_the_way() -> None:
    for workers in (1, 2, 3, 8):
        task = Task(EncoderSpec("ngrams", "text"))
        with Counting(workers) as executor:
            pipeline = Pipeline(task, engine=Engine(workers, executor=executor))
            source = [ItemBatch([f"text {i}" for i in range(100_000)], [str(i) for i in range(100_000)])]
            taken = 0
            for piece, outcome in pipeline.run(chunks(source, pipeline.chunk)):
                assert len(piece) == len(outcome)
                taken += len(piece)
                assert executor.items - taken <= BATCH["text"]
            assert taken == 100_000


class Counting(ThreadPoolExecutor):
    items = 0

    def submit(self, work: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        self.items += len(args[1])
        return super().submit(work, *args, **kwargs)


def test_killed_by_force_the_same_command_goes_on(tmp_path: Path, model: Path) -> None:
    photos = tiny.folder(tmp_path / "photos", {"red": 1500}, 3, sub_folders=False)
    out = tmp_path / "out.arrow"
    command = [*PYTHON, "embed", str(photos), "-o", str(out), "--encoder", "onnx", "--model", str(model)]
    command += ["--no-cache", "--json", "--workers", "2"]
    part = tmp_path / "out.arrow.part"
    resumed = 0
    for records in (4, 20):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while _records(part) < resumed / 8 + records and time.monotonic() < until and running.poll() is None:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert not out.exists()
        resumed = 8 * _records(part)
        assert resumed >= 8 * records
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    facts = json.loads(finished.stdout)
    assert facts["resumed"] >= resumed > 0
    assert (facts["items"], facts["vectors"]) == (1500, 1500)
    with encoding(model) as one:
        run_embed(photos, tmp_path / "whole.arrow", one)
    assert table_of(out)["id"].to_pylist() == table_of(tmp_path / "whole.arrow")["id"].to_pylist()
    np.testing.assert_allclose(vectors_of(out), vectors_of(tmp_path / "whole.arrow"), atol=1e-6)
    assert not part.exists()


def _records(part: Path) -> int:
    header = Journal.header_of(part)
    if header is None:
        return 0
    copy = part.with_suffix(".copy")
    copy.write_bytes(part.read_bytes())
    journal = Journal(copy, header)
    journal.close()
    return len(journal.marks)


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    photos = tiny.folder(tmp_path / "photos", {"red": 200}, 3, sub_folders=False)
    command = [
        *PYTHON,
        "embed",
        str(photos),
        "-o",
        str(tmp_path / "out.arrow"),
        "--no-cache",
        "--workers",
        "2",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while len(children(running.pid)) < 3 and time.monotonic() < until:  # two workers and their tracker
        time.sleep(0.02)
    workers = children(running.pid)
    assert workers
    running.send_signal(signal.SIGKILL)
    running.wait()
    until = time.monotonic() + 30
    while any(alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in workers if alive(pid)]


HOSTILE = {
    "cut.png": lambda good: good[: len(good) // 2],
    "text.jpg": lambda good: b"this is no picture\n" * 10,
    "nothing.png": lambda good: b"",
    "bomb.png": lambda good: _bomb(),
}


def _bomb() -> bytes:
    import struct
    import zlib

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) + part(b"IDAT", data) + part(b"IEND", b"")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Thirty good pictures among bad ones and odd names."""
    root = tiny.folder(tmp_path / "mixed", {"red": 10, "blue": 20}, 4)
    good = (root / "red" / "0000.png").read_bytes()
    for name, spoil in HOSTILE.items():
        (root / "red" / name).write_bytes(spoil(good))
    (root / "blue" / "two\nlines 😀.png").write_bytes(good)
    (root / "blue" / "folder.png").mkdir()
    (root / "blue" / "dead.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(root / "blue" / "pipe.png")
    (root / "blue" / "loop").symlink_to(root, target_is_directory=True)
    return root


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_pictures_are_skipped_counted_and_listed(
    tmp_path: Path, mixed: Path, model: Path, workers: int
) -> None:
    with encoding(model, workers=workers) as some:
        done = run_embed(mixed, tmp_path / "out.arrow", some)
    assert (done.items, done.vectors, done.skipped["unreadable"]) == (37, 31, 6)
    with open(tmp_path / "out.arrow.skipped.csv", encoding="utf-8", newline="") as stream:
        listed = {row["id"]: row for row in csv.DictReader(stream)}
    assert {Path(name).name for name in listed} == {*HOSTILE, "dead.jpg", "pipe.png"}
    assert listed["blue/pipe.png"]["reason"] == "is not a regular file"
    assert listed["blue/dead.jpg"]["reason"] == "does not exist"
    assert "blue/two\nlines 😀.png" in table_of(tmp_path / "out.arrow")["id"].to_pylist()
    with encoding(model) as some, pytest.raises(FileError, match=r"blue/dead.jpg: does not exist; mend it"):
        run_embed(mixed, tmp_path / "strict.arrow", some, strict=True)
    assert not (tmp_path / "strict.arrow").exists()


def test_nothing_to_encode_is_an_error_that_lists_why(tmp_path: Path, model: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with (
        encoding(model) as some,
        pytest.raises(FileError, match=r"none of 1 items has a vector; out.arrow.skipped.csv"),
    ):
        run_embed(tmp_path, tmp_path / "out.arrow", some)
    assert "not an image" in (tmp_path / "out.arrow.skipped.csv").read_text()


def test_targets_that_cannot_be(tmp_path: Path, photos: Path, model: Path) -> None:
    with encoding(model) as some:
        with pytest.raises(FileError, match=r"give a name that ends in \.arrow"):
            run_embed(photos, tmp_path / "out.npy", some)
        (tmp_path / "dir.arrow").mkdir()
        with pytest.raises(FileError, match="is a folder"):
            run_embed(photos, tmp_path / "dir.arrow", some)
    np.save(tmp_path / "v.npy", np.eye(3))
    with pytest.raises(FileError, match="has vectors, not items"):
        open_items(tmp_path / "v.npy")


def test_cache_by_content_and_encoder(tmp_path: Path, photos: Path, model: Path, monkeypatch: Any) -> None:
    encoded: list[int] = []
    folder = tmp_path / "cache"

    def first_time() -> Iterator[Encoding]:
        with encoding(model, cache=folder) as some:
            kind = type(some.encoder("image"))
            monkeypatch.setattr(kind, "encode", _counted(kind.encode, encoded))
            yield some
            monkeypatch.undo()

    for expected in (200, 0):
        encoded.clear()
        for some in first_time():
            blocks = list(open_any(photos, some))
        assert sum(encoded) == expected
    moved = tmp_path / "moved"
    moved.mkdir()
    for number, path in enumerate(sorted(photos.iterdir())):
        (moved / f"{number}.png").write_bytes(path.read_bytes())
    encoded.clear()
    for some in first_time():
        again = list(open_any(moved, some))
    assert sum(encoded) == 0
    assert {tuple(v) for b in again for v in b.vectors} == {tuple(v) for b in blocks for v in b.vectors}
    assert len(list(folder.glob("onnx-*.sqlite"))) == 1
    with Encoding("onnx", model=model, cache=folder, options={"normalise": "none"}) as other:
        list(open_any(photos, other))
    assert len(list(folder.glob("onnx-*.sqlite"))) == 2


def _counted(encode: Any, counts: list[int]) -> Any:
    def counting(self: Any, items: Any) -> Any:
        counts.append(len(items))
        return encode(self, items)

    return counting


def test_cache_keeps_several_none_and_reasons(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "er", "thing/1 a=b", 3)
    cache.prepare()
    rng = np.random.default_rng(0)
    entries = {
        b"1" * 16: Entry(rng.normal(size=(1, 3)).astype(np.float32)),
        b"2" * 16: Entry(rng.normal(size=(4, 3)).astype(np.float32), found=4),
        b"3" * 16: Entry(np.empty((0, 3), np.float32), 0, "empty", "shows no face"),
    }
    cache.add(entries)
    cache.close()
    known = Cache(tmp_path / "deep" / "er", "thing/1 a=b", 3).lookup([*entries, b"4" * 16, b""])
    assert set(known) == set(entries)
    for key, entry in entries.items():
        assert known[key].vectors.tobytes() == entry.vectors.tobytes()
        assert (known[key].found, known[key].kind, known[key].reason) == (
            entry.found,
            entry.kind,
            entry.reason,
        )


def test_a_cache_that_cannot_be_used_says_so(tmp_path: Path, photos: Path, model: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with encoding(model, cache=tmp_path / "file") as some, pytest.raises(FileError, match="--no-cache"):
        list(open_any(photos, some))
    with encoding(model, cache=tmp_path) as some:
        list(open_any(photos, some))
    next(tmp_path.glob("onnx-*.sqlite")).write_bytes(b"no database" * 1000)
    for rest in (*tmp_path.glob("*-wal"), *tmp_path.glob("*-shm")):
        rest.unlink()
    with encoding(model, cache=tmp_path) as some, pytest.raises(FileError, match="cannot be used"):
        list(open_any(photos, some))


def test_a_folder_of_pictures_is_audited_from_sub_folders(photos: Path, labelled: Path, model: Path) -> None:
    with encoding(model) as some:
        control = read_control(labelled, some, attribute="colour")
        assert control.counts == {"blue": 40, "red": 40}
        assert control.attribute == "colour"
        assert control.encoder.startswith("onnx/1 ")
        assert control.ids[0] == "blue/0000.png"
        result = audit((block.vectors for block in open_any(photos, some)), control)
    assert result.count == 200
    assert 0.4 in result.interval  # 140 blue, 60 red
    assert abs(result.disparity - 0.4) < 0.1


def test_labels_in_a_table_beside_the_pictures(labelled: Path, model: Path, tmp_path: Path) -> None:
    rows = [
        f"../{path.relative_to(labelled.parent)},{path.parent.name},{i % 2}x"
        for i, path in enumerate(sorted(labelled.rglob("*.png")))
    ]
    root = labelled.parent / "by-table"
    root.mkdir(exist_ok=True)
    (root / "labels.csv").write_text("file,colour,other\n" + "\n".join(rows) + "\n")
    with encoding(model) as some:
        folders = read_control(labelled, some, attribute="colour")
        control = read_control(root, some, attribute="colour")
        both = read_control(root, some, attribute="colour×other")
    np.testing.assert_array_equal(control.vectors, folders.vectors)
    assert control.groups == folders.groups
    assert control.digest == folders.digest
    assert both.groups == ("blue × 0x", "blue × 1x", "red × 0x", "red × 1x")


def test_labelled_examples_that_cannot_be_encoded_are_counted_by_group(mixed: Path, model: Path) -> None:
    (mixed / "blue" / "loop").unlink()
    with encoding(model) as some:
        control = read_control(mixed, some)
    assert control.counts == {"blue": 21, "red": 10}
    assert control.skipped == {"blue": 2, "red": 4}
    assert control.attribute == "group"


def test_unevenly_left_out_examples_warn(labelled: Path, model: Path, tmp_path: Path) -> None:
    with encoding(model) as some:
        control = read_control(labelled, some)
        vectors = np.concatenate([control.vectors[:30], control.vectors[40:70]])
    control.skipped = {"red": 12}
    warned = [text for text in audit(vectors, control).warnings if "more often than of others" in text]
    assert warned
    assert "23% of 'red', 0% of 'blue'" in warned[0]
    control.skipped = {"red": 2, "blue": 1}
    assert not [text for text in audit(vectors, control).warnings if "more often than of others" in text]
    save_control(select_random(control, 20), tmp_path / "C")
    with encoding(model) as some:
        assert read_control(tmp_path / "C", some).skipped == {"red": 2, "blue": 1}


def test_pools_that_cannot_be(tmp_path: Path, labelled: Path, model: Path) -> None:
    root = tiny.folder(tmp_path / "flat", {"red": 3}, 1, sub_folders=False)
    with encoding(model) as some:
        with pytest.raises(ControlError, match=r"lies beside the sub-folders; .* flat/female and flat/male"):
            read_control(root, some)
        with pytest.raises(ControlError, match="names pictures without their groups"):
            read_control(f"{labelled}/*/*.png", some)
        one = tiny.folder(tmp_path / "one", {"red": 3}, 1)
        with pytest.raises(ControlError, match="all 3 labelled examples belong to group 'red'"):
            read_control(one, some)


def test_another_encoder_is_an_error_that_says_so(
    tmp_path: Path, labelled: Path, photos: Path, model: Path
) -> None:
    from click.testing import CliRunner

    from divscore.cli import main

    common = ["--no-cache", "--model", str(model), "--workers", "1"]
    run = CliRunner().invoke
    made = run(
        main,
        [
            "control",
            "select",
            str(labelled),
            "-o",
            str(tmp_path / "C"),
            "--size",
            "20",
            "--encoder",
            "onnx",
            *common[:3],
        ],
    )
    assert made.exit_code == 0, made.output
    # The control set says which encoder with which settings; only the model's place has to be told.
    fine = run(main, ["audit", str(photos), "--control", str(tmp_path / "C"), "--json", "-", *common])
    assert fine.exit_code == 0, fine.output
    assert json.loads(fine.stdout)["encoder"].startswith("onnx/1 ")
    other = run(
        main, ["audit", str(photos), "--control", str(tmp_path / "C"), "-E", "normalise=none", *common]
    )
    assert other.exit_code == 2
    assert "was encoded by 'onnx/1" in other.stderr
    assert "use the same encoder for both" in other.stderr
    missing = run(main, ["audit", str(photos), "--control", str(tmp_path / "C"), "--no-cache"])
    assert missing.exit_code == 2
    assert "the encoder 'onnx' needs --model" in missing.stderr


def test_projection_is_shared_by_control_set_and_collection(
    tmp_path: Path, labelled: Path, photos: Path, model: Path
) -> None:
    with encoding(model, pca=4) as some:
        control = read_control(labelled, some)
        assert control.dimension == 4
        assert some.projection is not None
        some.projection.save(tmp_path / "p.npz")
        source = open_any(photos, some)
        assert source.metadata["divscore.encoder"] == control.encoder
        result = audit((block.vectors for block in source), control)
    assert 0.4 in result.interval
    loaded = Projection.load(tmp_path / "p.npz")
    assert loaded.digest == some.projection.digest
    assert f"pca=4:{loaded.digest[:16]}" in str(control.encoder)
    with encoding(model, pca=tmp_path / "p.npz") as again:
        assert read_control(labelled, again).digest == control.digest
    with (
        Encoding("ngrams", pca=tmp_path / "p.npz") as other,
        pytest.raises(MismatchError, match="was fitted on"),
    ):
        other.identity("text")


def test_principal_components() -> None:
    rng = np.random.default_rng(0)
    for shape in ((300, 20), (30, 80)):
        rows = rng.normal(size=shape) * np.geomspace(10, 0.1, shape[1]) + 3
        found = Projection.fit(rows, 5, "x")
        centred = rows - rows.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        np.testing.assert_allclose(np.abs(found.components.T @ axes[:5].T), np.eye(5), atol=1e-8)
        np.testing.assert_allclose(
            np.abs(found.apply(rows)), np.abs(centred @ axes[:5].T), rtol=1e-4, atol=1e-4
        )
    with pytest.raises(InputError, match="needs more than 40 items"):
        Projection.fit(rng.normal(size=(30, 80)), 40, "x")
    with pytest.raises(InputError, match="would not shorten"):
        Projection.fit(rng.normal(size=(300, 80)), 80, "x")
    with pytest.raises(InputError, match="vary in 2 directions"):
        Projection.fit(
            np.outer(rng.normal(size=300), np.ones(9)) + np.outer(rng.normal(size=300), np.eye(9)[0]), 3, "x"
        )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_files_that_are_no_projection(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.npz").write_bytes(content)
    with pytest.raises(FileError, match="is not a projection"):
        Projection.load(tmp_path / "p.npz")
    with pytest.raises(FileError, match="does not exist"):
        Projection.load(tmp_path / "none.npz")


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="unknown encoder 'magic'; there are faces, "):
        Encoding("magic")


def write_posts(path: Path, feed: str, rows: int = 40_000, empty: int = -1) -> Path:
    lines = ["text,feed", *(f"{'' if row == empty else f'post number {row}'},{feed}" for row in range(rows))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def interrupted(source: Path, out: Path) -> None:
    """Leave a journal in which all chunks are finished."""
    with Encoding() as plain, pytest.MonkeyPatch.context() as patch:
        patch.setattr("divscore.jobs.embed.Layout.write", _stop)
        with pytest.raises(KeyboardInterrupt):
            run_embed(source, out, plain)


def test_a_changed_column_is_not_taken_from_the_journal(tmp_path: Path) -> None:
    source, out = write_posts(tmp_path / "posts.csv", "old"), tmp_path / "out.arrow"
    interrupted(source, out)
    write_posts(source, "new")
    with Encoding() as plain:
        assert run_embed(source, out, plain).resumed == 0
    assert set(table_of(out)["feed"].to_pylist()) == {"new"}


def test_strict_holds_for_what_was_finished_before(tmp_path: Path) -> None:
    source, out = write_posts(tmp_path / "posts.csv", "x", rows=100, empty=5), tmp_path / "out.arrow"
    interrupted(source, out)
    with Encoding() as plain, pytest.raises(FileError, match="5: is empty; mend it"):
        run_embed(source, out, plain, strict=True)
    assert not out.exists()


def test_two_jobs_do_not_share_a_journal(tmp_path: Path) -> None:
    first = Journal(tmp_path / "a.part", {"source": "x"})
    with pytest.raises(FileError, match="in use by another job"):
        Journal(tmp_path / "a.part", {"source": "y"})
    first.append(b"s" * 16, b"payload")
    assert list(first.payloads()) == [b"payload"]
    first.close()
    again = Journal(tmp_path / "a.part", {"source": "y"})
    assert again.replaced
    again.close()


def test_the_source_itself_is_not_overwritten(tmp_path: Path) -> None:
    with Encoding() as plain:
        run_embed(write_posts(tmp_path / "posts.csv", "x", rows=10), tmp_path / "a.arrow", plain)
        before = (tmp_path / "a.arrow").read_bytes()
        with pytest.raises(FileError, match="is the source itself"):
            embed(open_items(tmp_path / "a.arrow", column="text"), tmp_path / "a.arrow", plain)
    assert (tmp_path / "a.arrow").read_bytes() == before


def test_paths_that_cannot_be_paths_are_unreadable_items(tmp_path: Path, model: Path) -> None:
    (tmp_path / "ok.png").write_bytes(tiny.png(tiny.picture(np.random.default_rng(0), "red")))
    rows = ['{"image": "a\\u0000b.png"}', '{"image": "\\ud800.png"}', '{"image": "ok.png"}']
    (tmp_path / "list.jsonl").write_text("\n".join(rows) + "\n")
    with encoding(model) as some:
        done = run_embed(tmp_path / "list.jsonl", tmp_path / "out.arrow", some)
    assert (done.vectors, done.skipped["unreadable"]) == (1, 2)


def test_a_cache_that_breaks_does_not_stop_the_work(tmp_path: Path, photos: Path, model: Path) -> None:
    with encoding(model, cache=tmp_path) as some:
        whole = np.concatenate([block.vectors for block in open_any(photos, some)])
        file = next(tmp_path.glob("onnx-*.sqlite"))
        data = file.read_bytes()
    file.write_bytes(data[:4096] + bytes(len(data) - 4096))
    for rest in (*tmp_path.glob("*-wal"), *tmp_path.glob("*-shm")):
        rest.unlink()
    with encoding(model, cache=tmp_path) as some:
        again = np.concatenate([block.vectors for block in open_any(photos, some)])
        assert "is not used any more" in some.troubles()[0]
    np.testing.assert_allclose(again, whole, atol=1e-6)


def test_what_could_not_be_read_is_not_remembered(tmp_path: Path, model: Path) -> None:
    bad = tmp_path / "photos" / "a.png"
    bad.parent.mkdir()
    bad.write_bytes(b"no picture")
    with encoding(model, cache=tmp_path / "cache") as some:
        list(open_any(bad.parent, some))
        cache = Cache(tmp_path / "cache", "", 8)
        cache.path = next((tmp_path / "cache").glob("*.sqlite"))
        assert not cache.lookup([fingerprint(b"no picture")])
        cache.close()


@pytest.mark.parametrize("cached", [False, True])
def test_pictures_in_memory_reach_the_workers(tmp_path: Path, model: Path, cached: bool) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    rng = np.random.default_rng(0)
    for number in range(40):
        memory.pipe(f"/shelf/{number:02}.png", tiny.png(tiny.picture(rng, "red")))
    try:
        with encoding(model, workers=2, cache=tmp_path if cached else None) as some:
            blocks = list(open_any("memory://shelf", some))
        assert sum(len(block.vectors) for block in blocks) == 40
        with Encoding("faces", workers=2, cache=tmp_path if cached else None) as faces:  # processes
            source = open_any("memory://shelf", faces)
            assert not list(source)
        assert source.skipped() == {"unreadable": 0, "empty": 40}  # read, and no face in it
    finally:
        memory.rm("/shelf", recursive=True)


def test_an_encoder_that_fails_on_one_item_spares_the_others(
    photos: Path, model: Path, monkeypatch: Any
) -> None:
    with encoding(model) as some:
        kind = type(some.encoder("image"))
        encode = kind.encode
        marked = np.asarray(tiny.Image.open(sorted(photos.iterdir())[3]))

        def failing(self: Any, items: Any) -> Any:
            if any(np.array_equal(item, marked) for item in items):
                raise MemoryError("too much")
            return encode(self, items)

        monkeypatch.setattr(kind, "encode", failing)
        source = open_any(photos, some)
        assert sum(len(block.vectors) for block in source) == 199
    assert "made the encoder fail (MemoryError: too much)" in source.problems[0]


def test_a_folder_that_cannot_be_listed_is_no_small_matter(
    labelled: Path, model: Path, monkeypatch: Any
) -> None:
    listing = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("red"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with encoding(model) as some:
        with pytest.raises(
            ControlError, match="red cannot be listed: Permission denied; a group would be missing"
        ):
            read_control(labelled, some)
        with pytest.raises(FileError, match="red cannot be listed"):
            list(open_any(labelled, some, strict=True))
