"""VGG-16's weights out of files with torchvision's, timm's or Keras' names, all brought to torchvision's layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.tensorfile import TensorFile, open_tensors
from divscore.errors import FileError

__all__ = ["LAYERS", "SIDE", "Style", "VggWeights", "read_weights"]

Style = Literal["torchvision", "timm", "keras"]
Array = NDArray[np.float32]
CONVOLUTIONS = tuple(
    f"block{block}_conv{i}" for block, depth in enumerate((2, 2, 3, 3, 3), 1) for i in range(1, depth + 1)
)
LAYERS = (*CONVOLUTIONS, "fc1", "fc2")
FEATURES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
DENSE = {"torchvision": ("classifier.0", "classifier.3"), "timm": ("pre_logits.fc1", "pre_logits.fc2")}
SIDE = 7  # of the last feature map, for pictures of 224 × 224
CELLS = SIDE * SIDE


@dataclass(frozen=True)
class VggWeights:
    """Tensors `LAYER.weight` and `LAYER.bias`; convolutions as (out, in, 3, 3), the others as (out, in)."""

    style: Style
    tensors: dict[str, Array]

    @property
    def dimension(self) -> int:
        """How many numbers fc2 gives."""
        return len(self.tensors["fc2.bias"])


def read_weights(path: Path) -> VggWeights:
    """Read and check a file; the last layer, of 1,000 classes, is left out."""
    with open_tensors(path) as file:
        style = _style(file)
        names = _keras_names(file) if style == "keras" else _torch_names(file, style)
        tensors: dict[str, Array] = {}
        width = 3
        for layer in LAYERS:
            weight, bias = names[layer]
            for name in (weight, bias):
                _there(file, name)
            shape, turn = _layout(style, layer, width)
            width = _width(file, weight, shape)
            _width(file, bias, (width,))
            tensors[f"{layer}.weight"] = np.ascontiguousarray(turn(file.read(weight)))
            tensors[f"{layer}.bias"] = file.read(bias)
        return VggWeights(style, tensors)


def _style(file: TensorFile) -> Style:
    if file.format == "hdf5":
        return "keras"
    styles: tuple[Style, ...] = ("torchvision", "timm")
    for style in styles:
        if f"{DENSE[style][0]}.weight" in file.tensors:
            return style
    raise FileError(
        f"{file.path} has neither classifier.0.weight (torchvision's name) nor pre_logits.fc1.weight (timm's); "
        f"expected the weights of a whole VGG-16. It has {_some(file)}"
    )


def _torch_names(file: TensorFile, style: Style) -> dict[str, tuple[str, str]]:
    stems = (*(f"features.{i}" for i in FEATURES), *DENSE[style])
    known = {f"{stem}.{part}" for stem in stems for part in ("weight", "bias")}
    for name in sorted(file.tensors, key=_natural):
        if name.startswith("features.") and name not in known:
            normed = any("running_mean" in other for other in file.tensors)
            told = "a VGG with BatchNorm" if normed else "a VGG of another depth"
            raise FileError(
                f"{file.path} has the tensor {name}, as {told} has; expected VGG-16 without BatchNorm"
            )
    return {layer: (f"{stem}.weight", f"{stem}.bias") for layer, stem in zip(LAYERS, stems, strict=True)}


def _keras_names(file: TensorFile) -> dict[str, tuple[str, str]]:
    """Each layer's kernel and bias, under whatever groups and names a version of Keras put them."""
    found: dict[str, list[str]] = {layer: [] for layer in LAYERS}
    for name in sorted(file.tensors):
        groups = name.split("/")
        if groups[0] == "optimizer_weights":
            continue
        layer = next((group for group in groups if group in found), None)
        if layer:
            found[layer].append(name)
        elif strange := next((group for group in groups if re.fullmatch(r"block\d+_conv\d+", group)), None):
            raise FileError(
                f"{file.path} has the layer {strange}, as a VGG of another depth has; expected VGG-16"
            )
    return {layer: _kernel_and_bias(file, layer, names) for layer, names in found.items()}


def _kernel_and_bias(file: TensorFile, layer: str, names: list[str]) -> tuple[str, str]:
    if not names:
        hint = ", which files called notop lack" if layer.startswith("fc") else ""
        raise FileError(
            f"{file.path} has no layer {layer}{hint}; expected Keras' VGG16 with its top. It has {_some(file)}"
        )
    kernels = [name for name in names if len(file.tensors[name].shape) > 1]
    biases = [name for name in names if len(file.tensors[name].shape) == 1]
    if len(kernels) != 1 or len(biases) != 1:
        raise FileError(
            f"{file.path}: the layer {layer} has {', '.join(names)}; expected one kernel and one bias"
        )
    return kernels[0], biases[0]


def _there(file: TensorFile, name: str) -> None:
    if name not in file.tensors:
        raise FileError(f"{file.path} has no tensor {name}, which VGG-16 has; it has {_some(file)}")


def _layout(style: Style, layer: str, width: int) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
    """The shape that a weight should have, -1 for the layer's own width, and what brings it to (out, in, …)."""
    if style == "keras":
        if layer == "fc1":  # Keras flattens height, width, channels in this order, torchvision channels first
            inner = (SIDE, SIDE, width, -1)
            return (
                CELLS * width,
                -1,
            ), lambda x: x.reshape(inner).transpose(3, 2, 0, 1).reshape(x.shape[1], -1)
        if layer == "fc2":
            return (width, -1), lambda x: x.T
        return (3, 3, width, -1), lambda x: x.transpose(3, 2, 0, 1)
    if layer not in ("fc1", "fc2"):
        return (-1, width, 3, 3), lambda x: x
    side = SIDE if layer == "fc1" else 1
    shape = (-1, width, side, side) if style == "timm" else (-1, width * side * side)
    return shape, lambda x: x.reshape(len(x), -1)


def _width(file: TensorFile, name: str, expected: tuple[int, ...]) -> int:
    """The layer's own width; all other sizes must be as expected."""
    shape = file.tensors[name].shape
    if len(shape) != len(expected) or any(e not in (-1, s) for s, e in zip(shape, expected, strict=True)):
        wanted = ", ".join("any" if size == -1 else str(size) for size in expected)
        raise FileError(f"{file.path}: the tensor {name} has the shape {shape}; expected ({wanted})")
    return shape[expected.index(-1) if -1 in expected else 0]


def _some(file: TensorFile) -> str:
    names = sorted(file.tensors, key=_natural)
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "") if names else "no tensors"


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
