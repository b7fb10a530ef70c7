"""Weights files as tensors by name, each read only when asked for: safetensors and HDF5, told by their content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError

__all__ = ["Stored", "TensorFile", "open_tensors"]

HDF5 = b"\x89HDF\r\n\x1a\n"
HEADER = 8  # a safetensors file begins with the length of its header, which is JSON
STRANGERS = {
    b"PK\x03\x04": "a zip archive, such as PyTorch's .pth or Keras' .keras",
    b"\x80": "a Python pickle, such as PyTorch's older .pth",
    b"version https://git-lfs": "a Git LFS pointer, not the weights themselves; run git lfs pull",
}
TYPES = {"F16": "float16", "F32": "float32"}


@dataclass(frozen=True)
class Stored:
    """A tensor in a file."""

    shape: tuple[int, ...]
    type: str
    read: Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class TensorFile:
    """An open weights file."""

    path: Path
    format: Literal["safetensors", "hdf5"]
    tensors: Mapping[str, Stored]

    def read(self, name: str) -> NDArray[np.float32]:
        """A tensor as float32."""
        stored = self.tensors[name]
        if stored.type not in TYPES.values():
            raise FileError(
                f"{self.path}: the tensor {name} is of type {stored.type}; expected float32 or float16, so convert "
                "the file to one of them"
            )
        try:
            return stored.read().astype(np.float32, copy=False)
        except Exception as error:  # a damaged file; the libraries' errors have no common base
            raise FileError(
                f"{self.path}: the tensor {name} cannot be read ({error}); fetch it again"
            ) from error


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """Open a weights file of either format."""
    try:
        with open(path, "rb") as stream:
            start = stream.read(64)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error}); expected a .safetensors or .h5 file") from error
    if start.startswith(HDF5):
        with _hdf5(path) as file:
            yield file
    elif start[HEADER : HEADER + 1] == b"{":
        with _safetensors(path) as file:
            yield file
    else:
        told = next((says for magic, says in STRANGERS.items() if start.startswith(magic)), "something else")
        raise FileError(
            f"{path} is {told}; expected weights as .safetensors or as Keras' .h5. Weights from PyTorch are "
            "converted with safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        )


@contextmanager
def _safetensors(path: Path) -> Iterator[TensorFile]:
    from safetensors import SafetensorError, safe_open

    try:
        opened = safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is a damaged .safetensors file ({error}); fetch it again") from error
    with opened as file:
        tensors = {}
        for name in file.keys():  # noqa: SIM118
            piece = file.get_slice(name)
            kind = piece.get_dtype()
            read = partial(file.get_tensor, name)
            tensors[name] = Stored(tuple(piece.get_shape()), TYPES.get(kind, kind), read)
        yield TensorFile(path, "safetensors", tensors)


@contextmanager
def _hdf5(path: Path) -> Iterator[TensorFile]:
    import h5py

    try:
        opened = h5py.File(path, "r")
    except OSError as error:
        raise FileError(f"{path} is a damaged .h5 file ({error}); fetch it again") from error
    with opened as file:
        tensors: dict[str, Stored] = {}

        def note(name: str, thing: Any) -> None:
            if isinstance(thing, h5py.Dataset):
                tensors[name] = Stored(
                    tuple(thing.shape or ()), thing.dtype.name, lambda: np.asarray(thing[()])
                )

        file.visititems(note)
        yield TensorFile(path, "hdf5", tensors)
