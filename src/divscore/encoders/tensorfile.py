"""Tensors of a weights file, each read when it is needed, and the .safetensors format.

Such a file is the length of its header (8 bytes, little-endian), the header, and the numbers. The header is JSON: the
type, shape and place of each tensor by name, and free text under `__metadata__`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.files import check_json, read_json, unreadable

MOST_HEADER = 100_000_000  # bytes; more than any model has, and less than would hurt
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
DAMAGED = "the file is damaged, download it again"
READ = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive, such as PyTorch's .pth or Keras' .keras",
    b"\x80": "a Python pickle, such as PyTorch's older .pth",
    b"version https://git-lfs": "a Git LFS pointer, not the weights themselves; run git lfs pull",
}
CONVERT = (
    "Convert PyTorch's weights with safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
)


class Tensor(NamedTuple):
    """A tensor of a file that is not read yet."""

    shape: tuple[int, ...]
    type: str
    read: Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_header(path: Path, expected: str = ".safetensors") -> dict[str, Tensor]:
    """The tensors of a .safetensors file by name; all of them lie inside the file."""
    try:
        with open(path, "rb") as stream:
            start = stream.read(64)
            if start[8:9] != b"{":
                kinds = (kind for magic, kind in OTHER_FORMATS.items() if start.startswith(magic))
                raise FileError(
                    f"{path} is {next(kinds, 'not a weights file')}; expected weights as {expected}. {CONVERT}"
                )
            size, length = os.fstat(stream.fileno()).st_size, int.from_bytes(start[:8], "little")
            if length > min(MOST_HEADER, size - 8):
                raise FileError(f"{path} has {size:,} bytes and announces a header of {length:,}; {DAMAGED}")
            stream.seek(8)
            header = read_json(dict[str, Any], stream.read(length), f"the header of {path}", hint=DAMAGED)
    except OSError as error:
        raise unreadable(path, error) from error
    header.pop("__metadata__", None)
    data, tensors = 8 + length, {}
    for name, value in header.items():
        entry = check_json(_Entry, value, f"the header of {path}: {name}", hint=DAMAGED)
        begin, end = entry.data_offsets
        if min(entry.shape, default=0) < 0 or not 0 <= begin <= end <= size - data:
            raise FileError(f"{path}: the tensor {name} lies outside the file; {DAMAGED}")
        needed = math.prod(entry.shape) * SIZES.get(entry.dtype, 0)
        if entry.dtype in SIZES and end - begin != needed:
            raise FileError(
                f"{path}: the tensor {name} has {end - begin:,} bytes; expected {needed:,} for {entry.dtype} of "
                f"shape {tuple(entry.shape)}; {DAMAGED}"
            )
        shape = tuple(entry.shape)
        read = partial(_read, path, data + begin, end - begin, entry.dtype, shape)
        tensors[name] = Tensor(shape, entry.dtype, read)
    return tensors


def _read(path: Path, offset: int, size: int, kind: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    with open(path, "rb") as stream:
        stream.seek(offset)
        numbers = np.frombuffer(stream.read(size), READ[kind])
    if kind == "BF16":  # the upper half of a float32
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float32, copy=False).reshape(shape)


def take(path: Path, tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Read a tensor that must have this shape and finite numbers, as float32."""
    # Shape and type are checked before anything is read: a file from outside may announce terabytes.
    tensor = tensors[name]
    if tensor.shape != shape:
        raise FileError(f"{path}: the tensor {name} has the shape {tensor.shape}; expected {shape}")
    if tensor.type not in (*READ, "float32", "float16"):
        raise FileError(
            f"{path}: the tensor {name} is of type {tensor.type}; expected float32, float16 or bfloat16"
        )
    try:
        numbers = tensor.read().astype(np.float32, copy=False)
    except Exception as error:  # a damaged file; the errors of libraries have no common base
        raise FileError(f"{path}: the tensor {name} cannot be read ({error}); download it again") from error
    if not np.isfinite(numbers).all():
        raise FileError(f"{path}: the tensor {name} has numbers that are not finite; download it again")
    return numbers
