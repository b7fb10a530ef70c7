"""Damage valid files at random and open them: only a DivscoreError may come out of it. Run by `make fuzz`.

Each case is made from the seed and its number alone, so a failure can be made again: `fuzz.py --seed S --case N`.
Worker processes with limited memory open the files; the file of a case that fails is kept. `--images` damages images
only.
"""

from __future__ import annotations

import argparse
import gzip
import io
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pyarrow as pa
import vectorfiles
from PIL import Image

from divscore import Sketch, sources
from divscore.audit.audit import audit
from divscore.audit.document import document, parse_document
from divscore.control.controlfile import load_control, write_table
from divscore.errors import DivscoreError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.sketch.missing import MissingPart
from divscore.sketch.sketchfile import open_sketches, write_sketches
from divscore.sources.pictures import decode
from divscore.text import as_json

SECONDS = 10.0  # for one file
MEMORY = 2 << 30  # bytes of address space that a file may take: the largest picture allowed needs half of it
# Numbers at which readers of headers go wrong.
EDGES = [number.to_bytes(4, "little") for number in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000)]


@dataclass(frozen=True)
class Original:
    """A valid file, and how it is opened."""

    suffix: str
    data: bytes
    open: Callable[[Path], None]


def read_source(path: Path) -> None:
    """Read all of a collection: its vectors, which are sketched, or its items."""
    source = sources.open(path)
    if source.kind != "vectors":
        for batch in source:
            assert len(batch) == len(batch.ids)
        return
    control = vectorfiles.letters()
    sketch = Sketch(control)
    for block in source.select(unusable="list"):
        if source.dimension == control.dimension:
            sketch.add(block.vectors)


def read_labelled(path: Path) -> None:
    with Encoding("ngrams") as encoding:
        read_control(path, encoding)


def read_picture(path: Path) -> None:
    data = path.read_bytes()
    decode(data)
    decode(data, enough=8)


@cache
def originals() -> list[Original]:
    """Small valid files of every format that divscore reads."""
    control, vectors = vectorfiles.letters(), vectorfiles.matrix(1, 60)[vectorfiles.CLEAN :]
    found = []
    with tempfile.TemporaryDirectory() as folder:

        def written(name: str, write: Callable[[Path], object], opened: Callable[[Path], None]) -> None:
            path = Path(folder, name)
            write(path)
            found.append(Original("".join(path.suffixes), path.read_bytes(), opened))

        for form in vectorfiles.FORMATS:
            written(f"a.{form}", lambda path: vectorfiles.write(path, vectors), read_source)
        written("fortran.npy", lambda path: np.save(path, np.asfortranarray(vectors)), read_source)
        packed = {"embedding": vectors, "kind": np.array(["a", "b"] * (len(vectors) // 2))}
        written("b.npz", lambda path: np.savez_compressed(path, **packed), read_source)
        numbers = "\n".join(["a,b,kind", *(f'{x},{y},"k, {x}"' for x, y in vectors[:, :2].tolist())])
        written("numbers.csv", lambda path: path.write_text(numbers), read_source)
        posts = "\n".join(["id\ttext", *(f'{n}\t"a post\nof äöü {n}"' for n in range(40))])
        written("posts.tsv", lambda path: path.write_text(posts), read_source)
        written("posts.txt", lambda path: path.write_text(posts), read_source)
        written("excel.csv", lambda path: path.write_text(numbers, "utf-16"), read_source)
        written(
            "posts.tsv.gz", lambda path: path.write_bytes(gzip.compress(posts.encode(), mtime=0)), read_source
        )
        written("numbers.csv.zst", lambda path: _write_zstd(path, numbers.encode("utf-16")), read_source)
        labelled = "\n".join(["text,dialect", *(f"some {x} words of text,{'AB'[x % 2]}" for x in range(40))])
        written("labelled.csv", lambda path: path.write_text(labelled), read_labelled)
        frame = pa.table({"text": [f"text {n}" for n in range(50)], "group": ["a", "b"] * 25})
        written("posts.arrow", lambda path: _write_stream(path, frame), read_source)
        table = Path(folder, "control.parquet")
        written(
            table.name, lambda path: write_table(control, path), lambda path: _discard(load_control(path))
        )
        sketch = Sketch(control)
        sketch.add(vectors)
        missing = [MissingPart("b.npy", "damaged", 3)]
        written(
            "a.sketch",
            lambda path: write_sketches(path, {"one": sketch, "two": sketch}, missing),
            lambda path: _discard(open_sketches(path, control)),
        )
        result = as_json(document([audit(sketch, control, name="a"), audit(sketch, control, name="b")]))
        written(
            "audit.json",
            lambda path: path.write_text(result),
            lambda path: _discard(parse_document(path.read_bytes())),
        )
        for name, data in pictures().items():
            written(name, lambda path, data=data: path.write_bytes(data), read_picture)
    return found


def _discard(value: object) -> None:
    """For a function that has to return nothing."""


def _write_stream(path: Path, table: Any) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def _write_zstd(path: Path, data: bytes) -> None:
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
        stream.write(data)


def pictures() -> dict[str, bytes]:
    """A picture in every format and in the usual variants."""
    pillow_heif.register_heif_opener()
    rng = np.random.default_rng(0)
    colours = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((48, 36))
    clear = colours.copy()
    clear.putalpha(128)
    exif = Image.Exif()
    exif[274] = 6
    variants: dict[str, tuple[Any, str, dict[str, Any]]] = {
        "a.jpg": (colours, "JPEG", {"exif": exif}),
        "progressive.jpg": (colours, "JPEG", {"progressive": True}),
        "cmyk.jpg": (colours.convert("CMYK"), "JPEG", {}),
        "a.png": (clear, "PNG", {}),
        "palette.png": (colours.quantize(), "PNG", {}),
        "deep.png": (Image.fromarray(rng.integers(0, 65536, (36, 48), dtype=np.uint16)), "PNG", {}),
        "a.gif": (colours.quantize(), "GIF", {"save_all": True, "append_images": [colours.quantize()]}),
        "a.webp": (clear, "WEBP", {"exif": exif}),
        "lossless.webp": (colours, "WEBP", {"lossless": True}),
        "animated.webp": (colours, "WEBP", {"save_all": True, "append_images": [colours.rotate(9)]}),
        "a.bmp": (colours, "BMP", {}),
        "a.tif": (colours, "TIFF", {}),
        "lzw.tif": (colours, "TIFF", {"compression": "tiff_lzw"}),
        "deflate.tif": (colours, "TIFF", {"compression": "tiff_deflate"}),
        "packbits.tif": (colours, "TIFF", {"compression": "packbits"}),
        "jpeg.tif": (colours, "TIFF", {"compression": "jpeg"}),
        "fax.tif": (colours.convert("1"), "TIFF", {"compression": "group4"}),
        "float.tif": (Image.fromarray(rng.normal(size=(36, 48)).astype(np.float32)), "TIFF", {}),
        "a.avif": (clear, "AVIF", {}),
        "a.heic": (clear.resize((64, 64)), "HEIF", {}),
    }
    found = {}
    for name, (picture, form, options) in variants.items():
        stream = io.BytesIO()
        picture.save(stream, form, **options)
        found[name] = stream.getvalue()
    return found


# Damage.


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to four damages, one after the other."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        data = rng.choice(DAMAGES)(bytearray(data), rng)
    return data


def _place(data: bytearray, rng: random.Random) -> int:
    """Any byte; often one near the start or the end, where headers are."""
    near = min(len(data), 400)
    at = rng.choice([rng.randrange(len(data)), rng.randrange(near), len(data) - 1 - rng.randrange(near)])
    return min(at, len(data) - 1)


def _flip(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice([1, 1, 2, 8, 40]) if data else 0):
        data[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(data)


def _replace(data: bytearray, rng: random.Random) -> bytes:
    if data:
        at = _place(data, rng)
        data[at : at + 4] = rng.choice([*EDGES, rng.randbytes(4), bytes([rng.randrange(32, 127)]) * 4])
    return bytes(data)


def _cut(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data) + 1)])


def _remove(data: bytearray, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice([1, 4, 30, 300])]
    return bytes(data)


def _repeat(data: bytearray, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(data) + 1), rng.choice([1, 4, 30, 300])
    to = rng.randrange(len(data) + 1)
    return bytes(data[:to] + data[at : at + length] + data[to:])


def _swap(data: bytearray, rng: random.Random) -> bytes:
    a, b, c, d = sorted(rng.randrange(len(data) + 1) for _ in range(4))
    return bytes(data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:])


def _splice(data: bytearray, rng: random.Random) -> bytes:
    other = rng.choice(originals()).data
    at = rng.randrange(len(other))
    to = rng.randrange(len(data) + 1)
    return bytes(data[:to] + other[at : at + rng.choice([16, 200, len(other)])] + data[to:])


DAMAGES = [_flip, _flip, _replace, _replace, _cut, _remove, _repeat, _swap, _splice]


def case(seed: int, number: int, images: bool = False) -> tuple[Original, bytes]:
    """A damaged file, or image: the same one for the same numbers, on any machine with the same libraries."""
    rng = random.Random(f"{seed} {number}")
    original = rng.choice([each for each in originals() if each.open is read_picture or not images])
    inside = rng.random() < 0.8  # or else checksums hide everything
    if original.suffix.endswith(".gz") and inside:
        return original, gzip.compress(damaged(gzip.decompress(original.data), rng), mtime=0)
    if original.suffix == ".npz" and inside:
        return original, _damaged_members(original.data, rng)
    return original, damaged(original.data, rng)


def _damaged_members(data: bytes, rng: random.Random) -> bytes:
    """An archive of which one member is damaged, with the right checksum."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(found, "w") as changed:
        members = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(list(members))
        for each, content in (members | {name: damaged(members[name], rng)}).items():
            changed.writestr(zipfile.ZipInfo(each), content)
    return found.getvalue()


# Open the files, in a process that may be killed.


def problem_with(original: Original, path: Path) -> str:
    """What is wrong with how a file is opened; nothing if it is read, or refused by an error of ours."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as leaked:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module="PIL")  # about odd metadata; the surfaces silence them, too
        try:
            original.open(path)
        except DivscoreError:
            pass
        except BaseException:
            return traceback.format_exc()
    if leaked:
        return f"a warning: {leaked[0].message} ({leaked[0].filename}:{leaked[0].lineno})"
    seconds = time.perf_counter() - start
    return f"it took {seconds:.0f} s" if seconds > SECONDS else ""


def work(seed: int, numbers: Any, images: bool, folder: str, results: Any) -> None:
    """Open the files of some cases, in the worker."""
    originals()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff prints what it thinks of a file
    for number in numbers:
        original, data = case(seed, number, images)
        path = Path(folder, f"case{original.suffix}")
        path.write_bytes(data)
        results.send((number, None))
        results.send((number, problem_with(original, path)))
        path.unlink()


def run(
    seed: int, seconds: float, folder: Path, most: int = sys.maxsize, images: bool = False
) -> Iterator[tuple[int, str]]:
    """Open damaged files for some time; yield the number of each case and what was wrong with it, or nothing."""
    context, end = multiprocessing.get_context("spawn"), time.monotonic() + seconds
    following = 0
    while time.monotonic() < end and following < most:
        receiver, sender = context.Pipe(duplex=False)
        numbers = range(following, most)
        settings = seed, numbers, images, os.fspath(folder), sender
        worker = context.Process(target=work, args=settings, daemon=True)
        worker.start()
        sender.close()
        begun: int | None = None
        try:
            while time.monotonic() < end and following < most:
                if not receiver.poll(60 if begun is None else 2 * SECONDS):
                    yield following, f"it took more than {2 * SECONDS:.0f} s"
                    following += 1
                    break
                try:
                    number, problem = receiver.recv()
                except EOFError:
                    worker.join()
                    if begun is None:
                        raise RuntimeError(f"the worker ended ({worker.exitcode})") from None
                    yield begun, f"the process died ({worker.exitcode})"
                    following = begun + 1
                    break
                begun = number
                if problem is not None:
                    following = number + 1
                    yield number, problem
        finally:
            worker.kill()
            worker.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--case", type=int, default=None, help="open this case only, in this process")
    parser.add_argument("--images", action="store_true", help="damage images only")
    parser.add_argument(
        "--keep", type=Path, default=Path("fuzz-failures"), help="folder for files that failed"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    if options.case is not None:
        original, data = case(seed, options.case, options.images)
        path = options.keep / f"{seed}-{options.case}{original.suffix}"
        options.keep.mkdir(exist_ok=True)
        path.write_bytes(data)
        problem = problem_with(original, path)
        sys.stdout.write(f"{path}: {problem or 'fine'}\n")
        return bool(problem)
    sys.stdout.write(f"seed {seed}\n")
    kinds: Counter[str] = Counter()
    count = failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, problem in run(seed, options.seconds, Path(folder), images=options.images):
            count += 1
            if not problem:
                continue
            failures += 1
            last = problem.strip().splitlines()[-1]
            kinds[last] += 1
            if kinds[last] > 3:
                continue
            original, data = case(seed, number, options.images)
            options.keep.mkdir(exist_ok=True)
            path = options.keep / f"{seed}-{number}{original.suffix}"
            path.write_bytes(data)
            again = f"--seed {seed} --case {number}{' --images' if options.images else ''}"
            sys.stdout.write(f"\n{path} ({again}):\n{problem.strip()}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{count:,} damaged {'images' if options.images else 'files'}, {failures:,} failures\n")
    for kind, number in kinds.most_common():
        sys.stdout.write(f"{number:6,} {kind[:150]}\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
