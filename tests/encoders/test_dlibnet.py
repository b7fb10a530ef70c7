"""dlib's network in onnxruntime against dlib itself, and files that are not that network."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PPB
from hypothesis import given
from hypothesis import strategies as st

from divscore.encoders.dlibnet import SIDE, descriptor_graph, read_layers
from divscore.encoders.faces import RESNET, FaceEncoder, aligned
from divscore.encoders.onnx import Session
from divscore.encoders.registry import ENCODERS, EncoderSpec
from divscore.errors import FileError
from divscore.sources.pictures import decode

if ENCODERS["faces"].missing:
    pytest.skip(f"not installed: {', '.join(ENCODERS['faces'].missing)}", allow_module_level=True)


@pytest.fixture(scope="module")
def data() -> bytes:
    return RESNET.read()


@pytest.fixture(scope="module")
def network(data: bytes) -> Session:
    return Session(descriptor_graph(data, "network.dat"), 1)


def describe(network: Session, chips: np.ndarray) -> np.ndarray:
    return network.run({"chips": chips}, ["descriptors"])[0]


@pytest.fixture(scope="module")
def chips() -> np.ndarray:
    """Faces, where the portraits are here; black, white and noise."""
    rng = np.random.default_rng(0)
    made = [np.full((SIDE, SIDE, 3), value, np.uint8) for value in (0, 255)]
    made.append(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
    encoder = EncoderSpec("faces", "image").load(threads=1)
    assert isinstance(encoder, FaceEncoder)
    for path in sorted((PPB.parent / "ppb2017_images").glob("*.jpg"))[::60]:
        picture = decode(path.read_bytes())
        made += [aligned(picture, encoder.points(picture, face)) for face in encoder.find(picture)]
    return np.stack(made)


def test_it_equals_dlib(network: Session, chips: np.ndarray) -> None:
    dlib = pytest.importorskip("dlib", reason="dlib-bin is not installed")
    from importlib.util import find_spec

    spec: Any = find_spec(RESNET.package)
    path = Path(spec.submodule_search_locations[0]) / RESNET.file
    model = dlib.face_recognition_model_v1(str(path))
    theirs = np.array([model.compute_face_descriptor(chip) for chip in chips])
    ours = describe(network, chips)
    cosine = (ours * theirs).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosine.min() > 0.999999
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_vector_does_not_depend_on_its_batch(network: Session, chips: np.ndarray) -> None:
    alone = np.concatenate([describe(network, chip[None]) for chip in chips])
    for size in (2, 5, len(chips)):
        batches = [describe(network, chips[at : at + size]) for at in range(0, len(chips), size)]
        np.testing.assert_array_equal(np.concatenate(batches), alone)


def test_layers_as_published(data: bytes) -> None:
    mean, layers = read_layers(data)
    assert mean == pytest.approx([122.782, 117.001, 104.298], abs=1e-3)
    kinds = [layer.kind for layer in layers]
    assert (kinds.count("con_4"), kinds.count("add_prev_"), kinds[-1]) == (29, 14, "fc_2")
    # Nearly all of the file is weights.
    assert 4 * sum(len(layer.weights) for layer in layers) == pytest.approx(len(data), rel=0.001)


@pytest.mark.parametrize("share", [0, 1e-7, 0.001, 0.3, 0.999, 1 - 1e-7])
def test_a_file_that_ends_early(data: bytes, share: float) -> None:
    with pytest.raises(FileError, match=r"^network\.dat is not the network of dlib's face descriptor: "):
        descriptor_graph(data[: int(share * len(data))], "network.dat")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>not found</html>",
        bytes(1000),
        b"\xff" * 1000,
        b"\x01\x01\x01\x0dloss_metric_2" + bytes(1000),
        b"\x01\x01\x01\x0dloss_metric_2" + b"\x08" + b"\xff" * 8,
        b"\x01\x01\x01\x04mmod" + bytes(1000),
    ],
)
def test_something_else(content: bytes) -> None:
    with pytest.raises(FileError, match="is not the network of dlib's face descriptor"):
        descriptor_graph(content, "network.dat")


def test_another_model_of_the_package() -> None:
    from importlib.util import find_spec

    spec: Any = find_spec(RESNET.package)
    for other in ("shape_predictor_5_face_landmarks.dat", "mmod_human_face_detector.dat"):
        content = (Path(spec.submodule_search_locations[0]) / "models" / other).read_bytes()
        with pytest.raises(FileError, match="is not the network"):
            descriptor_graph(content, other)


@given(at=st.integers(0, 420), value=st.integers(0, 255))
def test_a_damaged_head_is_no_crash(data: bytes, at: int, value: int) -> None:
    """Whatever its first bytes say, a short file takes neither memory nor time, and no other error comes out."""
    content = bytearray(data[:20_000])
    content[at] = value
    with pytest.raises(FileError):
        descriptor_graph(bytes(content), "network.dat")
    whole = bytearray(data)
    whole[at] = value
    with suppress(FileError):  # a byte of a weight may be anything
        descriptor_graph(bytes(whole), "network.dat")
