"""A graph that onnxruntime runs: its inputs and outputs, and runs of a whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.halt import heed

__all__ = ["Port", "Session"]

TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}


@dataclass(frozen=True)
class Port:
    """An input or output: numpy's name of its type, and its shape, where names stand for free dimensions."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    @property
    def rank(self) -> int:
        """How many dimensions; 0 where the graph does not say."""
        return len(self.shape)

    def fixed(self, axis: int) -> int | None:
        """The size along an axis, None where it is free."""
        size = self.shape[axis] if axis < self.rank else None
        return size if isinstance(size, int) and size > 0 else None

    def __str__(self) -> str:
        return f"{self.name} {self.type}[{', '.join(str(size or '?') for size in self.shape)}]"


class Session:
    """An ONNX graph from a file, or from bytes with its weights given apart; may be run from several threads."""

    def __init__(
        self, source: Path | bytes, threads: int = 0, weights: Mapping[str, NDArray[np.float32]] | None = None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        given = {name: onnxruntime.OrtValue.ortvalue_from_numpy(w) for name, w in (weights or {}).items()}
        if given:
            # Packing them ahead takes one more copy while loading, and made VGG-16 no faster.
            options.add_session_config_entry("session.disable_prepacking", "1")
            options.add_external_initializers(list(given), list(given.values()))
        model = source if isinstance(source, bytes) else str(source)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise FileError(_refusal(source, error)) from error
        self.inputs = tuple(_port(found) for found in self._session.get_inputs())
        self.outputs = tuple(_port(found) for found in self._session.get_outputs())
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)

    @property
    def batch(self) -> int | None:
        """How many items a run must have, None if any number will do."""
        return next((size for port in self.inputs if (size := port.fixed(0))), None)

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """Named outputs for a batch that is not longer than `batch`; a short one is filled up with its last item."""
        heed()
        rows = len(next(iter(feeds.values())))
        missing = (self.batch or rows) - rows
        if missing:
            feeds = {name: np.concatenate([x, x[-1:].repeat(missing, axis=0)]) for name, x in feeds.items()}
        results: list[NDArray[Any]] = self._session.run(list(outputs), dict(feeds))
        return [result[:rows] for result in results]


def _port(found: Any) -> Port:
    return Port(found.name, TYPES.get(found.type, found.type), tuple(found.shape or ()))


def _refusal(source: Path | bytes, error: Exception) -> str:
    name = "the graph" if isinstance(source, bytes) else str(source)
    says = str(error).splitlines()[0]
    return f"{name} cannot be loaded as an ONNX model; expected a file as exporters write it ({says})"
