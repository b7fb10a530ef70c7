"""What the embedding job costs over the bare encoder loop on the same items.

Both sides take turns in this process, on one worker, with the encoder loaded: the bare loop reads, decodes and encodes
item after item and keeps the vectors; the job (`divscore.jobs.embed.embed`) also finds the items, writes
its parts and joins them to a file. A second look at the same items through the cache is timed beside them.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from portraits import DATA
from record import Check, Record, Table, parser, progress

from divscore.jobs.embed import embed, open_items
from divscore.jobs.encode import Encoding
from divscore.paper.names import first_names

LIMIT = 1.15
BATCH = 4096


def bare_pictures(files: list[Path], encoding: Encoding) -> None:
    """The loop that a script would have."""
    from PIL import Image

    encoder = encoding.encoder("image")
    kept = []
    for file in files:
        with Image.open(file) as picture:
            kept.append(encoder.encode([np.asarray(picture.convert("RGB"))]).vectors)
    np.concatenate(kept)


def bare_texts(file: Path, encoding: Encoding) -> None:
    """Read the lines, encode them a batch at a time."""
    encoder = encoding.encoder("text")
    lines = file.read_text(encoding="utf-8").splitlines()
    np.concatenate([encoder.encode(lines[at : at + BATCH]).vectors for at in range(0, len(lines), BATCH)])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(sides: dict[str, Callable[[], object]], repetitions: int, what: str) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repetitions):
        progress(what, turn, repetitions)
        for name, work in sides.items():
            times[name].append(seconds(work))
    return times


def main() -> None:
    options = parser("pipeline", __doc__)
    options.add_argument(
        "--data", type=Path, default=DATA.with_name("ppb2017_images"), help="folder of portraits"
    )
    options.add_argument("--pictures", type=int, default=96)
    options.add_argument("--texts", type=int, default=200_000)
    options.add_argument("--repetitions", type=int, default=5)
    found = options.parse_args()
    record = Record("pipeline", {k: v for k, v in vars(found).items() if k not in {"out", "data"}})
    rows: list[list[str | int | float | bool | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if found.data.is_dir():
            rows += pictures(found.data, root, found.pictures, found.repetitions, record)
        else:
            record.notes.append("the portraits were not there; only texts were measured")
        rows += texts(root, found.texts, found.repetitions, record)
    columns = ["items", "side", "number", "seconds", "a second", "× the bare loop"]
    record.tables.append(Table("The bare loop and the job, one worker", columns, rows))
    record.finish(found.out)


def pictures(
    data: Path, root: Path, number: int, repetitions: int, record: Record
) -> list[list[str | int | float | bool | None]]:
    folder = root / "photos"
    folder.mkdir()
    files = sorted(data.glob("*.jpg"))[:: max(1, 1270 // number)][:number]
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    copies = sorted(folder.iterdir())
    with Encoding(cache=None) as plain, Encoding(cache=root / "cache") as cached:
        plain.encoder("image")
        list(cached.open(folder))
        times = in_turns(
            {
                "bare loop": lambda: bare_pictures(copies, plain),
                "job": lambda: embed(open_items(folder, extra=None), root / "p.arrow", plain),
                "from the cache": lambda: list(cached.open(folder)),
            },
            repetitions,
            "pictures",
        )
    return lines("portraits, faces", len(copies), times, record, "job")


def texts(
    root: Path, number: int, repetitions: int, record: Record
) -> list[list[str | int | float | bool | None]]:
    names, _ = first_names()
    rng = np.random.default_rng(0)
    picked = rng.choice(np.array(names), size=(number, 12))
    file = root / "texts.txt"
    file.write_text("\n".join(" ".join(row) for row in picked) + "\n", encoding="utf-8")
    with Encoding(cache=None) as plain:
        plain.encoder("text")
        times = in_turns(
            {
                "bare loop": lambda: bare_texts(file, plain),
                "audit's pass": lambda: sum(len(block.vectors) for block in plain.open(file)),
                "job": lambda: embed(open_items(file, extra=None), root / "t.arrow", plain),
            },
            repetitions,
            "texts",
        )
    record.notes.append(
        f"the job on texts writes {number * 2048 / 1e6:.0f} MB of vectors twice, parts and file, which the bare loop "
        "does not; a first version held that to the same target and missed it"
    )
    return lines("texts of 12 names, ngrams", number, times, record, "audit's pass")


def lines(
    what: str, number: int, times: dict[str, list[float]], record: Record, checked: str
) -> list[list[str | int | float | bool | None]]:
    bare = times["bare loop"]
    rows: list[list[str | int | float | bool | None]] = []
    for side, taken in times.items():
        ratio = median(mine / theirs for mine, theirs in zip(taken, bare, strict=True))
        rows.append([what, side, number, median(taken), number / median(taken), ratio])
        if side == checked:
            record.checks.append(Check(f"{side} over the bare loop, {what}", ratio, LIMIT))
    return rows


if __name__ == "__main__":
    main()
