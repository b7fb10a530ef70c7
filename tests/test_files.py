"""Files: atomic writes, locks, digests and typed JSON."""

import hashlib
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest

from divscore.errors import FileError
from divscore.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    lock_file,
    read_json,
    refuse_url,
    sha256,
    write_file,
)


def test_an_earlier_file_stays_until_the_new_one_is_complete(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("before")
    with suppress(KeyError), atomic_file(target) as temporary:
        temporary.write_text("half")
        raise KeyError
    with pytest.raises(UnicodeEncodeError):
        write_file(target, "half \ud800")
    assert target.read_text() == "before"
    write_file(target, "after ü")
    assert target.read_text(encoding="utf-8") == "after ü"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.md").symlink_to(tmp_path / "real" / "a.md")
    write_file(tmp_path / "link.md", b"bytes")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real" / "a.md").read_text() == "bytes"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_file(pipe, "through")
    reader.join(60)
    assert read == ["through"]
    assert pipe.is_fifo()
    check_writable(os.devnull, "--json")


def test_paths_that_cannot_be_written_are_refused(tmp_path):
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "no" / "a.json", "does not exist")):
        with pytest.raises(FileError, match=f"--json .*{message}"):
            check_writable(path, "--json")
    with pytest.raises(FileError, match=r"cannot write .*a\.json"):
        write_file(tmp_path / "no" / "a.json", "text")
    with pytest.raises(FileError, match="s3://bucket/a is a URL; a sketch can only"):
        refuse_url("s3://bucket/a", "a sketch")


def test_a_folder_is_replaced_in_one_step_and_keeps_foreign_entries(tmp_path):
    target = tmp_path / "new" / "set"
    for content in ("first", "second"):
        with atomic_folder(target, {"table"}) as folder:
            (folder / "table").write_text(content)
        (target / "notes").write_text("mine")
    assert (target / "table").read_text() == "second"
    with pytest.raises(FileError, match="not valid text"), atomic_folder(target, {"table"}) as folder:
        (folder / "table").write_text("half \ud800", encoding="utf-8")
    assert sorted(os.listdir(target)) == ["notes", "table"]
    assert (target / "table").read_text() == "second"
    assert os.listdir(target.parent) == ["set"]


def test_a_lock_excludes_others_and_leaves_nothing(tmp_path):
    lock = tmp_path / "job" / ".lock"
    lock.parent.mkdir()
    for _ in range(2):
        with lock_file(lock), pytest.raises(FileError, match="job is in use by another job"), lock_file(lock):
            pass
        assert not lock.exists()


def test_digests_are_those_of_sha256sum(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    assert sha256(tmp_path / "a", tmp_path / "b") == hashlib.sha256(b"onetwo").hexdigest()


@dataclass(frozen=True)
class Part:
    name: str
    rows: Annotated[int, msgspec.Meta(ge=0)] | None = None


@dataclass(frozen=True)
class Document:
    seed: int
    parts: tuple[Part, ...] = ()
    shares: dict[str, float] | None = None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"a\.json is not valid JSON \(it is empty\); write it again"),
        (b'{"seed": 1', r"a\.json is not valid JSON \(Expecting"),
        (b'{"seed": NaN}', "NaN is not a number in JSON"),
        (b'{"seed": "\xff"}', "byte 10 is not UTF-8"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[]", "a.json: expected an object, got a list; write it again"),
        (b"{}", "a.json: 'seed' is missing; write it again"),
        (b'{"seed": true}', "a.json: seed: expected a whole number, got true or false"),
        (
            b'{"seed": 1, "parts": [{"name": 1}]}',
            r"a.json: parts\[0\].name: expected a text, got a whole number",
        ),
        (
            b'{"seed": 1, "parts": [{"name": "a", "rows": -1}]}',
            "rows: expected a whole number >= 0, got -1",
        ),
        (b'{"seed": 1, "shares": {"a": "1"}}', r"shares\[...\]: expected a number, got a text"),
    ],
)
def test_json_of_another_type_is_refused_with_the_field_and_what_to_do(text, message):
    with pytest.raises(FileError, match=message):
        read_json(Document, text, "a.json", hint="write it again")


def test_json_becomes_the_type():
    text = '\ufeff{"seed": 1, "parts": [{"name": "a\\ud800"}], "other": 1}'
    expected = Document(1, (Part("a\ud800"),))
    assert read_json(Document, text.encode("utf-8", "surrogatepass"), "a.json") == expected
