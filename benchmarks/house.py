"""How large the code is, and how much of it one audit runs: the yardstick of a redesign.

Counts files and lines under src, packages in the import-linter contract, and names that two files or two classes
share. Runs `divscore audit photos/ --control labelled/` on portraits (on generated pictures or names, where the
portraits or their encoder are missing) and counts the functions of divscore that it calls. Runs
`divscore audit --by --cluster` on one Parquet file with two Dask workers and counts how often each process opens the
file. Opens are seen through Python's audit hook, and through pyarrow's own functions, which that hook does not see.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from portraits import DATA
from record import HERE, Cell, Check, Record, Table, parser

from divscore.encoders.registry import ENCODERS

# Measured by this file on the last commit before the redesign; make test on two quiet cores.
COMMIT = "68e4e78"
BEFORE = {
    "files": 246,
    "lines": 30_969,
    "file names used twice": 16,
    "class names used twice": 9,
    "layers of the import contract": 27,
    "packages in the import contract": 8,
    "functions run by an audit": 425,
    "files run by an audit": 76,
    "opens of a Parquet file, most in one process": 7,
    "opens of a Parquet file, all processes": 9,
    "seconds of make test": 426,
}
TARGETS = {
    "files": 125,
    "lines": 23_000,
    "packages in the import contract": 12,
    "file names used twice": 0,
    "class names used twice": 0,
    "functions run by an audit": 260,
    "files run by an audit": 40,
    "opens of a Parquet file, most in one process": 2,
    "seconds of make test": 300,
}
# Runs at the start of every Python process of a measured command: notes each function of divscore at its first call
# and each open of the watched file, one line each in a file of the process's own, which survives a kill.
WATCH = """
import os, sys, threading
_notes = open(os.path.join(os.environ["HOUSE_NOTES"], f"{os.getpid()}.txt"), "a", buffering=1)
_source, _watched, _seen = os.environ["HOUSE_SOURCE"], os.environ["HOUSE_WATCHED"], set()

def _profile(frame, event, _):
    code = frame.f_code
    if event != "call" or code in _seen or not code.co_filename.startswith(_source):
        return
    above = frame
    while above is not None:  # what an import runs, such as decorators, is no part of the audit
        if above.f_code.co_name == "<module>" and not above.f_code.co_filename.endswith("__main__.py"):
            if above.f_code.co_filename.startswith(_source):
                return
        above = above.f_back
    _seen.add(code)
    # CO_OPTIMIZED: a function's code, not a class's body.
    if code.co_flags & 1 and not code.co_name.startswith("<"):
        _notes.write(f"call {code.co_filename}:{code.co_qualname}\\n")

def _opened(path):
    if isinstance(path, (str, os.PathLike)) and os.path.abspath(os.fspath(path)) == _watched:
        _notes.write(f"open {path}\\n")

def _counted(function):
    def wrapped(*args, **options):
        for path in args[:2]:
            _opened(path)
        return function(*args, **options)
    return wrapped

if _watched:
    sys.addaudithook(lambda event, args: _opened(args[0]) if event == "open" else None)
    import pyarrow, pyarrow.parquet
    for _name in ("memory_map", "OSFile"):
        setattr(pyarrow, _name, _counted(getattr(pyarrow, _name)))
    pyarrow.parquet.core.ParquetFile.__init__ = _counted(pyarrow.parquet.core.ParquetFile.__init__)
else:
    sys.setprofile(_profile)
    threading.setprofile(_profile)
"""
ON_A_CLUSTER = """
import sys
from distributed import LocalCluster
from divscore.cli import main

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        main([*sys.argv[1:], "--cluster", cluster.scheduler_address], standalone_mode=False)
"""


def size(source: Path) -> dict[str, float]:
    """Files, lines and names that are used twice."""
    files = sorted(source.rglob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    classes = [
        node.name for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)
    ]
    names = [file.name for file in files if file.name not in ("__init__.py", "__main__.py")]
    return {
        "files": len(files),
        "lines": sum(len(text.splitlines()) for text in texts),
        "file names used twice": _twice(names),
        "class names used twice": _twice(classes),
    }


def layers(root: Path) -> dict[str, float]:
    """Layers of the longest import-linter contract, and packages among them."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    longest: list[str] = max((contract.get("layers", []) for contract in contracts), key=len)
    modules = [name.strip() for layer in longest for name in layer.split("|")]
    packages = [name for name in modules if (root / "src" / name.replace(".", "/")).is_dir()]
    return {"layers of the import contract": len(longest), "packages in the import contract": len(packages)}


def calls(root: Path, folder: Path, portraits: Path) -> dict[str, float]:
    """Functions of divscore that an audit of a folder runs, and the files that they are in."""
    photos, labelled, options = folder / "photos", folder / "labelled", []
    if portraits.is_dir() and not ENCODERS["faces"].missing:
        for at, file in enumerate(sorted(portraits.glob("*.jpg"))[::20]):
            group = "female" if "_f_" in file.name else "male"
            inside = labelled / group if at % 2 else photos
            inside.mkdir(parents=True, exist_ok=True)
            (inside / file.name).symlink_to(file)
    elif importlib.util.find_spec("onnx"):
        sys.path.insert(0, str(HERE.parent / "tests"))
        import tiny

        tiny.folder(labelled, {"red": 30, "blue": 30}, seed=0)
        tiny.folder(photos, {"red": 40, "blue": 20}, seed=1, sub_folders=False)
        options = ["--encoder", "onnx", "--model", str(tiny.image_model(folder / "tiny.onnx"))]
    else:
        _run(root, folder, ["-m", "divscore", "demo", "--out", str(folder / "demo")])
        photos, labelled = folder / "demo" / "names.parquet", folder / "demo" / "control"
    notes = _run(root, folder, ["-m", "divscore", "audit", str(photos), "--control", str(labelled), *options])
    called = {line for lines in notes.values() for line in lines if line.startswith("call ")}
    files = {line.rpartition(":")[0] for line in called}
    return {"functions run by an audit": len(called), "files run by an audit": len(files)}


def opens(root: Path, folder: Path) -> dict[str, float]:
    """The most often that one process opens a Parquet file in an audit on a cluster."""
    _run(root, folder, ["-m", "divscore", "demo", "--out", str(folder / "demo")])
    file, script = folder / "demo" / "names.parquet", folder / "on_a_cluster.py"
    script.write_text(ON_A_CLUSTER, encoding="utf-8")
    command = ["audit", str(file), "--control", str(folder / "demo" / "control"), "--by", "list"]
    notes = _run(root, folder, [str(script), *command, "--json", str(folder / "b.json")], watched=file)
    counts = [sum(line.startswith("open ") for line in lines) for lines in notes.values()]
    return {
        "opens of a Parquet file, most in one process": max(counts),
        "opens of a Parquet file, all processes": sum(counts),
    }


def seconds_of_tests(root: Path) -> dict[str, float]:
    """Seconds of make test; a failing test stops the measurement."""
    start = time.perf_counter()
    subprocess.run(["make", "test"], cwd=root, check=True)
    return {"seconds of make test": time.perf_counter() - start}


def measure(root: Path, portraits: Path, tests: bool) -> dict[str, float]:
    """Everything about one checkout."""
    found = size(root / "src") | layers(root)
    with tempfile.TemporaryDirectory() as folder:
        found |= calls(root, Path(folder), portraits)
    if importlib.util.find_spec("distributed"):
        with tempfile.TemporaryDirectory() as folder:
            found |= opens(root, Path(folder))
    return found | seconds_of_tests(root) if tests else found


def _run(root: Path, folder: Path, arguments: list[str], watched: Path | None = None) -> dict[str, list[str]]:
    """Run Python on the checkout's code; return the notes of every process."""
    notes = Path(tempfile.mkdtemp(dir=folder))
    (notes / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    source = root.resolve() / "src"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(notes), str(source)]),
        "HOUSE_NOTES": str(notes),
        "HOUSE_SOURCE": str(source),
        "HOUSE_WATCHED": str(watched.resolve()) if watched else "",
        "OPENBLAS_NUM_THREADS": "1",
        "DIVSCORE_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return {file.stem: file.read_text(encoding="utf-8").splitlines() for file in notes.glob("*.txt")}


def _twice(names: Iterable[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def main() -> None:
    options = parser("house", (__doc__ or "").partition("\n")[0])
    options.add_argument("--root", type=Path, default=HERE.parent, help="checkout to measure")
    options.add_argument(
        "--data", type=Path, default=DATA.with_name("ppb2017_images"), help="folder of portraits"
    )
    options.add_argument("--tests", action="store_true", help="also time make test (minutes)")
    options.add_argument("--print", action="store_true", help="print the numbers as JSON and store nothing")
    chosen = options.parse_args()
    found = measure(chosen.root, chosen.data, chosen.tests)
    if chosen.print:
        print(json.dumps(found, indent=1))
        return
    record = Record("house", {"before": COMMIT})
    rows: list[list[Cell]] = [
        [name, BEFORE.get(name), value, TARGETS.get(name)] for name, value in found.items()
    ]
    columns: list[Any] = ["what", f"before ({COMMIT})", "now", "at most"]
    record.tables.append(Table("The code, and what one audit runs", columns, rows))
    record.checks = [Check(name, found[name], limit) for name, limit in TARGETS.items() if name in found]
    record.finish(chosen.out)


if __name__ == "__main__":
    main()
