"""PPB-2017: reading all of its forms, and what the experiment says."""

from __future__ import annotations

import csv
import json
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from conftest import PPB, Portraits
from experiments import SMALL, model, pictures, portraits, results, run, same, table

from divscore.encoders.registry import ENCODERS
from divscore.errors import FileError, InputError
from divscore.jobs.embed import embed, open_items
from divscore.jobs.encode import Encoding
from divscore.paper import celeba, twitteraae
from divscore.paper.draws import Split, check_splits, random_split
from divscore.paper.experiment import reproduce
from divscore.paper.labelleddata import LabelledData
from divscore.paper.ppb import ATTRIBUTES, EXPERIMENT, load_ppb, work
from divscore.paper.results import Results, show_cell

PORTRAITS = PPB.parent / "ppb2017_images"
NAMES = ["0001_1_f_FL.jpg", "0032_2_m_FL.jpg", "0967_5_f_SA.jpg", "0968_4_m_RW.jpg", "1000_6_f_SE.jpg"]
GENDER = ["female", "male", "female", "male", "female"]
GROUP = ["others", "others", "dark-skinned women", "others", "dark-skinned women"]


def metadata(path: Path, header: str, rows: Sequence[str], end: str = "\r") -> Path:
    path.write_text(end.join([header, *rows]), encoding="utf-8", newline="")
    return path


def distributed(folder: Path, names: Sequence[str] = NAMES) -> Path:
    """The folder as Gender Shades gives it out, bare carriage returns and all."""
    pictures(folder / "imgs", names)
    rows = [
        "1,0001_1_f_FL.jpg,Female,1,lighter,Finland",
        "32,0032_2_m_FL.jpg,Male,2,lighter,Finland",
        "967,0967_5_f_SA.jpg,Female,5,darker,South Africa",
        "968,0968_4_m_RW.jpg,Male,4,darker,Rwanda",
        "1000,1000_6_f_SE.jpg,Female,6,darker,Senegal",
    ]
    header = "image_id,filename,gender,fitzpatrick skin type category,bi.fitz,country"
    metadata(folder / "PPB-2017-metadata.csv", header, rows)
    return folder


def check(data: LabelledData) -> None:
    assert data.name == "PPB-2017"
    assert list(data.ids) == NAMES
    columns = {name: column.tolist() for name, column in data.columns.items()}
    assert columns == {
        "gender": GENDER,
        "skin_type": ["1", "2", "5", "4", "6"],
        "skin_tone": ["lighter", "lighter", "darker", "darker", "darker"],
        "country": ["FL", "FL", "SA", "RW", "SE"],
        "group": GROUP,
    }


def test_folder_by_names(tmp_path: Path) -> None:
    seen: list[int] = []
    with Encoding("onnx", model=model()) as encoding:
        data = load_ppb(pictures(tmp_path / "portraits", NAMES), encoding, progress=seen.append)
        identity = encoding.identity("image")
    check(data)
    assert data.vectors.shape == (5, tiny.DIMENSION)
    assert (data.encoder, sum(seen)) == (identity, 5)


def test_as_distributed(tmp_path: Path) -> None:
    folder = distributed(tmp_path / "PPB-2017")
    with Encoding("onnx", model=model()) as encoding:
        data = load_ppb(folder, encoding)
        same(data, load_ppb(folder / "PPB-2017-metadata.csv", encoding))
        same(data, load_ppb(folder / "imgs", encoding))
    check(data)


@pytest.mark.parametrize(
    ("header", "row", "end"),
    [
        (
            "n, id, country, gender, numeric, skin color, bi.fitz",
            "3,0967_5_f_SA.jpg,SA,F,5,dark,darker",
            "\r",
        ),
        ("BI.FITZ,Country,Skin-Type,GENDER,File", "darker,south africa,V,female,imgs/0967_5_f_SA.jpg", "\n"),
        ("gender,fitzpatrick,country,image name", "FEMALE,5.0,South Africa,0967_5_f_SA.jpg", "\r\n"),
    ],
)
def test_columns_are_found_by_name(tmp_path: Path, header: str, row: str, end: str) -> None:
    pictures(tmp_path, NAMES[2:3])
    with Encoding("onnx", model=model()) as encoding:
        data = load_ppb(metadata(tmp_path / "about.csv", header, [row], end), encoding)
    assert data.ids == ("0967_5_f_SA.jpg",)
    assert [column[0] for column in data.columns.values()] == [
        "female",
        "5",
        "darker",
        "SA",
        "dark-skinned women",
    ]


def test_pictures_without_a_vector_are_counted(tmp_path: Path) -> None:
    folder = distributed(tmp_path)
    (folder / "imgs" / NAMES[1]).unlink()
    (folder / "imgs" / NAMES[4]).write_bytes(b"no picture")
    with Encoding("onnx", model=model()) as encoding:
        data = load_ppb(folder, encoding)
        assert data.ids == (NAMES[0], NAMES[2], NAMES[3])
        assert data.skipped == 2
        for name in (NAMES[0], NAMES[2], NAMES[3]):
            (folder / "imgs" / name).write_bytes(b"no picture either")
        with pytest.raises(FileError, match=r"no item could be encoded: .*0001_1_f_FL\.jpg"):
            load_ppb(folder, encoding)


@pytest.mark.slow
def test_by_default_faces_are_encoded_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := ENCODERS["faces"].missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not PORTRAITS.is_dir():
        pytest.skip(f"the PPB-2017 portraits are not at {PORTRAITS}")
    monkeypatch.setenv("DIVSCORE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "portraits"
    folder.mkdir()
    for file in (sorted(PORTRAITS.glob("*.jpg"))[at] for at in (0, 1000)):
        (folder / file.name).symlink_to(file)
    data = load_ppb(folder)
    assert data.vectors.shape == (2, 128)
    assert data.encoder is not None
    assert data.encoder.startswith("faces/")
    assert list((tmp_path / "cache").glob("faces*.sqlite"))


def test_vectors_are_remembered(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "portraits", NAMES)
    with Encoding("onnx", model=model(), cache=tmp_path / "cache") as encoding:
        data = load_ppb(folder, encoding)
    assert list((tmp_path / "cache").glob("onnx*.sqlite"))
    with Encoding("onnx", model=model(), cache=tmp_path / "cache") as encoding:
        same(data, load_ppb(folder, encoding))


@pytest.mark.parametrize("layout", ["dict", "dict of lists", "rows", "pairs"])
def test_authors_features(tmp_path: Path, layout: str) -> None:
    vectors = np.random.default_rng(1).normal(size=(5, 7))
    rows, boxed = np.empty((5, 2), dtype=object), np.empty((), dtype=object)
    for at, name in enumerate(NAMES):
        rows[at, 0], rows[at, 1] = name, vectors[at]
    boxed[()] = list(zip(NAMES, vectors, strict=True))
    content = {
        "dict": dict(zip(NAMES, vectors, strict=True)),
        "dict of lists": dict(zip(NAMES, vectors.tolist(), strict=True)),
        "rows": rows,
        "pairs": boxed,
    }[layout]
    np.save(tmp_path / "ppbFeatures.npy", content)
    data = load_ppb(tmp_path / "ppbFeatures.npy")
    check(data)
    assert np.array_equal(data.vectors, vectors)
    assert data.encoder is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.eye(3), r"numbers of shape \(3, 3\) without file names"),
        ({"one.jpg": [1.0], "two.jpg": [2.0], "3.jpg": [3.0]}, "3 of 3 items .* the first is 'one.jpg'"),
        ({NAMES[0]: [1.0, 2.0], NAMES[1]: [1.0]}, "not lists of equally many numbers"),
        ({NAMES[0]: 1.0, NAMES[1]: 2.0}, "not lists of equally many numbers"),
        ({NAMES[0]: [1.0], NAMES[1]: ["y"]}, "not lists of equally many numbers"),
        (np.array([None, 1.5, "a"], dtype=object), "a list of 3 entries; expected a dict"),
        ({}, "a dict of 0 entries"),
        (np.array(5, dtype=object), "a int of 0 entries"),
        (np.array({1}, dtype=object), "a set of 1 entries"),
        (np.array(b"raw", dtype=object), "a bytes of 3 entries"),
        ({NAMES[0]: [[1.0, 2.0], [3.0]]}, "not lists of equally many numbers"),
        ({NAMES[0]: [1.0], NAMES[1]: [{1}]}, "not lists of equally many numbers"),
        ({5: [1.0], 6: [2.0], 7: [3.0]}, "a dict of 3 entries"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    np.save(tmp_path / "ppbFeatures.npy", content)
    with pytest.raises(FileError, match=message):
        load_ppb(tmp_path / "ppbFeatures.npy")


def test_features_never_run_a_program(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    np.save(tmp_path / "ppbFeatures.npy", np.array({NAMES[0]: Evil()}, dtype=object))
    with pytest.raises(FileError, match="not data"):
        load_ppb(tmp_path / "ppbFeatures.npy")
    assert not (tmp_path / "ran").exists()


def test_tables_of_vectors(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).normal(size=(5, 6)).astype(np.float32)
    labels = {"gender": GENDER, "skin_type": [1, 2, 5, 4, 6], "country": ["FL", "FL", "SA", "RW", "SE"]}
    full = load_ppb(table(tmp_path / "full.parquet", vectors, id=NAMES, **labels))
    check(full)
    same(full, load_ppb(table(tmp_path / "ids.parquet", vectors, id=NAMES)))
    np.savez(tmp_path / "ids.npz", embedding=vectors, id=np.array(NAMES))
    same(full, load_ppb(tmp_path / "ids.npz"))
    numbered = load_ppb(table(tmp_path / "numbers.parquet", vectors, id=list("12345"), **labels))
    assert numbered.ids == tuple("12345")
    assert numbered.columns["group"].tolist() == GROUP
    lines = [
        "id,embedding",
        *(f'{n},"{json.dumps(v.tolist())}"' for n, v in zip(NAMES, vectors, strict=True)),
    ]
    (tmp_path / "vectors.csv").write_text("\n".join(lines))
    same(full, load_ppb(tmp_path / "vectors.csv"))


def test_embedded_portraits(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "portraits", NAMES)
    with Encoding("onnx", model=model()) as encoding:
        embed(open_items(folder), tmp_path / "ppb.arrow", encoding)
        data = load_ppb(folder, encoding)
    stored = load_ppb(tmp_path / "ppb.arrow")
    same(stored, data)
    assert stored.encoder == data.encoder


def test_what_is_missing_says_where_to_get_it(tmp_path: Path) -> None:
    origin = r"gendershades\.org, on request \(terms: research use\)"
    with pytest.raises(FileError, match=f"nowhere has no portraits .*{origin}"):
        load_ppb(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=origin):
        load_ppb(tmp_path / "empty")
    alone = distributed(tmp_path / "alone")
    for file in (alone / "imgs").iterdir():
        file.unlink()
    with pytest.raises(FileError, match=rf"pictures that its metadata lists, .*{origin}"):
        load_ppb(alone)


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("filename,gender,bi.fitz,country", f"{NAMES[0]},Female,darker,FL", "none for the skin type"),
        ("filename,gender,numeric,country", f"{NAMES[0]},Woman,1,FL", "row 2: gender 'Woman'"),
        ("filename,gender,numeric,country", f"{NAMES[0]},Female,7,FL", "row 2: skin type '7'"),
        ("filename,gender,numeric,country", f"{NAMES[0]},Female,1", "row 2: 3 cells, but the header has 4"),
        (
            "filename,gender,numeric,country",
            "portrait,Female,1,FL",
            "'portrait'; expected the name of a picture",
        ),
        ("filename,gender,numeric,country", "", "no rows after its header"),
    ],
)
def test_broken_metadata(tmp_path: Path, header: str, row: str, message: str) -> None:
    pictures(tmp_path, NAMES[:1])
    with pytest.raises(FileError, match=message):
        load_ppb(metadata(tmp_path / "m.csv", header, [row]))


def test_strange_names(tmp_path: Path) -> None:
    pictures(tmp_path, [*NAMES, "holiday.jpg"])
    with pytest.raises(FileError, match=r"1 of 6 items .* the first is 'holiday\.jpg'"):
        load_ppb(tmp_path)


def test_the_authors_features(ppb: Portraits) -> None:
    data = load_ppb(PPB)
    assert data.vectors.shape == (1270, 300)
    assert np.array_equal(data.vectors, ppb.vectors)
    for name in ("gender", "skin_tone", "country"):
        assert np.array_equal(data.columns[name], getattr(ppb, name))
    both = (ppb.gender == "female") & (ppb.skin_tone == "darker")
    assert np.array_equal(data.columns["group"] == "dark-skinned women", both)
    assert both.sum() == 271


def test_names_say_what_the_table_says(ppb: Portraits, tmp_path: Path) -> None:
    data = load_ppb(PPB)
    np.save(tmp_path / "ppbFeatures.npy", dict(zip(data.ids, data.vectors, strict=True)))
    same(load_ppb(tmp_path / "ppbFeatures.npy"), data)


# The experiment


def test_repetitions_do_not_depend_on_their_number() -> None:
    settings = replace(SMALL, shares=(0.5,), sizes=(10,))

    def answers(**changed: Any) -> list[str]:
        found = work(portraits(), 1, 0, replace(settings, **changed)).answers
        return [repr(replace(a, prepared=0.0, seconds=0.0)) for a in found]  # as text, NaN equals itself

    assert answers(repetitions=50) == answers()
    assert answers(seed=1) != answers()


def test_experiments_can_be_sent_to_workers() -> None:
    for module in (celeba, twitteraae):
        assert pickle.loads(pickle.dumps(module.EXPERIMENT.work)) is module.work


def test_the_error_in_the_table_is_that_of_the_stored_answers() -> None:
    tables = results().tables
    wanted = {"attribute": "skin tone", "method": "likelihood, all 80 labels"}
    mine = [a for a in tables["answers"].records if a["sweep"] == "f" and wanted.items() <= a.items()]
    (row,) = [r for r in tables["accuracy"].records if wanted.items() <= r.items()]
    assert len(mine) == 6
    assert row["error"] == pytest.approx(np.mean([abs(a["estimate"] - a["truth"]) for a in mine]), abs=1e-5)


def test_claims_are_checked_and_countries_audited() -> None:
    tables = results().tables
    claims = tables["claims"]
    assert len(claims.rows) == 22
    assert set(claims.column("verdict")) <= {"agrees", "differs"}
    verdicts = dict(zip(claims.column("the paper says"), claims.column("verdict"), strict=True))
    assert verdicts["γ^(T) of adaptive control sets is 0.96 (gender)"] == "differs"
    countries = tables["collections"]
    assert set(countries.column("country")) == {"Finland", "Rwanda", "Sweden"}
    trusts = np.array([countries.column(word) for word in ("good", "caution", "poor")], dtype=float)
    assert trusts.sum(axis=0) == pytest.approx(np.ones(len(countries.rows)), abs=1e-4)


def test_too_few_labels_are_refused_before_anything_is_computed() -> None:
    data, steps = portraits(), list[int]()
    settings = replace(SMALL, labels=12, size=8, repetitions=30, shares=(0.5,), sizes=(10,))
    with pytest.raises(InputError, match=r"--labels 12: in some repetitions fewer than [25] of") as error:
        reproduce(EXPERIMENT, data, settings, progress=steps.append)
    assert not steps
    enough = int(re.findall(r"use --labels (\d+) or more", str(error.value))[0])
    fewest = {a: 5 if a.name in ("gender", "skin tone") else 2 for a in ATTRIBUTES}

    def splits(labels: int) -> list[Split]:
        return [random_split(len(data), labels, np.random.default_rng([SMALL.seed, r])) for r in range(30)]

    check_splits(splits(enough), data, fewest)
    with pytest.raises(InputError, match=f"use --labels {enough} or more"):
        check_splits(splits(enough - 1), data, fewest)
    labels = ATTRIBUTES[0].labels(data)
    assert min((labels[first] == g).sum() for first, _ in splits(enough) for g in (0, 1)) >= 5


def cells(line: str) -> list[str]:
    """The cells of a line of a Markdown table; an escaped bar is part of a cell."""
    return [part.replace("\0", "\\|").strip() for part in line.replace("\\|", "\0").strip("| ").split("|")]


@pytest.mark.slow
def test_reproduce_ppb_from_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    defaults = replace(EXPERIMENT.defaults, shares=(0.0, 0.5, 1.0), sizes=(10,))
    monkeypatch.setattr("divscore.paper.ppb.EXPERIMENT", replace(EXPERIMENT, defaults=defaults))
    data = portraits()
    tone = np.where(data.columns["skin_tone"] == "darker", 5, 2)
    labels = zip(tone, data.columns["gender"], data.columns["country"], strict=True)
    ids = [f"{i:04d}_{t}_{gender[0]}_{country}.jpg" for i, (t, gender, country) in enumerate(labels)]
    table(tmp_path / "mine.parquet", data.vectors.astype(np.float32), id=ids)
    options = ("--repetitions", 1, "--labels", 60, "--size", 12, "--collection-size", 80, "--workers", 1)
    result = run("reproduce", "ppb", "--data", "mine.parquet", *options)
    assert result.stdout.startswith("| mean absolute error of d")
    assert "DivScore-Adaptive" in result.stdout
    assert "RESULTS.md" in result.stderr
    folder = tmp_path / "results/ppb"
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"RESULTS.md", "results.json", "answers.csv", "points.csv", "figures/figure1.svg"} <= written
    assert f"wrote {len(written)} files" in result.stderr
    page, document = (folder / "RESULTS.md").read_text(), json.loads((folder / "results.json").read_text())
    assert [document["settings"][name] for name in ("labels", "repetitions", "alpha")] == [60, 1, 1.0]
    lines = [cells(line) for line in page.splitlines()]
    for name, shown in document["tables"].items():
        for row in shown["rows"]:
            assert [show_cell(value) for value in row] in lines, (name, row)
        rows = list(csv.reader((folder / f"{name}.csv").read_text().splitlines()))
        assert rows[0] == shown["columns"]
        assert rows[1:] == [["" if v is None else str(v) for v in row] for row in shown["rows"]]
    for section in document["sections"]:
        for stem, _ in section["figures"]:
            assert f"(figures/{stem}.svg)" in page
            assert (folder / f"figures/{stem}.png").read_bytes()[:4] == b"\x89PNG"
    assert str(tmp_path) not in page + json.dumps(document)
    bad = run("reproduce", "ppb", "--data", "mine.parquet", "--labels", 400, "--out", "new/one", code=2)
    assert "leave too few" in bad.stderr
    assert not Path("new").exists()
    missing = run("reproduce", "ppb", "--data", "nothing.parquet", code=2)
    assert "gendershades.org" in missing.stderr


@pytest.fixture(scope="module")
def real() -> Results:
    if not PPB.exists():
        pytest.skip(f"the authors' PPB-2017 features are not at {PPB}")
    settings = replace(EXPERIMENT.defaults, repetitions=1, shares=(0.0, 0.5, 1.0), sizes=(20,))
    return reproduce(EXPERIMENT, load_ppb(PPB), settings)


@pytest.mark.slow
def test_the_papers_portraits_give_the_papers_gamma_and_the_authors_bound(real: Results) -> None:
    gamma = {(row[0], row[1]): row[2] for row in real.tables["gamma"].rows}
    assert gamma["gender", "γ, all items, pairs with itself kept"] == pytest.approx(0.3544, abs=5e-5)
    assert gamma["skin tone", "γ, all items, pairs with itself kept"] == pytest.approx(0.0842, abs=5e-5)
    assert gamma["gender", "γ, all items"] == pytest.approx(0.3531, abs=5e-5)
    bound = {(row[0], row[1]): row[4:6] for row in real.tables["theorem"].rows}
    assert bound["skin tone", "as in the authors' notebooks"] == pytest.approx((2.562, 61.1), abs=0.05)
    claims = real.tables["claims"]
    verdicts = dict(zip(claims.column("the paper says"), claims.column("verdict"), strict=True))
    assert verdicts["γ is 0.35 (gender)"] == verdicts["γ is 0.08 (skin tone)"] == "agrees"


@pytest.mark.slow
def test_on_the_papers_portraits_likelihood_is_far_ahead_of_the_papers_proposal(real: Results) -> None:
    ratios = {(row["attribute"], row["method"]): row["ratio"] for row in real.tables["equal_cost"].records}
    assert ratios["gender", "DivScore-Adaptive"] > 4
    assert ratios["skin tone", "DivScore-Adaptive"] > 3
    page = real.markdown()
    assert "DivScore, all 200 as drawn" in page
    assert "because a group of 500 is not always left" in page
