"""Files that several commands are tested with."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from commands import run
from tables import (
    AUDIT,
    BEYOND,
    EACH,
    EVEN,
    GROWN,
    LABELLED,
    LITTLE_MORE,
    MORE,
    USERS,
    Whole,
    mixed,
    vectors,
    write_list,
    write_rows,
    write_table,
)
from tables import names as sorted_names

from divscore.paper.names import first_names


@pytest.fixture
def files(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.chdir(tmp_path)
    write_table("labelled.parquet", vectors(rng, 60, 60), letter=["a"] * 60 + ["b"] * 60)
    mixed = vectors(rng, 450, 150)
    np.save("mostly_a.npy", mixed)
    np.save("even.npy", vectors(rng, 300, 300))
    place = np.array(["north", "south", "east"])[np.arange(600) % 3]
    write_table("places.parquet", mixed, place=place.tolist())
    return tmp_path


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool of 200 labelled names, a list of 400 others (100 of women), and the same as a table of two feeds."""
    root = tmp_path_factory.mktemp("names")
    rng = np.random.default_rng(0)
    every, sexes = first_names()
    women = rng.permutation([n for n, s in zip(every, sexes, strict=True) if s == "female"])
    men = rng.permutation([n for n, s in zip(every, sexes, strict=True) if s == "male"])
    with open(root / "pool.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "sex"])
        writer.writerows([[name, "female"] for name in women[:100]] + [[name, "male"] for name in men[:100]])
    listed = rng.permutation(np.concatenate([women[100:200], men[100:400]])).tolist()
    (root / "list.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    with open(root / "feeds.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text", "likes", "feed"])
        writer.writerows([[at, name, at % 9, "ab"[at % 2]] for at, name in enumerate(listed)])
        writer.writerow([400, "", 0, "a"])
    return root


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    tiny.image_model(root / "tiny.onnx")
    tiny.folder(root / "labelled", {"red": 40, "blue": 40}, 2)
    tiny.folder(root / "photos", {"red": 60, "blue": 40}, 3)
    (root / "photos" / "red" / "bad.png").write_bytes(b"no picture")
    (root / "photos" / "red" / "phone.MOV").write_bytes(b"not read")
    (root / "photos" / "red" / "phone.xmp").write_bytes(b"about a photo")
    return root


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Users from hardly any 'a' to hardly any 'b', in mixed order; the first has no name, the last hardly any items."""
    folder = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(5)
    labels = np.repeat(["a", "b"], 60)
    write_table(folder / "labelled.parquet", mixed(rng, labels == "a"), letter=labels.tolist())
    user = np.repeat(rng.permutation(USERS), EACH)
    user = user[(user != USERS - 1) | (np.cumsum(user == USERS - 1) <= 5)]
    names = [None if each == 0 else f"user{each:02d}" for each in user]
    write_table(folder / "posts.parquet", mixed(rng, rng.random(len(user)) < user / USERS), user=names)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table = run(*AUDIT, "--json", "r.json", "--report", "r.html", "--report", "r.md").stdout
    return Whole(folder, table.splitlines(), json.loads((folder / "r.json").read_text())["collections"])


@pytest.fixture
def posts(whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files of an audit, which may be changed."""
    for name in ("labelled.parquet", "posts.parquet"):
        (tmp_path / name).write_bytes((whole.folder / name).read_bytes())
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labelled names, lists, and the JSON of their audits."""
    folder = tmp_path_factory.mktemp("names")
    women, men = sorted_names()
    labelled = [(n, "female") for n in women[:LABELLED]] + [(n, "male") for n in men[:LABELLED]]
    write_rows(folder / "labelled.csv", ("name", "sex"), *labelled)
    lists = {"even": EVEN, "grown": GROWN, "little": LITTLE_MORE, "more": MORE, "beyond": BEYOND}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVSCORE_CACHE", str(folder / "cache"))
        for name, counts in lists.items():
            write_list(folder / f"{name}.csv", counts)
            run_audit(folder, f"{name}.csv", "--json", str(folder / f"{name}.json"))
    return folder


def run_audit(folder: Path, *args: str) -> None:
    paths = [str(folder / a) if a.endswith(".csv") else a for a in args]
    control = ["--control", str(folder / "labelled.csv"), "--attribute", "sex"]
    run("audit", *paths, *control)
