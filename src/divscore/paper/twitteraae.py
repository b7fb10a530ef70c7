"""TwitterAAE: tweets in African-American and in White English.

Reads it, and defines the paper's experiment on it (Section 6.3 and the appendix).

S. L. Blodgett, L. Green and B. O'Connor, "Demographic Dialectal Variation in Social Media", 2016. The file
``twitteraae_all`` has ten columns separated by tabs and no header: tweet id, time, user id, longitude and latitude,
census block group, text (a JSON string), and the posteriors of African-American, Hispanic, other and White English. The
paper keeps the tweets with a posterior of at least 0.99 for AAE or WHE (White English). Its authors' notebook also
wants the other two to sum to at most 0.1, which follows from it, cleans the texts and takes each text once. Texts are
cleaned as ``clean=tweets`` of the encoder ``word2vec`` does, for any encoder.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from divscore.encoders.word2vec import clean
from divscore.errors import FileError
from divscore.files import PathLike
from divscore.jobs.encode import Encoding
from divscore.paper.draws import Attribute, Settings, balanced_split
from divscore.paper.experiment import Experiment, Repetition
from divscore.paper.figures import error_figure, size_figure, sweep_figure
from divscore.paper.labelleddata import LabelledData, ListedItems, Progress, encode, not_there, quote
from divscore.paper.methods import all_methods, main_methods, size_methods
from divscore.paper.records import Batch
from divscore.paper.sections import TEXTS, Findings, Report, size_table, smaller_sets
from divscore.sources import open_table
from divscore.sources.items import ItemBatch, Items
from divscore.sources.table import PROBLEMS_KEPT
from divscore.text import quoted

SET = "TwitterAAE"
ORIGIN = "TwitterAAE from slanglab.cs.umass.edu/TwitterAAE/ (terms: research use)"
RELEASE = ("twitteraae_all", "twitteraae_all.tsv")
TABLES = frozenset({".parquet", ".arrow", ".feather", ".ipc", ".csv", ".jsonl", ".ndjson"})
AAE, WHE = "AAE", "WHE"
DIALECT = Attribute("dialect", "dialect", (AAE, WHE))
THRESHOLD, OTHERS = 0.99, 0.1
ENCODER = "ngrams"  # of the published results
LIKELIEST = 1_800
RUN = 4096
FIRST_LINES = 1000  # if none of so many lines has the right form, it is another file


class Tweets(Items):
    """The tweets whose dialect is certain, cleaned, read line by line; the column ``dialect`` has the group.

    Takes the file, its folder, or the zip archive as downloaded. After an iteration `lines` counts the file's lines,
    and `unreadable` and `problems` describe broken ones.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(os.fspath(path), SET, "text", {DIALECT.column: "text"})
        self.extra = (DIALECT.column,)
        self.lines = 0
        with _opened(Path(path)):
            pass  # a missing file is reported now

    def __iter__(self) -> Iterator[ItemBatch]:
        self.unreadable, self.problems, self.lines = 0, [], 0
        with _opened(Path(self.path)) as stream:
            rows = self._certain(stream)
            while run := list(islice(rows, RUN)):
                names, texts, dialects = zip(*run, strict=True)
                yield ItemBatch(texts, names, {DIALECT.column: dialects})

    def _certain(self, stream: IO[bytes]) -> Iterator[tuple[str, str, str]]:
        """Id, text and dialect of each tweet that is certain, every text once."""
        line = b""
        seen = {""}  # 1.2 million texts of 60 letters take 180 MB
        for self.lines, line in enumerate(stream, start=1):
            cells = line.rsplit(b"\t", 5)
            try:
                aa, white = float(cells[2]), float(cells[5])
                # Written in this way, NaN, which the release has, is never certain.
                if not (aa >= THRESHOLD or white >= THRESHOLD):
                    continue
                if not float(cells[3]) + float(cells[4]) <= OTHERS:
                    continue
                name = cells[0].partition(b"\t")[0].decode("utf-8", "replace").strip('"')
                text = cells[1].decode("utf-8", "replace")
                text = str(json.loads(text)) if text.startswith('"') else text
            except (ValueError, IndexError):
                self.unreadable += 1
                if len(self.problems) < PROBLEMS_KEPT:
                    self.problems.append(f"{self.path}, line {self.lines}: {quote(line)} has another form")
                if self.unreadable == self.lines == FIRST_LINES:
                    break
                continue
            text = plain(text)
            if text not in seen:
                seen.add(text)
                yield name, text, AAE if aa >= white else WHE
        if self.unreadable == self.lines:
            raise FileError(
                f"{self.path}: none of {self.lines} lines has the form of {RELEASE[0]}, the last is {quote(line)}; "
                "expected ten columns separated by tabs, the last five a text and the posteriors of African-American, "
                "Hispanic, other and White English"
            )


def plain(text: str) -> str:
    """A tweet without web addresses, mentions and the like, its words separated by one space."""
    return " ".join(clean(text).split())


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The release's lines, from the file, its folder or the archive."""
    file = next((path / name for name in RELEASE if (path / name).is_file()), path)
    if not file.is_file():
        raise not_there(path, f"file {RELEASE[0]}", ORIGIN)
    if file.suffix.lower() != ".zip":
        with open(file, "rb") as stream:
            yield stream
        return
    try:
        with zipfile.ZipFile(file) as archive:
            inside = next((n for n in archive.namelist() if n.rpartition("/")[2] in RELEASE), None)
            if inside is None:
                raise not_there(path, f"file {RELEASE[0]}", ORIGIN)
            with archive.open(inside) as member:
                yield member
    except zipfile.BadZipFile as error:
        raise FileError(f"{file} is truncated or damaged ({error}); download it again") from error


def load_twitteraae(
    path: PathLike,
    encoding: Encoding | None = None,
    *,
    each: int | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> LabelledData:
    """Read tweets of both dialects, with the column ``dialect`` (AAE, WHE).

    `path` is the release: the file ``twitteraae_all``, its folder, or the zip archive; or, as a stand-in, a table with
    the columns text, aa and white (posteriors). Texts are encoded, without `encoding` by ``ngrams``, as for the
    published results. `each` is the number of tweets of each dialect: from the release a random draw by `seed`, by
    default all, about 1.2 million; from a stand-in the likeliest, by default 1,800.
    """
    encoding = encoding or Encoding(ENCODER)
    if Path(path).suffix.lower() in TABLES:
        return encode(likeliest(path, each or LIKELIEST), encoding, progress, stand_in=True)
    tweets = Tweets(path)
    return encode(tweets if each is None else sample_tweets(tweets, each, seed), encoding, progress)


def sample_tweets(tweets: Tweets, each: int, seed: int = 0) -> ListedItems:
    """Draw tweets of each dialect at random in one pass (reservoir sampling)."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[tuple[str, str]]] = {AAE: [], WHE: []}
    counts = dict.fromkeys(drawn, 0)
    for batch in tweets:
        draws = rng.random(len(batch)).tolist()
        rows = zip(batch.ids, batch.contents, batch.values[DIALECT.column], draws, strict=True)
        for name, text, dialect, draw in rows:
            counts[dialect] += 1
            at = int(draw * counts[dialect])
            if len(drawn[dialect]) < each:
                drawn[dialect].append((name, str(text)))
            elif at < each:
                drawn[dialect][at] = (name, str(text))
    for dialect, chosen in drawn.items():
        if not chosen:
            raise FileError(
                f"{tweets.path} has no tweet that is certainly {dialect}; is it the whole release?"
            )
    items = _listed(tweets.path, drawn)
    items.unreadable, items.problems = tweets.unreadable, tweets.problems
    return items


def likeliest(path: PathLike, each: int = LIKELIEST) -> ListedItems:
    """From a table with text and posteriors, the tweets likeliest to be AAE and those likeliest to be WHE.

    A tweet belongs to the likelier dialect only. Of tweets with the same cleaned text the likeliest counts.
    """
    if not Path(path).exists():
        raise not_there(path, "table with the columns text, aa and white", ORIGIN)
    opened = open_table(path, vectors=False)
    missing = [name for name in ("text", "aa", "white") if name not in opened.columns]
    if missing:
        raise FileError(f"{path} has the columns {quoted(opened.columns)}, but not {quoted(missing)}")
    wanted = ("text", "aa", "white", *(["id"] if "id" in opened.columns else []))
    blocks = list(opened.select(extra=wanted))
    cells = {name: [text for block in blocks for text in block.values[name]] for name in wanted}
    ids = cells.get("id") or [str(row) for row in range(len(cells["text"]))]
    try:  # an empty cell is NaN, which is not likelier than anything
        aa, white = (np.array([c or "nan" for c in cells[w]], dtype=np.float64) for w in ("aa", "white"))
    except ValueError as error:
        raise FileError(f"{path}: a posterior is not a number ({error}); fix it or remove the row") from error
    texts = [plain(text) for text in cells["text"]]
    chosen = {}
    for dialect, posterior, member in ((AAE, aa, aa >= white), (WHE, white, aa < white)):
        rows = np.argsort(-posterior, kind="stable")
        first: dict[str, int] = {}
        for row in rows[member[rows]].tolist():
            first.setdefault(texts[row], row)
        chosen[dialect] = [(ids[row], text) for text, row in first.items() if text][:each]
        if not chosen[dialect]:
            raise FileError(f"{path} has no tweet that is likelier {dialect} than the other; both are needed")
    return _listed(os.fspath(path), chosen)


def _listed(path: str, chosen: dict[str, list[tuple[str, str]]]) -> ListedItems:
    ids, texts = zip(*(row for rows in chosen.values() for row in rows), strict=True)
    dialects = [dialect for dialect, rows in chosen.items() for _ in rows]
    return ListedItems(path, SET, "text", ItemBatch(texts, ids, {DIALECT.column: dialects}))


# The experiment.

OVERALL = -0.826  # the disparity of the whole set, at which the size of the control set is varied


def work(data: LabelledData, repetition: int, part: int, settings: Settings) -> Batch:
    """One split: both sweeps.

    Half of the labelled part is AAE: a random 200 of the whole set have about 17, too few for 25 of each group.
    """
    split = functools.partial(balanced_split, DIALECT.labels(data), settings.labels)
    here = Repetition(data, DIALECT, settings, all_methods(settings), split, repetition)
    here.compositions()
    here.sizes((1 + OVERALL) / 2)
    return here.batch


def report(findings: Findings) -> Report:
    """The claims, table and figures of TwitterAAE."""
    by_share, by_size = sorted(findings.at("f"), key=lambda p: float(p.at)), findings.at("size")
    claims = []
    for method in findings.select(("random-balanced", "adaptive")):
        means = [p.mean for p in by_share if p.method == method.key]
        values: dict[str, Any] = {
            "title": method.title,
            "first": means[0],
            "last": means[-1],
            "smallest_step": min(np.diff(means), default=1.0),
            "bias": findings.accuracy["dialect"][method.key].worst_bias,
        }
        claims.append((TEXTS["twitteraae"]["each"], values))
    errors = {(p.method, p.at): p.mae for p in by_share}
    at = [a for method, a in errors if method == "adaptive" and ("random-balanced", a) in errors]
    ahead = sum(errors["adaptive", a] < errors["random-balanced", a] for a in at)
    values = {"ahead": ahead, "count": len(at), "half": len(at) / 2}
    claims += [
        (TEXTS["twitteraae"]["claims"], values),
        smaller_sets(by_size, "dialect", f"disparity {OVERALL}"),
    ]
    shown = main_methods(findings.settings)
    sizes = size_methods(findings.settings.size, findings.settings.alpha)
    x_labels = {"dialect": "fraction f of AAE tweets in the collection"}
    figures = {
        "sweep": sweep_figure(findings.at("f"), shown, x_labels, 1.5),
        "errors": error_figure(findings.at("f"), shown, x_labels),
        "sizes": size_figure(by_size, sizes, ["dialect"]),
    }
    counts = (f"{(findings.data.columns[DIALECT.column] == name).sum():,} {name}" for name in (AAE, WHE))
    return Report(claims, {"sizes": size_table(findings, sizes)}, figures, {"counts": ", ".join(counts)})


DEFAULTS = Settings(repetitions=25, alpha=0.1, collection=1000)
EXPERIMENT = Experiment("twitteraae", DEFAULTS, (DIALECT,), work, report)
