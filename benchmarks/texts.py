"""The encoders of texts, `ngrams`, `tokens` and `text`, in turns: error and coverage of audits, speed, start and size.

Four sets of texts with two groups each: dialect of tweets (as in `tweets.py`), sex by first name (the names of
`divscore demo`), and two sets that nobody looked at while the encoders were made: sentences of film reviews that people
rated positive or negative (in the source package of vaderSentiment, MIT licence), and family names of Italy and Spain
(in the package Faker, MIT licence). Each split takes as many texts of one group as of the other, at most 1,800, labels
200 random ones, of which the first 50, 100 and 200 serve as control sets, and makes collections of 500 of the others,
or as many as there are, with 0, 10, … 100 % of the first group. All encoders get the same draws. "Cannot tell" counts
as d = 0.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import importlib.util
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import tweets
from numpy.typing import NDArray
from ppb import COVERAGE, SHARES, Answer, summarise
from record import HERE, Check, Record, Table, parser, repository_path
from speed import Times, take_turns
from workers import each

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.encoders.registry import EncoderSpec
from divscore.paper.names import first_names

ENCODERS = ("ngrams", "tokens", "text")
LABELS, SIZE = (50, 100, 200), tweets.SIZE
ERRORS = {"tweets": {50: 0.045, 100: 0.027, 200: 0.018}, "names": {50: 0.17, 200: 0.065}}
RATE, START, WHEEL = 25_000, 0.3, 8.0  # texts a second, seconds, MB
AUDITS, TRUST = 20, ("good", "caution", "poor")
REVIEWS = "movieReviewSnippets_GroundTruth.txt"
RATED = 0.5  # how far from neutral, of 4, a review must be


class Texts(NamedTuple):
    """Texts of two groups."""

    attribute: str
    groups: tuple[str, str]
    texts: list[str]
    first: NDArray[np.bool_]


class Sources(NamedTuple):
    """Where the texts are."""

    tweets: Path
    reviews: Path | None


def read_tweets(sources: Sources) -> Texts | None:
    """The tweets of both dialects."""
    if not sources.tweets.exists():
        return None
    texts, rows = tweets.texts(sources.tweets)
    first, second = tweets.GROUPS
    return joined(
        "dialect", **{name: [texts[i] for i in at] for name, at in zip((first, second), rows, strict=True)}
    )


def read_names(sources: Sources) -> Texts | None:
    """The first names of the demo."""
    names, sexes = first_names()
    by = {
        sex: [name for name, other in zip(names, sexes, strict=True) if other == sex]
        for sex in ("female", "male")
    }
    return joined("sex", **by)


def read_reviews(sources: Sources) -> Texts | None:
    """Sentences of film reviews with the mean rating of 20 people, −4 to 4."""
    if sources.reviews is None or not sources.reviews.exists():
        return None
    with tarfile.open(sources.reviews) as outer:
        (name,) = (name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz"))
        data = outer.extractfile(name)
        assert data is not None
        with tarfile.open(fileobj=io.BytesIO(data.read())) as inner:
            (name,) = (
                name for name in inner.getnames() if name.endswith(f"/{REVIEWS}") and "/._" not in name
            )
            file = inner.extractfile(name)
            assert file is not None
            lines = file.read().decode("utf-8", "replace").splitlines()
    rows = [line.split("\t") for line in lines if line.count("\t") >= 2]
    positive = [row[2] for row in rows if float(row[1]) > RATED]
    return joined("tone", positive=positive, negative=[row[2] for row in rows if float(row[1]) < -RATED])


def read_surnames(sources: Sources) -> Texts | None:
    """Family names of two countries, without those of both."""
    if importlib.util.find_spec("faker") is None:
        return None
    from faker.providers.person.es_ES import Provider as Spain
    from faker.providers.person.it_IT import Provider as Italy

    italy, spain = set(Italy.last_names), set(Spain.last_names)
    return joined("country", Italy=sorted(italy - spain), Spain=sorted(spain - italy))


SETS = {
    "tweets": read_tweets,
    "names": read_names,
    "film reviews": read_reviews,
    "family names": read_surnames,
}


def joined(attribute: str, **groups: list[str]) -> Texts:
    """Two groups as one list."""
    (first, ours), (second, others) = groups.items()
    return Texts(
        attribute, (first, second), [*ours, *others], np.repeat([True, False], [len(ours), len(others)])
    )


@functools.cache
def load(name: str, sources: Sources) -> tuple[Texts, dict[str, NDArray[np.float32]]]:
    """A set, and its vectors by every encoder."""
    data = SETS[name](sources)
    assert data is not None
    return data, {encoder: vectors_of(encoder, data.texts) for encoder in ENCODERS}


def vectors_of(encoder: str, texts: list[str]) -> NDArray[np.float32]:
    """Vectors; a text that `tokens` does not know gets zeros, and is skipped by the audit."""
    encoded = EncoderSpec(encoder, "text").load().encode(texts)
    vectors = np.zeros((len(texts), encoded.vectors.shape[1]), dtype=np.float32)
    vectors[encoded.owner] = encoded.vectors
    return vectors


def split_answers(split: int, *, sets: list[str], sources: Sources, seed: int) -> list[tuple[str, Answer]]:
    """Everything that is asked on one split."""
    found = []
    for number, name in enumerate(sets):
        data, vectors = load(name, sources)
        rng = np.random.default_rng([seed, split, number])
        both = [rng.permutation(np.flatnonzero(data.first == side)) for side in (True, False)]
        most = min(tweets.EACH, *map(len, both))
        order = rng.permutation(np.concatenate([rows[:most] for rows in both]))
        rest = order[max(LABELS) :]
        ours, others = rest[data.first[rest]], rest[~data.first[rest]]
        size = min(SIZE, len(ours), len(others))  # a small set gives smaller collections
        drawn = []
        for share in SHARES:
            count = round(share * size)
            drawn.append(
                np.concatenate([rng.permutation(ours)[:count], rng.permutation(others)[: size - count]])
            )
        for labels in LABELS:
            rows = order[:labels]
            groups = np.where(data.first[rows], *data.groups)
            for encoder, table in vectors.items():
                known = table[rows].any(axis=1)
                control = ControlSet(
                    table[rows][known], groups[known], attribute=data.attribute, order=data.groups
                )
                for share, chosen in zip(SHARES, drawn, strict=True):
                    truth = float(2 * data.first[chosen].mean() - 1)
                    result = audit(table[chosen], control, seed=split, show_untrusted=True)
                    limits = result.interval.low, result.interval.high
                    answer = Answer(
                        split, data.attribute, labels, encoder, share, truth, result.disparity, *limits
                    )
                    found.append((name, answer))
    return found


def report_errors(record: Record, answers: list[tuple[str, Answer]]) -> None:
    """Table and checks of the audits."""
    by: dict[tuple[str, int, str], list[Answer]] = defaultdict(list)
    for name, answer in answers:
        by[name, answer.labels, answer.method].append(answer)
    summaries = {key: summarise(found) for key, found in by.items()}
    columns = [
        "texts",
        "labels",
        "encoder",
        "error",
        "± s.e.",
        "bias",
        "coverage",
        "± s.e.",
        "width",
        "cannot tell",
    ]
    rows = [[*key, *summary.values()] for key, summary in summaries.items()]
    record.tables.append(Table("Mean absolute error of d by encoder", columns, rows))
    for (name, labels, encoder), summary in summaries.items():
        if encoder == "text":
            if labels in ERRORS.get(name, {}):
                limit = ERRORS[name][labels]
                record.checks.append(
                    Check(f"error, {name}, {labels} labels", float(summary["mae"] or 0), limit)
                )
            cover = float(summary["coverage"] or 0)
            record.checks.append(Check(f"coverage, {name}, {labels} labels", cover, COVERAGE, upper=False))


def report_sources(record: Record, sources: Sources, sets: list[str], seed: int) -> None:
    """How far audits trust a control set of tweets: for other tweets, and for texts from other sources."""
    data, vectors = load("tweets", sources)
    rows: list[list[Any]] = []
    for name in sets:
        for encoder in ENCODERS:
            trust = Counter[str]()
            for split in range(AUDITS):
                rng = np.random.default_rng([seed, split])
                order = rng.permutation(len(data.texts))
                labelled, rest = order[: max(LABELS)], order[max(LABELS) :]
                groups = np.where(data.first[labelled], *data.groups)
                table = vectors[encoder]
                control = ControlSet(table[labelled], groups, attribute=data.attribute, order=data.groups)
                others = table[rest] if name == "tweets" else rng.permutation(load(name, sources)[1][encoder])
                trust[audit(others[:SIZE], control, seed=split).trust] += 1
            rows.append([name, encoder, *(trust[word] for word in TRUST)])
    columns = ["collection", "encoder", *TRUST]
    record.tables.append(Table(f"Trust with 200 labelled tweets, of {AUDITS} audits", columns, rows))
    wrong = sum(row[2] for row in rows if row[0] != "tweets" and row[1] == "text")
    record.checks.append(Check("good audits of texts from another source", wrong, 0))


def report_speeds(record: Record, found: list[str], repetitions: int) -> None:
    """Texts a second, by encoder, in turns."""
    loaded = {name: EncoderSpec(name, "text").load() for name in ENCODERS}
    sides = {
        name: functools.partial(lambda encoder, _: encoder.encode(found), encoder)
        for name, encoder in loaded.items()
    }
    times: Times = take_turns(sides, repetitions, f"encoding {len(found):,} tweets")
    best = min(times["ngrams"])
    rows: list[list[Any]] = [
        [
            name,
            len(found),
            round(len(found) / min(taken)),
            round(len(found) / median(taken)),
            min(taken) / best,
        ]
        for name, taken in times.items()
    ]
    columns = ["encoder", "texts", "texts/s", "texts/s, median", "time over ngrams"]
    letters = sum(map(len, found)) / len(found)
    record.tables.append(Table(f"Tweets of {letters:.0f} letters, one core", columns, rows))
    rate = len(found) / min(times["text"])
    record.checks.append(Check("texts a second, text, one core", rate, RATE, upper=False))


def report_start(record: Record, repetitions: int) -> None:
    """Seconds from a new process to the first vector, in turns."""
    code = (
        "from divscore.encoders.registry import EncoderSpec as E; E({!r}, 'text').load().encode(['Anna é'])"
    )
    sides = {
        name: functools.partial(
            lambda name, _: subprocess.run([sys.executable, "-c", code.format(name)], check=True), name
        )
        for name in ENCODERS
    }
    times = take_turns(sides, repetitions, "import and first text")
    rows: list[list[Any]] = [[name, min(taken), median(taken)] for name, taken in times.items()]
    record.tables.append(Table("From a new process to the first vector", ["encoder", "s", "s, median"], rows))
    more = median(times["text"]) - median(times["ngrams"])
    record.checks.append(Check("import and first text, more than ngrams", more, START, unit=" s"))


def report_size(record: Record) -> None:
    """The wheel, and the largest files in it."""
    from hatchling.builders.wheel import WheelBuilder

    with tempfile.TemporaryDirectory() as folder:
        (wheel,) = WheelBuilder(str(HERE.parent)).build(directory=folder, versions=["standard"])
        size = os.path.getsize(wheel) / 1e6
        with zipfile.ZipFile(wheel) as archive:
            largest = sorted(archive.infolist(), key=lambda info: -info.compress_size)[:4]
    rows: list[list[Any]] = [["all", size], *([info.filename, info.compress_size / 1e6] for info in largest)]
    record.tables.append(Table("The wheel", ["file", "MB"], rows))
    record.checks.append(Check("wheel", size, WHEEL, unit=" MB"))


def main() -> None:
    options = _options()
    sources = Sources(options.data, options.reviews)
    sets = [name for name, read in SETS.items() if read(sources) is not None]
    record = Record(
        "texts",
        {
            "data": repository_path(options.data),
            "encoders": [EncoderSpec(name, "text").load().identity for name in ENCODERS],
            "sets": sets,
            "splits": options.splits,
            "seed": options.seed,
            "labels": list(LABELS),
            "collection": SIZE,
            "shares": list(SHARES),
            "repetitions": options.repetitions,
        },
    )
    for name in SETS:
        if name not in sets:
            record.notes.append(f"{name} were left out: the texts are missing")
    if "tweets" in sets:
        report_speeds(record, tweets.texts(options.data)[0], options.repetitions)
    report_start(record, options.repetitions)
    report_size(record)
    shared = {"sets": sets, "sources": sources, "seed": options.seed}
    report_errors(record, each(split_answers, range(options.splits), options.jobs, "audits", **shared))
    if "tweets" in sets:
        report_sources(record, sources, sets, options.seed)
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("texts", (__doc__ or "").partition("\n")[0], data=tweets.DATA, splits=60, jobs=2)
    options.add_argument(
        "--reviews",
        type=Path,
        help="vaderSentiment-3.3.2.tar.gz (pip download --no-deps --no-binary :all: vaderSentiment==3.3.2)",
    )
    options.add_argument("--repetitions", type=int, default=5, help="of the measurements of time")
    return options.parse_args()


if __name__ == "__main__":
    main()
