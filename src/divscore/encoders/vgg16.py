"""`vgg16`: the image features of the paper, fc2's output after its ReLU.

The user provides the weights: torchvision's or timm's names in a .safetensors file, Keras' in an .h5. Images are
prepared as these weights were trained: torchvision and timm resize the shorter side to 256 (bilinear) and crop
224 × 224, Keras squeezes to 224 × 224 and takes blue, green, red. Resizing is always bilinear and antialiased;
Keras' own loader picks nearest pixels, which would depend on how far a JPEG was decoded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.images import NORMALISATIONS, ImageModel, Normalisation, Preprocess
from divscore.encoders.onnx import Graph, Output, Session, fetch_file
from divscore.encoders.registry import versioned
from divscore.encoders.tensorfile import Tensor, read_header, take
from divscore.errors import FileError
from divscore.files import sha256
from divscore.text import listed

Style = Literal["torchvision", "timm", "keras"]
Array = NDArray[np.float32]
Weights = dict[str, Array]  # LAYER.weight as (out, in, 3, 3) or (out, in), and LAYER.bias

INPUT = 224
SIDE = 7  # of the last feature map, for images of 224 × 224
CONVOLUTIONS = tuple(
    f"block{block}_conv{i}" for block, depth in enumerate((2, 2, 3, 3, 3), 1) for i in range(1, depth + 1)
)
LAYERS = (*CONVOLUTIONS, "fc1", "fc2")
FEATURES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
DENSE = {"torchvision": ("classifier.0", "classifier.3"), "timm": ("pre_logits.fc1", "pre_logits.fc2")}
IMAGENET = Preprocess(INPUT, INPUT, short=256, normalise=NORMALISATIONS["imagenet"])
CAFFE = Normalisation(scale=1.0, mean=(103.939, 116.779, 123.68))
PREPARED: dict[Style, Preprocess] = {
    "torchvision": IMAGENET,
    "timm": IMAGENET,
    "keras": Preprocess(INPUT, INPUT, channels="bgr", normalise=CAFFE),
}


def load(model: str, options: Mapping[str, str], threads: int) -> ImageModel:
    """Load weights from a file or from the hub."""
    path = fetch_file(model, "model.safetensors")
    style, weights = read_weights(path)
    preprocess = PREPARED[style]
    output = Output("fc2+relu", len(weights["fc2.bias"]))
    identity = f"{versioned('vgg16')} {preprocess} output={output.name} weights={sha256(path)[:16]}"
    graph = _graph(weights)
    pixels, features = ("items", 3, INPUT, INPUT), ("items", output.dimension)
    built = graph.model({"pixels": ("float32", pixels)}, {output.name: ("float32", features)})
    return ImageModel(identity, Session(built, threads, graph.weights), preprocess, output)


# Weights files; the format is recognised by content.

HDF5 = b"\x89HDF\r\n\x1a\n"


@contextmanager
def _open_tensors(path: Path) -> Iterator[tuple[Mapping[str, Tensor], bool]]:
    """Tensors by name, and whether the file is Keras' HDF5."""
    import h5py

    expected = ".safetensors or as Keras' .h5"
    try:
        with open(path, "rb") as stream:
            is_hdf5 = stream.read(len(HDF5)) == HDF5
        if not is_hdf5:
            yield read_header(path, expected), False
            return
        opened = h5py.File(path, "r")
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error}); expected weights as {expected}") from error
    with opened as file:
        items: list[tuple[str, Any]] = []
        file.visititems(lambda name, item: items.append((name, item)))
        yield (
            {
                name: Tensor(tuple(item.shape or ()), item.dtype.name, partial(item.__getitem__, ()))
                for name, item in items
                if isinstance(item, h5py.Dataset) and not name.startswith("optimizer_weights/")
            },
            True,
        )


def read_weights(path: Path) -> tuple[Style, Weights]:
    """Read and check a file, in torchvision's layout; the last layer, of 1,000 classes, is not read."""
    with _open_tensors(path) as (tensors, is_hdf5):
        known_names = listed(sorted(tensors), 4) or "no tensors"
        style: Style = "timm" if "pre_logits.fc1.weight" in tensors else "torchvision"
        if is_hdf5:
            style, names = "keras", _keras_names(path, tensors, known_names)
        elif f"{DENSE[style][0]}.weight" in tensors:
            stems = (*(f"features.{i}" for i in FEATURES), *DENSE[style])
            names = [(f"{stem}.weight", f"{stem}.bias") for stem in stems]
            for name in sorted(tensors):
                if name.startswith("features.") and not any(name in pair for pair in names):
                    normed = any("running_mean" in other for other in tensors)
                    kind = "a VGG with BatchNorm" if normed else "a VGG of another depth"
                    raise FileError(
                        f"{path} has the tensor {name} of {kind}; expected VGG-16 without BatchNorm"
                    )
        else:
            raise FileError(
                f"{path} has neither classifier.0.weight (torchvision's name) nor pre_logits.fc1.weight (timm's); "
                f"expected the weights of a whole VGG-16. It has {known_names}"
            )

        def read(name: str, shape: tuple[int, ...]) -> Array:
            return take(path, tensors, name, shape)

        weights: Weights = {}
        width = 3
        for layer, (weight, bias) in zip(LAYERS, names, strict=True):
            for name in (weight, bias):
                if name not in tensors:
                    raise FileError(f"{path} has no tensor {name}, which VGG-16 has; it has {known_names}")
            out = math.prod(tensors[bias].shape)
            is_dense = layer.startswith("fc")
            side = {"fc1": SIDE, "fc2": 1}.get(layer, 3)
            kernel = (side, side, width, out) if style == "keras" else (out, width, side, side)
            shape: tuple[int, ...] = kernel
            if is_dense and style != "timm":  # timm stores dense layers as convolutions
                shape = (width * side * side, out) if style == "keras" else (out, width * side * side)
            array = read(weight, shape).reshape(kernel)
            if style == "keras":  # height, width, in, out
                array = array.transpose(3, 2, 0, 1)
            weights[f"{layer}.weight"] = np.ascontiguousarray(array.reshape(out, -1) if is_dense else array)
            weights[f"{layer}.bias"] = read(bias, (out,))
            width = out
        return style, weights


def _keras_names(path: Path, tensors: Mapping[str, Tensor], known_names: str) -> list[tuple[str, str]]:
    """Each layer's kernel and bias, in whatever groups a version of Keras put them."""
    by_layer: dict[str, list[str]] = {layer: [] for layer in LAYERS}
    for name in sorted(tensors):
        for group in name.split("/"):
            if group in by_layer:
                by_layer[group].append(name)
                break
            if re.fullmatch(r"block\d+_conv\d+", group):
                raise FileError(f"{path} has the layer {group} of a VGG of another depth; expected VGG-16")
    names = []
    for layer, members in by_layer.items():
        if not members:
            hint = ", which files called notop do not have" if layer.startswith("fc") else ""
            raise FileError(
                f"{path} has no layer {layer}{hint}; expected Keras' VGG16 with its top. It has {known_names}"
            )
        kernels = [name for name in members if len(tensors[name].shape) > 1]
        biases = [name for name in members if len(tensors[name].shape) == 1]
        if len(kernels) != 1 or len(biases) != 1:
            raise FileError(
                f"{path}: the layer {layer} has {', '.join(members)}; expected one kernel and one bias"
            )
        names.append((kernels[0], biases[0]))
    return names


def _graph(weights: Weights) -> Graph:
    """13 convolutions with ReLU, five poolings, then fc1 and fc2 with ReLU."""
    graph, now = Graph("vgg16"), "pixels"
    for i, layer in enumerate(LAYERS):
        parameters = (weights[f"{layer}.weight"], weights[f"{layer}.bias"])
        if layer == "fc1":
            now = graph.add("Flatten", now)
        if layer.startswith("fc"):
            now = graph.add("Gemm", now, *parameters, transB=1)
        else:
            now = graph.add("Conv", now, *parameters, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        now = graph.add("Relu", now)
        if not layer.startswith("fc") and LAYERS[i + 1][:6] != layer[:6]:
            now = graph.add("MaxPool", now, kernel_shape=[2, 2], strides=[2, 2])
    return graph
