"""The commands of the web app, as far as they need no server; `tests/web/test_server.py` starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = "import sys; sys.modules['fastapi'] = None; from divscore.cli import main; main()"


@pytest.mark.parametrize("words", [["serve", "folder"], ["label", "photos"]])
def test_what_is_missing_is_named(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "the web app needs FastAPI and uvicorn: pip install" in done.stderr
    assert list(tmp_path.iterdir()) == []
