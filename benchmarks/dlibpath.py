"""What `faces` is compared with: the same descriptor by dlib alone, as divscore had it before, and face_recognition."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DlibPath", "face_recognition_path"]

Picture = NDArray[np.uint8]


class Search(NamedTuple):
    """Enlarged at most `zoom` times, to at most `pixels`, with a margin of a part of the shorter side."""

    zoom: float
    pixels: int
    margin: float = 0.0


SEARCHES = (Search(1, 1_000_000), Search(2, 4_000_000), Search(1, 1_000_000, 0.25))
SMALLEST = 20
SIDE, PADDING = 150, 0.25  # of dlib's aligned faces


class DlibPath:
    """dlib's frontal detector in three searches, five landmarks, and its network in its own kernels."""

    def __init__(self) -> None:
        import dlib

        spec: Any = find_spec("face_recognition_models")
        folder = Path(spec.submodule_search_locations[0]) / "models"
        self._dlib = dlib
        self._detector = dlib.get_frontal_face_detector()
        self._landmarks = dlib.shape_predictor(str(folder / "shape_predictor_5_face_landmarks.dat"))
        self._network = dlib.face_recognition_model_v1(
            str(folder / "dlib_face_recognition_resnet_model_v1.dat")
        )

    def landmarks(self, picture: Picture) -> Any | None:
        """The five points of the largest face, if there is one, as dlib has them."""
        pixels = np.ascontiguousarray(picture)
        if min(pixels.shape[:2]) < SMALLEST:
            return None
        for way in SEARCHES:
            if boxes := self._search(pixels, way):
                left, top, width, height = max(boxes, key=lambda box: box[2] * box[3])
                box = self._dlib.rectangle(left, top, left + width - 1, top + height - 1)
                return self._landmarks(pixels, box)
        return None

    def encode(self, picture: Picture, shape: Any) -> NDArray[np.float32]:
        """The descriptor of a face with these landmarks."""
        pixels = np.ascontiguousarray(picture)
        return np.array(self._network.compute_face_descriptor(pixels, shape), dtype=np.float32)

    def in_aligned_face(self, shape: Any, points: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Where points of a picture are in its aligned face, as x + iy."""
        details = self._dlib.get_face_chip_details(shape, SIDE, PADDING)
        box = details.rect
        middle = complex(box.left() + box.right(), box.top() + box.bottom()) / 2
        last = SIDE - 1  # the corners of dlib's box are in the middle of pixels
        turned: NDArray[np.complex128] = (points - middle) * np.exp(-1j * details.angle)
        return turned * last / (box.right() - box.left()) + (1 + 1j) * last / 2

    def describe(self, chip: Picture) -> NDArray[np.float64]:
        """The descriptor of an aligned face."""
        return np.array(self._network.compute_face_descriptor(np.ascontiguousarray(chip)))

    def _search(self, picture: Picture, way: Search) -> list[tuple[int, int, int, int]]:
        from PIL import Image

        height, width = picture.shape[:2]
        scale, view = min(way.zoom, math.sqrt(way.pixels / (height * width))), picture
        if scale != 1:
            size = max(1, round(width * scale)), max(1, round(height * scale))
            view = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
        border = round(way.margin * min(view.shape[:2]))
        if border:
            view = np.pad(view, ((border, border), (border, border), (0, 0)), mode="edge")
        found = self._detector.run(view, 0)[0]
        return [
            (
                round((box.left() - border) / scale),
                round((box.top() - border) / scale),
                round(box.width() / scale),
                round(box.height() / scale),
            )
            for box in found
        ]


def face_recognition_path() -> Callable[[Path], Any] | None:
    """Find and describe the faces of a file with face_recognition's defaults; None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its models use pkg_resources
            import face_recognition
    except (ImportError, SystemExit):  # it quits where its models cannot be imported
        return None

    def encode(path: Path) -> Any:
        picture = face_recognition.load_image_file(path)
        return face_recognition.face_encodings(picture, face_recognition.face_locations(picture))

    return encode
