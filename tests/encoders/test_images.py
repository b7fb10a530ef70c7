from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from graphs import close, colour, configure, graph, image_model, load, node, picture

from divscore.encoders.images import ImageSettings, Preprocess
from divscore.encoders.onnx import Port
from divscore.errors import FileError, InputError


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
    assert (mine.dimension, mine.resolution, mine.variant) == (6, 8, "")
    assert len({load(path, normalise=n).identity for n in ("imagenet", "clip", "half", "none", "raw")}) == 5


def test_a_normalisation_is_never_guessed(tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="Pass mean=R,G,B std=R,G,B for pixels of 0 to 1, or normalise=NAME"):
        load(path)
    for options, says in (
        ({"normalise": "vivid"}, "no normalise=vivid; choose normalise=imagenet or normalise=clip"),
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
        with pytest.raises(InputError, match=r"whole numbers \(uint8\), which are not normalised; remove"):
            load(path, normalise="imagenet")
    else:
        got = load(path, normalise="none").encode([image]).vectors
        np.testing.assert_allclose(got[0], colour(image), rtol=2e-3, atol=2e-3)


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
        assert encoder.resolution == 10
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
    settings = msgspec.convert({**says, "do_normalize": False}, ImageSettings)
    assert wanted in str(settings.preprocess(Port("x", "float32", ("n", 3, "h", "w")), False, "m", {}, {}))


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"size": {"longest_edge": 8}}, "does not support"),
        (
            {"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": {"side": 4}},
            "does not support",
        ),
        ({"size": 9}, "takes images of 8x8, but preprocessor_config.json asks for 9x9"),
        ({"size": 8, "resample": 9}, "resample: expected a whole number <= 5, got 9"),
        ({"size": 8, "do_normalize": True}, "image_mean=nothing: expected three numbers"),
        ({"size": 6, "do_center_crop": True, "crop_size": 8}, "less than the crop of 8x8"),
        ({"do_resize": True}, "does not support"),
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
    with pytest.raises(FileError, match=r"preprocessor_config\.json is not valid JSON"):
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
    with pytest.raises(InputError, match="takes images of 8x8, but size=9 asks for 9x9"):
        load(fixed, normalise="none", size="9")


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


def identity_graph(path: Path, shape: Sequence[Any], kind: str = "float32", **inputs: Any) -> Path:
    nodes = [node("Identity", "pixels", "vector")]
    return graph(path, nodes, {"pixels": (kind, shape), **inputs}, {"vector": (kind, shape)}, {})


@pytest.mark.parametrize(
    ("shape", "kind", "inputs", "says"),
    [
        (("n", 3, 8, 8), "float32", {"input_ids": ("int64", ("n", "t"))}, "export the vision half alone"),
        (("n", 3), "float32", {}, "expected one input of rank 4"),
        (("n", 1, 8, 8), "float32", {}, "expected three channels"),
        (("n", 8, 8, 4), "float32", {}, "expected three channels"),
        (("n", 3, 8, 8), "float64", {}, "expected float32, float16 or uint8"),
    ],
)
def test_graphs_that_take_other_things(
    shape: tuple[Any, ...], kind: str, inputs: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        load(identity_graph(tmp_path / "m.onnx", shape, kind, **inputs), normalise="none")


def test_several_threads_may_encode(tmp_path: Path) -> None:
    encoder = load(image_model(tmp_path / "m.onnx"), normalise="none")
    images = [picture(8, 8, seed) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda image: encoder.encode([image]).vectors, images))
    np.testing.assert_allclose(np.concatenate(parts), encoder.encode(images).vectors, rtol=1e-5)


def test_shorter_side_first_then_the_centre() -> None:
    from PIL import Image

    image = picture(300, 450)
    resized = np.asarray(Image.fromarray(image).resize((384, 256), Image.Resampling.BILINEAR))
    rule = Preprocess(224, 224, short=256, normalise=None)
    np.testing.assert_array_equal(rule([image])[0], resized[16:240, 80:304].transpose(2, 0, 1))
    upright = rule([image.transpose(1, 0, 2)])[0].astype(int)  # Pillow rounds between its two passes
    assert np.abs(upright - resized[16:240, 80:304].transpose(2, 1, 0)).max() <= 1


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (1, 1), (3, 700)])
def test_strips_are_encoded_too(shape: tuple[int, int]) -> None:
    image = np.full((*shape, 3), 51, dtype=np.uint8)
    for rule in (Preprocess(224, 224, short=256), Preprocess(224, 224, channels="bgr")):
        out = rule([image])
        assert out.shape == (1, 3, 224, 224)
        assert np.ptp(out, axis=(2, 3)).max() == 0
