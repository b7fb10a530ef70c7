"""Small things that tests encode: pictures of two colours, and a model that tells them apart."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from divscore import sources
from divscore.jobs.encode import Encoding
from divscore.jobs.encodedsource import EncodedSource

SIDE = 16
DIMENSION = 8
COLOURS = {"red": (200, 60, 60), "blue": (60, 60, 200)}


def image_model(path: Path) -> Path:
    """An ONNX model: pictures of 16 × 16 to 8 numbers, its normalisation in the graph's metadata."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3 * SIDE * SIDE, DIMENSION)).astype(np.float32) / SIDE
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["pixels"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["embedding"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", DIMENSION])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"mean": "0.5,0.5,0.5", "std": "0.5,0.5,0.5"})
    onnx.save(model, path)
    return path


def picture(rng: np.random.Generator, group: str, side: int = 24) -> Image.Image:
    """A noisy picture of the group's colour."""
    noise = rng.normal(0, 60, size=(side, side, 3)) + rng.normal(0, 15, size=3)
    pixels = np.clip(np.array(COLOURS[group]) + noise, 0, 255)
    return Image.fromarray(pixels.astype(np.uint8))


def png(image: Image.Image) -> bytes:
    """The picture as a file's bytes."""
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()


def folder(root: Path, counts: dict[str, int], seed: int, sub_folders: bool = True) -> Path:
    """Write pictures, in one sub-folder a group or all in one."""
    rng = np.random.default_rng(seed)
    for group, count in counts.items():
        inside = root / group if sub_folders else root
        inside.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            name = f"{number:04}.png" if sub_folders else f"{rng.integers(1 << 40):012}.png"
            (inside / name).write_bytes(png(picture(rng, group)))
    return root


def encoded(source: Path | str, encoding: Encoding, *, strict: bool = False) -> EncodedSource:
    """The vectors of a folder of pictures."""
    items = sources.open(source, strict=strict)
    assert isinstance(items, sources.Items)
    encoding.fit(items)
    return EncodedSource(items, encoding, strict=strict, single=False)
