"""Tweets: the lines of TwitterAAE's release of whose dialect its model is certain.

The file ``twitteraae_all`` has ten columns apart by tabs and no header: tweet id, time, user id, longitude and
latitude, census block group, text (a JSON string), and the posteriors of African-American, Hispanic, other and White
English. The paper keeps the tweets with a posterior of at least 0.99 for AAE or WHE (White English). Its authors'
notebook also wants the other two to sum to at most 0.1, which follows from it, cleans the texts and takes every one
once.
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

from divscore.encoders.tweets import clean
from divscore.errors import FileError
from divscore.paper.labelleddata import Origin, shown
from divscore.sources.items import Items, ItemSource
from divscore.sources.table import PROBLEMS_KEPT

__all__ = ["AAE", "DIALECT", "ORIGIN", "SET", "WHE", "Tweets", "plain"]

SET = "TwitterAAE"
ORIGIN = Origin("TwitterAAE", "slanglab.cs.umass.edu/TwitterAAE/", "research use")
RELEASE = ("twitteraae_all", "twitteraae_all.tsv")
DIALECT, AAE, WHE = "dialect", "AAE", "WHE"
THRESHOLD, OTHERS = 0.99, 0.1
RUN = 4096
TRIED = 1000  # lines, of which at least one must be as expected
DIGEST = 8  # bytes by which a text is remembered: 1.2 million of them collide once in 25 million releases

Row = tuple[str, str, str]


class Tweets(ItemSource):
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

    def __iter__(self) -> Iterator[Items]:
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


def _items(run: list[Row]) -> Items:
    names, texts, dialects = zip(*run, strict=True)
    return Items(texts, names, {DIALECT: dialects})


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
