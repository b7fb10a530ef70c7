"""Files that list words with their numbers: word2vec's binary and text forms, and GloVe's text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.wordindex import Data, Row, Words, WordVectors
from divscore.errors import FileError

__all__ = ["open_list"]

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
