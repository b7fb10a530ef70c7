"""How pictures are prepared for an ONNX graph: from options, preprocessor_config.json, or the graph itself.

What options say goes before preprocessor_config.json (as the Hugging Face hub has it), and that before the graph's
own metadata, of which the keys `mean` and `std` are read: three numbers for pixels of 0 to 1, separated by commas
or as JSON. A normalisation that none of them gives is not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from divscore.encoders.preprocess import NORMALISATIONS, RESAMPLING, Normalisation, Preprocess
from divscore.encoders.session import Port
from divscore.errors import InputError

__all__ = ["CONFIG", "ImageConfig"]

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
