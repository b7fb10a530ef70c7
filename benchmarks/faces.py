"""From portrait files to an audit: how many faces are found, how fast, and the paper's protocol on their vectors.

The 1,270 portraits of PPB-2017 are encoded once with the encoder `faces`; the vectors stay in benchmarks/out/.
Portraits without a face that could be found are missing from everything after the first two tables, from the
truth as well. The protocol is that of ppb.py with the 50 drawn at random from the 200: 30 splits, collections of
about 480 with 0, 10, … 100 % of the first group.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import portraits
from numpy.typing import NDArray
from ppb import COVERAGE, FEW, LABELLED, SHARES, SIZE, Answer, split_answers, summarise
from record import HERE, Check, Record, Table, parser, repository_path
from workers import each

from divscore.encoders.faces import SEARCHES, FaceEncoder
from divscore.encoders.registry import EncoderSpec
from divscore.sources.pictures import decode

DATA = portraits.DATA.with_name("ppb2017_images")
KEPT = HERE / "out"
ERROR = {
    ("gender", FEW): 0.04,
    ("skin tone", FEW): 0.045,
    ("gender", LABELLED): 0.02,
    ("skin tone", LABELLED): 0.02,
}
FOUND = 0.98
GENDER = {"f": "female", "m": "male"}
TONE = {**dict.fromkeys("123", "lighter"), **dict.fromkeys("456", "darker")}
AT_ONCE = 10
TIMED = 60


class Faces(NamedTuple):
    """What became of each portrait: `look` is which look showed a face first, −1 if none did."""

    names: NDArray[Any]
    found: NDArray[np.intp]
    look: NDArray[np.intp]
    vectors: NDArray[np.float32]  # zeros where no face was found

    def groups(self) -> dict[str, NDArray[Any]]:
        """Gender, skin tone and country, as the file names have them."""
        parts = [Path(name).stem.split("_") for name in self.names.tolist()]
        return {
            "gender": np.array([GENDER[gender] for _, _, gender, _ in parts]),
            "skin tone": np.array([TONE[tone] for _, tone, _, _ in parts]),
            "country": np.array([country for *_, country in parts]),
        }


@functools.cache
def encoder() -> FaceEncoder:
    """Return the encoder, loaded once a process."""
    found = EncoderSpec("faces", "image").load()
    assert isinstance(found, FaceEncoder)
    return found


def encode(paths: list[Path]) -> list[tuple[str, int, int, NDArray[np.float32]]]:
    """Encode some portraits: name, number of faces, first look that showed one, vector."""
    rows = []
    for path in paths:
        picture = decode(path.read_bytes(), enough=encoder().resolution)
        result = encoder().encode([picture])
        vector = result.vectors[0] if len(result.vectors) else np.zeros(encoder().dimension, dtype=np.float32)
        first = next((at for at, way in enumerate(SEARCHES["largest"]) if encoder().search(picture, way)), -1)
        rows.append((path.name, int(result.detected[0]), first, vector))
    return rows


def kept(paths: list[Path], jobs: int, store: Path) -> Faces:
    """Vectors of an earlier run, where encoder and portraits are the same; else new ones."""
    key = f"{encoder().identity} {encoder().variant}"
    if store.exists():
        with np.load(store, allow_pickle=False) as file:
            if str(file["key"]) == key and file["names"].tolist() == [path.name for path in paths]:
                return Faces(*(file[name] for name in Faces._fields))
    pieces = [paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE)]
    names, found, look, vectors = zip(*each(encode, pieces, jobs, "pieces of portraits"), strict=True)
    fresh = Faces(np.array(names), np.array(found), np.array(look), np.stack(vectors))
    store.parent.mkdir(parents=True, exist_ok=True)
    np.savez(store, key=np.array(key), **fresh._asdict())
    return fresh


def stored_as_features(faces: Faces, path: Path) -> Path:
    """Write the portraits with a face in the form that ppb.py reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    there = faces.found > 0
    columns = {name.replace(" ", "_"): values[there].tolist() for name, values in faces.groups().items()}
    pq.write_table(pa.table({**columns, "embedding": list(faces.vectors[there])}), path)
    return path


def report_found(record: Record, faces: Faces) -> None:
    """Which portraits show a face that is found, and which look finds it."""
    everyone = {"all": np.full(len(faces.names), "all")}
    looks = range(1, len(SEARCHES["largest"]) + 1)
    rows: list[list[Any]] = []
    for attribute, values in (everyone | faces.groups()).items():
        for group in np.unique(values).tolist():
            mine = values == group
            shares = [float(np.isin(faces.look[mine], range(number)).mean()) for number in looks]
            several = float((faces.found[mine] > 1).mean())
            rows.append(
                [attribute, group, int(mine.sum()), int((faces.found[mine] == 0).sum()), *shares, several]
            )
    columns = ["attribute", "group", "portraits", "without a face", "found as it is", "or enlarged"]
    columns += ["or with a margin", "several faces"]
    record.tables.append(Table("Portraits in which a face is found", columns, rows))
    record.checks.append(Check("portraits with a face found", float(rows[0][6]), FOUND, upper=False))


def report_time(record: Record, paths: list[Path]) -> None:
    """Processor time of the steps, on one core."""
    pictures, spent = [], dict.fromkeys(("read and decode", "detector", "landmarks and descriptor"), 0.0)
    for path in paths:
        start = time.process_time()
        pictures.append(decode(path.read_bytes(), enough=encoder().resolution))
        spent["read and decode"] += time.process_time() - start
    for picture in pictures:
        start = time.process_time()
        encoder().find(picture)
        middle = time.process_time()
        encoder().encode([picture])  # looks for faces again
        spent["detector"] += middle - start
        spent["landmarks and descriptor"] += time.process_time() - middle - (middle - start)
    rows: list[list[Any]] = [[step, 1000 * seconds / len(paths)] for step, seconds in spent.items()]
    record.tables.append(Table(f"Processor time a portrait, mean of {len(paths)}", ["step", "ms"], rows))


def report_errors(record: Record, answers: list[Answer]) -> None:
    """Tables and checks of the protocol."""
    rows: list[list[Any]] = []
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
            if (attribute, labels) not in ERROR:
                continue
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
    report_found(record, faces)
    report_time(record, paths[:: max(1, len(paths) // TIMED)][:TIMED])
    features = stored_as_features(faces, KEPT / f"faces{options.every}.parquet")
    shared = {"path": features, "seed": options.seed, "draw": "random", "quapy": False}
    report_errors(record, each(split_answers, range(options.splits), options.jobs, "splits", **shared))
    record.finish(options.out)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "data": repository_path(options.data),
        "every": options.every,
        "encoder": f"{encoder().identity} {encoder().variant}",
        "splits": options.splits,
        "seed": options.seed,
        "labels": [LABELLED, FEW],
        "draw of the 50": "random",
        "collection": SIZE,
        "shares": list(SHARES),
    }


def _options() -> argparse.Namespace:
    options = parser("faces", (__doc__ or "").partition("\n")[0], data=DATA, splits=30)
    options.add_argument("--every", type=int, default=1, help="take every k-th portrait only")
    return options.parse_args()


if __name__ == "__main__":
    main()
