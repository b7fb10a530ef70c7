"""`onnx`: any image or text model that was exported to ONNX.

A picture goes to the graph's one input of rank 4, prepared as `imageconfig` finds; a text goes to input_ids and, if
the graph has them, attention_mask and token_type_ids, by the tokenizer.json beside the model or one folder up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from divscore.encoders.images import CONFIG, ImageConfig, ImageModel, Pixels
from divscore.encoders.registry import Encoder
from divscore.encoders.session import (
    Choice,
    HubModel,
    ModelFiles,
    Port,
    Session,
    find_graph,
    folder_of,
    locate,
    measured,
    outside_weights,
)
from divscore.encoders.textmodel import INPUTS, TextStyle, text_model
from divscore.errors import InputError

__all__ = ["OPTIONS", "load", "model_files"]

OPTIONS: dict[str, str] = {
    "size": "side in pixels of the square that pictures are cut to, if the graph takes any",
    "normalise": "how pixels are scaled: imagenet, clip, half (-1 to 1), none (0 to 1) or raw (0 to 255)",
    "mean": "three numbers R,G,B to subtract from pixels of 0 to 1, with std",
    "std": "three numbers R,G,B to divide by after that",
    "length": "most tokens of a text that are read",
    "output": "name of the output that holds the vectors",
    "pool": "cls or mean, where the output has a vector a token (default: cls for images, mean for texts)",
}
SMALL = (
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    CONFIG,
)


def load(kind: str, model: str | None, options: Mapping[str, str], threads: int) -> Encoder:
    """Load an ONNX file, as `EncoderSpec.load` calls it."""
    half = "vision_model" if kind == "image" else "text_model"
    files = model_files(model, (f"onnx/{half}.onnx",))
    session = Session(files.graph, threads)
    pictures = [port for port in session.inputs if port.rank == 4]
    texts = [port for port in session.inputs if port.name in INPUTS]
    if pictures and texts:
        raise InputError(
            f"{files.graph} takes pictures and texts together ({_listed(session)}); export its vision or its text "
            "half alone, for CLIP often vision_model.onnx and text_model.onnx"
        )
    if kind == "text":
        return text_model(TextStyle("onnx/1"), files, session, options)
    if len(pictures) != 1 or len(session.inputs) != 1:
        raise InputError(
            f"{files.graph} takes {_listed(session)}; expected one input of rank 4 and no other, since pictures "
            "are to be encoded"
        )
    return _image_model(files, session, pictures[0], options)


def model_files(model: str | None, more: Sequence[str] = ()) -> ModelFiles:
    """The files of a model: a path, a folder, or a name on the hub, where `more` are tried before the usual names."""
    if not model:
        raise InputError("expected --model: an .onnx file, a folder with one, or a name on the model hub")
    place = locate(model)
    if not isinstance(place, HubModel):
        return ModelFiles.of(find_graph(place))
    graph = place.fetch((*more, "onnx/model.onnx", "model.onnx"))
    rest, root = place.at(graph), folder_of(graph)
    rest.add(SMALL)
    for name in outside_weights(graph):
        rest.fetch([(graph.parent / name).relative_to(root).as_posix()])
    return ModelFiles(graph, (graph.parent, root))


def _image_model(files: ModelFiles, session: Session, port: Port, options: Mapping[str, str]) -> ImageModel:
    name = str(files.graph)
    pixels = Pixels.of(port, name)
    config = ImageConfig(name, options, files.settings(CONFIG), session.metadata)
    preprocess = config.preprocess(port, pixels.height_axis)
    outputs = measured(session, pixels.feeds(preprocess([np.zeros((8, 8, 3), dtype=np.uint8)])))
    output = Choice("cls", name=options.get("output"), pool=options.get("pool")).among(outputs, name)
    identity = f"onnx/1 kind=image {preprocess} {output} weights={files.weights}"
    return ImageModel(identity, session, pixels, preprocess, output)


def _listed(session: Session) -> str:
    return "; ".join(map(str, session.inputs))
