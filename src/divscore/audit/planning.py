"""How many labels an interval of a given width needs, estimated from a pilot pool."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.errors import ControlError, InputError
from divscore.estimators.checks import separable
from divscore.estimators.likelihood import likelihood
from divscore.sketch.sketch import Sketch

FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8)
ROUNDS = 4
EXPONENT = 0.6  # from 50 to 200 labels of PPB widths fell with exponents 0.46 to 0.73
FEWEST = 12  # labelled examples a group in a pilot


@dataclass(frozen=True)
class Plan:
    """Expected width of the interval as a function of the number of labels: ``width(n) = a · n^−0.6``.

    `points` are the widths measured on parts of the pilot, as (labels, mean width). The extrapolation assumes a typical
    pilot, and is rough beyond about four times its size.
    """

    attribute: str
    labelled: int
    confidence: float
    coefficient: float
    points: tuple[tuple[int, float], ...]

    def width(self, labels: int) -> float:
        """Expected width for a number of labels, for an evenly split collection."""
        if labels < 4:
            raise InputError(f"{labels} labels: at least 4 are needed")
        return float(min(2.0, self.coefficient * labels**-EXPONENT))

    def labels(self, width: float) -> int:
        """Expected number of labels for an interval of this width."""
        if not 0 < width < 2:
            raise InputError(f"width {width} must be between 0 and 2 (the whole range of a disparity)")
        wanted = float((self.coefficient / width) ** (1 / EXPONENT))
        return max(4, 2 * math.ceil(round(wanted / 2, 6)))


def plan(
    pool: ControlSet,
    *,
    confidence: float = 0.95,
    collection_size: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Measure interval widths on parts of a labelled pilot pool and fit how they shrink with the number of labels.

    In each round a balanced part of the pool is the control set and an evenly split collection of `collection_size`
    items is drawn, with replacement, from the rest. The result is the median of width · n^0.6: a fixed direction would
    give 1/√n, and the direction itself improves with more labels. Two groups only.

    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(80, 8)) + 0.6 * np.repeat([[1.0], [-1.0]], 40, axis=0)
    >>> pilot = ControlSet(vectors, ["a"] * 40 + ["b"] * 40, attribute="letter")
    >>> outlook = plan(pilot)
    >>> outlook.labels(outlook.width(200))
    200
    """
    if len(pool.groups) != 2:
        raise ControlError(f"planning works with two groups; this pool has {len(pool.groups)}")
    few = [f"{n} '{name}'" for name, n in pool.counts.items() if n < FEWEST]
    if few:
        raise ControlError(f"only {' and '.join(few)} in the pilot pool; planning needs {FEWEST} per group")
    rng = np.random.default_rng([seed, 4])
    measured: list[tuple[int, float]] = []
    for fraction in FRACTIONS * ROUNDS:
        take = max(4, round(fraction * min(pool.counts.values())))
        chosen, drawn = [], []
        for group in range(2):
            rows = rng.permutation(pool.rows(group))
            chosen.append(rows[:take])
            drawn.append(rng.choice(rows[take:], size=collection_size // 2))
        part = np.concatenate(chosen)
        names = [pool.groups[g] for g in pool.labels[part]]
        control = ControlSet(pool.vectors[part], names, attribute=pool.attribute)
        sketch = Sketch(control, seed=int(rng.integers(2**31)))
        width = 2.0  # the whole range, if the part does not separate the groups
        if separable(sketch.scorer):
            # Items drawn twice must not have the same hash, or the sample would keep only one of them.
            units = pool.units[np.concatenate(drawn)]
            sketch.add(units + 1e-9 * rng.standard_normal(units.shape))
            width = likelihood(sketch, confidence=confidence).interval.width
        measured.append((len(part), width))
        if progress is not None:
            progress(len(measured), len(FRACTIONS) * ROUNDS)
    if sum(width < 1.8 for _, width in measured) < 0.6 * len(measured):
        raise ControlError(
            f"the {len(pool)} labelled examples of the pilot do not separate the groups of {pool.attribute}, so the "
            "number of labels cannot be estimated. Use another encoder, or a larger pilot"
        )
    # The median, because the width of an inconclusive part only says that it is wide.
    typical = float(np.median([width * n**EXPONENT for n, width in measured]))
    sizes = sorted({n for n, _ in measured})
    points = tuple((n, float(np.mean([w for m, w in measured if m == n]))) for n in sizes)
    return Plan(pool.attribute, len(pool), confidence, typical, points)
