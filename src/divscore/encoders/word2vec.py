"""`word2vec`: the paper's text features, the mean of the vectors of a text's words."""

from __future__ import annotations

import gzip
import html
import mmap
import os
import re
import shutil
import tempfile
import unicodedata
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.registry import Encoded, Encoder, versioned
from divscore.errors import FileError, check_cancelled
from divscore.files import PathLike, sha256

LONGEST_WORD = 10_000  # bytes
LONGEST_NUMBER = 64
SAMPLE = 50  # lines that give the dimension of a file without header
REMEMBERED = 1 << 16  # words in memory with their vectors; 80 MB with 300 numbers each

# English function words: they are in every text and say little about it.
STOPWORDS = frozenset(Path(__file__).with_name("stopwords.txt").read_text(encoding="utf-8").split())
# Many scripts write vowels as marks, which \w does not match: a word must not end there.
MARKS = "".join(c for c in map(chr, range(0x300, 0x20000)) if unicodedata.category(c)[0] == "M")
LETTER = rf"(?:[^\W_]|[{MARKS}])"
WORD = re.compile(rf"[^\W_]{LETTER}*(?:'{LETTER}+)*")
ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
RETWEET = re.compile(r"^[\W_]*RT\b(?!['’])")
MENTION = re.compile(r"(?<!\w)@\w+")
HASHTAG = re.compile(r"#(?=\w)")
DIGITS = re.compile(r"(?<![\w'’])\d+(?![\w'’])")


class Word2Vec(Encoder):
    """The mean vector of the words of a text that the model knows, as written or in lower case."""

    def __init__(self, vectors: WordVectors, stopwords: str = "on", clean: str = "off") -> None:
        self._vectors = vectors
        self._ignored = STOPWORDS if stopwords == "on" else frozenset[str]()
        self._clean = clean == "tweets"
        # Common words come again and again, and each look-up reads the file.
        self._vector = lru_cache(REMEMBERED)(self._look_up)
        self.dimension = vectors.dimension
        self.identity = (
            f"{versioned('word2vec')} stopwords={stopwords} clean={clean} weights={vectors.digest[:16]}"
        )

    def encode(self, items: Sequence[str]) -> Encoded:
        """Encode texts; one without a known word has no vector."""
        means = np.zeros((len(items), self.dimension), dtype=np.float32)
        reasons: dict[int, str] = {}
        for at, text in enumerate(items):
            check_cancelled()
            if not text.strip():
                reasons[at] = "is empty"
                continue
            split = words(clean(text) if self._clean else text)
            vectors = [self._vector(word) for word in split if word.lower() not in self._ignored]
            if known := [vector for vector in vectors if vector is not None]:
                means[at] = np.mean(known, axis=0, dtype=np.float64)
            else:
                reasons[at] = "has no word that the model knows"
        return Encoded.of(means, reasons)

    def _look_up(self, word: str) -> NDArray[np.float32] | None:
        vector = self._vectors.get(word)
        return self._vectors.get(word.lower()) if vector is None and word != word.lower() else vector


def load(model: str, options: Mapping[str, str], threads: int) -> Word2Vec:
    """Open the model; its vectors stay in the file until a text needs them."""
    return Word2Vec(WordVectors(model), **options)


def words(text: str) -> list[str]:
    """Words of a text: letters and digits with their marks, and apostrophes between them.

    >>> words("Don’t stop, it's 2 late: naïve_café!")
    ["Don't", 'stop', "it's", '2', 'late', 'naïve', 'café']
    """
    return WORD.findall(unicodedata.normalize("NFC", text).replace("’", "'"))


def clean(text: str) -> str:
    """Decode HTML entities; drop web addresses, @mentions, a leading RT, the sign of hashtags, and bare digits.

    >>> clean("RT @maya: 2 many &amp; 2nite http://t.co/x1 #TooLate").split()
    [':', 'many', '&', '2nite', 'TooLate']
    """
    # Addresses first: they may contain what looks like a mention, a hashtag or digits.
    text = RETWEET.sub(" ", ADDRESS.sub(" ", html.unescape(text)))
    return DIGITS.sub(" ", HASHTAG.sub("", MENTION.sub(" ", text)))


class WordVectors:
    """Word vectors in a word2vec file (binary or text) or in GloVe's text; each also gzipped.

    The form is recognised by content. The file stays memory-mapped, and a vector is read when it is needed. Of a word
    that is there twice the first counts. Words are compared as UTF-8, so a word that is not valid UTF-8 is never
    found and does no harm. The index has 16 bytes per word: its start, and Python's own hash, which is enough within
    one process.
    """

    def __init__(self, path: PathLike) -> None:
        self._label = label = os.fspath(path)
        try:
            with ExitStack() as files:
                stream: Any = files.enter_context(open(label, "rb"))
                if stream.read(2) == b"\x1f\x8b":
                    # The unpacked copy stays mapped after it is deleted.
                    stream = files.enter_context(tempfile.NamedTemporaryFile(prefix="divscore-"))
                    shutil.copyfileobj(files.enter_context(gzip.open(label)), stream, 1 << 22)
                    stream.flush()
                if not os.fstat(stream.fileno()).st_size:
                    raise FileError(f"{label} is empty; create or download it again")
                self._data = data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                self.digest = sha256(stream.name)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(
                f"{label} cannot be read ({reason}); expected word vectors by word2vec or GloVe"
            ) from error
        first = data[:LONGEST_NUMBER].partition(b"\n")[0].split()
        if data[:1] == b"\x80":
            raise FileError(
                f"{label} is a Python pickle, such as gensim's .model or .kv, which divscore does not read. Export the "
                "vectors in gensim: KeyedVectors.save_word2vec_format(FILE, binary=True)"
            )
        if len(first) == 2 and all(field.isdigit() for field in first):
            count, self.dimension = int(first[0]), int(first[1])
            if not (0 < count < len(data) and 0 < self.dimension < len(data)):
                raise self._miscounted(count, f"{len(data)} bytes, with {self.dimension} numbers per word")
            at = data.find(b"\n") + 1
            # Numbers in decimals after the first word; the bytes of binary ones never look like that.
            line = data[at : at + LONGEST_WORD + LONGEST_NUMBER * self.dimension].partition(b"\n")[0].rstrip()
            self._is_text = _ends_in_numbers(line, min(self.dimension, line.count(b" ")))
        else:
            count, at, self._is_text = None, 0, True
            # Without a header; a word may have spaces, so the line with the fewest counts.
            head = data[: SAMPLE * 4 * LONGEST_WORD].split(b"\n")
            whole = head if len(head) == 1 else head[:-1]
            lines = [line.rstrip() for line in whole[:SAMPLE] if line.strip()]
            self.dimension = min((line.count(b" ") for line in lines), default=0)
            if not lines or not _ends_in_numbers(lines[0], self.dimension):
                raise FileError(
                    f"{label} is not a file of word vectors; expected word2vec's binary or text format, or GloVe's "
                    "lines of a word and its numbers"
                )
        # Arrays instead of a dict: a file may have three million words, and a dict would take 400 MB.
        self._starts, unsorted = array("q"), array("q")
        listing = self._text_words(at, count) if self._is_text else self._binary_words(at, count or 0)
        for word, start in listing:
            self._starts.append(start)
            unsorted.append(hash(word))
        hashes = np.frombuffer(unsorted, dtype=np.int64)
        # Stable, so that of a word that is there twice the first is found first.
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def __len__(self) -> int:
        return len(self._starts)

    def get(self, word: str) -> NDArray[np.float32] | None:
        """A word's vector, or None."""
        key = word.encode("utf-8", "replace")
        at = int(np.searchsorted(self._hashes, hash(key)))
        while at < len(self._hashes) and self._hashes[at] == hash(key):
            start = self._starts[int(self._order[at])]
            begin = start + len(key) + 1
            if self._data[start:begin] == key + b" ":
                break
            at += 1  # another word with the same hash
        else:
            return None
        numbers: NDArray[Any] = np.empty(0)
        if self._is_text:
            end = self._data.find(b"\n", begin)
            try:
                fields = self._data[begin : len(self._data) if end < 0 else end].split()
                numbers = np.array([float(field) for field in fields])
            except ValueError:
                pass
        else:
            numbers = np.frombuffer(self._data, "<f4", self.dimension, begin)
        with np.errstate(over="ignore"):
            vector = numbers.astype(np.float32)
        if vector.shape != (self.dimension,) or not np.isfinite(vector).all():
            raise FileError(
                f"{self._label} is damaged: '{word}' is not followed by {self.dimension} finite numbers; create or "
                "download it again"
            )
        return vector

    def _text_words(self, at: int, count: int | None) -> Iterator[tuple[bytes, int]]:
        """Each word and where it starts."""
        data, dimension, number = self._data, self.dimension, 0
        while at < len(data):
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            line = data[at:end].rstrip()
            spaces = line.count(b" ")
            if line and spaces < dimension:
                raise FileError(
                    f"{self._label}: word {number + 1} has {spaces} numbers, expected {dimension}; the file is "
                    "truncated or damaged: create or download it again"
                )
            if line:  # looking for the first space is faster, but a word may have spaces
                yield line[: line.index(b" ")] if spaces == dimension else line.rsplit(b" ", dimension)[0], at
                number += 1
            at = end + 1
        if count not in (None, number):
            raise self._miscounted(count or 0, str(number))

    def _binary_words(self, at: int, count: int) -> Iterator[tuple[bytes, int]]:
        data, width = self._data, 4 * self.dimension
        for number in range(count):
            while data[at : at + 1] == b"\n":
                at += 1
            end = data.find(b" ", at, at + LONGEST_WORD)
            if end < 0 or end + 1 + width > len(data):
                raise self._miscounted(count, f"{number} complete ones")
            yield data[at:end], at
            at = end + 1 + width
        if data[at : at + LONGEST_NUMBER].strip():
            raise self._miscounted(count, "more")

    def _miscounted(self, count: int, content: str) -> FileError:
        return FileError(
            f"{self._label} announces {count} words and has {content}; it is truncated or damaged: create or download "
            "it again"
        )


def _ends_in_numbers(line: bytes, count: int) -> bool:
    try:
        return bool([float(field) for field in line.rsplit(b" ", count)[1:]])
    except ValueError:
        return False
