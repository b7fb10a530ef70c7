"""Small data sets, drawn once, that the tests of experiments share."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tiny
from click.testing import CliRunner
from pyarrow import parquet

from divscore.cli import main
from divscore.paper import ppb
from divscore.paper.draws import Collection, Labelled, Settings, collect, compose, random_split
from divscore.paper.experiment import reproduce
from divscore.paper.labelleddata import LabelledData
from divscore.paper.records import Answer
from divscore.paper.results import Results

SMALL = Settings(repetitions=2, labels=80, size=20, collection=100, shares=(0.0, 0.5, 1.0), sizes=(10, 20))
GENDER = ppb.ATTRIBUTES[0]


def run(*args: object, code: int = 0) -> Any:
    """Run a command."""
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


@functools.cache
def model() -> Path:
    """A small encoder of pictures."""
    return tiny.image_model(Path(tempfile.mkdtemp()) / "tiny.onnx")


def pictures(folder: Path, names: Sequence[str]) -> Path:
    """Write pictures by name."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        tiny.picture(rng, "red").save(folder / name, "jpeg")
    return folder


def table(path: Path, vectors: np.ndarray, **columns: Any) -> Path:
    """Write vectors and columns as Parquet."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    parquet.write_table(pa.table({**columns, "embedding": rows}), path)
    return path


def same(one: LabelledData, other: LabelledData) -> None:
    """Assert that two data sets have the same items."""
    assert one.ids == other.ids
    assert np.array_equal(one.vectors, other.vectors)
    columns = [{n: c.tolist() for n, c in data.columns.items()} for data in (one, other)]
    assert columns[0] == columns[1]


@functools.cache
def portraits() -> LabelledData:
    """Like PPB-2017, drawn at random: gender along one axis, skin tone along another, countries along others."""
    rng = np.random.default_rng(3)
    n, d = 600, 10
    gender, tone, country = rng.integers(2, size=n), rng.integers(2, size=n), rng.integers(3, size=n)
    vectors = rng.normal(size=(n, d))
    vectors[:, 0] += 2.0 - 4.0 * gender
    vectors[:, 1] += 1.5 - 3.0 * tone
    vectors[np.arange(n), 2 + country] += 1.0
    columns = {
        "gender": np.array(["female", "male"])[gender],
        "skin_tone": np.array(["darker", "lighter"])[tone],
        "country": np.array(["FL", "RW", "SW"])[country],
        "group": np.where((gender == 0) & (tone == 0), "dark-skinned women", "others"),
    }
    return LabelledData("portraits", vectors, columns, tuple(f"{i}.jpg" for i in range(n)))


@functools.cache
def results() -> Results:
    """The experiment on these portraits."""
    return reproduce(ppb.EXPERIMENT, portraits(), SMALL)


@functools.cache
def drawn() -> tuple[Labelled, list[Collection]]:
    """One split, and collections with 0, 30 and 100 % women."""
    data, rng = portraits(), np.random.default_rng(0)
    first, rest = random_split(len(data), 80, rng)
    labelled = Labelled.draw(data, GENDER, first, rng, 0)
    rows = [compose(GENDER.labels(data), rest, (f, 1 - f), 60, rng) for f in (0.0, 0.3, 1.0)]
    return labelled, [collect(data, GENDER, r, f, rng) for r, f in zip(rows, (0.0, 0.3, 1.0), strict=True)]


def answer(value: float, truth: float = 0.0, repetition: int = 0, at: float = 0.5, **more: Any) -> Answer:
    """An answer of one method, the rest of its fields alike."""
    values: dict[str, Any] = {"sweep": "f", "attribute": "x", "method": "m", "items": 10} | more
    return Answer(at=at, repetition=repetition, truth=truth, value=value, **values)
