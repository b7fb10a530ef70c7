"""The PPB-2017 features and the draws that benchmarks make from them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from record import HERE

from divscore import ControlSet

__all__ = ["ATTRIBUTES", "DATA", "LABELLED", "SIZE", "Portraits", "balanced", "collection", "control", "load"]

DATA = HERE.parent.parent / "shared" / "data" / "ppb2017.parquet"
LABELLED = 200
SIZE = 480
ATTRIBUTES = ("gender", "skin tone", "dark-skinned women")
ORDER = {
    "gender": ("female", "male"),
    "skin tone": ("darker", "lighter"),
    "dark-skinned women": ("dark-skinned women", "rest"),
}

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Portraits:
    """Feature vectors of the 1,270 portraits, with the groups of each attribute."""

    vectors: NDArray[np.float64]
    groups: dict[str, NDArray[Any]]
    country: NDArray[Any]

    def __len__(self) -> int:
        return len(self.vectors)

    def first(self, attribute: str) -> NDArray[np.bool_]:
        """Which portraits are of the attribute's first group."""
        return np.asarray(self.groups[attribute] == ORDER[attribute][0])

    def disparity(self, attribute: str, rows: Rows) -> float:
        """Return the truth about a collection."""
        return float(2 * self.first(attribute)[rows].mean() - 1)


@functools.cache
def load(path: Path) -> Portraits:
    """Read the features, or say where they should be."""
    import pyarrow.parquet as pq

    if not path.exists():
        raise SystemExit(
            f"the PPB-2017 features are not at {path}; give the path of ppb2017.parquet (columns gender, "
            "skin_tone, country, embedding) with --data"
        )
    table = pq.read_table(path, columns=["gender", "skin_tone", "country", "embedding"])
    gender, tone, country = (np.array(table[c].to_pylist()) for c in ("gender", "skin_tone", "country"))
    both = (gender == "female") & (tone == "darker")
    names = np.where(both, *ORDER["dark-skinned women"])
    vectors = np.stack(table["embedding"].to_pylist()).astype(np.float64)
    return Portraits(vectors, {"gender": gender, "skin tone": tone, "dark-skinned women": names}, country)


def control(data: Portraits, rows: Rows, attribute: str) -> ControlSet:
    """Label some portraits."""
    return ControlSet(
        data.vectors[rows], data.groups[attribute][rows], attribute=attribute, order=ORDER[attribute]
    )


def balanced(data: Portraits, rows: Rows, attribute: str, size: int, rng: np.random.Generator) -> Rows:
    """Draw `size` of the rows at random, half of each group (all of a group that has fewer)."""
    first = data.first(attribute)[rows]
    halves = [rng.permutation(rows[mask])[: size // 2] for mask in (first, ~first)]
    return np.concatenate(halves)


def collection(data: Portraits, rows: Rows, attribute: str, share: float, rng: np.random.Generator) -> Rows:
    """Draw a collection with this share of the first group, as near to `SIZE` as the groups allow."""
    first = data.first(attribute)[rows]
    ours, others = rng.permutation(rows[first]), rng.permutation(rows[~first])
    largest = [len(ours) / share if share > 0 else SIZE, len(others) / (1 - share) if share < 1 else SIZE]
    size = int(min(SIZE, *largest))
    count = min(round(share * size), len(ours))
    return np.concatenate([ours[:count], others[: size - count]])
