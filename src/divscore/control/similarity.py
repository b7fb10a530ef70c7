"""Similarity of vectors: cosine, or any callable on two blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divscore.errors import InputError, VectorError

FloatArray = NDArray[np.float64]
PairwiseFunction = Callable[[FloatArray, FloatArray], ArrayLike]


@dataclass(frozen=True)
class Similarity:
    """A non-negative similarity of two vectors, evaluated on two blocks at once.

    ``function(A, B)`` returns the ``len(A) × len(B)`` matrix of similarities. ``None`` means the cosine similarity of
    the paper's Eq. 2, ``sim(x, y) = 1 + x·y / (‖x‖ ‖y‖)``: its averages collapse to dot products of mean unit vectors,
    so no matrix is needed.

    >>> import numpy as np
    >>> COSINE.pairs(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 3.0]]))
    array([[2., 1.]])
    """

    name: str
    function: PairwiseFunction | None = None

    @property
    def collapses(self) -> bool:
        """Whether averages of pairs reduce to dot products of means (cosine only)."""
        return self.function is None

    def pairs(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Similarity of every row of `left` with every row of `right`."""
        if self.function is None:
            return 1.0 + unit_rows(left) @ unit_rows(right).T
        matrix = np.asarray(self.function(left, right), dtype=np.float64)
        if matrix.shape != (len(left), len(right)):
            raise InputError(
                f"similarity '{self.name}' returned shape {matrix.shape} for blocks of "
                f"{len(left)} and {len(right)} vectors; expected {(len(left), len(right))}"
            )
        if matrix.size and not matrix.min() >= 0:
            raise InputError(
                f"similarity '{self.name}' returned {matrix.min():.4g}, expected numbers ≥ 0; shift or clip it (the "
                "paper adds 1 to the cosine for this reason)"
            )
        return matrix

    @classmethod
    def of(cls, value: Similarity | PairwiseFunction | str) -> Similarity:
        """Accept ``"cosine"``, a callable on two blocks, or a Similarity."""
        if isinstance(value, Similarity):
            return value
        if isinstance(value, str):
            if value != "cosine":
                raise InputError(f"unknown similarity '{value}'; use 'cosine' or a callable on two blocks")
            return COSINE
        return cls(getattr(value, "__name__", type(value).__name__), value)


COSINE = Similarity("cosine")


DENSE_BYTES = 32 << 20  # of a sparse matrix that is made dense at a time


def is_sparse(vectors: Any) -> bool:
    """Whether this is a matrix or array of scipy.sparse, which is not imported for the question."""
    return hasattr(vectors, "tocsr") and hasattr(vectors, "toarray")


def dense_blocks(vectors: Any) -> Iterator[Any]:
    """The vectors as they are; a sparse matrix as dense blocks, so that it never takes much memory."""
    if not is_sparse(vectors) or vectors.ndim != 2:
        yield vectors
        return
    rows, step = vectors.tocsr(), max(1, DENSE_BYTES // (8 * max(1, vectors.shape[1])))
    for start in range(0, max(1, rows.shape[0]), step):
        yield rows[start : start + step].toarray()


def as_matrix(vectors: Any, what: str = "vectors") -> NDArray[Any]:
    """Return `vectors` as a two-dimensional float array, keeping float32 and float64 as they are."""
    try:
        matrix = vectors.toarray() if is_sparse(vectors) else np.asarray(vectors)
    except ValueError as error:
        raise VectorError(f"{what} have different lengths; every item needs the same dimension") from error
    if matrix.dtype == object:
        raise VectorError(
            f"{what} must be numbers in a rectangular array, not Python objects; numpy.stack makes one of a column of "
            "vectors"
        )
    if matrix.dtype.kind not in "fiub":
        raise VectorError(f"{what} must be real numbers, got type {matrix.dtype}")
    if matrix.ndim != 2:
        raise VectorError(f"{what} must be a matrix of items × dimensions, got shape {matrix.shape}")
    if matrix.shape[1] == 0:
        raise VectorError(f"{what} have no dimensions: shape {matrix.shape}")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    return matrix


def unit_rows(vectors: NDArray[Any]) -> FloatArray:
    """Scale every row to length one, in float64; rows must be finite and not zero."""
    rows = vectors.astype(np.float64)
    # Dividing by the largest entry first keeps squares of very large and very small numbers in range.
    rows /= np.abs(rows).max(axis=1, keepdims=True)
    rows /= np.sqrt(np.vecdot(rows, rows))[:, None]
    return rows


def usable_rows(vectors: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the rows that have a direction: finite and not all zero."""
    with np.errstate(invalid="ignore"):  # a signalling NaN, as only a damaged file has it
        return np.asarray(np.isfinite(vectors).all(axis=1) & vectors.any(axis=1))
