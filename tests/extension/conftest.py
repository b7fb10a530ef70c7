from __future__ import annotations

import csv
import heapq
import operator
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
from browsing import Browsing, Site, opened_browser, served
from webapp import Process, started_server

from divscore.control.controlfile import save_control
from divscore.encoders.registry import ENCODERS
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control

DATA = Path(__file__).parents[3] / "shared" / "data"
PORTRAITS, TWEETS = DATA / "ppb2017_images", DATA / "tweets_dialect.parquet"


@dataclass
class People:
    """Pictures by group, and a control set of others; `first` is the group whose share is asked for."""

    control: Path
    pictures: dict[str, list[tuple[str, bytes]]]
    first: str
    options: tuple[str, ...] = ()

    def drawn(self, *counts: int, start: int = 0, seed: int = 1) -> list[tuple[str, bytes]]:
        """Pictures of the groups, mixed."""
        some = [
            each
            for (_, own), number in zip(self.pictures.items(), counts, strict=True)
            for each in own[start : start + number]
        ]
        random.Random(seed).shuffle(some)
        return some


@dataclass
class Dialects:
    """Posts by dialect, and a control set of others; none where the data is absent."""

    control: Path | None
    posts: dict[str, list[str]]


def has_faces() -> bool:
    """Whether portraits, and what finds faces in them, are here."""
    return PORTRAITS.is_dir() and not ENCODERS["faces"].missing


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    """Portraits with the encoder `faces`; where these are absent, pictures of two colours with a tiny model."""
    folder = tmp_path_factory.mktemp("people")
    if has_faces():
        files = sorted(PORTRAITS.glob("*.jpg"))
        random.Random(0).shuffle(files)
        groups = {name: [f for f in files if f.stem.split("_")[2] == name[0]] for name in ("female", "male")}
        for name, own in groups.items():
            (folder / "labelled" / name).mkdir(parents=True)
            for file in own[:50]:
                shutil.copy(file, folder / "labelled" / name)
        with Encoding() as encoding:
            save_control(read_control(folder / "labelled", encoding), folder / "gender")
        pictures = {name: [(f.name, f.read_bytes()) for f in own[60:260]] for name, own in groups.items()}
        return People(folder / "gender", pictures, "female")
    import numpy as np

    model = tiny.image_model(folder / "tiny.onnx")
    tiny.folder(folder / "labelled", {"red": 60, "blue": 60}, 2)
    with Encoding(name="onnx", model=str(model)) as encoding:
        save_control(read_control(folder / "labelled", encoding), folder / "colour")
    rng = np.random.default_rng(5)
    pictures = {
        name: [(f"{name}{at}.png", tiny.png(tiny.picture(rng, name, 64))) for at in range(200)]
        for name in ("red", "blue")
    }
    return People(folder / "colour", pictures, "red", ("--encoder", "onnx", "--model", str(model)))


@pytest.fixture(scope="session")
def dialects(tmp_path_factory: pytest.TempPathFactory) -> Dialects:
    """A control set of 200 posts, and others by dialect: those with the largest posteriors, as the paper has them."""
    if not TWEETS.exists():
        return Dialects(None, {})
    import pyarrow.parquet as parquet

    rows = [row for row in parquet.read_table(TWEETS).to_pylist() if row["aa"] is not None]
    name = next(key for key in ("text", "tweet") if key in rows[0])
    groups = {}
    for label, column in (("AAE", "aa"), ("WHE", "white")):
        most = heapq.nlargest(1800, rows, key=operator.itemgetter(column))
        texts = list(dict.fromkeys(" ".join(row[name].split()) for row in most if len(row[name]) > 30))
        random.Random(3).shuffle(texts)
        groups[label] = texts
    folder = tmp_path_factory.mktemp("dialects")
    with open(folder / "labelled.csv", "w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["text", "dialect"])
        table.writerows([text, label] for label, own in groups.items() for text in own[:100])
    with Encoding() as encoding:
        save_control(read_control(folder / "labelled.csv", encoding), folder / "dialect")
    return Dialects(folder / "dialect", {label: own[100:] for label, own in groups.items()})


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A control set of made-up texts."""
    from webapp import write_texts

    folder = tmp_path_factory.mktemp("places")
    write_texts(folder / "labelled.csv", {"sea": 60, "wood": 60}, seed=3, groups=True)
    with Encoding() as encoding:
        save_control(read_control(folder / "labelled.csv", encoding), folder / "places")
    return folder / "places"


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A site that counts as public."""
    with served() as opened:
        yield opened


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Site]:
    """Another public site, for pictures."""
    with served() as opened:
        yield opened


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, people: People, places: Path, dialects: Dialects
) -> Iterator[Process]:
    """A server with the control sets of pictures (1), of made-up texts (2) and of posts (3)."""
    folder = tmp_path_factory.mktemp("project")
    paths = [path for path in (people.control, places, dialects.control) if path is not None]
    controls = [word for path in paths for word in ("--control", str(path))]
    with started_server(folder, *controls, "--port", "0", *people.options) as process:
        yield process


@pytest.fixture(scope="session")
def browsing(
    driver: Any,
    chromium: str,
    tmp_path_factory: pytest.TempPathFactory,
    site: Site,
    elsewhere: Site,
    server: Process,
) -> Iterator[Browsing]:
    """A browser with the extension, paired with the server."""
    profile = tmp_path_factory.mktemp("profile")
    with opened_browser(driver, chromium, profile, site.port, elsewhere.port) as opened:
        opened.pair(server)
        yield opened


@pytest.fixture(autouse=True)
def one_tab(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the tabs of a test, and go back to the first settings."""
    yield
    if "browsing" in request.fixturenames:
        opened: Browsing = request.getfixturevalue("browsing")
        opened.reset()
