"""dlib's face descriptor as an ONNX graph, read from the file in which dlib keeps it.

A file of dlib is a run of values. An integer is a control byte (its low four bits: how many bytes follow; its highest
bit: negative) and the magnitude, little-endian. A real number is two integers, mantissa and exponent; a text its length
and its bytes; a tensor the integer 2, four sizes and float32 numbers. A network is its layers from input to output,
each with its name, its settings, three flags, and three tensors that only training uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.onnx import Graph
from divscore.errors import FileError

SIDE = 150  # pixels of an aligned face
DIMENSION = 128
INPUT = "input_rgb_image_sized"
# What each kind of layer has, in order: tensors, integers, aliases (five integers that point into a tensor), reals.
SETTINGS = {
    "con_4": "t iiiiiii aa rrrr",  # weights and bias; filters, height, width, strides, paddings; …
    "affine_": "t aa i",
    "relu_": "",
    "add_prev_": "",
    "max_pool_2": "iiiiii",  # height, width, strides, paddings
    "avg_pool_2": "iiiiii",
    "fc_2": "ii t aa i rrrr",  # outputs, inputs, weights; …
}

Array = NDArray[np.float32]


class Layer(NamedTuple):
    """A layer: its kind, its integers in order, and its numbers."""

    kind: str
    sizes: list[int]
    weights: Array


class _Reader:
    """Values of a file, one after another; anything that cannot be such a value is a ValueError."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise ValueError("it ends too early")
        self.at += size
        return part

    def integer(self) -> int:
        control = self.take(1)[0]
        size = control & 0x0F
        if control & 0x70 or not 1 <= size <= 8:
            raise ValueError(f"no number at byte {self.at - 1}")
        value = int.from_bytes(self.take(size), "little")
        return -value if control & 0x80 else value

    def integers(self, number: int) -> list[int]:
        return [self.integer() for _ in range(number)]

    def real(self) -> float:
        mantissa, exponent = self.integers(2)
        return math.ldexp(mantissa, exponent) if abs(exponent) < 512 else math.nan

    def text(self, size: int) -> str:
        return self.take(size).decode("ascii", "replace")

    def tensor(self) -> Array:
        version, *shape = self.integers(5)
        if version != 2 or min(shape) < 0:
            raise ValueError(f"no tensor before byte {self.at}")
        return np.frombuffer(self.take(4 * math.prod(shape)), dtype="<f4")


def read_layers(data: bytes) -> tuple[list[float], list[Layer]]:
    """The mean colour that is subtracted, and the layers; a ValueError says what is wrong with the file."""
    reader = _Reader(data)
    reader.integer()
    if (loss := reader.text(reader.integer())) != "loss_metric_2":
        raise ValueError(f"it begins with '{loss[:20]}'")
    reader.integers(4)  # margin and threshold of the loss, as reals
    # The versions of all layers come first: small numbers.
    while (length := reader.integer()) < len(INPUT):
        pass
    if reader.text(length) != INPUT:
        raise ValueError("its input is not an image")
    mean = [reader.real() for _ in range(3)]
    if reader.integers(2) != [SIDE, SIDE]:
        raise ValueError(f"its input is not {SIDE} pixels wide and high")
    layers: list[Layer] = []
    while reader.at < len(data):
        kind = reader.text(reader.integer())
        if kind not in SETTINGS:
            raise ValueError(f"it has a layer '{kind[:20]}'")
        sizes: list[int] = []
        weights = np.empty(0, dtype=np.float32)
        for setting in SETTINGS[kind].replace(" ", ""):
            if setting == "t":
                weights = reader.tensor()
            elif setting == "i":
                sizes.append(reader.integer())
            else:
                reader.integers({"a": 5, "r": 2}[setting])
        reader.take(3)
        for _ in range(3):
            reader.tensor()
        if not layers:  # the layer next to the input has one more number
            reader.integer()
        layers.append(Layer(kind, sizes, weights))
    if not layers or layers[-1].kind != "fc_2":
        raise ValueError("its last layer is missing")
    return mean, layers


def descriptor_graph(data: bytes, name: str) -> bytes:
    """The file's network as an ONNX model: `chips` (n, 150, 150, 3) of uint8, RGB, to `descriptors` (n, 128)."""
    graph = Graph("descriptor", inside=True)
    try:
        _connect(*read_layers(data), graph.add)
    except (ValueError, ZeroDivisionError) as error:
        raise FileError(f"{name} is not the network of dlib's face descriptor: {error}") from error
    chips, vectors = ("uint8", ("n", SIDE, SIDE, 3)), ("float32", ("n", DIMENSION))
    return graph.model({"chips": chips}, {"descriptors": vectors})


def _connect(mean: list[float], layers: list[Layer], node: Callable[..., str]) -> None:
    """Add the nodes of all layers, each affine layer folded into the convolution before it."""
    now = node("Cast", "chips", to=1)  # float32
    now = node("Transpose", now, perm=[0, 3, 1, 2])
    now = node("Sub", now, np.array(mean, dtype=np.float32).reshape(1, 3, 1, 1))
    channels, side = 3, SIDE
    begin = (now, channels, side)  # of a residual block, whose end adds it
    for at, (kind, sizes, weights) in enumerate(layers):
        if kind == "con_4":
            filters, height, width, *window = sizes
            split = filters * channels * height * width
            affine = layers[at + 1].weights
            if (len(weights), len(affine)) != (split + filters, 2 * filters) or height != width:
                raise ValueError(f"its layer {at + 1} has an unexpected size")
            factor, offset = affine.reshape(2, filters)
            kernel = weights[:split].reshape(filters, channels, height, width) * factor[:, None, None, None]
            if at == 0:
                kernel /= 256  # as dlib scales pixels; exact, for it is a power of two
            bias = weights[split:] * factor + offset
            now = node("Conv", now, kernel, bias, strides=window[:2], pads=2 * window[2:])
            channels, side = filters, (side + 2 * window[2] - height) // window[0] + 1
        elif kind == "relu_":
            now = node("Relu", now)
            if layers[at - 1].kind == "add_prev_":
                begin = (now, channels, side)
        elif kind == "max_pool_2":
            now = node("MaxPool", now, kernel_shape=sizes[:2], strides=sizes[2:4])
            side = (side - sizes[0]) // sizes[2] + 1
            begin = (now, channels, side)
        elif kind == "add_prev_":
            short, before, width = begin
            if layers[at - 1].kind == "avg_pool_2":  # the block halves the picture, and so must its shortcut
                # Means of 2 × 2 pixels, new channels zero: a convolution, which onnxruntime joins with the addition.
                kernel = np.zeros((channels, before, 2, 2), dtype=np.float32)
                kernel[range(before), range(before)] = 0.25
                short, width = node("Conv", short, kernel, strides=[2, 2]), width // 2
            if side < width:  # dlib adds as if the smaller one were zero beyond its end
                now = node("Pad", now, np.array([0] * 6 + [width - side] * 2, dtype=np.int64))
            now, side = node("Add", now, short), width
        elif kind == "avg_pool_2" and sizes[:2] == [0, 0]:
            now = node("Flatten", node("GlobalAveragePool", now))
        elif kind == "fc_2":
            outputs, inputs = sizes[:2]
            if (outputs, inputs, len(weights)) != (DIMENSION, channels, DIMENSION * channels):
                raise ValueError(f"its layer {at + 1} has an unexpected size")
            now = node("MatMul", now, weights.reshape(inputs, outputs))
