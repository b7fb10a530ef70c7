"""`word2vec`: the paper's text features, the mean of the vectors of a text's words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from divscore.digest import short
from divscore.encoders.encoding import Encoded
from divscore.encoders.stopwords import STOPWORDS
from divscore.encoders.tweets import clean
from divscore.encoders.wordvectors import WordVectors, open_vectors
from divscore.errors import InputError
from divscore.halt import heed

__all__ = ["OPTIONS", "Word2Vec", "load", "words"]

OPTIONS: dict[str, str] = {
    "stopwords": "on (default) leaves English function words out, off keeps them",
    "clean": "off (default), or tweets: web addresses, @mentions, RT, # and bare digits are taken out",
}
VALUES = {"stopwords": ("on", "off"), "clean": ("off", "tweets")}
VERSION = 1
REMEMBERED = 1 << 16  # words whose vectors are kept; 80 MB with 300 numbers each


class Word2Vec:
    """The mean vector of those words of a text that the model knows, as they are or else in small letters."""

    variant = ""
    enough = 0

    def __init__(self, vectors: WordVectors, stopwords: str = "on", clean: str = "off") -> None:
        self._vectors = vectors
        self._without = STOPWORDS if stopwords == "on" else frozenset[str]()
        self._clean = clean == "tweets"
        self._seen: dict[str, NDArray[np.float32] | None] = {}
        self.dimension = vectors.dimension
        self.identity = (
            f"word2vec/{VERSION} stopwords={stopwords} clean={clean} weights={short(vectors.digest)}"
        )

    def encode(self, items: Sequence[str]) -> Encoded:
        """Encode texts; one without a known word has no vector."""
        means = np.zeros((len(items), self.dimension), dtype=np.float32)
        reasons: dict[int, str] = {}
        for at, text in enumerate(items):
            heed()
            if not text.strip():
                reasons[at] = "is empty"
                continue
            known = [vector for word in self._words(text) if (vector := self._vector(word)) is not None]
            if known:
                means[at] = np.mean(known, axis=0, dtype=np.float64)
            else:
                reasons[at] = "has no word that the model knows"
        return Encoded.of(means, reasons)

    def _words(self, text: str) -> list[str]:
        found = words(clean(text) if self._clean else text)
        return [word for word in found if word.lower() not in self._without]

    def _vector(self, word: str) -> NDArray[np.float32] | None:
        if word in self._seen:
            return self._seen[word]
        vector = self._vectors.take(word)
        if vector is None and word != word.lower():
            vector = self._vectors.take(word.lower())
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()
        self._seen[word] = vector
        return vector


def load(kind: str, model: str | None, options: Mapping[str, str], threads: int) -> Word2Vec:
    """Open the model; its vectors stay in the file until a text needs them."""
    for name, value in options.items():
        if value not in VALUES[name]:
            raise InputError(f"word2vec: {name}={value} is unknown; choose {' or '.join(VALUES[name])}")
    if model is None:
        raise InputError("word2vec needs --model: word vectors by gensim, word2vec or GloVe")
    return Word2Vec(open_vectors(model), **options)


def words(text: str) -> list[str]:
    """Words of a text: letters and digits with their marks, and apostrophes between them; all else parts words.

    >>> words("Don’t stop, it's 2 late: naïve_café!")
    ["Don't", 'stop', "it's", '2', 'late', 'naïve', 'café']
    """
    return _pattern().findall(unicodedata.normalize("NFC", text).replace("’", "'"))


@cache
def _pattern() -> re.Pattern[str]:
    marks = [chr(point) for point in range(0x300, 0x20000) if unicodedata.category(chr(point))[0] == "M"]
    letter = rf"(?:[^\W_]|[{''.join(marks)}])"
    return re.compile(rf"[^\W_]{letter}*(?:'{letter}+)*")
