"""What an encoder is, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Encoded", "Encoder"]


@dataclass(frozen=True)
class Encoded:
    """Vectors of some items: usually one each, none where there was nothing to encode, several for several faces.

    `owner[j]` is the item that vector j belongs to, in ascending order. `reasons` says for each item without a
    vector why it has none. `found[i]` is how many things, such as faces, item i showed, also where only one was
    encoded.
    """

    vectors: NDArray[np.float32]
    owner: NDArray[np.intp]
    found: NDArray[np.intp]
    reasons: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, vectors: NDArray[Any], reasons: Mapping[int, str] | None = None) -> Encoded:
        """One vector an item; rows named in `reasons` are left out."""
        lost = dict(reasons or {})
        keep = np.ones(len(vectors), dtype=bool)
        keep[list(lost)] = False
        rows = np.ascontiguousarray(vectors[keep], dtype=np.float32)
        return cls(rows, np.flatnonzero(keep), keep.astype(np.intp), lost)


class Encoder(Protocol):
    """Turns items into vectors: texts (str), or pictures as RGB arrays of shape (height, width, 3).

    `identity` names the encoder, its version and its weights: vectors of equal identity can be compared, others
    not. `variant` is what else changes the outcome without making vectors incomparable; the cache minds it.
    `enough` is the shorter side in pixels beyond which a picture need not be decoded (0 for texts).
    """

    identity: str
    variant: str
    dimension: int
    enough: int

    def encode(self, items: Sequence[Any]) -> Encoded:
        """Encode a batch."""
        ...
