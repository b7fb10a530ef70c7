"""Text: compressed, in UTF-16, of any length; the lines that messages name."""

from __future__ import annotations

import gc
import gzip
import io
import json
import resource
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from divscore import sources
from divscore.errors import FileError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.sources import cuts, open_table
from divscore.sources.places import ADVICE

TABLE = {
    ".csv": 'id,text\n1,Größe\n2,"two\nlines"\n3,c\n',
    ".tsv": 'id\ttext\n1\tGröße\n2\t"two\nlines"\n3\tc\n',
    ".jsonl": '{"text": "Größe"}\n{"text": "two\\nlines"}\n{"text": "c"}\n',
    ".ndjson": '{"text": "Größe"}\r\n{"text": "two\\nlines"}\r\n{"text": "c"}',
    ".txt": "Größe\n\ntwo lines\nc",
}
TEXTS = ["Größe", "two\nlines", "c"]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstd}


def texts(source: Any) -> list[str]:
    return [text.replace("two lines", "two\nlines") for batch in source for text in batch.contents]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("suffix", TABLE)
def test_text_is_unpacked_and_recoded(tmp_path: Path, suffix: str, packed: str, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    data = PACK[packed]((mark + TABLE[suffix]).encode(encoding))
    path = tmp_path / f"Posts{suffix}{packed}"
    path.write_bytes(data)
    source = sources.open(path)
    assert (texts(source), source.name) == (TEXTS, "Posts")
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"/packed/Posts{suffix}{packed}", data)
    assert texts(sources.open(f"memory://packed/Posts{suffix}{packed}")) == TEXTS
    assert texts(sources.open(tmp_path / f"*{suffix}{packed}")) == TEXTS
    assert texts(sources.open(path.rename(tmp_path / f"other{packed}"), form=suffix)) == TEXTS


@pytest.mark.parametrize("packed", [".gz", ".zst"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_compressed_vectors_and_folders_of_them(tmp_path: Path, suffix: str, packed: str) -> None:
    import vectorfiles

    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    for at in range(2):
        vectorfiles.write(tmp_path / f"{at}{suffix}", vectors[25 * at : 25 * at + 25])
        plain = tmp_path / f"{at}{suffix}"
        (tmp_path / f"{at}{suffix}{packed}").write_bytes(PACK[packed](plain.read_bytes()))
        plain.unlink()
    (tmp_path / f"empty{suffix}{packed}").write_bytes(PACK[packed](b""))  # has no rows, so nothing is missing
    table = sources.open(tmp_path)
    assert (table.kind, table.missing) == ("vectors", ())
    np.testing.assert_array_equal(np.concatenate([block.vectors for block in table]), vectors)


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_compressed_labelled_examples(tmp_path: Path, packed: str) -> None:
    rows = [f"{word} {number},{group}" for number in range(4) for word, group in (("oh", "A"), ("ah", "B"))]
    path = tmp_path / f"labelled.csv{packed}"
    path.write_bytes(PACK[packed]("\n".join(["text,dialect", *rows]).encode("utf-16")))
    with Encoding("ngrams") as encoding:
        assert read_control(path, encoding, attribute="dialect").counts == {"A": 4, "B": 4}


def test_compressed_text_and_utf16_are_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "PIECE_BYTES", 100)
    text = "text\n" + "".join(f"some words {n}\n" for n in range(100))
    for name, data in {
        "a.csv": text.encode(),
        "b.csv.gz": gzip.compress(text.encode()),
        "c.csv": text.encode("utf-16"),
    }.items():
        (tmp_path / name).write_bytes(data)
        table = open_table(tmp_path / name, vectors=False, extra=["text"])
        assert bool(table.pieces()) == (name == "a.csv")
        assert sum(len(block.vectors) for part in table.divided() for block in part) == 100


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data + b"more",
        lambda data: data[:-6] + b"\0\1\2\3\4\5",
        lambda data: b"text\nwas never compressed\n",
    ],
)
@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_damaged_compressed_files(tmp_path: Path, packed: str, damage: Any) -> None:
    rng = np.random.default_rng(0)
    text = "text\n" + "\n".join(map(str, rng.integers(0, 1 << 60, 5000)))
    (tmp_path / f"a.csv{packed}").write_bytes(damage(PACK[packed](text.encode())))
    with pytest.raises(FileError, match=rf"a\.csv\{packed} cannot be read as CSV: it is truncated, damaged"):
        list(sources.open(tmp_path / f"a.csv{packed}"))


def test_several_compressed_parts_in_one_file(tmp_path: Path) -> None:
    for packed in (".gz", ".zst"):
        data = PACK[packed](b"text\na\n") + PACK[packed](b"b\n")
        (tmp_path / f"a.csv{packed}").write_bytes(data)
        assert texts(sources.open(tmp_path / f"a.csv{packed}")) == ["a", "b"]


def test_utf16_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text\nab".encode("utf-16")[:-1])
    with pytest.raises(FileError, match=r"a\.csv cannot be read as CSV.*utf-16"):
        list(sources.open(tmp_path / "a.csv"))


@pytest.mark.parametrize("name", ["bomb.csv", "bomb.jsonl", "bomb.txt"])
@pytest.mark.parametrize("fill", [b"x", b'{"a":', b'"', b","])
def test_a_line_without_end_takes_little_memory(tmp_path: Path, name: str, fill: bytes) -> None:
    path = tmp_path / f"{name}.gz"
    first = b"text\n" if name == "bomb.csv" else b'{"text": "a"}\n'
    part = gzip.compress(fill * ((8 << 20) // len(fill)), 1)
    path.write_bytes(gzip.compress(first) + 40 * part)  # one text in 41 parts
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        source = sources.open(path)
        count = sum(len(batch) for batch in source)
    except FileError:
        pass
    else:
        assert (count, source.unreadable) == (1, 1)
    if sys.platform == "linux":
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 << 10  # of 320 MB


def test_a_long_record_is_read(tmp_path: Path) -> None:
    vector = np.arange(200_000) / 3
    (tmp_path / "a.jsonl").write_text(json.dumps({"embedding": vector.tolist()}))
    assert next(iter(open_table(tmp_path / "a.jsonl"))).vectors.shape == (1, 200_000)


def test_standard_input_in_utf16_and_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Typed:
        def __init__(self, data: bytes) -> None:
            self.buffer = io.BytesIO(data)

    monkeypatch.setattr("sys.stdin", Typed("id,text\n1,Größe\n".encode("utf-16")))
    assert texts(sources.open("-")) == ["Größe"]
    monkeypatch.setattr("sys.stdin", Typed(gzip.compress(b"id,text\n1,a\n")))
    with pytest.raises(FileError, match="standard input is compressed; unpack it"):
        sources.open("-")


def test_a_full_disk_while_standard_input_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        buffer = io.BytesIO(b"text\n" + b"some words\n" * 500_000)

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr("sys.stdin", Endless)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
    try:
        with pytest.raises(
            FileError, match=rf"standard input: cannot write a temporary copy to {tmp_path}: .*TMPDIR"
        ):
            sources.open("-")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_odd_names_of_compressed_files(tmp_path: Path) -> None:
    name = "two\nlines 😀 [1].csv.gz"
    (tmp_path / name).write_bytes(gzip.compress(b"text\na\n"))
    assert texts(sources.open(tmp_path / name)) == ["a"]
    (tmp_path / "sub").mkdir()
    (tmp_path / name).rename(tmp_path / "sub" / name)
    assert texts(sources.open(tmp_path / "sub")) == ["a"]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a.xlsx", "save the sheet as CSV"),
        ("a.json", r"one object per line .*\.jsonl"),
        ("a.mp4", "extract frames as JPEG"),
        ("a.pkl", "never loads pickles"),
        ("a.pt", "numpy.save"),
        ("a.h5", "numpy.save"),
        ("a.db", "export the table as CSV"),
        ("a.npy.gz", "unpack it"),
        ("a.csv.bz2", "compress text as .gz"),
        ("a.zip", "unpack it first, then name the folder"),
    ],
)
def test_other_formats_say_what_to_do(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_bytes(b"something")
    with pytest.raises(FileError, match=rf"{name} .*{advice}"):
        sources.open(tmp_path / name)
    with pytest.raises(FileError, match=rf"{name} cannot be read: .*{advice}"):
        open_table(tmp_path / name)
    with pytest.raises(FileError, match=advice):
        sources.open(tmp_path)
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in ADVICE)


# Lines in messages.

WITH_GAPS = 'text,group\n\n"two\nlines",A\r\nb,\n\nc,B\n'


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_missing_group_is_named_by_its_line(tmp_path: Path, packed: str, encoding: str) -> None:
    path = tmp_path / f"a.csv{packed}"
    path.write_bytes(PACK[packed](WITH_GAPS.encode(encoding)))
    with (
        Encoding("ngrams") as some,
        pytest.raises(FileError, match=r"a\.csv.*, line 5: no group in .*remove the line"),
    ):
        read_control(path, some)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.csv", 'text\n\n"two\nlines"\nword\n???\n', "line 6"),
        ("a.tsv", "text\tn\nword\t1\n???\t2\n", "line 3"),
        ("a.jsonl", '\n{"text": "word"}\n\n{"text": "???"}\n', "line 4"),
        ("a.txt", "word\n\nlines\n???\n", "line 4"),
    ],
)
def test_a_skipped_text_is_named_by_its_line(tmp_path: Path, name: str, text: str, place: str) -> None:
    (tmp_path / name).write_text(text)
    with Encoding("word2vec", model=words(tmp_path)) as some:
        source = some.encode(sources.open(tmp_path / name))
        assert list(source)
        assert source.problems[-1].startswith(f"{tmp_path / name}, {place}: ")
        with pytest.raises(FileError, match=rf"{name}, {place}: "):
            list(some.encode(sources.open(tmp_path / name), strict=True))


def words(folder: Path) -> Path:
    path = folder / "model.vec"
    path.write_text("5 2\na 1 0\nb 0 1\ntwo 1 1\nlines 1 2\nword 2 1\n")
    return path


def test_a_zero_vector_among_labelled_examples_is_named_by_its_line(tmp_path: Path) -> None:
    rows = ["1,0,A", "1,2,A", "", "0,0,B", "0,1,B"]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,group", *rows]))
    with (
        Encoding() as some,
        pytest.raises(FileError, match=r"a\.csv, line 5: the vector has only zeros; fix"),
    ):
        read_control(tmp_path / "a.csv", some)


def test_cells_too_long_to_look_through_are_named_by_their_row(tmp_path: Path) -> None:
    rows = [json.dumps([0.123456789] * 20_000), "[1]"]
    (tmp_path / "a.csv").write_text("\n".join(["vector", *(f'"{row}"' for row in rows)]))
    source = open_table(tmp_path / "a.csv")
    assert len(list(source)) == 1
    assert source.problems == [f"{tmp_path}/a.csv, row 1: has a vector of length 1, not 20000"]


# Labelled tables without a header.


@pytest.mark.parametrize(
    "rows",
    [
        ["finna go home,AAE", "going home now,SAE", "what it do,AAE", "how are you,SAE", "ok then,SAE"],
        ["a.jpg,red", "b.jpg,blue", "c.jpg,green", "d.jpg,yellow"],
        ["0.1234,-0.5,A", "0.25,0.75,B", "0.3,0.1,C", "0.2,0.1,C"],
        ['"[0.5, 1]",A', '"[0.25, 1]",B', '"[0.25, 1]",B'],
        [
            f"{text} and some more words that follow {text},{n}"
            for n, text in enumerate(["this is", "that was"])
        ],
    ],
)
@pytest.mark.parametrize("attribute", [None, "dialect"])
def test_labelled_examples_without_a_header_are_refused(
    tmp_path: Path, rows: list[str], attribute: str | None
) -> None:
    (tmp_path / "a.csv").write_text("\n".join(rows))
    with (
        Encoding("ngrams") as some,
        pytest.raises(FileError, match=r"begins with an example .*add one that names"),
    ):
        read_control(tmp_path / "a.csv", some, attribute=attribute)


@pytest.mark.parametrize(
    "header",
    [
        "text,group",
        "tweet,dialect",
        "What do you think of the product that you bought here?,dialect",
        "an answer in your own words,dialect",
        "AAE,group",
        "2019,dialect",
        "0,1",
        "a.b,c.d",
        "text,text of the group",
    ],
)
def test_real_headers_are_not_taken_for_examples(tmp_path: Path, header: str) -> None:
    rows = ["text,AAE", "some words of a post,AAE", "and more words of another,SAE", "and more words,SAE"]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows, *rows[1:]]))
    sources.open(tmp_path / "a.csv", column=header.split(",")[0], exclude=["group"], labelled=True)


def test_a_column_of_numbers_that_pandas_named(tmp_path: Path) -> None:
    rows = ["0.5,0.25,A", "0.5,0.25,B"]
    (tmp_path / "a.csv").write_text("\n".join(["0,1,dialect", *rows]))
    assert sources.open(tmp_path / "a.csv", exclude=["dialect"], labelled=True).kind == "vectors"


def test_groups_that_differ_in_spelling_are_asked_about(tmp_path: Path) -> None:
    rows = [
        f"{word} {n},{group}"
        for n, word in enumerate(["so", "oh", "ah"])
        for group in ("AAE", "aae ", " SAE")
    ]
    (tmp_path / "a.csv").write_text("\n".join(["text,dialect", *rows, "oh oh,SAE"]))
    said: list[str] = []
    with Encoding("ngrams") as some:
        control = read_control(tmp_path / "a.csv", some, warn=said.append)
    assert control.counts == {"AAE": 3, "SAE": 4, "aae": 3}
    assert len(said) == 1
    assert "groups 'AAE' and 'aae' differ only in spelling; are they one group?" in said[0]
