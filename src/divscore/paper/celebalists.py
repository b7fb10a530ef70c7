"""CelebA's two text files: the attributes of every picture, and the partition it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.paper.labelleddata import shown

__all__ = ["read_attributes", "read_partitions"]

EXPECTED = (
    "expected the number of pictures, a line of attribute names, then '000001.jpg -1 1 …' for each picture"
)


def read_attributes(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.bool_]]:
    """Names of the attributes, names of the pictures, and which picture has which attribute."""
    lines = _lines(path)
    try:
        count = int(next(lines, b"").strip())
    except ValueError as error:
        raise FileError(f"{path}: the first line is no number; {EXPECTED}") from error
    names = tuple(name.decode() for name in next(lines, b"").split())
    # The number of lines is believed only when they have been seen.
    marked: list[bytes] = []
    ids: list[str] = []
    for number, line in enumerate(lines, start=3):
        cells = line.split()
        if not cells:
            continue
        marks = b"".join(cells[1:]).replace(b"-1", b"0")
        if len(cells) != len(names) + 1 or len(marks) != len(names) or marks.strip(b"01"):
            raise FileError(
                f"{path}, line {number}: {shown(line)}; expected a name and {len(names)} times 1 or -1"
            )
        ids.append(cells[0].decode())
        marked.append(marks)
    if len(ids) != count or not ids:
        raise FileError(f"{path}: {len(ids)} pictures, its first line says {count}; fetch it again")
    if len(set(ids)) < count:
        raise FileError(f"{path} has pictures twice; fetch it again")
    table = np.frombuffer(b"".join(marked), dtype=np.uint8).reshape(count, len(names)) == ord("1")
    return names, tuple(ids), table


def read_partitions(path: Path, ids: Sequence[str]) -> NDArray[np.int8]:
    """Partition of each picture: 0 train, 1 validation, 2 test."""
    known: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 2 or cells[1] not in (b"0", b"1", b"2"):
            raise FileError(f"{path}, line {number}: {shown(line)}; expected a name and 0, 1 or 2")
        known[cells[0].decode()] = int(cells[1])
    lacking = [name for name in ids if name not in known]
    if lacking:
        raise FileError(
            f"{path} gives no partition for {len(lacking)} pictures, the first of them {lacking[0]}; fetch it again"
        )
    return np.array([known[name] for name in ids], dtype=np.int8)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as stream:
            yield from stream
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
