"""The map in CONTRIBUTING.md lists every file of the package, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_map_lists_every_file() -> None:
    """If this fails: add, rename or remove the file's line in CONTRIBUTING.md."""
    listed: list[str] = []
    folder = None
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = re.fullmatch(r"### (\w+)/", line)
            folder = heading[1] if heading else None
        elif folder and (row := re.match(r"\| `(\w+\.py)` \| \S", line)):
            listed.append(row[1] if folder == "divscore" else f"{folder}/{row[1]}")
    package = ROOT / "src" / "divscore"
    files = {str(path.relative_to(package)) for path in package.rglob("*.py") if path.name != "__init__.py"}
    assert files - set(listed) == set(), "not in the map"
    assert set(listed) - files == set(), "no such file"
    assert len(listed) == len(set(listed))
