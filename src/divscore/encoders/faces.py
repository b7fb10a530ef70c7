"""`faces`: 128 numbers per face, from dlib's frontal detector, five landmarks and a small residual network.

An image is searched in up to three ways until one finds a face: at one million pixels at most; enlarged twice, at four
million at most; and with a margin, for faces that fill the frame. This bounds the time for images of any size.
Landmarks and the aligned face come from the image at the resolution at which it was decoded.

All weights are in the public domain (CC0) or part of dlib. The 68-point landmarks of the same package exclude
commercial use and are never read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.registry import Encoded
from divscore.errors import FileError
from divscore.files import sha256

PACKAGE = "face_recognition_models"
LANDMARKS = "shape_predictor_5_face_landmarks.dat"
NETWORK = "dlib_face_recognition_resnet_model_v1.dat"
DIMENSION = 128
SMALLEST = 20  # pixels: no face can be recognised below
NO_FACE = "no face was found"

Picture = NDArray[np.uint8]


class Search(NamedTuple):
    """A way to search an image: enlarged at most `zoom` times, to at most `pixels`, with a margin around it."""

    zoom: float
    pixels: int
    margin: float = 0.0  # of the shorter side


class Face(NamedTuple):
    """Where a face is, in the image's pixels, and the detector's score."""

    left: float
    top: float
    width: float
    height: float
    score: float

    @property
    def rank(self) -> tuple[float, float, float]:
        """Sorts the largest first, then the highest score, then the leftmost."""
        return -self.width * self.height, -self.score, self.left


# A million pixels show faces of 80 pixels and more, a twelfth of a photo's height; four million those half as high.
NEAR, FAR, FRAMED = Search(1, 1_000_000), Search(2, 4_000_000), Search(1, 1_000_000, 0.25)
# If all faces count, small ones next to a large one must not be missed.
SEARCHES = {"largest": (NEAR, FAR, FRAMED), "all": (FAR, NEAR, FRAMED)}


class FaceEncoder:
    """dlib's face descriptor of the largest face of each image, or of all faces."""

    dimension = DIMENSION
    resolution = 1200  # of a photo's usual 4:3, 1.9 million pixels: more adds little to the finest search

    def __init__(self, weights: tuple[Path, Path], which: str = "largest") -> None:
        import dlib

        self.identity = f"faces/1 weights={sha256(*weights)[:16]}"
        self.variant = which
        self._detector = dlib.get_frontal_face_detector()
        self._landmarks = dlib.shape_predictor(str(weights[0]))
        self._network = dlib.face_recognition_model_v1(str(weights[1]))

    def encode(self, items: Sequence[Picture]) -> Encoded:
        """Vectors of the faces in some images, the largest face of an image first."""
        import dlib

        vectors: list[Any] = []
        owner: list[int] = []
        detected = np.zeros(len(items), dtype=np.intp)
        for item, picture in enumerate(items):
            pixels = np.ascontiguousarray(picture, dtype=np.uint8)
            faces = self.find(pixels)
            detected[item] = len(faces)
            for face in faces if self.variant == "all" else faces[:1]:
                left, top = round(face.left), round(face.top)
                box = dlib.rectangle(left, top, left + round(face.width) - 1, top + round(face.height) - 1)
                vectors.append(self._network.compute_face_descriptor(pixels, self._landmarks(pixels, box)))
                owner.append(item)
        table = np.array(vectors, dtype=np.float32).reshape(-1, DIMENSION)
        reasons = dict.fromkeys(np.flatnonzero(detected == 0).tolist(), NO_FACE)
        return Encoded(table, np.array(owner, dtype=np.intp), detected, reasons)

    def find(self, picture: Picture) -> list[Face]:
        """Faces of an image by size, from the first search that finds any."""
        if min(picture.shape[:2]) < SMALLEST:
            return []
        for way in SEARCHES[self.variant]:
            if faces := self.search(picture, way):
                return sorted(faces, key=lambda face: face.rank)
        return []

    def search(self, picture: Picture, way: Search) -> list[Face]:
        """Faces that one search finds."""
        from PIL import Image

        height, width = picture.shape[:2]
        scale, view = min(way.zoom, math.sqrt(way.pixels / (height * width))), picture
        if scale != 1:
            size = max(1, round(width * scale)), max(1, round(height * scale))
            view = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
        border = round(way.margin * min(view.shape[:2]))
        if border:
            view = np.pad(view, ((border, border), (border, border), (0, 0)), mode="edge")
        boxes, scores, _ = self._detector.run(view, 0)
        corners = [((box.left() - border) / scale, (box.top() - border) / scale) for box in boxes]
        sizes = [(box.width() / scale, box.height() / scale) for box in boxes]
        return [Face(*corner, *size, s) for corner, size, s in zip(corners, sizes, scores, strict=True)]


def load(model: None, options: Mapping[str, str], threads: int) -> FaceEncoder:
    """Load detector and network; dlib works on one thread and holds Python's lock, so `threads` changes nothing."""
    # Located without importing the package, which would need pkg_resources.
    spec: Any = find_spec(PACKAGE)
    folder = Path(spec.submodule_search_locations[0]) / "models"
    weights = folder / LANDMARKS, folder / NETWORK
    for file in weights:
        if not file.is_file():
            raise FileError(
                f"{file} is missing; install it again with: pip install --force-reinstall {PACKAGE}"
            )
    return FaceEncoder(weights, options.get("faces", "largest"))
