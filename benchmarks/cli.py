"""The command line as users start it: import, help of every command, and the README's audit, in new processes.

The audit runs with the default environment and with one BLAS thread by an environment variable, in turn: the first
should not be slower. CPU seconds are those of the process and its children; they say more than seconds on a machine
that others use. No variable for the number of threads is set, whatever the shell has.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

from record import Check, Record, Table, parser

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
IMPORT = "import time; t = time.perf_counter(); import divscore; print(time.perf_counter() - t)"
DIVSCORE = [sys.executable, "-m", "divscore"]
AUDIT = [*DIVSCORE, "audit", "demo/names.parquet", "--control", "demo/control", "--by", "list"]
# Commands that fit nothing.
LIGHT = (
    *(["--help"], ["audit", "--help"], ["embed", "--help"], ["sketch", "--help"], ["merge", "--help"]),
    *(["plan", "--help"], ["diff", "--help"], ["compare", "--help"], ["reproduce", "--help"]),
    *(
        ["demo", "--help"],
        ["control", "--help"],
        ["control", "select", "--help"],
        ["control", "show", "--help"],
    ),
    *(["encoders"], ["diff", "audit.json", "audit.json"]),
)


def timed(command: list[str], folder: str, **variables: str) -> tuple[float, float]:
    """Seconds and CPU seconds of a command."""
    plain = {name: value for name, value in os.environ.items() if name not in THREADS}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=plain | variables)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = parser("cli", (__doc__ or "").partition("\n")[0])
    options.add_argument(
        "--repetitions", type=int, default=7, help="rounds in which every command has a turn"
    )
    found = options.parse_args()
    record = Record("cli", {"repetitions": found.repetitions})
    with tempfile.TemporaryDirectory() as folder:
        timed([*DIVSCORE, "demo", "--out", "demo"], folder)
        timed([*AUDIT, "--json", "audit.json"], folder)  # also warms the file cache
        imports, bare = [], []
        audits: dict[str, list[tuple[float, float]]] = {"default": [], "one BLAS thread": []}
        light: dict[str, list[tuple[float, float]]] = {" ".join(words): [] for words in LIGHT}
        for _ in range(found.repetitions):
            done = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True)
            imports.append(json.loads(done.stdout))
            bare.append(timed([sys.executable, "-c", "pass"], folder))
            audits["default"].append(timed(AUDIT, folder))
            audits["one BLAS thread"].append(timed(AUDIT, folder, **dict.fromkeys(THREADS, "1")))
            for words in LIGHT:
                light[" ".join(words)].append(timed([*DIVSCORE, *words], folder))

    def least(runs: list[tuple[float, float]]) -> list[float]:
        return [min(seconds for seconds, _ in runs), median(s for s, _ in runs), min(cpu for _, cpu in runs)]

    rows: list[list[Any]] = [["an interpreter that does nothing", *least(bare)]]
    rows += [[f"divscore {words}", *least(runs)] for words, runs in light.items()]
    columns = ["", "least s", "median s", "least CPU s"]
    record.tables.append(Table("Commands that fit nothing", columns, rows))
    rows = [[f"README's audit, {name}", *least(runs)] for name, runs in audits.items()]
    record.tables.append(Table("The README's audit", columns, rows))
    default, single = (least(runs) for runs in audits.values())
    slowest = max(min(seconds for seconds, _ in runs) for runs in light.values())
    record.checks = [
        Check("import divscore", min(imports), 0.3, unit=" s"),
        Check("divscore --help", least(light["--help"])[0], 0.5, unit=" s"),
        Check("slowest command that fits nothing", slowest, 0.6, unit=" s"),
        Check("README's audit, CPU", default[2], 1.2, unit=" s"),
        Check("README's audit, default over one BLAS thread", default[0] / single[0], 1.3),
        Check("the same, CPU", default[2] / single[2], 1.3),
    ]
    record.finish(found.out)


if __name__ == "__main__":
    main()
