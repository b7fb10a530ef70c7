"""The paper's draws: a labelled part of a data set, and collections of the rest with a known composition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.errors import InputError
from divscore.estimators.interval import disparity
from divscore.paper.labelleddata import LabelledData, Rows

# Rows that are labelled (the paper's first partition), and rows that collections are drawn from.
Split = tuple[Rows, Rows]
SHARES = tuple(f / 10 for f in range(11))


@dataclass(frozen=True)
class Settings:
    """How often, with how many labels, and on which collections an experiment runs.

    `labels` is |U|, the examples labelled once; `size` is |T|, the size of the control set; `k` is the number of items
    that SS-ST labels a round; `collection` is |S|, or as near to it as the groups allow; `shares` are the values of f,
    and `sizes` those of |T| in the size sweep.
    """

    repetitions: int = 100
    seed: int = 0
    labels: int = 200
    size: int = 50
    alpha: float = 1.0
    k: int = 5
    collection: int = 500
    shares: tuple[float, ...] = SHARES
    sizes: tuple[int, ...] = tuple(range(10, 101, 10))

    def check(self, available: int) -> None:
        """Refuse what cannot run on so many items; the command line checks each number by itself."""
        if self.labels < self.size:
            raise InputError(
                f"a control set of {self.size} from {self.labels} labels: use --labels {self.size} or more"
            )
        if 2 * self.labels > available:
            raise InputError(
                f"{self.labels} labels of {available} items leave too few for collections: use --labels "
                f"{available // 2} or less"
            )


@dataclass(frozen=True)
class Attribute:
    """A column of group names, and the order that fixes the sign: disparity = share(first) − share(second)."""

    name: str
    column: str
    groups: tuple[str, ...]

    def control(self, data: LabelledData, rows: Rows) -> ControlSet:
        """Some items as labelled examples."""
        return ControlSet(
            data.vectors[rows],
            data.columns[self.column][rows].tolist(),
            attribute=self.name,
            order=self.groups,
            ids=[data.ids[row] for row in rows.tolist()],
            encoder=data.encoder,
        )

    def labels(self, data: LabelledData) -> Rows:
        """Position of every item's group."""
        labels: Rows = (data.columns[self.column][:, None] == np.array(self.groups)).argmax(axis=1)
        return labels


def random_split(count: int, labelled: int, rng: np.random.Generator) -> Split:
    """Label a random part."""
    order = rng.permutation(count)
    return order[:labelled], order[labelled:]


def balanced_split(labels: Rows, labelled: int, rng: np.random.Generator) -> Split:
    """Label as many of each group, for groups so rare that a random part would have too few."""
    groups = int(labels.max()) + 1
    parts = [rng.permutation(np.flatnonzero(labels == g)) for g in range(groups)]
    taken = [min(labelled // groups, len(part) // 2) for part in parts]
    rest = np.concatenate([part[n:] for part, n in zip(parts, taken, strict=True)])
    chosen = np.concatenate([part[:n] for part, n in zip(parts, taken, strict=True)])
    return rng.permutation(chosen), rng.permutation(rest)


def check_splits(splits: Iterable[Split], data: LabelledData, fewest: Mapping[Attribute, int]) -> None:
    """Refuse random splits if one labels too few of a group; say how many labels are enough for all of them.

    Splits are cheap to draw; a run that stopped at the last one would lose the work on all others.
    """
    codes = {attribute: attribute.labels(data) for attribute in fewest}
    labels, enough, short = 0, 0, ("", 0)
    for labelled, rest in splits:
        labels, order = len(labelled), np.concatenate([labelled, rest])
        for attribute, number in fewest.items():
            for g, name in enumerate(attribute.groups):
                at = np.flatnonzero(codes[attribute][order] == g)
                if len(at) < number:
                    raise InputError(
                        f"only {len(at)} items are of group '{name}'; at least {number} are needed"
                    )
                if at[number - 1] >= max(labels, enough):
                    enough, short = int(at[number - 1]) + 1, (name, number)
    if enough:
        raise InputError(
            f"--labels {labels}: in some repetitions fewer than {short[1]} of them are of group '{short[0]}'; use "
            f"--labels {enough} or more"
        )


@dataclass(frozen=True)
class Labelled:
    """The labelled examples of one repetition: the pool U, and a random order of each group."""

    pool: ControlSet
    order: tuple[Rows, ...]  # one a group, positions in the pool
    seed: int

    @classmethod
    def draw(
        cls, data: LabelledData, attribute: Attribute, rows: Rows, rng: np.random.Generator, seed: int
    ) -> Labelled:
        """Label rows and shuffle each group."""
        pool = attribute.control(data, rows)
        order = tuple(rng.permutation(pool.rows(group)) for group in range(len(pool.groups)))
        return cls(pool, order, seed)

    @property
    def largest(self) -> int:
        """Size of the largest balanced part."""
        return len(self.order) * min(len(rows) for rows in self.order)

    def balanced(self, size: int) -> ControlSet:
        """A random control set of `size`, or as many as there are: the first of every group.

        The first groups get one more if the size does not divide evenly.
        """
        k = len(self.order)
        size = min(size, self.largest)
        rows = np.concatenate([rows[: size // k + (g < size % k)] for g, rows in enumerate(self.order)])
        names = [self.pool.groups[g] for g in self.pool.labels[rows]]
        return ControlSet(
            self.pool.vectors[rows], names, attribute=self.pool.attribute, order=self.pool.groups
        )


@dataclass(frozen=True)
class Collection:
    """Items of known composition; only the code that counts errors looks at it.

    A method that labels items of the collection reads the first of `order`, which is random.
    """

    at: float | str
    vectors: NDArray[Any]
    groups: NDArray[np.str_]
    truth: float
    order: Rows

    def __len__(self) -> int:
        return len(self.vectors)

    def sample(self, size: int) -> tuple[NDArray[Any], list[str]]:
        """Vectors and groups of random items."""
        rows = self.order[:size]
        return self.vectors[rows], self.groups[rows].tolist()


def compose(labels: Rows, rows: Rows, shares: Sequence[float], size: int, rng: np.random.Generator) -> Rows:
    """Draw rows without replacement with these shares of groups: `size`, or as many as the groups allow."""
    members = [rng.permutation(rows[labels[rows] == g]) for g in range(len(shares))]
    largest = [len(part) / share for part, share in zip(members, shares, strict=True) if share > 0]
    size = int(min(size, *largest))
    edges = np.rint(np.cumsum(shares) * size).astype(int)
    counts = np.diff(edges, prepend=0)
    return np.concatenate([part[:n] for part, n in zip(members, counts, strict=True)])


def collect(
    data: LabelledData, attribute: Attribute, rows: Rows, at: float | str, rng: np.random.Generator
) -> Collection:
    """Make a collection of some rows; `at` is its place in a sweep, or its name."""
    groups = data.columns[attribute.column][rows]
    counts = np.array([(groups == name).sum() for name in attribute.groups])
    truth = float(disparity(counts / counts.sum()))
    return Collection(at, data.vectors[rows], groups, truth, rng.permutation(len(rows)))
