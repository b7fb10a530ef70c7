"""LabelledSample: random items of the collection itself that a person has labelled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.controlset import ControlSet
from divscore.control.similarity import FloatArray, as_matrix, unit_rows
from divscore.errors import InputError, VectorError

__all__ = ["LabelledSample"]


@dataclass(frozen=True)
class LabelledSample:
    """Unit vectors and group positions of labelled items drawn at random from the collection under audit."""

    units: FloatArray
    labels: NDArray[np.intp]

    @classmethod
    def of(cls, vectors: Any, groups: Iterable[str], control: ControlSet) -> LabelledSample:
        """Check a sample against the control set whose groups it uses; a group may be missing from it."""
        matrix = as_matrix(vectors, "the labelled sample's vectors")
        labels = np.array([control.group_of(str(name)) for name in groups], dtype=np.intp)
        if len(matrix) != len(labels):
            raise InputError(f"{len(matrix)} vectors and {len(labels)} group names in the labelled sample")
        if not len(labels):
            raise InputError("the labelled sample is empty; label some random items of the collection")
        if matrix.shape[1] != control.dimension:
            raise VectorError(
                f"the labelled sample's vectors have {matrix.shape[1]} dimensions, the control set's "
                f"{control.dimension}; both must come from the same encoder"
            )
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1) | ~matrix.any(axis=1))
        if bad.size:
            raise VectorError(f"row {bad[0]} of the labelled sample is zero or not finite; leave it out")
        return cls(unit_rows(matrix), labels)

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self, groups: int) -> NDArray[np.intp]:
        """Labelled items in each group."""
        return np.bincount(self.labels, minlength=groups)
