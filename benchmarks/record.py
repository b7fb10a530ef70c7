"""What every benchmark leaves behind: tables, checks against targets, settings, and where it ran."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = [
    "HERE",
    "KEPT_TIMES",
    "Check",
    "Record",
    "Table",
    "checks_table",
    "environment",
    "keep_times",
    "markdown",
    "parser",
    "progress",
    "repository_path",
    "stored_tables",
]

HERE = Path(__file__).resolve().parent
KEPT_TIMES = "the times are those of an earlier run, on an idle machine"
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Check:
    """A measured value against its target."""

    name: str
    value: float
    limit: float
    upper: bool = True  # the value may be at most (or else: must be at least) the limit
    unit: str = ""
    least: float | None = None  # for a range: the value must be at least this and at most the limit

    @property
    def passed(self) -> bool:
        """Whether the target is met; a value that could not be measured does not meet it."""
        if self.least is not None:
            return self.least <= self.value <= self.limit
        return self.value <= self.limit if self.upper else self.value >= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        target = f"{'≤' if self.upper else '≥'} {self.limit:g}{self.unit}"
        if self.least is not None:
            target = f"{self.least:g} to {self.limit:g}{self.unit}"
        return {"name": self.name, "value": self.value, "target": target, "pass": bool(self.passed)}


@dataclass(frozen=True)
class Table:
    """Rows under named columns. All are stored; `shown` ones are printed and go to the README."""

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]
    shown: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"title": self.title, "columns": list(self.columns), "rows": self.rows, "shown": self.shown}


@dataclass
class Record:
    """One benchmark's outcome, printed for people and stored for `table.py`."""

    name: str
    settings: dict[str, Any]
    tables: list[Table] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the date: two runs of the same code differ in what they measured only."""
        return {
            "benchmark": self.name,
            "settings": self.settings,
            "environment": environment(),
            "tables": [table.to_dict() for table in self.tables],
            "checks": [check.to_dict() for check in self.checks],
            "notes": self.notes,
        }

    def finish(self, out: Path) -> None:
        """Print the tables and store the JSON; the file appears whole or not at all."""
        document = json.loads(json.dumps(self.to_dict()))
        for table in document["tables"]:
            if table["shown"]:
                print(f"\n{table['title']}\n")
                print(markdown(table["columns"], table["rows"]))
        if self.checks:
            print("\nTargets\n")
            print(markdown(*checks_table(document["checks"])))
        for note in self.notes:
            print(f"\nNote: {note}")
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(".partial")
        partial.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(out)
        print(f"stored {os.path.relpath(out)}", file=sys.stderr)


def stored_tables(path: Path, *beginnings: str) -> list[Table]:
    """Tables of an earlier run by how their titles begin: times, which a busy machine should not measure again."""
    if not path.exists():
        raise SystemExit(f"{path} is missing, so there are no stored times to keep")
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    return [
        Table(**next(table for table in tables if table["title"].startswith(title))) for title in beginnings
    ]


def checks_table(checks: list[dict[str, Any]]) -> tuple[list[str], list[list[Cell]]]:
    """Columns and rows of the checks, as `markdown` takes them."""
    rows: list[list[Cell]] = [
        [c["name"], c["value"], c["target"], "pass" if c["pass"] else "**fail**"] for c in checks
    ]
    return ["target", "measured", "wanted", ""], rows


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Draw a Markdown table with aligned columns; it reads well on a terminal too."""
    cells = [[str(c) for c in columns], *[[_text(c) for c in row] for row in rows]]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(columns))]
    number = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    padded = [[_pad(*each) for each in zip(row, widths, number, strict=True)] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in padded]
    rule = "|" + "|".join("-" * (w + 1) + ("-:"[n]) for w, n in zip(widths, number, strict=True)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def environment() -> dict[str, Any]:
    """Versions and threads; no date, no host name, no paths."""
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("numpy", "scipy", "pyarrow", "scikit-learn", "quapy")},
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "blas_threads": int(os.environ.get("OPENBLAS_NUM_THREADS", os.cpu_count() or 1)),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def parser(
    name: str,
    description: str | None,
    *,
    data: Path | None = None,
    splits: int | None = None,
    jobs: int = 2,
    seed: int = 0,
) -> argparse.ArgumentParser:
    """Return a parser with the option that all benchmarks share, and those of benchmarks on splits of `data`."""
    found = argparse.ArgumentParser(
        prog=f"benchmarks/{name}.py",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    found.add_argument(
        "--out", type=Path, default=HERE / "results" / f"{name}.json", help="where to store the JSON"
    )
    if data is not None:
        found.add_argument("--data", type=Path, default=data, help="the data set")
    if splits is not None:
        found.add_argument("--splits", type=int, default=splits, help="random draws of the labelled examples")
        found.add_argument("--jobs", type=int, default=jobs, help="number of processes")
        found.add_argument("--seed", type=int, default=seed, help="seed of the draws")
    return found


def keep_times(options: argparse.ArgumentParser) -> None:
    """Add the option of benchmarks that measure both errors, which no other process changes, and times."""
    options.add_argument(
        "--keep-times", action="store_true", help="measure no time, keep the stored ones: for a busy machine"
    )


def repository_path(path: Path) -> str:
    """Name a file by its path from the repository's root, so that no record names a machine's folders."""
    return Path(os.path.relpath(path.resolve(), HERE.parent)).as_posix()


def progress(what: str, done: int, total: int) -> None:
    """Keep one line on stderr up to date; only every tenth part of the way where it is not a terminal."""
    tenth = max(1, total // 10)
    if sys.stderr.isatty():
        print(f"\r{what}: {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done % tenth == 0 or done == total:
        print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)


def _text(value: Cell) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if type(value) is int else str(value)


def _is_number(value: Cell) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
