"""SharedSample: one sample of items for the intervals of thousands of collections.

An interval needs the scores of a collection's items under every refitted direction. A collection of its own scores
some hundreds of its items so; ten thousand collections would score every row of the source two hundred times. Most of
it is already known: the scores of all items under the fitted direction are counted, and the mean score under any other
direction follows from the mean vector. Only how scores scatter about their mean when the direction changes is not, and
that hardly depends on the collection: it is taken from a sample of all items together.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.sketch.codes import CodeRows, Rows, distinct
from divscore.sketch.scorer import Scorer
from divscore.sketch.sketch import Sketch
from divscore.sketch.state import REPLICATE_ITEMS

__all__ = ["SharedSample"]

NEIGHBOURS = 9  # items of the sample with about the same score, which take turns


class SharedSample:
    """Items of all collections with their scores under every direction; two groups only."""

    def __init__(self, scorer: Scorer, sampled: CodeRows) -> None:
        self.sampled = sampled
        self.replicates = scorer.replicates
        self.grid = scorer.grid
        half = self.replicates.grid.half
        steps = distinct(sampled.settled())[1].astype(np.float32) - np.float32(half)
        steps = steps[np.argsort(steps[:, 0], kind="stable")]
        self.base = steps[:, 0]
        # Sums and dot products rather than matrix products, whose last bits depend on the threads of the BLAS.
        square = float(np.vecdot(self.base, self.base))
        self.slope = (self.base[:, None] * steps).sum(axis=0) / np.float32(square or 1.0)
        self.scatter = steps - self.base[:, None] * self.slope

    def lend(self, sketch: Sketch) -> None:
        """Let a collection's interval rest on this sample."""
        coarse = self.replicates
        sketch.shared = self
        sketch.replicate_cells = CodeRows(coarse.count, 1, coarse.grid.side)
        if sketch.count:
            sketch.replicate_cells.restore(0, partial(self.codes, sketch))

    def codes(self, sketch: Sketch) -> Rows:
        """Stand-ins for the codes of at most `REPLICATE_ITEMS` items of a collection.

        Each has the score of one of its items under the fitted direction. Under another it has that score times the
        slope of the sample, the scatter of an item of the sample that scores about the same, and what it takes to give
        all together the mean that the collection has.
        """
        base = self._base(sketch)
        turn = np.arange(len(base)) % NEIGHBOURS - NEIGHBOURS // 2
        near = np.clip(np.searchsorted(self.base, base) + turn, 0, len(self.base) - 1)
        steps = base[:, None] * self.slope + self.scatter[near]
        steps += (self._mean(sketch, base) - steps.mean(axis=0, dtype=np.float64)).astype(np.float32)
        half = self.replicates.grid.half
        codes = (np.clip(np.rint(steps), -half, half) + half).astype(np.uint8)
        return np.zeros(len(codes), np.uint8), codes, np.ones(len(codes), np.int64)

    def _base(self, sketch: Sketch) -> NDArray[np.float32]:
        """Scores of the collection's items, or of evenly chosen ones, in the coarse steps of the fitted direction."""
        cells, counts = sketch.cells.table()
        upto = np.cumsum(counts)
        size = min(int(upto[-1]), REPLICATE_ITEMS)
        chosen = np.searchsorted(upto, (np.arange(size) + 0.5) * upto[-1] / size)
        coarse = self.replicates.grid
        scores = self.grid.decode(cells[chosen])[:, 0] * (coarse.half / coarse.reach[0, 0])
        return np.asarray(scores, dtype=np.float32)

    def _mean(self, sketch: Sketch, base: NDArray[np.float32]) -> FloatArray:
        """Mean score under every direction, less what scores beyond the grid and the choice of items take from it."""
        steps = self.replicates.steps
        mean = np.vecdot(steps[:, :-1], sketch.mean) + steps[:, -1]
        return np.asarray(mean - self.slope * (mean[0] - base.mean(dtype=np.float64)))
