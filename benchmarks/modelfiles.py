"""Weights for encoders that come without: VGG-16 and a sentence model of the usual size, with random numbers.

What they compute means nothing; how long it takes is what trained weights of the same size take.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["image_model", "sentence_model", "vgg16_weights"]

WIDTHS = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
LAYERS, HIDDEN, HEADS, INNER = 6, 384, 12, 1536  # as in MiniLM-L6
POSITIONS = 512


def vgg16_weights(path: Path) -> Path:
    """Write torchvision's names and shapes, 550 MB."""
    from safetensors.numpy import save_file

    from divscore.encoders.vgg16 import DENSE, FEATURES

    rng = np.random.default_rng(0)
    weights, width = {}, 3
    shapes = [(f"features.{at}", (out,)) for at, out in zip(FEATURES, WIDTHS, strict=True)]
    for stem, (out,) in shapes:
        scale = np.float32((2 / (9 * width)) ** 0.5)
        weights[f"{stem}.weight"] = rng.standard_normal((out, width, 3, 3), dtype=np.float32) * scale
        weights[f"{stem}.bias"] = np.zeros(out, dtype=np.float32)
        width = out
    for stem, inputs in zip(DENSE["torchvision"], (25_088, 4096), strict=True):
        scale = np.float32((2 / inputs) ** 0.5)
        weights[f"{stem}.weight"] = rng.standard_normal((4096, inputs), dtype=np.float32) * scale
        weights[f"{stem}.bias"] = np.zeros(4096, dtype=np.float32)
    save_file(weights, path)
    return path


def image_model(path: Path) -> Path:
    """Write the face descriptor as a model of its own: 29 convolutions, images of 150 pixels."""
    from divscore.encoders.dlibnet import descriptor_graph
    from divscore.encoders.faces import RESNET

    path.write_bytes(descriptor_graph(RESNET.read(), RESNET.file))
    return path


def sentence_model(folder: Path, words: Sequence[str]) -> Path:
    """Write a transformer of six layers and a tokenizer that knows these words."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(array: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(array), f"constant{len(constants)}"))
        return str(constants[-1].name)

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"value{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def dense(value: str, rows: int, columns: int) -> str:
        weights = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)
        product = node("MatMul", value, constant(weights))
        return node("Add", product, constant(np.zeros(columns, dtype=np.float32)))

    def normed(value: str) -> str:
        one, none = np.ones(HIDDEN, dtype=np.float32), np.zeros(HIDDEN, dtype=np.float32)
        return node("LayerNormalization", value, constant(one), constant(none), axis=-1)

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(words)]
    split = constant(np.array([0, 0, HEADS, HIDDEN // HEADS]))
    joined = constant(np.array([0, 0, HIDDEN]))
    table = rng.standard_normal((30_522, HIDDEN), dtype=np.float32) * np.float32(0.02)
    places = rng.standard_normal((POSITIONS, HIDDEN), dtype=np.float32) * np.float32(0.02)
    length = node("Gather", node("Shape", "input_ids"), constant(np.array([1])))
    rows = node("Slice", constant(places), constant(np.array([0])), length, constant(np.array([0])))
    now = normed(node("Add", node("Gather", constant(table), "input_ids"), rows))
    seen = node("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = node("Mul", node("Sub", constant(np.float32(1)), seen), constant(np.float32(-1e4)))
    mask = node("Unsqueeze", hidden, constant(np.array([1, 2])))
    for _ in range(LAYERS):
        query, key, value = (
            node("Transpose", node("Reshape", dense(now, HIDDEN, HIDDEN), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = node("Div", node("MatMul", query, key), constant(np.float32((HIDDEN / HEADS) ** 0.5)))
        attention = node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), value)
        mixed = node("Reshape", node("Transpose", attention, perm=[0, 2, 1, 3]), joined)
        now = normed(node("Add", now, dense(mixed, HIDDEN, HIDDEN)))
        wide = dense(now, HIDDEN, INNER)
        bell = node("Erf", node("Div", wide, constant(np.float32(2**0.5))))
        half = node("Mul", wide, constant(np.float32(0.5)))
        gelu = node("Mul", half, node("Add", bell, constant(np.float32(1))))
        now = normed(node("Add", now, dense(gelu, INNER, HIDDEN)))
    nodes[-1].output[0] = "last_hidden_state"
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", HIDDEN])
    graph = helper.make_graph(nodes, "sentence", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
