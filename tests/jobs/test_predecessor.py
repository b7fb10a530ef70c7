"""Vectors of another source or by another encoder are not replaced unasked, be they a file, a folder or unfinished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from test_embed_parts import contents

from divscore.cli import main
from divscore.jobs.embed import Layout, Predecessor, embed
from divscore.jobs.encode import Encoding
from divscore.jobs.opening import open_items

OTHER = ("-E", "dimension=64")
OUT = ("out", "out.arrow")


def write_posts(path: Path, word: str, rows: int = 30) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text\n" + "".join(f"the {word} number {row}\n" for row in range(rows)))
    return path


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    return write_posts(tmp_path / "posts.csv", "river")


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments), "--encoder", "ngrams"])


def done(*arguments: Any) -> str:
    result = run("embed", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def refused(*arguments: Any) -> str:
    result = run("embed", *arguments)
    assert result.exit_code == 2, result.stderr
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def everything(tmp_path: Path) -> dict[str, bytes]:
    files = (path for path in sorted(tmp_path.rglob("*")) if path.is_file())
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in files}


def interrupted(source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Stop a job when all chunks are in its journal."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Layout, "write", stop)
        assert run("embed", source, "-o", out, "--workers", 1, *arguments).exit_code == 130


@pytest.mark.parametrize("name", OUT)
def test_another_encoder_is_refused(tmp_path: Path, posts: Path, name: str) -> None:
    out = tmp_path / name
    done(posts, "-o", out)
    before = everything(tmp_path)
    said = refused(posts, "-o", out, *OTHER)
    assert "by ngrams/1 dimension=512, not by ngrams/1 dimension=64; give another" in said
    assert "posts" in said
    assert "--overwrite to replace them" in said
    assert everything(tmp_path) == before
    done(posts, "-o", out, *OTHER, "--overwrite")
    assert everything(tmp_path) != before
    done(posts, "-o", out, *OTHER)
    refused(posts, "-o", out)


@pytest.mark.parametrize("name", OUT)
def test_another_source_is_refused(tmp_path: Path, posts: Path, name: str) -> None:
    out, other = tmp_path / name, write_posts(tmp_path / "names.csv", "stone")
    done(posts, "-o", out)
    before = everything(tmp_path)
    said = refused(other, "-o", out)
    assert "names" in said.partition("not of ")[2]
    assert everything(tmp_path) == before
    done(other, "-o", out, "--overwrite")
    fresh = tmp_path / f"fresh{Path(name).suffix}"
    done(other, "-o", fresh)
    if out.is_dir():
        assert contents(out) == contents(fresh)
    else:
        assert out.read_bytes() == fresh.read_bytes()


@pytest.mark.parametrize("name", OUT)
def test_a_source_of_the_same_name_elsewhere_is_another(tmp_path: Path, posts: Path, name: str) -> None:
    out, other = tmp_path / name, write_posts(tmp_path / "june" / "posts.csv", "stone")
    done(posts, "-o", out)
    before = everything(tmp_path)
    said = refused(other, "-o", out)
    assert ("june" in said) if name == "out" else ("another source that is called posts as well" in said)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", OUT)
def test_the_same_source_is_made_anew_when_it_has_changed(tmp_path: Path, posts: Path, name: str) -> None:
    done(posts, "-o", tmp_path / name)
    write_posts(posts, "stone", 50)
    assert "50 vectors" in done(posts, "-o", tmp_path / name)


def test_a_file_is_the_same_sources_however_its_path_is_spelled(
    tmp_path: Path, posts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(posts, "-o", tmp_path / "out.arrow")
    monkeypatch.chdir(tmp_path)
    done("posts.csv", "-o", "out.arrow")


def test_the_source_itself_is_not_to_be_overwritten_either(tmp_path: Path, posts: Path) -> None:
    done(posts, "-o", tmp_path / "out.arrow")
    for more in ((), ("--overwrite",)):
        said = refused(tmp_path / "out.arrow", "--column", "text", "-o", tmp_path / "out.arrow", *more)
        assert "is the source itself" in said


@pytest.mark.parametrize("content", [b"not Arrow", b""])
def test_a_file_by_somebody_else_is_refused(tmp_path: Path, posts: Path, content: bytes) -> None:
    out = tmp_path / "out.arrow"
    if content:
        out.write_bytes(content)
    else:
        table = pa.table({"text": ["mine"]})
        with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    before = out.read_bytes()
    assert "was not written by 'divscore embed'; give another name, or --overwrite" in refused(
        posts, "-o", out
    )
    assert out.read_bytes() == before
    done(posts, "-o", out, "--overwrite")
    out.write_bytes(b"")
    done(posts, "-o", out)  # nothing is lost with an empty one


@pytest.mark.parametrize("name", OUT)
def test_an_unfinished_job_is_refused_to_others_and_goes_on_for_its_own(
    tmp_path: Path, posts: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / name
    interrupted(posts, out, monkeypatch)
    before = everything(tmp_path)
    assert "by ngrams/1 dimension=512, not by ngrams/1 dimension=64" in refused(posts, "-o", out, *OTHER)
    assert "--overwrite" in refused(write_posts(tmp_path / "names.csv", "stone"), "-o", out)
    (tmp_path / "names.csv").unlink()
    assert everything(tmp_path) == before
    assert "(30 of the items were finished before)" in done(posts, "-o", out)


def test_a_refused_job_leaves_the_projection_of_the_earlier_one(tmp_path: Path, posts: Path) -> None:
    out, other = tmp_path / "out", write_posts(tmp_path / "names.csv", "stone")
    done(posts, "-o", out, "--pca", 4)
    before = everything(tmp_path)
    refused(other, "-o", out, "--pca", 4)
    refused(posts, "-o", out, "--pca", 3)
    assert everything(tmp_path) == before
    done(posts, "-o", out, "--pca", 4)
    assert everything(tmp_path) == before
    done(other, "-o", out, "--pca", 4, "--overwrite")
    done(other, "-o", tmp_path / "fresh", "--pca", 4)
    assert (tmp_path / "out.pca.npz").read_bytes() == (tmp_path / "fresh.pca.npz").read_bytes()
    assert contents(out) == contents(tmp_path / "fresh")


def test_what_a_folders_manifest_says_is_shown_short_and_plain(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out"
    done(posts, "-o", out)
    manifest = json.loads((out / "manifest.json").read_text())
    for source in ("\x1b[31m" + "x" * 5000, None, ["a"]):
        (out / "manifest.json").write_text(json.dumps({**manifest, "source": source}))
        said = refused(posts, "-o", out)
        assert "\x1b" not in said
        assert len(said) < 1500


def test_a_library_call_is_refused_alike(tmp_path: Path, posts: Path) -> None:
    out = tmp_path / "out.arrow"
    with Encoding("ngrams") as some:
        embed(open_items(posts), out, some)
        told = Predecessor.in_file(out)
        assert told is not None
        assert (told.source, told.encoder, told.variant) == ("posts", "ngrams/1 dimension=512", "")
    with Encoding("ngrams", options={"dimension": "64"}) as other:
        with pytest.raises(Exception, match="--overwrite"):
            embed(open_items(posts), out, other)
        assert embed(open_items(posts), out, other, overwrite=True).vectors == 30


def test_what_is_not_known_is_no_difference() -> None:
    early = Predecessor("posts", "faces/1")  # written before files said more
    assert not early.differs(Predecessor("posts", "faces/1", "all", "a"))
    assert Predecessor("posts", "faces/1", "all").differs(Predecessor("posts", "faces/1", "largest"))
    assert "faces/1 (all), not by faces/1 (largest)" in Predecessor("posts", "faces/1", "all").unlike(
        Predecessor("posts", "faces/1", "largest")
    )
