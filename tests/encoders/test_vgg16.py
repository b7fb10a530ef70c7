from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from divscore.encoders.registry import EncoderSpec
from divscore.encoders.vgg16 import read_weights
from divscore.errors import FileError

pytest.importorskip("onnxruntime")
h5py = pytest.importorskip("h5py")
safetensors = pytest.importorskip("safetensors.numpy")

Array = NDArray[Any]
Weights = dict[str, tuple[Array, Array]]
WIDTHS = {1: (4, 5), 2: (4, 6), 3: (5, 4, 6), 4: (6, 5, 4), 5: (4, 6, 5)}
FEATURES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
FC1, FC2 = 16, 12


def narrow() -> Weights:
    """Convolutions as (out, in, 3, 3), fc1 as (out, channels, 7, 7), fc2 as (out, in); names as Keras has them."""
    rng = np.random.default_rng(7)
    layers: Weights = {}
    width = 3

    def add(name: str, *shape: int) -> None:
        spread = np.sqrt(2 / np.prod(shape[1:]))
        weight = rng.normal(scale=spread, size=shape).astype(np.float32)
        layers[name] = weight, rng.normal(scale=0.3, size=shape[0]).astype(np.float32)

    for block, widths in WIDTHS.items():
        for i, out in enumerate(widths, 1):
            add(f"block{block}_conv{i}", out, width, 3, 3)
            width = out
    add("fc1", FC1, width, 7, 7)
    add("fc2", FC2, FC1)
    return layers


WEIGHTS = narrow()


def reference(x: Array) -> Array:
    """The network in plain numpy, double precision, on pixels (n, 3, 224, 224)."""
    x = x.astype(np.float64)
    for block, widths in WIDTHS.items():
        for i in range(1, len(widths) + 1):
            weight, bias = WEIGHTS[f"block{block}_conv{i}"]
            n, _, h, w = x.shape
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            out = np.zeros((n, len(bias), h, w)) + bias[None, :, None, None]
            for dy in range(3):
                for dx in range(3):
                    shifted = padded[:, :, dy : dy + h, dx : dx + w]
                    out += np.einsum("nchw,oc->nohw", shifted, weight[:, :, dy, dx])
            x = np.maximum(out, 0)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
    first, second = WEIGHTS["fc1"], WEIGHTS["fc2"]
    hidden = np.maximum(np.einsum("nchw,ochw->no", x, first[0]) + first[1], 0)
    return np.maximum(hidden @ second[0].T + second[1], 0)


def torch_tensors(dense: tuple[str, str], convolutional: bool, dtype: Any = np.float32) -> dict[str, Array]:
    stems = (*(f"features.{i}" for i in FEATURES), *dense)
    tensors = {}
    for stem, (name, (weight, bias)) in zip(stems, WEIGHTS.items(), strict=True):
        if name.startswith("fc"):
            shape = (*weight.shape, 1, 1)[:4] if convolutional else (len(weight), -1)
            weight = weight.reshape(shape)
        tensors[f"{stem}.weight"], tensors[f"{stem}.bias"] = weight.astype(dtype), bias.astype(dtype)
    last = "head.fc" if convolutional else "classifier.6"
    tensors[f"{last}.weight"] = np.ones((10, FC2), dtype=dtype)
    tensors[f"{last}.bias"] = np.ones(10, dtype=dtype)
    return tensors


def torchvision(dtype: Any = np.float32) -> dict[str, Array]:
    return torch_tensors(("classifier.0", "classifier.3"), False, dtype)


def timm() -> dict[str, Array]:
    return torch_tensors(("pre_logits.fc1", "pre_logits.fc2"), True)


def keras(old: bool) -> dict[str, Array]:
    datasets = {}
    for name, (weight, bias) in WEIGHTS.items():
        kernel = weight.T if name == "fc2" else weight.transpose(2, 3, 1, 0)
        if name == "fc1":
            kernel = kernel.reshape(-1, FC1)
        new = ("kernel:0", "bias:0")
        ends = (f"{name}_W_1:0", f"{name}_b_1:0") if old else tuple(f"{name}/{end}" for end in new)
        datasets[f"{name}/{ends[0]}"], datasets[f"{name}/{ends[1]}"] = kernel, bias
    return datasets


def write(path: Path, tensors: dict[str, Array], group: str = "") -> str:
    if path.suffix == ".safetensors":
        safetensors.save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, path)
    else:
        with h5py.File(path, "w") as file:
            for name, values in tensors.items():
                file[f"{group}{name}"] = values
    return str(path)


FILES: dict[str, Callable[[Path], str]] = {
    "torchvision": lambda folder: write(folder / "tv.safetensors", torchvision()),
    "timm": lambda folder: write(folder / "timm.safetensors", timm()),
    "keras-old": lambda folder: write(folder / "old.h5", keras(True)),
    "keras-new": lambda folder: write(folder / "new.h5", keras(False)),
    "keras-whole-model": lambda folder: write(folder / "whole.h5", keras(False), "model_weights/"),
}


@pytest.fixture(scope="module")
def pixels() -> Array:
    return np.random.default_rng(1).normal(size=(3, 3, 224, 224)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(pixels: Array) -> Array:
    features = reference(pixels)
    assert (features > 0).mean() > 0.3  # else anything would agree with it
    assert np.ptp(features, axis=0).max() > 0.05
    return features


def picture(height: int, width: int, seed: int = 2) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def load(path: str) -> Any:
    return EncoderSpec("vgg16", "image", path).load(threads=1)


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_networks_features(
    name: str, tmp_path: Path, pixels: Array, expected: Array
) -> None:
    encoder = load(FILES[name](tmp_path))
    assert encoder.dimension == FC2
    np.testing.assert_allclose(encoder.run(pixels), expected, rtol=1e-4, atol=1e-5)


def test_half_precision_weights_are_read(tmp_path: Path, pixels: Array, expected: Array) -> None:
    encoder = load(write(tmp_path / "half.safetensors", torchvision(np.float16)))
    np.testing.assert_allclose(encoder.run(pixels), expected, rtol=0.02, atol=0.02)


def test_content_decides_not_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "weights.h5"
    Path(FILES["timm"](tmp_path)).rename(path)
    assert read_weights(path)[0] == "timm"


def test_torchvision_cuts_the_centre_and_normalises(tmp_path: Path) -> None:
    image = picture(256, 256)
    centre = image[16:240, 16:240].transpose(2, 0, 1) / 255
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    ready = (centre - mean[:, None, None]) / std[:, None, None]
    for name in ("torchvision", "timm"):
        encoded = load(FILES[name](tmp_path)).encode([image])
        np.testing.assert_allclose(encoded.vectors, reference(ready[None]), rtol=1e-4, atol=1e-5)


def test_keras_takes_blue_first_and_subtracts_its_means(tmp_path: Path) -> None:
    image = picture(224, 224)
    ready = image.transpose(2, 0, 1)[::-1] - np.array([103.939, 116.779, 123.68])[:, None, None]
    encoded = load(FILES["keras-old"](tmp_path)).encode([image])
    wanted = reference(ready[None])
    np.testing.assert_allclose(encoded.vectors, wanted, rtol=1e-4, atol=1e-4 * wanted.max())


def test_batches_do_not_matter(tmp_path: Path) -> None:
    encoder = load(FILES["torchvision"](tmp_path))
    images = [picture(40 + 9 * i, 80 - 5 * i, seed=i) for i in range(6)]
    together = encoder.encode(images)
    assert together.owner.tolist() == list(range(6))
    assert together.vectors.dtype == np.float32
    alone = np.concatenate([encoder.encode([image]).vectors for image in images])
    np.testing.assert_allclose(together.vectors, alone, rtol=1e-4, atol=1e-6)
    assert encoder.encode([]).vectors.shape == (0, FC2)
    assert encoder.resolution == 256


def test_identity_tells_weights_and_preparation(tmp_path: Path) -> None:
    tv, ke = load(FILES["torchvision"](tmp_path)).identity, load(FILES["keras-new"](tmp_path)).identity
    assert tv.startswith(
        "vgg16/1 size=224x224 short=256 resample=bilinear channels=rgb scale=1/255 mean=0.485,0.456,0.406 "
        "std=0.229,0.224,0.225 output=fc2+relu weights="
    )
    assert "short=squeezed resample=bilinear channels=bgr scale=1.0 mean=103.939,116.779,123.68" in ke
    again = write(tmp_path / "again.safetensors", torchvision())
    changed = torchvision()
    changed["features.0.bias"] = changed["features.0.bias"] + 1
    assert load(again).identity == tv
    assert load(write(tmp_path / "changed.safetensors", changed)).identity != tv


def without(tensors: dict[str, Array], name: str) -> dict[str, Array]:
    return {key: value for key, value in tensors.items() if key != name}


def normed() -> dict[str, Array]:
    extra = {f"features.1.{end}": np.ones(4, np.float32) for end in ("weight", "running_mean")}
    return torchvision() | extra


WRONG: dict[str, tuple[str, Callable[[], dict[str, Array]], str]] = {
    "lost": (
        ".safetensors",
        lambda: without(torchvision(), "features.10.bias"),
        r"no tensor features\.10\.bias",
    ),
    "batchnorm": (".safetensors", normed, r"features\.1\.running_mean of a VGG with BatchNorm"),
    "deeper": (
        ".safetensors",
        lambda: torchvision() | {"features.30.weight": np.ones((5, 5, 3, 3), np.float32)},
        r"features\.30\.weight of a VGG of another depth",
    ),
    "misshapen": (
        ".safetensors",
        lambda: torchvision() | {"features.5.weight": np.ones((4, 9, 3, 3), np.float32)},
        r"features\.5\.weight has the shape \(4, 9, 3, 3\); expected \(4, 5, 3, 3\)",
    ),
    "misshapen-bias": (
        ".safetensors",
        lambda: timm() | {"pre_logits.fc2.bias": np.ones(3, np.float32)},
        r"pre_logits\.fc2\.weight has the shape \(12, 16, 1, 1\); expected \(3, 16, 1, 1\)",
    ),
    "small-map": (
        ".safetensors",
        lambda: timm() | {"pre_logits.fc1.weight": np.ones((16, 5, 5, 5), np.float32)},
        r"pre_logits\.fc1\.weight has the shape \(16, 5, 5, 5\); expected \(16, 5, 7, 7\)",
    ),
    "headless": (
        ".safetensors",
        lambda: without(torchvision(), "classifier.0.weight"),
        r"neither classifier\.0\.weight .* nor pre_logits\.fc1\.weight",
    ),
    "integers": (
        ".safetensors",
        lambda: torchvision() | {"features.0.bias": np.ones(4, np.int32)},
        r"features\.0\.bias is of type I32; expected float32, float16 or bfloat16",
    ),
    "keras-lost": (
        ".h5",
        lambda: without(keras(True), "fc1/fc1_W_1:0"),
        r"the layer fc1 has fc1/fc1_b_1:0; exp",
    ),
    "keras-notop": (
        ".h5",
        lambda: {key: value for key, value in keras(False).items() if "fc" not in key},
        r"no layer fc1, which files called notop do not have",
    ),
    "keras-19": (
        ".h5",
        lambda: keras(False) | {"block3_conv4/block3_conv4/kernel:0": np.ones((3, 3, 6, 6), np.float32)},
        r"the layer block3_conv4 of a VGG of another depth",
    ),
    "keras-channels-first": (
        ".h5",
        lambda: keras(True) | {"block1_conv1/block1_conv1_W_1:0": WEIGHTS["block1_conv1"][0]},
        r"block1_conv1_W_1:0 has the shape \(4, 3, 3, 3\); expected \(3, 3, 3, 4\)",
    ),
    "keras-double": (
        ".h5",
        lambda: keras(True) | {"fc2/fc2_W_1:0": np.ones((FC1, FC2))},
        r"fc2_W_1:0 is of type float64; expected float32, float16 or bfloat16",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_weights_are_named(name: str, tmp_path: Path) -> None:
    suffix, make, says = WRONG[name]
    path = write(tmp_path / f"wrong{suffix}", make())
    with pytest.raises(FileError, match=says) as caught:
        load(path)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04" + bytes(80), "a zip archive, such as PyTorch's .pth"),
        (b"\x80\x02}q\x00." + bytes(80), "a Python pickle"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"", "is not a weights file"),
        (b"\xff\x00\x00\x00\x00\x00\x00\x00{" + bytes(9), "announces a header of 255; the file is damaged"),
        (b"\x89HDF\r\n\x1a\n" + bytes(9), "cannot be read .*expected weights"),
    ],
)
def test_other_files_are_told_apart(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileError, match=says):
        load(str(path))


def test_paths_that_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    # None of these may ask the hub: they are paths by their form, their suffix, or a folder that is there.
    for wrong in (
        "./lost",
        "weights/vgg16.safetensors",
        "vgg16.h5",
        "models/vgg16",
        str(tmp_path / "a" / "b"),
    ):
        with pytest.raises(FileError, match="no such file or folder"):
            load(wrong)
    with pytest.raises(FileError, match=r"cannot be read .*[dD]irectory"):
        load("models")
