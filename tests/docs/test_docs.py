"""Every command and code block of README and docs runs, and prints what the page shows."""

import contextlib
import html
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from divscore.cli import main
from divscore.paper.results import ResultTable

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
DATA = ROOT.parent / "shared" / "data"
NEEDED = {"PPB": DATA / "ppb2017_images", "PPB_FEATURES": DATA / "ppb2017.parquet"}  # of pages that use them
DEMO = "divscore demo --out demo"
NUMBER = re.compile(r"[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?!\d)")


def fenced(page):
    """Blocks in the order of the page, with their languages."""
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


# Numbers in the last digit depend on the processor and on the library for linear algebra (a different order of
# additions moves an interval by up to a hundredth), so pages that compared exactly would fail on other machines.
# Words and whole numbers are compared exactly; decimals may differ by 0.02 (or 2 %), percentages by 2 points.
def same_line(shown, printed):
    words = [re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip() for line in (shown, printed)]
    if words[0] != words[1]:
        return False
    for one, other in zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True):
        after = shown[one.end() :]
        a, b = (float(match[0].replace(",", "").replace("−", "-")) for match in (one, other))
        if after.startswith("%") or re.match(r"( to [\d.]+)? points", after):
            allowed = 2.0
        else:
            allowed = max(0.02, 0.02 * abs(a)) if "." in one[0] else 0.0
        if abs(a - b) > allowed + 1e-9:
            return False
    return True


def is_printed(block, printed):
    """Whether the lines of a block were printed one after the other."""
    shown, lines = block.splitlines(), printed.splitlines()
    return any(
        all(map(same_line, shown, lines[at : at + len(shown)])) for at in range(len(lines) - len(shown) + 1)
    )


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("a  800  21.9%   9%–35%  -0.58  good", True),
        ("a  801  21.6%  9%–34%  -0.57  good", False),
        ("a  800  24.6%  9%–34%  -0.57  good", False),
        ("a  800  21.6%  9%–34%  -0.60  good", False),
        ("a  800  21.6%  9%–34%  +0.57  good", False),
        ("a  800  21.6%  9%–34%  -0.57  poor", False),
    ],
)
def test_small_differences_of_numbers_are_tolerated(printed, same):
    assert is_printed("a  800  21.6%  9%–34%  -0.57  good\n", f"b\n{printed}\nc") is same


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The folder of the demo, made once, and what it printed."""
    folder = tmp_path_factory.mktemp("docs")
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, shlex.split(DEMO)[1:])
    assert done.exit_code == 0, done.output
    return folder / "demo", done.stdout


# Commands that this process can run, with what follows if they fail; and lines that mean something only with others.
PLAIN = re.compile(r"(divscore [^|<>&;`\\]*?)( \|\| .*)?")
PART = re.compile(r"(\s|for |while |if |trap |export |\w+=).*|.*(<<.*|[\\&])")


def run_shell(code, folder, demo):
    """Run a block; its plain commands in this process, which saves starting one for each."""
    lines = [line for line in code.splitlines() if line.strip()]
    if any(PART.fullmatch(line) for line in lines):
        return run_lines(code, folder)
    printed = ""
    for line in lines:
        plain = PLAIN.fullmatch(line)
        if not plain:
            printed += run_lines(line, folder)
            continue
        words = [os.path.expandvars(word) for word in shlex.split(plain[1], comments=True)]
        if shlex.join(words) in (DEMO, "divscore demo"):
            if shlex.join(words) == DEMO:
                shutil.copytree(demo[0], folder / "demo", dirs_exist_ok=True)
            printed += demo[1]
            continue
        done = CliRunner().invoke(main, words[1:])
        printed += done.stderr + done.stdout
        if plain[2]:
            printed += run_lines(f"(exit {done.exit_code}){plain[2]}", folder)
        else:
            assert done.exit_code == 0, f"{line}\n{done.output}"
    return printed


def run_lines(code, folder):
    """Run lines in a shell."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", f"set -e\n{code}"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stderr + done.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* more than one face:UserWarning")  # some portraits do
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_does_what_it_says(page, tmp_path, monkeypatch, demo):
    """As a reader would: block after block in one folder; a `text` block shows what an earlier block printed."""
    monkeypatch.setenv("DIVSCORE_CACHE", "cache")
    monkeypatch.setenv("MPLBACKEND", "agg")
    for name, place in NEEDED.items():
        if re.search(rf"[\"$]{name}\b", "".join(code for _, code in fenced(page))):
            if not place.exists():
                pytest.skip(f"{page.name} needs the data of PPB-2017, which is not at {place}")
            monkeypatch.setenv(name, str(place))
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    printed = ""
    for kind, code in fenced(page):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, str(page), "exec"), space)
            printed += output.getvalue()
        elif kind == "sh":
            printed += run_shell(code, tmp_path, demo)
        elif kind == "text" and "results" not in page.parts:
            assert is_printed(code, printed), f"{page.name} shows:\n{code}\nbut this was printed:\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_in_prose_exist_and_links_lead_somewhere(page):
    """Commands in running text, and those on files that only a reader has, at least parse."""
    console = "\n".join(code for kind, code in fenced(page) if kind == "console")
    lines = re.findall(r"^\$ (divscore .*)$", console, re.M) + re.findall(r"`(divscore [^`]+)`", prose(page))
    for line in lines:
        check_command(line.partition("#")[0].split()[1:], f"{page.name}: {line}")
    for target in re.findall(r"(?:\]\(|src=\"|srcset=\")([^)#\s\"]+)", prose(page)):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


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


def test_pages_cite_what_was_measured():
    """The tables of results in README.md and docs are those of the stored benchmarks."""
    command = [sys.executable, ROOT / "benchmarks" / "table.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "folder", sorted((ROOT / "docs" / "results").glob("*/")), ids=lambda folder: folder.name
)
def test_published_results_say_the_same_in_every_form(folder):
    """Times of an earlier run may be kept: then they are in the page, the JSON and the CSV."""
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")
    for name, table in json.loads((folder / "results.json").read_text(encoding="utf-8"))["tables"].items():
        shown = ResultTable(name, table["title"], table["columns"], table["rows"], about=table["about"])
        assert f"{shown.about}\n\n{shown.markdown()}\n" in page, name
        assert shown.csv() == (folder / f"{name}.csv").read_text(encoding="utf-8"), name


def test_readme_names_only_verbs_that_exist():
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in ("README.md", "CONTRIBUTING.md"):
        for verb in re.findall(r"(?:`|\$ )make (\w+)", (ROOT / page).read_text()):
            assert verb in verbs, f"{page}: make {verb}"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_path_of_a_machine_in_any_file():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for path in (ROOT / name for name in files.split("\n") if name):
        if path.is_file() and path.stat().st_size < 1_000_000:
            assert str(ROOT) not in path.read_text(encoding="utf-8", errors="ignore"), path.name


def test_reading_a_report_follows_the_report(demo):
    """The page goes through the report section by section, in its order and with its names."""
    report = html.unescape((demo[0] / "report.html").read_text(encoding="utf-8"))
    page = (ROOT / "docs/reading-a-report.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", page, re.M) == re.findall(r"<h2[^>]*>(.+?)</h2>", report)
    checks = re.search(r'<ul class="checks">.*?</ul>', report, re.S)
    assert checks
    assert re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.M) == re.findall(r"<h3>(.+?)</h3>", checks[0])
