"""Pictures through an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.encoding import Encoded
from divscore.encoders.outputs import Output, not_finite
from divscore.encoders.preprocess import Preprocess
from divscore.encoders.session import Port, Session
from divscore.errors import InputError

__all__ = ["ImageModel", "Pixels"]

BATCH = 4


@dataclass(frozen=True)
class Pixels:
    """An input for pictures, and whether it wants the channels last."""

    port: Port
    last: bool

    @classmethod
    def of(cls, port: Port, model: str) -> Pixels:
        """Find the axis of the three channels: where the 3 is, else where a name says so, else as PyTorch has it."""
        if port.type not in ("float32", "float16", "uint8"):
            raise InputError(f"{model} takes pictures as {port}; expected float32, float16 or uint8")
        first, last = port.shape[1], port.shape[3]
        if first == 3 or (not port.fixed(1) and last != 3 and "chan" not in str(last)):
            return cls(port, last=False)
        if last == 3 or not (port.fixed(1) or port.fixed(3)):
            return cls(port, last=True)
        raise InputError(f"{model} takes pictures as {port}; expected three channels, red, green and blue")

    @property
    def height_axis(self) -> int:
        """Where the height is; the width follows."""
        return 1 if self.last else 2

    def feeds(self, pixels: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        """Pixels (n, 3, height, width) as the graph takes them."""
        shaped = pixels.transpose(0, 2, 3, 1) if self.last else pixels
        return {self.port.name: np.ascontiguousarray(shaped, dtype=self.port.type)}


class ImageModel:
    """An encoder of pictures."""

    variant = ""

    def __init__(
        self, identity: str, session: Session, pixels: Pixels, preprocess: Preprocess, output: Output
    ) -> None:
        self.identity = identity
        self.dimension = output.dimension
        self.enough = preprocess.enough
        self._session = session
        self._pixels = pixels
        self._preprocess = preprocess
        self._output = output

    def encode(self, items: Sequence[NDArray[np.uint8]]) -> Encoded:
        """One vector a picture."""
        step = self._session.batch or BATCH
        vectors = np.empty((len(items), self.dimension), dtype=np.float32)
        for at in range(0, len(items), step):
            vectors[at : at + step] = self.run(self._preprocess(items[at : at + step]))
        return Encoded.of(vectors, not_finite(vectors))

    def run(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Vectors of pictures that are prepared already, as (n, 3, height, width)."""
        results = self._session.run(self._pixels.feeds(pixels), [self._output.name])
        return self._output.vectors(results[0])
