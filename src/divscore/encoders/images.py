"""Images through an ONNX graph: how they are prepared, and the image half of the encoder `onnx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from divscore.encoders.onnx import (
    IMAGE_CONFIG,
    ModelFiles,
    Output,
    Port,
    Session,
    choose_output,
    not_finite,
    whole,
)
from divscore.encoders.registry import Encoded, Encoder, versioned
from divscore.errors import InputError

Triple = tuple[float, float, float]
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
MAX_ASPECT = 4
BATCH = 4


@dataclass(frozen=True)
class Normalisation:
    """(pixel · scale − mean) / std, for each channel."""

    scale: float = 1 / 255
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)

    def __str__(self) -> str:
        scale = "1/255" if abs(self.scale * 255 - 1) < 1e-9 else repr(self.scale)
        mean, std = (",".join(repr(float(x)) for x in values) for values in (self.mean, self.std))
        return f"scale={scale} mean={mean} std={std}"


NORMALISATIONS = {
    "imagenet": Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "clip": Normalisation(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
    "half": Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    "none": Normalisation(),
    "raw": Normalisation(scale=1.0),
}


@dataclass(frozen=True)
class Preprocess:
    """From an image of any size to the numbers that a network takes: resize, crop, scale, normalise.

    With `short`, the shorter side is resized to that many pixels and the centre of `height` × `width` is cropped;
    without, the image is squeezed to `height` × `width`. Resizing is antialiased. Without a normalisation the pixels
    stay whole numbers from 0 to 255. Mean and std are in the order of `channels`.

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
                f"images are resized to a shorter side of {self.short} pixels, which is less than the crop of "
                f"{self.height}x{self.width}"
            )

    def __str__(self) -> str:
        short = "squeezed" if self.short is None else str(self.short)
        last = "pixels=uint8" if self.normalise is None else str(self.normalise)
        size = f"size={self.height}x{self.width} short={short}"
        return f"{size} resample={self.resample} channels={self.channels} {last}"

    def __call__(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
        """Images (h, w, 3) as one array (n, 3, height, width): float32, or uint8 without a normalisation."""
        from PIL import Image

        kind = np.uint8 if self.normalise is None else np.float32
        batch: NDArray[Any] = np.empty((len(images), 3, self.height, self.width), dtype=kind)
        for row, image in zip(batch, images, strict=True):
            size = (self.width, self.height)
            if self.short is not None:
                side = min(image.shape[:2])
                # A strip that is 1 pixel high must not grow to gigabytes.
                image = _centre(image, *(min(length, MAX_ASPECT * side) for length in image.shape[:2]))
                size = (int(self.short * image.shape[1] / side), int(self.short * image.shape[0] / side))
            picture = Image.fromarray(np.ascontiguousarray(image))
            resized = np.asarray(picture.resize(size, Image.Resampling(RESAMPLING.index(self.resample))))
            cropped = _centre(resized, self.height, self.width)
            row[:] = cropped.transpose(2, 0, 1)[:: -1 if self.channels == "bgr" else 1]
        if rule := self.normalise:
            # Both factors are computed in double precision and rounded once.
            std = np.asarray(rule.std, dtype=np.float64)[:, None, None]
            batch *= (rule.scale / std).astype(np.float32)
            batch -= (np.asarray(rule.mean, dtype=np.float64)[:, None, None] / std).astype(np.float32)
        return batch


def _centre(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    top = round((image.shape[0] - height) / 2)
    left = round((image.shape[1] - width) / 2)
    return image[top : top + height, left : left + width]


class ImageModel(Encoder):
    """An encoder of images; `channels_last` if the graph takes (n, height, width, 3)."""

    def __init__(
        self,
        identity: str,
        session: Session,
        preprocess: Preprocess,
        output: Output,
        channels_last: bool = False,
    ) -> None:
        self.identity = identity
        self.dimension = output.dimension
        self.resolution = preprocess.short or max(preprocess.height, preprocess.width)
        self._session, self._preprocess, self._output = session, preprocess, output
        self._channels_last = channels_last

    def encode(self, items: Sequence[NDArray[np.uint8]]) -> Encoded:
        """One vector per image."""
        step = self._session.batch or BATCH
        vectors = np.empty((len(items), self.dimension), dtype=np.float32)
        for at in range(0, len(items), step):
            vectors[at : at + step] = self.run(self._preprocess(items[at : at + step]))
        return Encoded.of(vectors, not_finite(vectors))

    def run(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Vectors of preprocessed images (n, 3, height, width)."""
        feeds = _feeds(self._session.inputs[0], pixels, self._channels_last)
        return self._output.vectors(self._session.run(feeds, [self._output.name])[0])


def load(model: str, options: Mapping[str, str], threads: int) -> ImageModel:
    """Load an ONNX model of images: its one input of rank 4 takes pixels."""
    files = ModelFiles.of(model, "onnx/vision_model.onnx")
    session = Session(files.graph, threads)
    if len(session.inputs) != 1 or session.inputs[0].rank != 4:
        raise InputError(
            f"{session.name} takes {'; '.join(map(str, session.inputs))}; expected one input of rank 4, for images. "
            "Of a model for images and texts, export the vision half alone (for CLIP often vision_model.onnx)"
        )
    port = session.inputs[0]
    if port.type not in ("float32", "float16", "uint8"):
        raise InputError(f"{session.name} takes images as {port}; expected float32, float16 or uint8")
    # The axis of the three channels: where the 3 is, else where a name says so, else as in PyTorch.
    first, last = port.shape[1], port.shape[3]
    channels_first = first == 3 or (not port.fixed(1) and last != 3 and "chan" not in str(last))
    if not (channels_first or last == 3 or not (port.fixed(1) or port.fixed(3))):
        raise InputError(
            f"{session.name} takes images as {port}; expected three channels, red, green and blue"
        )
    channels_last = not channels_first
    settings = files.settings(ImageSettings, IMAGE_CONFIG)
    preprocess = settings.preprocess(port, channels_last, session.name, options, session.metadata)
    blank = _feeds(port, preprocess([np.zeros((8, 8, 3), dtype=np.uint8)]), channels_last)
    output = choose_output(session, blank, options, "cls")
    identity = f"{versioned('onnx')} kind=image {preprocess} {output} weights={files.weights}"
    return ImageModel(identity, session, preprocess, output, channels_last)


def _feeds(port: Port, pixels: NDArray[Any], channels_last: bool) -> Mapping[str, NDArray[Any]]:
    shaped = pixels.transpose(0, 2, 3, 1) if channels_last else pixels
    return {port.name: np.ascontiguousarray(shaped, dtype=port.type)}


class Extent(msgspec.Struct):
    """A size in pixels in preprocessor_config.json."""

    height: int | None = None
    width: int | None = None
    shortest_edge: int | None = None
    longest_edge: int | None = None


class ImageSettings(msgspec.Struct):
    """preprocessor_config.json, as on the Hugging Face hub."""

    do_resize: bool | None = None
    size: int | Extent | None = None
    do_center_crop: bool | None = None
    crop_size: int | Extent | None = None
    crop_pct: float | None = None
    resample: Annotated[int, msgspec.Meta(ge=0, lt=len(RESAMPLING))] = RESAMPLING.index("bilinear")
    do_rescale: bool | None = None
    rescale_factor: float | None = None
    do_normalize: bool | None = None
    image_mean: list[float] | float | None = None
    image_std: list[float] | float | None = None
    do_flip_channel_order: bool | None = None

    def preprocess_size(self) -> tuple[int, int, int | None] | None:
        """Height, width and shorter side; None if divscore does not support the combination."""
        size, crop = self.size, self.crop_size if self.do_center_crop else None
        if isinstance(crop, int):
            crop = Extent(crop, crop)
        if isinstance(size, Extent) and size.height and size.width:
            # No published model crops a squeezed image.
            same = crop is None or (crop.height, crop.width) == (size.height, size.width)
            return (size.height, size.width, None) if same else None
        if isinstance(size, int) and not self.do_center_crop:
            return size, size, None
        short = size.shortest_edge if isinstance(size, Extent) and not size.longest_edge else size
        if not isinstance(short, int):
            return None
        if crop is not None:
            return (crop.height, crop.width, short) if crop.height and crop.width else None
        if self.crop_pct and short < 384:  # as in ConvNeXt
            return short, short, int(short / self.crop_pct)
        return short, short, short

    def preprocess(
        self,
        port: Port,
        channels_last: bool,
        name: str,
        options: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> Preprocess:
        """How images are prepared for this input of the graph `name`.

        Options come first, then these settings, then the keys `mean` and `std` of the graph's metadata: three numbers
        for pixels of 0 to 1. If none of them states a normalisation, it is an error.
        """
        axis = 1 if channels_last else 2
        height, width = port.fixed(axis), port.fixed(axis + 1)
        size: tuple[int, int, int | None] | None
        if "size" in options:
            side = whole("size", options["size"])
            size, origin = (side, side, side), f"size={side}"
        elif self.size is not None if self.do_resize is None else self.do_resize:
            size, origin = self.preprocess_size(), IMAGE_CONFIG
            if size is None:
                raise InputError(
                    f"{name}: divscore does not support the combination of size and crop_size in its {IMAGE_CONFIG}; "
                    "pass size=PIXELS"
                )
        elif height is None or width is None:
            raise InputError(
                f"{name} takes images of any size, and there is no {IMAGE_CONFIG} next to it with the usual one; "
                "pass size=PIXELS, such as size=224"
            )
        else:
            size, origin = (height, width, height if height == width else None), "the graph"
        if height not in (None, size[0]) or width not in (None, size[1]):
            raise InputError(
                f"{name} takes images of {height}x{width}, but {origin} asks for {size[0]}x{size[1]}"
            )
        rule = None
        if port.type != "uint8":
            rule = self.normalisation(name, options, metadata)
        elif unused := sorted({"mean", "std", "normalise"} & options.keys()):
            raise InputError(
                f"{name} takes pixels as whole numbers (uint8), which are not normalised; remove {' and '.join(unused)}"
            )
        channels = "bgr" if self.do_flip_channel_order else "rgb"
        return Preprocess(*size, RESAMPLING[self.resample], channels, rule)

    def normalisation(
        self, name: str, options: Mapping[str, str], metadata: Mapping[str, str]
    ) -> Normalisation:
        """How pixels are normalised; an error if nothing states it, because a guess would give wrong vectors."""
        stated = {"mean", "std"} & options.keys()
        if "normalise" in options:
            if stated:
                raise InputError("normalise and mean or std were both given; pass one or the other")
            return NORMALISATIONS[options["normalise"]]
        configured = (
            self.do_rescale,
            self.rescale_factor,
            self.do_normalize,
            self.image_mean,
            self.image_std,
        )
        if not stated and any(value is not None for value in configured):
            scale = 1.0 if self.do_rescale is False else self.rescale_factor or 1 / 255
            if not (self.image_mean is not None if self.do_normalize is None else self.do_normalize):
                return Normalisation(scale)
            mean, std = _triple("image_mean", self.image_mean), _triple("image_std", self.image_std)
            return Normalisation(scale, mean, std)
        texts = options if stated else metadata
        if not {"mean", "std"} & texts.keys():
            raise InputError(
                f"{name} does not say how its images are normalised: there is no {IMAGE_CONFIG} next to it and no mean "
                "and std in its metadata. Pass mean=R,G,B std=R,G,B for pixels of 0 to 1, or normalise=NAME, one of "
                f"{', '.join(NORMALISATIONS)}"
            )
        if "mean" not in texts or "std" not in texts:
            raise InputError(f"{name}: only one of mean and std was given; pass mean=R,G,B std=R,G,B")
        mean, std = (_triple(key, texts[key].strip().strip("[]").split(",")) for key in ("mean", "std"))
        if max(map(abs, mean)) > 1 or max(std) > 1 or min(std) <= 0:
            raise InputError(
                f"mean={texts['mean']} std={texts['std']}: expected numbers for pixels of 0 to 1, the mean between -1 "
                "and 1 and the std above 0 and up to 1; divide numbers for pixels of 0 to 255 by 255"
            )
        return Normalisation(mean=mean, std=std)


def _triple(name: str, value: list[float] | list[str] | float | None) -> Triple:
    """Three numbers, one per channel; one number stands for all three."""
    listed = [value] if isinstance(value, float) else value or []
    try:
        red, green, blue = (float(x) for x in (listed * 3 if len(listed) == 1 else listed))
    except ValueError as error:
        shown = ",".join(map(str, listed)) or "nothing"
        raise InputError(
            f"{name}={shown}: expected three numbers, for red, green and blue, such as 0.5,0.5,0.5"
        ) from error
    return red, green, blue
