"""Comparison: which estimator, which control set and how many labels suit a user's own labelled pool.

Part of the pool plays the labelled examples, the rest is drawn into collections of every composition (artificial
prevalence), whose disparity is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.errors import ControlError, InputError
from divscore.paper.candidates import Candidate, candidates
from divscore.paper.draws import Attribute, Labelled, Material, Rows, collected, composed
from divscore.paper.records import Answer, Batch
from divscore.paper.repeat import repeat
from divscore.paper.settings import SHARES
from divscore.paper.summary import Summary, summarise
from divscore.paper.sweep import ask

__all__ = ["Compared", "Comparison", "Setup", "compare", "usable_labels"]

LABELS = (50, 100, 200)
FEW_LABELS, FEW_HELD = 5, 8  # of every group: to label, to draw collections from
LEADS = (0.0, 0.5, 1.0)  # shares of the leading group where there are more than two


@dataclass(frozen=True)
class Setup:
    """How a comparison is made; `size` is that of control sets chosen among the labels, at most half of them.

    `only` names the methods to ask, where not all are wanted.
    """

    labels: tuple[int, ...]
    repetitions: int = 20
    collection: int = 200
    size: int = 50
    seed: int = 0
    quapy: bool = False
    only: tuple[str, ...] = ()

    def candidates(self, counts: Sequence[int]) -> tuple[Candidate, ...]:
        """What is asked with so many labelled examples of every group."""
        found = candidates(counts, self.size, quapy=self.quapy)
        return tuple(method for method in found if not self.only or method.key in self.only)


@dataclass(frozen=True)
class Compared:
    """One method with one number of labels."""

    labels: int
    method: str
    title: str
    summary: Summary
    representatives: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Every method with every number of labels, on the same draws."""

    attribute: str
    groups: tuple[str, ...]
    pool: int
    setup: Setup
    rows: tuple[Compared, ...]
    answers: tuple[Answer, ...]

    @property
    def items(self) -> tuple[int, int]:
        """Smallest and largest collection."""
        sizes = [a.items for a in self.answers]
        return min(sizes), max(sizes)

    @property
    def held_out(self) -> int:
        """How many examples all collections of a split are drawn from."""
        return self.pool - max(self.setup.labels)


def compare(
    pool: ControlSet,
    setup: Setup,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare on repeated splits of a labelled pool; two groups or more."""
    if not pool.similarity.collapses:
        raise InputError(f"compare works with cosine similarity; this pool has '{pool.similarity.name}'")
    usable_labels(pool, setup.labels)
    names = np.array(pool.groups)[pool.labels]
    material = Material(pool.vectors, {"group": names})
    attribute = Attribute(pool.attribute, "group", pool.groups)
    counts = np.bincount(pool.labels)
    asked = {n: setup.candidates(_quotas(counts, n).tolist()) for n in setup.labels}
    doing = functools.partial(work, attribute=attribute, setup=setup)
    tasks = [(repetition,) for repetition in range(setup.repetitions)]
    answers = Batch.joined(repeat(doing, material, tasks, workers=workers, progress=progress)).answers
    rows = []
    for labels, methods in asked.items():
        for method in methods:
            mine = [a for a in answers if a.method == method.key and a.sweep == f"{labels} labels"]
            found = summarise(mine)
            if found is not None:
                rows.append(Compared(labels, method.key, method.title, found, method.representatives))
    return Comparison(pool.attribute, pool.groups, len(pool), setup, tuple(rows), tuple(answers))


def work(material: Material, repetition: int, attribute: Attribute, setup: Setup) -> Batch:
    """One split: every number of labels and every method, on the same collections."""
    labels = attribute.labels(material)
    rng = np.random.default_rng([setup.seed, repetition])
    order = [rng.permutation(np.flatnonzero(labels == g)) for g in range(len(attribute.groups))]
    counts = np.array([len(rows) for rows in order])
    most = _quotas(counts, max(setup.labels))
    rest = np.concatenate([rows[n:] for rows, n in zip(order, most, strict=True)])
    collections = [
        collected(material, attribute, composed(labels, rest, shares, setup.collection, rng), str(at), rng)
        for at, shares in enumerate(_compositions(len(counts)))
    ]
    batch = Batch()
    for number in setup.labels:
        quotas = _quotas(counts, number)
        rows = np.concatenate([some[:n] for some, n in zip(order, quotas, strict=True)])
        labelled = Labelled.draw(material, attribute, rows, setup.size, rng, repetition)
        methods = setup.candidates(quotas.tolist())
        batch.answers.extend(ask(methods, labelled, collections, f"{number} labels"))
    return batch


def usable_labels(pool: ControlSet, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """Numbers of labels that a pool has room for: those wanted, or an error; without a wish, the usual ones."""
    few = [f"{n} of '{name}'" for name, n in pool.counts.items() if n < FEW_LABELS + FEW_HELD]
    if few:
        raise ControlError(
            f"only {' and '.join(few)} in the pool; comparing takes at least {FEW_LABELS + FEW_HELD} of every group, "
            f"{FEW_LABELS} to label and {FEW_HELD} to draw collections from. Label more"
        )
    counts = np.array(list(pool.counts.values()))
    least, most = FEW_LABELS * len(counts), _most_labels(counts)
    if wanted is None:
        usual = tuple(n for n in LABELS if least <= n <= 2 * len(pool) // 3 and n <= most)
        return usual or (max(least, min(most, len(pool) // 2)),)
    for number in wanted:
        if number < least:
            raise InputError(f"--labels {number}: {len(counts)} groups take at least {least} labels")
        if number > most:
            raise InputError(
                f"--labels {number}: of {len(pool)} labelled examples {FEW_HELD} of every group are held out, which "
                f"leaves {most} to label; give --labels {most} or less, or label about {number - most} more"
            )
    return tuple(sorted(set(wanted)))


def _most_labels(counts: Rows) -> int:
    """How many labels leave enough of every group to draw collections from."""
    numbers = range(FEW_LABELS * len(counts), int(counts.sum()) + 1)
    fitting = (n for n in reversed(numbers) if (counts - _quotas(counts, n) >= FEW_HELD).all())
    return next(fitting, FEW_LABELS * len(counts))


def _quotas(counts: Rows, labels: int) -> Rows:
    """Labels of each group in the pool's own proportions, but at least `FEW_LABELS`, at the largest's expense."""
    edges = np.rint(np.cumsum(counts / counts.sum()) * labels).astype(np.intp)
    quotas: Rows = np.maximum(np.diff(edges, prepend=0), FEW_LABELS)
    while quotas.sum() > labels:
        quotas[quotas.argmax()] -= 1
    return quotas


def _compositions(groups: int) -> list[tuple[float, ...]]:
    if groups == 2:
        return [(share, 1 - share) for share in SHARES]
    return [
        tuple(share if g == lead else (1 - share) / (groups - 1) for g in range(groups))
        for lead in range(groups)
        for share in LEADS
    ]
