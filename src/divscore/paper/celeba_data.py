"""CelebA: 202,599 pictures of celebrities with forty attributes each, one of them the gender.

Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild", 2015. Attributes and partitions are
two text files and are read whole (8 MB); pictures or vectors only as they are needed.

The paper speaks of 29 attributes and a random subset of around 20,000 pictures without naming them. Its authors'
notebook (github.com/vijaykeswani/Diversity-Audit-Using-Representative-Examples, CelebA/celeba_audit.ipynb) shows both:
the 19,962 pictures of the test partition, from which the auxiliary set of 500 is drawn and taken out; and, of all
attributes but Attractive, Blurry and Pale_Skin, those whose pictures are at least 50 and at least one in ten a woman's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError, InputError
from divscore.jobs.encode import Encoding
from divscore.paper.labelleddata import (
    LabelledData,
    ListedItems,
    Origin,
    Progress,
    Texts,
    encoded,
    joined,
    shown,
)
from divscore.sources import open_table
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.places import quoted
from divscore.sources.table import Block

__all__ = [
    "ORIGIN",
    "PARTITIONS",
    "CelebA",
    "attribute_collections",
    "open_celeba",
    "read_attributes",
    "read_partitions",
]


# CelebA's two text files: the attributes of every picture, and the partition it belongs to.

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


SET = "CelebA"
ORIGIN = Origin("CelebA", "mmlab.ie.cuhk.edu.hk/projects/CelebA.html", "non-commercial research")
ATTRIBUTES, SPLIT, PICTURES = "list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba"
FOLDERS = ("", "Anno", "Eval", "Img", PICTURES)  # as the set's own folders are called
PARTITIONS = ("train", "validation", "test")
MALE = "Male"
GENDER, PARTITION = "gender", "partition"
FEWEST, LEAST_WOMEN = 50, 0.1  # the authors' rule
NOT_ASKED = ("Attractive", "Blurry", "Pale_Skin")

Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class CelebA:
    """Attributes and partitions of all pictures; `marked[i, a]` says whether picture i has attribute a."""

    folder: Path
    ids: tuple[str, ...]
    attributes: tuple[str, ...]
    marked: NDArray[np.bool_]
    partition: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.ids)

    def has(self, attribute: str) -> NDArray[np.bool_]:
        """Which pictures have an attribute."""
        if attribute not in self.attributes:
            raise InputError(f"CelebA has no attribute '{attribute}'; it has {quoted(self.attributes)}")
        return self.marked[:, self.attributes.index(attribute)]

    def rows(self, partition: str = "test") -> Rows:
        """Rows of a partition: train, validation or test, the one that the paper uses."""
        if partition not in PARTITIONS:
            raise InputError(f"CelebA has no partition '{partition}'; it has {quoted(PARTITIONS)}")
        return np.flatnonzero(self.partition == PARTITIONS.index(partition))

    def columns(self, rows: Rows) -> dict[str, Texts]:
        """Gender (female, male), partition, and yes or no for every attribute."""
        yes = np.where(self.marked[rows], "yes", "no")
        columns = {
            GENDER: np.where(self.has(MALE)[rows], "male", "female"),
            PARTITION: np.array(PARTITIONS)[self.partition[rows]],
        }
        return columns | {name: yes[:, at] for at, name in enumerate(self.attributes)}

    def parts(
        self,
        rows: Rows | Sequence[int],
        vectors: str | os.PathLike[str] | None = None,
        encoding: Encoding | None = None,
        progress: Progress = None,
    ) -> Iterator[LabelledData]:
        """Vectors of some pictures, part by part.

        Parameters
        ----------
        rows : row numbers
            The pictures that are needed; no other is opened.
        vectors : path, optional
            A file that `divscore embed` made of the pictures, read as a stream, or a table of vectors with the
            pictures' names as ids, or a .npy with one row for each picture of the list. Without it the pictures
            themselves are encoded.
        encoding : Encoding, optional
            What encodes pictures; by default the encoder ``faces``, with the user's cache.
        """
        wanted = np.asarray(rows, dtype=np.intp)
        if vectors is not None:
            yield from self._stored(wanted, Path(vectors), progress)
            return
        pictures = self._pictures()
        names = [self.ids[row] for row in wanted.tolist()]
        files = [str(pictures / name) for name in names]
        items = ListedItems(str(pictures), SET, "image", files, names, self.columns(wanted))
        yield from encoded(items, encoding, progress)

    def load(
        self,
        rows: Rows | Sequence[int],
        vectors: str | os.PathLike[str] | None = None,
        encoding: Encoding | None = None,
        progress: Progress = None,
    ) -> LabelledData:
        """Vectors of some pictures at once, in the order of the list; see `parts`."""
        data = joined(self.parts(rows, vectors, encoding, progress))
        return data.where(np.argsort([self._position[name] for name in data.ids], kind="stable"))

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    def _pictures(self) -> Path:
        for inside in FOLDERS:
            nested = self.folder / inside / PICTURES
            if nested.is_dir():
                return nested / PICTURES if (nested / PICTURES).is_dir() else nested
        raise ORIGIN.missing(self.folder, f"the folder {PICTURES} of pictures")

    def _stored(self, wanted: Rows, path: Path, progress: Progress) -> Iterator[LabelledData]:
        waiting = set(wanted.tolist())
        encoder, blocks = self._blocks(path)
        dimension = 0
        for block in blocks:
            positions = [self._position.get(PurePosixPath(name).name, -1) for name in block.ids]
            kept = []
            for at, row in enumerate(positions):
                if row in waiting:
                    waiting.remove(row)  # several faces of one picture: the first, which is the largest
                    kept.append(at)
            dimension = block.vectors.shape[1]
            if kept:
                rows = np.array([positions[at] for at in kept], dtype=np.intp)
                ids = tuple(self.ids[row] for row in rows.tolist())
                yield LabelledData(SET, block.vectors[kept], self.columns(rows), ids, encoder)
                if progress is not None:
                    progress(len(kept))
        if len(waiting) == len(wanted):
            raise FileError(
                f"{path} has none of the {len(wanted)} pictures that are needed; expected ids such as {self.ids[0]}, "
                f"as 'divscore embed {PICTURES} -o celeba.arrow' gives them"
            )
        if waiting:
            none = np.empty((0, dimension), dtype=np.float32)
            lost = np.array(sorted(waiting), dtype=np.intp)
            empty = self.columns(np.empty(0, dtype=np.intp))
            yield LabelledData(SET, none, empty, (), encoder, self.columns(lost))

    def _blocks(self, path: Path) -> tuple[str | None, Iterator[Block]]:
        """What made a file's vectors, and its blocks with the pictures' names as ids."""
        opened = open_table(path)
        if not opened.columns:
            if opened.rows != len(self):
                raise FileError(
                    f"{path} has {opened.rows} rows without names; expected one for each of the {len(self)} pictures "
                    f"of {ATTRIBUTES}, in its order, or a table with the column id"
                )
            return None, _numbered(opened, self.ids)
        name = next((n for n in opened.columns if n.lower() in {"id", "file", "filename", "image"}), None)
        if name is None:
            raise FileError(f"{path} has the columns {quoted(opened.columns)}; expected one named id")
        source = opened.select(extra=(name,))
        return source.metadata.get(ENCODER_KEY), (Block(b.vectors, ids=b.values[name]) for b in source)


def open_celeba(path: str | os.PathLike[str]) -> CelebA:
    """Read attributes and partitions of CelebA's folder, flat or with its own Anno, Eval and Img; no pictures."""
    folder = Path(path)
    attributes, split = (_find(folder, name) for name in (ATTRIBUTES, SPLIT))
    names, ids, marked = read_attributes(attributes)
    if MALE not in names:
        raise FileError(f"{attributes} has no attribute {MALE}; it has {quoted(names)}")
    return CelebA(folder, ids, names, marked, read_partitions(split, ids))


def attribute_collections(
    data: LabelledData, names: Sequence[str] = (), *, women: float = LEAST_WOMEN, fewest: int = FEWEST
) -> dict[str, NDArray[np.bool_]]:
    """Pictures with each attribute, by the authors' rule (see above); masks over the rows of `data`.

    On the whole test partition this should give the paper's 29. Other attributes can be asked for by `names`.
    """
    female = data.column(GENDER) == "female"
    asked = names or [n for n in data.columns if n not in (GENDER, PARTITION, *NOT_ASKED)]
    masks = {name: data.column(name) == "yes" for name in asked}
    return {n: mask for n, mask in masks.items() if mask.sum() >= fewest and female[mask].mean() >= women}


def _find(folder: Path, name: str) -> Path:
    for inside in FOLDERS:
        if (folder / inside / name).is_file():
            return folder / inside / name
    raise ORIGIN.missing(folder, name)


def _numbered(blocks: Iterable[Block], ids: Sequence[str]) -> Iterator[Block]:
    start = 0
    for block in blocks:
        yield Block(block.vectors, ids=ids[start : start + len(block.vectors)])
        start += len(block.vectors)
