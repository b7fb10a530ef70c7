from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from divscore.encoders.images import ImageConfig
from divscore.encoders.registry import EncoderSpec
from divscore.encoders.session import Port, Session
from divscore.errors import FileError, InputError

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


# Pictures


def test_pictures_are_normalised_as_asked(tmp_path: Path) -> None:
    path, image = image_model(tmp_path / "m.onnx"), picture(8, 8)
    imagenet = colour(image, np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))
    close(load(path, normalise="imagenet").encode([image]), imagenet[None])
    close(load(path, normalise="half").encode([image]), colour(image, 0.5, 0.5)[None])
    close(load(path, normalise="none").encode([image]), colour(image)[None])
    close(load(path, normalise="raw").encode([image]), colour(image, scale=1.0)[None])
    mine = load(path, mean="0.1,0.2,0.3", std="0.5,0.6,0.7")
    close(mine.encode([image]), colour(image, np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.6, 0.7]))[None])
    assert mine.identity.startswith(
        "onnx/1 kind=image size=8x8 short=8 resample=bilinear channels=rgb scale=1/255 mean=0.1,0.2,0.3 "
        "std=0.5,0.6,0.7 output=vector pool=none weights="
    )
    assert (mine.dimension, mine.enough, mine.variant) == (6, 8, "")
    assert len({load(path, normalise=n).identity for n in ("imagenet", "clip", "half", "none", "raw")}) == 5


def test_a_normalisation_is_never_guessed(tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="Pass mean=R,G,B std=R,G,B for pixels of 0 to 1, or normalise=NAME"):
        load(path)
    for options, says in (
        ({"normalise": "vivid"}, "normalise=vivid is unknown; expected one of imagenet, clip"),
        ({"normalise": "half", "mean": "0,0,0"}, "both given"),
        ({"mean": "0.5,0.5,0.5"}, "only one of mean and std"),
        ({"mean": "1,2", "std": "1,1,1"}, "expected three numbers"),
        ({"mean": "123.7,116.3,103.5", "std": "58,57,57"}, "divide numbers for pixels of 0 to 255 by 255"),
        ({"mean": "a,b,c", "std": "1,1,1"}, "expected three numbers"),
    ):
        with pytest.raises(InputError, match=says):
            load(path, **options)


@pytest.mark.parametrize("mean", ["0.5,0.4,0.3", "[0.5, 0.4, 0.3]"])
def test_metadata_of_the_graph_is_read(mean: str, tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx", metadata={"mean": mean, "std": "0.2,0.2,0.2"})
    image = picture(8, 8)
    close(load(path).encode([image]), colour(image, np.array([0.5, 0.4, 0.3]), 0.2)[None])
    close(load(path, normalise="none").encode([image]), colour(image)[None])


def test_channels_last_and_fixed_batch(tmp_path: Path) -> None:
    images = [picture(8, 8, seed) for seed in range(7)]
    wanted = np.array([colour(image, 0.5, 0.5) for image in images])
    for at, shape in enumerate([("n", 8, 8, 3), (1, 3, 8, 8), (3, 8, 8, 3), ("n", "channels", 8, 8)]):
        path = image_model(tmp_path / f"{at}.onnx", shape, output=(shape[0], 6))
        encoded = load(path, normalise="half").encode(images)
        close(encoded, wanted)
        assert encoded.owner.tolist() == list(range(7))
    assert load(path, normalise="half").encode([]).vectors.shape == (0, 6)


@pytest.mark.parametrize("kind", ["uint8", "float16"])
def test_other_number_types(kind: str, tmp_path: Path) -> None:
    path, image = image_model(tmp_path / "m.onnx", kind=kind), picture(8, 8)
    if kind == "uint8":
        close(load(path).encode([image]), colour(image, scale=1.0)[None])
        assert "pixels=uint8" in load(path).identity
        with pytest.raises(InputError, match=r"whole numbers \(uint8\), which are not normalised; leave out"):
            load(path, normalise="imagenet")
    else:
        got = load(path, normalise="none").encode([image]).vectors
        np.testing.assert_allclose(got[0], colour(image), rtol=2e-3, atol=2e-3)


def configure(folder: Path, **says: Any) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(says))


CLIP_LIKE = {
    "do_resize": True,
    "size": {"shortest_edge": 10},
    "do_center_crop": True,
    "crop_size": {"height": 8, "width": 8},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.48, 0.45, 0.40],
    "image_std": [0.26, 0.27, 0.28],
    "resample": 3,
}


def test_preprocessor_config_is_followed(tmp_path: Path) -> None:
    from PIL import Image

    path = image_model(tmp_path / "onnx" / "m.onnx", ("n", "channels", "h", "w"))
    image = picture(20, 30)
    resized = np.asarray(Image.fromarray(image).resize((15, 10), Image.Resampling.BICUBIC))
    centre = resized[1:9, 4:12]  # a margin of 3.5 is rounded to 4
    with pytest.raises(InputError, match="pass size=PIXELS"):
        load(path, normalise="none")
    for folder in (tmp_path, tmp_path / "onnx"):  # one folder up, then beside
        configure(folder, **CLIP_LIKE)
        encoder = load(path)
        close(encoder.encode([image]), colour(centre, [0.48, 0.45, 0.40], [0.26, 0.27, 0.28])[None])
        assert "size=8x8 short=10 resample=bicubic" in encoder.identity
        assert encoder.enough == 10
        (folder / "preprocessor_config.json").unlink()
    configure(tmp_path, **CLIP_LIKE | {"do_normalize": False, "rescale_factor": 0.01})
    close(load(path).encode([image]), colour(centre, scale=0.01)[None])
    configure(tmp_path, **CLIP_LIKE | {"do_normalize": False, "do_rescale": False})
    close(load(path).encode([image]), colour(centre, scale=1.0)[None])


@pytest.mark.parametrize(
    ("says", "wanted"),
    [
        ({"size": 8}, "size=8x8 short=squeezed"),
        ({"size": 9, "do_center_crop": True, "crop_size": 8}, "size=8x8 short=9"),
        ({"size": {"height": 8, "width": 6}}, "size=8x6 short=squeezed"),
        ({"size": {"shortest_edge": 8}}, "size=8x8 short=8"),
        ({"size": {"shortest_edge": 7}, "crop_pct": 0.875}, "size=7x7 short=8"),
        ({"size": 8, "do_flip_channel_order": True}, "channels=bgr"),
    ],
)
def test_sizes_of_configurations(says: dict[str, Any], wanted: str) -> None:
    config = ImageConfig("m", {}, says | {"do_normalize": False}, {})
    assert wanted in str(config.preprocess(Port("x", "float32", ("n", 3, "h", "w")), 2))


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"size": {"longest_edge": 8}}, "cannot follow"),
        ({"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": {"side": 4}}, "cannot follow"),
        ({"size": 9}, "takes pictures of 8x8, but preprocessor_config.json asks for 9x9"),
        ({"size": 8, "resample": 9}, "has 9 for resample"),
        ({"size": 8, "do_normalize": True}, "has nothing for image_mean"),
        ({"size": 6, "do_center_crop": True, "crop_size": 8}, "at least as many pixels"),
        ({"do_resize": True}, "gives no size"),
    ],
)
def test_configurations_that_cannot_be_followed(says: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx")
    configure(tmp_path, **{"do_normalize": False} | says)
    with pytest.raises(InputError, match=message):
        load(path)


def test_a_damaged_configuration_is_named(tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx")
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(FileError, match=r"preprocessor_config\.json is not JSON"):
        load(path)


def test_size_option(tmp_path: Path) -> None:
    free = image_model(tmp_path / "free.onnx", ("n", 3, "h", "w"))
    encoder = load(free, normalise="none", size="5")
    image = picture(5, 5)
    close(encoder.encode([image]), colour(image)[None])
    assert "size=5x5" in encoder.identity
    for size in ("0", "-3", "big", "2.5"):
        with pytest.raises(InputError, match=f"size={size}: expected a whole number above 0"):
            load(free, normalise="none", size=size)
    fixed = image_model(tmp_path / "fixed.onnx")
    with pytest.raises(InputError, match="takes pictures of 8x8, but size=9 asks for 9x9"):
        load(fixed, normalise="none", size="9")


def many_outputs(path: Path, names: Mapping[str, str], shapes: Mapping[str, Any] | None = None) -> Path:
    """Outputs by name: flat (n, 3), grid (n, 4, 3), block (n, 3, 1, 1), whole (n, 3, 2, 2), or numbers (n, 1) int64."""
    nodes = [
        node("ReduceMean", "pixels", "flat_", axes=[2, 3], keepdims=0),
        node("ReduceMean", "pixels", "block_", axes=[2, 3], keepdims=1),
        node("Reshape", "pixels shape", "rows"),
        node("Transpose", "rows", "grid_", perm=[0, 2, 1]),
        node("Cast", "flat_", "numbers_", to=TensorProto.INT64),
        *(
            node("Identity", "pixels" if what == "whole" else f"{what}_", name)
            for name, what in names.items()
        ),
    ]
    usual = {
        "flat": ("n", 3),
        "grid": ("n", 4, 3),
        "block": ("n", 3, 1, 1),
        "whole": ("n", 3, 2, 2),
        "numbers": ("n", 3),
    }
    outputs = {
        name: ("int64" if what == "numbers" else "float32", (shapes or usual)[what])
        for name, what in names.items()
    }
    pixels = {"pixels": ("float32", ("n", 3, 2, 2))}
    return graph(path, nodes, pixels, outputs, {"shape": np.array([0, 3, 4], dtype=np.int64)})


@pytest.mark.parametrize(
    ("names", "options", "wanted"),
    [
        ({"a": "grid", "image_embeds": "flat"}, {}, "output=image_embeds pool=none"),
        ({"pooler_output": "flat", "embedding": "flat"}, {}, "output=embedding pool=none"),
        ({"a": "grid", "b": "flat", "c": "numbers"}, {}, "output=b pool=none"),
        ({"a": "grid", "b": "flat", "c": "flat"}, {}, "output=a pool=cls"),
        ({"a": "grid"}, {"pool": "mean"}, "output=a pool=mean"),
        ({"a": "block"}, {}, "output=a pool=none"),
        ({"a": "flat", "b": "grid"}, {"output": "b"}, "output=b pool=cls"),
    ],
)
def test_the_output_is_chosen(
    names: dict[str, str], options: dict[str, str], wanted: str, tmp_path: Path
) -> None:
    encoder = load(many_outputs(tmp_path / "m.onnx", names), normalise="raw", **options)
    assert wanted in encoder.identity
    image = picture(2, 2)
    first, mean = image[0, 0].astype(float), image.astype(float).mean(axis=(0, 1))
    close(encoder.encode([image]), (first if "pool=cls" in wanted else mean)[None])
    assert encoder.dimension == 3


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        ({"a": "flat", "b": "flat"}, {}, "not clear which output .* pass output=NAME, one of a float32"),
        ({"a": "whole"}, {}, "not clear which output"),
        ({"a": "flat"}, {"output": "z"}, r"has no output 'z'; pass output=NAME, one of a float32\[n, 3\]"),
        ({"a": "numbers", "b": "flat"}, {"output": "a"}, "holds no vectors"),
        ({"a": "flat"}, {"pool": "mean"}, "has one vector an item; leave out pool=mean"),
        ({"a": "grid"}, {"pool": "max"}, "pool=max is unknown; expected cls or mean"),
    ],
)
def test_outputs_that_cannot_be_used(
    names: dict[str, str], options: dict[str, str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        load(many_outputs(tmp_path / "m.onnx", names), normalise="raw", **options)


def test_sizes_that_the_graph_keeps_to_itself_are_measured(tmp_path: Path) -> None:
    for what, shape in {
        "flat": ("n", "d"),
        "grid": ("n", "t", "d"),
        "block": ("n", "d", "h", "w"),
        "whole": None,
    }.items():
        path = many_outputs(tmp_path / f"{what}.onnx", {"a": what}, {what: shape})
        if what == "whole":
            with pytest.raises(InputError, match="not clear which output"):
                load(path, normalise="raw")
        else:
            assert load(path, normalise="raw").dimension == 3
    assert (
        load(many_outputs(tmp_path / "f.onnx", {"a": "flat"}, {"flat": None}), normalise="raw").dimension == 3
    )


def test_numbers_that_are_not_finite_are_reported(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMean", "pixels", "mean", axes=[2, 3], keepdims=0),
        node("Log", "mean", "vector"),
    ]
    inputs = {"pixels": ("float32", ("n", 3, 2, 2))}
    path = graph(tmp_path / "m.onnx", nodes, inputs, {"vector": ("float32", ("n", 3))}, {})
    encoded = load(path, normalise="none").encode(
        [picture(2, 2), np.zeros((2, 2, 3), np.uint8), picture(3, 3)]
    )
    assert encoded.owner.tolist() == [0, 2]
    assert "not finite" in encoded.reasons[1]


def test_graphs_that_take_other_things(tmp_path: Path) -> None:
    inputs = {
        "pixel_values": ("float32", ("n", 3, 8, 8)),
        "input_ids": ("int64", ("n", "t")),
        "attention_mask": ("int64", ("n", "t")),
    }
    nodes = [node("Identity", "pixel_values", "image_embeds")]
    outputs = {"image_embeds": ("float32", ("n", 3, 8, 8))}
    clip = graph(tmp_path / "clip.onnx", nodes, inputs, outputs, {})
    for kind in ("image", "text"):
        with pytest.raises(InputError, match="export its vision or its text half alone"):
            load(clip, kind, **({"normalise": "clip"} if kind == "image" else {}))
    with pytest.raises(InputError, match="expected one input of rank 4"):
        load(text_model(tmp_path / "text.onnx"), normalise="none")
    with pytest.raises(InputError, match="expected input_ids"):
        load(image_model(tmp_path / "image.onnx"), "text")
    for at, shape in enumerate([("n", 1, 8, 8), ("n", 8, 8, 4)]):
        outputs = {"vector": ("float32", shape)}
        path = graph(
            tmp_path / f"{at}.onnx",
            [node("Identity", "pixels", "vector")],
            {"pixels": ("float32", shape)},
            outputs,
            {},
        )
        with pytest.raises(InputError, match="expected three channels"):
            load(path, normalise="none")
    with pytest.raises(InputError, match="expected float32, float16 or uint8"):
        load(image_model(tmp_path / "double.onnx", kind="float64"), normalise="none")


def test_files_that_are_no_onnx(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"its location is unknown"):
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(FileError, match=r"m\.onnx cannot be loaded as an ONNX model"):
            load(tmp_path / "m.onnx", normalise="none")
    with pytest.raises(FileError, match="there is no such file"):
        load(tmp_path / "lost.onnx", normalise="none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"has neither model\.onnx nor onnx/model\.onnx"):
        load(tmp_path / "empty", normalise="none")


def test_weights_in_another_file_are_part_of_the_identity(tmp_path: Path) -> None:
    identities, vectors = [], []
    for name, factor in {"a": 1, "b": 1, "c": 2}.items():
        path = image_model(tmp_path / name / "m.onnx")
        model = onnx.load(path)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(MIX * np.float32(factor), "mix"))
        onnx.save(model, path, save_as_external_data=True, location="m.onnx_data", size_threshold=0)
        assert (path.parent / "m.onnx_data").stat().st_size >= MIX.nbytes
        encoder = load(path, normalise="none")
        identities.append(encoder.identity)
        vectors.append(encoder.encode([picture(8, 8)]).vectors)
    assert identities[0] == identities[1] != identities[2]
    np.testing.assert_allclose(vectors[2], 2 * vectors[0], rtol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[1])


def test_several_threads_may_encode(tmp_path: Path) -> None:
    encoder = load(image_model(tmp_path / "m.onnx"), normalise="none")
    images = [picture(8, 8, seed) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda image: encoder.encode([image]).vectors, images))
    np.testing.assert_allclose(np.concatenate(parts), encoder.encode(images).vectors, rtol=1e-5)


# Texts


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


def test_a_texts_vector_is_its_own(tmp_path: Path) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx"), "text")
    wanted = np.array([rows_of(text).mean(axis=0) for text in TEXTS])
    close(encoder.encode(TEXTS), wanted)
    close(encoder.encode(TEXTS[::-1]), wanted[::-1])
    for text, row in zip(TEXTS, wanted, strict=True):
        close(encoder.encode([text]), row[None])
    many = TEXTS * 15  # several batches
    close(encoder.encode(many), np.tile(wanted, (15, 1)))
    assert (encoder.dimension, encoder.enough) == (5, 0)
    assert encoder.identity.startswith(
        "onnx/1 kind=text length=512 pad=0 output=last_hidden_state pool=mean scaled=no tokenizer="
    )


@pytest.mark.parametrize(
    ("shape", "masked", "kind"),
    [
        ((1, "t"), True, "int64"),
        ((4, 12), True, "int64"),
        (("n", 12), True, "int32"),
        (("n", "t"), False, "int64"),
        ((1, "t"), False, "int32"),
    ],
)
def test_fixed_shapes_and_graphs_without_a_mask(
    shape: tuple[Any, Any], masked: bool, kind: str, tmp_path: Path
) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx", shape, masked, kind), "text")
    wanted = np.array([rows_of(text).mean(axis=0) for text in TEXTS])
    close(encoder.encode(TEXTS), wanted)
    close(encoder.encode(TEXTS[2:]), wanted[2:])
    assert f"length={shape[1] if shape[1] == 12 else 512}" in encoder.identity


def test_empty_texts_get_a_reason(tmp_path: Path) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx"), "text")
    encoded = encoder.encode(["", "anna", "  \n", "ben", "\u200b"])
    assert encoded.owner.tolist()[:2] == [1, 3]
    assert encoded.reasons[0] == encoded.reasons[2] == "is empty"
    close(encoder.encode(["anna", ""]), rows_of("anna").mean(axis=0)[None])
    nothing = encoder.encode(["", " "])
    assert nothing.vectors.shape == (0, 5)
    assert encoder.encode([]).vectors.shape == (0, 5)


def test_texts_that_lose_all_their_words_get_a_reason(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Replace

    made = Tokenizer.from_file(str(tokenizer(tmp_path) / "tokenizer.json"))
    made.normalizer = Replace("!", "")
    made.save(str(tmp_path / "tokenizer.json"))
    encoded = load(text_model(tmp_path / "m.onnx"), "text").encode(["!!!", "anna!"])
    assert encoded.owner.tolist() == [1]
    assert encoded.reasons == {0: "has no word that the tokenizer knows"}


def test_length_comes_from_options_or_configuration(tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / "m.onnx")
    text = TEXTS[3]
    close(load(path, "text", length="4").encode([text]), rows_of(text, 4).mean(axis=0)[None])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 5}))
    close(load(path, "text").encode([text]), rows_of(text, 5).mean(axis=0)[None])
    assert "length=7" in load(path, "text", length="7").identity
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": int(1e30)}))
    assert "length=512" in load(path, "text").identity
    with pytest.raises(InputError, match="length=2 leaves no room for words; expected more than 2"):
        load(path, "text", length="2")
    with pytest.raises(InputError, match="length=none: expected a whole number"):
        load(path, "text", length="none")
    fixed = text_model(tmp_path / "fixed.onnx", ("n", 12))
    with pytest.raises(InputError, match=r"length=13: .* takes 12 tokens"):
        load(fixed, "text", length="13")


def test_pooling_of_texts(tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / "m.onnx")
    close(load(path, "text", pool="cls").encode(TEXTS), np.array([rows_of(text)[0] for text in TEXTS]))
    pooled = text_model(tmp_path / "p.onnx", pooled="pooler_output", shape=(1, "t"))
    encoder = load(pooled, "text")
    assert "output=pooler_output pool=none" in encoder.identity
    close(encoder.encode(TEXTS), np.array([rows_of(text).max(axis=0) for text in TEXTS]))


def test_the_tokenizer_must_be_there(tmp_path: Path) -> None:
    path = text_model(tmp_path / "deep" / "onnx" / "m.onnx")
    with pytest.raises(FileError, match=r"needs tokenizer\.json beside it or in the folder above"):
        load(path, "text")
    (tmp_path / "deep" / "tokenizer.json").write_text("{}")
    with pytest.raises(FileError, match=r"tokenizer\.json is no tokenizer"):
        load(path, "text")
    tokenizer(tmp_path / "deep")
    first = load(path, "text").identity
    tokenizer(tmp_path / "deep", frame=False)
    assert load(path, "text").identity != first


# Sentences


def unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_sentences_are_means_of_length_one(place: str, tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / place, pooled="pooler_output", shape=("n", "t"))
    wanted = unit(np.array([rows_of(text).mean(axis=0) for text in TEXTS]))
    for given in (tmp_path, path):
        encoder = load(given, "text", "sentence")
        close(encoder.encode(TEXTS), wanted)
        close(encoder.encode([TEXTS[3], "", TEXTS[1]]), wanted[[3, 1]])
    assert encoder.identity.startswith(
        "sentence/1 kind=text length=512 pad=0 output=last_hidden_state pool=mean scaled=unit tokenizer="
    )
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 9}))
    short = unit(np.array([rows_of(text, 4).mean(axis=0) for text in TEXTS]))
    close(load(tmp_path, "text", "sentence").encode(TEXTS), short)


def test_a_models_own_pooling_is_followed(tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / "model.onnx")
    (tmp_path / "1_Pooling").mkdir()
    says = tmp_path / "1_Pooling" / "config.json"
    says.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    cls = unit(np.array([rows_of(text)[0] for text in TEXTS]))
    mean = unit(np.array([rows_of(text).mean(axis=0) for text in TEXTS]))
    close(load(path, "text", "sentence").encode(TEXTS), cls)
    close(load(path, "text", "sentence", pool="mean").encode(TEXTS), mean)
    says.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(InputError, match="asks for pooling_mode_max_tokens"):
        load(path, "text", "sentence")


# The session


def test_threads_reach_onnxruntime(tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx")
    for threads in (0, 1, 2):
        options = Session(path, threads)._session.get_session_options()
        assert options.intra_op_num_threads == threads
        assert options.inter_op_num_threads == 1


# The model hub, played by a server on this machine


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves files as the hub's resolve addresses do, and notes what was asked."""

    def __init__(self, repos: Mapping[str, Path]) -> None:
        hub = self
        self.repos, self.asked = repos, list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def do_HEAD(self) -> None:
                hub.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: Any) -> None:
        self.asked.append(f"{request.command} {request.path}")
        repo, _, rest = request.path[1:].partition("/resolve/")
        file = self.repos.get(repo, Path("nowhere")) / rest.partition("/")[2]
        code, content, headers = 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
        if repo == "owner/gated":
            code, headers = 403, {"X-Error-Code": "GatedRepo"}
        elif repo not in self.repos:
            headers = {"X-Error-Code": "RepoNotFound"}
        elif file.is_file():
            code, content = 200, file.read_bytes()
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{len(content)}-{file.name}"'}
        request.send_response(code)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tokenizer(tmp_path / "repo")
    text_model(folder / "onnx" / "model.onnx")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    big = image_model(tmp_path / "images" / "onnx" / "vision_model.onnx")
    onnx.save(onnx.load(big), big, save_as_external_data=True, location="far.data", size_threshold=0)
    configure(tmp_path / "images", size=8, do_normalize=False)
    served = Hub({"owner/sentences": folder, "owner/images": tmp_path / "images"})
    yield served
    served.close()


ASK = """
import json, sys
import numpy as np
from divscore.encoders.registry import EncoderSpec
from divscore.errors import DivscoreError
name, kind, model = sys.argv[1:4]
try:
    encoder = EncoderSpec(name, kind, model).load(threads=1)
except DivscoreError as error:
    print(json.dumps([type(error).__name__, str(error)]))
else:
    items = json.loads(sys.argv[4])
    items = [np.array(item, dtype=np.uint8) for item in items] if kind == "image" else items
    print(json.dumps([encoder.identity, encoder.encode(items).vectors.tolist()]))
"""


def ask(tmp_path: Path, address: str, name: str, kind: str, model: str, items: Any = (), **env: str) -> Any:
    """In a process of its own, for huggingface_hub reads its environment when it is imported."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    kept |= {
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        **env,
    }
    program = [sys.executable, "-c", ASK, name, kind, model, json.dumps(items)]
    ran = subprocess.run(program, capture_output=True, text=True, env=kept, cwd=tmp_path, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_sentence_model_is_fetched_once(hub: Hub, tmp_path: Path) -> None:
    wanted = unit(np.array([rows_of(text, 4).mean(axis=0) for text in TEXTS]))
    identity, vectors = ask(tmp_path, hub.address, "sentence", "text", "owner/sentences", TEXTS)
    np.testing.assert_allclose(vectors, wanted, rtol=1e-4)
    assert "GET /owner/sentences/resolve/main/onnx/model.onnx" in hub.asked
    assert f"GET /owner/sentences/resolve/{COMMIT}/tokenizer.json" in hub.asked
    hub.asked.clear()
    again = ask(tmp_path, hub.address, "sentence", "text", "owner/sentences", TEXTS)
    named = ask(tmp_path, hub.address, "sentence", "text", "owner/sentences:onnx/model.onnx", TEXTS)
    assert again == named == [identity, vectors]
    assert hub.asked == []
    here = load(tmp_path / "repo", "text", "sentence")
    assert here.identity == identity


def test_an_image_model_with_weights_in_another_file_is_fetched(hub: Hub, tmp_path: Path) -> None:
    image = picture(8, 8)
    _, vectors = ask(tmp_path, hub.address, "onnx", "image", "owner/images", [image.tolist()])
    np.testing.assert_allclose(vectors, colour(image)[None], rtol=1e-4)


def test_what_the_hub_refuses_is_explained(hub: Hub, tmp_path: Path) -> None:
    for name, kind, model, says in (
        ("sentence", "text", "owner/nothing", "the hub has no public model of that name"),
        ("sentence", "text", "owner/gated", "only to those who were granted access"),
        ("vgg16", "image", "owner/sentences", "has no model.safetensors; name the file to take"),
        ("sentence", "text", "owner/sentences:lost.onnx", "has no lost.onnx"),
        ("sentence", "text", "owner/two--dashes", "nor can it be a name on the model hub"),
        ("sentence", "text", "owner/sentences:a/../b", "nor can it be a name on the model hub"),
    ):
        error, message = ask(tmp_path, hub.address, name, kind, model)
        assert error == "InputError"
        assert says in message


def test_without_a_connection_the_way_round_is_named(tmp_path: Path) -> None:
    for name, kind, file in (
        ("vgg16", "image", "model.safetensors"),
        ("sentence", "text", "onnx/model.onnx"),
    ):
        error, message = ask(tmp_path, "http://127.0.0.1:9", name, kind, "owner/name", HF_HUB_OFFLINE="1")
        assert error == "InputError"
        assert f"owner/name is no file here, and {file} could not be fetched" in message
        assert "on another machine and give --model PATH" in message
