from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import divscore

ROOT = Path(divscore.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MODULES = [
    "divscore",
    *sorted(
        found.name
        for found in pkgutil.walk_packages(divscore.__path__, "divscore.")
        if not found.name.endswith("__main__")  # importing it runs the program
    ),
]
HEAVY = [
    "pyarrow",
    "scipy.stats",
    "matplotlib",
    "rich",
    "click",
    "jinja2",
    "fsspec",
    "onnxruntime",
    "fastapi",
]
# Subclasses the unpickler to refuse every name but those of plain data; tests/paper/test_pickles.py attacks it.
ALLOWED = {"paper/pickles.py": {"pickle"}}


def test_all_equals_reality() -> None:
    public = {
        name
        for name, value in vars(divscore).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(divscore.__all__) == divscore.__all__
    assert public == set(divscore.__all__)
    assert len(divscore.__all__) <= 12
    for name in divscore.__all__:
        assert getattr(divscore, name).__doc__


def test_packages_export_what_they_have() -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", ()):
            assert hasattr(module, exported), f"{name}.__all__ names {exported}"


def test_a_whole_package_was_found() -> None:
    assert {"divscore.sketch.sketch", "divscore.estimators.likelihood", "divscore.sources.recognise"} <= set(
        MODULES
    )
    assert len(MODULES) >= len(FILES) - 1  # all but __main__


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_what_it_is_and_never_pickles(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        assert not {n.split(".")[0] for n in names} & {
            "pickle",
            "cPickle",
            "dill",
            "joblib",
            "shelve",
            "marshal",
        } - ALLOWED.get(path.relative_to(ROOT).as_posix(), set())
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_importing_is_light() -> None:
    code = f"import divscore, sys; print(*(m for m in {HEAVY} if m in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_typed() -> None:
    assert (ROOT / "py.typed").exists()


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    tried = sum(len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert tried > 40
