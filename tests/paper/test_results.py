from __future__ import annotations

import math
from pathlib import Path

import pytest

from divscore.errors import FileError
from divscore.paper.results import ResultTable, output_folder


def test_tables_read_the_same_everywhere() -> None:
    table = ResultTable.of("t", "T", ("|T|", "x"), [(1, 0.123456789), (2, math.nan)])
    assert table.records == [{"|T|": 1, "x": 0.123457}, {"|T|": 2, "x": None}]
    assert table.csv() == "|T|,x\n1,0.123457\n2,\n"
    assert table.markdown().splitlines()[0].startswith("| \\|T\\| |")
    assert table.markdown().splitlines()[2].split("|")[2].strip() == "0.123"


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("taken", "taken is a file; give a folder"),
        ("taken/deeper/still", "taken is a file; give a folder"),
        ("there", "page.md is a folder"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, out: str, message: str) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "there/page.md").mkdir(parents=True)
    with pytest.raises(FileError, match=message), output_folder(tmp_path / out, files=["page.md"]):
        pass
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize("out", ["there", "new/and/deep", "there/new"])
def test_failed_work_removes_the_empty_folders_that_it_created(tmp_path: Path, out: str) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(ZeroDivisionError), output_folder(tmp_path / out, "figures"):
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.rglob("*")] == ["there"]
