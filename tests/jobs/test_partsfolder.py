"""The folder that `embed` writes: what is not its own is never touched, and one job at a time is at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from buckets import s3_server
from click.testing import CliRunner
from test_embed_parts import contents, parts

from divscore.cli import main
from divscore.errors import FileError
from divscore.jobs import embed as itempart
from divscore.jobs import parts as partjob
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.opening import open_items
from divscore.jobs.parts import LOCK, PartsResult, embed_parts
from divscore.sources.manifest import ABOUT_KEY

WORDS = ("river", "stone", "cloud", "window", "paper", "morning", "letter", "yellow")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(itempart.ROWS, "text", 20)


def write_posts(path: Path, seed: int = 0, count: int = 60) -> None:
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(count)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=20)


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    write_posts(tmp_path / "posts.parquet")
    return tmp_path / "posts.parquet"


def embedded(source: Path, out: Path, **asked: Any) -> PartsResult:
    with Engine(1) as engine:
        return parts(source, out, engine, "ngrams", **asked)


def refused(*arguments: Any) -> str:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "part-00007.arrow").write_bytes(b"somebody else's")
    before = contents(out)
    with pytest.raises(
        FileError, match=r"holds files that are not of an embedding job \(part-00007.arrow\); give a new"
    ):
        embedded(posts, out)
    assert contents(out) == before
    (out / "manifest.json").write_text('{"format": "something/1", "parts": [{"file": "part-00007.arrow"}]}')
    before = contents(out)
    assert "manifest.json and 1 more" in refused("embed", posts, "-o", out)
    assert contents(out) == before


def test_files_that_were_put_into_a_finished_folder_stay(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    embedded(posts, out)
    (out / "part-00099.arrow").write_bytes(b"somebody else's")
    before = contents(out)
    write_posts(posts, 1)
    with pytest.raises(FileError, match=r"part-00099\.arrow"):
        embedded(posts, out)
    assert contents(out) == before


@pytest.mark.parametrize("inside", [False, True])
def test_the_source_is_never_written_over(tmp_path: Path, inside: bool) -> None:
    source = tmp_path / "source"
    for at in range(2):
        write_posts(source / f"part-0000{at}.parquet", at)
    before = contents(source)
    told = refused("embed", source, "-o", source / "vectors" if inside else source)
    assert ("lies inside the source" if inside else "contains the source") in told
    assert contents(source) == before
    told = refused("embed", source / "part-00000.parquet", "-o", tmp_path)
    assert "contains the source" in told
    with Engine(1) as engine, Encoding("ngrams") as encoding:
        items = open_items(str(source / "*.parquet"), extra=None)
        with pytest.raises(FileError, match="contains the source"):
            embed_parts(items, source, encoding, engine)
    assert contents(source) == before


def test_a_source_of_vectors_made_before_survives(tmp_path: Path, posts: Path) -> None:
    """Parts of an earlier job that still have texts are a source, too."""
    source = tmp_path / "again"
    embedded(posts, source)
    before = contents(source)
    told = refused("embed", source, "-o", source, "--column", "text")
    assert "contains the source" in told or "holds vectors" in told
    assert contents(source) == before


def test_another_encoder_replaces_part_by_part_and_says_so(
    tmp_path: Path, posts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert not embedded(posts, out).replaced
    before = contents(out)
    shorter = {"options": {"dimension": "256"}}

    def again(overwrite: bool = False) -> PartsResult:
        with Engine(1) as engine, Encoding("ngrams", **shorter) as encoding:  # type: ignore[arg-type]
            return embed_parts(open_items(posts, extra=None), out, encoding, engine, overwrite=overwrite)

    real, calls = partjob.embed, []

    def stopped(*given: Any, **asked: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **asked)

    monkeypatch.setattr(partjob, "embed", stopped)
    with pytest.raises(KeyboardInterrupt):
        again(overwrite=True)
    halfway = contents(out)
    assert halfway["part-00000.arrow"] != before["part-00000.arrow"]
    assert halfway["part-00001.arrow"] == before["part-00001.arrow"]
    monkeypatch.undo()
    monkeypatch.setitem(itempart.ROWS, "text", 20)
    done = again()  # what was agreed to once is not asked again
    assert (done.items, done.resumed) == (60, 20)  # what the earlier encoder left is not taken for this one's
    with Engine(1) as engine, Encoding("ngrams", **shorter) as encoding:  # type: ignore[arg-type]
        embed_parts(open_items(posts, extra=None), tmp_path / "fresh", encoding, engine)
    assert contents(out) == contents(tmp_path / "fresh")
    asked = ["embed", str(posts), "-o", str(out), "--encoder", "ngrams", "--json"]
    told = CliRunner().invoke(main, [*asked, "--overwrite"])
    assert told.exit_code == 0
    assert "held vectors of another source or by another encoder" in told.stderr
    assert json.loads(told.stdout)["missing"] == []


def test_fewer_parts_than_before_leave_none_of_the_earlier(tmp_path: Path, posts: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "short.parquet"
    embedded(posts, out)
    (out / ".part-00001.arrow.0123abcd").write_bytes(b"left by a worker that was killed")
    (out / ".mine").write_bytes(b"hidden")
    write_posts(other, 3, 20)
    assert embedded(other, out, overwrite=True).replaced
    assert sorted(contents(out)) == [".mine", "manifest.json", "part-00000.arrow"]


def test_a_damaged_part_is_made_anew(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    embedded(posts, out)
    before = contents(out)
    (out / "part-00001.arrow").write_bytes(before["part-00001.arrow"][:100])
    assert embedded(posts, out).resumed == 40
    assert contents(out) == before


def test_a_second_job_at_once_is_refused(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    first = []

    def second(_: int) -> None:
        if not first:
            command = [sys.executable, "-m", "divscore", "embed", str(posts), "-o", str(out)]
            first.append(subprocess.run(command, capture_output=True, text=True))

    with Engine(1) as engine:
        done = parts(posts, out, engine, "ngrams", progress=second)
    assert done.items == 60
    assert first[0].returncode == 2
    assert f"{out} is in use by another job" in first[0].stderr
    assert not (out / LOCK).exists()
    assert embedded(posts, out).resumed == 60


@pytest.mark.parametrize("out", ["s3://bucket/vectors/", "s3://bucket/vectors.arrow", "memory://x"])
def test_an_address_to_write_to_is_refused(
    out: str, tmp_path: Path, posts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    assert "is a URL; vectors can only be written to a local" in refused("embed", posts, "-o", out)
    assert sorted(os.listdir()) == before


def test_columns_of_folders_are_kept(tmp_path: Path) -> None:
    for at, country in enumerate(("SA", "C%C3%B4te d'Ivoire")):
        write_posts(tmp_path / "hive" / f"country={country}" / "p.parquet", at)
    embedded(tmp_path / "hive", tmp_path / "out")
    found = [pa.ipc.open_file(path).read_all() for path in sorted((tmp_path / "out").glob("*.arrow"))]
    assert {value for table in found for value in table["country"].to_pylist()} == {"SA", "Côte d'Ivoire"}
    assert len(found[0].column_names) == len({*found[0].column_names})
    done = CliRunner().invoke(main, ["embed", str(tmp_path / "hive"), "-o", str(tmp_path / "one.arrow")])
    assert done.exit_code == 0, done.stderr
    assert "country" in pa.ipc.open_file(tmp_path / "one.arrow").schema.names


@pytest.mark.parametrize("out", ["out", "out.arrow"])
def test_files_that_cannot_be_opened_are_said_to_be_missing(tmp_path: Path, out: str) -> None:
    for at in range(3):
        write_posts(tmp_path / "many" / f"{at}.parquet", at)
    (tmp_path / "many" / "1.parquet").write_bytes(b"PAR1 and nothing else")
    asked = ["embed", str(tmp_path / "many"), "-o", str(tmp_path / out), "--column", "text", "--json"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.stderr
    missing = json.loads(done.stdout)["missing"]
    assert [Path(each["part"]).name for each in missing] == ["1.parquet"]
    assert missing[0]["reason"]
    assert "1 part of the source could not be read and is missing" in done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_changed_remote_file_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    from divscore.sources.places import Location

    for at, word in enumerate(("river", "stone")):
        (tmp_path / f"{at}.csv").write_text(f"text\n{word} runs\n")
    with s3_server():
        import s3fs

        s3 = s3fs.S3FileSystem()
        s3.mkdir("posts")
        found = []
        for at in (0, 0, 1):
            s3.put_file(str(tmp_path / f"{at}.csv"), "s3://posts/x.csv")
            found.append(itempart._version(Location("s3://posts/x.csv", "s3://posts/x.csv")))
    assert found[0] == found[1] != found[2]
    assert found[0][0] == found[2][0]


def test_a_part_whose_account_of_the_items_is_damaged_is_made_anew(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    embedded(posts, out)
    before = contents(out)
    for about in ("not json", "[1]", '{"items": -1}', None):
        with pa.ipc.open_file(out / "part-00001.arrow") as reader:
            table = reader.read_all()
        known = {key: value for key, value in table.schema.metadata.items() if key != ABOUT_KEY.encode()}
        forged = table.replace_schema_metadata({**known, **({} if about is None else {ABOUT_KEY: about})})
        with pa.ipc.new_file(out / "part-00001.arrow", forged.schema) as writer:
            writer.write_table(forged)
        done = embedded(posts, out)
        assert (done.items, done.resumed) == (60, 40)
        assert contents(out) == before


def test_parts_without_a_signature_are_made_anew(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    embedded(posts, out)
    before = contents(out)
    told = json.loads((out / "manifest.json").read_text())
    told["parts"] = [{"file": part["file"]} for part in told["parts"]]
    (out / "manifest.json").write_text(json.dumps(told))
    assert embedded(posts, out).resumed == 0
    assert contents(out) == before


def test_a_manifest_with_a_list_of_earlier_parts_is_not_ours(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    embedded(posts, out)
    told = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**told, "earlier": ["part-00000.arrow"]}))
    assert "holds files that are not of an embedding job" in refused("embed", posts, "-o", out)


def test_a_manifest_without_end_is_not_ours(tmp_path: Path, posts: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("[" * 100_000)
    assert "holds files that are not of an embedding job" in refused("embed", posts, "-o", tmp_path / "out")
