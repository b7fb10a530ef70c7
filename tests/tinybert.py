"""A BERT of two layers with random weights, as sentence models are published, and what it computes in plain numpy."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from graphs import VOCABULARY, tokenizer
from numpy.typing import NDArray

Array = NDArray[Any]
LAYERS, HEADS, HIDDEN, INNER, POSITIONS = 2, 4, 32, 64, 12
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "layer_norm_eps": 1e-6,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "vocab_size": len(VOCABULARY),
}


def random_weights() -> dict[str, Array]:
    rng = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        own = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
        for name in (*own, f"{at}.attention.output.dense"):
            shapes |= {f"{name}.weight": (HIDDEN, HIDDEN), f"{name}.bias": (HIDDEN,)}
        shapes |= {
            f"{at}.intermediate.dense.weight": (INNER, HIDDEN),
            f"{at}.intermediate.dense.bias": (INNER,),
        }
        shapes |= {f"{at}.output.dense.weight": (HIDDEN, INNER), f"{at}.output.dense.bias": (HIDDEN,)}
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    weights = {name: rng.normal(scale=0.3, size=shape) for name, shape in shapes.items()}
    for name in norms:
        weights |= {f"{name}.weight": rng.normal(1, 0.3, HIDDEN), f"{name}.bias": rng.normal(0, 0.3, HIDDEN)}
    # Numbers that bfloat16 has too, so that every type of file has the same weights.
    return {name: rounded(values) for name, values in weights.items()}


def rounded(values: Array) -> Array:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 128) / 128, exponent).astype(np.float32)


WEIGHTS = random_weights()


def safetensors_bytes(tensors: Mapping[str, Array], kind: str = "F32", **more: Any) -> bytes:
    """The format by hand; `more` are further entries of the header."""
    as_bytes: dict[str, Callable[[Array], bytes]] = {
        "F64": lambda x: x.astype("<f8").tobytes(),
        "F32": lambda x: x.astype("<f4").tobytes(),
        "F16": lambda x: x.astype("<f2").tobytes(),
        "BF16": lambda x: (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes(),
    }
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        part = as_bytes[kind](np.ascontiguousarray(values))
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": offsets}
        data += part
    text = json.dumps(header | more).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_bert(
    folder: Path, tensors: Mapping[str, Array] = WEIGHTS, kind: str = "F32", **config: Any
) -> Path:
    """A folder with weights, config.json and tokenizer.json; a setting of None is left out of the configuration."""
    tokenizer(folder)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, kind))
    settings = {key: value for key, value in (CONFIG | config).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def plain(x: Array, weight: Array, bias: Array) -> Array:
    return np.asarray(x @ weight.T.astype(float) + bias)


def in_int8(x: Array, weight: Array, bias: Array) -> Array:
    """A dense layer with the weights of an output as multiples of 1/64 of the largest, a token's numbers of 1/127."""
    by_output = np.abs(weight).max(axis=1, keepdims=True) / 64
    by_token = np.abs(x).max(axis=1, keepdims=True) / 127
    products = np.rint(x / by_token).astype(int) @ np.rint(weight / by_output).astype(int).T
    return np.asarray(products * by_token * by_output.T + bias)


def erf_gelu(x: Array) -> Array:
    return np.asarray(x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)


def tanh_gelu(x: Array) -> Array:
    return np.asarray(x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2)


def forward(
    text: str,
    length: int = POSITIONS,
    gelu: Callable[[Array], Array] = erf_gelu,
    dense: Callable[..., Array] = plain,
    heads: int = HEADS,
) -> Array:
    """The vector of each token of one text, without batches or padding."""
    words = [VOCABULARY.index(word) if word in VOCABULARY else 1 for word in text.split()]
    ids = [2, *words[: length - 2], 3]

    def layer(x: Array, name: str) -> Array:
        return dense(x, WEIGHTS[f"{name}.weight"], WEIGHTS[f"{name}.bias"])

    def norm(x: Array, name: str) -> Array:
        spread = np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
        scaled = (x - x.mean(axis=1, keepdims=True)) / spread
        return np.asarray(scaled * WEIGHTS[f"{name}.weight"] + WEIGHTS[f"{name}.bias"])

    table = {
        part: WEIGHTS[f"embeddings.{part}_embeddings.weight"].astype(float) for part in ("word", "position")
    }
    first = WEIGHTS["embeddings.token_type_embeddings.weight"][0].astype(float)
    x = norm(table["word"][ids] + table["position"][: len(ids)] + first, "embeddings.LayerNorm")
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        query, key, value = (layer(x, f"{at}.attention.self.{part}") for part in ("query", "key", "value"))
        heard = []
        for own in np.split(np.arange(HIDDEN), heads):
            scores = query[:, own] @ key[:, own].T / math.sqrt(len(own))
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            heard.append(share / share.sum(axis=1, keepdims=True) @ value[:, own])
        joined = layer(np.concatenate(heard, axis=1), f"{at}.attention.output.dense")
        x = norm(joined + x, f"{at}.attention.output.LayerNorm")
        wide = gelu(layer(x, f"{at}.intermediate.dense"))
        x = norm(layer(wide, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")
    return x
