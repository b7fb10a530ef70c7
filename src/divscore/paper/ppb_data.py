"""PPB-2017, the Pilot Parliaments Benchmark: 1,270 portraits of members of six parliaments.

J. Buolamwini and T. Gebru, "Gender Shades", 2018. As distributed it is a folder ``imgs`` of pictures named
``0967_5_f_SA.jpg`` (number, Fitzpatrick skin type, gender, country) beside ``PPB-2017-metadata.csv``, whose columns
are ``image_id, filename, gender, fitzpatrick skin type category, bi.fitz, country`` and whose lines end in a bare
carriage return.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from divscore.errors import FileError
from divscore.jobs.encode import Encoding
from divscore.paper.labelleddata import (
    LabelledData,
    ListedItems,
    Origin,
    Progress,
    Texts,
    Vectors,
    encoded,
    joined,
    text_columns,
)
from divscore.sources import open_table
from divscore.sources.items import is_picture
from divscore.sources.labelled import ENCODER_KEY
from divscore.sources.pickles import read_object_npy
from divscore.sources.places import quoted
from divscore.sources.table import as_float

__all__ = [
    "DARK_SKINNED_WOMEN",
    "ORIGIN",
    "OTHERS",
    "Portrait",
    "find_columns",
    "load_ppb",
    "portrait_columns",
]


# Portrait: what PPB-2017 says of one picture, read from its file's name or from a table's columns.

DARK_SKINNED_WOMEN, OTHERS = "dark-skinned women", "others"
NAME = re.compile(r"\d+_([1-6])_([fm])_([a-z]{2})\.\w+", re.IGNORECASE)
GENDERS = {"f": "female", "female": "female", "m": "male", "male": "male"}
ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6}
# The codes that file names have, by the names that the metadata has.
COUNTRIES = {
    "finland": "FL",
    "iceland": "IL",
    "rwanda": "RW",
    "senegal": "SE",
    "south africa": "SA",
    "sweden": "SW",
}
# Names of the columns that are relied upon, in small letters and without signs; the first that is there counts.
COLUMNS = {
    "id": ("filename", "file", "imagename", "image", "name", "id", "imageid"),
    "gender": ("gender", "sex"),
    "skin_type": (
        "skintype",
        "fitzpatrickskintypecategory",
        "fitzpatrickskintype",
        "fitzpatrick",
        "fitz",
        "numeric",
    ),
    "country": ("country",),
}


@dataclass(frozen=True)
class Portrait:
    """A picture's file name, and the person's gender, Fitzpatrick skin type (1–6) and country's code."""

    id: str
    gender: str
    skin_type: int
    country: str

    @classmethod
    def named(cls, name: str) -> Portrait | None:
        """Read a name such as ``0967_5_f_SA.jpg``: number, skin type, gender, country.

        >>> Portrait.named("imgs/0967_5_f_SA.jpg")
        Portrait(id='0967_5_f_SA.jpg', gender='female', skin_type=5, country='SA')
        """
        base = PurePosixPath(name.replace("\\", "/")).name
        found = NAME.fullmatch(base)
        if found is None:
            return None
        skin, gender, country = found.groups()
        return cls(base, GENDERS[gender.lower()], int(skin), country.upper())

    @classmethod
    def told(cls, name: str, gender: str, skin_type: str, country: str, where: str) -> Portrait:
        """Read the cells of a table's row; `where` is what messages call the row."""
        known = GENDERS.get(gender.strip().lower())
        if known is None:
            raise FileError(f"{where}: gender '{gender}'; expected Female or Male")
        skin = _skin_type(skin_type)
        if skin is None:
            raise FileError(f"{where}: skin type '{skin_type}'; expected Fitzpatrick's 1 to 6, or I to VI")
        place = country.strip()
        return cls(PurePosixPath(name.strip()).name, known, skin, COUNTRIES.get(place.lower(), place))

    @property
    def darker(self) -> bool:
        """Whether the skin type is 4, 5 or 6 (the paper's s > 3)."""
        return self.skin_type > 3


def portrait_columns(portraits: Sequence[Portrait]) -> dict[str, Texts]:
    """Columns of the labels: gender, skin_type, skin_tone, country, and the paper's intersection as `group`."""
    both = [p.darker and p.gender == "female" for p in portraits]
    return text_columns(
        {
            "gender": [p.gender for p in portraits],
            "skin_type": [str(p.skin_type) for p in portraits],
            "skin_tone": ["darker" if p.darker else "lighter" for p in portraits],
            "country": [p.country for p in portraits],
            "group": [DARK_SKINNED_WOMEN if member else OTHERS for member in both],
        }
    )


def find_columns(names: Iterable[str], label: str, needed: Iterable[str] = COLUMNS) -> Mapping[str, str]:
    """Find the columns of a table by their names, whatever their case, signs and order."""
    listed = list(names)
    plain = {"".join(c for c in name.lower() if c.isalnum()): name for name in reversed(listed)}
    found = {what: plain[key] for what, keys in COLUMNS.items() for key in reversed(keys) if key in plain}
    for what in needed:
        if what not in found:
            raise FileError(
                f"{label} has the columns {quoted(listed)}, none of which tells the {what.replace('_', ' ')}; expected "
                f"one named like {' or '.join(COLUMNS[what][:2])}"
            )
    return found


def _skin_type(text: str) -> int | None:
    plain = text.strip().lower()
    if plain in ROMAN:
        return ROMAN[plain]
    digits = plain.removesuffix(".0")
    return int(digits) if digits in {"1", "2", "3", "4", "5", "6"} else None


SET = "PPB-2017"
ORIGIN = Origin("PPB-2017 (Pilot Parliaments Benchmark)", "gendershades.org, on request", "research use")
EXPECTED = "portraits named like 0967_5_f_SA.jpg, PPB-2017-metadata.csv, ppbFeatures.npy or a file of vectors"
FOLDERS = ("", "imgs", "images")
WIDEST = 12  # columns of a table that describes pictures; one with more holds vectors


def load_ppb(
    path: str | os.PathLike[str], encoding: Encoding | None = None, progress: Progress = None
) -> LabelledData:
    """Read PPB-2017 in any of the forms in which it is about.

    Parameters
    ----------
    path : path
        A folder of portraits with the benchmark's file names; the folder as distributed or its metadata CSV, of which
        the columns for file name, gender, Fitzpatrick type and country are relied upon, found by name; the paper's
        authors' ``ppbFeatures.npy``; or vectors in a table with these columns, or with the file names as ids.
    encoding : Encoding, optional
        What encodes pictures; by default the encoder ``faces``, with the user's cache.
    progress : callable, optional
        Is told numbers of pictures as they are encoded.

    Returns
    -------
    LabelledData
        Columns: gender (female, male), skin_type (1–6), skin_tone (darker for 4–6, else lighter), country (FL IL RW SA
        SE SW), and group (dark-skinned women, others).
    """
    place = Path(path)
    if not place.exists():
        raise ORIGIN.missing(place, EXPECTED)
    if place.is_dir():
        return _encoded(*_folder(place), encoding, progress)
    if place.suffix.lower() == ".npy":
        return _features(place)
    if place.suffix.lower() == ".csv" and (told := _metadata(place)) is not None:
        return _encoded(_pictures_of(told, place.parent), told, encoding, progress)
    return _table(place)


def _encoded(
    folder: Path, portraits: Sequence[Portrait], encoding: Encoding | None, progress: Progress
) -> LabelledData:
    ids = [portrait.id for portrait in portraits]
    files = [str(folder / name) for name in ids]
    items = ListedItems(str(folder), SET, "image", files, ids, portrait_columns(portraits))
    return joined(encoded(items, encoding, progress))


def _folder(place: Path) -> tuple[Path, list[Portrait]]:
    """Find where the pictures lie, and what the metadata beside them, or their names, tell of them."""
    for sheet in sorted(place.glob("*metadata*.csv")):
        if (told := _metadata(sheet)) is not None:
            return _pictures_of(told, place), told
    for folder in (place / inside for inside in FOLDERS):
        names = sorted(file.name for file in folder.glob("*") if is_picture(file.name))
        if names:
            return folder, _by_name(names, folder)
    raise ORIGIN.missing(place, EXPECTED)


def _by_name(names: Iterable[str], where: object) -> list[Portrait]:
    """What names tell, all of which must be the benchmark's."""
    listed = list(names)
    found = [(name, Portrait.named(name)) for name in listed]
    strange = [name for name, portrait in found if portrait is None]
    if strange:
        raise FileError(
            f"{where}: {len(strange)} of {len(listed)} items, the first of them '{strange[0]}', are not named as those "
            f"of {SET}; expected names like 0967_5_f_SA.jpg, or PPB-2017-metadata.csv beside the pictures"
        )
    return [portrait for _, portrait in found if portrait is not None]


def _pictures_of(portraits: Sequence[Portrait], place: Path) -> Path:
    for inside in FOLDERS:
        if any((place / inside / portrait.id).is_file() for portrait in portraits):
            return place / inside
    raise ORIGIN.missing(place, f"the pictures that its metadata names, such as imgs/{portraits[0].id}")


def _metadata(sheet: Path) -> list[Portrait] | None:
    """Rows of a CSV that describes pictures; None where it holds vectors."""
    try:
        # Python's text mode takes a bare carriage return, as the distributed file has it, for the end of a line.
        with open(sheet, encoding="utf-8-sig") as stream:
            header = next(csv.reader(stream), [])
            if len(header) > WIDEST:
                return None
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{sheet} cannot be read as CSV ({error}); make or fetch it again") from error
    if not rows:
        raise FileError(f"{sheet} has no rows below its header; fetch it again")
    if any(cell.startswith("[") for cell in rows[0]):
        return None
    found = find_columns((name.strip() for name in header), str(sheet))
    at = {what: [name.strip() for name in header].index(name) for what, name in found.items()}
    told = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise FileError(f"{sheet}, row {number}: {len(row)} cells, the header has {len(header)}")
        name, gender, skin, country = (row[at[what]] for what in ("id", "gender", "skin_type", "country"))
        told.append(Portrait.told(name, gender, skin, country, f"{sheet}, row {number}"))
    if not is_picture(told[0].id):
        raise FileError(
            f"{sheet}: column '{found['id']}' has '{told[0].id}' where a picture's name should be"
        )
    return told


def _table(place: Path) -> LabelledData:
    """Vectors in a table: its own columns count, or else the file names that it has as ids."""
    opened = open_table(place)
    found = find_columns((n for n, kind in opened.columns.items() if kind != "vector"), str(place), ["id"])
    source = opened.select(extra=tuple(found.values()), strict=True)
    blocks = list(source)
    cells = {what: [text for block in blocks for text in block.values[name]] for what, name in found.items()}
    if len(found) == 4:
        rows = zip(cells["id"], cells["gender"], cells["skin_type"], cells["country"], strict=True)
        portraits = [Portrait.told(*row, f"{place}, row {number}") for number, row in enumerate(rows)]
    else:
        portraits = _by_name(cells["id"], place)
    vectors = np.concatenate([block.vectors for block in blocks])
    return _labelled(portraits, vectors, source.metadata.get(ENCODER_KEY))


def _features(place: Path) -> LabelledData:
    """The authors' file: a pickled dict of file name to vector; pairs of both are taken too."""
    held: Any = read_object_npy(place)
    if held.dtype != object:
        raise FileError(
            f"{place} holds numbers of shape {held.shape} without file names; expected {SET}'s names and their vectors"
        )
    names, rows = _pairs(held.item() if held.ndim == 0 else held, place)
    shapes = {np.shape(row) for row in rows}
    stacked = np.array(rows) if len(shapes) == 1 else np.empty(0)
    if stacked.ndim != 2 or stacked.dtype.kind not in "fiu":
        raise FileError(f"{place}: the vectors are not lists of equally many numbers; fetch it again")
    return _labelled(_by_name(names, place), as_float(stacked), None)


def _pairs(held: Any, place: Path) -> tuple[list[str], list[Any]]:
    """Names and vectors out of the layouts that such a file may have."""
    if isinstance(held, dict):
        listed = list(held.items())
        if len(held) == 2 and not any(Portrait.named(str(key)) for key in held):
            listed = list(held.values())
    else:
        listed = list(held) if isinstance(held, (list, tuple, np.ndarray)) else []
    if (
        len(listed) == 2
        and all(map(_is_list, listed))
        and len(listed[0]) == len(listed[1])
        and _texts(listed[0])
    ):
        listed = list(zip(*listed, strict=True))
    if listed and all(_is_list(pair) and len(pair) == 2 and isinstance(pair[0], str) for pair in listed):
        return [str(name) for name, _ in listed], [vector for _, vector in listed]
    raise FileError(
        f"{place} holds a {type(held).__name__}{_contents(held)}; expected a dict of file name (0967_5_f_SA.jpg) to "
        "vector, pairs of both, or the names and the vectors in two arrays"
    )


def _texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _contents(held: Any) -> str:
    if isinstance(held, dict):
        return f" with {len(held)} entries, the first of them '{next(iter(held), '')}'"
    return f" of shape {held.shape}" if isinstance(held, np.ndarray) else ""


def _labelled(portraits: Sequence[Portrait], vectors: Vectors, encoder: str | None) -> LabelledData:
    ids = tuple(portrait.id for portrait in portraits)
    return LabelledData(SET, vectors, portrait_columns(portraits), ids, encoder)
