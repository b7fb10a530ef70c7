"""TwitterAAE: tweets in African-American and in White English.

S. L. Blodgett, L. Green and B. O'Connor, "Demographic Dialectal Variation in Social Media", 2016. Texts are cleaned as
``clean=tweets`` of the encoder ``word2vec`` does, whatever encodes them, and each counts once.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.word2vec import clean
from divscore.errors import FileError, InputError
from divscore.jobs.encode import Encoding
from divscore.paper.labelleddata import (
    LabelledData,
    ListedItems,
    Origin,
    Progress,
    encoded,
    joined,
    shown,
    text_columns,
)
from divscore.sources import open_table
from divscore.sources.items import ItemBatch, Items
from divscore.sources.places import quoted
from divscore.sources.table import PROBLEMS_KEPT

__all__ = [
    "AAE",
    "DIALECT",
    "ORIGIN",
    "SET",
    "WHE",
    "Tweets",
    "likeliest",
    "load_twitteraae",
    "plain",
    "sample_tweets",
]


# Tweets: the lines of TwitterAAE's release of whose dialect its model is certain.
#
# The file ``twitteraae_all`` has ten columns apart by tabs and no header: tweet id, time, user id, longitude and
# latitude, census block group, text (a JSON string), and the posteriors of African-American, Hispanic, other and White
# English. The paper keeps the tweets with a posterior of at least 0.99 for AAE or WHE (White English). Its authors'
# notebook also wants the other two to sum to at most 0.1, which follows from it, cleans the texts and takes every one
# once.

SET = "TwitterAAE"
ORIGIN = Origin("TwitterAAE", "slanglab.cs.umass.edu/TwitterAAE/", "research use")
RELEASE = ("twitteraae_all", "twitteraae_all.tsv")
DIALECT, AAE, WHE = "dialect", "AAE", "WHE"
THRESHOLD, OTHERS = 0.99, 0.1
RUN = 4096
TRIED = 1000  # lines, of which at least one must be as expected
DIGEST = 8  # bytes by which a text is remembered: 1.2 million of them collide once in 25 million releases

Row = tuple[str, str, str]


class Tweets(Items):
    """Certain tweets, cleaned, read line by line at every iteration; the column ``dialect`` tells the group.

    Takes the file, a folder with it, or the zip archive as downloaded. After an iteration `lines` counts the file's
    lines, and `unreadable` and `problems` speak of those that are not of the format.
    """

    def __init__(
        self, path: str | os.PathLike[str], threshold: float = THRESHOLD, others: float = OTHERS
    ) -> None:
        super().__init__(os.fspath(path), SET, "text", {DIALECT: "text"})
        self.extra = (DIALECT,)
        self.threshold, self.others = threshold, others
        self.lines = 0
        with _opened(Path(path)):
            pass  # a missing file is told now

    def __iter__(self) -> Iterator[ItemBatch]:
        self.unreadable, self.problems, self.lines = 0, [], 0
        seen: set[bytes] = set()
        run: list[Row] = []
        with _opened(Path(self.path)) as stream:
            for row in self._certain(stream):
                if not row[1]:
                    continue  # nothing is left of it
                digest = hashlib.blake2b(row[1].encode("utf-8", "surrogatepass"), digest_size=DIGEST).digest()
                if digest in seen:
                    continue
                seen.add(digest)
                run.append(row)
                if len(run) == RUN:
                    yield _items(run)
                    run = []
        if run:
            yield _items(run)

    def _certain(self, stream: IO[bytes]) -> Iterator[Row]:
        threshold, line = self.threshold, b""
        for self.lines, line in enumerate(stream, start=1):
            cells = line.rsplit(b"\t", 5)
            try:
                aa, white = float(cells[2]), float(cells[5])
                # Written so that NaN, which the release has, is not certain of anything.
                if not (aa >= threshold or white >= threshold):
                    continue
                if not float(cells[3]) + float(cells[4]) <= self.others:
                    continue
                row = _name(cells[0]), plain(_text(cells[1])), AAE if aa >= white else WHE
            except (ValueError, IndexError):
                self._broken(line)
                continue
            yield row
        if self.unreadable == self.lines:
            self._refuse(line)

    def _broken(self, line: bytes) -> None:
        self.unreadable += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(f"{self.path}, line {self.lines}: {shown(line)} is not of the format")
        if self.unreadable == self.lines == TRIED:
            self._refuse(line)

    def _refuse(self, line: bytes) -> None:
        raise FileError(
            f"{self.path}: none of {self.lines} lines is as those of {RELEASE[0]}, the last of them {shown(line)}; "
            "expected ten columns apart by tabs, the last five a text and the posteriors of African-American, "
            "Hispanic, other and White English"
        )


def plain(text: str) -> str:
    """A tweet without web addresses, mentions and the like, its words a space apart."""
    return " ".join(clean(text).split())


def _items(run: list[Row]) -> ItemBatch:
    names, texts, dialects = zip(*run, strict=True)
    return ItemBatch(texts, names, {DIALECT: dialects})


def _name(head: bytes) -> str:
    return head.partition(b"\t")[0].decode("utf-8", "replace").strip('"')


def _text(cell: bytes) -> str:
    text = cell.decode("utf-8", "replace")
    return str(json.loads(text)) if text.startswith('"') else text


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The release's lines, from the file, its folder or the archive."""
    found = next((path / name for name in RELEASE if (path / name).is_file()), path)
    if not found.is_file():
        raise ORIGIN.missing(path, f"the file {RELEASE[0]}")
    if found.suffix.lower() != ".zip":
        with open(found, "rb") as stream:
            yield stream
        return
    try:
        with zipfile.ZipFile(found) as archive:
            inside = next((n for n in archive.namelist() if n.rpartition("/")[2] in RELEASE), None)
            if inside is None:
                raise ORIGIN.missing(path, f"the file {RELEASE[0]}")
            with archive.open(inside) as member:
                yield member
    except zipfile.BadZipFile as error:
        raise FileError(f"{found} is truncated or damaged ({error}); fetch it again") from error


LIKELIEST = 1_800
TABLES = frozenset({".parquet", ".arrow", ".feather", ".ipc", ".csv", ".jsonl", ".ndjson"})


def load_twitteraae(
    path: str | os.PathLike[str],
    encoding: Encoding | None = None,
    *,
    each: int | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> LabelledData:
    """Read tweets of both dialects into memory, with the column ``dialect`` (AAE, WHE).

    Parameters
    ----------
    path : path
        The release: the file ``twitteraae_all``, its folder, or the zip archive. Or, as a stand-in, a table with the
        columns text, aa and white (posteriors).
    encoding : Encoding, optional
        What encodes texts; by default the encoder ``ngrams``.
    each : int, optional
        Of the release, so many tweets of each dialect, drawn at random; by default all, some 1.2 million, of which
        ``encoded(Tweets(path))`` gives part after part. Of a stand-in, the likeliest of each, by default 1,800.
    seed : int
        Of the random draw.
    """
    if each is not None and each < 1:
        raise InputError(f"{each} tweets of each dialect; expected at least 1")
    if Path(path).suffix.lower() in TABLES:
        return joined(encoded(likeliest(path, each or LIKELIEST), encoding, progress))
    tweets = Tweets(path)
    items = tweets if each is None else sample_tweets(tweets, each, seed)
    return joined(encoded(items, encoding, progress))


def sample_tweets(tweets: Tweets, each: int, seed: int = 0) -> ListedItems:
    """Draw tweets of each dialect at random in one pass, holding no more than the drawn (reservoir sampling)."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[tuple[str, str]]] = {AAE: [], WHE: []}
    met = dict.fromkeys(held, 0)
    for some in tweets:
        draws = rng.random(len(some)).tolist()
        rows = zip(some.ids, some.contents, some.values[DIALECT], draws, strict=True)
        for name, text, dialect, draw in rows:
            met[dialect] += 1
            at = int(draw * met[dialect])
            if len(held[dialect]) < each:
                held[dialect].append((name, str(text)))
            elif at < each:
                held[dialect][at] = (name, str(text))
    lacking = [dialect for dialect, rows in held.items() if not rows]
    if lacking:
        raise FileError(
            f"{tweets.path} has no tweet that is certainly {lacking[0]}; is it the whole release?"
        )
    found = _listed(tweets.path, held)
    found.unreadable, found.problems = tweets.unreadable, tweets.problems
    return found


def likeliest(path: str | os.PathLike[str], each: int = LIKELIEST) -> ListedItems:
    """Of a table with text and posteriors, the tweets likeliest to be AAE and those likeliest to be WHE.

    No tweet is of both: it belongs to the likelier of the two. Of tweets that are alike once cleaned the first counts.
    """
    if not Path(path).exists():
        raise ORIGIN.missing(path, "a table with the columns text, aa and white")
    opened = open_table(path, vectors=False)
    lacking = [name for name in ("text", "aa", "white") if name not in opened.columns]
    if lacking:
        raise FileError(f"{path} has the columns {quoted(opened.columns)}, but not {quoted(lacking)}")
    wanted = ("text", "aa", "white", *(["id"] if "id" in opened.columns else []))
    blocks = list(opened.select(extra=wanted))
    cells = {name: [text for block in blocks for text in block.values[name]] for name in wanted}
    posterior = {AAE: _numbers(cells["aa"], path), WHE: _numbers(cells["white"], path)}
    ids = cells.get("id") or [str(row) for row in range(len(cells["text"]))]
    aa, white = posterior[AAE], posterior[WHE]
    texts = [plain(text) for text in cells["text"]]
    held = {}
    for dialect, member in ((AAE, aa >= white), (WHE, aa < white)):
        rows = np.argsort(-posterior[dialect], kind="stable")
        first: dict[str, int] = {}
        for row in rows[member[rows]].tolist():
            first.setdefault(texts[row], row)
        chosen = [row for text, row in first.items() if text][:each]
        if not chosen:
            raise FileError(f"{path} has no tweet that is likelier {dialect} than the other; both are needed")
        held[dialect] = [(ids[row], texts[row]) for row in chosen]
    return _listed(os.fspath(path), held)


def _listed(path: str, held: dict[str, list[tuple[str, str]]]) -> ListedItems:
    rows = [(name, text, dialect) for dialect, some in held.items() for name, text in some]
    columns = text_columns({DIALECT: [dialect for _, _, dialect in rows]})
    return ListedItems(
        path, SET, "text", [text for _, text, _ in rows], [name for name, _, _ in rows], columns
    )


def _numbers(cells: list[str], path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Posteriors of a column; an empty cell is NaN, which is not likelier than anything."""
    try:
        return np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except ValueError as error:
        raise FileError(
            f"{path}: a posterior is no number ({error}); mend it or leave the row out"
        ) from error
