"""From portrait files to an audit: who is found, how fast, and the paper's protocol on the vectors.

The 1,270 portraits of PPB-2017 are encoded once with the encoder `faces` and once with dlib alone, as divscore did it
before; the vectors stay in benchmarks/out/. Portraits without a face are missing from everything after the first table,
from the truth as well. Times are processor times of one thread: the sides take turns on eight pictures at a time, and
the least time of each eight counts. The protocol is that of ppb.py with the 50 drawn at random from the 200, and
collections of about 480 with 0, 10, … 100 % of the first group. The error with 50 labels differs much from one split to
the next, so the comparison with dlib has more splits, the same for both, and needs the estimates only, no intervals.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import portraits
from dlibpath import DlibPath, face_recognition_path
from numpy.typing import NDArray
from PIL import Image
from ppb import COVERAGE, FEW, LABELLED, SHARES, SIZE, Answer, drawn, split_answers, summarise
from record import (
    HERE,
    KEPT_TIMES,
    Cell,
    Check,
    Record,
    Table,
    keep_times,
    parser,
    progress,
    repository_path,
    stored_tables,
)
from workers import each

from divscore import Sketch
from divscore.encoders.faces import BATCH, SMALLEST, TEMPLATE, FaceEncoder, aligned
from divscore.encoders.registry import EncoderSpec
from divscore.estimators.checks import separable
from divscore.estimators.mixture import mixture_fit
from divscore.sources.pictures import decode

DATA = portraits.DATA.with_name("ppb2017_images")
KEPT = HERE / "out"
# As stored before, with dlib's own detector.
ERROR = {
    ("gender", FEW): 0.032,
    ("skin tone", FEW): 0.027,
    ("dark-skinned women", FEW): 0.045,
    ("gender", LABELLED): 0.014,
    ("skin tone", LABELLED): 0.013,
    ("dark-skinned women", LABELLED): 0.020,
}
GENDER = {"f": "female", "m": "male"}
TONE = {**dict.fromkeys("123", "lighter"), **dict.fromkeys("456", "darker")}
AT_ONCE = 10
TIMED = 64
PIXELS = 900_000  # of the larger pictures
CROPS = 300
WIDTHS = (10, 12, 14, 16, 18, 20, 24, 32, 48)
OURS, DLIB = "faces", "dlib, as before"
TIMES = "Processor time a picture, from the file to the vector"
FASTER = {
    (DLIB, "portraits"): 9,
    ("face_recognition", "portraits"): 10,
    ("face_recognition", "0.9-megapixel pictures"): 15,
}

Picture = NDArray[np.uint8]
Vectors = NDArray[np.float32]


class Faces(NamedTuple):
    """What became of each portrait: how many faces were found, and a vector by each side (zeros: no face).

    `points` are the five points of `faces` in dlib's aligned face, as x + iy (zeros: one side found no face).
    """

    names: NDArray[Any]
    found: NDArray[np.intp]
    vectors: Vectors
    dlib: Vectors
    points: NDArray[np.complex128]

    def groups(self) -> dict[str, NDArray[Any]]:
        """Gender, skin tone and country, as the file names have them."""
        parts = [Path(name).stem.split("_") for name in self.names.tolist()]
        gender = np.array([GENDER[gender] for _, _, gender, _ in parts])
        tone = np.array([TONE[tone] for _, tone, _, _ in parts])
        dark_women = np.where((gender == "female") & (tone == "darker"), "dark-skinned women", "rest")
        country = np.array([country for *_, country in parts])
        return {"gender": gender, "skin tone": tone, "gender and skin tone": dark_women, "country": country}


@functools.cache
def encoder() -> FaceEncoder:
    """Return the encoder, loaded once a process."""
    found = EncoderSpec("faces", "image").load(threads=1)
    assert isinstance(found, FaceEncoder)
    return found


@functools.cache
def dlib_path() -> DlibPath:
    """Return dlib's side, loaded once a process."""
    return DlibPath()


def opened(path: Path) -> Picture:
    return decode(path.read_bytes(), enough=encoder().resolution)


def encode(paths: list[Path]) -> list[tuple[Any, ...]]:
    """Encode some portraits: the fields of `Faces` for each."""
    rows = []
    none = np.zeros(encoder().dimension, dtype=np.float32)
    for path in paths:
        picture = opened(path)
        result, shape = encoder().encode([picture]), dlib_path().landmarks(picture)
        ours = result.vectors[0] if len(result.vectors) else none
        theirs = dlib_path().encode(picture, shape) if shape else none
        points = np.zeros_like(TEMPLATE)
        if shape and len(result.vectors):
            found = encoder().points(picture, encoder().find(picture)[0])
            points = dlib_path().in_aligned_face(shape, found)
        rows.append((path.name, int(result.detected[0]), ours, theirs, points))
    return rows


def kept(paths: list[Path], jobs: int, store: Path) -> Faces:
    """Vectors of an earlier run, where encoder and portraits are the same; else new ones."""
    key = f"{encoder().identity} {encoder().variant}"
    if store.exists():
        with np.load(store, allow_pickle=False) as file:
            same = str(file["key"]) == key and set(Faces._fields) <= set(file)
            if same and file["names"].tolist() == [path.name for path in paths]:
                return Faces(*(file[name] for name in Faces._fields))
    pieces = [paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE)]
    names, found, *tables = zip(*each(encode, pieces, jobs, "pieces of portraits"), strict=True)
    fresh = Faces(np.array(names), np.array(found), *(np.stack(table) for table in tables))
    store.parent.mkdir(parents=True, exist_ok=True)
    np.savez(store, key=np.array(key), **fresh._asdict())
    return fresh


def stored_as_features(faces: Faces, vectors: Vectors, which: NDArray[np.bool_], path: Path) -> Path:
    """Write some portraits in the form that ppb.py reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = faces.groups()
    columns = {
        name.replace(" ", "_"): groups[name][which].tolist() for name in ("gender", "skin tone", "country")
    }
    pq.write_table(pa.table({**columns, "embedding": list(vectors[which])}), path)
    return path


def report_found(record: Record, faces: Faces) -> None:
    """Which portraits show a face that is found."""
    everyone = {"all": np.full(len(faces.names), "all")}
    rows: list[list[Cell]] = []
    for attribute, values in (everyone | faces.groups()).items():
        for group in np.unique(values).tolist():
            mine = values == group
            ours = int((faces.found[mine] == 0).sum())
            dlib = int((~faces.dlib[mine].any(axis=1)).sum())
            several = float((faces.found[mine] > 1).mean())
            rows.append([attribute, group, int(mine.sum()), ours, dlib, 1 - ours / int(mine.sum()), several])
    columns = ["attribute", "group", "portraits", "without a face", "by dlib", "found", "several faces"]
    record.tables.append(Table("Portraits in which a face is found", columns, rows))
    missed = {str(row[1]): int(row[3] or 0) for row in rows}
    record.checks.append(Check("portraits without a face", missed["all"], 2))
    record.checks.append(Check("of them of dark-skinned women", missed["dark-skinned women"], 0))


def report_template(record: Record, faces: Faces) -> None:
    """Where the five points are in dlib's aligned faces: the encoder's template is their median."""
    points = faces.points[faces.points.any(axis=1)]
    median = np.median(points.real, axis=0) + 1j * np.median(points.imag, axis=0)
    apart = np.abs(points - median).mean(axis=0)
    names = ("right eye", "left eye", "nose", "right corner of the mouth", "left corner of the mouth")
    rows: list[list[Cell]] = [
        [name, float(at.real), float(at.imag), float(mean)]
        for name, at, mean in zip(names, median, apart, strict=True)
    ]
    columns = ["point", "median x", "median y", "mean distance"]
    record.tables.append(Table(f"Points in dlib's aligned faces, {len(points)} portraits", columns, rows))
    off = float(np.abs(TEMPLATE - median).max())
    record.checks.append(Check("pixels between the template and the median", off, 0.01))


def report_equality(record: Record, paths: Sequence[Path]) -> None:
    """The network in onnxruntime against dlib's own kernels, on the same aligned faces."""
    cosines, differences = [], []
    for path in paths:
        picture = opened(path)
        for face in encoder().find(picture)[:1]:
            chip = aligned(picture, encoder().points(picture, face))
            ours = encoder()._descriptor.run({"chips": chip[None]}, ["descriptors"])[0][0].astype(float)
            theirs = dlib_path().describe(chip)
            cosines.append(float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)))
            differences.append(float(np.abs(ours - theirs).max()))
    columns = ["aligned faces", "least cosine", "largest difference of a number"]
    row: list[Cell] = [len(cosines), f"{min(cosines):.7f}", f"{max(differences):.1e}"]
    record.tables.append(Table("The network in onnxruntime and in dlib", columns, [row]))
    record.checks.append(Check("least cosine with dlib's descriptor", min(cosines), 0.9999, upper=False))


def report_time(record: Record, paths: Sequence[Path], rounds: int, stored: Path | None) -> None:
    """Processor time of a picture by each side, and of the steps of ours: measured, or those that are stored."""
    columns = ["pictures", "side", "number", "ms a picture", "× faces"]
    steps = "Steps of `faces`"
    if stored is not None:
        sides, parts = stored_tables(stored, TIMES, steps)
        record.notes.append(KEPT_TIMES)
    else:
        if face_recognition_path() is None:
            record.notes.append("face_recognition is not installed, so it was not timed")
        sides = Table(TIMES, columns, list(_timed(paths, rounds)))
        parts = Table(f"{steps}, {len(paths)} portraits", ["step", "ms"], _steps(paths, rounds))
    record.tables += [sides, parts]
    for kind, side, _, _, ratio in sides.rows:
        wanted = FASTER.get((str(side), str(kind)))
        if wanted:
            name = f"times as fast as {str(side).partition(',')[0]}, {kind}"
            record.checks.append(Check(name, float(ratio or 0), wanted, upper=False))


def _timed(paths: Sequence[Path], rounds: int) -> Iterator[list[Cell]]:
    """Kind of picture, side, number of pictures, ms a picture, and that over ours."""
    theirs = face_recognition_path()
    sides: dict[str, Callable[[Sequence[Path]], object]] = {
        OURS: lambda files: encoder().encode([opened(file) for file in files]),
        DLIB: lambda files: [_by_dlib(opened(file)) for file in files],
        **({"face_recognition": lambda files: [theirs(file) for file in files]} if theirs else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        larger = [_enlarged(path, Path(folder)) for path in paths]
        for kind, files in {"portraits": paths, "0.9-megapixel pictures": larger}.items():
            groups = [files[at : at + BATCH] for at in range(0, len(files), BATCH)]
            least = {side: np.full(len(groups), np.inf) for side in sides}
            for turn in range(rounds * len(groups)):
                progress(kind, turn, rounds * len(groups))
                group = turn % len(groups)
                for side, work in sides.items():
                    start = time.process_time()
                    work(groups[group])
                    least[side][group] = min(least[side][group], time.process_time() - start)
            mean = {side: 1000 * float(times.sum()) / len(files) for side, times in least.items()}
            yield from ([kind, side, len(files), ms, ms / mean[OURS]] for side, ms in mean.items())


def _by_dlib(picture: Picture) -> Vectors | None:
    shape = dlib_path().landmarks(picture)
    return dlib_path().encode(picture, shape) if shape else None


def _enlarged(path: Path, folder: Path) -> Path:
    picture = Image.open(path).convert("RGB")
    factor = (PIXELS / (picture.width * picture.height)) ** 0.5
    size = round(picture.width * factor), round(picture.height * factor)
    picture.resize(size, Image.Resampling.BICUBIC).save(folder / path.name, quality=90)
    return folder / path.name


def _steps(paths: Sequence[Path], rounds: int) -> list[list[Cell]]:
    least = dict.fromkeys(
        ("read and decode", "find", "look again", "align", "describe, in batches of 8"), np.inf
    )
    for _ in range(rounds):
        marks = [time.process_time()]
        pictures = [opened(path) for path in paths]
        marks.append(time.process_time())
        found = [encoder().find(picture)[:1] for picture in pictures]
        marks.append(time.process_time())
        pairs = zip(pictures, found, strict=True)
        placed = [(picture, encoder().points(picture, face)) for picture, faces in pairs for face in faces]
        marks.append(time.process_time())
        chips = [aligned(picture, points) for picture, points in placed]
        marks.append(time.process_time())
        for at in range(0, len(chips), BATCH):
            encoder()._descriptor.run({"chips": np.stack(chips[at : at + BATCH])}, ["descriptors"])
        marks.append(time.process_time())
        for step, seconds in zip(least, np.diff(marks), strict=True):
            least[step] = min(least[step], 1000 * float(seconds) / len(paths))
    return [[step, ms] for step, ms in least.items()]


def report_false_faces(record: Record, paths: Sequence[Path]) -> None:
    """Faces that are found in pictures without any: what is below a face, as it is and enlarged; and textures.

    Portraits with a second person are not used, and a crop begins a fifth of the face below the face.
    """
    torsos = []
    for path in paths:
        picture = opened(path)
        faces = encoder().find(picture)
        if len(faces) == 1 and len(torsos) < CROPS:
            below = picture[round(faces[0].top + 1.2 * faces[0].height) :]
            if min(below.shape[:2]) >= 2 * SMALLEST:
                torsos.append(below)
    rng = np.random.default_rng(0)
    kinds = {
        "torsos": torsos,
        "torsos, enlarged 3 times": [_scaled(torso, 3) for torso in torsos],
        "torsos, enlarged 6 times": [_scaled(torso, 6) for torso in torsos],
        "textures": [_texture(rng) for _ in range(CROPS)],
    }
    rows: list[list[Cell]] = []
    for kind, pictures in kinds.items():
        false = sum(int(n > 0) for n in encoder().encode(pictures).detected)
        rows.append([kind, len(pictures), false])
        if kind in ("torsos", "textures"):
            record.checks.append(Check(f"false faces, {kind}", false, 0))
    record.tables.append(Table("Pictures without a face", ["pictures", "number", "with a false face"], rows))


def _scaled(picture: Picture, factor: float) -> Picture:
    size = tuple(max(1, round(factor * side)) for side in picture.shape[1::-1])
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _texture(rng: np.random.Generator) -> Picture:
    """Noise of random size and grain: from pixels to soft spots."""
    height, width = rng.integers(60, 1000, 2)
    grain = int(rng.integers(1, 40))
    spots = rng.integers(0, 256, (height // grain + 2, width // grain + 2, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(spots).resize((int(width), int(height)), Image.Resampling.BICUBIC))


def report_small_faces(record: Record, faces: Faces, paths: Sequence[Path]) -> None:
    """How small a face may be: portraits scaled down, described, and told apart by a fit on 200 others in full size."""
    chosen = np.flatnonzero(faces.found > 0)
    order = np.random.default_rng(0).permutation(chosen)
    fitted, tested = order[:LABELLED], order[LABELLED : LABELLED + 500]
    unit = faces.vectors / np.maximum(np.linalg.norm(faces.vectors, axis=1, keepdims=True), 1e-9)
    groups = faces.groups()
    truth = {"gender": groups["gender"] == "female", "skin tone": groups["skin tone"] == "darker"}
    fits = {name: _ridge(unit[fitted], values[fitted]) for name, values in truth.items()}
    rows: list[list[Cell]] = []
    for done, width in enumerate(WIDTHS):
        progress("widths", done, len(WIDTHS))
        vectors, shown = [], []
        for at in tested.tolist():
            picture = opened(paths[at])
            face = encoder().find(picture)[0]
            small = _scaled(picture, width / min(face.width, face.height))
            again = encoder().find(small)
            if again:
                chip = aligned(small, encoder().points(small, again[0]))
                vectors.append(encoder()._descriptor.run({"chips": chip[None]}, ["descriptors"])[0][0])
                shown.append(at)
        told = np.stack(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
        dark = truth["skin tone"][tested]
        seen = np.isin(tested, shown)
        areas = [_area((told - mean) @ axis, truth[name][shown]) for name, (axis, mean) in fits.items()]
        found = [float(seen.mean()), float(seen[dark].mean()), float(seen[~dark].mean())]
        rows.append([width, *found, *areas])
    columns = ["pixels of the face", "found", "of darker", "of lighter", "AUC, gender", "AUC, skin tone"]
    record.tables.append(Table(f"Small faces, {len(tested)} portraits scaled down", columns, rows))
    at_floor = next(float(row[1] or 0) for row in rows if row[0] == SMALLEST)
    record.checks.append(Check(f"found at {SMALLEST} pixels", at_floor, 0.99, upper=False))


def _ridge(vectors: Vectors, truth: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    mean = vectors.mean(axis=0)
    rows = (vectors - mean).astype(np.float64)
    signs = np.where(truth, 1.0, -1.0)
    return np.linalg.solve(rows.T @ rows + 0.1 * np.eye(rows.shape[1]), rows.T @ signs), mean


def _area(scores: NDArray[Any], truth: NDArray[np.bool_]) -> float:
    """How often a score of the first group is above one of the second."""
    higher = np.searchsorted(np.sort(scores[~truth]), scores[truth])
    return float(higher.mean() / max(1, (~truth).sum()))


class Pair(NamedTuple):
    """Mean absolute errors of both sides on one split."""

    attribute: str
    labels: int
    ours: float
    dlib: float


def paired_errors(split: int, *, ours: Path, dlib: Path, seed: int) -> list[Pair]:
    """Both sides on the same draws; `likelihood` without its interval, and "cannot tell" counts as d = 0."""

    def error(data: portraits.Portraits, attribute: str, rows: NDArray[np.intp], sets: Any) -> float:
        sketches = [Sketch(portraits.control(data, rows, attribute), seed=split) for _ in sets]
        for sketch, chosen in zip(sketches, sets, strict=True):
            sketch.add(data.vectors[chosen])
        known = separable(sketches[0].scorer)
        values = [float(np.subtract(*mixture_fit(sketch).named)) if known else 0.0 for sketch in sketches]
        truths = [data.disparity(attribute, chosen) for chosen in sets]
        return float(np.abs(np.subtract(values, truths)).mean())

    found = []
    for attribute in portraits.ATTRIBUTES:
        sides = [portraits.load(path) for path in (ours, dlib)]
        labelled, few, sets = drawn(sides[0], split, attribute, seed, "random")
        for rows in (labelled, few):
            found.append(Pair(attribute, len(rows), *(error(side, attribute, rows, sets) for side in sides)))
    return found


def report_pairs(record: Record, pairs: list[Pair]) -> None:
    """The difference of both sides with its standard error over splits."""
    rows: list[list[Cell]] = []
    for attribute in portraits.ATTRIBUTES:
        for labels in (LABELLED, FEW):
            mine = [pair for pair in pairs if (pair.attribute, pair.labels) == (attribute, labels)]
            sides = np.array([[pair.ours, pair.dlib] for pair in mine])
            change = sides[:, 0] - sides[:, 1]
            worse, root = float(change.mean()), len(mine) ** 0.5
            errors = [float(each.std(ddof=1) / root) for each in (sides[:, 1], change)]
            rows.append([attribute, labels, *sides.mean(axis=0).tolist(), errors[0], worse, errors[1]])
            # No worse than dlib, as far as so many draws can tell.
            name = f"error minus dlib's on the same draws, {attribute}, {labels} labels"
            record.checks.append(Check(name, worse, round(2 * errors[1], 4)))
    columns = ["attribute", "labels", "faces", "dlib, as before", "± s.e.", "faces minus dlib", "± s.e."]
    title = "The same draws of portraits in which both find a face: mean absolute error of d"
    record.tables.append(Table(title, columns, rows))


def report_errors(record: Record, answers: list[Answer]) -> None:
    """Table and checks of the protocol."""
    rows: list[list[Cell]] = []
    for attribute in portraits.ATTRIBUTES:
        for labels in (LABELLED, FEW):
            mine = [a for a in answers if (a.attribute, a.labels) == (attribute, labels)]
            summaries = {
                m: summarise([a for a in mine if a.method == m])
                for m in dict.fromkeys(a.method for a in mine)
            }
            rows += [
                [attribute, labels, method, *measures.values()] for method, measures in summaries.items()
            ]
            where, ours = f"{attribute}, {labels} labels", summaries["likelihood"]
            limit = ERROR[attribute, labels]
            record.checks.append(Check(f"likelihood error, {where}", float(ours["mae"] or 0), limit))
            cover = float(ours["coverage"] or 0)
            record.checks.append(Check(f"coverage, {where}", cover, COVERAGE, upper=False))
    columns = ["attribute", "labels", "method", "error", "± s.e.", "bias", "coverage", "± s.e.", "width"]
    record.tables.append(
        Table("Mean absolute error of d, from picture files", [*columns, "cannot tell"], rows)
    )


def main() -> None:
    options = _options()
    paths = sorted(options.data.glob("*.jpg"))[:: options.every]
    if not paths:
        raise SystemExit(f"the PPB-2017 portraits are not at {options.data}; give their folder with --data")
    record = Record("faces", _settings(options))
    faces = kept(paths, options.jobs, KEPT / f"faces{options.every}.npz")
    some = paths[:: max(1, len(paths) // TIMED)][:TIMED]
    stored = HERE / "results" / "faces.json"
    report_time(record, some, options.rounds, stored if options.keep_times else None)
    report_found(record, faces)
    report_template(record, faces)
    report_equality(record, some)
    mixed = [paths[at] for at in np.random.default_rng(0).permutation(len(paths))]
    report_false_faces(record, mixed)
    report_small_faces(record, faces, paths)
    ours, theirs = faces.found > 0, faces.dlib.any(axis=1)
    features = {
        name: stored_as_features(faces, vectors, which, KEPT / f"{name}{options.every}.parquet")
        for name, vectors, which in (
            ("faces", faces.vectors, ours),
            ("faces-paired", faces.vectors, ours & theirs),
            ("dlib-paired", faces.dlib, ours & theirs),
        )
    }
    shared = {"jobs": options.jobs, "seed": options.seed}
    report_errors(
        record,
        each(
            split_answers,
            range(options.splits),
            what="splits",
            path=features["faces"],
            draw="random",
            quapy=False,
            **shared,
        ),
    )
    sides = {"ours": features["faces-paired"], "dlib": features["dlib-paired"]}
    report_pairs(record, each(paired_errors, range(options.pairs), what="pairs", **sides, **shared))
    record.finish(options.out)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "data": repository_path(options.data),
        "every": options.every,
        "encoder": f"{encoder().identity} {encoder().variant}",
        "rounds": options.rounds,
        "splits": options.splits,
        "pairs": options.pairs,
        "seed": options.seed,
        "labels": [LABELLED, FEW],
        "draw of the 50": "random",
        "collection": SIZE,
        "shares": list(SHARES),
    }


def _options() -> argparse.Namespace:
    options = parser("faces", (__doc__ or "").partition("\n")[0], data=DATA, splits=100)
    options.add_argument("--pairs", type=int, default=300, help="splits of the comparison with dlib")
    options.add_argument("--every", type=int, default=1, help="take every k-th portrait only")
    options.add_argument("--rounds", type=int, default=4, help="how often everything is timed")
    keep_times(options)
    return options.parse_args()


if __name__ == "__main__":
    main()
