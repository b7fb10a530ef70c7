"""The wheel: what it contains, and that it works in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from divscore import __version__

ROOT = Path(__file__).parents[1]


def pip(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    # Of this process only the settings of pip are passed on: a path to the sources would hide what is missing.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, words)], env=own, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (path,) = folder.iterdir()
    assert path.name == f"divscore-{__version__}-py3-none-any.whl"  # as the documentation calls it
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment in which the wheel is installed as users do it.

    The pip of this environment installs, and compiles nothing: a copy of pip, and thousands of modules that the
    test does not import, took ten seconds.
    """
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    there = ("--python", programs / "python", "install")
    done = pip(*there, "--quiet", "--no-compile", wheel, check=False)
    if done.returncode and pip(*there, "--dry-run", "click", check=False).returncode:
        pytest.skip("pip finds no packages: there is no network, or no package index")
    assert done.returncode == 0, done.stdout + done.stderr
    return programs


def metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"divscore-{__version__}.dist-info/METADATA").decode())


@pytest.mark.slow
def test_it_has_every_file_of_the_package_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licence = archive.read(f"divscore-{__version__}.dist-info/licenses/LICENSE")
    source = ROOT / "src"
    files = [path for path in (source / "divscore").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path.relative_to(source).as_posix() for path in files} <= names
    assert {Path(name).suffix for name in names} >= {".j2", ".css", ".js", ".toml", ".typed"}
    assert licence == (ROOT / "LICENSE").read_bytes()
    # The token table has a licence of its own, which travels with it and among the licences.
    for name in ("LICENSE", "NOTICE"):
        assert f"divscore/encoders/minilm/{name}" in names
        assert f"divscore-{__version__}.dist-info/licenses/src/divscore/encoders/minilm/{name}" in names
    assert wheel.stat().st_size < 8_000_000
    assert not [name for name in names if not name.startswith("divscore")]


def test_every_place_states_the_same_licence() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in ("README.md", "CITATION.cff", "CHANGELOG.md"):
        assert about["license"] in (ROOT / name).read_text(encoding="utf-8"), name
    # A citation file cannot state AND: one licence would be wrong, and a list means OR.
    assert "\nlicense" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_extra_has_packages(wheel: Path) -> None:
    about = metadata(wheel)
    needed = about.get_all("Requires-Dist")
    for extra in about.get_all("Provides-Extra"):
        assert any(line.endswith(f"extra == '{extra}'") for line in needed), extra


@pytest.mark.slow
def test_it_works_in_a_new_environment(installed: Path, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [str(installed / "divscore"), *words],
            cwd=tmp_path,
            env=own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    assert run("--version").stdout.split()[-1] == __version__
    assert "list A" in run("demo", "--out", "demo").stdout
    assert "<svg" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    run("audit", "demo/names.parquet", "--control", "demo/control", "--by", "list", "--report", "r.md")
    run("control", "publish", "demo/control", "-o", "published", "--no-measure")
    # What is not installed is named, and so is what installs it.
    said = run("audit", "s3://bucket/x.npy", "--control", "demo/control", code=2).stderr
    assert said == "divscore: s3://bucket/x.npy cannot be opened: s3:// needs a package: pip install s3fs\n"
    assert "pillow" in run("encoders").stdout


@pytest.mark.slow
def test_extras_can_be_installed(wheel: Path, installed: Path) -> None:
    """As a file and by its address: each brings the packages of its extra."""
    names = (f"{wheel}[faces]", f"divscore[s3] @ {wheel.as_uri()}")
    done = pip("--python", installed / "python", "install", "--dry-run", *names)
    packages = done.stdout.rpartition("Would install")[2]
    assert "face_recognition_models" in packages.replace("-", "_")
    assert "s3fs" in packages
