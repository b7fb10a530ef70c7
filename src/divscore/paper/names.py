"""First names by recorded sex, 1990 US Census: the collection of `divscore demo`.

Source: U.S. Census Bureau, "Frequently Occurring Surnames and First Names in the United States" (1990 Census),
files dist.female.first and dist.male.first; facts in the public domain. `names.csv` keeps the names of which at
least nine in ten bearers were recorded with the same sex.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.encoders.registry import DEFAULTS, EncoderSpec


@dataclass(frozen=True)
class DemoList:
    """A list of names without sex, its vectors, and the truth that the audit does not see."""

    name: str
    names: tuple[str, ...]
    vectors: NDArray[np.float32]
    truth: float  # share of women − share of men


def first_names() -> tuple[list[str], list[str]]:
    """All names of the file, and the recorded sex of each."""
    text = (files("divscore.paper") / "names.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [row["name"] for row in rows], [row["sex"] for row in rows]


def speaker_lists(labelled: int = 200, size: int = 800, seed: int = 0) -> tuple[ControlSet, list[DemoList]]:
    """Draw labelled examples, and three lists of other names with one, two and four women in five."""
    names, sexes = first_names()
    rng = np.random.default_rng(seed)
    encoder = EncoderSpec(DEFAULTS["text"], "text").load()
    vectors = encoder.encode(names).vectors
    by_sex = {s: rng.permutation([i for i, sex in enumerate(sexes) if sex == s]) for s in ("female", "male")}
    half = labelled // 2
    pool = np.concatenate([rows[:half] for rows in by_sex.values()])
    control = ControlSet(
        vectors[pool],
        [sexes[i] for i in pool],
        attribute="sex",
        order=("female", "male"),
        ids=[names[i] for i in pool],
        encoder=encoder.identity,
    )
    lists = []
    for title, women in (("list A", 0.2), ("list B", 0.4), ("list C", 0.8)):
        count = round(size * women)
        counts = {"female": count, "male": size - count}
        rows = np.concatenate([rng.choice(by_sex[sex][half:], n, False) for sex, n in counts.items()])
        rng.shuffle(rows)
        lists.append(DemoList(title, tuple(names[i] for i in rows), vectors[rows], (2 * count - size) / size))
    return control, lists
