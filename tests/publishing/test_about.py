from __future__ import annotations

from pathlib import Path

import pytest
from published import ABOUT, make

from divscore.errors import FileError
from divscore.publishing.about import About, read_about, write_about


@pytest.mark.parametrize("about", [About(), ABOUT, About(definition='"""\n\\ "x"\nend\\', source="\x00\x7f")])
def test_answers_are_read_as_written(about: About, tmp_path: Path) -> None:
    file = tmp_path / "about.toml"
    file.write_text(write_about(about, make()), encoding="utf-8")
    once = read_about(file)
    assert (once == about) or "\x00" in about.source
    file.write_text(write_about(once, make()), encoding="utf-8")
    assert read_about(file) == once


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("license = cc0", "not valid TOML"),
        ("colour = 'red'", "unknown entry 'colour'"),
        ("consent = true", "consent = True; expected text"),
        ("language = 'English'", "expected codes"),
    ],
)
def test_answers_that_cannot_be_used(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "about.toml").write_text(text)
    with pytest.raises(FileError, match=words):
        read_about(tmp_path / "about.toml")
    with pytest.raises(FileError, match="--template"):
        read_about(tmp_path / "none.toml")
