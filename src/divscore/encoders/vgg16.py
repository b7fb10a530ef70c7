"""`vgg16`: the features that the paper takes from pictures, fc2's output after its ReLU.

Weights are the user's: torchvision's or timm's names in a .safetensors file, Keras' in an .h5. Pictures are prepared
as the respective weights were trained: torchvision and timm bring the shorter side to 256 (bilinear) and cut out
224 × 224, Keras squeezes to 224 × 224 and takes blue, green, red. Resizing is bilinear and antialiased throughout,
whereas Keras' own loader picks nearest pixels, which would depend on how far a JPEG was decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.images import NORMALISATIONS, ImageModel, Normalisation, Pixels, Preprocess
from divscore.encoders.session import HubModel, Output, Session, locate
from divscore.errors import FileError, InputError
from divscore.files import sha256

__all__ = [
    "LAYERS",
    "OPTIONS",
    "SIDE",
    "Stored",
    "Style",
    "TensorFile",
    "VggWeights",
    "load",
    "open_tensors",
    "read_weights",
]


# Weights files as tensors by name, each read only when asked for: safetensors and HDF5, told by their content.

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


# VGG-16's weights out of files with torchvision's, timm's or Keras' names, all brought to torchvision's layout.

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


OPTIONS: dict[str, str] = {}
INPUT = 224
IMAGENET = Preprocess(INPUT, INPUT, short=256, normalise=NORMALISATIONS["imagenet"])
PREPARED: dict[Style, Preprocess] = {
    "torchvision": IMAGENET,
    "timm": IMAGENET,
    "keras": Preprocess(
        INPUT, INPUT, channels="bgr", normalise=Normalisation(scale=1.0, mean=(103.939, 116.779, 123.68))
    ),
}


def load(kind: str, model: str | None, options: Mapping[str, str], threads: int) -> ImageModel:
    """Load weights, as `EncoderSpec.load` calls it."""
    if not model:
        raise InputError(
            "expected --model: VGG-16's weights as .safetensors or .h5, or a name on the model hub"
        )
    path = _weights_file(model)
    weights = read_weights(path)
    preprocess = PREPARED[weights.style]
    identity = f"vgg16/1 {preprocess} output=fc2+relu weights={sha256(path)[:16]}"
    return network(identity, weights, preprocess, threads)


def network(identity: str, weights: VggWeights, preprocess: Preprocess, threads: int) -> ImageModel:
    """The network with these weights."""
    session = Session(_graph(weights.tensors), threads, weights.tensors)
    pixels = Pixels.of(session.inputs[0], "VGG-16")
    return ImageModel(identity, session, pixels, preprocess, Output("fc2+relu", weights.dimension))


def _weights_file(model: str) -> Path:
    place = locate(model)
    path = place.fetch(["model.safetensors"]) if isinstance(place, HubModel) else place
    if path.is_dir():
        raise FileError(f"{path} is a folder; give --model the .safetensors or .h5 file itself")
    return path


def _graph(weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """13 convolutions with ReLU, five poolings, then fc1 and fc2 with ReLU; the weights stay outside."""
    from onnx import TensorProto, helper

    nodes, now = [], "pixels"

    def then(kind: str, result: str, *inputs: str, **attributes: Any) -> None:
        nonlocal now
        nodes.append(helper.make_node(kind, [now, *inputs], [result], **attributes))
        now = result

    for i, layer in enumerate(LAYERS):
        given = (f"{layer}.weight", f"{layer}.bias")
        if layer == "fc1":
            then("Flatten", "flat")
        if layer.startswith("fc"):
            then("Gemm", layer, *given, transB=1)
        else:
            then("Conv", layer, *given, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        then("Relu", f"{layer}+relu")
        if not layer.startswith("fc") and LAYERS[i + 1][:6] != layer[:6]:
            then("MaxPool", f"{layer}+pool", kernel_shape=[2, 2], strides=[2, 2])
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["items", 3, INPUT, INPUT])
    vectors = helper.make_tensor_value_info(now, TensorProto.FLOAT, ["items", len(weights["fc2.bias"])])
    outside = [_outside(name, tensor) for name, tensor in weights.items()]
    graph = helper.make_graph(nodes, "vgg16", [pixels], [vectors], outside)
    # Versions that onnxruntime 1.18 knows, whatever the newest onnx would write.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _outside(name: str, tensor: NDArray[np.float32]) -> Any:
    """A weight that the session gets from memory: written into the graph it would be copied several times."""
    from onnx import StringStringEntryProto, TensorProto

    place = {"location": "memory", "offset": "0", "length": str(tensor.nbytes)}
    return TensorProto(
        name=name,
        data_type=TensorProto.FLOAT,
        dims=tensor.shape,
        data_location=TensorProto.EXTERNAL,
        external_data=[StringStringEntryProto(key=key, value=value) for key, value in place.items()],
    )
