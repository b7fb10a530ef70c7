"""Pictures through an ONNX graph."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.registry import Encoded
from divscore.encoders.session import Output, Port, Session, not_finite
from divscore.errors import InputError

__all__ = [
    "CONFIG",
    "NORMALISATIONS",
    "RESAMPLING",
    "ImageConfig",
    "ImageModel",
    "Normalisation",
    "Pixels",
    "Preprocess",
]


# From a picture of any size to the numbers that a network takes: resize, crop, scale, normalise.

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


BATCH = 4


@dataclass(frozen=True)
class Pixels:
    """An input for pictures, and whether it wants the channels last."""

    port: Port
    last: bool

    @classmethod
    def of(cls, port: Port, model: str) -> Pixels:
        """Find the axis of the three channels: where the 3 is, else where a name says so, else as PyTorch has it."""
        if port.type not in ("float32", "float16", "uint8"):
            raise InputError(f"{model} takes pictures as {port}; expected float32, float16 or uint8")
        first, last = port.shape[1], port.shape[3]
        if first == 3 or (not port.fixed(1) and last != 3 and "chan" not in str(last)):
            return cls(port, last=False)
        if last == 3 or not (port.fixed(1) or port.fixed(3)):
            return cls(port, last=True)
        raise InputError(f"{model} takes pictures as {port}; expected three channels, red, green and blue")

    @property
    def height_axis(self) -> int:
        """Where the height is; the width follows."""
        return 1 if self.last else 2

    def feeds(self, pixels: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        """Pixels (n, 3, height, width) as the graph takes them."""
        shaped = pixels.transpose(0, 2, 3, 1) if self.last else pixels
        return {self.port.name: np.ascontiguousarray(shaped, dtype=self.port.type)}


class ImageModel:
    """An encoder of pictures."""

    variant = ""

    def __init__(
        self, identity: str, session: Session, pixels: Pixels, preprocess: Preprocess, output: Output
    ) -> None:
        self.identity = identity
        self.dimension = output.dimension
        self.enough = preprocess.enough
        self._session = session
        self._pixels = pixels
        self._preprocess = preprocess
        self._output = output

    def encode(self, items: Sequence[NDArray[np.uint8]]) -> Encoded:
        """One vector a picture."""
        step = self._session.batch or BATCH
        vectors = np.empty((len(items), self.dimension), dtype=np.float32)
        for at in range(0, len(items), step):
            vectors[at : at + step] = self.run(self._preprocess(items[at : at + step]))
        return Encoded.of(vectors, not_finite(vectors))

    def run(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Vectors of pictures that are prepared already, as (n, 3, height, width)."""
        results = self._session.run(self._pixels.feeds(pixels), [self._output.name])
        return self._output.vectors(results[0])


# How pictures are prepared for an ONNX graph: from options, preprocessor_config.json, or the graph itself.
#
# What options say goes before preprocessor_config.json (as the Hugging Face hub has it), and that before the graph's
# own metadata, of which the keys `mean` and `std` are read: three numbers for pixels of 0 to 1, separated by commas
# or as JSON. A normalisation that none of them gives is not guessed.

CONFIG = "preprocessor_config.json"
SIZES = ("size", "crop_size", "do_center_crop")
STATED = {"do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"}


@dataclass(frozen=True)
class ImageConfig:
    """The three places where something may be said about pictures, and a name for messages."""

    name: str
    options: Mapping[str, str]
    settings: Mapping[str, Any]
    metadata: Mapping[str, str]

    def preprocess(self, port: Port, height_axis: int) -> Preprocess:
        """All that is done to a picture for this input of the graph."""
        height, width, short = self._size(port.fixed(height_axis), port.fixed(height_axis + 1))
        flip = bool(self.settings.get("do_flip_channel_order", False))
        rule = self._normalisation() if port.type != "uint8" else None
        if rule is None and (given := sorted({"mean", "std", "normalise"} & self.options.keys())):
            raise InputError(
                f"{self.name} takes pixels as whole numbers (uint8), which are not normalised; leave out "
                f"{' and '.join(given)}"
            )
        return Preprocess(height, width, short, self._resample(), "bgr" if flip else "rgb", rule)

    def _size(self, height: int | None, width: int | None) -> tuple[int, int, int | None]:
        if "size" in self.options:
            side = whole("size", self.options["size"])
            self._fits((side, side), (height, width), f"size={side}")
            return side, side, side
        if self.settings.get("do_resize", "size" in self.settings):
            if "size" not in self.settings:
                raise InputError(f"{self.name}: {CONFIG} asks to resize but gives no size; pass size=PIXELS")
            try:
                tall, wide, short = self._configured()
            except (KeyError, TypeError, ValueError) as error:
                raise self._strange("size", {key: self.settings.get(key) for key in SIZES}) from error
            self._fits((tall, wide), (height, width), CONFIG)
            return tall, wide, short
        if height is None or width is None:
            raise InputError(
                f"{self.name} takes pictures of any size, and no {CONFIG} beside it says which it was made for; "
                "pass size=PIXELS, such as size=224"
            )
        return height, width, height if height == width else None

    def _configured(self) -> tuple[int, int, int | None]:
        size, crop = self.settings["size"], self.settings.get("crop_size")
        crops = bool(self.settings.get("do_center_crop", False))
        if isinstance(size, dict) and {"height", "width"} <= size.keys():
            tall, wide = int(size["height"]), int(size["width"])
            # Cutting out of a squeezed picture is not something that published models do.
            if crops and crop is not None and _square(crop) != (tall, wide):
                raise ValueError(crop)
            return tall, wide, None
        if isinstance(size, dict) and set(size) == {"shortest_edge"}:
            short = int(size["shortest_edge"])
        elif isinstance(size, int):
            short = size
            if not crops:
                return short, short, None
        else:
            raise TypeError(size)
        if crops and crop is not None:
            return *_square(crop), short
        if "crop_pct" in self.settings and short < 384:  # ConvNeXt's way of saying it
            return short, short, int(short / float(self.settings["crop_pct"]))
        return short, short, short

    def _fits(self, got: tuple[int, int], graph: tuple[int | None, int | None], said: str) -> None:
        if any(side not in (None, mine) for side, mine in zip(graph, got, strict=True)):
            raise InputError(
                f"{self.name} takes pictures of {graph[0]}x{graph[1]}, but {said} asks for {got[0]}x{got[1]}; "
                "expected the same"
            )

    def _resample(self) -> str:
        number = self.settings.get("resample", RESAMPLING.index("bilinear"))
        if number not in range(len(RESAMPLING)):
            raise self._strange("resample", number)
        return RESAMPLING[number]

    def _normalisation(self) -> Normalisation:
        if "normalise" in self.options:
            return self._named(self.options["normalise"])
        if "mean" in self.options or "std" in self.options:
            return self._given(self.options)
        if STATED & self.settings.keys():
            return self._stated()
        if "mean" in self.metadata or "std" in self.metadata:
            return self._given(self.metadata)
        raise InputError(
            f"{self.name} does not say how its pictures are normalised: there is no {CONFIG} beside it and no mean "
            f"and std in its metadata. Pass mean=R,G,B std=R,G,B for pixels of 0 to 1, or normalise=NAME, one of "
            f"{', '.join(NORMALISATIONS)}"
        )

    def _named(self, name: str) -> Normalisation:
        if name not in NORMALISATIONS:
            raise InputError(f"normalise={name} is unknown; expected one of {', '.join(NORMALISATIONS)}")
        if "mean" in self.options or "std" in self.options:
            raise InputError(f"normalise={name} and mean or std were both given; give one or the other")
        return NORMALISATIONS[name]

    def _given(self, source: Mapping[str, str]) -> Normalisation:
        if "mean" not in source or "std" not in source:
            raise InputError(
                f"{self.name}: only one of mean and std was given; expected both, as mean=R,G,B std=R,G,B"
            )
        mean, std = triple("mean", source["mean"]), triple("std", source["std"])
        if max(map(abs, mean)) > 1 or max(std) > 1 or min(std) <= 0:
            raise InputError(
                f"mean={source['mean']} std={source['std']}: expected numbers for pixels of 0 to 1, the mean between "
                "-1 and 1 and the std above 0 and up to 1; divide numbers for pixels of 0 to 255 by 255"
            )
        return Normalisation(mean=mean, std=std)

    def _stated(self) -> Normalisation:
        says = self.settings
        scale = float(says.get("rescale_factor", 1 / 255)) if says.get("do_rescale", True) else 1.0
        if not says.get("do_normalize", "image_mean" in says):
            return Normalisation(scale=scale)
        if "image_mean" not in says or "image_std" not in says:
            raise self._strange("image_mean or image_std", None)
        mean, std = triple("image_mean", says["image_mean"]), triple("image_std", says["image_std"])
        return Normalisation(scale, mean, std)

    def _strange(self, key: str, value: object) -> InputError:
        got = "nothing" if value is None else json.dumps(value)
        return InputError(
            f"{self.name}: its {CONFIG} has {got} for {key}, which divscore cannot follow; pass size=PIXELS and "
            "normalise=NAME, or mean= and std=, and take that file away"
        )


def whole(name: str, value: str) -> int:
    """An option that is a number of pixels or tokens."""
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InputError(f"{name}={value}: expected a whole number above 0")
    return int(value)


def triple(name: str, value: object) -> tuple[float, float, float]:
    """Three numbers, one a channel, as a list, JSON or separated by commas; one number stands for all three."""
    try:
        listed: Any = json.loads(f"[{value.strip().strip('[]')}]") if isinstance(value, str) else value
        numbers = [float(x) for x in (listed if isinstance(listed, list) else [listed])]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) == 1:
        numbers *= 3
    if len(numbers) != 3:
        raise InputError(
            f"{name}={value}: expected three numbers, for red, green and blue, such as 0.5,0.5,0.5"
        )
    return cast(tuple[float, float, float], tuple(numbers))


def _square(crop: Any) -> tuple[int, int]:
    if isinstance(crop, dict):
        return int(crop["height"]), int(crop["width"])
    return int(crop), int(crop)
