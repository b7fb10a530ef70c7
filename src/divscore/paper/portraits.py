"""Portrait: what PPB-2017 says of one picture, read from its file's name or from a table's columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from divscore.errors import FileError
from divscore.paper.labelleddata import Texts, text_columns
from divscore.sources.places import quoted

__all__ = ["DARK_SKINNED_WOMEN", "OTHERS", "Portrait", "find_columns", "portrait_columns"]

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
