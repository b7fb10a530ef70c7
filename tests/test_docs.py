"""Every command and code block of README and docs runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from divscore.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


MAKE_THEIR_FILES = {"images.md", "texts.md", "compare.md"}  # by a Python block, for the commands
PORTRAITS = ROOT.parent / "shared" / "data" / "ppb2017_images"


def prepared(page, monkeypatch):
    """Pages about the paper's portraits need them; they say so by the variable that names their folder."""
    monkeypatch.setenv("DIVSCORE_CACHE", "cache")
    if '"PPB"' in page.read_text(encoding="utf-8"):
        if not PORTRAITS.is_dir():
            pytest.skip(f"{page.name} needs the portraits of PPB-2017, which are not at {PORTRAITS}")
        monkeypatch.setenv("PPB", str(PORTRAITS))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    prepared(page, monkeypatch)
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), space)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_shell_blocks_run(page, tmp_path, monkeypatch):
    prepared(page, monkeypatch)
    monkeypatch.chdir(tmp_path)
    if page.name in MAKE_THEIR_FILES:
        for code in blocks(page, "python"):
            exec(compile(code, str(page), "exec"), {})
    printed = ""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for code in blocks(page, "sh"):
        script = f"set -e\n{code}"
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        printed += done.stderr + done.stdout
    for shown in blocks(page, "text") if page.parent.name == "docs" else ():
        assert shown in printed or shown.startswith("labelled/")


def test_readme_shows_what_the_demo_prints():
    shown = blocks(ROOT / "README.md", "text")[0]
    printed = CliRunner().invoke(main, ["demo"]).stdout
    for line in shown.splitlines():
        assert line in printed.splitlines()


def test_readme_names_only_verbs_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    for verb in re.findall(r"make (\w+)", (ROOT / "README.md").read_text()):
        if verb in {"install", "demo", "test", "check", "bench"}:
            assert re.search(rf"^{verb}:", makefile, re.M)
        else:
            assert verb in {"and"}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_path_of_a_machine_in_any_file():
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    home = str(ROOT)
    for name in filter(None, files):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 1_000_000:
            assert home not in path.read_text(encoding="utf-8", errors="ignore"), name
