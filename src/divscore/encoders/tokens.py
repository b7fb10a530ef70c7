"""`tokens`: what English words mean, from a table of token vectors; and `text`, which adds it to `ngrams`.

The table (`minilm/`) was made from the sentence model all-MiniLM-L6-v2 by `tools/token_table.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.ngrams import NgramEncoder
from divscore.encoders.ngrams import load as load_ngrams
from divscore.encoders.registry import Encoded, Encoder, versioned
from divscore.encoders.wordpieces import FOLDER, WordPieces
from divscore.errors import check_cancelled

TABLE = "a0ddd03f4e6d10ab8fadfaf7c32e6795d7afef0a3a47d377cf9efba44820c917"  # SHA-256 of table.npy
TEXTS = 512  # of one batch, so that its sums stay in the processor's cache
BITS = 27  # of the numbers of a sum: 256 squares of them fit into 64 bits
HALF = np.float32(np.sqrt(0.5))
# Letters by blocks of Unicode, without symbols and emoji: a Python's own list changes with its version.
LETTER = re.compile(
    "[a-zA-Z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\ufdff\ufe70-\ufefe\uff21-\uffdc"
    "\U00010000-\U0001cfff\U00020000-\U0003ffff]"
)
LONE = re.compile(r"##.|[^\0-\x7f]")
CODE = re.compile(r"^[\0-\x7f]*[0-9][\0-\x7f]*$")


class TokenTable:
    """Vectors of word pieces, and their sums.

    A piece has 256 int8 numbers and a power of two that multiplies them. Sums are integers, so they are the same to
    the bit on every machine, in whatever order they are added.
    """

    def __init__(self) -> None:
        from scipy.sparse import csr_array

        self._csr = csr_array
        packed = np.load(FOLDER / "table.npy", mmap_mode="r")
        self._table = packed[:, :-1].astype(np.int32)
        self._table <<= packed[:, -1:]
        self.dimension = self._table.shape[1]
        pieces = (FOLDER / "pieces.txt").read_text(encoding="utf-8").split("\n")[: len(packed)]
        self._cut = WordPieces(pieces)
        # A word that is cut into letters is not known, even if the letters are; nor is a sign of another script.
        letters = [LONE.fullmatch(piece) is not None for piece in pieces]
        self._unknown = np.array(letters) | ~self._table.any(axis=1)

    def fill(self, vectors: NDArray[np.float32], texts: Sequence[str]) -> NDArray[np.bool_]:
        """Write vectors of length one; return which texts have one. The others have no known piece, and get zeros."""
        has = np.zeros(len(texts), dtype=bool)
        for start in range(0, len(texts), TEXTS):
            check_cancelled()
            sums = self._sums(texts[start : start + TEXTS])
            largest = np.abs(sums).max(axis=1)
            if largest.max() >> BITS:  # a long text: the last bits of its sum do not matter
                sums >>= np.maximum(np.frexp(largest.astype(np.float64))[1] - BITS, 0)[:, None]
            norm = np.sqrt(np.vecdot(sums, sums).astype(np.float64))
            has[start : start + TEXTS] = norm > 0
            out = vectors[start : start + TEXTS]
            np.divide(sums, np.maximum(norm, 1)[:, None], out=out, dtype=np.float64, casting="same_kind")
        return has

    def _sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        # The last row of a block is of a text that the next one continues, or of none.
        sums = np.zeros((len(texts) + 1, self.dimension), dtype=np.int64)
        for block in self._cut.blocks(texts):
            ends = np.concatenate([[0], np.cumsum(block.counts)])
            ones = np.ones(len(block.pieces), dtype=np.int32)
            # A block has at most 2^17 pieces, and a piece's numbers have 14 bits: 32 are enough.
            counted = self._csr((ones, block.pieces, ends), shape=(len(block.counts), len(self._table)))
            sums[block.first : block.first + len(block.counts)] += counted @ self._table
        return sums[:-1]

    def unknown(self, texts: Sequence[str]) -> tuple[int, int]:
        """How many letters of texts are in unknown words, out of how many. Most pieces of such a word say nothing.

        Letters next to digits of ASCII are no word of a language: numbers in hex, base64 and the like.
        """
        words, block = self._cut.words(texts)
        owner = np.repeat(np.arange(len(words)), block.counts)
        silent = np.bincount(owner[self._unknown[block.pieces]], minlength=len(words))
        letters = np.array([len(LETTER.findall(word)) for word in words], dtype=np.intp)
        code = np.array([CODE.search(word) is not None for word in words], dtype=bool)
        return int(letters[(2 * silent > block.counts) & ~code].sum()), int(letters.sum())


@cache
def table() -> TokenTable:
    """Read the table, once a process."""
    return TokenTable()


class TokenEncoder(Encoder):
    """The mean of the vectors of a text's word pieces, scaled to length one.

    >>> encoded = TokenEncoder().encode(["a mother", "his mother", "", "\U0001f602"])
    >>> encoded.vectors.shape, dict(encoded.reasons)
    ((2, 256), {2: 'is empty', 3: 'has no word that the table knows'})
    """

    def __init__(self) -> None:
        self.dimension = table().dimension
        self.identity = f"{versioned('tokens')} table={TABLE[:16]}"

    def encode(self, items: Sequence[str]) -> Encoded:
        """Encode texts; one without a known piece has no vector."""
        vectors = np.empty((len(items), self.dimension), dtype=np.float32)
        lacking = np.flatnonzero(~table().fill(vectors, items)).tolist()
        reasons = {
            at: "has no word that the table knows" if items[at].strip() else "is empty" for at in lacking
        }
        return Encoded.of(vectors, reasons)


class TextEncoder(Encoder):
    """`ngrams` and `tokens` side by side, half of the squared length each; `ngrams` alone if no piece is known.

    >>> encoded = TextEncoder(NgramEncoder()).encode(["a mother", ""])
    >>> encoded.vectors.shape, dict(encoded.reasons)
    ((1, 768), {1: 'is empty'})
    """

    def __init__(self, ngrams: NgramEncoder) -> None:
        self._ngrams = ngrams
        self.dimension = ngrams.dimension + table().dimension
        # The version covers that of ngrams; a test notices if its vectors change.
        self.identity = f"{versioned('text')} dimension={ngrams.dimension} table={TABLE[:16]}"

    def encode(self, items: Sequence[str]) -> Encoded:
        """Encode texts; an empty one has no vector."""
        letters = self._ngrams.encode(items)
        texts = [items[at] for at in letters.owner.tolist()]
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        has = table().fill(vectors[:, self._ngrams.dimension :], texts)
        vectors[:, : self._ngrams.dimension] = letters.vectors
        vectors *= np.where(has, HALF, np.float32(1))[:, None]
        return Encoded(vectors, letters.owner, letters.detected, letters.reasons)


def load_tokens(model: None, options: Mapping[str, str], threads: int) -> TokenEncoder:
    """Make `tokens`; it uses one thread."""
    return TokenEncoder()


def load_text(model: None, options: Mapping[str, str], threads: int) -> TextEncoder:
    """Make `text`; it uses one thread."""
    return TextEncoder(load_ngrams(None, options, threads))
