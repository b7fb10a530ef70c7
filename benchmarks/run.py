"""Run every benchmark in order, then write the results into README.md.

With --quick the settings are small and nothing stored is touched: results go to benchmarks/out/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from portraits import DATA
from record import HERE

PICTURES = "ppb2017_images"  # the portraits, in the folder of the features
TWEETS = "tweets_dialect.parquet"  # also there
NEED_DATA = (
    "ppb",
    "changes",
    "diagnostics",
    "faces",
    "tweets",
    "texts",
    "shift",
    "pipeline",
    "refits",
    "groups",
    "labels",
    "sentences",
)
QUICK = {
    "ppb": ["--splits", "2"],
    "changes": ["--splits", "3", "--four-splits", "1"],
    "labels": ["--draws", "3", "--country-draws", "1"],
    "diagnostics": ["--splits", "6", "--country-splits", "1", "--noise-splits", "6"],
    "faces": ["--splits", "1", "--pairs", "2", "--every", "4"],
    "tweets": ["--splits", "2", "--repetitions", "1"],
    "texts": ["--splits", "2", "--repetitions", "1"],
    "shift": ["--quick"],
    "speed": ["--rows", "100000", "--repetitions", "2", "--self-training-rows", "4000"],
    "groups": ["--splits", "2"],
    "refits": ["--labels", "200", "600", "--repetitions", "1", "--splits", "1"],
    "files": ["--rows", "50000", "--repetitions", "2"],
    "sentences": ["--splits", "1", "--repetitions", "1"],
    "sampling": ["--rows", "50000", "--repetitions", "2"],
    "pipeline": ["--pictures", "8", "--texts", "20000", "--repetitions", "2"],
    "cli": ["--repetitions", "1"],
    "web": ["--pictures", "100", "--labels", "40", "--items", "2000", "--repetitions", "1"],
    "extension": ["--pages", "1"],
    "clients": ["--clients", "8", "--seconds", "3"],
    "house": [],
    "scale": ["--rows", "160000", "--linear", "1000000", "--format-rows", "20000", "--repetitions", "1"],
}


def main() -> None:
    options = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    options.add_argument("--quick", action="store_true", help="small settings, to see that all of it runs")
    options.add_argument("--only", nargs="+", choices=QUICK, default=list(QUICK), help="which benchmarks")
    options.add_argument("--no-quapy", action="store_true", help="leave QuaPy out of ppb.py and shift.py")
    options.add_argument(
        "--data",
        type=Path,
        default=DATA,
        help=f"the PPB-2017 features, with {PICTURES} and {TWEETS} in the same folder",
    )
    found = options.parse_args()
    for name in found.only:
        command = [sys.executable, str(HERE / f"{name}.py")]
        if name in NEED_DATA:
            data = found.data.with_name(
                {
                    "faces": PICTURES,
                    "pipeline": PICTURES,
                    "tweets": TWEETS,
                    "sentences": TWEETS,
                    "texts": TWEETS,
                }.get(name, found.data.name)
            )
            if not data.exists():
                print(f"\n== {name}: skipped, {data.name} is missing (see --data)", file=sys.stderr)
                continue
            command += ["--data", str(data)]
        if found.quick:
            command += [*QUICK[name], "--out", str(HERE / "out" / f"{name}.json")]
        if name in ("ppb", "shift") and found.no_quapy:
            command.append("--no-quapy")
        print(f"\n== {name}", file=sys.stderr, flush=True)
        subprocess.run(command, check=True)
    if not found.quick:
        subprocess.run([sys.executable, str(HERE / "table.py")], check=True)


if __name__ == "__main__":
    main()
