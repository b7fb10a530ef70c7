"""`word2vec`: the paper's text features, the mean of the vectors of a text's words."""

from __future__ import annotations

import gzip
import mmap
import os
import re
import shutil
import tempfile
import unicodedata
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.ngrams import clean
from divscore.encoders.registry import Encoded
from divscore.errors import FileError, InputError, check_cancelled
from divscore.files import sha256
from divscore.sources.pickles import Record, read_plain

__all__ = [
    "OPTIONS",
    "STOPWORDS",
    "Data",
    "Row",
    "Word2Vec",
    "WordVectors",
    "Words",
    "load",
    "open_list",
    "open_vectors",
    "words",
]


# WordVectors: which words a file has, where they are, and how a vector is taken from it.

Data = bytes | mmap.mmap
Row = Callable[[int, int], NDArray[Any]]  # from a word's number, and the byte where its numbers begin


class Words:
    """Where each word begins, and its hash: 16 bytes a word. Python's own hash serves, as it stays in the process."""

    def __init__(self) -> None:
        self.hashes = array("q")
        self.starts = array("q")

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, word: bytes, start: int) -> None:
        """Add the next word."""
        self.hashes.append(hash(word))
        self.starts.append(start)


class WordVectors:
    """Finds a word's vector in a file; of words that are there twice the first counts.

    Words are compared as UTF-8, so that a word which is not valid UTF-8 does no harm and is never found.
    """

    def __init__(
        self, data: Data, words: Words, dimension: int, row: Row, files: Iterable[str], label: str
    ) -> None:
        hashes = np.frombuffer(words.hashes, dtype=np.int64)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._starts = np.frombuffer(words.starts, dtype=np.int64)
        self._data, self._row, self._label = data, row, label
        self.dimension = dimension
        self.digest = sha256(*files)

    def __len__(self) -> int:
        return len(self._starts)

    def take(self, word: str) -> NDArray[np.float32] | None:
        """A word's vector, or None."""
        sought = word.encode("utf-8", "replace")
        wanted = hash(sought)
        at = int(np.searchsorted(self._hashes, wanted))
        while at < len(self._hashes) and self._hashes[at] == wanted:
            number = int(self._order[at])
            start = int(self._starts[number])
            if self._data[start : start + len(sought) + 1] == sought + b" ":
                return self._checked(word, self._row(number, start + len(sought) + 1))
            at += 1
        return None

    def _checked(self, word: str, found: NDArray[Any]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            vector = found.astype(np.float32)
        if vector.shape != (self.dimension,) or not np.isfinite(vector).all():
            raise FileError(
                f"{self._label}: what follows '{word}' is not {self.dimension} finite numbers; the file is damaged: "
                "make or fetch it again"
            )
        return vector


# Files that list words with their numbers: word2vec's binary and text forms, and GloVe's text.

LONGEST_WORD = 10_000  # bytes
LONGEST_NUMBER = 64
LOOKED_AT = 50  # lines that tell the dimension of a file without header


def open_list(data: Data, path: str, label: str) -> WordVectors:
    """Find the words; `path` is the file that is mapped, `label` the one that the user named."""
    first = data[:LONGEST_NUMBER].partition(b"\n")[0].split()
    if len(first) == 2 and all(field.isdigit() for field in first):
        count, dimension = int(first[0]), int(first[1])
        if not (0 < count < len(data) and 0 < dimension < len(data)):
            raise _miscounted(label, count, f"{len(data)} bytes, with {dimension} numbers a word")
        at = data.find(b"\n") + 1
        text = _is_text(data, at, dimension)
    else:
        count, at, text = None, 0, True
        dimension = _columns(data, label)
    if text:
        words, row = _text_words(data, at, count, dimension, label), _text_row(data)
    else:
        words, row = _binary_words(data, at, count or 0, dimension, label), _binary_row(data, dimension)
    return WordVectors(data, words, dimension, row, [path], label)


def _columns(data: Data, label: str) -> int:
    """Numbers a line of a file without header; a word may hold spaces, so the line with the fewest tells."""
    head = data[: LOOKED_AT * 4 * LONGEST_WORD].split(b"\n")
    lines = [line.rstrip() for line in (head if len(head) == 1 else head[:-1])[:LOOKED_AT] if line.strip()]
    fewest = min((line.count(b" ") for line in lines), default=0)
    if not lines or _numbers(lines[0], fewest) is None:
        raise FileError(
            f"{label} is no file of word vectors that divscore knows; expected gensim's KeyedVectors, word2vec's "
            "binary or text form, or GloVe's lines of a word and its numbers"
        )
    return fewest


def _is_text(data: Data, at: int, dimension: int) -> bool:
    """Whether numbers follow the first word in writing; bytes that are not meant as such never do."""
    line = data[at : at + LONGEST_WORD + LONGEST_NUMBER * dimension].partition(b"\n")[0].rstrip()
    return _numbers(line, min(dimension, line.count(b" "))) is not None


def _numbers(line: bytes, dimension: int) -> list[float] | None:
    """The last numbers of a line that begins with a word."""
    fields = line.rsplit(b" ", dimension)[1:]
    try:
        return [float(field) for field in fields] or None
    except ValueError:
        return None


def _text_words(data: Data, at: int, count: int | None, dimension: int, label: str) -> Words:
    words, size = Words(), len(data)
    while at < size:
        end = data.find(b"\n", at)
        end = size if end < 0 else end
        line = data[at:end].rstrip()
        spaces = line.count(b" ")
        if spaces == dimension:
            words.add(line[: line.index(b" ")], at)
        elif spaces > dimension:
            words.add(line.rsplit(b" ", dimension)[0], at)
        elif line:
            raise FileError(
                f"{label}: word {len(words) + 1} has {spaces} numbers, expected {dimension}; the file is "
                "truncated or damaged: make or fetch it again"
            )
        at = end + 1
    if count is not None and len(words) != count:
        raise _miscounted(label, count, str(len(words)))
    return words


def _text_row(data: Data) -> Row:
    def row(_: int, start: int) -> NDArray[np.float64]:
        end = data.find(b"\n", start)
        try:
            return np.array([float(field) for field in data[start : len(data) if end < 0 else end].split()])
        except ValueError:
            return np.empty(0)

    return row


def _binary_words(data: Data, at: int, count: int, dimension: int, label: str) -> Words:
    words, size, width = Words(), len(data), 4 * dimension
    for number in range(count):
        while data[at : at + 1] == b"\n":
            at += 1
        end = data.find(b" ", at, at + LONGEST_WORD)
        if end < 0 or end + 1 + width > size:
            raise _miscounted(label, count, f"{number} whole ones")
        words.add(data[at:end], at)
        at = end + 1 + width
    if data[at : at + LONGEST_NUMBER].strip():
        raise _miscounted(label, count, "more")
    return words


def _binary_row(data: Data, dimension: int) -> Row:
    return lambda _, start: np.frombuffer(data, "<f4", dimension, start)


def _miscounted(label: str, count: int, found: str) -> FileError:
    return FileError(
        f"{label} promises {count} words and holds {found}; it is truncated or damaged: make or fetch it again"
    )


# Files of word vectors: word2vec's binary and text forms, GloVe's text, gensim's KeyedVectors; each also as .gz.
#
# The form is told by content. Vectors stay in the memory-mapped file until a text needs them.

GENSIM = "gensim.models.keyedvectors."
RECORDS = [
    GENSIM + name for name in ("KeyedVectors", "Word2VecKeyedVectors", "EuclideanKeyedVectors", "Vocab")
]
GZIP, PICKLE = b"\x1f\x8b", b"\x80"


def open_vectors(path: str | os.PathLike[str]) -> WordVectors:
    """Recognise a file of word vectors, find its words, and keep it open for their vectors."""
    label = os.fspath(path)
    if not os.path.isfile(label):
        what = "is a folder" if os.path.isdir(label) else "does not exist"
        raise FileError(f"{label} {what}; expected a file of word vectors (gensim, word2vec or GloVe)")
    data = _mapped(label, label)
    if data[:2] != GZIP:
        return _recognised(data, label, label)
    # The unpacked file stays mapped after its name is gone.
    with tempfile.NamedTemporaryFile(prefix="divscore-") as copy:
        _unpack(label, copy)
        return _recognised(_mapped(copy.name, label), copy.name, label)


def _recognised(data: Data, path: str, label: str) -> WordVectors:
    if data[:1] == PICKLE:
        return _gensim(path, label)
    return open_list(data, path, label)


def _mapped(path: str, label: str) -> Data:
    try:
        with open(path, "rb") as stream:
            if not os.fstat(stream.fileno()).st_size:
                raise FileError(f"{label} is empty; make or fetch it again")
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FileError(f"{label} cannot be opened ({error.strerror}); check its permissions") from error


def _unpack(label: str, copy: IO[bytes]) -> None:
    try:
        with gzip.open(label) as packed:
            shutil.copyfileobj(packed, copy, 1 << 22)
        copy.flush()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{label} cannot be unpacked ({error}); make or fetch it again") from error


def _gensim(path: str, label: str) -> WordVectors:
    """What KeyedVectors.save wrote, its array inside or in a file beside it."""
    state = _state(path, label)
    names = _names(state.get("index_to_key", state.get("index2word")))
    if not names or not all(isinstance(name, str) for name in names):
        raise FileError(
            f"{label} is a pickle without a list of words; expected gensim's KeyedVectors.save(FILE)"
        )
    kept = "vectors" if "vectors" in [*state, *_names(state.get("__numpys"))] else "syn0"  # gensim before 3.3
    files, matrix = [path], state.get(kept)
    if matrix is None:
        files.append(f"{label}.{kept}.npy")
        matrix = _beside(files[1], label)
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind != "f" or matrix.shape[:1] != (len(names),):
        raise FileError(f"{label} has {len(names)} words, but not one row of numbers for each; save it again")
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise FileError(f"{label} has vectors of shape {matrix.shape}; expected words × dimensions")
    table = np.asarray(matrix)
    words, at = Words(), 0
    listed = [name.encode("utf-8", "replace") for name in names]
    for word in listed:
        words.add(word, at)
        at += len(word) + 1
    spelled = b" ".join([*listed, b""])
    return WordVectors(spelled, words, table.shape[1], lambda number, _: table[number], files, label)


def _names(listed: Any) -> list[str]:
    return listed if isinstance(listed, list) else []


def _state(path: str, label: str) -> dict[Any, Any]:
    try:
        saved = read_plain(path, RECORDS)
    except FileError as error:
        raise FileError(
            f"{str(error).replace(path, label)}. Of a whole gensim model, save the vectors alone: "
            "model.wv.save(FILE)"
        ) from error
    return saved.state if isinstance(saved, Record) else {}


def _beside(path: str, label: str) -> NDArray[Any]:
    if not os.path.isfile(path):
        raise FileError(
            f"{label} keeps its numbers in {os.path.basename(path)}, which is not beside it; put it there"
        )
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, EOFError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read as a numpy array ({error}); make or fetch it again"
        ) from error


# English function words, which `word2vec` leaves out: they are in every text and say little about it.

ARTICLES = (
    "a an the this that these those each every either neither both all any some no none such another other"
)
PRONOUNS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves one oneself who whom whose which what whoever whatever
whichever someone somebody something anyone anybody anything everyone everybody everything nobody nothing
"""
VERBS = """
am is are was were be been being have has had having do does did doing done will would shall should can could may
might must ought
"""
PREPOSITIONS = """
about above across after against along among around as at before behind below beneath beside besides between
beyond by down during except for from in inside into like near of off on onto out outside over past per since
through throughout till to toward towards under until up upon via with within without
"""
CONJUNCTIONS = (
    "and but or nor so yet if because although though unless while whereas whether than then once lest"
)
ADVERBS = """
not only own same too very just also even still again further here there where when why how ever never now quite
rather almost already always often more most much many few less least several enough
"""
CONTRACTIONS = """
i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll we're we've we'd
we'll they're they've they'd they'll that's there's here's what's who's where's how's let's isn't aren't wasn't
weren't haven't hasn't hadn't don't doesn't didn't won't wouldn't shan't shouldn't can't cannot couldn't mustn't
mightn't needn't
"""

STOPWORDS: frozenset[str] = frozenset(
    " ".join([ARTICLES, PRONOUNS, VERBS, PREPOSITIONS, CONJUNCTIONS, ADVERBS, CONTRACTIONS]).split()
)


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
            f"word2vec/{VERSION} stopwords={stopwords} clean={clean} weights={vectors.digest[:16]}"
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
