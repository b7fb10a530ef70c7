"""TwitterAAE: reading the release and a stand-in, and the experiment."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from conftest import PPB
from experiments import run

from divscore.errors import FileError
from divscore.jobs.encode import Encoding
from divscore.paper.experiment import reproduce
from divscore.paper.labelleddata import LabelledData
from divscore.paper.twitteraae import EXPERIMENT, Tweets, likeliest, load_twitteraae, plain, sample_tweets

STAND_IN = PPB.parent / "tweets_dialect.parquet"
TEXTS = ("he finna go \U0001f602 now", "literally so good", "just enough", "all of it")


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


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6,000 tweets, every fifth of them AAE."""
    folder = tmp_path_factory.mktemp("release")
    lines = (tweet(i, f"tweet no{i}", 0.995 * (i % 5 == 0), 0.995 * (i % 5 > 0)) for i in range(6000))
    (folder / "twitteraae_all").write_text("".join(lines))
    return folder


def read(tweets: Tweets) -> tuple[list[Any], list[Any], list[Any]]:
    runs = list(tweets)
    return (
        [text for batch in runs for text in batch.contents],
        [name for batch in runs for name in batch.ids],
        [group for batch in runs for group in batch.values["dialect"]],
    )


def test_certain_tweets_once_each(release: Path) -> None:
    tweets = Tweets(release)
    texts, ids, dialects = read(tweets)
    assert tuple(texts) == TEXTS
    assert dialects == ["AAE", "WHE", "AAE", "WHE"]
    assert ids == [str(286475921177853953 + i) for i in (0, 1, 7, 8)]
    assert (tweets.lines, tweets.unreadable, tweets.problems) == (10, 0, [])
    assert read(tweets) == (texts, ids, dialects)


def test_folder_and_archive(release: Path, tmp_path: Path) -> None:
    expected = read(Tweets(release))
    assert read(Tweets(release.parent)) == expected
    with zipfile.ZipFile(tmp_path / "full.zip", "w") as archive:
        archive.writestr("TwitterAAE-full-v1/README", "read me")
        archive.write(release, "TwitterAAE-full-v1/twitteraae_all")
    assert read(Tweets(tmp_path / "full.zip")) == expected
    (tmp_path / "broken.zip").write_bytes((tmp_path / "full.zip").read_bytes()[:300])
    with pytest.raises(FileError, match="truncated or damaged"):
        Tweets(tmp_path / "broken.zip")


def test_broken_lines_are_counted(release: Path) -> None:
    broken = "only\tthree\tcells\n" + tweet(9, "x", 0.995, 0.0).replace("0.995", "high")
    release.write_text(release.read_text(encoding="utf-8") + broken, encoding="utf-8")
    tweets = Tweets(release)
    assert tuple(read(tweets)[0]) == TEXTS
    assert (tweets.lines, tweets.unreadable) == (12, 2)
    assert re.search(r"line 11: 'only\\tthree\\tcells' has another form", tweets.problems[0])
    for each in (None, 1):
        assert load_twitteraae(release, each=each).unreadable == 2


@pytest.mark.parametrize(
    "text", ["", "1\t0.99\t0.0\t0.0\t0.01\n" * 5, "a,b,c\n" * 1500], ids=["empty", "limited", "CSV"]
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "twitteraae_all").write_text(text)
    lines = min(1000, text.count("\n"))
    with pytest.raises(FileError, match=f"none of {lines} lines has the form of .*expected ten columns"):
        list(Tweets(tmp_path))


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no file twitteraae_all\. .*slanglab\.cs\.umass\.edu/TwitterAAE/"):
        load_twitteraae(tmp_path)
    with pytest.raises(FileError, match=r"no table with the columns text, aa and white\. .*slanglab"):
        load_twitteraae(tmp_path / "stand-in.parquet")
    (tmp_path / "twitteraae_all").write_text(tweet(0, "x", 0.0, 0.995))
    with pytest.raises(FileError, match="no tweet that is certainly AAE"):
        load_twitteraae(tmp_path, each=3)


def test_load_encodes_all(release: Path, large: Path) -> None:
    with Encoding("ngrams") as encoding:
        data = load_twitteraae(release, encoding)
        expected = encoding.encoder("text").encode(TEXTS).vectors
        assert len(load_twitteraae(large, encoding)) == 6000
    assert np.array_equal(data.vectors, expected)
    assert data.columns["dialect"].tolist() == ["AAE", "WHE", "AAE", "WHE"]
    assert str(data.encoder).startswith("ngrams/")
    assert not data.stand_in
    # Without an encoding it is that of the published results; one that is given stays as it is.
    assert load_twitteraae(release).encoder == data.encoder
    with Encoding() as own:
        assert str(load_twitteraae(release, own).encoder).startswith("text/")
        assert own.name is None


def test_random_sample_of_each(large: Path) -> None:
    tweets = Tweets(large)
    assert [len(batch) for batch in tweets] == [4096, 1904]
    drawn = sample_tweets(tweets, 400, seed=1)
    rows = [int(str(text).removeprefix("tweet no")) for batch in drawn for text in batch.contents]
    groups = [group for batch in drawn for group in batch.values["dialect"]]
    assert groups == ["AAE"] * 400 + ["WHE"] * 400
    assert len(set(rows)) == 800
    assert all((row % 5 == 0) == (group == "AAE") for row, group in zip(rows, groups, strict=True))
    # Uniform over the file: the mean of 400 of 0 … 5999 is 3000 ± 87.
    assert np.mean(rows[:400]) == pytest.approx(3000, abs=350)
    assert np.mean(rows[400:]) == pytest.approx(3000, abs=350)
    again, other = sample_tweets(tweets, 400, seed=1), sample_tweets(tweets, 400, seed=2)
    assert [batch.ids for batch in again] == [batch.ids for batch in drawn]
    assert [batch.ids for batch in other] != [batch.ids for batch in drawn]
    assert len(load_twitteraae(large, each=2000)) == 3200


def stand_in(path: Path, **changed: Any) -> Path:
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


def test_a_stand_in_gives_the_likeliest(tmp_path: Path) -> None:
    path = stand_in(tmp_path / "t.parquet")
    two = load_twitteraae(path, each=2)
    assert two.stand_in
    assert two.ids == ("0", "2", "1", "5")
    assert two.columns["dialect"].tolist() == ["AAE", "AAE", "WHE", "WHE"]
    # The same text once cleaned: the likelier one counts.
    alike = stand_in(tmp_path / "alike.parquet", text=["x", "y", "@maya x", "z", "q", "y http://t.co/1"])
    assert load_twitteraae(alike, each=2).ids == ("0", "3", "1")
    # Never of both, and never without a posterior.
    assert load_twitteraae(path).ids == ("0", "2", "3", "1", "5")
    named = stand_in(tmp_path / "named.parquet", id=[10, 11, 12, 13, 14, 15])
    assert load_twitteraae(named, each=1).ids == ("10", "11")


@pytest.mark.parametrize(
    ("white", "message"),
    [(None, "but not 'white'"), ([0.0] * 6, "no tweet that is likelier WHE"), (["low"] * 6, "not a number")],
)
def test_a_stand_in_of_another_form(tmp_path: Path, white: Any, message: str) -> None:
    with pytest.raises(FileError, match=message):
        likeliest(stand_in(tmp_path / "t.parquet", white=white))


# The experiment


def dialects(count: int = 400) -> LabelledData:
    rng = np.random.default_rng(2)
    names = np.repeat(["AAE", "WHE"], [count // 4, count - count // 4])
    vectors = rng.normal(size=(count, 8))
    vectors[:, 0] += np.where(names == "AAE", 1.5, -1.5)
    return LabelledData("tweets", vectors, {"dialect": names}, tuple(map(str, range(count))), "ngrams/1")


def test_the_size_is_varied_at_the_sets_own_disparity_and_a_stand_in_is_reported() -> None:
    settings = replace(EXPERIMENT.defaults, repetitions=1, labels=40, size=10, collection=80, sizes=(10, 20))
    found = reproduce(EXPERIMENT, dialects(), replace(settings, shares=(0.0, 0.5, 1.0)))
    sizes = found.tables["sizes"]
    assert sizes.column("size") == [10, 20]
    assert sizes.column("true d") == pytest.approx([-0.826] * 2, abs=0.02)
    assert "stand-in" not in found.markdown()
    other = reproduce(
        EXPERIMENT, replace(dialects(), stand_in=True), replace(settings, shares=(0.5,), sizes=(10,))
    )
    assert "stand-in, not tweets" in other.markdown()


def test_the_papers_defaults() -> None:
    settings = EXPERIMENT.defaults
    assert (settings.repetitions, settings.labels, settings.alpha, settings.collection) == (
        25,
        200,
        0.1,
        1000,
    )


@pytest.mark.slow
def test_reproduce_takes_word_vectors_if_a_model_is_given(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    defaults = replace(EXPERIMENT.defaults, shares=(0.0, 0.5, 1.0), sizes=(10,))
    monkeypatch.setattr("divscore.paper.twitteraae.EXPERIMENT", replace(EXPERIMENT, defaults=defaults))
    rng = np.random.default_rng(5)
    words = [f"word{letter}" for letter in "abcdefghij"]
    dialect = np.repeat([0, 1], 150)
    texts = [
        " ".join([*rng.choice(words[:7] if d else words[3:], size=6), f"name{i}", f"http://t.co/{i}"])
        for i, d in enumerate(dialect)
    ]
    aa = np.where(dialect == 0, 0.9, 0.05)
    parquet.write_table(pa.table({"text": texts, "aa": aa, "white": 0.95 - aa}), "tweets.parquet")
    lines = [f"{w} " + " ".join(f"{x:.4f}" for x in rng.normal(size=6)) for w in words]
    Path("words.txt").write_text(f"{len(words)} 6\n" + "\n".join(lines) + "\n")
    given = ("reproduce", "twitteraae", "--data", "tweets.parquet")
    options = ("--repetitions", 1, "--labels", 40, "--size", 10, "--collection-size", 60, "--workers", 1)
    run(*given, "--model", tmp_path / "words.txt", "--no-cache", *options)
    document = json.loads(Path("results/twitteraae/results.json").read_text())
    assert document["settings"]["encoder"].startswith("word2vec/1 stopwords=on")
    options_shown = "--repetitions 1 --labels 40 --size 10 --collection-size 60 --model words.txt"
    assert document["command"] == f"divscore reproduce twitteraae --data PATH {options_shown}"
    assert "--vectors is for 'celeba'" in run(*given, "--vectors", "x.npy", code=2).stderr


@pytest.mark.slow
def test_the_real_stand_in() -> None:
    if not STAND_IN.exists():
        pytest.skip(f"the tweets with posteriors are not at {STAND_IN}")
    columns = parquet.read_table(STAND_IN, columns=["id", "text", "aa", "white"])
    ids, texts = columns["id"].to_numpy(), [plain(text) for text in columns["text"].to_pylist()]
    expected = []
    for name in ("aa", "white"):
        first: dict[str, int] = {}
        for row in np.argsort(-columns[name].to_numpy(), kind="stable").tolist():
            first.setdefault(texts[row], row)
        expected += list(first.values())[:400]
    data = load_twitteraae(STAND_IN, each=400)
    assert data.ids == tuple(str(ids[row]) for row in expected)
    assert data.columns["dialect"].tolist() == ["AAE"] * 400 + ["WHE"] * 400
    settings = replace(
        EXPERIMENT.defaults, repetitions=1, collection=200, shares=(0.0, 0.5, 1.0), sizes=(20,)
    )
    errors = {
        row["method"]: row["error"]
        for row in reproduce(EXPERIMENT, data, settings).tables["accuracy"].records
    }
    assert errors["likelihood, all 200 labels"] < 0.2
