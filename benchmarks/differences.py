"""Collections that differ from the labelled examples, with known truth: parts of real data, and simulated shifts.

A population has an attribute to be estimated and facets that divide it in other ways: the country of a portrait, the
length of a tweet. A collection with a difference is one value of a facet. Its control set is drawn either from all
items, so that it contains a few of that kind, or from all others.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore import ControlSet
from divscore.encoders.registry import EncoderSpec

__all__ = ["ALIGNED", "LABELS", "NONE", "Case", "available", "cases", "encoders", "population"]

LABELS = (50, 200)
SIZE = 400
NONE = "none"
ALL, OTHERS = "all kinds", "other kinds"
SHARES: NDArray[np.float64] = np.arange(1, 10) / 10
FEWEST_ITEMS, FEWEST_OF_A_GROUP, FEWEST_LABELS = 30, 15, 8
POPULATIONS = ("portraits, VGG", "portraits, faces", "tweets", "names", "simulated")

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Population:
    """Vectors, the groups of each attribute, and for each attribute the facets that collections are parts of."""

    vectors: NDArray[np.float64]
    groups: dict[str, NDArray[Any]]
    facets: dict[str, dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class Case:
    """A collection with the groups of its items, and a control set for it."""

    data: str
    attribute: str
    difference: str
    value: str  # of the facet
    drawn_from: str
    labels: int
    split: int
    control: ControlSet
    vectors: NDArray[np.float64]
    names: NDArray[Any]

    @property
    def truth(self) -> float:
        """The disparity."""
        return float(2 * (self.names == self.control.groups[0]).mean() - 1)


def available(folder: Path) -> list[str]:
    """The populations that can be loaded; the others are named on stderr."""
    needs = {
        "portraits, VGG": "ppb2017.parquet",
        "portraits, faces": "ppb2017_images",
        "tweets": "tweets_dialect.parquet",
    }
    missing = [name for name in POPULATIONS if name in needs and not (folder / needs[name]).exists()]
    for name in missing:
        print(f"{name}: skipped, {needs[name]} is missing in the folder of --data", file=sys.stderr)
    return [name for name in POPULATIONS if name not in missing]


def encoders(populations: list[str]) -> Iterator[str]:
    """The identities of the encoders of these populations."""
    if "portraits, faces" in populations:
        yield EncoderSpec("faces", "image").load().identity
    yield EncoderSpec("text", "text").load().identity


@functools.cache
def population(name: str, folder: Path) -> Population:
    """Load real data."""
    if name == "tweets":
        return _tweets(folder)
    if name == "names":
        return _names()
    return _portraits(folder, faces=name == "portraits, faces")


def _portraits(folder: Path, *, faces: bool) -> Population:
    import pyarrow.parquet as pq
    from faces import GENDER, KEPT, TONE, kept

    if faces:
        found = kept(sorted((folder / "ppb2017_images").glob("*.jpg")), 1, KEPT / "faces1.npz")
        there = found.found > 0
        files, vectors = found.names[there].tolist(), found.vectors[there]
    else:
        table = pq.read_table(folder / "ppb2017.parquet", columns=["id", "embedding"])
        files, vectors = table["id"].to_pylist(), np.stack(table["embedding"].to_pylist())
    parts = [Path(file).stem.split("_") for file in files]
    gender, tone = (np.array([names[part[at]] for part in parts]) for names, at in ((GENDER, 2), (TONE, 1)))
    kind, country = (np.array([part[at] for part in parts]) for at in (1, 3))
    facets = {
        "gender": {"country": country, "skin type": kind, "skin tone": tone},
        "skin tone": {"country": country, "gender": gender},
    }
    return Population(vectors.astype(np.float64), {"gender": gender, "skin tone": tone}, facets)


def _tweets(folder: Path) -> Population:
    from texts import vectors_of
    from tweets import EACH, GROUPS, texts

    everything, rows = texts(folder / "tweets_dialect.parquet")
    written = [everything[i] for i in np.concatenate(rows)]
    length = np.array([len(text) for text in written])
    facets = {
        "length": np.array(["short", "medium", "long"])[
            np.searchsorted(np.quantile(length, [1 / 3, 2 / 3]), length)
        ],
        "retweet": np.array(["retweet" if "RT @" in text else "original" for text in written]),
        "link": np.array(["link" if "http" in text else "no link" for text in written]),
        "mention": np.array(["mention" if "@" in text else "no mention" for text in written]),
    }
    dialect = np.repeat(list(GROUPS), EACH)
    return Population(
        vectors_of("text", written).astype(np.float64), {"dialect": dialect}, {"dialect": facets}
    )


def _names() -> Population:
    from texts import vectors_of

    from divscore.paper.names import first_names

    names, sexes = first_names()
    length = np.array([len(name) for name in names])
    initial = np.array([name[0] for name in names])
    vowels = np.array([len(re.findall("[aeiouy]+", name.lower())) for name in names])
    facets = {
        "length": np.where(length <= 4, "short", np.where(length >= 8, "long", "medium")),
        "initial": np.where(
            np.isin(initial, list("AEIOU")), "vowel", np.where(initial < "N", "B to M", "N to Z")
        ),
        "vowels": np.minimum(np.maximum(vowels, 1), 4).astype(str),
    }
    return Population(vectors_of("text", names).astype(np.float64), {"sex": np.array(sexes)}, {"sex": facets})


def cases(name: str, split: int, folder: Path, seed: int) -> Iterator[Case]:
    """The collections of one split: three without a difference, then one for each value of every facet."""
    if name == "simulated":
        yield from _simulated(split, seed)
        return
    data = population(name, folder)
    for at, (attribute, groups) in enumerate(data.groups.items()):
        for labels in LABELS:
            rng = np.random.default_rng([seed, split, at, labels, POPULATIONS.index(name)])
            make = functools.partial(_case, name, data, attribute, labels, split)
            order = rng.permutation(len(groups))
            pool, rest = order[:labels], order[labels:]
            control = _control(data, attribute, pool)
            for share in rng.choice(SHARES, 3, replace=False) if control else ():
                yield make(NONE, "", ALL, control, _collection(groups, rest, share, rng))
            for facet, values in data.facets[attribute].items():
                for value in np.unique(values):
                    # Every other split has the composition that this part of the data happens to have.
                    share = None if split % 2 else rng.choice(SHARES)
                    inside, others = (
                        np.flatnonzero(values == value),
                        rng.permutation(np.flatnonzero(values != value)),
                    )
                    apart = _control(data, attribute, others[:labels]) if len(others) >= labels else None
                    for known, drawn_from, rows in (
                        (control, ALL, rest[values[rest] == value]),
                        (apart, OTHERS, inside),
                    ):
                        if known is not None and len(rows) >= FEWEST_ITEMS:
                            yield make(
                                facet, str(value), drawn_from, known, _collection(groups, rows, share, rng)
                            )


def _case(
    name: str,
    data: Population,
    attribute: str,
    labels: int,
    split: int,
    difference: str,
    value: str,
    drawn_from: str,
    control: ControlSet,
    rows: Rows,
) -> Case:
    names = data.groups[attribute][rows]
    return Case(
        name, attribute, difference, value, drawn_from, labels, split, control, data.vectors[rows], names
    )


def _control(data: Population, attribute: str, rows: Rows) -> ControlSet | None:
    """Label some items, if there are a few of both groups among them."""
    groups = data.groups[attribute]
    if min((groups[rows] == name).sum() for name in np.unique(groups)) < FEWEST_LABELS:
        return None
    return ControlSet(data.vectors[rows], groups[rows], attribute=attribute)


def _collection(groups: NDArray[Any], rows: Rows, share: float | None, rng: np.random.Generator) -> Rows:
    """Draw items with this share of the first group; as they come without one, or with too few of a group."""
    first = groups == np.unique(groups)[0]
    ours, others = rng.permutation(rows[first[rows]]), rng.permutation(rows[~first[rows]])
    if share is None or min(len(ours), len(others)) < FEWEST_OF_A_GROUP:
        return rng.permutation(rows)[:SIZE]
    size = min(SIZE, len(ours) / share, len(others) / (1 - share))
    count = round(share * size)
    return np.concatenate([ours[:count], others[: int(size) - count]])


GAPS = (1.5, 2.5, 4.0)  # standard deviations between the groups
SEVERITIES = (0.2, 0.5, 1.0)
ALIGNED = "aligned"
KINDS = (NONE, NONE, NONE, "moved", "moved", "each group moved", "spread", "subgroups", "subgroups", ALIGNED)


@dataclass(frozen=True)
class Source:
    """Two normal groups of four subgroups each; axes differ in their spread, as in real vectors."""

    rng: np.random.Generator
    scale: NDArray[np.float64]
    apart: NDArray[np.float64]  # the groups' means are half of it on either side
    subgroups: NDArray[np.float64]
    centre: NDArray[np.float64]

    @classmethod
    def of(cls, gap: float, rng: np.random.Generator) -> Source:
        """A source whose groups are `gap` standard deviations apart."""
        axes = int(rng.choice([32, 128]))
        scale = np.arange(1.0, axes + 1) ** -0.4
        apart, centre = rng.normal(size=(2, axes))
        apart, centre = apart / np.linalg.norm(apart), centre / np.linalg.norm(centre)
        subgroups = rng.normal(size=(4, axes))
        return cls(rng, scale, gap * apart, subgroups, 2 * np.linalg.norm(scale) * centre)

    def draw(
        self,
        first: NDArray[np.bool_],
        parts: Any = None,
        shifts: tuple[Any, Any] = (0.0, 0.0),
        spread: Any = 1.0,
    ) -> NDArray[np.float64]:
        """Draw items, with shares of the subgroups, shifts of both groups and a spread along each axis."""
        subgroup = self.rng.choice(4, size=len(first), p=parts)
        z = spread * self.rng.normal(size=(len(first), len(self.scale)))
        z += self.subgroups[subgroup] - self.subgroups.mean(axis=0)
        z += np.where(first, 0.5, -0.5)[:, None] * self.apart + np.where(first[:, None], *shifts)
        return np.asarray(self.centre + self.scale * z)


def _simulated(split: int, seed: int) -> Iterator[Case]:
    """Collections whose distribution was changed.

    - moved: all items by a random vector, in proportion to the spread along each axis;
    - each group moved: each by its own vector;
    - spread: the standard deviation along each axis changed at random;
    - subgroups: of other sizes;
    - aligned: moved along the very direction that separates the groups, which no method can see as such.
    """
    for labels in LABELS:
        rng = np.random.default_rng([seed, split, labels, len(POPULATIONS)])
        for gap in GAPS:
            source = Source.of(gap, rng)
            first = rng.permutation(np.arange(labels) < labels // 2)
            control = ControlSet(source.draw(first), np.where(first, "a", "b"), attribute="group")
            for kind in KINDS:
                first = np.arange(SIZE) < round(rng.choice(SHARES) * SIZE)
                size = float(rng.choice(SEVERITIES))
                one, other = 0.7 * size * rng.normal(size=(2, len(source.scale)))
                changes: dict[str, Any] = {}
                if kind == "moved":
                    changes = {"shifts": (one, one)}
                elif kind == "each group moved":
                    changes = {"shifts": (one, other)}
                elif kind == "spread":
                    changes = {"spread": np.exp(one + 0.3 * rng.normal())}
                elif kind == "subgroups":
                    changes = {"parts": rng.dirichlet(np.full(4, 0.5))}
                elif kind == ALIGNED:
                    along = 2 * size / gap * rng.choice([-1, 1]) * source.apart
                    changes = {"shifts": (along, along)}
                vectors, names = source.draw(first, **changes), np.where(first, "a", "b")
                yield Case(
                    "simulated", f"gap {gap}", kind, str(size), ALL, labels, split, control, vectors, names
                )
