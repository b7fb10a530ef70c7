from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import tiny
from conftest import PPB, Portraits

from divscore.encoders.registry import ENCODERS
from divscore.errors import ControlError, FileError, InputError
from divscore.jobs.embed import embed
from divscore.jobs.encode import Encoding
from divscore.jobs.opening import open_items
from divscore.paper.celeba_data import CelebA, attribute_collections, open_celeba
from divscore.paper.labelleddata import LabelledData, encoded, joined
from divscore.paper.ppb_data import load_ppb
from divscore.paper.twitteraae_data import Tweets, likeliest, load_twitteraae, plain, sample_tweets

PORTRAITS = PPB.parent / "ppb2017_images"
TWEETS = PPB.parent / "tweets_dialect.parquet"
NAMES = ["0001_1_f_FL.jpg", "0032_2_m_FL.jpg", "0967_5_f_SA.jpg", "0968_4_m_RW.jpg", "1000_6_f_SE.jpg"]
GENDER = ["female", "male", "female", "male", "female"]
GROUP = ["others", "others", "dark-skinned women", "others", "dark-skinned women"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.image_model(tmp_path_factory.mktemp("model") / "tiny.onnx")


def pictures(folder: Path, names: Sequence[str], seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        tiny.picture(rng, "red").save(folder / name, "jpeg")
    return folder


def table(path: Path, vectors: np.ndarray, **columns: Any) -> Path:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    parquet.write_table(pa.table({**columns, "embedding": rows}), path)
    return path


def same(one: LabelledData, other: LabelledData) -> None:
    assert one.ids == other.ids
    assert np.array_equal(one.vectors, other.vectors)
    assert {n: c.tolist() for n, c in one.columns.items()} == {
        n: c.tolist() for n, c in other.columns.items()
    }


class TestLabelled:
    def data(self, count: int = 8) -> LabelledData:
        vectors = np.random.default_rng(0).normal(size=(count, 4))
        gender = np.array(["female", "male"] * (count // 2))
        return LabelledData(
            "some", vectors, {"gender": gender}, tuple(f"{i}.jpg" for i in range(count)), "faces/1"
        )

    def test_where_takes_masks_and_row_numbers(self) -> None:
        data = self.data()
        women = data.where(data.columns["gender"] == "female")
        assert women.ids == ("0.jpg", "2.jpg", "4.jpg", "6.jpg")
        same(women, data.where(np.array([0, 2, 4, 6])))
        assert set(women.columns["gender"]) == {"female"}
        with pytest.raises(InputError, match=r"a mask of shape \(3,\) for 8 items"):
            data.where(np.ones(3, dtype=bool))

    def test_control_set_of_some_rows(self) -> None:
        data = self.data()
        control = data.control([5, 0, 2, 1], "gender", ("male", "female"))
        assert control.groups == ("male", "female")
        assert control.ids == ("5.jpg", "0.jpg", "2.jpg", "1.jpg")
        assert (control.encoder, control.attribute) == ("faces/1", "gender")
        assert np.array_equal(control.vectors, data.vectors[[5, 0, 2, 1]])
        with pytest.raises(InputError, match="has no column 'age'; it has 'gender'"):
            data.control([0, 1], "age")
        with pytest.raises(ControlError, match="all 2 labelled examples are of group 'female'"):
            data.control([0, 2], "gender")

    def test_columns_of_other_length_are_refused(self) -> None:
        with pytest.raises(InputError, match="2 vectors, 2 ids, 3 'gender'; expected one of each"):
            LabelledData("some", np.eye(2), {"gender": np.array(["a", "b", "c"])}, ("x", "y"))

    def test_parts_put_together(self) -> None:
        data = self.data()
        lost = {"gender": np.array(["male"])}
        parts = [data.where(np.arange(3)), LabelledData("some", *_rest(data), "faces/1", lost)]
        same(joined(parts), data)
        assert joined(parts).left_out["gender"].tolist() == ["male"]
        with pytest.raises(InputError, match="nothing to put together"):
            joined([])


def _rest(data: LabelledData) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    rest = data.where(np.arange(3, len(data)))
    return rest.vectors, rest.columns, rest.ids


class TestPpb:
    def metadata(self, path: Path, header: str, rows: Sequence[str], end: str = "\r") -> Path:
        path.write_text(end.join([header, *rows]), encoding="utf-8", newline="")
        return path

    def distributed(self, folder: Path, names: Sequence[str] = NAMES) -> Path:
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
        self.metadata(folder / "PPB-2017-metadata.csv", header, rows)
        return folder

    def check(self, data: LabelledData) -> None:
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

    def test_folder_by_names(self, tmp_path: Path, model: Path) -> None:
        seen: list[int] = []
        with Encoding("onnx", model=model) as encoding:
            data = load_ppb(pictures(tmp_path / "portraits", NAMES), encoding, seen.append)
            identity = encoding.identity("image")
        self.check(data)
        assert data.vectors.shape == (5, tiny.DIMENSION)
        assert (data.encoder, sum(seen)) == (identity, 5)

    def test_as_distributed(self, tmp_path: Path, model: Path) -> None:
        folder = self.distributed(tmp_path / "PPB-2017")
        with Encoding("onnx", model=model) as encoding:
            data = load_ppb(folder, encoding)
            same(data, load_ppb(folder / "PPB-2017-metadata.csv", encoding))
            same(data, load_ppb(folder / "imgs", encoding))
        self.check(data)

    @pytest.mark.parametrize(
        ("header", "row"),
        [
            ("n, id, country, gender, numeric, skin color, bi.fitz", "3,0967_5_f_SA.jpg,SA,F,5,dark,darker"),
            ("BI.FITZ,Country,Skin-Type,GENDER,File", "darker,south africa,V,female,imgs/0967_5_f_SA.jpg"),
            ("gender,fitzpatrick,country,image name", "FEMALE,5.0,South Africa,0967_5_f_SA.jpg"),
        ],
    )
    @pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
    def test_columns_are_found_by_name(
        self, tmp_path: Path, model: Path, header: str, row: str, end: str
    ) -> None:
        pictures(tmp_path, NAMES[2:3])
        with Encoding("onnx", model=model) as encoding:
            data = load_ppb(self.metadata(tmp_path / "about.csv", header, [row], end), encoding)
        assert data.ids == ("0967_5_f_SA.jpg",)
        assert [data.columns[n][0] for n in ("gender", "skin_type", "skin_tone", "country", "group")] == [
            "female",
            "5",
            "darker",
            "SA",
            "dark-skinned women",
        ]

    def test_pictures_without_a_vector_are_told_apart(self, tmp_path: Path, model: Path) -> None:
        folder = self.distributed(tmp_path)
        (folder / "imgs" / NAMES[1]).unlink()
        (folder / "imgs" / NAMES[4]).write_bytes(b"no picture")
        with Encoding("onnx", model=model) as encoding:
            data = load_ppb(folder, encoding)
            assert data.ids == (NAMES[0], NAMES[2], NAMES[3])
            assert data.left_out["country"].tolist() == ["FL", "SE"]
            assert data.left_out["group"].tolist() == ["others", "dark-skinned women"]
            for name in (NAMES[0], NAMES[2], NAMES[3]):
                (folder / "imgs" / name).write_bytes(b"no picture either")
            with pytest.raises(FileError, match=r"none of the items could be encoded: .*0001_1_f_FL\.jpg"):
                load_ppb(folder, encoding)

    def test_by_default_faces_are_encoded_and_remembered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    def test_vectors_are_remembered(self, tmp_path: Path, model: Path) -> None:
        folder = pictures(tmp_path / "portraits", NAMES)
        with Encoding("onnx", model=model, cache=tmp_path / "cache") as encoding:
            data = load_ppb(folder, encoding)
        assert list((tmp_path / "cache").glob("onnx*.sqlite"))
        with Encoding("onnx", model=model, cache=tmp_path / "cache") as encoding:
            same(data, load_ppb(folder, encoding))

    def layouts(self, vectors: np.ndarray) -> dict[str, Any]:
        rows = np.empty((5, 2), dtype=object)
        two = np.empty(2, dtype=object)
        for at, name in enumerate(NAMES):
            rows[at, 0], rows[at, 1] = name, vectors[at]
        two[0], two[1] = np.array(NAMES), vectors
        return {
            "dict": dict(zip(NAMES, vectors, strict=True)),
            "dict of lists": {name: row.tolist() for name, row in zip(NAMES, vectors, strict=True)},
            "rows": rows,
            "pairs": list(zip(NAMES, vectors, strict=True)),
            "two": two,
            "named": {"paths": NAMES, "features": vectors},
        }

    @pytest.mark.parametrize("layout", ["dict", "dict of lists", "rows", "pairs", "two", "named"])
    def test_authors_features(self, tmp_path: Path, layout: str) -> None:
        vectors = np.random.default_rng(1).normal(size=(5, 7))
        held = self.layouts(vectors)[layout]
        if layout == "pairs":
            boxed = np.empty((), dtype=object)
            boxed[()] = held
            held = boxed
        np.save(tmp_path / "ppbFeatures.npy", held)
        data = load_ppb(tmp_path / "ppbFeatures.npy")
        self.check(data)
        assert np.array_equal(data.vectors, vectors)
        assert data.encoder is None

    @pytest.mark.parametrize(
        ("held", "told"),
        [
            (np.eye(3), r"numbers of shape \(3, 3\) without file names"),
            (
                {"one.jpg": [1.0], "two.jpg": [2.0], "3.jpg": [3.0]},
                "3 of 3 items, the first of them 'one.jpg'",
            ),
            ({NAMES[0]: [1.0, 2.0], NAMES[1]: [1.0]}, "not lists of equally many numbers"),
            ({NAMES[0]: 1.0, NAMES[1]: 2.0}, "not lists of equally many numbers"),
            ({NAMES[0]: [1.0], NAMES[1]: ["y"]}, "not lists of equally many numbers"),
            (np.array([None, 1.5, "a"], dtype=object), r"a ndarray of shape \(3,\); expected a dict"),
            ({}, "a dict with 0 entries"),
            ({5: [1.0], 6: [2.0], 7: [3.0]}, "a dict with 3 entries, the first of them '5'"),
        ],
    )
    def test_other_arrays_are_told(self, tmp_path: Path, held: Any, told: str) -> None:
        np.save(tmp_path / "ppbFeatures.npy", held)
        with pytest.raises(FileError, match=told):
            load_ppb(tmp_path / "ppbFeatures.npy")

    def test_features_never_run_a_program(self, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return (Path.touch, (tmp_path / "ran",))

        np.save(tmp_path / "ppbFeatures.npy", np.array({NAMES[0]: Evil()}, dtype=object))
        with pytest.raises(FileError, match="not data"):
            load_ppb(tmp_path / "ppbFeatures.npy")
        assert not (tmp_path / "ran").exists()

    def test_tables_of_vectors(self, tmp_path: Path) -> None:
        vectors = np.random.default_rng(2).normal(size=(5, 6)).astype(np.float32)
        labels = {"gender": GENDER, "skin_type": [1, 2, 5, 4, 6], "country": ["FL", "FL", "SA", "RW", "SE"]}
        full = load_ppb(table(tmp_path / "full.parquet", vectors, id=NAMES, **labels))
        self.check(full)
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

    def test_embedded_portraits(self, tmp_path: Path, model: Path) -> None:
        folder = pictures(tmp_path / "portraits", NAMES)
        with Encoding("onnx", model=model) as encoding:
            embed(open_items(folder), tmp_path / "ppb.arrow", encoding)
            data = load_ppb(folder, encoding)
        stored = load_ppb(tmp_path / "ppb.arrow")
        same(stored, data)
        assert stored.encoder == data.encoder

    def test_what_is_missing_says_where_to_get_it(self, tmp_path: Path) -> None:
        told = r"gendershades\.org, on request; terms: research use"
        with pytest.raises(FileError, match=f"nowhere does not hold portraits .*{told}"):
            load_ppb(tmp_path / "nowhere")
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileError, match=told):
            load_ppb(tmp_path / "empty")
        alone = self.distributed(tmp_path / "alone")
        for file in (alone / "imgs").iterdir():
            file.unlink()
        with pytest.raises(FileError, match=rf"the pictures that its metadata names, .*{told}"):
            load_ppb(alone)

    @pytest.mark.parametrize(
        ("header", "row", "told"),
        [
            (
                "filename,gender,bi.fitz,country",
                f"{NAMES[0]},Female,darker,FL",
                "none of which tells the skin type",
            ),
            ("filename,gender,numeric,country", f"{NAMES[0]},Woman,1,FL", "row 2: gender 'Woman'"),
            ("filename,gender,numeric,country", f"{NAMES[0]},Female,7,FL", "row 2: skin type '7'"),
            ("filename,gender,numeric,country", f"{NAMES[0]},Female,1", "row 2: 3 cells, the header has 4"),
            ("filename,gender,numeric,country", "portrait,Female,1,FL", "'portrait' where a picture's name"),
            ("filename,gender,numeric,country", "", "no rows below its header"),
        ],
    )
    def test_broken_metadata(self, tmp_path: Path, header: str, row: str, told: str) -> None:
        pictures(tmp_path, NAMES[:1])
        with pytest.raises(FileError, match=told):
            load_ppb(self.metadata(tmp_path / "m.csv", header, [row]))

    def test_strange_names(self, tmp_path: Path, model: Path) -> None:
        pictures(tmp_path, [*NAMES, "holiday.jpg"])
        with pytest.raises(FileError, match=r"1 of 6 items, the first of them 'holiday\.jpg'"):
            load_ppb(tmp_path)

    def test_the_authors_features(self, ppb: Portraits) -> None:
        data = load_ppb(PPB)
        assert data.vectors.shape == (1270, 300)
        assert np.array_equal(data.vectors, ppb.vectors)
        for name in ("gender", "skin_tone", "country"):
            assert np.array_equal(data.columns[name], getattr(ppb, name))
        both = (ppb.gender == "female") & (ppb.skin_tone == "darker")
        assert np.array_equal(data.columns["group"] == "dark-skinned women", both)
        assert both.sum() == 271

    def test_names_say_what_the_table_says(self, ppb: Portraits, tmp_path: Path) -> None:
        data = load_ppb(PPB)
        np.save(tmp_path / "ppbFeatures.npy", dict(zip(data.ids, data.vectors, strict=True)))
        same(load_ppb(tmp_path / "ppbFeatures.npy"), data)

    def test_the_portraits(self, tmp_path: Path, model: Path) -> None:
        if not PORTRAITS.is_dir():
            pytest.skip(f"the PPB-2017 portraits are not at {PORTRAITS}")
        files = sorted(PORTRAITS.glob("*.jpg"))[::60]
        for file in files:
            (tmp_path / file.name).symlink_to(file)
        with Encoding("onnx", model=model) as encoding:
            data = load_ppb(tmp_path, encoding)
        assert data.ids == tuple(file.name for file in files)
        assert set(data.columns["country"]) == {"FL", "IL", "RW", "SA", "SE", "SW"}


FORTY = 40
COUNT = 240


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
    # As in the original: a count, a header that ends in a space, and -1 and 1 set right in two places.
    lines = [str(COUNT), " ".join(names) + " "]
    files = [f"{i + 1:06}.jpg" for i in range(COUNT)]
    lines += [
        f"{file} " + " ".join(f"{1 if m else -1:2}" for m in row)
        for file, row in zip(files, marked, strict=True)
    ]
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    split = [f"{file} {0 if i < 120 else 1 if i < 150 else 2}" for i, file in enumerate(files)]
    (root / "list_eval_partition.txt").write_text("\n".join(split) + "\n")
    pictures(root / "img_align_celeba", files[140:170])
    return root


class TestCelebA:
    def test_lists_without_pictures(self, celeba: Path) -> None:
        found = open_celeba(celeba)
        assert (len(found), len(found.attributes), found.marked.shape) == (COUNT, FORTY, (COUNT, FORTY))
        assert [len(found.rows(name)) for name in ("train", "validation", "test")] == [120, 30, 90]
        assert found.rows("test").tolist() == list(range(150, 240))
        line = (celeba / "list_attr_celeba.txt").read_text().splitlines()[2 + 77].split()
        assert found.ids[77] == line[0] == "000078.jpg"
        assert found.marked[77].tolist() == [mark == "1" for mark in line[1:]]
        columns = found.columns(np.array([77]))
        assert columns["gender"][0] == ("male" if line[1 + 3] == "1" else "female")
        assert columns["Eyeglasses"][0] == ("yes" if line[1 + 2] == "1" else "no")
        assert columns["partition"][0] == "train"
        with pytest.raises(InputError, match="no attribute 'Glasses'; it has 'Bald'"):
            found.has("Glasses")
        with pytest.raises(InputError, match="no partition 'dev'"):
            found.rows("dev")

    def test_its_own_folders(self, celeba: Path, tmp_path: Path) -> None:
        for inside, name in (("Anno", "list_attr_celeba.txt"), ("Eval", "list_eval_partition.txt")):
            (tmp_path / inside).mkdir()
            (tmp_path / inside / name).write_text((celeba / name).read_text())
        assert open_celeba(tmp_path).ids == open_celeba(celeba).ids

    def test_only_needed_pictures_are_encoded(self, celeba: Path, model: Path) -> None:
        found, seen = open_celeba(celeba), list[int]()
        rows = found.rows("test")[:20]
        with Encoding("onnx", model=model) as encoding:
            data = found.load(rows, encoding=encoding, progress=seen.append)
            assert sum(seen) == 20
            assert data.ids == tuple(found.ids[row] for row in rows)
            assert data.columns["Male"].tolist() == [
                "yes" if found.has("Male")[row] else "no" for row in rows
            ]
            lacking = found.load(np.array([168, 169, 170, 171]), encoding=encoding)
        assert lacking.ids == ("000169.jpg", "000170.jpg")
        assert lacking.left_out["gender"].tolist() == found.columns(np.array([170, 171]))["gender"].tolist()

    def test_vectors_from_an_embedding(self, celeba: Path, tmp_path: Path, model: Path) -> None:
        found = open_celeba(celeba)
        rows = np.arange(150, 175)
        with Encoding("onnx", model=model) as encoding:
            embed(open_items(celeba / "img_align_celeba"), tmp_path / "flat.arrow", encoding)
            embed(open_items(celeba), tmp_path / "deep.arrow", encoding)
            fresh = found.load(np.arange(150, 170), encoding=encoding)
        for name in ("flat.arrow", "deep.arrow"):
            data = found.load(rows, tmp_path / name)
            same(data, fresh)
            assert data.encoder == fresh.encoder
            assert len(data.left_out["gender"]) == 5

    def test_vectors_by_position_and_in_any_order(self, celeba: Path, tmp_path: Path) -> None:
        found = open_celeba(celeba)
        vectors = np.random.default_rng(4).normal(size=(COUNT, 5)).astype(np.float32)
        np.save(tmp_path / "all.npy", vectors)
        rows = found.rows("test")
        data = found.load(rows, tmp_path / "all.npy")
        assert np.array_equal(data.vectors, vectors[rows])
        order = np.random.default_rng(5).permutation(COUNT)
        mixed = table(tmp_path / "mixed.parquet", vectors[order], id=[found.ids[i] for i in order])
        same(found.load(rows, mixed), data)
        twice = np.concatenate([order, order])
        several = table(
            tmp_path / "faces.parquet", np.concatenate([vectors, -vectors])[np.r_[order, COUNT + order]],
            id=[found.ids[i] for i in twice],
        )  # fmt: skip
        same(found.load(rows, several), data)

    def test_parts_stay_small(self, celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = open_celeba(celeba)
        vectors = np.random.default_rng(4).normal(size=(COUNT, 5)).astype(np.float32)
        np.save(tmp_path / "all.npy", vectors)
        monkeypatch.setattr("divscore.sources.table.BLOCK_BYTES", 5 * 4 * 64)
        parts = list(found.parts(np.arange(0, COUNT, 2), tmp_path / "all.npy"))
        assert [len(part) for part in parts] == [32, 32, 32, 24]
        same(joined(parts), found.load(np.arange(0, COUNT, 2), tmp_path / "all.npy"))

    def test_other_files_of_vectors_are_refused(self, celeba: Path, tmp_path: Path) -> None:
        found = open_celeba(celeba)
        np.save(tmp_path / "some.npy", np.ones((7, 3)))
        with pytest.raises(FileError, match="7 rows without names; expected one for each of the 240"):
            found.load([1], tmp_path / "some.npy")
        other = table(tmp_path / "other.parquet", np.ones((2, 3)), id=["a.jpg", "b.jpg"])
        with pytest.raises(FileError, match=r"none of the 1 pictures .* expected ids such as 000001\.jpg"):
            found.load([1], other)
        nameless = table(tmp_path / "nameless.parquet", np.ones((2, 3)), key=["000001.jpg", "000002.jpg"])
        with pytest.raises(FileError, match="'key', 'embedding'; expected one named id"):
            found.load([1], nameless)

    def test_collections_by_the_authors_rule(self, celeba: Path, tmp_path: Path) -> None:
        found = open_celeba(celeba)
        np.save(tmp_path / "all.npy", np.ones((COUNT, 2)))
        data = found.load(np.arange(COUNT), tmp_path / "all.npy")
        masks = attribute_collections(data)
        # Men only, not asked by the authors, the gender itself, four pictures.
        assert set(found.attributes) - set(masks) == {"Bald", "Blurry", "Male", "Rare"}
        assert masks["Eyeglasses"].tolist() == found.has("Eyeglasses").tolist()
        assert set(attribute_collections(data, ["Bald", "Rare"], women=0.0, fewest=4)) == {"Bald", "Rare"}

    @pytest.mark.parametrize("lacking", ["list_attr_celeba.txt", "list_eval_partition.txt"])
    def test_missing_lists(self, celeba: Path, tmp_path: Path, lacking: str) -> None:
        for name in {"list_attr_celeba.txt", "list_eval_partition.txt"} - {lacking}:
            (tmp_path / name).write_text((celeba / name).read_text())
        told = rf"does not hold {re.escape(lacking)}.*mmlab\.ie\.cuhk\.edu\.hk/.*non-commercial research"
        with pytest.raises(FileError, match=told):
            open_celeba(tmp_path)

    def test_missing_pictures(self, celeba: Path, tmp_path: Path) -> None:
        found = open_celeba(celeba)
        elsewhere = CelebA(tmp_path, found.ids, found.attributes, found.marked, found.partition)
        with pytest.raises(FileError, match=r"img_align_celeba of pictures.*mmlab"):
            elsewhere.load([1])

    @pytest.mark.parametrize(
        ("name", "old", "new", "told"),
        [
            ("list_attr_celeba.txt", "240\n", "241\n", "240 pictures, its first line says 241"),
            ("list_attr_celeba.txt", "240\n", "", "the first line is no number"),
            (
                "list_attr_celeba.txt",
                "\n000005.jpg ",
                "\n000005.jpg 1 ",
                "line 7: .*a name and 40 times 1 or -1",
            ),
            ("list_attr_celeba.txt", "\n000005.jpg -1", "\n000005.jpg  2", "line 7: "),
            ("list_attr_celeba.txt", "000005.jpg", "000004.jpg", "has pictures twice"),
            ("list_attr_celeba.txt", "Male", "Man", "no attribute Male"),
            ("list_eval_partition.txt", "000005.jpg 0\n", "", r"no partition for 1 pictures, .* 000005\.jpg"),
            ("list_eval_partition.txt", "000005.jpg 0", "000005.jpg 3", "line 5: '000005.jpg 3'"),
        ],
    )
    def test_broken_lists(
        self, celeba: Path, tmp_path: Path, name: str, old: str, new: str, told: str
    ) -> None:
        for each in ("list_attr_celeba.txt", "list_eval_partition.txt"):
            text = (celeba / each).read_text()
            if "000005.jpg -1" in old:
                text = text.replace("\n000005.jpg  1", "\n000005.jpg -1")
            assert each != name or old in text
            (tmp_path / each).write_text(text.replace(old, new) if each == name else text)
        with pytest.raises(FileError, match=told):
            open_celeba(tmp_path)


def tweet(number: int, text: str, aa: float, white: float, hispanic: float = 0.0, other: float = 0.0) -> str:
    """A line of twitteraae_all."""
    cells = [
        str(286475921177853953 + number),
        '"Wed Jan 02 14:15:56 +0000 2013"',
        '"1234"',
        "[-74.26275, 40.57988]",
        '"340230090002"',
        json.dumps(text),
        *map(repr, (aa, hispanic, other, white)),
    ]
    return "\t".join(cells) + "\n"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    lines = [
        tweet(0, "he finna go \U0001f602\n\tnow", 0.991, 0.002, 0.004, 0.003),
        tweet(1, "literally so good", 0.001, 0.995, 0.002, 0.002),
        tweet(2, "not certain", 0.6, 0.4),
        tweet(3, "nearly", 0.9899, 0.0101),
        tweet(4, "no posteriors", float("nan"), float("nan")),
        tweet(5, "RT @maya literally  so good https://t.co/x", 0.001, 0.995, 0.002, 0.002),
        tweet(6, "a model that does not sum to one", 0.995, 0.0, 0.08, 0.03),
        tweet(7, "just enough", 0.99, 0.0, 0.06, 0.04),
        tweet(8, "all of it", 0.0, 1.0),
        tweet(9, "@maya https://t.co/x", 0.0, 1.0),
    ]
    (tmp_path / "twitteraae_all").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "twitteraae_all"


class TestTwitterAAE:
    TEXTS = ("he finna go \U0001f602 now", "literally so good", "just enough", "all of it")

    def read(self, tweets: Tweets) -> tuple[list[Any], list[Any], list[Any]]:
        runs = list(tweets)
        return (
            [text for run in runs for text in run.contents],
            [name for run in runs for name in run.ids],
            [group for run in runs for group in run.values["dialect"]],
        )

    def test_certain_tweets_once_each(self, release: Path) -> None:
        tweets = Tweets(release)
        texts, ids, dialects = self.read(tweets)
        assert tuple(texts) == self.TEXTS
        assert dialects == ["AAE", "WHE", "AAE", "WHE"]
        assert ids == [str(286475921177853953 + i) for i in (0, 1, 7, 8)]
        assert (tweets.lines, tweets.unreadable, tweets.problems) == (10, 0, [])
        assert self.read(tweets) == (texts, ids, dialects)
        assert self.read(Tweets(release, threshold=0.5, others=1.0))[0][2:4] == ["not certain", "nearly"]

    def test_folder_and_archive(self, release: Path, tmp_path: Path) -> None:
        expected = self.read(Tweets(release))
        assert self.read(Tweets(release.parent)) == expected
        with zipfile.ZipFile(tmp_path / "full.zip", "w") as archive:
            archive.writestr("TwitterAAE-full-v1/README", "read me")
            archive.write(release, "TwitterAAE-full-v1/twitteraae_all")
        assert self.read(Tweets(tmp_path / "full.zip")) == expected
        (tmp_path / "broken.zip").write_bytes((tmp_path / "full.zip").read_bytes()[:300])
        with pytest.raises(FileError, match="truncated or damaged"):
            Tweets(tmp_path / "broken.zip")

    def test_long_runs_are_cut(self, tmp_path: Path) -> None:
        lines = (tweet(i, f"tweet no{i}", 0.995 * (i % 3 == 0), 0.995 * (i % 3 > 0)) for i in range(5000))
        (tmp_path / "twitteraae_all").write_text("".join(lines))
        runs = list(Tweets(tmp_path))
        assert [len(run) for run in runs] == [4096, 904]
        assert runs[1].contents[-1] == "tweet no4999"

    def test_broken_lines_are_counted(self, release: Path) -> None:
        whole = release.read_text(encoding="utf-8")
        release.write_text(
            whole + "only\tthree\tcells\n" + tweet(9, "x", 0.995, 0.0).replace("0.995", "high")
        )
        tweets = Tweets(release)
        assert tuple(self.read(tweets)[0]) == self.TEXTS
        assert (tweets.lines, tweets.unreadable) == (12, 2)
        assert re.search(r"line 11: 'only\\tthree\\tcells' is not of the format", tweets.problems[0])

    @pytest.mark.parametrize(
        "text", ["", "1\t0.99\t0.0\t0.0\t0.01\n" * 5, "a,b,c\n" * 1500], ids=["empty", "limited", "CSV"]
    )
    def test_another_file_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "twitteraae_all").write_text(text)
        lines = min(1000, text.count("\n"))
        with pytest.raises(FileError, match=f"none of {lines} lines is as those of .*expected ten columns"):
            list(Tweets(tmp_path))

    def test_missing(self, tmp_path: Path) -> None:
        told = r"the file twitteraae_all\. .*slanglab\.cs\.umass\.edu/TwitterAAE/"
        with pytest.raises(FileError, match=told):
            load_twitteraae(tmp_path)
        with pytest.raises(FileError, match=r"columns text, aa and white\. .*slanglab"):
            load_twitteraae(tmp_path / "stand-in.parquet")
        with pytest.raises(InputError, match="0 tweets of each dialect"):
            load_twitteraae(tmp_path, each=0)

    def test_load_encodes_all(self, release: Path) -> None:
        with Encoding() as encoding:
            data = load_twitteraae(release, encoding)
            expected = encoding.encoder("text").encode(self.TEXTS).vectors
        assert np.array_equal(data.vectors, expected)
        assert data.columns["dialect"].tolist() == ["AAE", "WHE", "AAE", "WHE"]
        assert data.encoder is not None
        assert data.encoder.startswith("ngrams/")

    def test_parts(self, tmp_path: Path) -> None:
        lines = (tweet(i, f"tweet no{i}", 0.995 * (i % 3 == 0), 0.995 * (i % 3 > 0)) for i in range(5000))
        (tmp_path / "twitteraae_all").write_text("".join(lines))
        with Encoding() as encoding:
            parts = list(encoded(Tweets(tmp_path), encoding))
            assert [len(part) for part in parts] == [4096, 904]
            same(joined(parts), load_twitteraae(tmp_path, encoding))

    def test_random_sample_of_each(self, tmp_path: Path) -> None:
        lines = (tweet(i, f"tweet no{i}", 0.995 * (i % 5 == 0), 0.995 * (i % 5 > 0)) for i in range(6000))
        (tmp_path / "twitteraae_all").write_text("".join(lines))
        tweets = Tweets(tmp_path)
        drawn = sample_tweets(tweets, 400, seed=1)
        rows = [int(str(text).removeprefix("tweet no")) for run in drawn for text in run.contents]
        groups = [group for run in drawn for group in run.values["dialect"]]
        assert groups == ["AAE"] * 400 + ["WHE"] * 400
        assert len(set(rows)) == 800
        assert all((row % 5 == 0) == (group == "AAE") for row, group in zip(rows, groups, strict=True))
        # Uniform over the file: the mean of 400 of 0 … 5999 is 3000 ± 87.
        assert np.mean(rows[:400]) == pytest.approx(3000, abs=350)
        assert np.mean(rows[400:]) == pytest.approx(3000, abs=350)
        again, other = sample_tweets(tweets, 400, seed=1), sample_tweets(tweets, 400, seed=2)
        assert [run.ids for run in again] == [run.ids for run in drawn]
        assert [run.ids for run in other] != [run.ids for run in drawn]
        assert len(load_twitteraae(tmp_path, each=10)) == 20
        assert len(load_twitteraae(tmp_path, each=2000)) == 3200

    def test_broken_lines_are_told(self, release: Path) -> None:
        release.write_text(release.read_text(encoding="utf-8") + "only\tthree\tcells\n", encoding="utf-8")
        for each in (None, 1):
            assert load_twitteraae(release, each=each).unreadable == 1

    def test_one_dialect_is_not_enough(self, tmp_path: Path) -> None:
        (tmp_path / "twitteraae_all").write_text(tweet(0, "x", 0.0, 0.995))
        with pytest.raises(FileError, match="no tweet that is certainly AAE"):
            load_twitteraae(tmp_path, each=3)

    def stand_in(self, path: Path, **changed: Any) -> Path:
        columns = {
            "text": [f"tweet no{i}" for i in range(6)],
            "aa": [0.9, 0.1, 0.8, 0.45, None, 0.3],
            "hisp": [0.0] * 6,
            "asian": [0.0] * 6,
            "white": [0.1, 0.9, 0.1, 0.44, 0.9, 0.6],
        }
        kept = {name: values for name, values in (columns | changed).items() if values is not None}
        parquet.write_table(pa.table(kept), path)
        return path

    def test_stand_in_takes_the_likeliest(self, tmp_path: Path) -> None:
        path = self.stand_in(tmp_path / "t.parquet")
        two = load_twitteraae(path, each=2)
        assert two.ids == ("0", "2", "1", "5")
        assert two.columns["dialect"].tolist() == ["AAE", "AAE", "WHE", "WHE"]
        # Alike once cleaned: the likelier one counts.
        alike = self.stand_in(
            tmp_path / "alike.parquet", text=["x", "y", "@maya x", "z", "q", "y http://t.co/1"]
        )
        assert load_twitteraae(alike, each=2).ids == ("0", "3", "1")
        # Never of both, and never without a posterior.
        assert load_twitteraae(path).ids == ("0", "2", "3", "1", "5")
        named = self.stand_in(tmp_path / "named.parquet", id=[10, 11, 12, 13, 14, 15])
        assert load_twitteraae(named, each=1).ids == ("10", "11")

    def test_stand_in_of_another_form(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="but not 'white'"):
            likeliest(self.stand_in(tmp_path / "t.parquet", white=None))
        with pytest.raises(FileError, match="no tweet that is likelier WHE"):
            likeliest(self.stand_in(tmp_path / "t.parquet", white=[0.0] * 6))
        words = ["low"] * 6
        with pytest.raises(FileError, match="a posterior is no number"):
            likeliest(self.stand_in(tmp_path / "t.parquet", white=words))

    def test_the_stand_in(self) -> None:
        if not TWEETS.exists():
            pytest.skip(f"the tweets with posteriors are not at {TWEETS}")
        columns = parquet.read_table(TWEETS, columns=["id", "text", "aa", "white"])
        ids, texts = columns["id"].to_numpy(), [plain(text) for text in columns["text"].to_pylist()]
        expected = []
        for name in ("aa", "white"):
            ranked = np.argsort(-columns[name].to_numpy(), kind="stable").tolist()
            once = [
                row
                for at, row in enumerate(ranked[:2500])
                if texts[row] not in {texts[r] for r in ranked[:at]}
            ]
            expected += once[:1800]
        data = load_twitteraae(TWEETS)
        assert data.ids == tuple(str(ids[row]) for row in expected)
        assert data.columns["dialect"].tolist() == ["AAE"] * 1800 + ["WHE"] * 1800
        control = data.control(np.arange(1700, 1900), "dialect", ("AAE", "WHE"))
        assert control.counts == {"AAE": 100, "WHE": 100}
