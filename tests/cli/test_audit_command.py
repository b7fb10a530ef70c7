"""`divscore audit`: vectors, texts and images, from what is typed to what is printed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import invoke, run
from pyarrow import parquet
from tables import (
    D,
    vectors,
    write_table,
)

from divscore.paper.names import first_names


def test_audit_prints_the_headline_and_a_table(files):
    result = run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--attribute", "letter")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Between ")
    assert lines[2].split()[:3] == ["collection", "items", "a"]
    assert lines[3].split()[0] == "mostly_a"
    assert lines[3].split()[-1] == "good"


def test_json_is_the_contract(files):
    result = run("audit", "mostly_a.npy", "even.npy", "--control", "labelled.parquet", "--json", "-")
    found = json.loads(result.stdout)
    assert found["schema"] == "divscore.audit/1"
    assert found["groups"] == ["a", "b"]
    assert found["control"]["counts"] == {"a": 60, "b": 60}
    assert {"labelled", "representatives", "gamma", "gamma_control"} <= set(found["control"])
    first, second = found["collections"]
    assert (first["name"], first["count"]) == ("mostly_a", 600)
    assert set(first) >= {
        "name",
        "count",
        "skipped",
        "shares",
        "disparity",
        "interval",
        "divscore",
        "trust",
        "diagnostics",
        "warnings",
    }
    assert first["interval"][0] <= 0.5 <= first["interval"][1]
    assert second["interval"][0] <= 0.0 <= second["interval"][1]
    assert set(first["skipped"]) == {"zero", "nonfinite", "unreadable"}


def test_json_file_appears_beside_the_table(files):
    result = run("audit", "even.npy", "--control", "labelled.parquet", "--json", "out.json")
    assert "disparity" in result.stdout
    assert json.loads(Path("out.json").read_text())["collections"][0]["name"] == "even"
    assert [p.name for p in Path().glob("*.part")] == []


def test_by_equals_auditing_each_value_alone(files):
    together = json.loads(
        run("audit", "places.parquet", "--control", "labelled.parquet", "--by", "place", "--json", "-").stdout
    )
    rows = np.load("mostly_a.npy")
    for entry in together["collections"]:
        mine = rows[np.array(["north", "south", "east"])[np.arange(600) % 3] == entry["name"]]
        np.save("one.npy", mine)
        alone = json.loads(run("audit", "one.npy", "--control", "labelled.parquet", "--json", "-").stdout)
        for key in ("count", "disparity", "interval", "divscore"):
            assert entry[key] == pytest.approx(alone["collections"][0][key], abs=1e-9)


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet", "arrow", "csv", "jsonl"])
def test_every_format_gives_the_same_answer(files, suffix):
    rows = np.load("mostly_a.npy")
    path = f"same.{suffix}"
    if suffix == "npy":
        np.save(path, rows)
    elif suffix == "npz":
        np.savez(path, vectors=rows)
    elif suffix == "parquet":
        write_table(path, rows)
    elif suffix == "arrow":
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), D)
        table = pa.table({"embedding": lists})
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif suffix == "csv":
        header = ",".join(f"x{i}" for i in range(D))
        np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.9g")
    else:
        Path(path).write_text("".join(json.dumps({"v": row.tolist()}) + "\n" for row in rows))
    reference = json.loads(
        run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--json", "-").stdout
    )
    found = json.loads(run("audit", path, "--control", "labelled.parquet", "--json", "-").stdout)
    for key in ("count", "disparity", "interval", "divscore"):
        assert found["collections"][0][key] == pytest.approx(reference["collections"][0][key], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "limit", "code"),
    [
        ("mostly_a.npy", "0.9", 0),
        ("mostly_a.npy", "0.1", 1),
        ("mostly_a.npy", "0.5", 3),
        ("even.npy", "0.4", 0),
    ],
)
def test_exit_codes(files, name, limit, code):
    run("audit", name, "--control", "labelled.parquet", "--max-disparity", limit, code=code)


def test_cannot_tell_is_inconclusive(files):
    rng = np.random.default_rng(0)
    write_table("noise.parquet", rng.normal(size=(80, D)).astype(np.float32), letter=["a", "b"] * 40)
    result = run("audit", "even.npy", "--control", "noise.parquet", "--max-disparity", "0.2", code=3)
    assert result.stdout.startswith("Cannot tell")
    assert "cannot tell" in result.stderr
    found = json.loads(run("audit", "even.npy", "--control", "noise.parquet", "--json", "-").stdout)
    assert found["collections"][0]["disparity"] is None
    assert found["collections"][0]["interval"] == [-1.0, 1.0]


def test_order_of_groups_fixes_the_sign(files):
    a = json.loads(
        run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--groups", "a,b", "--json", "-").stdout
    )
    b = json.loads(
        run("audit", "mostly_a.npy", "--control", "labelled.parquet", "--groups", "b,a", "--json", "-").stdout
    )
    assert a["collections"][0]["disparity"] == -b["collections"][0]["disparity"]
    assert a["collections"][0]["interval"] == [-x for x in b["collections"][0]["interval"][::-1]]


def test_rectified_and_iid_need_the_sample(files):
    assert "labelled random sample" in run(
        "audit", "even.npy", "--control", "labelled.parquet", "--estimator", "rectified", code=2
    ).stderr.replace("\n", " ")
    rows = np.load("even.npy")
    pick = np.r_[0:25, 300:325]
    write_table("sample.parquet", rows[pick], letter=["a"] * 25 + ["b"] * 25)
    for estimator in ("rectified", "iid"):
        args = ("audit", "even.npy", "--control", "labelled.parquet", "--estimator", estimator)
        found = json.loads(run(*args, "--labelled-sample", "sample.parquet", "--json", "-").stdout)
        low, high = found["collections"][0]["interval"]
        assert low < 0 < high
        assert found["estimator"] == estimator


def test_paper_estimators(files):
    for estimator in ("divscore", "self-training"):
        args = ("audit", "mostly_a.npy", "--control", "labelled.parquet", "--estimator", estimator)
        entry = json.loads(run(*args, "--json", "-").stdout)["collections"][0]
        assert 0.2 < entry["disparity"] < 0.9


def test_intersections_and_marginals(files):
    rng = np.random.default_rng(2)
    corners = {("a", "x"): [1, 1], ("a", "y"): [1, -1], ("b", "x"): [-1, 1], ("b", "y"): [-1, -1]}

    def drawn(counts):
        rows, names = [], []
        for (name, corner), n in zip(corners.items(), counts, strict=True):
            shift = np.repeat(corner, D // 2)
            rows.append(rng.normal(size=(n, D)) + 0.9 * shift)
            names += [name] * n
        return np.concatenate(rows).astype(np.float32), names

    rows, names = drawn([40] * 4)
    write_table("joint.parquet", rows, first=[n[0] for n in names], second=[n[1] for n in names])
    rows, _ = drawn([400, 100, 300, 200])
    np.save("joint.npy", rows)
    result = run(
        "audit", "joint.npy", "--control", "joint.parquet", "--attribute", "first*second", "--json", "-"
    )
    entry = json.loads(result.stdout)["collections"][0]
    assert entry["most"] == "a × x"
    assert entry["shares"]["a × x"] == pytest.approx(0.4, abs=0.08)
    marginals = {m["attribute"]: m for m in entry["marginals"]}
    assert marginals["second"]["shares"]["x"] == pytest.approx(0.7, abs=0.08)
    assert sum(marginals["first"]["shares"].values()) == pytest.approx(1)


def test_skipped_rows_are_counted_listed_and_fatal_when_strict(files):
    rows = np.load("even.npy")
    rows[3] = 0
    rows[7, 2] = np.nan
    np.save("holes.npy", rows)
    args = ("audit", "holes.npy", "--control", "labelled.parquet")
    entry = json.loads(run(*args, "--json", "-").stdout)["collections"][0]
    assert entry["skipped"] == {"zero": 1, "nonfinite": 1, "unreadable": 0}
    assert entry["count"] == 598
    listed = run(*args, "--verbose").stderr
    assert "row 3" in listed
    assert "row 7" in listed
    assert "row 3" in run(*args, "--strict", code=2).stderr


def test_wrong_dimension(files):
    np.save("flat.npy", np.ones((30, D + 1), dtype=np.float32))
    assert "same encoder" in run("audit", "flat.npy", "--control", "labelled.parquet", code=2).stderr


def test_odd_names_stay_on_one_line(files):
    rows = np.load("even.npy")
    names = ["<script>\n\x1b[31m", "ünï 🙂", 'a "b", c'] * 200
    write_table("odd.parquet", rows, who=names)
    result = run("audit", "odd.parquet", "--control", "labelled.parquet", "--by", "who")
    assert len(result.stdout.splitlines()) == 4
    assert "\x1b" not in result.stdout
    found = json.loads(
        run("audit", "odd.parquet", "--control", "labelled.parquet", "--by", "who", "--json", "-").stdout
    )
    assert [c["name"] for c in found["collections"]] == names[:3]


def test_workers_do_not_change_the_answer(files):
    args = ("audit", "mostly_a.npy", "--control", "labelled.parquet", "--json", "-")
    assert run(*args, "--workers", "1").stdout == run(*args, "--workers", "3").stdout


def test_a_collection_of_one_item_each_says_nothing_of_the_item(files):
    rows = np.load("even.npy")[:6]
    write_table("six.parquet", rows, who=list("uvwxyz"))
    result = run("audit", "six.parquet", "--control", "labelled.parquet", "--by", "who")
    for line in result.stdout.splitlines()[1:]:
        assert line.split()[2] == "inconclusive"
        assert line.split()[-1] == "poor"


def test_odd_group_names_stay_on_one_line(files):
    rng = np.random.default_rng(3)
    names = ["fe|male\n<b>\x1b[31m"] * 40 + ["other"] * 40
    write_table("odd.parquet", vectors(rng, 40, 40), letter=names)
    result = run("audit", "even.npy", "--control", "odd.parquet", "--attribute", "letter")
    assert len(result.stdout.splitlines()) == 4
    assert "\x1b" not in result.stdout
    assert "\x1b" not in run("control", "show", "odd.parquet").stdout


def test_self_training_accounts_for_unreadable_rows(files):
    lines = [json.dumps({"v": row.tolist()}) for row in np.load("even.npy")]
    lines[5] = json.dumps({"v": None})
    Path("holes.jsonl").write_text("\n".join(lines) + "\n")
    args = ("audit", "holes.jsonl", "--control", "labelled.parquet", "--estimator", "self-training")
    entry = json.loads(run(*args, "--json", "-").stdout)["collections"][0]
    assert entry["skipped"]["unreadable"] == 1
    assert "none" in run(*args).stdout


@pytest.mark.slow
def test_ten_million_rows(files):
    rng = np.random.default_rng(8)
    pool = np.concatenate([rng.normal(1.5, 1, (60, 2)), rng.normal(-1.5, 1, (60, 2))]).astype(np.float32)
    write_table("flat.parquet", pool, letter=["a"] * 60 + ["b"] * 60)
    big = np.lib.format.open_memmap("big.npy", mode="w+", dtype=np.float32, shape=(10_000_000, 2))
    for start in range(0, len(big), 1_000_000):
        sign = np.where(np.arange(1_000_000) % 4 < 3, 1.5, -1.5)[:, None]
        big[start : start + 1_000_000] = rng.normal(size=(1_000_000, 2)) + sign
    big.flush()
    entry = json.loads(run("audit", "big.npy", "--control", "flat.parquet", "--json", "-").stdout)[
        "collections"
    ][0]
    assert entry["count"] == 10_000_000
    assert entry["interval"][0] <= 0.5 <= entry["interval"][1]


def test_files_of_the_same_name_are_told_apart(files):
    for folder in ("january", "march"):
        Path(folder).mkdir()
        Path(folder, "even.npy").write_bytes(Path("even.npy").read_bytes())
    both = ("january/even.npy", "march/even.npy")
    found = json.loads(run("audit", *both, "--control", "labelled.parquet", "--json", "-").stdout)
    assert [entry["name"] for entry in found["collections"]] == list(both)
    places = Path("places.parquet")
    Path("march/places.parquet").write_bytes(places.read_bytes())
    by = ("--control", "labelled.parquet", "--by", "place", "--json", "-")
    found = json.loads(run("audit", "places.parquet", "march/places.parquet", *by).stdout)
    names = [entry["name"] for entry in found["collections"]]
    assert len(set(names)) == 6
    assert "march/places.parquet: north" in names


def test_a_control_set_is_not_audited_by_itself(files):
    told = run("audit", "labelled.parquet", "--control", "labelled.parquet", code=2).stderr
    assert "is the control set itself" in told
    assert "divscore compare" in told


def test_a_divscore_that_is_noise_stands_in_brackets(files):
    rng = np.random.default_rng(1)
    # Groups that a direction tells apart, but whose members are of two opposite kinds, as unlike as anybody.
    rows = 0.1 * rng.normal(size=(300, 64))
    rows[:, 0] += np.repeat([0.1, -0.1], 150)
    rows[:, 1] += rng.choice([-1.0, 1.0], size=300)
    names = ["a"] * 150 + ["b"] * 150
    order = rng.permutation(300)
    half = order[:200]
    np.save("rest.npy", rows[order[200:]])
    table = pa.table({"embedding": list(rows[half]), "group": [names[at] for at in half]})
    parquet.write_table(table, "weak.parquet")
    options = ("--control", "weak.parquet", "--attribute", "group")
    sure = run("audit", "rest.npy", *options).stdout
    document = json.loads(run("audit", "rest.npy", *options, "--json", "-").stdout)
    noisy = " and ".join(document["control"]["noisy_groups"])
    assert document["collections"][0]["trust"] == "good"
    assert f"the representatives of {noisy} are hardly more similar" in sure
    assert f"({document['collections'][0]['divscore']:+.2f})" in sure
    assert "too noisy for DivScore" in run("control", "show", "weak.parquet", "--attribute", "group").stdout


# Texts and images


def test_a_list_of_names_is_audited(people: Path) -> None:
    done = run(
        "audit", people / "list.txt", "--control", people / "pool.csv", "--attribute", "sex", "--json", "-"
    )
    found = json.loads(done.stdout)
    assert found["encoder"].startswith("text/1")
    entry = found["collections"][0]
    assert (entry["name"], entry["count"]) == ("list", 400)
    assert entry["interval"][0] <= -0.5 <= entry["interval"][1]


def test_standard_input_gives_the_same(people: Path) -> None:
    common = ("--control", people / "pool.csv", "--attribute", "sex", "--json", "-")
    text = (people / "list.txt").read_text(encoding="utf-8")
    piped = json.loads(run("audit", "-", *common, input=text).stdout)["collections"][0]
    read = json.loads(run("audit", people / "list.txt", *common).stdout)["collections"][0]
    assert piped["name"] == "stdin"
    assert piped["interval"] == read["interval"]


def test_a_table_by_feed_counts_what_each_lost(people: Path) -> None:
    done = run(
        "audit",
        people / "feeds.csv",
        "--control",
        people / "pool.csv",
        "--attribute",
        "sex",
        "--by",
        "feed",
        "--json",
        "-",
    )
    entries = {entry["name"]: entry for entry in json.loads(done.stdout)["collections"]}
    assert {name: entry["count"] for name, entry in entries.items()} == {"a": 200, "b": 200}
    assert entries["a"]["skipped"]["empty"] == 1
    assert "empty" not in entries["b"]["skipped"]
    assert "400 of 401 items encoded; 1 had nothing to encode" in done.stderr
    told = invoke(
        "audit", people / "feeds.csv", "--control", people / "pool.csv", "--attribute", "sex", "--verbose"
    ).stderr
    assert "feeds.csv, 400: is empty" in told
    strict = invoke(
        "audit", people / "feeds.csv", "--control", people / "pool.csv", "--attribute", "sex", "--strict"
    )
    assert strict.exit_code == 2
    assert "feeds.csv, 400: is empty; fix or remove it" in strict.stderr


def test_a_gate_says_which_collections_it_stops(people: Path) -> None:
    common = (
        "audit",
        people / "feeds.csv",
        "--control",
        people / "pool.csv",
        "--attribute",
        "sex",
        "--by",
        "feed",
    )
    done = invoke(*common, "--max-disparity", "0.01")
    assert done.exit_code in {1, 3}
    assert "a: outside the limit of ±0.01" in done.stderr or "a: possibly outside the limit" in done.stderr
    passed = invoke(*common, "--max-disparity", "1")
    assert passed.exit_code == 0
    assert "gate: pass (2 of 2 within the limit of ±1)" in passed.stderr
    assert "outside" not in passed.stderr


def test_the_same_warning_of_several_collections_is_said_once(people: Path, tmp_path: Path) -> None:
    listed = (people / "list.txt").read_text(encoding="utf-8").split("\n")[:30]
    rows = "\n".join(f"{name},{'abc'[at % 3]}" for at, name in enumerate(listed))
    (tmp_path / "few.csv").write_text(f"name,feed\n{rows}\n", encoding="utf-8")
    done = run(
        "audit", tmp_path / "few.csv", "--control", people / "pool.csv", "--attribute", "sex", "--by", "feed"
    )
    assert "a, b, c: cannot tell: 10 items are too few" in done.stderr
    assert done.stderr.count("too few") == 1
    assert done.stdout.splitlines()[1].split() == ["a", "10", "inconclusive", "poor"]


def test_the_pools_column_may_be_named_as_the_collections(people: Path, tmp_path: Path) -> None:
    lines = (people / "pool.csv").read_text(encoding="utf-8").splitlines()
    cells = [line.split(",") for line in lines[1:]]
    rows = "\n".join(f"{name},{at % 90},{at % 7},town,{sex}" for at, (name, sex) in enumerate(cells))
    (tmp_path / "pool.csv").write_text(f"label,age,size,city,sex\n{rows}\n", encoding="utf-8")
    (tmp_path / "list.csv").write_text("label\n" + (people / "list.txt").read_text(encoding="utf-8"))
    common = ("--control", tmp_path / "pool.csv", "--attribute", "sex", "--json", "-")
    done = run("audit", tmp_path / "list.csv", "--column", "label", *common)
    assert json.loads(done.stdout)["encoder"].startswith("text/1")


def test_a_labelled_sample_of_texts(people: Path, tmp_path: Path) -> None:
    every = dict(zip(*first_names(), strict=True))
    sample = (people / "list.txt").read_text(encoding="utf-8").split("\n")[:60]
    rows = "\n".join(f"{name},{every[name]}" for name in sample)
    (tmp_path / "sample.csv").write_text(f"name,sex\n{rows}\n", encoding="utf-8")
    common = ("--control", people / "pool.csv", "--attribute", "sex", "--json", "-")
    done = run(
        "audit",
        people / "list.txt",
        *common,
        "--estimator",
        "rectified",
        "--labelled-sample",
        tmp_path / "sample.csv",
    )
    low, high = json.loads(done.stdout)["collections"][0]["interval"]
    assert low <= -0.5 <= high


def test_folders_of_pictures_by_folder_with_a_cache(pictures: Path, tmp_path: Path) -> None:
    common = ("--encoder", "onnx", "--model", pictures / "tiny.onnx", "--cache", tmp_path / "cache")
    asked = (
        "audit",
        pictures / "photos",
        "--control",
        pictures / "labelled",
        "--attribute",
        "colour",
        *common,
    )
    done = run(*asked, "--by", "folder", "--json", "-")
    entries = {entry["name"]: entry for entry in json.loads(done.stdout)["collections"]}
    assert entries["red"]["skipped"]["unreadable"] == 2
    assert entries["blue"]["skipped"]["unreadable"] == 0
    assert entries["red"]["disparity"] < -0.8
    assert entries["blue"]["disparity"] > 0.8
    assert len(list((tmp_path / "cache").glob("onnx-*.sqlite"))) == 1
    assert "1 file was not read (.mov): extract frames as JPEG" in done.stderr
    assert "these files are not images and were not read: 1 .xmp" in done.stderr
    kept = [line for line in done.stderr.splitlines() if line.startswith("kept")]
    assert kept == [
        f"kept the vectors of 180 items in {tmp_path / 'cache'} for later runs; --no-cache keeps none"
    ]
    again = run(*asked, "--by", "folder", "--json", "-")
    assert json.loads(again.stdout)["collections"] == json.loads(done.stdout)["collections"]
    assert "kept" not in again.stderr + run(*asked, "--no-cache").stderr  # nothing was added


def test_photos_without_a_decoder_are_counted(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heic = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf"
    photos = tmp_path / "photos"
    shutil.copytree(pictures / "photos" / "blue", photos)
    for number in range(20):
        (photos / f"{number}.heic").write_bytes(heic)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    asked = ("--control", pictures / "labelled", "--encoder", "onnx", "--model", pictures / "tiny.onnx")
    asked = (*asked, "--no-cache", "--workers", "1")
    done = run("audit", photos, *asked, "--json", "-")
    entry = json.loads(done.stdout)["collections"][0]
    assert (entry["count"], entry["skipped"]["unreadable"]) == (40, 20)
    assert entry["diagnostics"]["skipped_shift"] > 0.3
    assert entry["trust"] != "good"
    advice = "20 files were not read (.heic): run pip install pillow-heif, or convert to JPEG"
    assert advice in done.stderr
    assert "40 of 60 items encoded; 20 could not be read (--verbose lists them)" in done.stderr
    done = run("audit", photos, *asked, "--verbose")
    assert f"{photos}, 0.heic: is not supported; run pip install pillow-heif" in done.stderr
    done = run("audit", photos, *asked, "--strict", code=2)
    assert "0.heic: is not supported; run pip install pillow-heif" in done.stderr
    for path in photos.glob("*.png"):
        path.unlink()
    done = run("audit", photos, *asked, code=2)
    assert advice in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--encoder", "ngrams"), "the encoder 'ngrams' takes texts, not images"),
        (("--encoder", "onnx"), "the encoder 'onnx' needs --model"),
        (("--encoder", "onnx", "--model", "no/such.onnx"), "no/such.onnx"),
        (("-E", "colour"), "--encoder-option takes NAME=VALUE, got 'colour'"),
        (("--by", "country"), "has no column 'country'"),
        (("--pca", "none.npz"), "none.npz does not exist"),
    ],
)
def test_mistakes_are_one_clean_line(pictures: Path, arguments: tuple[str, ...], said: str) -> None:
    done = invoke("audit", pictures / "photos", "--control", pictures / "labelled", "--no-cache", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") <= 3
    assert "Traceback" not in done.stderr


def test_pictures_named_one_by_one_are_no_collections(pictures: Path) -> None:
    some = sorted((pictures / "photos" / "red").glob("0*.png"))[:3]
    done = invoke("audit", *some, "--control", pictures / "labelled")
    assert done.exit_code == 2
    assert "3 images were passed separately" in done.stderr


def test_figures_beside_texts_are_not_taken_for_vectors(people: Path, tmp_path: Path) -> None:
    every, sexes = first_names()
    rows = [
        f"my name is {n} you know,{i},{i * 2},{s}" for i, (n, s) in enumerate(zip(every, sexes, strict=True))
    ]
    (tmp_path / "pool.csv").write_text(
        "bio,likes,shares,sex\n" + "\n".join(rows[:120]) + "\n", encoding="utf-8"
    )
    (tmp_path / "posts.csv").write_text(
        "bio,likes,shares,sex\n" + "\n".join(rows[120:320]) + "\n", encoding="utf-8"
    )
    done = run(
        "audit",
        tmp_path / "posts.csv",
        "--control",
        tmp_path / "pool.csv",
        "--attribute",
        "sex",
        "--json",
        "-",
    )
    assert json.loads(done.stdout)["encoder"].startswith("text/1")


def test_vectors_of_an_unknown_encoder_are_not_compared_with_texts(people: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "pool.npz", embedding=rng.normal(size=(40, 512)), group=np.array(["a", "b"] * 20))
    done = invoke("audit", people / "list.txt", "--control", tmp_path / "pool.npz")
    assert done.exit_code == 2
    assert "does not say which encoder made its vectors" in done.stderr
    np.save(tmp_path / "v.npy", rng.normal(size=(40, 768)))
    told = invoke("audit", tmp_path / "v.npy", "--control", people / "pool.csv", "--attribute", "sex")
    assert "does not say which encoder made it; assuming the control set's, text/1" in told.stderr


def test_the_former_default_encoder_says_what_to_do(people: Path, tmp_path: Path) -> None:
    pool, listed = people / "pool.csv", people / "list.txt"
    for name in ("ngrams", "text"):
        control = ("--attribute", "sex", "--encoder", name, "-o", tmp_path / f"{name}-C")
        run("control", "select", pool, *control)
        run("embed", listed, "--encoder", name, "-o", tmp_path / f"{name}.arrow")
    # A control set of ngrams and vectors of text, and the other way round, are refused.
    for of_list, control in (("text", "ngrams"), ("ngrams", "text")):
        done = invoke("audit", tmp_path / f"{of_list}.arrow", "--control", tmp_path / f"{control}-C")
        assert done.exit_code == 2
        assert f"was encoded by '{of_list}/1 dimension=512" in done.stderr
        file = tmp_path / f"{of_list}.arrow"
        assert f"'divscore embed SOURCE -o {file} --encoder {control} --overwrite'" in done.stderr
        assert f"'divscore control select LABELLED -o CONTROL --encoder {of_list}'" in done.stderr
        assert "earlier version" not in done.stderr
        # Items that another encoder was asked for have no vectors to make again.
        asked = invoke("audit", listed, "--control", tmp_path / f"{control}-C", "--encoder", of_list)
        assert asked.exit_code == 2
        advice = f"leave out --encoder, or create the control set again with --encoder {of_list}"
        assert asked.stderr.rstrip().endswith(advice)
        assert "embed" not in asked.stderr
    # Texts follow the control set, which is said unless the encoder was asked for.
    followed = run("audit", listed, "--control", tmp_path / "ngrams-C", "--json", "-")
    assert json.loads(followed.stdout)["encoder"] == "ngrams/1 dimension=512"
    assert followed.stderr.count("For English, 'text' is more accurate: create the control set again") == 1
    assert "'divscore control select LABELLED -o CONTROL --encoder text'" in followed.stderr
    several = run("audit", listed, people / "feeds.csv", "--control", tmp_path / "ngrams-C")
    assert several.stderr.count("more accurate") == 1
    asked = run("audit", listed, "--control", tmp_path / "ngrams-C", "--encoder", "ngrams", "--json", "-")
    assert asked.stdout == followed.stdout
    assert "more accurate" not in asked.stderr


RUSSIAN = [
    "мать",
    "отец",
    "сестра",
    "брат",
    "дом",
    "город",
    "река",
    "утро",
    "письмо",
    "окно",
    "погода",
    "дорога",
]


def test_texts_in_another_language_are_noticed_once(people: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(RUSSIAN, 5)) for _ in range(120)]
    rows = [f"{text},{'ab'[at % 2]}" for at, text in enumerate(texts[:60])]
    (tmp_path / "pool.csv").write_text("\n".join(["text,group", *rows]) + "\n", encoding="utf-8")
    for name in ("posts.txt", "more.txt"):
        (tmp_path / name).write_text("\n".join(texts[60:]) + "\n", encoding="utf-8")
    said = "100% of the letters in these texts are in words that the encoder 'text' does not know"
    common = ("audit", tmp_path / "posts.txt", tmp_path / "more.txt", "--control", tmp_path / "pool.csv")
    told = run(*common)
    assert told.stderr.count(said) == 1
    assert "more" in told.stdout
    assert "letters" not in invoke(*common, "--encoder", "ngrams").stderr
    embedded = run("embed", tmp_path / "posts.txt", "-o", tmp_path / "posts.arrow")
    assert embedded.stderr.count(said) == 1
    assert "use --encoder ngrams, for the control set too: 'divscore control select " in embedded.stderr
    assert "letters" not in run("embed", people / "list.txt", "-o", tmp_path / "names.arrow").stderr
    # Who follows the advice is left in peace.
    run("control", "select", tmp_path / "pool.csv", "--encoder", "ngrams", "-o", tmp_path / "C")
    followed = invoke("audit", tmp_path / "posts.txt", "--control", tmp_path / "C")
    assert "more accurate" not in followed.stderr
    assert "letters" not in followed.stderr
    # A language shows after a few letters, not in one word.
    (tmp_path / "one.txt").write_text("мать\n", encoding="utf-8")
    assert "letters" not in run("embed", tmp_path / "one.txt", "-o", tmp_path / "one.arrow").stderr


def test_a_model_that_is_not_used_is_refused(people: Path) -> None:
    done = invoke(
        "audit",
        people / "list.txt",
        "--control",
        people / "pool.csv",
        "--attribute",
        "sex",
        "--model",
        "words.bin",
    )
    assert done.exit_code == 2
    assert "the encoder 'text' has no model" in done.stderr


def test_half_a_character_in_a_column(people: Path, tmp_path: Path) -> None:
    listed = (people / "list.txt").read_text(encoding="utf-8").split("\n")[:40]
    rows = "\n".join(json.dumps({"text": name, "feed": chr(0xDC00) + "x"}) for name in listed)
    (tmp_path / "a.jsonl").write_text(rows + "\n", encoding="utf-8")
    common = ("--control", people / "pool.csv", "--attribute", "sex", "--by", "feed")
    run("audit", tmp_path / "a.jsonl", *common, "--json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["collections"][0]["name"] == "?x"


def test_an_empty_picture_among_others_of_a_pattern(pictures: Path, tmp_path: Path) -> None:
    for path in sorted((pictures / "photos" / "red").glob("00*.png")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "none.png").touch()
    common = ("--encoder", "onnx", "--model", pictures / "tiny.onnx", "--no-cache", "--json", "-")
    done = run("audit", f"{tmp_path}/*.png", "--control", pictures / "labelled", *common)
    assert json.loads(done.stdout)["collections"][0]["skipped"]["unreadable"] == 1
