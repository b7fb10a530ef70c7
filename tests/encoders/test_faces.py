from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PPB

from divscore.encoders import faces
from divscore.encoders.faces import Face, FaceEncoder
from divscore.encoders.registry import ENCODERS, EncoderSpec
from divscore.errors import FileError
from divscore.sources.pictures import decode

FOLDER = PPB.parent / "ppb2017_images"

if ENCODERS["faces"].missing:
    pytest.skip(f"not installed: {', '.join(ENCODERS['faces'].missing)}", allow_module_level=True)
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def largest() -> FaceEncoder:
    return EncoderSpec("faces", "image").load()


@pytest.fixture(scope="module")
def every(largest: FaceEncoder) -> FaceEncoder:
    encoder = copy.copy(largest)  # loading takes a second
    encoder.variant = "all"
    return encoder


@pytest.fixture(scope="module")
def files() -> list[Path]:
    found = sorted(FOLDER.glob("*.jpg"))
    if not found:
        pytest.skip(f"the PPB-2017 portraits are not at {FOLDER}")
    return found


@pytest.fixture(scope="module")
def portraits(files: list[Path], largest: FaceEncoder) -> list[np.ndarray]:
    """A few portraits from several countries."""
    return [decode(path.read_bytes(), enough=largest.resolution) for path in files[::300]]


def beside(*pictures: np.ndarray) -> np.ndarray:
    """Set pictures side by side on grey."""
    wide = np.full((max(len(p) for p in pictures), sum(p.shape[1] for p in pictures), 3), 128, dtype=np.uint8)
    at = 0
    for picture in pictures:
        wide[: len(picture), at : at + picture.shape[1]] = picture
        at += picture.shape[1]
    return wide


def resized(picture: np.ndarray, factor: float) -> np.ndarray:
    height, width = picture.shape[:2]
    return np.asarray(Image.fromarray(picture).resize((round(width * factor), round(height * factor))))


def showing(encoder: FaceEncoder, picture: np.ndarray, width: int) -> np.ndarray:
    """Resize a portrait so that its face is that wide."""
    return resized(picture, width / encoder.find(picture)[0].width)


def distance(one: Any, other: Any) -> float:
    return float(np.linalg.norm(np.subtract(one, other)))


def test_what_it_says_of_itself(largest: FaceEncoder) -> None:
    assert largest.identity.startswith("faces/1 weights=")
    assert len(largest.identity.partition("=")[2]) == 16
    assert (largest.variant, largest.dimension, largest.resolution) == ("largest", 128, 1200)


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1, 400), (400, 1), (2, 3), (9, 9), (19, 300), (20, 20), (40, 40), (20, 4000), (300, 300)],
)
def test_nothing_to_find(shape: tuple[int, int], largest: FaceEncoder, every: FaceEncoder) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (*shape, 3), dtype=np.uint8)
    blank = np.full((*shape, 3), 255, dtype=np.uint8)
    for encoder in (largest, every):
        result = encoder.encode([noise, blank])
        assert result.vectors.shape == (0, 128)
        assert result.vectors.dtype == np.float32
        assert result.detected.tolist() == [0, 0]
        assert result.reasons == dict.fromkeys((0, 1), "no face was found")


def test_no_pictures(largest: FaceEncoder) -> None:
    result = largest.encode([])
    assert result.vectors.shape == (0, 128)
    assert len(result.owner) == len(result.detected) == 0


def test_one_vector_a_portrait_whatever_the_batch(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    blank = np.zeros((60, 60, 3), dtype=np.uint8)
    together = largest.encode([portraits[0], blank, *portraits[1:3]])
    assert together.owner.tolist() == [0, 2, 3]
    assert together.detected.tolist() == [1, 0, 1, 1]
    assert list(together.reasons) == [1]
    assert together.vectors.dtype == np.float32
    alone = [largest.encode([picture]).vectors[0] for picture in portraits[:3]]
    np.testing.assert_array_equal(together.vectors, alone)
    assert np.unique(together.vectors, axis=0).shape == (3, 128)


def test_all_faces_or_the_largest(
    largest: FaceEncoder, every: FaceEncoder, portraits: list[np.ndarray]
) -> None:
    small, large = (showing(largest, portraits[at], width) for at, width in ((0, 90), (1, 160)))
    scene = beside(small, large)
    one, both = largest.encode([scene]), every.encode([scene, portraits[0]])
    assert one.detected.tolist() == [2]
    assert one.owner.tolist() == [0]
    assert both.detected.tolist() == [2, 1]
    assert both.owner.tolist() == [0, 0, 1]
    # dlib's network was trained so that pictures of one person are at most 0.6 apart.
    apart = every.encode([small, large]).vectors
    assert distance(apart[0], apart[1]) > 0.5
    assert distance(one.vectors[0], apart[1]) < 0.3
    assert distance(both.vectors[0], apart[1]) < 0.3
    assert distance(both.vectors[1], apart[0]) < 0.3


def test_small_faces_beside_a_large_one_count(every: FaceEncoder, portraits: list[np.ndarray]) -> None:
    sizes = (55, 150, 55)
    parts = [showing(every, picture, width) for picture, width in zip(portraits[:3], sizes, strict=True)]
    found = every.find(beside(*parts))
    assert [face.width for face in found] == pytest.approx([150, 55, 55], rel=0.35)
    middle = parts[0].shape[1]
    assert middle < found[0].left < middle + parts[1].shape[1]


def test_order_of_faces() -> None:
    wide, sure, unsure, left = (
        Face(90, 0, 9, 9, 0),
        Face(9, 0, 5, 5, 2),
        Face(9, 0, 5, 5, 1),
        Face(1, 0, 5, 5, 1),
    )
    assert sorted([unsure, left, sure, wide], key=lambda face: face.rank) == [wide, sure, left, unsure]


def test_far_away_in_a_large_photograph(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    photograph = np.full((1500, 2000, 3), 150, dtype=np.uint8)
    height, width = portraits[0].shape[:2]
    photograph[900 : 900 + height, 400 : 400 + width] = portraits[0]
    near, (far,) = largest.find(portraits[0])[0], largest.find(photograph)
    assert far.left - 400 == pytest.approx(near.left, abs=0.25 * near.width)
    assert far.top - 900 == pytest.approx(near.top, abs=0.25 * near.width)
    assert far.width == pytest.approx(near.width, rel=0.35)
    found = largest.encode([portraits[0], photograph]).vectors
    assert distance(*found) < 0.3


def test_looks_stop_at_their_number_of_pixels(
    largest: FaceEncoder, every: FaceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Detector:
        def run(self, view: np.ndarray, upsample: int) -> tuple[list[Any], list[Any], list[Any]]:
            seen.append(view.shape[0] * view.shape[1])
            return [], [], []

    for encoder in (largest, every):
        monkeypatch.setattr(encoder, "_detector", Detector())
        for shape in ((3000, 4000), (300, 200), (20, 4000)):
            assert encoder.find(np.zeros((*shape, 3), dtype=np.uint8)) == []
    assert len(seen) == 18
    assert max(seen) < 4_010_000
    assert seen[:2] == [pytest.approx(1_000_000, rel=0.01), pytest.approx(4_000_000, rel=0.01)]
    assert seen[3:5] == [60_000, 240_000]
    assert seen[9:11] == seen[1::-1]


def test_every_look_tells_places_in_the_picture(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    picture = resized(portraits[0], 6)  # more pixels than any look takes
    places = [largest.search(picture, how) for how in (faces.NEAR, faces.FAR, faces.FRAMED)]
    (near,), (far,), (framed,) = places
    for other in (far, framed):
        assert other[:4] == pytest.approx(near[:4], abs=0.25 * near.width)


def test_a_margin_where_nothing_else_helps(largest: FaceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(picture: np.ndarray, way: faces.Search) -> list[Face]:
        return [Face(0, 0, 50, 50, 1)] if way.margin else []

    monkeypatch.setattr(largest, "search", search)
    assert len(largest.find(np.zeros((50, 50, 3), dtype=np.uint8))) == 1


def test_turned_by_exif(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    exif = Image.Exif()
    exif[274] = 6
    stream = io.BytesIO()
    Image.fromarray(portraits[0]).rotate(90, expand=True).save(stream, "PNG", exif=exif)
    turned = decode(stream.getvalue(), enough=largest.resolution)
    np.testing.assert_array_equal(turned, portraits[0])
    exif[274] = 1
    stream = io.BytesIO()
    Image.fromarray(portraits[0]).rotate(90, expand=True).save(stream, "PNG", exif=exif)
    assert largest.find(decode(stream.getvalue())) == []  # so the turn is needed


def test_pictures_need_not_be_contiguous(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    doubled = np.repeat(np.repeat(portraits[0], 2, axis=0), 2, axis=1)
    found = largest.encode([portraits[0], doubled[::2, ::2]]).vectors
    np.testing.assert_array_equal(found[0], found[1])


def test_weights_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faces, "NETWORK", "elsewhere.dat")
    with pytest.raises(FileError, match=r"elsewhere\.dat is missing; install it again"):
        faces.load(None, {}, 1)


@pytest.mark.slow
def test_nearly_every_portrait_shows_a_face(files: list[Path], largest: FaceEncoder) -> None:
    found = [len(largest.find(decode(path.read_bytes()))) for path in files[::15]]
    assert np.mean(np.array(found) > 0) >= 0.98
    assert np.mean(np.array(found) > 1) <= 0.01
