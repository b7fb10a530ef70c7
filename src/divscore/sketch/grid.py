"""Grid: fixed steps on scores, the only form in which scores of items are ever kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray

__all__ = ["Grid", "coarse_half", "fine_half"]


@dataclass(frozen=True)
class Grid:
    """Equal steps on each of several scores, symmetric about zero; the outermost take everything beyond."""

    reach: FloatArray  # (…, q): the score at the outermost step
    half: int  # steps on each side of zero

    @property
    def side(self) -> int:
        """Steps on one score."""
        return 2 * self.half + 1

    @property
    def cells(self) -> int:
        """Cells altogether, over the q scores jointly."""
        return int(self.side ** self.reach.shape[-1])

    def encode(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """Cell numbers (…) of scores (…, q)."""
        steps = scores * (self.half / self.reach).astype(scores.dtype)
        np.rint(steps, out=steps)
        np.minimum(steps, self.half, out=steps)
        np.maximum(steps, -self.half, out=steps)
        cell = steps[..., 0].astype(np.int64)
        cell += self.half
        for axis in range(1, steps.shape[-1]):
            cell = cell * self.side + steps[..., axis].astype(np.int64) + self.half
        return cell

    def decode(self, cells: NDArray[np.int64]) -> FloatArray:
        """Scores (m, q) at the centres of cells; only for a grid of one reach."""
        steps = []
        for _ in range(self.reach.shape[-1]):
            cells, step = np.divmod(cells, self.side)
            steps.append(step)
        return (np.stack(steps[::-1], axis=-1) - self.half) * (self.reach / self.half)


def fine_half(groups: int) -> int:
    """Steps on each side of zero for the estimate."""
    return 1024 if groups == 2 else min(32, int(2.0 ** (44 / (groups - 1)) / 2) - 1)


def coarse_half(groups: int) -> int:
    """Steps on each side of zero for the interval.

    Cell, replicate and level together must fit into 63 bits, also with twelve groups.
    """
    return 64 if groups == 2 else min(12, int((2.0 ** (50 / (groups - 1)) - 1) / 2))
