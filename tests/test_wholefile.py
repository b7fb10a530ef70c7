"""Files of text that are written whole or not at all."""

import os
import threading
from pathlib import Path

import pytest

from divscore.errors import FileError
from divscore.files import check_place, write_whole


def test_an_earlier_file_stays_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "half \ud800")
    assert target.read_text() == "before"
    write_whole(target, "after ü")
    assert target.read_text(encoding="utf-8") == "after ü"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.md").symlink_to(tmp_path / "real" / "a.md")
    write_whole(tmp_path / "link.md", "text")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real" / "a.md").read_text() == "text"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "through")
    reader.join(10)
    assert read == ["through"]
    assert pipe.is_fifo()
    check_place(os.devnull, "--json")


def test_what_cannot_be_written_is_refused(tmp_path):
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "no" / "a.json", "there is no folder")):
        with pytest.raises(FileError, match=f"--json .*{said}"):
            check_place(path, "--json")
    with pytest.raises(FileError, match=r"cannot write .*a\.json"):
        write_whole(Path(tmp_path / "no" / "a.json"), "text")
