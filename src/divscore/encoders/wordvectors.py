"""Files of word vectors: word2vec's binary and text forms, GloVe's text, gensim's KeyedVectors; each also as .gz.

The form is told by content. Vectors stay in the memory-mapped file until a text needs them.
"""

from __future__ import annotations

import gzip
import mmap
import os
import shutil
import tempfile
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.wordindex import Data, Words, WordVectors
from divscore.encoders.wordlists import open_list
from divscore.errors import FileError
from divscore.sources.pickles import Record, read_plain

__all__ = ["WordVectors", "open_vectors"]

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
