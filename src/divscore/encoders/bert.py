"""BERT as an ONNX graph, from the weights and the configuration that sentence models are published with.

The graph computes `last_hidden_state` as transformers' BertModel does: post-norm layers and absolute positions. With
`int8`, dense layers multiply whole numbers: each column of weights and each token's numbers have a scale of their own.
A scale for a whole batch, as onnxruntime's own quantisation has, would let a text's vector depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from divscore.encoders.onnx import Graph
from divscore.encoders.tensorfile import Tensor, read_header, take
from divscore.errors import FileError, InputError
from divscore.files import check_json, read_json
from divscore.text import listed

Array = NDArray[np.float32]
Positive = Annotated[int, msgspec.Meta(gt=0)]

ACTIVATIONS = {
    "gelu": "erf",
    "gelu_python": "erf",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_pytorch_tanh": "tanh",
}
EXPORT = (
    "Export the model to ONNX, for example with 'optimum-cli export onnx --model FOLDER --task feature-extraction "
    "OUT', and pass --model OUT"
)
OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}  # of Google's BERT
FLOAT = 1  # ONNX' number of the type float32
HIDDEN = -10_000.0  # added to the score of padding, whose share of attention is then exactly 0
# Whole numbers from -64 to 64 for weights and 1 to 255, with 128 for zero, for tokens: processors without VNNI add two
# products in 16 bits, and 2 × 255 × 64 still fits. With 127 for weights, their sums would be cut off.
MOST_WEIGHT, MOST_TOKEN, ZERO = 64, 127, 128
TINY = np.float32(1e-30)  # instead of a scale of 0


@dataclass(frozen=True)
class _Config:
    """What config.json says; defaults are transformers'."""

    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    intermediate_size: Positive
    vocab_size: Positive
    max_position_embeddings: Positive
    type_vocab_size: Positive = 2
    layer_norm_eps: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-12
    hidden_act: str = "gelu"
    position_embedding_type: str | None = "absolute"
    is_decoder: bool | None = False
    pruned_heads: dict[str, list[int]] | None = field(default_factory=dict)


@dataclass(frozen=True)
class Bert:
    """A graph with its weights, the settings that change what it computes, and what its inputs may be."""

    graph: bytes
    weights: Mapping[str, NDArray[Any]]
    settings: str
    vocabulary: int
    positions: int


def read_bert(path: Path, int8: bool = False) -> Bert:
    """Read and check weights and the configuration next to them, and build the graph."""
    config = path.with_name("config.json")
    if not config.is_file():
        raise FileError(
            f"{path} needs config.json next to it, which says how many heads BERT has; there is none"
        )
    says = _read_config(config)
    weights = _Weights(path, config, says)
    graph = _graph(weights, says, int8)
    ids = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("int64", ("items", "tokens")))
    model = graph.model(ids, {"last_hidden_state": ("float32", ("items", "tokens", says.hidden_size))})
    settings = (
        f"heads={says.num_attention_heads}",
        f"gelu={ACTIVATIONS[says.hidden_act]}",
        f"eps={says.layer_norm_eps:g}",
        f"int8={'on' if int8 else 'off'}",
    )
    return Bert(model, graph.weights, " ".join(settings), says.vocab_size, says.max_position_embeddings)


def _read_config(path: Path) -> _Config:
    hint = "fix it or download it again"
    values = read_json(dict[str, Any], path.read_bytes(), str(path), hint=hint)
    if (kind := values.get("model_type")) != "bert":
        raise InputError(
            f"{path} has {f'the model_type {kind}' if kind else 'no model_type'}; divscore builds a graph from weights "
            f"only for model_type bert. {EXPORT}"
        )
    says = check_json(_Config, values, str(path), hint=hint)
    wrong = {
        f"hidden_act {says.hidden_act}": says.hidden_act not in ACTIVATIONS,
        f"position_embedding_type {says.position_embedding_type}": says.position_embedding_type
        not in ("absolute", None),
        "is_decoder true": bool(says.is_decoder),
        "pruned_heads": bool(says.pruned_heads),
    }
    if problems := [what for what, is_wrong in wrong.items() if is_wrong]:
        raise InputError(
            f"{path} has {' and '.join(problems)}; divscore builds BERT encoders with absolute positions and "
            f"{', '.join(ACTIVATIONS)}. {EXPORT}"
        )
    if says.hidden_size % says.num_attention_heads:
        raise FileError(
            f"{path}: hidden_size {says.hidden_size} is not divisible by num_attention_heads "
            f"{says.num_attention_heads}; {hint}"
        )
    return says


class _Weights:
    """Tensors by transformers' names, of the shapes that the configuration states."""

    def __init__(self, path: Path, config: Path, says: _Config) -> None:
        self.path, self.config = path, config
        self.tensors: dict[str, Tensor] = read_header(path)
        word = "embeddings.word_embeddings.weight"
        prefixes = [name.removesuffix(word) for name in self.tensors if name.endswith(word)]
        self.known = listed(sorted(self.tensors), 4) or "no tensors"
        if len(prefixes) != 1:
            number = "several tensors" if prefixes else "no tensor"
            raise FileError(
                f"{path} has {number} {word}; expected the weights of one BERT. It has {self.known}"
            )
        self.prefix = prefixes[0]
        extra = f"{self.prefix}encoder.layer.{says.num_hidden_layers}."
        if any(name.startswith(extra) for name in self.tensors):
            raise FileError(f"{path} has more layers than {config} says: {says.num_hidden_layers}")

    def get(self, name: str, *shape: int) -> Array:
        """Read one, under its name or its older name."""
        full = self.prefix + name
        if full not in self.tensors:
            for new, old in OLD_NAMES.items():
                full = full.replace(new, old)
        if full not in self.tensors:
            raise FileError(
                f"{self.path} has no tensor {self.prefix}{name}, which BERT as in {self.config} has; it has "
                f"{self.known}"
            )
        return take(self.path, self.tensors, full, shape)


def _graph(weights: _Weights, says: _Config, int8: bool) -> Graph:
    """All layers; x is (items × tokens, hidden) between them."""
    graph = Graph("bert")
    add = graph.add
    size, heads = says.hidden_size, says.num_attention_heads

    def dense(x: str, outputs: int, inputs: int, *names: str) -> str:
        """The layers of these names next to each other, so that x is read once."""
        matrix = np.concatenate([weights.get(f"{name}.weight", outputs, inputs) for name in names])
        bias = np.concatenate([weights.get(f"{name}.bias", outputs) for name in names])
        return _dense8(graph, x, matrix.T, bias) if int8 else add("Gemm", x, matrix, bias, transB=1)

    def norm(x: str, name: str) -> str:
        scale, bias = (weights.get(f"{name}.{part}", size) for part in ("weight", "bias"))
        return add("LayerNormalization", x, scale, bias, axis=-1, epsilon=says.layer_norm_eps)

    def embedding(name: str, rows: int) -> Array:
        return weights.get(f"embeddings.{name}_embeddings.weight", rows, size)

    shape = add("Shape", "input_ids")
    length = add("Slice", shape, _whole(1), _whole(2))
    words = add("Gather", embedding("word", says.vocab_size), "input_ids")
    types = add("Gather", embedding("token_type", says.type_vocab_size), "token_type_ids")
    places = embedding("position", says.max_position_embeddings)
    positions = add("Slice", places, _whole(0), length, _whole(0))
    x = add("Reshape", add("Add", add("Add", words, types), positions), _whole(-1, size))
    x = norm(x, "embeddings.LayerNorm")
    mask = add("Unsqueeze", add("Cast", "attention_mask", to=FLOAT), _whole(1, 2))
    mask = add("Mul", add("Sub", _real(1), mask), _real(HIDDEN))
    split = add("Concat", shape, _whole(heads, size // heads), axis=0)
    for i in range(says.num_hidden_layers):
        at = f"encoder.layer.{i}"
        own = (f"{at}.attention.self.{part}" for part in ("query", "key", "value"))
        parts = graph.split(dense(x, size, size, *own), 3, axis=1)
        query, key, value = (add("Reshape", part, split) for part in parts)
        query, value = (add("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
        scores = add("MatMul", query, add("Transpose", key, perm=[0, 2, 3, 1]))
        scores = add("Add", add("Mul", scores, _real((size // heads) ** -0.5)), mask)
        heard = add("MatMul", add("Softmax", scores, axis=-1), value)
        heard = add("Reshape", add("Transpose", heard, perm=[0, 2, 1, 3]), _whole(-1, size))
        heard = dense(heard, size, size, f"{at}.attention.output.dense")
        x = norm(add("Add", heard, x), f"{at}.attention.output.LayerNorm")
        inner = says.intermediate_size
        wide = _gelu(graph, dense(x, inner, size, f"{at}.intermediate.dense"), ACTIVATIONS[says.hidden_act])
        x = norm(add("Add", dense(wide, size, inner, f"{at}.output.dense"), x), f"{at}.output.LayerNorm")
    add("Reshape", x, add("Concat", shape, _whole(size), axis=0))
    return graph


def _whole(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def _real(number: float) -> Array:
    return np.array(number, dtype=np.float32)


def _gelu(graph: Graph, x: str, kind: str) -> str:
    """Return x Φ(x), exactly or with the usual approximation of Φ."""
    add = graph.add
    if kind == "erf":
        curve = add("Erf", add("Div", x, _real(2**0.5)))
    else:
        cube = add("Mul", add("Mul", add("Mul", x, x), x), _real(0.044715))
        curve = add("Tanh", add("Mul", add("Add", x, cube), _real((2 / np.pi) ** 0.5)))
    return add("Mul", add("Mul", x, add("Add", curve, _real(1))), _real(0.5))


def _dense8(graph: Graph, x: str, matrix: Array, bias: Array) -> str:
    """Return x matrix + bias with rounded factors, added up in whole numbers."""
    add = graph.add
    columns = np.maximum(np.abs(matrix).max(axis=0), TINY) / np.float32(MOST_WEIGHT)
    rounded = np.ascontiguousarray(np.rint(matrix / columns), dtype=np.int8)
    largest = add("Max", add("ReduceMax", add("Abs", x), axes=[1], keepdims=0), np.full(1, TINY))
    rows = add("Div", largest, np.full(1, MOST_TOKEN, dtype=np.float32))
    zero = np.array(ZERO, dtype=np.uint8)
    tokens = add("QuantizeLinear", x, rows, add("Expand", zero, add("Shape", rows)), axis=0)
    product = add("Cast", add("MatMulInteger", tokens, rounded, zero), to=FLOAT)
    product = add("Mul", add("Mul", product, add("Unsqueeze", rows, _whole(1))), columns)
    return add("Add", product, bias)
