"""MixtureFit: a sketch read as a mixture of the control set's groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divscore.control.similarity import FloatArray
from divscore.estimators.mixture import mixture_shares
from divscore.sketch.sketch import Sketch

__all__ = ["MixtureFit", "mixture_fit"]


@dataclass(frozen=True)
class MixtureFit:
    """Occupied cells as scores with counts and likelihoods, and the shares under which they are most likely.

    Groups are in the scorer's order; `named` gives the shares in the control set's.
    """

    scores: FloatArray  # (m, k − 1)
    counts: FloatArray  # (m,)
    likelihoods: FloatArray  # (m, k)
    shares: FloatArray  # (k,)
    named: FloatArray  # (k,)


def mixture_fit(sketch: Sketch) -> MixtureFit:
    """Fit the shares to a sketch's scores."""
    scorer = sketch.scorer
    cells, items = sketch.cells.table()
    scores, counts = scorer.grid.decode(cells), items.astype(float)
    likelihoods = scorer.calibration.likelihoods(scores)
    shares = mixture_shares(likelihoods, counts)
    return MixtureFit(scores, counts, likelihoods, shares, shares[np.argsort(scorer.order)])
