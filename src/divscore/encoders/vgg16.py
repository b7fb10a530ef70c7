"""`vgg16`: the image features of the paper, fc2's output after its ReLU.

The user provides the weights: torchvision's or timm's names in a .safetensors file, Keras' in an .h5. Images are
prepared as these weights were trained: torchvision and timm resize the shorter side to 256 (bilinear) and crop
224 × 224, Keras squeezes to 224 × 224 and takes blue, green, red. Resizing is always bilinear and antialiased;
Keras' own loader picks nearest pixels, which would depend on how far a JPEG was decoded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.images import NORMALISATIONS, ImageModel, Normalisation, Preprocess
from divscore.encoders.onnx import Output, Session, fetch_file
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
    identity = f"vgg16/1 {preprocess} output=fc2+relu weights={sha256(path)[:16]}"
    session = Session(_graph(weights), threads, weights)
    return ImageModel(identity, session, preprocess, Output("fc2+relu", len(weights["fc2.bias"])))


# Weights files: tensors by name, each read when needed; the format is recognised by content.

HDF5 = b"\x89HDF\r\n\x1a\n"
OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive, such as PyTorch's .pth or Keras' .keras",
    b"\x80": "a Python pickle, such as PyTorch's older .pth",
    b"version https://git-lfs": "a Git LFS pointer, not the weights themselves; run git lfs pull",
}


class _Tensor(NamedTuple):
    shape: tuple[int, ...]
    type: str
    read: Callable[[], NDArray[Any]]


@contextmanager
def _open_tensors(path: Path) -> Iterator[tuple[dict[str, _Tensor], bool]]:
    """Tensors by name, and whether the file is Keras' HDF5."""
    import h5py
    from safetensors import SafetensorError, safe_open

    try:
        with open(path, "rb") as stream:
            start = stream.read(64)
        if start.startswith(HDF5):
            opened: Any = h5py.File(path, "r")
        elif start[8:9] == b"{":  # after the length of a safetensors header, which is JSON
            opened = safe_open(path, framework="numpy")
        else:
            kinds = (name for magic, name in OTHER_FORMATS.items() if start.startswith(magic))
            kind = next(kinds, "not a weights file")
            raise FileError(
                f"{path} is {kind}; expected weights as .safetensors or as Keras' .h5. Convert PyTorch's weights with "
                "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
            )
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} cannot be read ({error}); expected weights as .safetensors or .h5"
        ) from error
    with opened as file:
        if is_hdf5 := isinstance(file, h5py.File):
            items: list[tuple[str, Any]] = []
            file.visititems(lambda name, item: items.append((name, item)))
            tensors = {
                name: _Tensor(tuple(item.shape or ()), item.dtype.name, partial(item.__getitem__, ()))
                for name, item in items
                if isinstance(item, h5py.Dataset) and not name.startswith("optimizer_weights/")
            }
        else:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            tensors = {
                name: _Tensor(tuple(part.get_shape()), part.get_dtype(), partial(file.get_tensor, name))
                for name, part in slices.items()
            }
        yield tensors, is_hdf5


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

        # Shape and type are checked before anything is read: a file from outside may announce terabytes.
        def read(name: str, shape: tuple[int, ...]) -> Array:
            tensor = tensors[name]
            if tensor.shape != shape:
                raise FileError(f"{path}: the tensor {name} has the shape {tensor.shape}; expected {shape}")
            if tensor.type not in ("float32", "float16", "F32", "F16"):
                raise FileError(
                    f"{path}: the tensor {name} is of type {tensor.type}; expected float32 or float16"
                )
            try:
                return tensor.read().astype(np.float32, copy=False)
            except Exception as error:  # a damaged file; the libraries' errors have no common base
                raise FileError(
                    f"{path}: the tensor {name} cannot be read ({error}); download it again"
                ) from error

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


def _keras_names(path: Path, tensors: Mapping[str, _Tensor], known_names: str) -> list[tuple[str, str]]:
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


def _graph(weights: Weights) -> bytes:
    """13 convolutions with ReLU, five poolings, then fc1 and fc2 with ReLU; the weights stay outside."""
    from onnx import TensorProto, helper

    nodes, now = [], "pixels"

    def then(kind: str, result: str, *inputs: str, **attributes: Any) -> None:
        nonlocal now
        nodes.append(helper.make_node(kind, [now, *inputs], [result], **attributes))
        now = result

    for i, layer in enumerate(LAYERS):
        parameters = (f"{layer}.weight", f"{layer}.bias")
        if layer == "fc1":
            then("Flatten", "flat")
        if layer.startswith("fc"):
            then("Gemm", layer, *parameters, transB=1)
        else:
            then("Conv", layer, *parameters, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        then("Relu", f"{layer}+relu")
        if not layer.startswith("fc") and LAYERS[i + 1][:6] != layer[:6]:
            then("MaxPool", f"{layer}+pool", kernel_shape=[2, 2], strides=[2, 2])
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["items", 3, INPUT, INPUT])
    vectors = helper.make_tensor_value_info(now, TensorProto.FLOAT, ["items", len(weights["fc2.bias"])])
    # The session gets the weights from memory: written into the graph they would be copied several times.
    outside = []
    for name, array in weights.items():
        tensor = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=array.shape, data_location=TensorProto.EXTERNAL
        )
        for key, value in {"location": "memory", "offset": "0", "length": str(array.nbytes)}.items():
            tensor.external_data.add(key=key, value=value)
        outside.append(tensor)
    graph = helper.make_graph(nodes, "vgg16", [pixels], [vectors], outside)
    # Versions that onnxruntime 1.18 knows, whatever the newest onnx would write.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
