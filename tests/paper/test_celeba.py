"""CelebA: reading its lists, pictures and vectors, and the experiment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from experiments import model, pictures, run, same, table

from divscore.errors import FileError
from divscore.jobs.embed import embed, open_items
from divscore.jobs.encode import Encoding
from divscore.paper.celeba import EXPERIMENT, attribute_names, load_celeba

FORTY = 40
COUNT = 240
LISTS = ("list_attr_celeba.txt", "list_eval_partition.txt")


@pytest.fixture(scope="module")
def celeba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in CelebA's form, 240 pictures small; `Bald` has men only, `Blurry` and `Rare` few pictures."""
    root = tmp_path_factory.mktemp("celeba")
    rng = np.random.default_rng(3)
    names = ["Bald", "Blurry", "Eyeglasses", "Male", "Rare", *(f"Other_{i}" for i in range(FORTY - 5))]
    marked = rng.random((COUNT, FORTY)) < 0.7
    male = rng.random(COUNT) < 0.5
    marked[:, 0], marked[:, 3] = male, male
    marked[:, 4] = np.arange(COUNT) % 60 == 0
    # As in the original: a count, a header that ends in a space, and -1 and 1 aligned in two places.
    lines = [str(COUNT), " ".join(names) + " "]
    files = [f"{i + 1:06}.jpg" for i in range(COUNT)]
    for file, row in zip(files, marked, strict=True):
        lines.append(f"{file} " + " ".join(f"{1 if m else -1:2}" for m in row))
    (root / LISTS[0]).write_text("\n".join(lines) + "\n")
    split = [f"{file} {0 if i < 120 else 1 if i < 150 else 2}" for i, file in enumerate(files)]
    (root / LISTS[1]).write_text("\n".join(split) + "\n")
    pictures(root / "img_align_celeba", files[140:170])
    return root


@pytest.fixture(scope="module")
def vectors(celeba: Path) -> np.ndarray:
    """Vectors of all pictures, in the file all.npy."""
    rows = np.random.default_rng(4).normal(size=(COUNT, 5)).astype(np.float32)
    np.save(celeba / "all.npy", rows)
    return rows


def test_labels_of_the_test_partition(celeba: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    data = load_celeba(celeba, vectors=celeba / "all.npy")
    assert len(data) == 90
    line = (celeba / LISTS[0]).read_text().splitlines()[2 + 150 + 77].split()
    assert data.ids[77] == line[0] == "000228.jpg"
    assert [data.columns[name][77] for name in ("gender", "Eyeglasses", "Male")] == [
        "male" if line[1 + 3] == "1" else "female",
        "yes" if line[1 + 2] == "1" else "no",
        "yes" if line[1 + 3] == "1" else "no",
    ]
    for inside, name in zip(("Anno", "Eval"), LISTS, strict=True):  # its own folders
        (tmp_path / inside).mkdir()
        (tmp_path / inside / name).write_text((celeba / name).read_text())
    same(load_celeba(tmp_path, vectors=celeba / "all.npy"), data)


def test_the_pictures_are_encoded_or_their_embedding_is_read(celeba: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    with Encoding("onnx", model=model()) as encoding:
        fresh = load_celeba(celeba, encoding, progress=seen.append)
        embed(open_items(celeba / "img_align_celeba"), tmp_path / "flat.arrow", encoding)
        embed(open_items(celeba), tmp_path / "deep.arrow", encoding)
    assert sum(seen) == 90
    assert fresh.ids == tuple(f"{i + 1:06}.jpg" for i in range(150, 170))
    for name in ("flat.arrow", "deep.arrow"):
        data = load_celeba(celeba, vectors=tmp_path / name)
        same(data, fresh)
        assert data.encoder == fresh.encoder
        assert data.skipped == fresh.skipped == 70


def test_vectors_by_position_and_in_any_order(
    celeba: Path, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr("divscore.sources.table.BLOCK_BYTES", 5 * 4 * 64)  # several blocks
    data = load_celeba(celeba, vectors=celeba / "all.npy", progress=seen.append)
    assert np.array_equal(data.vectors, vectors[150:])
    assert sum(seen) == 90
    order = np.random.default_rng(5).permutation(COUNT)
    ids = [f"{i + 1:06}.jpg" for i in order]
    mixed = table(tmp_path / "mixed.parquet", vectors[order], id=ids)
    same(load_celeba(celeba, vectors=mixed), data)
    # Of several faces in one picture the first, which is the largest, counts.
    twice = np.concatenate([vectors[order], -vectors[order]])
    several = table(tmp_path / "faces.parquet", twice, id=ids + ids)
    same(load_celeba(celeba, vectors=several), data)


def test_other_files_of_vectors_are_refused(celeba: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "some.npy", np.ones((7, 3)))
    with pytest.raises(FileError, match="7 rows without names; expected one for each of the 240"):
        load_celeba(celeba, vectors=tmp_path / "some.npy")
    other = table(tmp_path / "other.parquet", np.ones((2, 3)), id=["a.jpg", "b.jpg"])
    with pytest.raises(FileError, match=r"none of the 90 pictures .* expected ids such as 000001\.jpg"):
        load_celeba(celeba, vectors=other)
    nameless = table(tmp_path / "nameless.parquet", np.ones((2, 3)), key=["000001.jpg", "000002.jpg"])
    with pytest.raises(FileError, match="'key', 'embedding'; expected one named id"):
        load_celeba(celeba, vectors=nameless)


def test_collections_by_the_authors_rule(celeba: Path, vectors: np.ndarray) -> None:
    data = load_celeba(celeba, vectors=celeba / "all.npy")
    # Men only, not asked by the authors, the gender itself, two pictures.
    assert set(data.columns) - set(attribute_names(data)) == {"gender", "Bald", "Blurry", "Male", "Rare"}


@pytest.mark.parametrize("missing", LISTS)
def test_missing_lists(celeba: Path, tmp_path: Path, missing: str) -> None:
    for name in set(LISTS) - {missing}:
        (tmp_path / name).write_text((celeba / name).read_text())
    message = rf"has no file {re.escape(missing)}.*mmlab\.ie\.cuhk\.edu\.hk/.*non-commercial research"
    with pytest.raises(FileError, match=message):
        load_celeba(tmp_path)


def test_missing_pictures(celeba: Path, tmp_path: Path) -> None:
    for name in LISTS:
        (tmp_path / name).write_text((celeba / name).read_text())
    with pytest.raises(FileError, match=r"folder img_align_celeba of pictures.*mmlab"):
        load_celeba(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (LISTS[0], "240\n", "241\n", "240 pictures, but its first line says 241"),
        (LISTS[0], "240\n", "", "the first line is not a number"),
        (LISTS[0], "\n000005.jpg ", "\n000005.jpg 1 ", "line 7: .*a name and 40 times 1 or -1"),
        (LISTS[0], "\n000005.jpg -1", "\n000005.jpg  2", "line 7: "),
        (LISTS[0], "000005.jpg", "000004.jpg", "lists some pictures twice"),
        (LISTS[0], "Male", "Man", "no attribute Male"),
        (LISTS[1], "000005.jpg 0\n", "", r"no partition for 1 pictures, .* 000005\.jpg"),
        (LISTS[1], "000005.jpg 0", "000005.jpg 3", "line 5: '000005.jpg 3'"),
    ],
)
def test_broken_lists(celeba: Path, tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    for each in LISTS:
        text = (celeba / each).read_text().replace("\n000005.jpg  1", "\n000005.jpg -1")
        assert each != name or old in text
        (tmp_path / each).write_text(text.replace(old, new) if each == name else text)
    with pytest.raises(FileError, match=message):
        load_celeba(tmp_path)


@pytest.mark.slow
def test_reproduce_celeba_takes_the_pictures_of_an_attribute_as_collection(tmp_path: Path) -> None:
    folder, count, rng = tmp_path / "celeba", 700, np.random.default_rng(1)
    male = rng.random(count) < 0.5
    marks = np.stack([rng.random(count) < p for p in (0.4, 0.5, 0.6, 0.5)], axis=1)
    marks[:, 1] = male
    marks[:, 2] = rng.random(count) < np.where(male, 0.3, 0.8)
    lines = [str(count), "Eyeglasses Male Smiling Wearing_Hat"]
    lines += [f"{i + 1:06d}.jpg " + " ".join("1" if m else "-1" for m in row) for i, row in enumerate(marks)]
    folder.mkdir()
    (folder / LISTS[0]).write_text("\n".join(lines) + "\n")
    (folder / LISTS[1]).write_text("".join(f"{i + 1:06d}.jpg 2\n" for i in range(count)))
    vectors = rng.normal(size=(count, 8)).astype(np.float32)
    vectors[:, 0] += np.where(male, -1.5, 1.5)
    np.save(folder / "vectors.npy", vectors)
    options = ("--repetitions", 2, "--labels", 100, "--size", 20, "--workers", 1, "--out", tmp_path / "out")
    result = run("reproduce", "celeba", "--data", folder, "--vectors", folder / "vectors.npy", *options)
    assert "likelihood, all 100 labels" in result.stdout
    document = json.loads((tmp_path / "out/results.json").read_text())
    shown = document["tables"]["collections"]
    by = {row[1]: dict(zip(shown["columns"], row, strict=True)) for row in shown["rows"]}
    assert set(by) == {"Eyeglasses", "Smiling", "Wearing Hat"}
    assert by["Smiling"]["true d"] > 0.2 > by["Eyeglasses"]["true d"]
    assert by["Smiling"]["error, likelihood, all 100 labels"] < 0.1
    assert "SS-ST" not in json.dumps(document["tables"])
    assert (tmp_path / "out/figures/attributes.svg").is_file()


def test_the_papers_defaults() -> None:
    settings = EXPERIMENT.defaults
    assert (settings.repetitions, settings.labels, settings.alpha) == (25, 500, 1.0)
