"""embed: vectors of items in a file or a folder of parts, the same bytes whoever made them, resumed after any stop."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from buckets import pointed_to
from click.testing import CliRunner, Result
from conftest import PPB
from pictures import bomb

from divscore import sources
from divscore.cli import main
from divscore.encoders.registry import ENCODERS
from divscore.errors import FileError
from divscore.jobs import encode, parts
from divscore.jobs.embed import LOCK, EmbedResult, embed, open_items
from divscore.jobs.encode import Encoding
from divscore.sources import items as folders
from divscore.sources.manifest import ABOUT_KEY
from divscore.sources.places import Location

PYTHON = [sys.executable, "-m", "divscore"]
WORDS = ("river", "stone", "cloud", "window", "paper", "morning", "letter", "yellow")
OUT = ("out", "out.arrow")
SHORTER = {"options": {"dimension": "64"}}
HIDDEN = ".out.arrow.parts"
PORTRAITS = PPB.parent / "ppb2017_images"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "RUN", 30)
    monkeypatch.setitem(parts.ROWS, "text", 20)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tiny.folder(tmp_path_factory.mktemp("photos"), {"red": 40, "blue": 60}, 1)
    (root / "blue" / "0007.png").write_bytes(b"no picture")
    return root


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    """Sixty texts in three parts."""
    return write_posts(tmp_path / "posts.parquet")


def write_posts(path: Path, seed: int = 0, rows: int = 60, group: int = 20) -> Path:
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(rows)]
    pq.write_table(
        pa.table({"text": texts, "country": ["SA", "SE"] * (rows // 2)}), path, row_group_size=group
    )
    return path


def run(
    source: Path | str,
    out: Path,
    name: str = "text",
    model: Path | None = None,
    workers: int = 1,
    options: dict[str, str] | None = None,
    **asked: Any,
) -> EmbedResult:
    with Encoding(name, model=model, workers=workers, options=options) as encoding:
        return embed(open_items(source, extra=None), out, encoding, **asked)


def contents(out: Path) -> dict[str, bytes]:
    """Every file below a folder, or the one file, by name."""
    if out.is_file():
        return {"": out.read_bytes()}
    return {
        str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()
    }


def table_of(out: Path) -> pa.Table:
    files = sorted(out.glob("*.arrow")) if out.is_dir() else [out]
    return pa.concat_tables([pa.ipc.open_file(path).read_all().replace_schema_metadata() for path in files])


def vectors_of(out: Path) -> np.ndarray:
    column = table_of(out)["embedding"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


def command(*arguments: Any, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["embed", *map(str, arguments)])
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


def refused(*arguments: Any) -> str:
    return " ".join(command(*arguments, code=2).stderr.split())


def stop_after(monkeypatch: pytest.MonkeyPatch, made: int) -> None:
    """Interrupt the job when so many parts are written."""
    real, calls = parts._Part.write, []

    def write(*arguments: Any, **asked: Any) -> None:
        if len(calls) == made:
            raise KeyboardInterrupt
        calls.append(1)
        real(*arguments, **asked)

    monkeypatch.setattr(parts._Part, "write", write)


def interrupted(source: Path, out: Path, made: int, **asked: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, made)
        with pytest.raises(KeyboardInterrupt):
            run(source, out, **asked)


# What is written


def test_a_file_has_a_vector_an_item_with_its_columns(tmp_path: Path, photos: Path, model: Path) -> None:
    done = run(photos, tmp_path / "one.arrow", "onnx", model)
    assert (done.items, done.vectors, done.resumed, done.parts) == (100, 99, 0, None)
    table = table_of(tmp_path / "one.arrow")
    paths = [path for path in sorted(photos.rglob("*.png")) if path.name != "0007.png" or "red" in str(path)]
    assert table["id"].to_pylist() == [str(path.relative_to(photos)) for path in paths]
    assert table.column_names == ["id", "file", "folder", "embedding"]
    assert not any(field.nullable for field in table.schema)
    with Encoding("onnx", model=model) as encoding:
        expected = encoding.encoder("image").encode([np.asarray(tiny.Image.open(path)) for path in paths])
    np.testing.assert_allclose(vectors_of(tmp_path / "one.arrow"), expected.vectors, atol=1e-5)
    assert sorted(os.listdir(tmp_path)) == ["one.arrow", "one.arrow.skipped.csv"]


def test_a_folder_has_a_file_a_part_and_a_manifest(tmp_path: Path, photos: Path, model: Path) -> None:
    done = run(photos, tmp_path / "out", "onnx", model)
    assert (done.items, done.vectors, done.parts, done.skipped["unreadable"]) == (100, 99, 4, 1)
    files = [f"part-0000{at}.arrow" for at in range(4)]
    assert sorted(contents(tmp_path / "out")) == sorted(
        [*files, "manifest.json", "part-00000.arrow.skipped.csv"]
    )
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["finished"]
    assert [part["file"] for part in manifest["parts"]] == files
    found = sources.open(tmp_path / "out")
    assert [Path(each.url).name for each in found.locations] == files


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("workers", [2, 5])
def test_the_bytes_are_the_same_whoever_made_them(
    tmp_path: Path, photos: Path, model: Path, posts: Path, name: str, workers: int
) -> None:
    for source, encoder, weights in ((photos, "onnx", model), (posts, "ngrams", None)):
        alone, several = tmp_path / encoder / "1" / name, tmp_path / encoder / "2" / name
        run(source, alone, encoder, weights)
        run(source, several, encoder, weights, workers=workers)
        assert contents(alone) == contents(several)


def test_a_file_is_the_concatenation_of_the_parts(tmp_path: Path) -> None:
    for at in range(3):
        write_posts(tmp_path / "many" / f"{at}.parquet", at)
    for name in OUT:
        run(tmp_path / "many", tmp_path / name)
    assert table_of(tmp_path / "out") == table_of(tmp_path / "out.arrow")
    assert table_of(tmp_path / "out.arrow")["id"].to_pylist() == [str(row) for row in range(180)]
    with pa.ipc.open_file(tmp_path / "out.arrow") as file:
        assert file.num_record_batches == 1  # large ones are faster to read


def test_a_long_row_group_becomes_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encode.CHUNK, "text", 10)
    source = write_posts(tmp_path / "posts.parquet", rows=90, group=90)
    done = run(source, tmp_path / "out")
    assert (done.items, done.parts) == (90, 3)
    files = ["part-00000.arrow", "part-00000_00001.arrow", "part-00000_00002.arrow"]
    assert sorted(contents(tmp_path / "out")) == ["manifest.json", *files]
    assert table_of(tmp_path / "out")["id"].to_pylist() == [str(row) for row in range(90)]
    before = contents(tmp_path / "out")
    (tmp_path / "out" / files[1]).unlink()
    assert run(source, tmp_path / "out").resumed == 40  # the first; the last comes after one that is missing
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "txt"])
def test_a_single_text_file_is_cut_too(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(65)]
    lines = [json.dumps({"text": text}) if form == "jsonl" else text for text in texts]
    if form in {"csv", "tsv"}:
        lines[35] = '"a river\nand a ""stone"" here"' if form == "csv" else '"quoted\n"bare"'
        lines.insert(0, "text")
    broken = {"csv": "a,b", "tsv": "a\tb", "jsonl": "{oops", "txt": ""}
    lines[25:25] = ["", broken[form]]
    source, out = tmp_path / f"posts.{form}", tmp_path / "out"
    source.write_text("\n".join(lines))
    done = run(source, out)
    assert (done.parts, done.vectors, done.skipped["unreadable"]) == (4, 65, form != "txt")
    items = open_items(source, extra=None)
    ids = [name for batch in items for name in batch.ids]
    assert table_of(out)["id"].to_pylist() == ids
    listed = [
        line for path in sorted(out.glob("*.skipped.csv")) for line in path.read_text().splitlines()[1:]
    ]
    assert len(listed) == len(items.problems)
    before = contents(out)
    (out / "part-00002.arrow").unlink()
    assert run(source, out).resumed == 45 + (form != "txt")
    assert contents(out) == before


def test_standard_input_is_a_source(tmp_path: Path) -> None:
    texts = "text\n" + "a river\n" * 50
    for out in OUT:
        done = CliRunner().invoke(main, ["embed", "-", "-o", str(tmp_path / out)], input=texts)
        assert done.exit_code == 0, done.stderr
        assert table_of(tmp_path / out).num_rows == 50


def test_columns_of_folders_are_kept(tmp_path: Path) -> None:
    for at, country in enumerate(("SA", "C%C3%B4te d'Ivoire")):
        path = write_posts(tmp_path / "hive" / f"region={country}" / "p.parquet", at)
        assert path.exists()
    for name in OUT:
        command(tmp_path / "hive", "-o", tmp_path / name)
        table = table_of(tmp_path / name)
        assert set(table["region"].to_pylist()) == {"SA", "Côte d'Ivoire"}
        assert len(table.column_names) == len({*table.column_names})


def test_the_folder_is_audited_like_the_items(tmp_path: Path, photos: Path, model: Path) -> None:
    labelled = tiny.folder(tmp_path / "labelled", {"red": 30, "blue": 30}, 2)
    shared = ["--model", str(model), "--no-cache"]
    command(photos, "-o", tmp_path / "out", "--encoder", "onnx", *shared)
    select = [
        "control",
        "select",
        str(labelled),
        "-o",
        str(tmp_path / "C"),
        "--size",
        "20",
        "--encoder",
        "onnx",
    ]
    assert CliRunner().invoke(main, [*select, *shared]).exit_code == 0
    results = []
    for collection in (tmp_path / "out", photos):
        asked = ["audit", str(collection), "--control", str(tmp_path / "C"), *shared]
        done = CliRunner().invoke(main, [*asked, "--by", "folder", "--json", "-"])
        assert done.exit_code == 0, done.stderr
        results.append({each["name"]: each for each in json.loads(done.stdout)["collections"]})
    for name in ("red", "blue"):
        for key in ("count", "skipped"):
            assert results[0][name][key] == results[1][name][key]
        assert results[0][name]["disparity"] == pytest.approx(results[1][name]["disparity"], abs=1e-6)


def test_progress_counts_items_as_they_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts.ROWS, "text", 16_384)
    source = write_posts(tmp_path / "posts.parquet", rows=4000, group=4000)
    for workers, expected in ((1, 8), (2, 8)):
        steps: list[int] = []
        run(source, tmp_path / f"out{workers}", workers=workers, progress=steps.append)
        assert (sum(steps), len(steps)) == (4000, expected)
    steps.clear()
    run(source, tmp_path / "out1", progress=steps.append)
    assert steps == [4000]  # finished before


# Skipped items


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("workers", [1, 2])
def test_bad_pictures_are_skipped_counted_and_listed(
    tmp_path: Path, model: Path, hostile_pictures: Path, name: str, workers: int
) -> None:
    done = run(hostile_pictures, tmp_path / name, "onnx", model, workers)
    assert (done.items, done.vectors, done.skipped["unreadable"]) == (37, 31, 6)
    listed = {}
    for path in sorted(tmp_path.rglob("*.skipped.csv")):
        with open(path, encoding="utf-8", newline="") as stream:
            listed |= {row["id"]: row for row in csv.DictReader(stream)}
    bad = {"cut.png", "text.jpg", "nothing.png", "bomb.png", "dead.jpg", "pipe.png"}
    assert {Path(path).name for path in listed} == bad
    assert listed["blue/pipe.png"]["reason"] == "is not a regular file"
    assert listed["blue/dead.jpg"]["reason"] == "does not exist"
    assert "blue/two\nlines 😀.png" in table_of(tmp_path / name)["id"].to_pylist()
    with pytest.raises(FileError, match=r"blue/dead.jpg: does not exist; fix or remove it"):
        run(hostile_pictures, tmp_path / "strict.arrow", "onnx", model, workers, strict=True)
    # What was finished before is checked, too.
    with pytest.raises(FileError, match=r"blue/dead.jpg: does not exist; fix or remove it"):
        run(hostile_pictures, tmp_path / name, "onnx", model, workers, strict=True)


def _photos_of_every_kind(root: Path) -> dict[str, str]:
    """Write pictures of every kind, all without a face; what is skipped as unreadable, with the reason."""
    from PIL import Image

    root.mkdir()
    rng = np.random.default_rng(0)
    plain = Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[274] = 6
    for mode in ("L", "LA", "P", "RGBA"):
        plain.convert(mode).save(root / f"{mode}.png")
    plain.convert("CMYK").save(root / "cmyk.jpg")
    Image.fromarray(rng.integers(0, 1 << 16, (90, 120), dtype=np.uint16)).save(root / "16 bit.png")
    plain.save(root / "turned.jpg", exif=exif)
    for suffix in ("gif", "webp", "png", "tiff"):
        frames = {"save_all": True, "append_images": [Image.new("RGB", (120, 90))] * 3}
        plain.save(root / f"animated.{suffix}", **frames)
    Image.new("RGB", (20_000, 10_000), "#886644").save(root / "200 million.jpg", quality=30)
    Image.new("RGB", (199, 1)).resize((20_000, 101)).save(root / "a long strip.jpg")
    Image.new("RGB", (30_000, 2_390), "#668844").save(root / "panorama 0.jpg", quality=30)
    Image.new("RGB", (3_198, 2_399), "#668844").save(
        root / "photo 0.jpg", quality=30
    )  # just too small to be halved
    for number in range(1, 8):
        for name in ("panorama", "photo"):
            shutil.copy(root / f"{name} 0.jpg", root / f"{name} {number}.jpg")
    whole = (root / "turned.jpg").read_bytes()
    (root / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    Image.new("RGB", (1, 1)).save(root / "pixel.png")
    # Refused by their headers: nobody has to compress what is never unpacked.
    (root / "200 million.png").write_bytes(bomb(20_000, 10_000))
    stream = io.BytesIO()
    plain.save(stream, "JPEG", progressive=True)
    sizes = (struct.pack(">BHH", 8, *size) for size in ((90, 120), (10_000, 20_000)))
    (root / "200 million progressive.jpg").write_bytes(stream.getvalue().replace(*sizes))
    (root / "bomb.png").write_bytes(bomb())
    (root / "empty.jpg").write_bytes(b"")
    return {
        "cut.jpg": "is cut off",
        "pixel.png": "has 1 × 1 pixels; expected at least 2 on each side",
        "200 million.png": "has 20,000 × 10,000 pixels, more than the limit of 120 million",
        "200 million progressive.jpg": "has 20,000 × 10,000 pixels, more than the limit of 120 million",
        "bomb.png": "has 60,000 × 60,000 pixels, more than the limit of 120 million",
        "empty.jpg": "is empty",
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_faces_are_looked_for_in_pictures_of_every_kind(tmp_path: Path) -> None:
    if missing := ENCODERS["faces"].missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not PORTRAITS.is_dir():
        pytest.skip(f"the PPB-2017 portraits are not at {PORTRAITS}")  # without a vector there is no output
    unreadable = _photos_of_every_kind(tmp_path / "photos")
    shutil.copy(min(PORTRAITS.glob("*.jpg")), tmp_path / "photos")
    code = (
        "import sys\n"
        "from divscore.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    words = ["embed", tmp_path / "photos", "-o", tmp_path / "out.arrow", "--no-cache", "--workers", "1"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "out.arrow.skipped.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["id"]: row["reason"] for row in rows if row["kind"] == "unreadable"} == unreadable
    empty = [row for row in rows if row["kind"] == "empty"]
    assert {row["reason"] for row in empty} == {"no face was found"}
    assert len(empty) == 13 + 16
    assert int(done.stdout) < 400_000  # KB; getrusage would tell the parent's, if that is more


@pytest.mark.parametrize("name", OUT)
def test_nothing_to_encode_is_an_error_that_says_why(tmp_path: Path, model: Path, name: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(
        FileError,
        match=r"none of its 1 item could be encoded; a\.jpg: is not an image of a known format; see .*\.skipped\.csv",
    ):
        run(tmp_path / "photos", tmp_path / name, "onnx", model)
    (listing,) = tmp_path.rglob("*.skipped.csv")
    assert "not an image" in listing.read_text()
    assert not list(tmp_path.glob(".*"))


def test_paths_that_cannot_be_paths_are_unreadable_items(tmp_path: Path, model: Path) -> None:
    (tmp_path / "ok.png").write_bytes(tiny.png(tiny.picture(np.random.default_rng(0), "red")))
    rows = ['{"image": "a\\u0000b.png"}', '{"image": "\\ud800.png"}', '{"image": "ok.png"}']
    (tmp_path / "list.jsonl").write_text("\n".join(rows) + "\n")
    done = run(tmp_path / "list.jsonl", tmp_path / "out.arrow", "onnx", model)
    assert (done.vectors, done.skipped["unreadable"]) == (1, 2)


def test_skipped_items_are_counted_by_the_values_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_VALUES", 3)
    lines = [
        "text,feed,user",
        *(f"{'' if row % 10 == 0 else 'a river'},{row // 30},{row}" for row in range(60)),
    ]
    (tmp_path / "posts.csv").write_text("\n".join(lines) + "\n")
    run(tmp_path / "posts.csv", tmp_path / "out.arrow")
    about = json.loads(pa.ipc.open_file(tmp_path / "out.arrow").schema.metadata[ABOUT_KEY.encode()])
    assert about["skipped"] == {"unreadable": 0, "empty": 6}
    # Not by user: nearly every item has its own.
    by = {"feed": {"0": {"empty": 3}, "1": {"empty": 3}}, "text": {"": {"empty": 6}}}
    assert about["skipped_by"] == by


# Missing parts


@pytest.mark.parametrize("name", OUT)
def test_a_file_that_cannot_be_opened_is_missing(tmp_path: Path, name: str) -> None:
    for at in range(3):
        write_posts(tmp_path / "many" / f"{at}.parquet", at)
    data = (tmp_path / "many" / "1.parquet").read_bytes()
    (tmp_path / "many" / "1.parquet").write_bytes(data[:-30])
    done = command(tmp_path / "many", "-o", tmp_path / name, "--column", "text", "--json")
    facts = json.loads(done.stdout)
    assert facts["items"] == 120
    assert [Path(each["part"]).name for each in facts["missing"]] == ["1.parquet"]
    assert facts["missing"][0]["reason"]
    assert "part of the source could not be read and is missing" in done.stderr
    (tmp_path / "many" / "1.parquet").write_bytes(data)
    again = run(tmp_path / "many", tmp_path / name)
    assert (again.items, again.missing) == (180, ())


@pytest.mark.parametrize("name", OUT)
def test_a_part_that_cannot_be_read_is_missing(tmp_path: Path, name: str) -> None:
    for at in range(3):
        write_posts(tmp_path / "many" / f"{at}.parquet", at)
    scarred = tmp_path / "many" / "1.parquet"
    data = bytearray(scarred.read_bytes())
    data[100:200] = bytes(100)  # in the first of its three row groups
    scarred.write_bytes(data)
    reasons: list[str] = []
    done = run(tmp_path / "many", tmp_path / name, on_missing=reasons.append)
    assert (done.items, [each.rows for each in done.missing]) == (160, [20])
    assert [each.reason for each in done.missing] == reasons
    assert "1.parquet" in reasons[0]
    if name == "out":
        noted = json.loads((tmp_path / name / "manifest.json").read_text())["missing"]
    else:
        noted = json.loads(pa.ipc.open_file(tmp_path / name).schema.metadata[ABOUT_KEY.encode()])["missing"]
    assert [(each["reason"], each["rows"]) for each in noted] == [(reasons[0], 20)]
    with pytest.raises(FileError, match=r"1\.parquet"):
        run(tmp_path / "many", tmp_path / f"strict-{name}", strict=True)


def test_a_full_disk_is_an_error_and_no_missing_part(
    tmp_path: Path, posts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise FileError("cannot write out: No space left on device")

    monkeypatch.setattr(parts, "_write_arrow", full)
    with pytest.raises(FileError, match="No space left"):
        run(posts, tmp_path / "out")


def test_a_text_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "posts.csv"
    source.write_text("text\n" + "a river\n" * 100)
    found = list(parts.item_partitions(open_items(source)))
    source.write_text("text\n" + "a\n" * 400)
    with pytest.raises(FileError, match="bytes 0 to 164 have 80 rows, not 20"):
        list(found[0].read())
    source.write_text("text\n" + "a" * 799 + "\n")
    with pytest.raises(FileError, match="no row begins at byte 165"):
        list(found[1].read())
    source.write_text("text\n")
    with pytest.raises(FileError, match="had 805 when the work was planned"):
        list(found[0].read())
    source.unlink()
    with pytest.raises(FileError, match="every worker must see the files under the same path"):
        list(found[0].read())


# Stopped and resumed


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("made", [0, 1, 2])
def test_a_stopped_job_makes_only_the_missing_parts(
    tmp_path: Path, posts: Path, name: str, made: int
) -> None:
    run(posts, tmp_path / "whole" / name)
    out = tmp_path / name
    interrupted(posts, out, made)
    folder = out if name == "out" else tmp_path / HIDDEN
    if not made:
        assert not folder.exists()
    else:
        assert not (out / "part-00002.arrow").exists()
        assert not out.is_file()
        with pytest.raises(FileError, match="divscore embed"):
            sources.open(folder)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert len(kept) == made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts._Part, "write", counted(parts._Part.write, calls := []))
        done = run(posts, out, workers=2)
    assert (done.resumed, len(calls)) == (20 * made, 3 - made)
    assert contents(out) == contents(tmp_path / "whole" / name)
    assert sorted(os.listdir(tmp_path)) == sorted([name, "posts.parquet", "whole"])


def counted(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def counting(*arguments: Any, **asked: Any) -> Any:
        calls.append(1)
        return function(*arguments, **asked)

    return counting


def test_parts_of_changed_items_are_made_again(
    tmp_path: Path, posts: Path, photos: Path, model: Path
) -> None:
    interrupted(posts, tmp_path / "a.arrow", 2)
    os.utime(write_posts(posts, 1), (0, 0))
    assert run(posts, tmp_path / "a.arrow").resumed == 0
    copy = tiny.folder(tmp_path / "copy", {"red": 90}, 3, sub_folders=False)
    interrupted(copy, tmp_path / "b.arrow", 2, name="onnx", model=model)
    changed = sorted(copy.iterdir())[40]
    changed.write_bytes(tiny.png(tiny.picture(np.random.default_rng(0), "red")))
    done = run(copy, tmp_path / "b.arrow", "onnx", model)
    assert done.resumed == 30  # the first part has none of the changed ones
    run(copy, tmp_path / "fresh.arrow", "onnx", model)
    assert contents(tmp_path / "b.arrow") == contents(tmp_path / "fresh.arrow")


def test_a_damaged_or_forged_part_is_made_again(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    run(posts, out)
    before, part = contents(out), out / "part-00001.arrow"
    part.write_bytes(before[part.name][:100])
    assert run(posts, out).resumed == 40
    assert contents(out) == before
    for about in ("not json", "[1]", '{"items": -1}', None):
        table = pa.ipc.open_file(part).read_all()
        known = {key: value for key, value in table.schema.metadata.items() if key != ABOUT_KEY.encode()}
        forged = table.replace_schema_metadata({**known, **({} if about is None else {ABOUT_KEY: about})})
        with pa.ipc.new_file(part, forged.schema) as writer:
            writer.write_table(forged)
        assert run(posts, out).resumed == 40
        assert contents(out) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", OUT)
def test_killed_by_force_the_same_command_makes_the_rest(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    texts = [" ".join(words) for words in rng.choice(WORDS, (3 * 16_384, 6))]
    pq.write_table(pa.table({"text": texts}), tmp_path / "posts.parquet", row_group_size=16_384)
    asked = [*PYTHON, "embed", str(tmp_path / "posts.parquet"), "--workers", "1", "-o", str(tmp_path / name)]
    folder = tmp_path / (name if name == "out" else HIDDEN)
    with subprocess.Popen(asked, stderr=subprocess.DEVNULL) as job:
        until = time.monotonic() + 60
        while not list(folder.glob("part-*.arrow")) and job.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.005)
        os.kill(job.pid, signal.SIGKILL)
    finished = len(list(folder.glob("part-*.arrow")))
    assert 1 <= finished < 3
    assert not (tmp_path / "out.arrow").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(parts.ROWS, "text", 16_384)
        done = run(tmp_path / "posts.parquet", tmp_path / name, workers=2)
        assert (done.items, done.resumed) == (3 * 16_384, finished * 16_384)
        run(tmp_path / "posts.parquet", tmp_path / "whole" / name)
    assert contents(tmp_path / name) == contents(tmp_path / "whole" / name)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_asked_to_stop_it_does_so_at_once(tmp_path: Path, workers: int, number: signal.Signals) -> None:
    rng = np.random.default_rng(2)
    for at, rows in enumerate((100, 32_000)):  # the second takes some seconds
        texts = [" ".join(words) for words in rng.choice(WORDS, (rows, 60))]
        (tmp_path / "posts").mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": texts}), tmp_path / "posts" / f"{at}.parquet", row_group_size=rows)
    out = tmp_path / "out"
    asked = [*PYTHON, "embed", str(tmp_path / "posts"), "--workers", str(workers), "-o", str(out)]
    with subprocess.Popen(asked, stderr=subprocess.PIPE, text=True) as job:
        until = time.monotonic() + 60
        while not (out / "part-00000.arrow").exists():
            assert time.monotonic() < until
            time.sleep(0.005)
        job.send_signal(number)
        said = job.communicate(timeout=60)[1].splitlines()
    stopped = "stopped; finished parts are kept, and the same command resumes"
    expected = (130, [stopped]) if number == signal.SIGINT else (128 + number, ["stopped"])
    assert (job.returncode, said) == expected
    assert sorted(contents(out)) == ["manifest.json", "part-00000.arrow"]


@pytest.mark.parametrize("name", OUT)
def test_stopped_while_a_file_is_written_no_half_of_it_stays(
    tmp_path: Path, posts: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[str] = []

    class Writer:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write_batch(self, batch: Any) -> None:
            self.file.write_batch(batch)
            seen.extend(path.name for path in tmp_path.rglob(".*.part"))
            raise KeyboardInterrupt

    real = pa.ipc.new_file
    monkeypatch.setattr(pa.ipc, "new_file", lambda *arguments: Writer(real(*arguments)))
    with pytest.raises(KeyboardInterrupt):
        run(posts, tmp_path / name)
    assert seen  # it had begun
    assert sorted(os.listdir(tmp_path)) == ["posts.parquet"]


# Folders and files of others


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "part-00007.arrow").write_bytes(b"somebody else's")
    before = contents(out)
    with pytest.raises(
        FileError, match=r"files that no embedding job made \(part-00007.arrow\); choose a new"
    ):
        run(posts, out)
    assert contents(out) == before
    for manifest in ('{"format": "x/1", "parts": [{"file": "part-00007.arrow"}]}', "[" * 100_000):
        (out / "manifest.json").write_text(manifest)
        assert "manifest.json and 1 more" in refused(posts, "-o", out)
    finished = tmp_path / "out"
    run(posts, finished)
    (finished / "part-00099.arrow").write_bytes(b"somebody else's")
    before = contents(finished)
    write_posts(posts, 1)
    with pytest.raises(FileError, match=r"part-00099\.arrow"):
        run(posts, finished)
    assert contents(finished) == before


def test_the_source_is_never_written_over(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for at in range(2):
        write_posts(source / f"part-0000{at}.parquet", at)
    before = contents(source)
    assert "contains the source" in refused(source, "-o", source)
    assert "is inside the source" in refused(source, "-o", source / "vectors")
    assert "contains the source" in refused(source / "part-00000.parquet", "-o", tmp_path)
    with pytest.raises(FileError, match="contains the source"):
        run(str(source / "*.parquet"), source)
    assert contents(source) == before
    # Vectors that still have texts are a source, too.
    for name in OUT:
        run(source, tmp_path / name)
        before = contents(tmp_path / name)
        for more in ((), ("--overwrite",)):
            said = refused(tmp_path / name, "--column", "text", "-o", tmp_path / name, *more)
            assert "contains the source" in said or "is the source itself" in said or "vectors" in said
        assert contents(tmp_path / name) == before


def test_targets_that_cannot_be(tmp_path: Path, posts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "give a name that ends in .arrow" in refused(posts, "-o", tmp_path / "out.npy")
    (tmp_path / "file").touch()
    assert "is a file; give a folder" in refused(posts, "-o", tmp_path / "file")
    np.save(tmp_path / "v.npy", np.eye(3))
    assert "vectors" in refused(tmp_path / "v.npy", "-o", tmp_path / "out.arrow")
    pq.write_table(pa.table({"text": ["a"], "embedding": ["b"]}), tmp_path / "taken.parquet")
    said = refused(tmp_path / "taken.parquet", "--column", "text", "-o", tmp_path / "out.arrow")
    assert "has a column 'embedding'" in said
    run(posts, tmp_path / "parts", "ngrams")
    part = next((tmp_path / "parts").glob("part-*.arrow"))
    assert f"{part} is one part of the vectors in {tmp_path / 'parts'}" in refused(
        posts, "-o", part, "--overwrite"
    )
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    assert "nothing can be written to a web page" in refused(posts, "-o", "https://me:secret@host/x.arrow")
    assert sorted(os.listdir()) == before


def test_another_encoder_replaces_part_by_part_and_says_so(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    assert not run(posts, out).replaced
    before = contents(out)
    interrupted(posts, out, 1, overwrite=True, **SHORTER)
    halfway = contents(out)
    assert halfway["part-00000.arrow"] != before["part-00000.arrow"]
    assert halfway["part-00001.arrow"] == before["part-00001.arrow"]
    done = run(posts, out, **SHORTER)  # nobody has to agree twice
    assert (done.items, done.resumed) == (60, 20)  # the parts of the other encoder are not taken
    run(posts, tmp_path / "fresh", **SHORTER)
    assert contents(out) == contents(tmp_path / "fresh")
    said = command(posts, "-o", out, "--encoder", "ngrams", "--overwrite").stderr
    assert "replaced vectors of another source or encoder" in said


def test_fewer_parts_than_before_leave_none_of_the_earlier(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    run(posts, out)
    (out / ".part-00001.arrow.0123abcd.part").write_bytes(b"left by a worker that was killed")
    (out / ".mine").write_bytes(b"hidden")
    other = write_posts(tmp_path / "short.parquet", 3, 20)
    interrupted(other, out, 0, overwrite=True)
    assert run(other, out, overwrite=True).items == 20
    assert sorted(contents(out)) == [".mine", "manifest.json", "part-00000.arrow"]


@pytest.mark.parametrize("name", OUT)
def test_a_second_job_at_once_is_refused(tmp_path: Path, posts: Path, name: str) -> None:
    results: list[Result] = []

    def second(_: int) -> None:
        if not results:
            results.append(command(posts, "-o", tmp_path / name, code=2))

    assert run(posts, tmp_path / name, progress=second).items == 60
    assert "is in use by another job" in results[0].stderr
    assert not list(tmp_path.rglob(LOCK))


# Vectors of another source or encoder


@pytest.mark.parametrize("name", OUT)
def test_another_encoder_is_refused(tmp_path: Path, posts: Path, name: str) -> None:
    out, other = tmp_path / name, ("-E", "dimension=64")
    command(posts, "-o", out)
    before = contents(tmp_path)
    said = refused(posts, "-o", out, "--encoder", "ngrams", *other)
    assert "posts by text/1 dimension=512 table=" in said
    assert ", not of posts by ngrams/1 dimension=64; choose another" in said
    assert "--overwrite to replace them" in said
    assert contents(tmp_path) == before
    command(posts, "-o", out, "--encoder", "ngrams", *other, "--overwrite")
    assert contents(tmp_path) != before
    command(posts, "-o", out, "--encoder", "ngrams", *other)
    refused(posts, "-o", out)


@pytest.mark.parametrize("name", OUT)
def test_another_source_is_refused(
    tmp_path: Path, posts: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / name, write_posts(tmp_path / "names.parquet", 1)
    command(posts, "-o", out)
    before = contents(tmp_path)
    assert "not of names by" in refused(other, "-o", out)
    elsewhere = write_posts(tmp_path / "june" / "posts.parquet", 1)
    assert "another source named posts" in refused(elsewhere, "-o", out)
    elsewhere.unlink()
    assert contents(tmp_path) == before
    monkeypatch.chdir(tmp_path)
    command("posts.parquet", "-o", name)  # the same one, its path written in another way
    command(other, "-o", out, "--overwrite")
    run(other, tmp_path / "fresh" / name)
    assert contents(out) == contents(tmp_path / "fresh" / name)


@pytest.mark.parametrize("name", OUT)
def test_an_unfinished_job_of_another_encoder_is_refused(tmp_path: Path, posts: Path, name: str) -> None:
    interrupted(posts, tmp_path / name, 2)
    before = contents(tmp_path)
    assert "2 parts with vectors of posts by text/1 dimension=512" in refused(
        posts, "-o", tmp_path / name, "--encoder", "ngrams", "-E", "dimension=64"
    )
    assert contents(tmp_path) == before
    said = command(posts, "-o", tmp_path / name).stderr
    assert "(40 of the items were finished before)" in said


@pytest.mark.parametrize("content", [b"not Arrow", b""])
def test_a_file_by_somebody_else_is_refused(tmp_path: Path, posts: Path, content: bytes) -> None:
    out = tmp_path / "out.arrow"
    out.write_bytes(content)
    if not content:
        table = pa.table({"text": ["mine"]})
        with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    before = out.read_bytes()
    assert "was not written by 'divscore embed'; choose another name, or --overwrite" in refused(
        posts, "-o", out
    )
    assert out.read_bytes() == before
    command(posts, "-o", out, "--overwrite")
    out.write_bytes(b"")
    command(posts, "-o", out)  # nothing is lost with an empty one


def test_a_projection_is_kept_with_the_vectors(tmp_path: Path, posts: Path) -> None:
    out, other = tmp_path / "out", write_posts(tmp_path / "names.parquet", 1)
    assert f"wrote {out}.pca.npz" in command(posts, "-o", out, "--pca", 4).stderr
    before = contents(tmp_path)
    refused(other, "-o", out, "--pca", 4)
    refused(posts, "-o", out, "--pca", 3)
    assert contents(tmp_path) == before
    command(posts, "-o", out, "--pca", 4)
    assert contents(tmp_path) == before
    command(other, "-o", out, "--pca", 4, "--overwrite")
    command(other, "-o", tmp_path / "fresh", "--pca", 4)
    assert (tmp_path / "out.pca.npz").read_bytes() == (tmp_path / "fresh.pca.npz").read_bytes()
    assert contents(out) == contents(tmp_path / "fresh")


def test_what_a_manifest_says_is_shown_short_and_plain(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    run(posts, out)
    manifest = json.loads((out / "manifest.json").read_text())
    for source in ("\x1b[31m" + "x" * 5000, None, ["a"]):
        (out / "manifest.json").write_text(json.dumps({**manifest, "source": source}))
        said = refused(posts, "-o", out)
        assert "\x1b" not in said
        assert len(said) < 1500


# Elsewhere


@pytest.mark.cluster
@pytest.mark.parametrize("name", OUT)
def test_a_cluster_makes_the_same_bytes(
    tmp_path: Path, photos: Path, posts: Path, model: Path, cluster: Any, name: str
) -> None:
    from divscore.jobs.cluster import ClusterEngine

    def kill_once() -> Iterator[None]:
        cluster.kill_worker(0)
        yield

    killing = kill_once()
    with ClusterEngine(cluster.address) as engine:
        for source, encoder, weights in ((photos, "onnx", model), (posts, "ngrams", None)):
            alone, there = tmp_path / encoder / "1" / name, tmp_path / encoder / "2" / name
            run(source, alone, encoder, weights)
            run(source, there, encoder, weights, engine=engine, progress=lambda _: next(killing, None))
            assert contents(alone) == contents(there)
    asked = ["embed", "-", "-o", str(tmp_path / "x"), "--cluster", cluster.address]
    done = CliRunner().invoke(main, asked, input="text\na river\n")
    assert done.exit_code == 2
    assert "cannot read standard input" in done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_changed_remote_file_of_the_same_size_is_noticed(tmp_path: Path, s3_server: Any) -> None:
    for at, word in enumerate(("river", "stone")):
        (tmp_path / f"{at}.csv").write_text(f"text\n{word} runs\n")
    found = []
    with pointed_to(s3_server):
        import s3fs

        s3 = s3fs.S3FileSystem()
        s3.mkdir("changing")
        for at in (0, 0, 1):
            s3.put_file(str(tmp_path / f"{at}.csv"), "s3://changing/x.csv")
            found.append(Location("s3://changing/x.csv", "s3://changing/x.csv").version())
    assert found[0] == found[1] != found[2]
    assert found[0][0] == found[2][0]
