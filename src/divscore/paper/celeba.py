"""CelebA: 202,599 pictures of celebrities with forty attributes each, one of them the gender.

Reads it, and defines the paper's experiment on it (Section 6.2): the pictures with each attribute are a collection; how
many show women? Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild", 2015.

The paper speaks of 29 attributes and a random subset of around 20,000 pictures without naming them. Its authors'
notebook (github.com/vijaykeswani/Diversity-Audit-Using-Representative-Examples, CelebA/celeba_audit.ipynb) shows both:
the 19,962 pictures of the test partition, from which the auxiliary set of 500 is drawn and removed; and, of all
attributes but Attractive, Blurry and Pale_Skin, those with at least 50 pictures, at least one in ten of a woman.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError, InputError
from divscore.files import PathLike, unreadable
from divscore.jobs.encode import Encoding
from divscore.paper.draws import Attribute, Settings, random_split
from divscore.paper.experiment import Experiment, Repetition
from divscore.paper.figures import collection_figure
from divscore.paper.labelleddata import LabelledData, ListedItems, Progress, Texts, encode, not_there, quote
from divscore.paper.methods import Method, all_methods
from divscore.paper.records import Batch
from divscore.paper.sections import TEXTS, Findings, Report, trust_table
from divscore.sources import open_table
from divscore.sources.items import ItemBatch
from divscore.sources.manifest import ENCODER_KEY
from divscore.text import quoted

SET = "CelebA"
ORIGIN = "CelebA from mmlab.ie.cuhk.edu.hk/projects/CelebA.html (terms: non-commercial research)"
ATTRIBUTES, SPLIT, PICTURES = "list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba"
FOLDERS = ("", "Anno", "Eval", "Img")  # the data set's own folders
MALE = "Male"
GENDER = Attribute("gender", "gender", ("female", "male"))
FEWEST, LEAST_WOMEN = 50, 0.1  # the authors' rule
NOT_ASKED = (GENDER.column, MALE, "Attractive", "Blurry", "Pale_Skin")
FORM = "expected the number of pictures, a line of attribute names, then '000001.jpg -1 1 …' for each picture"


def load_celeba(
    path: PathLike,
    encoding: Encoding | None = None,
    *,
    vectors: PathLike | None = None,
    progress: Progress = None,
) -> LabelledData:
    """Read the test partition of CelebA, the one that the paper uses.

    `path` is CelebA's folder, flat or with its own folders Anno, Eval and Img. Its pictures are encoded, by default by
    the encoder ``faces`` with the user's cache; or `vectors` is a file that `divscore embed` made of them, or a table
    of vectors with the pictures' names as ids, or a .npy with one row for each picture of the list. Columns: gender
    (female, male), and yes or no for every attribute.
    """
    folder = Path(path)
    listed = _find(folder, ATTRIBUTES)
    attributes, ids, marked = _read_attributes(listed)
    if MALE not in attributes:
        raise FileError(f"{listed} has no attribute {MALE}; it has {quoted(attributes)}")
    rows = np.flatnonzero(_in_test(_find(folder, SPLIT), ids))
    yes = np.where(marked[rows], "yes", "no")
    columns = {GENDER.column: np.where(marked[rows, attributes.index(MALE)], "male", "female")}
    columns |= {name: yes[:, at] for at, name in enumerate(attributes)}
    wanted = [ids[row] for row in rows.tolist()]
    if vectors is not None:
        return _stored(Path(vectors), ids, wanted, columns, progress)
    pictures = _find(folder, PICTURES)
    pictures = pictures / PICTURES if (pictures / PICTURES).is_dir() else pictures
    files = [str(pictures / name) for name in wanted]
    labels = {name: column.tolist() for name, column in columns.items()}
    items = ListedItems(str(pictures), SET, "image", ItemBatch(files, wanted, labels))
    return encode(items, encoding, progress)


def _stored(
    path: Path, ids: Sequence[str], wanted: Sequence[str], columns: Mapping[str, Texts], progress: Progress
) -> LabelledData:
    """Vectors of the wanted pictures from a file, read as a stream."""
    opened = open_table(path)
    names, column = iter(ids), ""
    if opened.columns:
        column = next((n for n in opened.columns if n.lower() in {"id", "file", "filename", "image"}), "")
        if not column:
            raise FileError(f"{path} has the columns {quoted(opened.columns)}; expected one named id")
        opened = opened.select(extra=(column,))
    elif opened.rows != len(ids):
        raise FileError(
            f"{path} has {opened.rows} rows without names; expected one for each of the {len(ids)} pictures of "
            f"{ATTRIBUTES}, in its order, or a table with the column id"
        )
    kept: dict[str, NDArray[Any]] = {}
    needed = set(wanted)
    for block in opened:
        before = len(kept)
        block_ids = block.values[column] if column else islice(names, len(block.vectors))
        for name, vector in zip(block_ids, block.vectors, strict=True):
            picture = PurePosixPath(name).name
            # Of several faces of one picture the first, which is the largest, counts.
            if picture in needed and picture not in kept:
                kept[picture] = vector.copy()  # a view would keep the whole block in memory
        if progress is not None:
            progress(len(kept) - before)
    if not kept:
        raise FileError(
            f"{path} has none of the {len(wanted)} pictures needed; expected ids such as {ids[0]}, as from "
            f"'divscore embed {PICTURES} -o celeba.arrow'"
        )
    there = np.array([name in kept for name in wanted])
    return LabelledData(
        SET,
        np.stack([kept[name] for name in wanted if name in kept]),
        {name: values[there] for name, values in columns.items()},
        tuple(name for name in wanted if name in kept),
        opened.metadata.get(ENCODER_KEY),
        len(wanted) - len(kept),
    )


def _find(folder: Path, name: str) -> Path:
    for inside in FOLDERS:
        if (folder / inside / name).exists():
            return folder / inside / name
    raise not_there(folder, f"folder {name} of pictures" if name == PICTURES else f"file {name}", ORIGIN)


def _read_attributes(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.bool_]]:
    """Names of the attributes, names of the pictures, and which picture has which attribute."""
    lines = _lines(path)
    try:
        count = int(next(lines, (0, b""))[1].strip())
    except ValueError as error:
        raise FileError(f"{path}: the first line is not a number; {FORM}") from error
    names = tuple(name.decode() for name in next(lines, (0, b""))[1].split())
    marked: list[bytes] = []
    ids: list[str] = []
    for number, line in lines:
        cells = line.split()
        marks = b"".join(cells[1:]).replace(b"-1", b"0")
        if len(cells) != len(names) + 1 or len(marks) != len(names) or marks.strip(b"01"):
            raise FileError(
                f"{path}, line {number}: {quote(line)}; expected a name and {len(names)} times 1 or -1"
            )
        ids.append(cells[0].decode())
        marked.append(marks)
    if len(ids) != count or not ids:
        raise FileError(f"{path}: {len(ids)} pictures, but its first line says {count}; download it again")
    if len(set(ids)) < count:
        raise FileError(f"{path} lists some pictures twice; download it again")
    table = np.frombuffer(b"".join(marked), dtype=np.uint8).reshape(count, len(names)) == ord("1")
    return names, tuple(ids), table


def _in_test(path: Path, ids: Sequence[str]) -> list[bool]:
    """Whether each picture is in the test partition: 2; 0 is train, 1 validation."""
    known: dict[str, bytes] = {}
    for number, line in _lines(path):
        cells = line.split()
        if len(cells) != 2 or cells[1] not in (b"0", b"1", b"2"):
            raise FileError(f"{path}, line {number}: {quote(line)}; expected a name and 0, 1 or 2")
        known[cells[0].decode()] = cells[1]
    missing = [name for name in ids if name not in known]
    if missing:
        raise FileError(
            f"{path} has no partition for {len(missing)} pictures, the first is {missing[0]}; download it again"
        )
    return [known[name] == b"2" for name in ids]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with open(path, "rb") as stream:
            yield from ((number, line) for number, line in enumerate(stream, start=1) if line.strip())
    except OSError as error:
        raise unreadable(path, error) from error


def attribute_names(data: LabelledData) -> list[str]:
    """Attributes that make a collection by the authors' rule (see above): 29 in the test partition."""
    female = data.columns[GENDER.column] == "female"
    masks = {name: column == "yes" for name, column in data.columns.items() if name not in NOT_ASKED}
    return [n for n, mask in masks.items() if mask.sum() >= FEWEST and female[mask].mean() >= LEAST_WOMEN]


# The experiment.

FIGURE, APPENDIX = ("random-balanced", "adaptive", "likelihood"), ("random-proportional", "iid", "rectified")
# The paper calls SS-ST infeasible here, and does not label as many as |U| in every collection.
INFEASIBLE = ("ss-st", "ss-st-all", "proportional-many", "iid-many")


def methods(settings: Settings) -> tuple[Method, ...]:
    """The methods compared here."""
    return tuple(m for m in all_methods(settings) if m.key not in INFEASIBLE)


def prepare(data: LabelledData, settings: Settings) -> LabelledData:
    """Keep the columns of the collections."""
    names = attribute_names(data)
    if not names:
        raise InputError(f"{data.name}: no attribute has {FEWEST} pictures with one in ten of a woman")
    return replace(data, columns={name: data.columns[name] for name in (GENDER.column, *names)})


def work(data: LabelledData, repetition: int, part: int, settings: Settings) -> Batch:
    """One split: the same control sets for the collections of all attributes."""
    split = functools.partial(random_split, len(data), settings.labels)
    here = Repetition(data, GENDER, settings, methods(settings), split, repetition)
    columns = data.columns.items()
    rows = {name.replace("_", " "): here.rest[column[here.rest] == "yes"] for name, column in columns}
    here.named("attribute", rows, here.methods)  # the column of the gender has no "yes"
    return here.batch


def report(findings: Findings) -> Report:
    """The claims, table and figures of CelebA."""
    by = {(p.method, p.at): p.mae for p in findings.points}
    names = [name for method, name in by if method == "adaptive"]
    drawn = [error for (method, _), error in by.items() if method == "random-proportional"]
    values = {
        "gender": findings.accuracy["gender"],
        "ahead": sum(by["adaptive", name] < by["random-balanced", name] for name in names),
        "count": len(names),
        "almost_all": 0.9 * len(names),
        "drawn": f"from {min(drawn):.3f} to {max(drawn):.3f}" if drawn else "undefined everywhere",
        "differs_much": bool(drawn) and min(drawn) <= 0.1 and max(drawn) >= 0.3,
    }
    figures = {
        stem: collection_figure(findings.points, findings.select(keys), ["gender"])
        for stem, keys in (("attributes", FIGURE), ("appendix", APPENDIX))
    }
    table = trust_table(findings, "attribute", findings.select(FIGURE), "collection")
    return Report([(TEXTS["celeba"]["claims"], values)], {"collections": table}, figures)


DEFAULTS = Settings(repetitions=25, labels=500)
EXPERIMENT = Experiment(
    "celeba", DEFAULTS, (GENDER,), work, report, methods=methods, prepare=prepare, sweep="attribute"
)
