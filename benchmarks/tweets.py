"""The encoder `ngrams` on tweets: how fast it is on one core, and how well an audit tells dialects by its vectors.

Of the tweets, the 1,800 that the TwitterAAE model thinks most likely African-American English are AAE, and the
1,800 that it thinks most likely White-aligned English are WHE. Each split labels 200 random ones, of which the
first 50, 100 and 200 serve as control sets, and makes collections of 500 of the other 3,400 with 0, 10, … 100 %
AAE. `likelihood` and DivScore get the same labels. An answer of "cannot tell" counts as d = 0.

How many places a feature lands in, whether words and pairs of words count, and their weights were chosen among 16
variants on other splits of the same tweets and on the names of `divscore demo`.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import functools
import importlib.util
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import portraits
from numpy.typing import NDArray
from ppb import COVERAGE, SHARES, Answer, summarise
from record import (
    HERE,
    KEPT_TIMES,
    Check,
    Record,
    Table,
    keep_times,
    parser,
    repository_path,
    stored_tables,
)
from speed import Times, take_turns
from workers import each

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.encoders.ngrams import NgramEncoder

DATA = portraits.DATA.with_name("tweets_dialect.parquet")
GROUPS = {"AAE": "aa", "WHE": "white"}
EACH, SIZE, LABELS = 1_800, 500, (50, 100, 200)
ERROR = {100: 0.05}
RATE = 20_000
LOOPED = 1_000  # texts of the plain loop
OURS, FOLD, LOOP = "ngrams", "folding case and form alone", "letter groups and words in a plain loop"
LIBRARY = "letter groups alone, scikit-learn's HashingVectorizer"
METHODS = ("likelihood", "DivScore")
SPEEDS = "Tweets of"


class Dialects(NamedTuple):
    """The tweets of both groups, encoded."""

    vectors: NDArray[np.float32]
    first: NDArray[np.bool_]

    def control(self, rows: NDArray[np.intp]) -> ControlSet:
        """Label some tweets."""
        names = np.where(self.first[rows], *GROUPS)
        return ControlSet(self.vectors[rows], names, attribute="dialect", order=tuple(GROUPS))


@functools.cache
def texts(path: Path) -> tuple[list[str], list[NDArray[np.intp]]]:
    """All tweets, and the rows of each group."""
    import pyarrow.parquet as pq

    if not path.exists():
        raise SystemExit(
            f"the tweets are not at {path}; give the path of tweets_dialect.parquet (columns text, aa, white) "
            "with --data"
        )
    table = pq.read_table(path, columns=["text", *GROUPS.values()])
    rows = [np.argsort(-table[column].to_numpy(), kind="stable")[:EACH] for column in GROUPS.values()]
    if set(rows[0]) & set(rows[1]):
        raise SystemExit(f"{path}: some of the {EACH} likeliest tweets of one group are the other's too")
    return table["text"].to_pylist(), rows


@functools.cache
def load(path: Path) -> Dialects:
    """Encode the tweets of both groups."""
    found, rows = texts(path)
    encoded = NgramEncoder().encode([found[i] for i in np.concatenate(rows)])
    return Dialects(encoded.vectors, np.repeat([True, False], EACH))


def split_answers(split: int, *, path: Path, seed: int) -> list[Answer]:
    """Everything that is asked on one split."""
    data = load(path)
    rng = np.random.default_rng([seed, split])
    order = rng.permutation(len(data.vectors))
    rest = order[max(LABELS) :]
    sets = [collection(data, rest, share, rng) for share in SHARES]
    found = []
    for labels in LABELS:
        control = data.control(order[:labels])
        for share, rows in zip(SHARES, sets, strict=True):
            truth = float(2 * data.first[rows].mean() - 1)
            result = audit(data.vectors[rows], control, seed=split, show_untrusted=True)
            asked = (split, "dialect", labels)
            limits = result.interval.low, result.interval.high
            found.append(Answer(*asked, METHODS[0], share, truth, result.disparity, *limits))
            found.append(Answer(*asked, METHODS[1], share, truth, result.divscore))
    return found


def collection(
    data: Dialects, rows: NDArray[np.intp], share: float, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw a collection with this share of AAE."""
    count = round(share * SIZE)
    first = data.first[rows]
    ours, others = rng.permutation(rows[first])[:count], rng.permutation(rows[~first])[: SIZE - count]
    return np.concatenate([ours, others])


def report_errors(record: Record, answers: list[Answer]) -> None:
    """Table and checks of the audits."""
    by: dict[tuple[int, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        by[answer.labels, answer.method].append(answer)
    summaries = {key: summarise(found) for key, found in by.items()}
    columns = ["labels", "method", "error", "± s.e.", "bias", "coverage", "± s.e.", "width", "cannot tell"]
    record.tables.append(
        Table(
            "Mean absolute error of d, dialects",
            columns,
            [[*key, *t.values()] for key, t in summaries.items()],
        )
    )
    detail = [
        [labels, share, *summarise([a for a in by[labels, METHODS[0]] if a.share == share]).values()]
        for labels in LABELS
        for share in SHARES
    ]
    columns = ["labels", "share", *columns[2:]]
    record.tables.append(Table("likelihood by share of AAE", columns, detail, shown=False))
    for labels in LABELS:
        ours = summaries[labels, METHODS[0]]
        if labels in ERROR:
            record.checks.append(
                Check(f"likelihood error, dialects, {labels} labels", float(ours["mae"] or 0), ERROR[labels])
            )
        cover = float(ours["coverage"] or 0)
        record.checks.append(Check(f"coverage, dialects, {labels} labels", cover, COVERAGE, upper=False))


def plain_loop(found: list[str]) -> NDArray[np.float64]:
    """Count letter groups and words as one would write it down, with zlib's hash."""
    table = np.zeros((len(found), 512))
    for row, text in zip(table, found, strict=True):
        folded = text.strip().casefold()
        features = [
            f"\2{folded}\3"[at : at + size] for size in range(1, 5) for at in range(len(folded) + 3 - size)
        ]
        for feature in features + folded.split():
            bits = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
            for part in (bits & 0xFFFF, bits >> 16):
                row[part >> 7] += 1 - 2 * (part & 1)
    return np.asarray(table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1))


def speeds(found: list[str], repetitions: int) -> Times:
    """Time the encoder and its yardsticks in turn."""
    from divscore.encoders.ngrams import _fold

    encoder = NgramEncoder()
    sides: dict[str, Callable[[int], Any]] = {
        OURS: lambda _: encoder.encode(found),
        FOLD: lambda _: [_fold(text) for text in found],
        LOOP: lambda _: plain_loop(found[:LOOPED]),
    }
    if importlib.util.find_spec("sklearn"):
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer = HashingVectorizer(analyzer="char", ngram_range=(1, 4), n_features=512)
        sides[LIBRARY] = lambda _: vectorizer.transform(found[: 2 * LOOPED]).toarray()
    return take_turns(sides, repetitions, f"encoding {len(found):,} tweets")


def speed_table(times: Times, found: list[str]) -> Table:
    """Texts a second of every side."""
    rows: list[list[Any]] = []
    done = {LOOP: min(LOOPED, len(found)), LIBRARY: min(2 * LOOPED, len(found))}
    best = len(found) / min(times[OURS])
    for name, taken in times.items():
        count = done.get(name, len(found))
        rows.append(
            [name, count, round(count / min(taken)), round(count / median(taken)), best * min(taken) / count]
        )
    columns = ["side", "texts", "texts/s", "texts/s, median", "ngrams over it"]
    letters = sum(map(len, found)) / len(found)
    return Table(f"{SPEEDS} {letters:.0f} letters, one core", columns, rows)


def report_speeds(record: Record, found: list[str], repetitions: int, stored: Path | None) -> None:
    """Table and check of the speeds: measured, or those that are stored."""
    if stored is None:
        table = speed_table(speeds(found, repetitions), found)
    else:
        (table,) = stored_tables(stored, SPEEDS)
        record.notes.append(KEPT_TIMES)
    record.tables.append(table)
    best = next(float(row[2] or 0) for row in table.rows if row[0] == OURS)
    record.checks.append(Check("texts a second, ngrams, one core", best, RATE, upper=False))


def main() -> None:
    options = _options()
    found, _ = texts(options.data)
    record = Record(
        "tweets",
        {
            "data": repository_path(options.data),
            "encoder": NgramEncoder().identity,
            "splits": options.splits,
            "seed": options.seed,
            "labels": list(LABELS),
            "collection": SIZE,
            "shares": list(SHARES),
            "repetitions": options.repetitions,
        },
    )
    stored = HERE / "results" / "tweets.json" if options.keep_times else None
    report_speeds(record, found, options.repetitions, stored)
    shared = {"path": options.data, "seed": options.seed}
    report_errors(record, each(split_answers, range(options.splits), options.jobs, "dialects", **shared))
    record.finish(options.out)


def _options() -> argparse.Namespace:
    options = parser("tweets", (__doc__ or "").partition("\n")[0], data=DATA, splits=30, jobs=1)
    options.add_argument("--repetitions", type=int, default=5, help="of the speed measurement")
    keep_times(options)
    return options.parse_args()


if __name__ == "__main__":
    main()
