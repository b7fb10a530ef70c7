"""TwitterAAE: tweets in African-American and in White English.

S. L. Blodgett, L. Green and B. O'Connor, "Demographic Dialectal Variation in Social Media", 2016. Texts are cleaned as
``clean=tweets`` of the encoder ``word2vec`` does, whatever encodes them, and each counts once.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError, InputError
from divscore.jobs.encode import Encoding
from divscore.paper.encoded import ListedItems, Progress, encoded
from divscore.paper.labelleddata import LabelledData, joined, text_columns
from divscore.paper.tweets import AAE, DIALECT, ORIGIN, SET, WHE, Tweets, plain
from divscore.sources.locate import locate
from divscore.sources.open import open_located
from divscore.sources.places import quoted
from divscore.sources.table import Request

__all__ = ["AAE", "DIALECT", "ORIGIN", "WHE", "likeliest", "load_twitteraae", "sample_tweets"]

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
    location = locate(path)
    opened = open_located([location], Request(vectors=False))
    lacking = [name for name in ("text", "aa", "white") if name not in opened.columns]
    if lacking:
        raise FileError(f"{path} has the columns {quoted(opened.columns)}, but not {quoted(lacking)}")
    wanted = ("text", "aa", "white", *(["id"] if "id" in opened.columns else []))
    blocks = list(open_located([location], Request(vectors=False, extra=wanted)))
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
