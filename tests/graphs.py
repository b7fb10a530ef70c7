"""Small ONNX graphs and a tokenizer for tests, with what they should return computed in numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from divscore.encoders.registry import EncoderSpec

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

Array = NDArray[Any]
RNG = np.random.default_rng(11)
MIX = RNG.normal(size=(3, 6)).astype(np.float32)
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "anna", "reads", "a", "long", "book", "ben"]
TABLE = RNG.normal(size=(len(VOCABULARY), 5)).astype(np.float32)
TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "float16": 10, "float64": 11}


def graph(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    outputs: Mapping[str, tuple[str, Any]],
    weights: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
) -> Path:
    def ports(these: Mapping[str, tuple[str, Any]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TYPES[t], shape) for name, (t, shape) in these.items()]

    held = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    made = helper.make_graph(list(nodes), "g", ports(inputs), ports(outputs), held)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def image_model(
    path: Path,
    shape: Sequence[Any] = ("n", 3, 8, 8),
    kind: str = "float32",
    metadata: Mapping[str, str] | None = None,
    output: Any = ("n", 6),
) -> Path:
    """The mean colour times MIX; the picture's upper left pixel is a second output."""
    axes = [1, 2] if shape[3] == 3 else [2, 3]
    nodes = [
        node("Cast", "pixels", "real", to=TensorProto.FLOAT),
        node("ReduceMean", "real", "mean", axes=axes, keepdims=0),
        node("MatMul", "mean mix", "vector"),
    ]
    return graph(
        path, nodes, {"pixels": (kind, shape)}, {"vector": ("float32", output)}, {"mix": MIX}, metadata
    )


def picture(height: int, width: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def load(path: Path | str, kind: str = "image", name: str = "onnx", **options: str) -> Any:
    return EncoderSpec(name, kind, str(path), tuple(options.items())).load(threads=1)  # type: ignore[arg-type]


def colour(image: Array, mean: Any = 0.0, std: Any = 1.0, scale: float = 1 / 255) -> Array:
    return ((image.astype(float).mean(axis=(0, 1)) * scale - mean) / std) @ MIX.astype(float)


def close(got: Any, wanted: Array) -> None:
    np.testing.assert_allclose(got.vectors, wanted, rtol=1e-4, atol=1e-5)


def configure(folder: Path, **says: Any) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(says))


def text_model(
    path: Path,
    shape: Sequence[Any] = ("n", "t"),
    masked: bool = True,
    kind: str = "int64",
    shift: float = 0.0,
    pooled: str = "",
) -> Path:
    """Rows of TABLE, each a little nearer to the mean over all rows that the mask marks, so that a mask matters."""
    nodes = [node("Gather", "table input_ids", "own", axis=0)]
    inputs = {"input_ids": (kind, shape)}
    if masked:
        inputs |= {"attention_mask": (kind, shape), "token_type_ids": (kind, shape)}
        nodes += [
            node("Cast", "attention_mask", "marks", to=TensorProto.FLOAT),
            node("Unsqueeze", "marks two", "weight"),
            node("Mul", "own weight", "kept"),
            node("ReduceSum", "kept one", "sum", keepdims=1),
            node("Add", "own sum", "mixed"),
            node("Cast", "token_type_ids", "kinds", to=TensorProto.FLOAT),
            node("Unsqueeze", "kinds two", "offset"),
            node("Add", "mixed offset", "last_hidden_state"),
        ]
    else:
        nodes += [
            node("ReduceSum", "own one", "sum", keepdims=1),
            node("Add", "own sum", "last_hidden_state"),
        ]
    outputs = {"last_hidden_state": ("float32", (*shape, 5))}
    if pooled:
        nodes.append(node("ReduceMax", "last_hidden_state", pooled, axes=[1], keepdims=0))
        outputs[pooled] = ("float32", (shape[0], 5))
    weights = {"table": TABLE + np.float32(shift), "one": np.array([1]), "two": np.array([2])}
    return graph(path, nodes, inputs, outputs, weights)


def tokenizer(folder: Path, frame: bool = True, unknown: str = "[UNK]") -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    made = Tokenizer(WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token=unknown))
    made.pre_tokenizer = Whitespace()
    if frame:
        made.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    made.enable_padding(pad_id=0, length=30)  # must not disturb
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


def rows_of(text: str, length: int = 512) -> Array:
    words = [VOCABULARY.index(w) if w in VOCABULARY else 1 for w in text.split()]
    ids = [2, *words[: length - 2], 3]
    own = TABLE[ids].astype(float)
    return own + own.sum(axis=0)


TEXTS = [
    "anna reads a long book",
    "ben",
    "anna",
    "a book reads anna a long long book",
    "who reads",
    "ben reads",
]


def unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
