"""The paper's draws: a partition that is labelled, and collections of the rest with a known composition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.errors import InputError
from divscore.estimators.interval import disparity

__all__ = [
    "SHARES",
    "SIZES",
    "Attribute",
    "Collection",
    "Labelled",
    "Material",
    "Rows",
    "Settings",
    "Split",
    "check_splits",
    "collected",
    "composed",
]


Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Material:
    """Vectors with columns of names: all that an experiment needs of a data set, and all that workers share."""

    vectors: NDArray[Any]
    columns: dict[str, NDArray[np.str_]]

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True)
class Attribute:
    """A column of group names, and the order that fixes the sign: disparity = share(first) − share(second)."""

    name: str
    column: str
    groups: tuple[str, ...]

    def labels(self, material: Material) -> Rows:
        """Position of every item's group."""
        if self.column not in material.columns:
            raise InputError(f"no column '{self.column}'; there are {', '.join(material.columns)}")
        names = material.columns[self.column]
        labels = np.full(len(names), -1, dtype=np.intp)
        for at, group in enumerate(self.groups):
            labels[names == group] = at
        if (labels < 0).any():
            strange = names[int((labels < 0).argmax())]
            raise InputError(f"column '{self.column}' has '{strange}'; expected {' or '.join(self.groups)}")
        return labels


@dataclass(frozen=True)
class Split:
    """Rows that are labelled (the paper's first partition) and rows that collections are drawn from."""

    labelled: Rows
    rest: Rows

    @classmethod
    def at_random(cls, count: int, labelled: int, rng: np.random.Generator) -> Split:
        """Label a random part."""
        order = rng.permutation(count)
        return cls(order[:labelled], order[labelled:])

    @classmethod
    def balanced(cls, labels: Rows, labelled: int, rng: np.random.Generator) -> Split:
        """Label as many of each group: where one is so rare that a random part would hold too few."""
        groups = int(labels.max()) + 1
        parts = [rng.permutation(np.flatnonzero(labels == g)) for g in range(groups)]
        taken = [min(labelled // groups, len(part) // 2) for part in parts]
        rest = np.concatenate([part[n:] for part, n in zip(parts, taken, strict=True)])
        chosen = np.concatenate([part[:n] for part, n in zip(parts, taken, strict=True)])
        return cls(rng.permutation(chosen), rng.permutation(rest))


def check_splits(splits: Iterable[Split], material: Material, fewest: Mapping[Attribute, int]) -> None:
    """Refuse random splits of which one labels fewer than so many of a group; say how many labels all of them take.

    Splits are cheap to draw; a run that stops at the last of them has lost the work on all others.
    """
    codes = {attribute: attribute.labels(material) for attribute in fewest}
    labels, enough, short = 0, 0, ("", 0)
    for split in splits:
        labels = len(split.labelled)
        order = np.concatenate([split.labelled, split.rest])
        for attribute, number in fewest.items():
            for g, name in enumerate(attribute.groups):
                at = np.flatnonzero(codes[attribute][order] == g)
                if len(at) < number:
                    raise InputError(
                        f"only {len(at)} items are of the group '{name}'; at least {number} are needed"
                    )
                if at[number - 1] >= max(labels, enough):
                    enough, short = int(at[number - 1]) + 1, (name, number)
    if enough:
        raise InputError(
            f"--labels {labels}: in some repetitions fewer than {short[1]} of them are of the group '{short[0]}'; give "
            f"--labels {enough} or more"
        )


@dataclass(frozen=True)
class Labelled:
    """What an auditor has labelled in one repetition: the pool U, and an order in which parts of it are taken.

    `few` are the first of each group in that order, as many of each: a random balanced control set.
    """

    pool: ControlSet
    order: tuple[Rows, ...]  # one a group, positions in the pool
    size: int
    seed: int

    @classmethod
    def draw(
        cls,
        material: Material,
        attribute: Attribute,
        rows: Rows,
        size: int,
        rng: np.random.Generator,
        seed: int,
    ) -> Labelled:
        """Label some rows and shuffle each group."""
        names = material.columns[attribute.column][rows]
        pool = ControlSet(
            material.vectors[rows], names.tolist(), attribute=attribute.name, order=attribute.groups
        )
        order = tuple(rng.permutation(pool.rows(group)) for group in range(len(pool.groups)))
        return cls(pool, order, size, seed)

    @property
    def largest(self) -> int:
        """Size of the largest balanced part."""
        return len(self.order) * min(len(rows) for rows in self.order)

    @property
    def few(self) -> ControlSet:
        """A random balanced control set of `size`, or as many as there are."""
        return self.balanced(self.size)

    def balanced(self, size: int) -> ControlSet:
        """The first of every group, `size` together; what is left over goes to the first groups."""
        k = len(self.order)
        size = min(size, self.largest)
        return self.part([rows[: size // k + (g < size % k)] for g, rows in enumerate(self.order)])

    def part(self, rows: Sequence[Rows]) -> ControlSet:
        """A control set of some rows of the pool."""
        chosen = np.concatenate(rows)
        names = [self.pool.groups[g] for g in self.pool.labels[chosen]]
        return ControlSet(
            self.pool.vectors[chosen], names, attribute=self.pool.attribute, order=self.pool.groups
        )


@dataclass(frozen=True)
class Collection:
    """Items whose composition is known, but only to whoever counts the errors.

    A method that labels items of the collection itself reads the first of `order`, which is random.
    """

    at: float | str
    vectors: NDArray[Any]
    groups: NDArray[np.str_]
    truth: float
    order: Rows

    def __len__(self) -> int:
        return len(self.vectors)

    def sample(self, size: int) -> tuple[NDArray[Any], list[str]]:
        """Random items with their groups: vectors and names."""
        rows = self.order[:size]
        return self.vectors[rows], self.groups[rows].tolist()


def composed(labels: Rows, rows: Rows, shares: Sequence[float], size: int, rng: np.random.Generator) -> Rows:
    """Draw rows without replacement whose groups have these shares: `size`, or as many as the groups allow."""
    members = [rng.permutation(rows[labels[rows] == g]) for g in range(len(shares))]
    largest = [len(part) / share for part, share in zip(members, shares, strict=True) if share > 0]
    size = int(min(size, *largest))
    edges = np.rint(np.cumsum(shares) * size).astype(int)
    counts = np.diff(edges, prepend=0)
    return np.concatenate([part[:n] for part, n in zip(members, counts, strict=True)])


def collected(
    material: Material, attribute: Attribute, rows: Rows, at: float | str, rng: np.random.Generator
) -> Collection:
    """Make a collection of some rows."""
    groups = material.columns[attribute.column][rows]
    counts = np.array([(groups == name).sum() for name in attribute.groups])
    truth = float(disparity(counts / counts.sum()))
    return Collection(at, material.vectors[rows], groups, truth, rng.permutation(len(rows)))


# Settings of an experiment: the paper's numbers, all of which can be set.

SHARES = tuple(f / 10 for f in range(11))
SIZES = tuple(range(10, 101, 10))


@dataclass(frozen=True)
class Settings:
    """How often, with how many labels, and on which collections an experiment runs.

    `labels` is |U|, the examples labelled once; `size` is |T|, of the control set; `k` the items that SS-ST labels
    a round; `collection` is |S|, or as near to it as the groups allow; `shares` are the values of f and `sizes`
    those of |T| in the size sweep.
    """

    repetitions: int = 100
    seed: int = 0
    labels: int = 200
    size: int = 50
    alpha: float = 1.0
    k: int = 5
    collection: int = 500
    shares: tuple[float, ...] = SHARES
    sizes: tuple[int, ...] = SIZES

    def check(self, available: int) -> None:
        """Refuse what cannot be run on so many labelled items."""
        wrong = [
            (self.repetitions < 1, f"{self.repetitions} repetitions: at least one is needed"),
            (self.size < 4, f"a control set of {self.size}: at least 4, two of each group, are needed"),
            (
                self.labels < self.size,
                f"a control set of {self.size} from {self.labels} labels; give --labels {self.size} or more",
            ),
            (
                2 * self.labels > available,
                f"{self.labels} labels of {available} items leave too few for collections; "
                f"give --labels {available // 2} or less",
            ),
            (self.collection < 20, f"collections of {self.collection}: at least 20 items are needed"),
            (self.k < 1, f"k = {self.k}: SS-ST labels at least one item a round"),
            (self.alpha < 0, f"α = {self.alpha}: the weight of redundancy is a number ≥ 0"),
        ]
        for bad, message in wrong:
            if bad:
                raise InputError(message)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    def command(self, experiment: str, usual: Settings) -> str:
        """The command that runs an experiment with these settings."""
        names = {"collection": "collection-size"} | {
            n: n for n in ("repetitions", "seed", "labels", "size", "alpha", "k")
        }
        changed = [
            f"--{option} {getattr(self, name):g}"
            for name, option in names.items()
            if getattr(self, name) != getattr(usual, name)
        ]
        return " ".join([f"divscore reproduce {experiment} --data PATH", *sorted(changed)])
