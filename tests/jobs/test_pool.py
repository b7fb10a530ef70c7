"""Labelled examples as `ControlSet.read` and every command read them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import tiny
from commands import invoke

from divscore.audit.audit import audit
from divscore.control.controlfile import save_control
from divscore.control.controlset import ControlSet
from divscore.control.selection import select_random
from divscore.encoders.registry import ENCODERS
from divscore.errors import ControlError, FileError, InputError, MismatchError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.jobs.projection import Projection

# Tables

GENDER = ["female", "male"] * 6
TONE = ["darker", "darker", "lighter", "lighter"] * 3
POINTS = np.random.default_rng(5).standard_normal((12, 3))


def vectors() -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(POINTS.ravel()), 3)


def write_pool(path: Path, **columns: Any) -> Path:
    if path.suffix == ".npz":
        np.savez(path, v=POINTS, **{name: np.array(values) for name, values in columns.items()})
        return path
    if path.suffix in {".csv", ".jsonl"}:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if path.suffix == ".jsonl":
            records = [{**row, "v": v} for row, v in zip(rows, POINTS.tolist(), strict=True)]
            path.write_text("".join(json.dumps(r) + "\n" for r in records))
            return path
        whole = pa.table({**columns, **{f"x{j}": POINTS[:, j] for j in range(3)}})
        pa.csv.write_csv(whole, path)
        return path
    pq.write_table(pa.table({**columns, "v": vectors()}), path)
    return path


POOLS = ["p.npz", "p.csv", "p.jsonl", "p.parquet"]


@pytest.mark.parametrize("name", POOLS)
def test_labelled_tables_of_every_format(tmp_path: Path, name: str) -> None:
    ids = [f"i{n}" for n in range(12)]
    path = write_pool(tmp_path / name, id=ids, gender=GENDER)
    pool = ControlSet.read(path)
    assert (pool.attribute, pool.groups, pool.ids) == ("gender", ("female", "male"), tuple(ids))
    np.testing.assert_array_equal(pool.vectors, POINTS)
    assert ControlSet.read(path, attribute="gender", order=["male", "female"]).groups == ("male", "female")


@pytest.mark.parametrize("name", POOLS)
def test_a_column_named_group_is_the_default(tmp_path: Path, name: str) -> None:
    path = write_pool(tmp_path / name, group=GENDER, tone=TONE)
    assert ControlSet.read(path).groups == ("female", "male")


@pytest.mark.parametrize("joined", ["gender×tone", "gender*tone", "gender × tone"])
def test_intersections(tmp_path: Path, joined: str) -> None:
    path = write_pool(tmp_path / "p.parquet", gender=GENDER, tone=TONE)
    pool = ControlSet.read(path, attribute=joined)
    assert pool.attribute == "gender × tone"
    assert pool.groups[0] == "female × darker"
    assert pool.counts == dict.fromkeys(pool.groups, 3)
    assert ControlSet.read(path, attribute=joined, order=pool.groups[::-1]).groups == pool.groups[::-1]


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("values", [[0, 1] * 6, [False, True] * 6, [0.0, 1.0] * 6, [1, 2] * 6])
def test_numbers_are_no_group_names(tmp_path: Path, name: str, values: list[Any]) -> None:
    path = write_pool(tmp_path / name, group=values)
    with pytest.raises(ControlError, match="groups must be names"):
        ControlSet.read(path)


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("values", [[0, 1] * 6, [False, True] * 6, [0.0, 1.0] * 6, ["0", "1"] * 6])
def test_numbers_become_names(tmp_path: Path, name: str, values: list[Any]) -> None:
    path = write_pool(tmp_path / name, group=values)
    pool = ControlSet.read(path, rename={1: "male", 0: "female"})
    assert [pool.groups[at] for at in pool.labels] == GENDER
    with pytest.raises(ControlError, match=r"with rename=\{(0|False|false): \"…\", (1|True): \"…\"\}"):
        ControlSet.read(path)
    with pytest.raises(
        InputError, match=r"no labelled example has the label '2'; the labels are (0, 1|false, true)$"
    ):
        ControlSet.read(path, rename={2: "other"})


def test_the_command_line_asks_for_names_with_its_option(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.parquet", group=[0, 1] * 6)
    with (
        Encoding() as encoding,
        pytest.raises(ControlError, match=r"give their names with --rename 0=…,1=…$"),
    ):
        read_control(path, encoding)


def test_names_of_intersections(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.parquet", gender=[0, 1] * 6, tone=TONE, other=[0, 0, 1] * 4)
    pool = ControlSet.read(path, attribute="gender×tone", rename={0: "female", 1: "male", "darker": "dark"})
    assert pool.groups == ("female × dark", "female × lighter", "male × dark", "male × lighter")
    with pytest.raises(InputError, match="'0' is a label of gender and other, so its new name is unclear"):
        ControlSet.read(path, attribute="gender×other", rename={0: "female", 1: "male"})


def test_a_saved_control_set_has_names(tmp_path: Path) -> None:
    control = ControlSet(POINTS, GENDER, attribute="gender")
    save_control(control, tmp_path / "c")
    for collection, labelled in ((POINTS, control), (POINTS, tmp_path / "c")):
        with pytest.raises(MismatchError, match="have names: 'female', 'male'; leave out rename="):
            audit(collection, labelled, rename={"female": "woman"})


def test_a_labelled_sample_is_renamed_too(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.parquet", group=[0, 1] * 6)
    np.savez(tmp_path / "sample.npz", v=POINTS, group=[0, 1] * 6)
    rename = {0: "female", 1: "male"}
    options: dict[str, Any] = {"sample": str(tmp_path / "sample.npz"), "estimator": "iid"}
    for control in (path, ControlSet(POINTS, GENDER)):
        result = audit(POINTS + 1, control, rename=rename, **options)
        assert result.shares == {"female": 0.5, "male": 0.5}
        if isinstance(control, ControlSet):
            with pytest.raises(ControlError, match=r"rename=\{0: "):
                audit(POINTS + 1, control, **options)


def test_python_is_answered_in_python(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.parquet", gender=GENDER, tone=TONE)
    with pytest.raises(FileError, match="Name it with attribute="):
        ControlSet.read(path)
    with pytest.raises(InputError, match="needs a labelled random sample of the collection: sample="):
        audit(POINTS, ControlSet(POINTS, GENDER), estimator="iid")


# Where the examples came from


def test_texts_and_pictures_are_remembered(
    labelled: Path, model: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    texts = [f"{name} {at}" for at, name in enumerate(GENDER)]
    assert ControlSet.read(pa.table({"text": texts, "group": GENDER})).origins == tuple(texts)
    monkeypatch.chdir(labelled.parent)
    control = ControlSet.read(labelled.name, encoder="onnx", model=model, cache=False)
    assert control.origins == tuple(str(labelled / name) for name in control.ids)
    assert select_random(control, 20).origins == control.origins
    (tmp_path / "labels.csv").write_text(
        "file,group\n" + "".join(f"{labelled / name},{name.split('/')[0]}\n" for name in control.ids)
    )
    by_table = ControlSet.read(tmp_path, encoder="onnx", model=model, cache=False)
    assert by_table.origins == control.origins
    data = [(labelled / name).read_bytes() for name in control.ids]
    inside = pa.table({"image": data, "group": [name.split("/")[0] for name in control.ids]})
    assert ControlSet.read(inside, encoder="onnx", model=model, cache=False).origins is None
    assert ControlSet.read(write_pool(tmp_path / "p.parquet", gender=GENDER)).origins is None


def test_a_file_name_that_is_no_text_has_no_origin(model: Path, tmp_path: Path) -> None:
    root = tiny.folder(tmp_path / "labelled", {"red": 3, "blue": 3}, 1)
    (root / "red" / "0000.png").rename(root / "red" / os.fsdecode(b"0000\xff.png"))
    control = ControlSet.read(root, encoder="onnx", model=model, cache=False)
    assert [origin is None for origin in control.origins or ()].count(True) == 1
    save_control(control, tmp_path / "C")


def test_pools_that_cannot_be_used(tmp_path: Path) -> None:
    both = write_pool(tmp_path / "a.parquet", gender=GENDER, tone=TONE)
    with pytest.raises(
        FileError, match=r"'gender' \(2 values\), 'tone' \(2 values\)\. Name it with attribute="
    ):
        ControlSet.read(both)
    with pytest.raises(FileError, match="no column 'age' of group names; give attribute= one of 'gender'"):
        ControlSet.read(both, attribute="gender×age")
    gap = write_pool(tmp_path / "b.parquet", gender=[*GENDER[:11], None])
    with pytest.raises(FileError, match=r"b\.parquet, row 11: no group in column 'gender'"):
        ControlSet.read(gap)
    twice = write_pool(tmp_path / "c.parquet", gender=GENDER, id=["x"] * 12)
    with pytest.raises(ControlError, match="several labelled examples have the id 'x'"):
        ControlSet.read(twice)
    holes = pa.table({"gender": GENDER, "v": pa.array([None, *POINTS[1:].tolist()])})
    pq.write_table(holes, tmp_path / "d.parquet")
    with pytest.raises(FileError, match=r"d\.parquet, row 0: has no vector"):
        ControlSet.read(tmp_path / "d.parquet")
    np.save(tmp_path / "e.npy", POINTS)
    with pytest.raises(FileError, match="no columns, so none with the names of groups"):
        ControlSet.read(tmp_path / "e.npy")
    with pytest.raises(InputError, match="does not exist"):
        ControlSet.read(tmp_path / "f.parquet")


def test_a_saved_control_set_is_a_pool(tmp_path: Path) -> None:
    control = ControlSet(POINTS, GENDER, attribute="gender").with_representatives(range(6), "chosen")
    save_control(control, tmp_path / "c")
    for path in (tmp_path / "c", tmp_path / "c" / "control.parquet"):
        assert ControlSet.read(path, attribute="gender").digest == control.digest
    assert ControlSet.read(tmp_path / "c", order=["male", "female"]).groups == ("male", "female")
    with pytest.raises(MismatchError, match="control set for 'gender', not for 'tone'"):
        ControlSet.read(tmp_path / "c", attribute="tone")


def test_the_encoder_of_a_table_is_kept(tmp_path: Path) -> None:
    whole = pa.table({"group": GENDER, "v": vectors()}).replace_schema_metadata({"divscore.encoder": "vgg16"})
    pq.write_table(whole, tmp_path / "a.parquet")
    assert ControlSet.read(tmp_path / "a.parquet").encoder == "vgg16"


def test_tables_in_memory_and_folders_with_labels(tmp_path: Path) -> None:
    frame = pa.table({"gender": GENDER, "v": vectors()})
    assert (
        ControlSet.read(frame).digest
        == ControlSet.read(write_pool(tmp_path / "p.parquet", gender=GENDER)).digest
    )
    texts = pa.table({"text": [f"{name} {at}" for at, name in enumerate(GENDER)], "group": GENDER})
    read = ControlSet.read(texts, order=["male", "female"], options={"dimension": "64"})
    assert (read.groups, read.dimension) == (("male", "female"), 64 + 256)
    assert str(read.encoder).startswith("text/1 dimension=64 table=")


# Images


def test_a_folder_of_pictures_is_audited_from_sub_folders(photos: Path, labelled: Path, model: Path) -> None:
    with Encoding("onnx", model=model) as some:
        control = read_control(labelled, some, attribute="colour")
        assert control.counts == {"blue": 40, "red": 40}
        assert control.attribute == "colour"
        assert control.encoder.startswith("onnx/1 ")
        assert control.ids[0] == "blue/0000.png"
        result = audit((block.vectors for block in tiny.encoded(photos, some)), control)
    assert result.count == 200
    assert 0.4 in result.interval  # 140 blue, 60 red
    assert abs(result.disparity - 0.4) < 0.1


def test_labels_in_a_table_beside_the_pictures(labelled: Path, model: Path, tmp_path: Path) -> None:
    rows = [
        f"../{path.relative_to(labelled.parent)},{path.parent.name},{i % 2}x"
        for i, path in enumerate(sorted(labelled.rglob("*.png")))
    ]
    root = labelled.parent / "by-table"
    root.mkdir(exist_ok=True)
    (root / "labels.csv").write_text("file,colour,other\n" + "\n".join(rows) + "\n")
    with Encoding("onnx", model=model) as some:
        folders = read_control(labelled, some, attribute="colour")
        control = read_control(root, some, attribute="colour")
        both = read_control(root, some, attribute="colour×other")
    np.testing.assert_array_equal(control.vectors, folders.vectors)
    assert control.groups == folders.groups
    assert control.digest == folders.digest
    assert both.groups == ("blue × 0x", "blue × 1x", "red × 0x", "red × 1x")


def test_labelled_examples_that_cannot_be_encoded_are_counted_by_group(
    hostile_pictures: Path, model: Path
) -> None:
    (hostile_pictures / "blue" / "loop").unlink()
    quiet: list[str] = []
    talk: list[str] = []
    with Encoding("onnx", model=model) as some:
        control = read_control(hostile_pictures, some, warn=quiet.append)
        renamed = read_control(hostile_pictures, some, rename={"red": "warm"}, verbose=True, warn=talk.append)
    assert control.counts == {"blue": 21, "red": 10}
    assert control.skipped == {"blue": 2, "red": 4}
    assert control.attribute == "group"
    assert renamed.skipped == {"blue": 2, "warm": 4}
    counts = f"{hostile_pictures}: encoded 21 of 23 'blue', 10 of 14 '{{}}'; the others were skipped"
    assert quiet == [f"{counts.format('red')} (--verbose lists them)"]
    assert talk[0] == counts.format("warm")
    assert f"{hostile_pictures}, blue/dead.jpg: does not exist" in talk[1:]
    assert len(talk) == 7


def test_labelled_pictures_without_a_decoder_are_counted_and_explained(labelled: Path, model: Path) -> None:
    root = labelled.parent / "with-videos"
    shutil.copytree(labelled, root, dirs_exist_ok=True)
    for number in range(3):
        (root / "red" / f"{number}.mp4").write_bytes(b"")
    said: list[str] = []
    with Encoding("onnx", model=model) as some:
        control = read_control(root, some, warn=said.append)
    assert control.skipped == {"red": 3}
    assert said == [
        f"{root}: 3 files were not read (.mp4): extract frames as JPEG",
        f"{root}: encoded 40 of 40 'blue', 40 of 43 'red'; the others were skipped (--verbose lists them)",
    ]


def test_unevenly_left_out_examples_warn(labelled: Path, model: Path, tmp_path: Path) -> None:
    with Encoding("onnx", model=model) as some:
        control = read_control(labelled, some)
        vectors = np.concatenate([control.vectors[:30], control.vectors[40:70]])
    control.skipped = {"red": 12}
    warned = [text for text in audit(vectors, control).warnings if "more often than of others" in text]
    assert warned
    assert "23% of 'red', 0% of 'blue'" in warned[0]
    control.skipped = {"red": 2, "blue": 1}
    assert not [text for text in audit(vectors, control).warnings if "more often than of others" in text]
    save_control(select_random(control, 20), tmp_path / "C")
    with Encoding("onnx", model=model) as some:
        assert read_control(tmp_path / "C", some).skipped == {"red": 2, "blue": 1}


def test_pools_that_cannot_be(tmp_path: Path, labelled: Path, model: Path) -> None:
    root = tiny.folder(tmp_path / "flat", {"red": 3}, 1, sub_folders=False)
    with Encoding("onnx", model=model) as some:
        with pytest.raises(ControlError, match=r"is next to the sub-folders; .* flat/female and flat/male"):
            read_control(root, some)
        with pytest.raises(ControlError, match="lists images without groups"):
            read_control(f"{labelled}/*/*.png", some)
        one = tiny.folder(tmp_path / "one", {"red": 3}, 1)
        with pytest.raises(ControlError, match="all 3 labelled examples belong to group 'red'"):
            read_control(one, some)


def test_another_encoder_is_an_error_that_says_so(
    tmp_path: Path, labelled: Path, photos: Path, model: Path
) -> None:
    from click.testing import CliRunner

    from divscore.cli import main

    common = ["--no-cache", "--model", str(model), "--workers", "1"]
    run = CliRunner().invoke
    made = run(
        main,
        [
            "control",
            "select",
            str(labelled),
            "-o",
            str(tmp_path / "C"),
            "--size",
            "20",
            "--encoder",
            "onnx",
            *common[:3],
        ],
    )
    assert made.exit_code == 0, made.output
    # The control set says which encoder with which settings; only the model's place has to be told.
    fine = run(main, ["audit", str(photos), "--control", str(tmp_path / "C"), "--json", "-", *common])
    assert fine.exit_code == 0, fine.output
    assert json.loads(fine.stdout)["encoder"].startswith("onnx/1 ")
    other = run(
        main, ["audit", str(photos), "--control", str(tmp_path / "C"), "-E", "normalise=none", *common]
    )
    assert other.exit_code == 2
    assert "was encoded by 'onnx/1" in other.stderr
    assert "use the same encoder for both" in other.stderr
    missing = run(main, ["audit", str(photos), "--control", str(tmp_path / "C"), "--no-cache"])
    assert missing.exit_code == 2
    assert "the encoder 'onnx' needs --model" in missing.stderr


@pytest.mark.parametrize("earlier", ["control", "collection", "both"])
def test_an_earlier_version_of_an_encoder_says_what_to_do(tmp_path: Path, earlier: str) -> None:
    versions = {"control": (1, 2), "collection": (2, 1), "both": (1, 1)}[earlier]
    of_control, of_collection = (f"faces/{version} weights=a" for version in versions)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 8)) + np.repeat([[1], [-1]], 30, axis=0)
    pool = ControlSet(rows, ["a"] * 30 + ["b"] * 30, attribute="letter")
    pool.encoder = of_control
    save_control(select_random(pool, 20), tmp_path / "C")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float32).ravel()), 8)
    table = pa.table({"embedding": vectors}).replace_schema_metadata({"divscore.encoder": of_collection})
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    done = invoke("audit", tmp_path / "x.arrow", "--control", tmp_path / "C")
    if earlier == "both":  # old vectors can be compared with old ones
        assert done.exit_code in (0, 3), done.stderr
        return
    assert done.exit_code == 2
    assert f"{tmp_path / 'x.arrow'} was encoded by '{of_collection}'" in done.stderr
    assert f"the control set was made by '{of_control}'" in done.stderr or earlier == "collection"
    advice = {
        "control": "Create it again from its labelled examples: 'divscore control select LABELLED -o CONTROL'",
        "collection": f"Encode the items again: 'divscore embed SOURCE -o {tmp_path / 'x.arrow'} --overwrite'",
    }
    assert advice[earlier] in done.stderr


def test_photos_and_a_control_set_of_an_earlier_version(tmp_path: Path) -> None:
    if missing := ENCODERS["faces"].missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    rows = np.random.default_rng(0).normal(size=(60, 128))
    pool = ControlSet(rows, ["a"] * 30 + ["b"] * 30, attribute="letter")
    pool.encoder = "faces/1 weights=451b8db9f59cac8a"
    save_control(select_random(pool, 20), tmp_path / "C")
    photos = tiny.folder(tmp_path / "photos", {"red": 3}, 1, sub_folders=False)
    done = invoke("audit", photos, "--control", tmp_path / "C", "--no-cache")
    assert done.exit_code == 2
    says = "was made by 'faces/1 weights=451b8db9f59cac8a', an earlier version of its encoder"
    assert f"the control set {says}" in done.stderr
    assert f"{tmp_path / 'C'} {says}" in invoke("control", "show", tmp_path / "C").stderr
    check = invoke("control", "check", tmp_path / "C")
    assert (check.exit_code, f"it {says}" in check.output) == (1, True)
    # A projection of the old encoder must not lead astray.
    pool.encoder += " pca=8:0123456789abcdef"
    save_control(select_random(pool, 20), tmp_path / "P")
    axes = Projection.fit(rows.astype(np.float32), 8, "faces/1 weights=451b8db9f59cac8a")
    axes.save(tmp_path / "P" / "projection.npz")
    for more in ((), ("--pca", "8"), ("--encoder", "faces")):
        refused = invoke("audit", photos, "--control", tmp_path / "P", "--no-cache", *more)
        assert refused.exit_code == 2
        assert "Create it again from its labelled examples" in refused.stderr


def test_the_advice_for_old_vectors_in_parts_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "posts.csv").write_text("text\n" + "".join(f"word {n}\n" for n in range(30)))
    assert invoke("embed", tmp_path / "posts.csv", "-o", tmp_path / "parts/").exit_code == 0
    (part,) = (tmp_path / "parts").glob("*.arrow")
    table = pa.ipc.open_file(part).read_all()
    changed = {**table.schema.metadata, b"divscore.encoder": b"faces/1 weights=a pca=3:b"}
    with pa.ipc.new_file(str(part), table.schema.with_metadata(changed)) as writer:
        writer.write_table(table.replace_schema_metadata(changed))
    pool = ControlSet(np.eye(512)[:40] + 0.1, ["a"] * 20 + ["b"] * 20, attribute="letter")
    pool.encoder = "faces/2 weights=a"
    save_control(select_random(pool, 20), tmp_path / "C")
    done = invoke("audit", tmp_path / "parts", "--control", tmp_path / "C")
    assert f"'divscore embed SOURCE -o {tmp_path / 'parts'} --pca … --overwrite'" in done.stderr
