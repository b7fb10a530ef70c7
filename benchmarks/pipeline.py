"""What the job costs over the bare encoder loop, where each encoder spends its time, and what workers and memory do.

The bare loop reads, decodes and encodes items in batches and keeps the vectors; the job (`divscore.jobs.embed.embed`)
also finds the items, writes its parts and joins them to a file. The sides take turns in this process, on one worker,
with the encoder loaded; ratios are of the shortest times. Wall time, as processor time would hide waiting; other
processes on the machine disturb it, so the share of a core that they took is noted.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from modelfiles import image_model, sentence_model, vgg16_weights
from portraits import DATA
from record import Cell, Check, Record, Table, parser, progress

from divscore import sources
from divscore.encoders import images, sentence
from divscore.encoders.registry import Kind
from divscore.jobs import embed as embedding
from divscore.jobs import encode, parts
from divscore.jobs.cache import Cache
from divscore.jobs.embed import embed, open_items
from divscore.jobs.encode import CHUNK, Encoding
from divscore.paper.names import first_names

LIMIT = 1.10
WORKERS = 1.8
MEMORY = 400  # MB
TEXTS = 4096  # of a batch in the bare loop
STEPS = ("read and decode", "encode", "store", "rest")
MEASURE = """
import sys
from divscore.cli import main
main(sys.argv[1:], standalone_mode=False)
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def bare_pictures(files: Sequence[Path], encoding: Encoding) -> None:
    """The loop that a script would have."""
    from PIL import Image

    encoder = encoding.encoder("image")
    kept = []
    for at in range(0, len(files), CHUNK["image"]):
        pictures = []
        for file in files[at : at + CHUNK["image"]]:
            with Image.open(file) as picture:
                pictures.append(np.asarray(picture.convert("RGB")))
        kept.append(encoder.encode(pictures).vectors)
    np.concatenate(kept)


def bare_texts(file: Path, encoding: Encoding) -> None:
    """Read the lines, encode them a batch at a time."""
    encoder = encoding.encoder("text")
    lines = file.read_text(encoding="utf-8").splitlines()
    np.concatenate([encoder.encode(lines[at : at + TEXTS]).vectors for at in range(0, len(lines), TEXTS)])


def audit_pass(path: Path, encoding: Encoding) -> int:
    """What an audit does with items before it scores them."""
    items = sources.open(path)
    assert isinstance(items, sources.Items)
    return sum(len(block.vectors) for block in encoding.encode(items))


class Machine:
    """How much of a core other processes took since this was made."""

    def __init__(self) -> None:
        self._start = (time.perf_counter(), self._busy(), time.process_time())

    @property
    def others(self) -> float:
        """In cores, on average."""
        wall, busy, own = self._start
        seconds = time.perf_counter() - wall
        return max(0.0, self._busy() - busy - (time.process_time() - own)) / seconds

    @staticmethod
    def _busy() -> float:
        with open("/proc/stat", encoding="ascii") as stream:
            user, nice, system, _, _, *rest = map(int, stream.readline().split()[1:])
        return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def in_turns(sides: dict[str, Callable[[], object]], repetitions: int, what: str) -> dict[str, float]:
    """Shortest time of each side."""
    least = dict.fromkeys(sides, float("inf"))
    for turn in range(repetitions):
        progress(what, turn, repetitions)
        for name, work in sides.items():
            start = time.perf_counter()
            work()
            least[name] = min(least[name], time.perf_counter() - start)
    return least


def report_overhead(record: Record, folder: Path, texts: Path | None, root: Path, repetitions: int) -> None:
    """The job against the bare loop."""
    rows: list[list[Cell]] = []
    files = sorted(folder.iterdir())
    with Encoding("faces") as plain, Encoding("faces", cache=root / "cache") as cached:
        audit_pass(folder, cached)
        sides: dict[str, Callable[[], object]] = {
            "bare loop": lambda: bare_pictures(files, plain),
            "job": lambda: embed(open_items(folder, extra=None), root / "p.arrow", plain, overwrite=True),
            "audit's pass": lambda: audit_pass(folder, plain),
            "from the cache": lambda: audit_pass(folder, cached),
        }
        rows += _lines(
            record, "portraits, faces", len(files), sides, repetitions, ("job", "audit's pass"), root
        )
    if texts is not None:
        number = len(texts.read_text(encoding="utf-8").splitlines())
        for name in ("text", "ngrams"):
            with Encoding(name) as plain:
                sides = {
                    "bare loop": lambda: bare_texts(texts, plain),
                    "audit's pass": lambda: audit_pass(texts, plain),
                    "job": lambda: embed(
                        open_items(texts, extra=None), root / "t.arrow", plain, overwrite=True
                    ),
                }
                checked = ("audit's pass",) if name == "text" else ()
                rows += _lines(record, f"texts, {name}", number, sides, repetitions, checked, root)
        record.notes.append(
            "the job on texts writes hundreds of MB of vectors twice, parts and file, which the bare loop does not"
        )
    columns = ["items", "side", "number", "seconds", "a second", "× the bare loop"]
    record.tables.append(Table("The bare loop and the job, one worker", columns, rows))


def _lines(
    record: Record,
    what: str,
    number: int,
    sides: dict[str, Callable[[], object]],
    repetitions: int,
    checked: Sequence[str],
    root: Path,
) -> Iterator[list[Cell]]:
    fresh = {
        name: (functools.partial(_without, root, work) if name == "job" else work)
        for name, work in sides.items()
    }
    times = in_turns(fresh, repetitions, what)
    for side, seconds in times.items():
        ratio = seconds / times["bare loop"]
        if side in checked:
            record.checks.append(Check(f"{side} over the bare loop, {what}", ratio, LIMIT))
        yield [what, side, number, seconds, number / seconds, ratio]


def _without(root: Path, work: Callable[[], object]) -> None:
    """Run a job that has nothing to resume."""
    for file in root.glob("*.arrow"):
        file.unlink()
    work()


@contextmanager
def timed(places: dict[str, list[tuple[Any, str]]]) -> Iterator[dict[str, float]]:
    """Processor time in some functions, by step; a step inside another counts once."""
    spent = dict.fromkeys(places, 0.0)
    inside = [False]

    def wrapped(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if inside[0]:
                return function(*args, **options)
            inside[0] = True
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                spent[step] += time.process_time() - start
                inside[0] = False

        return run

    patches = [
        mock.patch.object(owner, name, wrapped(step, getattr(owner, name)))
        for step, functions in places.items()
        for owner, name in functions
    ]
    for patch in patches:
        patch.start()
    try:
        yield spent
    finally:
        for patch in patches:
            patch.stop()


def report_shares(record: Record, sides: dict[str, tuple[str, Kind, Path, Path | None]], root: Path) -> None:
    """Where a job spends its time, with the user's cache as the command line has it."""
    rows: list[list[Cell]] = []
    for done, (what, (name, kind, source, model)) in enumerate(sides.items()):
        progress("encoders", done, len(sides))
        with Encoding(name, model=model, cache=root / f"cache-{name}") as encoding:
            encoder = encoding.encoder(kind)
            places = {
                "read and decode": [(encode, "read_picture"), (encode, "decode"), (encode, "fingerprint")],
                "encode": [(type(encoder), "encode")],
                "store": [
                    (Cache, "add"),
                    (Cache, "lookup"),
                    (parts._Part, "write"),
                    (embedding, "join_parts"),
                ],
            }
            with timed(places) as spent:
                start = time.process_time()
                result = embed(open_items(source, extra=None), root / f"{name}.arrow", encoding)
                whole = time.process_time() - start
        shares = [spent[step] / whole for step in STEPS[:-1]]
        rows.append([what, result.items, 1000 * whole / result.items, *shares, 1 - sum(shares)])
    columns = ["encoder", "items", "ms an item", *STEPS]
    record.tables.append(
        Table("Share of the processor time in each step of a job, one worker", columns, rows)
    )


def report_batches(record: Record, sides: dict[str, tuple[str, Kind, Path, Path | None]]) -> None:
    """Time of an item by the size of a batch: the one in use is marked."""
    rows: list[list[Cell]] = []
    for what, (name, kind, source, model) in sides.items():
        module: Any = {"sentence": sentence, "onnx": images, "vgg16": images}.get(name)
        if module is None:
            continue
        used = module.BATCH
        with Encoding(name, model=model) as encoding:
            encoder = encoding.encoder(kind)
            items: list[Any] = [content for batch in open_items(source) for content in batch.contents][:128]
            if kind == "image":
                items = [
                    encode.decode(Path(path).read_bytes(), enough=encoder.resolution) for path in items[:16]
                ]
            for size in (1, used // 2, used, 2 * used, 4 * used):
                with mock.patch.object(module, "BATCH", size):
                    work = functools.partial(encoder.encode, items)
                    least = min(in_turns({"": work}, 3, what).values())
                rows.append([what, size, "in use" if size == used else "", 1000 * least / len(items)])
    record.tables.append(Table("Size of a batch", ["encoder", "batch", "", "ms an item"], rows))


def report_workers(record: Record, folder: Path, repetitions: int) -> None:
    """Portraits a second with one and two workers; only runs that others hardly disturbed are compared."""
    rows: list[list[Cell]] = []
    quiet: dict[int, list[float]] = {1: [], 2: []}
    least: dict[int, tuple[float, float]] = {}
    number = len(list(folder.iterdir()))
    for turn in range(repetitions):
        progress("workers", turn, repetitions)
        for workers in (1, 2):
            with Encoding("faces", workers=workers) as encoding:
                encoding.encoder("image")
                machine, start = Machine(), time.perf_counter()
                audit_pass(folder, encoding)
                seconds = time.perf_counter() - start
            if machine.others < 0.1:
                quiet[workers].append(seconds)
            least[workers] = min(least.get(workers, (np.inf, 0.0)), (seconds, machine.others))
    for workers, (seconds, others) in least.items():
        rows.append([workers, seconds, number / seconds, least[1][0] / seconds, others, len(quiet[workers])])
    columns = ["workers", "seconds", "portraits a second", "× one", "cores taken by others", "quiet runs"]
    record.tables.append(Table(f"Workers, {number} portraits", columns, rows))
    if quiet[1] and quiet[2]:
        ratio = min(quiet[1]) / min(quiet[2])
        record.checks.append(Check("two workers over one, quiet machine", ratio, WORKERS, upper=False))
    else:
        record.checks.append(Check("two workers over one, quiet machine", float("nan"), WORKERS, upper=False))
        record.notes.append("the machine was never quiet enough to compare one and two workers")


def report_memory(record: Record, sides: dict[str, Path], root: Path) -> None:
    """Most memory of a process that embeds pictures, one worker."""
    rows: list[list[Cell]] = []
    for at, (what, folder) in enumerate(sides.items()):
        out = root / f"memory{at}.arrow"
        command = [
            sys.executable,
            "-c",
            MEASURE,
            "embed",
            str(folder),
            "-o",
            str(out),
            "--workers",
            "1",
            "--no-cache",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        megabytes = int(done.stdout.split()[-1]) / 1024
        rows.append([what, len(list(folder.iterdir())), megabytes])
        record.checks.append(Check(f"peak memory, {what}", megabytes, MEMORY, unit=" MB"))
    record.tables.append(
        Table("Peak memory of `divscore embed`, one worker", ["pictures", "number", "MB"], rows)
    )


def _photographs(portraits: Sequence[Path], folder: Path, size: tuple[int, int]) -> Path:
    """Portraits as a camera would store them, with noise."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for portrait in portraits:
        large = np.asarray(Image.open(portrait).convert("RGB").resize(size, Image.Resampling.BICUBIC))
        noise = rng.integers(-12, 13, large.shape, dtype=np.int16)
        noisy = np.clip(large + noise, 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / portrait.name, quality=88)
    return folder


def main() -> None:
    options = parser("pipeline", __doc__)
    options.add_argument(
        "--data", type=Path, default=DATA.with_name("ppb2017_images"), help="folder of portraits"
    )
    options.add_argument("--pictures", type=int, default=256)
    options.add_argument("--texts", type=int, default=200_000)
    options.add_argument("--repetitions", type=int, default=7)
    found = options.parse_args()
    record = Record("pipeline", {k: v for k, v in vars(found).items() if k not in {"out", "data"}})
    portraits = sorted(found.data.glob("*.jpg"))
    if not portraits:
        raise SystemExit(f"the PPB-2017 portraits are not at {found.data}; give their folder with --data")
    machine = Machine()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder, few = root / "photos", root / "few"
        many = root / "many"  # one worker takes a few seconds
        sizes = {folder: found.pictures, few: max(8, found.pictures // 16), many: 4 * found.pictures}
        for place, number in sizes.items():
            place.mkdir()
            for file in portraits[:: max(1, len(portraits) // number)][:number]:
                (place / file.name).write_bytes(file.read_bytes())
        names, _ = first_names()
        picked = np.random.default_rng(0).choice(np.array(names), size=(found.texts, 12))
        texts, short = root / "texts.txt", root / "short.txt"
        lines = [" ".join(row) for row in picked]
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        short.write_text("\n".join(lines[:2048]) + "\n", encoding="utf-8")
        sides: dict[str, tuple[str, Kind, Path, Path | None]] = {
            "faces": ("faces", "image", folder, None),
            "vgg16": ("vgg16", "image", few, vgg16_weights(root / "vgg16.safetensors")),
            "onnx, a network of 29 layers": ("onnx", "image", folder, image_model(root / "model.onnx")),
            "sentence, 6 layers": ("sentence", "text", short, sentence_model(root / "sentence", list(names))),
            "text": ("text", "text", texts, None),
            "ngrams": ("ngrams", "text", texts, None),
        }
        report_overhead(record, folder, texts, root, found.repetitions)
        report_workers(record, many, found.repetitions)
        report_shares(record, sides, root)
        report_batches(record, sides)
        some = sorted(few.iterdir())
        memory = {
            "portraits": folder,
            "photographs of 12 megapixels": _photographs(some, root / "large", (3000, 4000)),
            # The largest that is not reduced while it is decoded.
            "photographs of 7.7 megapixels": _photographs(some, root / "medium", (2399, 3199)),
        }
        report_memory(record, memory, root)
    record.notes.append(f"other processes took {machine.others:.2f} cores on average while this ran")
    record.finish(found.out)


if __name__ == "__main__":
    main()
