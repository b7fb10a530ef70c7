"""`vgg16`: the features that the paper takes from pictures, fc2's output after its ReLU.

Weights are the user's: torchvision's or timm's names in a .safetensors file, Keras' in an .h5. Pictures are prepared
as the respective weights were trained: torchvision and timm bring the shorter side to 256 (bilinear) and cut out
224 × 224, Keras squeezes to 224 × 224 and takes blue, green, red. Resizing is bilinear and antialiased throughout,
whereas Keras' own loader picks nearest pixels, which would depend on how far a JPEG was decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.digest import digest_of, short
from divscore.encoders.hub import HubModel, locate
from divscore.encoders.images import ImageModel, Pixels
from divscore.encoders.outputs import Output
from divscore.encoders.preprocess import NORMALISATIONS, Normalisation, Preprocess
from divscore.encoders.session import Session
from divscore.encoders.vggweights import LAYERS, Style, VggWeights, read_weights
from divscore.errors import FileError, InputError

__all__ = ["OPTIONS", "load"]

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
    identity = f"vgg16/1 {preprocess} output=fc2+relu weights={short(digest_of([path]))}"
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
