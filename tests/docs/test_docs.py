"""Every command and code block of README and docs runs."""

import contextlib
import csv
import html
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from divscore.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


PORTRAITS = ROOT.parent / "shared" / "data" / "ppb2017_images"


def prepared(page, monkeypatch):
    """Pages about the paper's portraits need them; they say so by the variable that names their folder."""
    monkeypatch.setenv("DIVSCORE_CACHE", "cache")
    if '"PPB"' in page.read_text(encoding="utf-8"):
        if not PORTRAITS.is_dir():
            pytest.skip(f"{page.name} needs the portraits of PPB-2017, which are not at {PORTRAITS}")
        monkeypatch.setenv("PPB", str(PORTRAITS))


def blocks(page, language):
    return [text for kind, text in fenced(page) if kind == language]


def fenced(page):
    """Blocks in the order of the page, with their languages."""
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def run_shell(code, folder):
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", f"set -e\n{code}"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stderr + done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page_does_what_it_says(page, tmp_path, monkeypatch):
    """As a reader would: block after block in one folder; what `text` blocks show was printed by one before them."""
    prepared(page, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    space: dict[str, object] = {}
    printed = ""
    for kind, code in fenced(page):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(code, str(page), "exec"), space)
            printed += said.getvalue()
        elif kind == "sh":
            printed += run_shell(code, tmp_path)
        elif kind == "text" and page.parent.name == "docs":
            assert code in printed, (
                f"{page.name} shows what was not printed:\n{code}\nbut this was:\n{printed}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_that_are_only_named_exist(page):
    """Commands in running text, and those on files that only a reader has, at least parse."""
    text = page.read_text(encoding="utf-8")
    console = "\n".join(blocks(page, "console"))
    named = re.findall(r"^\$ (divscore .*)$", console, re.M)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    named += re.findall(r"`(divscore [^`]+)`", prose)
    for line in named:
        check_command(line.partition("#")[0].split()[1:], f"{page.name}: {line}")


def check_command(words, where):
    command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if words[0] == "…" or "|" in words[0]:  # show|check: either of them
            return
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, where
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}
    for word in words:
        if word.startswith("--"):
            assert word in known, where


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    """Files of the repository; the site's own build looks at the rest."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"(?:\]\(|src=\"|srcset=\")([^)#\s\"]+)", prose):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_limits_cite_what_was_measured():
    """The table of single countries is that of the results."""
    cited = re.findall(r"^\| (gender|skin tone) +\|(.*)\|$", (ROOT / "docs/limits.md").read_text(), re.M)
    with open(ROOT / "docs/results/ppb/collections.csv", newline="", encoding="utf-8") as file:
        measured = {(row["attribute"], row["country"]): row for row in csv.DictReader(file)}
    columns = ["true d", "error, likelihood, all 200 labels", "error, rectified, 200 labels + 50 of S"]
    columns += ["coverage, likelihood", "good", "caution", "poor"]
    assert len(cited) == 3
    for attribute, cells in cited:
        country, *figures = (cell.strip() for cell in cells.split("|"))
        row = measured[attribute, country]
        assert figures == [f"{float(row[name]):.3f}" for name in columns]


def test_readme_shows_what_the_demo_prints():
    shown = blocks(ROOT / "README.md", "text")[0]
    printed = CliRunner().invoke(main, ["demo"]).stdout
    for line in shown.splitlines():
        assert line in printed.splitlines()


def test_readme_names_only_verbs_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    for verb in re.findall(r"make (\w+)", (ROOT / "README.md").read_text()):
        if verb in {"install", "demo", "test", "check", "bench", "docs"}:
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


def test_reading_a_report_has_the_report_s_own_headings(tmp_path):
    """The page goes through the report section by section, in its order and with its names."""
    assert CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")]).exit_code == 0
    report = html.unescape((tmp_path / "demo" / "report.html").read_text(encoding="utf-8"))
    page = (ROOT / "docs/reading-a-report.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", page, re.M) == re.findall(r"<h2[^>]*>(.+?)</h2>", report)
    checks = re.search(r'<ul class="lights">.*?</ul>', report, re.S)
    assert checks
    assert re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.M) == re.findall(r"<h3>(.+?)</h3>", checks[0])
