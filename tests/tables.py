"""Tables of vectors, and lists of first names, that commands are tested with."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from divscore.paper.names import first_names
from divscore.text import named

D = 12
LABELLED = 200  # names of each sex
# Women and men of a list, and what an audit of it says.
EVEN = 500, 450
GROWN = 540, 480
LITTLE_MORE = 800, 450
MORE = 1500, 450
NEAR_THE_WALL = 2400, 380
BEYOND = 3500, 60


def vectors(rng: np.random.Generator, a: int, b: int) -> Any:
    """So many items of group a, then so many of group b."""
    return (rng.normal(size=(a + b, D)) + 0.8 * np.repeat([1.0, -1.0], [a, b])[:, None]).astype(np.float32)


def mixed(rng: np.random.Generator, first: Any) -> Any:
    """Items in any order: `first` says which are of group a."""
    return rng.normal(size=(len(first), D)) + np.where(first, 1.2, -1.2)[:, None]


def write_table(path: str | Path, rows: Any, **columns: Any) -> None:
    """Write a Parquet file of vectors and columns."""
    rows = np.asarray(rows, dtype=np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    parquet.write_table(pa.table({**columns, "embedding": lists}), path)


@cache
def names() -> tuple[list[str], list[str]]:
    """Names of women and of men."""
    rows = list(zip(*first_names(), strict=True))
    random.Random(4).shuffle(rows)
    return [n for n, sex in rows if sex == "female"], [n for n, sex in rows if sex == "male"]


def write_rows(path: Path, *rows: tuple[str, ...]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_list(path: Path, counts: tuple[int, int]) -> None:
    """Write a list of so many women and men, none of them labelled."""
    women, men = names()
    chosen = women[LABELLED : LABELLED + counts[0]] + men[LABELLED : LABELLED + counts[1]]
    write_rows(path, ("name",), *((name,) for name in chosen))


# Sixty users, and what an audit of them writes.

USERS, EACH = 60, 30
AUDIT = ["audit", "posts.parquet", "--control", "labelled.parquet", "--by", "user", "--workers", "1"]


@dataclass(frozen=True)
class Whole:
    """What is written where nobody watches: the table, and the collections of the JSON."""

    folder: Path
    table: list[str]
    entries: list[dict[str, Any]]

    def ordered(self) -> list[str]:
        return by_disparity(self.entries)


def by_disparity(entries: list[dict[str, Any]]) -> list[str]:
    """Names of what can be told, the largest disparity first."""
    told = [each for each in entries if each["trust"] != "poor"]
    return [named(e["name"]) for e in sorted(told, key=lambda each: (-each["disparity"], each["name"]))]
