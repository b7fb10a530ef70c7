"""Agreement of annotators beyond chance: Cohen's κ for two, Fleiss' κ for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Agreement:
    """κ of some annotators on the items that at least two of them labelled; None where chance agrees always."""

    name: Literal["Cohen", "Fleiss"]
    value: float | None
    items: int


def agreement(labels: Sequence[Mapping[str, str]], groups: Sequence[str]) -> Agreement | None:
    """κ of all annotators, from the labels of each item by annotator; None if no two labelled the same item.

    >>> agreement([{"x": "a", "y": "a"}, {"x": "b", "y": "a"}, {"x": "b", "y": "b"}], ["a", "b"]).value
    0.4
    """
    shared = [own for own in labels if len(own) > 1]
    if not shared:
        return None
    position = {name: at for at, name in enumerate(groups)}
    annotators = sorted({name for own in labels for name in own})
    if len(annotators) == 2:
        first, second = (np.array([position[own[name]] for own in shared]) for name in annotators)
        return Agreement("Cohen", cohen(first, second, len(groups)), len(shared))
    counts = np.zeros((len(shared), len(groups)), dtype=np.intp)
    for row, own in enumerate(shared):
        for label in own.values():
            counts[row, position[label]] += 1
    return Agreement("Fleiss", fleiss(counts), len(shared))


def cohen(first: NDArray[np.intp], second: NDArray[np.intp], groups: int) -> float | None:
    r"""Cohen's κ of two annotators who labelled the same items.

    .. math:: \kappa = \frac{p_o - p_e}{1 - p_e}, \quad p_e = \sum_j p_{1j} p_{2j}

    p_o is the share of equal labels, p_ij the share of label j among those of annotator i.

    >>> round(cohen(np.repeat([0, 0, 1, 1], [20, 5, 10, 15]), np.repeat([0, 1, 0, 1], [20, 5, 10, 15]), 2), 9)
    0.4
    """
    table = np.zeros((groups, groups), dtype=np.int64)
    np.add.at(table, (first, second), 1)
    total = int(table.sum())
    # Whole numbers, so that certain agreement by chance is found exactly.
    chance = int(table.sum(axis=0) @ table.sum(axis=1))
    if chance == total**2:
        return None
    return float((total * int(np.trace(table)) - chance) / (total**2 - chance))


def fleiss(counts: NDArray[np.intp]) -> float | None:
    r"""Fleiss' κ, from the number of annotators who gave item i the label j.

    .. math:: P_i = \frac{\sum_j n_{ij}^2 - n_i}{n_i (n_i - 1)}, \quad \kappa = \frac{\bar P - P_e}{1 - P_e}

    with P_e = Σ_j p_j² and p_j the share of label j among all labels. Items may have different numbers n_i ≥ 2 of
    labels; each counts once in the mean of P_i.

    >>> round(fleiss(np.array([[3, 0], [0, 3], [2, 1]])), 9)
    0.55
    """
    number = counts.sum(axis=1)
    same = (((counts**2).sum(axis=1) - number) / (number * (number - 1))).mean()
    of_label = counts.sum(axis=0)
    if (of_label > 0).sum() == 1:
        return None
    chance = float(((of_label / of_label.sum()) ** 2).sum())
    return float((same - chance) / (1 - chance))
