"""`ngrams`: hashed letter groups and words of short texts and names. No training, no download, same everywhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.registry import Encoded, Encoder, versioned
from divscore.errors import InputError, check_cancelled

DIMENSIONS = range(16, 4097)
LONGEST = 4
START, END = "\x02", "\x03"
BASE = np.uint32(0x01000193)
GOLDEN = np.uint32(0x9E3779B1)
SALTS = np.arange(1, LONGEST + 1, dtype=np.uint32) * GOLDEN
POSITION = np.uint32(0x85EBCA77)
WORD = np.uint32(0x51ED270B)
LOW, HALF = np.uint32(0xFFFF), np.uint32(16)
TEXTS, LETTERS = 256, 1 << 15  # of one batch, so that its table of counts stays in the processor's cache

Points = NDArray[np.uint32]
Rows = NDArray[np.int64]


class NgramEncoder(Encoder):
    """Counts of letters, letter groups (2 to 4 long, ends marked) and words, in a fixed random projection.

    A hash of a feature's code points gives it two places in the vector, each with a sign. Counting is integer
    arithmetic; a single square root and division then scale each vector to length one. Vectors are therefore the same
    to the bit on every machine, in every version and in every batch. Case is ignored, and Unicode's compatibility
    forms are equal.

    >>> encoded = NgramEncoder(64).encode(["Anna", "anna", ""])
    >>> encoded.vectors.shape, dict(encoded.reasons)
    ((2, 64), {2: 'is empty'})
    """

    def __init__(self, dimension: int = 512) -> None:
        if dimension not in DIMENSIONS:
            raise InputError(f"ngrams: dimension={dimension}; expected 16 to 4096, usually 512")
        self.dimension = dimension
        self.identity = f"{versioned('ngrams')} dimension={dimension}"

    def encode(self, items: Sequence[str]) -> Encoded:
        """Encode texts; an empty one has no vector."""
        folded = [_fold(text) for text in items]
        full = np.array([bool(text) for text in folded], dtype=np.intp)
        marked = [f"{START}{text}{END}" for text in folded if text]
        vectors = np.empty((len(marked), self.dimension), dtype=np.float32)
        start = letters = 0
        for stop, text in enumerate(marked, 1):
            letters += len(text)
            if stop - start == TEXTS or letters >= LETTERS or stop == len(marked):
                check_cancelled()
                self._fill(vectors[start:stop], marked[start:stop])
                start, letters = stop, 0
        empty = dict.fromkeys(np.flatnonzero(full == 0).tolist(), "is empty")
        return Encoded(vectors, np.flatnonzero(full), full, empty)

    def _fill(self, vectors: NDArray[np.float32], marked: list[str]) -> None:
        lengths = np.array([len(text) for text in marked])
        joined = "".join(marked).encode("utf-32-le", "surrogatepass")
        points = np.frombuffer(joined, dtype="<u4").astype(np.uint32, copy=False)
        # Each text has a row of counts for features with a positive sign, then one for those with a negative sign.
        width = 2 * self.dimension
        row = np.repeat(np.arange(len(marked)) * width, lengths)
        nowhere = len(marked) * width
        places = self._features(points, row, np.cumsum(lengths), nowhere)
        if len(points) <= 2 * LETTERS:  # a very long text is counted in parts, to save memory
            places = iter([np.concatenate(list(places))])
        signed = sum(np.bincount(part, minlength=nowhere + 1) for part in places)
        signed = np.asarray(signed)[:nowhere].reshape(len(marked), 2, self.dimension)
        counts = signed[:, 0] - signed[:, 1]
        norm = np.sqrt(np.vecdot(counts, counts).astype(np.float64))
        np.divide(counts, np.maximum(norm, 1.0)[:, None], out=vectors, dtype=np.float64, casting="same_kind")

    def _features(self, points: Points, row: Rows, ends: Rows, nowhere: int) -> Iterator[Rows]:
        """Places of all letter groups and words; groups that reach into the next text go to `nowhere`."""
        # A polynomial hash: that of a longer group is the shorter one's times a base plus the next letter.
        rolling = np.zeros_like(points)
        for size in range(1, LONGEST + 1):
            starts = len(points) - size + 1
            rolling = rolling[:starts] * BASE + points[size - 1 :]
            crossing = (ends[:-1, None] - np.arange(1, size)).ravel()
            for places in self._places(rolling ^ SALTS[size - 1], row[:starts]):
                places[crossing] = nowhere
                yield places
        # A word's hash is the sum, modulo 2^32, of its letters' hashes at their positions.
        inside = ~SEPARATES[np.minimum(points, len(SEPARATES) - 1)]
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        begins, lengths = edges[::2], edges[1::2] - edges[::2]
        if len(begins):
            firsts = np.cumsum(lengths) - lengths
            position = (np.arange(lengths.sum()) - np.repeat(firsts, lengths)).astype(np.uint32)
            letters = _mix(points[inside] * GOLDEN + position * POSITION)
            yield from self._places(np.add.reduceat(letters, firsts, dtype=np.uint32) ^ WORD, row[begins])

    def _places(self, hashed: Points, row: Rows) -> Iterator[Rows]:
        """Two places in its row for every feature; which half of the row is the sign."""
        mixed = _mix(hashed)
        # The high bits of a product choose the place: no division is needed.
        for bits in (mixed & LOW, mixed >> HALF):
            yield row + (bits * np.uint32(2 * self.dimension) >> HALF)


def load(model: None, options: Mapping[str, str], threads: int) -> NgramEncoder:
    """Make the encoder; it has no model file and uses one thread."""
    dimension = options.get("dimension", "512")
    if not dimension.isdecimal():
        raise InputError(f"ngrams: dimension={dimension}; expected a whole number, usually 512")
    return NgramEncoder(int(dimension))


def _fold(text: str) -> str:
    if text.isascii():
        return text.strip().lower()
    return unicodedata.normalize("NFKC", text).strip().casefold().replace("’", "'")


def _mix(values: Points) -> Points:
    """Murmur3's finaliser: every input bit changes every output bit."""
    mixed = values >> np.uint32(16)
    mixed ^= values
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed


# Which code points separate words: a fixed list, because Unicode's own grows with its versions.
SEPARATES = np.zeros(0x3041, dtype=bool)  # the last entry stands for all later code points
SEPARATES[:0x80] = [not (chr(point).isalnum() or chr(point) == "'") for point in range(0x80)]
SEPARATES[np.r_[0x80:0xAA, 0xAB:0xB5, 0xB6:0xBA, 0xBB:0xC0, 0x2000:0x2070]] = True
SEPARATES[np.r_[0x964:0x966, 0x3000:0x3005, 0x3008:0x3040]] = True
SEPARATES[[0xD7, 0xF7, 0x60C, 0x61B, 0x61F, 0x6D4, 0x1680]] = True
