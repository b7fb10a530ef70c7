"""From a picture of any size to the numbers that a network takes: resize, crop, scale, normalise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError

__all__ = ["NORMALISATIONS", "RESAMPLING", "Normalisation", "Preprocess"]

Triple = tuple[float, float, float]
# Pillow's numbers, which configuration files use too.
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
LONGEST = 4


@dataclass(frozen=True)
class Normalisation:
    """(pixel · scale − mean) / std, for each channel."""

    scale: float = 1 / 255
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)

    def __str__(self) -> str:
        scale = "1/255" if abs(self.scale * 255 - 1) < 1e-9 else repr(self.scale)
        return f"scale={scale} mean={_listed(self.mean)} std={_listed(self.std)}"


NORMALISATIONS = {
    "imagenet": Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "clip": Normalisation(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
    "half": Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    "none": Normalisation(),
    "raw": Normalisation(scale=1.0),
}


@dataclass(frozen=True)
class Preprocess:
    """What is done to a picture.

    With `short`, its shorter side is brought to that many pixels and the centre of `height` × `width` is cut out;
    without, it is squeezed to `height` × `width`. Resizing is antialiased. Without a normalisation the pixels stay
    whole numbers of 0 to 255. Mean and std are in the order of `channels`.

    >>> Preprocess(2, 2, short=4)([np.full((8, 12, 3), 255, np.uint8)]).shape
    (1, 3, 2, 2)
    >>> print(Preprocess(224, 224, short=256, normalise=None))
    size=224x224 short=256 resample=bilinear channels=rgb pixels=uint8
    """

    height: int
    width: int
    short: int | None = None
    resample: str = "bilinear"
    channels: str = "rgb"
    normalise: Normalisation | None = NORMALISATIONS["none"]

    def __post_init__(self) -> None:
        if self.short is not None and self.short < max(self.height, self.width):
            raise InputError(
                f"the shorter side is brought to {self.short} pixels, but {self.height}x{self.width} is to be cut "
                "out of that; expected at least as many pixels as the cut-out has"
            )

    @property
    def enough(self) -> int:
        """The shorter side in pixels beyond which more detail is lost anyway."""
        return self.short or max(self.height, self.width)

    def __call__(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        """Pictures (h, w, 3) as one array (n, 3, height, width): float32, or uint8 without a normalisation."""
        kind = np.uint8 if self.normalise is None else np.float32
        batch: NDArray[Any] = np.empty((len(images), 3, self.height, self.width), dtype=kind)
        for row, image in zip(batch, images, strict=True):
            row[:] = self._one(image)
        return batch

    def _one(self, image: NDArray[np.uint8]) -> NDArray[Any]:
        pixels = self._sized(image).transpose(2, 0, 1)
        if self.channels == "bgr":
            pixels = pixels[::-1]
        rule = self.normalise
        if rule is None:
            return pixels
        std = np.asarray(rule.std, dtype=np.float64)[:, None, None]
        mean = np.asarray(rule.mean, dtype=np.float64)[:, None, None]
        return pixels * (rule.scale / std).astype(np.float32) - (mean / std).astype(np.float32)

    def _sized(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        from PIL import Image

        height, width = image.shape[:2]
        filter_ = Image.Resampling(RESAMPLING.index(self.resample))
        if self.short is None:
            picture = Image.fromarray(np.ascontiguousarray(image))
            return np.asarray(picture.resize((self.width, self.height), filter_))
        most = LONGEST * min(height, width)  # a strip 1 pixel high must not grow to gigabytes
        image = _centre(image, min(height, most), min(width, most))
        height, width = image.shape[:2]
        side = min(height, width)
        size = (int(self.short * width / side), int(self.short * height / side))
        picture = Image.fromarray(np.ascontiguousarray(image))
        return _centre(np.asarray(picture.resize(size, filter_)), self.height, self.width)

    def __str__(self) -> str:
        how = "squeezed" if self.short is None else str(self.short)
        last = "pixels=uint8" if self.normalise is None else str(self.normalise)
        return f"size={self.height}x{self.width} short={how} resample={self.resample} channels={self.channels} {last}"


def _centre(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    top = round((image.shape[0] - height) / 2)
    left = round((image.shape[1] - width) / 2)
    return image[top : top + height, left : left + width]


def _listed(values: Triple) -> str:
    return ",".join(repr(float(value)) for value in values)
