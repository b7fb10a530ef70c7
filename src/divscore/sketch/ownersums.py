"""Sums of rows by the collection that each belongs to."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.control.similarity import FloatArray
from divscore.sketch.strips import weighted_sum

__all__ = ["Owners", "add_by_owner", "sums_of_many"]

FEW_OWNERS = 64  # collections among the rows up to which each is summed by a product of its own
TOGETHER = 32  # rows of one collection that are summed before they are added in double precision

Owners = NDArray[np.intp]
_HELD = threading.local()


def add_by_owner(total: FloatArray, block: NDArray[Any], inverse: NDArray[Any], owner: Owners) -> None:
    """Add rows, each times its inverse length, to the totals of their owners."""
    if (owner[1:] < owner[:-1]).any():
        order = _by_owner(owner, len(total))
        owner, inverse = owner[order], inverse[order]
        block = np.take(block, order, axis=0, out=_buffer(block), mode="clip")
    starts = _starts(owner)
    edges = np.append(starts, len(owner))
    if len(starts) <= FEW_OWNERS:
        for at, start in enumerate(starts):
            run = slice(start, edges[at + 1])
            total[owner[start]] += weighted_sum(block[run], inverse[run])
    else:
        columns = np.arange(len(owner))
        total[owner[starts]] += _picked(block.astype(np.float64), inverse, columns, edges)


def sums_of_many(
    block: NDArray[Any], inverse: NDArray[Any], owner: Owners, owners: int
) -> NDArray[np.floating]:
    """Sum rows, each times its inverse length, for thousands of owners.

    A few at a time in the precision of the rows, which is the result's where none has more: in single precision the
    mean of some dozen unit vectors errs by 3e-8 at most.
    """
    if np.bincount(owner).max() <= TOGETHER:
        return _handed_out(block, inverse, owner, owners)
    order = _by_owner(owner, owners)
    ordered = owner[order]
    starts = _starts(ordered)
    lengths = np.diff(starts, append=len(owner))
    if lengths.max() > TOGETHER:
        within = np.arange(len(owner)) - np.repeat(starts, lengths)
        starts = np.flatnonzero(within % TOGETHER == 0)
    sums = _picked(block, inverse[order], order, np.append(starts, len(owner)))
    whose = ordered[starts]
    first = np.concatenate([[True], whose[1:] != whose[:-1]])
    if first.all() and len(whose) == owners:
        return sums
    total = np.zeros((owners, block.shape[1]))
    total[whose[first]] = sums[first]
    more = np.flatnonzero(~first)
    if more.size:
        runs = _starts(whose[more])
        rest = _picked(
            sums[more].astype(np.float64),
            np.ones(len(more)),
            np.arange(len(more)),
            np.append(runs, len(more)),
        )
        total[whose[more[runs]]] += rest
    return total


def _handed_out(
    block: NDArray[Any], weights: NDArray[Any], owner: Owners, owners: int
) -> NDArray[np.floating]:
    """Weighted sums of a block's rows by owner: read in their order, which is faster than by owner."""
    from scipy.sparse import csc_array

    rows = np.arange(len(block) + 1, dtype=np.int32)
    giver = csc_array((weights.astype(block.dtype), owner.astype(np.int32), rows), shape=(owners, len(block)))
    return np.asarray(giver @ block)


def _picked(
    block: NDArray[Any], weights: NDArray[Any], columns: NDArray[np.intp], edges: NDArray[np.intp]
) -> NDArray[Any]:
    """Weighted sums of the rows `columns` of a block, from one edge to the next."""
    from scipy.sparse import csr_array

    picker = csr_array((weights.astype(block.dtype), columns, edges), shape=(len(edges) - 1, len(block)))
    return np.asarray(picker @ block)


def _by_owner(owner: Owners, owners: int) -> NDArray[np.intp]:
    narrow = owner.astype(np.uint16) if owners <= 65_536 else owner  # numpy sorts 16 bits by radix
    return np.argsort(narrow, kind="stable")


def _starts(owner: Owners) -> NDArray[np.intp]:
    return np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))


def _buffer(block: NDArray[Any]) -> NDArray[Any]:
    """Memory of the shape of `block`, the thread's own and used again: fresh pages cost more than the copy."""
    held = getattr(_HELD, "block", None)
    if held is None or held.dtype != block.dtype or held.shape[1] != block.shape[1] or len(held) < len(block):
        held = _HELD.block = np.empty_like(block)
    return np.asarray(held[: len(block)])
