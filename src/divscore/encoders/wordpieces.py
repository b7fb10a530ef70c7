"""BERT's word pieces, as the library `tokenizers` cuts them, without it.

A text loses control characters, accents and case; punctuation and ideographs become words of their own; of each word
the longest known piece is taken, then the longest known piece of the rest. The rules of Unicode are in a table
(`minilm/unicode.txt`), because those of Python change with its versions.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).with_name("minilm")
UNKNOWN = "[UNK]"
SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
LONGEST_WORD = 100  # letters; a longer word is unknown
REMEMBERED = 1 << 16  # words whose pieces are kept; longer ones are not among them
TEXTS = 512  # of one batch
LETTERS = 1 << 16  # of one block of pieces

END = "\0"  # of a text; inside a text it is a control character, and dropped
ESCAPE = "\ud800"  # begins a special piece; a lone surrogate in a text is dropped
ALONE = r"!-/:-@\[-`{-~\0"
WORD = re.compile(rf"[^\t\n\r {ALONE}]+|[{ALONE}]")
BOUNDARY = re.compile(rf"[\t\n\r {ALONE}]")
CONTROL = re.compile(r"[\x01-\x1f\x7f]+")
SURROGATES = range(0xD800, 0xE000)
SYLLABLES = range(0xAC00, 0xD7A4)
KEPT_POINTS = 0x20000  # what becomes of the code points below is kept in memory


class PieceBlock(NamedTuple):
    """Pieces of consecutive texts: the next `counts[i]` of them belong to text `first + i`.

    A long text is in several blocks.
    """

    pieces: NDArray[np.int32]
    counts: NDArray[np.intp]
    first: int


class WordPieces:
    """Cuts texts into numbers of pieces. Control characters and lone surrogates are dropped, as U+FFFD is.

    >>> cut = WordPieces(["[UNK]", "un", "##known", "word", "!"])
    >>> cut.ids("Unknown WORD, unwise!")
    [1, 2, 3, 0, 0, 4]
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._words = _Words(pieces)

    def ids(self, text: str) -> list[int]:
        """The pieces of one text."""
        return [piece for block in self.blocks([text]) for piece in block.pieces.tolist()]

    def words(self, texts: Sequence[str]) -> tuple[list[str], PieceBlock]:
        """The words of a few texts, and their pieces as if each was a text of its own."""
        words = [word for text in texts for word in WORD.findall(_clean(text))]
        pieces, counts = self._words.pieces([part for word in words for part in (word, END)])
        return words, PieceBlock(pieces, counts[:-1], 0)

    def blocks(self, texts: Sequence[str]) -> Iterator[PieceBlock]:
        """The pieces of texts, in their order, a bounded number at a time."""
        for first in range(0, len(texts), TEXTS):
            batch = [_clean(text) for text in texts[first : first + TEXTS]]
            joined = END.join([*batch, ""])
            start = 0
            while start < len(joined):
                boundary = BOUNDARY.search(joined, start + LETTERS)
                stop = boundary.end() if boundary else len(joined)
                pieces, counts = self._words.pieces(WORD.findall(joined, start, stop))
                yield PieceBlock(pieces, counts, first)
                first += len(counts) - 1
                start = stop


class _Words(dict[str, int]):
    """Pieces of the words that were seen; a word's value is its place in `_counts`.

    END has place 0, and no piece; all words that are too long have place 1.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._first = {piece: at for at, piece in enumerate(pieces) if not piece.startswith("##")}
        self._next = {piece[2:]: at for at, piece in enumerate(pieces) if piece.startswith("##")}
        self._longest = max(map(len, pieces))
        self._unknown = self._first[UNKNOWN]
        self._lock = threading.Lock()  # threads share what was seen
        self._forget()

    def pieces(self, words: list[str]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
        """The pieces of words, and how many of them belong to each text; the last number is of an unfinished one."""
        with self._lock:
            if len(self) > REMEMBERED:
                self._forget()
            places = np.fromiter(map(self.__getitem__, words), dtype=np.intp, count=len(words))
            starts, counts, pieces = (np.array(kept) for kept in (self._starts, self._counts, self._pieces))
        sizes = counts[places]
        totals = np.cumsum(sizes)
        total = int(totals[-1]) if words else 0
        # The pieces of a word follow one another from its start.
        shifts = starts[places] - totals + sizes
        found = pieces[np.repeat(shifts, sizes) + np.arange(total)]
        ends = np.concatenate([[0], totals[places == 0], [total]])
        return found, np.diff(ends)

    def __missing__(self, word: str) -> int:
        """Cut a new word, and remember it."""
        if word.startswith(ESCAPE):
            found = [self._first.get(f"[{word[1:]}]", self._unknown)]
        elif (clean := CONTROL.sub("", word)) != word:  # only words of ASCII still have control characters
            return self[clean]
        elif len(word) > LONGEST_WORD:
            return 1
        else:
            found = self._cut(word)
        self[word] = place = len(self._counts)
        self._starts.append(len(self._pieces))
        self._counts.append(len(found))
        self._pieces.extend(found)
        return place

    def _cut(self, word: str) -> list[int]:
        found: list[int] = []
        start, known = 0, self._first
        while start < len(word):
            for stop in range(min(len(word), start + self._longest), start, -1):
                at = known.get(word[start:stop])
                if at is not None:
                    break
            else:
                return [self._unknown]
            found.append(at)
            start, known = stop, self._next
        return found

    def _forget(self) -> None:
        self.clear()
        self[END] = 0
        self._starts, self._counts, self._pieces = (
            array("q", [0, 0]),
            array("q", [0, 1]),
            array("i", [self._unknown]),
        )


def _clean(text: str) -> str:
    """Words apart, without accents and case; END in no place. Signs of ASCII are left to WORD."""
    if "[" in text and SPECIAL.search(text):
        parts = SPECIAL.split(text)
        parts[1::2] = [f" {ESCAPE}{special[1:-1]} " for special in parts[1::2]]
        parts[::2] = [_clean(part) for part in parts[::2]]
        return "".join(parts)
    if text.isascii():
        return (text.replace(END, "") if END in text else text).lower()
    return rules().apply(text)


@cache
def rules() -> Rules:
    """Read the table when it is first needed: for ASCII it is not."""
    return Rules((FOLDER / "unicode.txt").read_text(encoding="ascii"))


class Rules(dict[int, str]):
    """What becomes of each code point, for `str.translate`: looked up in ranges when it is first needed."""

    def __init__(self, table: str) -> None:
        ranges: list[tuple[int, int, str, str]] = []
        self._classes: dict[int, int] = {}
        for line in table.splitlines()[1:]:
            kind, first, last, *rest = line.split()
            points = range(int(first, 16), int(last, 16) + 1)
            if kind == "class":
                self._classes |= dict.fromkeys(points, int(rest[0]))
                continue
            becomes = "".join(chr(int(point, 16)) for point in rest[0].split(",")) if rest else ""
            ranges.append((points[0], points[-1], kind, becomes))
        self._firsts = [first for first, *_ in ranges]
        self._ranges = ranges
        self._stripped = {point for a, b, kind, _ in ranges if kind == "strip" for point in range(a, b + 1)}
        # Marks of a letter come in the order of their classes. It matters for those that stay: most are dropped.
        sorts = [chr(point) for point in self._classes if self[point]]
        self._sorts = set(sorts)
        longer = (chr(first) for first, _, _, becomes in ranges if self._sorts & set(becomes))
        self._unsorted = re.compile(f"[{''.join([*sorts, *longer])}]")

    def apply(self, text: str) -> str:
        """Words apart, without accents and case."""
        return self._sorted(text) if self._unsorted.search(text) else text.translate(self)

    def __missing__(self, point: int) -> str:
        char = chr(point)
        first, last, kind, becomes = self._ranges[bisect_right(self._firsts, point) - 1]
        if point in SYLLABLES:
            # Unicode's arithmetic: 21 vowels and 28 finals, the first of them none.
            rest, final = divmod(point - SYLLABLES[0], 28)
            char = chr(0x1100 + rest // 21) + chr(0x1161 + rest % 21) + (chr(0x11A7 + final) if final else "")
        elif point in SURROGATES:
            char = ""
        elif point <= last and not (kind == "apart" and point < 128):
            alone = f" {char} "
            char = {"space": " ", "apart": alone}.get(kind, becomes)
            if len(becomes) == 1:
                char = chr(ord(becomes) + point - first)
        if point < KEPT_POINTS:
            self[point] = char
        return char

    def _sorted(self, text: str) -> str:
        """Sort runs of marks by class, as canonical decomposition does; a mark that is stripped later may end a run."""
        done: list[str] = []
        run: list[str] = []
        for char in text:
            becomes = self[ord(char)]
            if ord(char) in self._classes:
                run.append(becomes)
            elif becomes or ord(char) in self._stripped:
                done += sorted(run, key=self._class)
                marks = [mark for mark in becomes[1:] if mark in self._sorts]
                done.append(becomes[: len(becomes) - len(marks)])
                run = marks
        return "".join([*done, *sorted(run, key=self._class)])

    def _class(self, mark: str) -> int:
        return self._classes[ord(mark)] if mark else 0
