"""Pictures: the bytes of an image file as an RGB array, with limits that a hostile file cannot get around."""

from __future__ import annotations

import io
import os
import stat
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from divscore.errors import DivscoreError, FileError
from divscore.text import without_secrets

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp"}
)

MILLION = 1_000_000
MAX_BYTES = 256 << 20  # a file is held in memory while it is decoded; no camera writes larger ones
# Pillow takes four bytes a pixel and the array three more: 120 million pixels are about 0.8 GB.
MAX_PIXELS = 120 * MILLION
# While they load, Pillow's GIF and TIFF readers warn of pictures beyond 89 million.
FEWER_PIXELS = 80 * MILLION
MAX_JPEG_PIXELS = 500 * MILLION  # decoded at an eighth of its sides, this is 8 million; the time is seconds
MIN_SIDE = 2  # web pages count their readers with pictures of one pixel
MAX_RATIO = 200  # panoramas and screenshots of long pages stay far below

MAGIC = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
}
BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
WIDE_GREY = ("I", "F")  # whole numbers of 16 or 32 bits (also "I;16" and the like), and fractions
TRANSPOSED = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # EXIF orientation to Pillow's Transpose
ORIENTATION, TILE_WIDTH, TILE_HEIGHT = 274, 322, 323  # tags of EXIF and TIFF


class UnreadablePicture(FileError):  # noqa: N818 - it is not the program that erred
    """A picture that cannot be decoded; the message continues a sentence that names the file ("is cut off")."""


def read_picture(content: str | bytes) -> bytes:
    """Read the bytes of a picture, or raise a FileError with the reason."""
    if isinstance(content, bytes):
        return content
    if not content.strip():
        raise FileError("has no path")
    remote = "://" in content
    try:
        if not remote:
            # Opening a pipe or a device could wait forever.
            about = os.stat(content)
            if not stat.S_ISREG(about.st_mode):
                raise FileError("is a folder" if stat.S_ISDIR(about.st_mode) else "is not a regular file")
            with open(content, "rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        else:
            import fsspec

            with fsspec.open(content, "rb") as stream:
                data = cast(bytes, stream.read(MAX_BYTES + 1))
    except DivscoreError:
        raise
    except FileNotFoundError as error:
        raise FileError("does not exist") from error
    except Exception as error:
        # Reading a local file raises two kinds of errors, fetching one anything that its store raises.
        if not remote and not isinstance(error, OSError | ValueError):
            raise
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"cannot be read: {without_secrets(reason)[:120]}") from error
    if len(data) > MAX_BYTES:
        raise FileError(f"is larger than {MAX_BYTES >> 20} MB")
    return data


def decode(data: bytes, *, enough: int = 0) -> NDArray[np.uint8]:
    """Decode a JPEG, PNG, WebP, GIF (first frame), TIFF (first page) or BMP file to RGB (height, width, 3).

    The EXIF orientation is applied, and transparency becomes white. With `enough`, the picture may be smaller than
    stored as long as its shorter side keeps that many pixels.
    """
    from PIL import Image

    form = _form(data)
    try:
        stored = _open(data, form, enough)
        stored.load()
        picture: Image.Image = stored
        # One of the forms that can be averaged: L, RGB or RGBA.
        if stored.mode in WIDE_GREY or stored.mode.startswith("I;16"):
            picture = _narrow(stored)
        elif stored.has_transparency_data:
            picture = stored.convert("RGBA")
        elif stored.mode not in ("L", "RGB"):
            picture = stored.convert("L" if stored.mode == "1" else "RGB")
        times = min(picture.size) // enough if enough else 1
        if times > 1:
            picture = picture.reduce(times)
        if picture.mode == "RGBA":
            ground = Image.new("RGB", picture.size, "white")
            ground.paste(picture, mask=picture.getchannel("A"))
            picture = ground
        picture = picture.convert("RGB")
        # Not ImageOps.exif_transpose: a converted picture has lost the tags of its TIFF file, and the stored one would
        # be turned at full size, before it is reduced, which takes memory and gives other pixels.
        turn = None
        with suppress(Exception):  # damaged metadata of a picture that is whole
            turn = TRANSPOSED.get(stored.getexif().get(ORIENTATION, 1))
        return np.asarray(picture if turn is None else picture.transpose(Image.Transpose(turn)))
    except UnreadablePicture:
        raise
    except MemoryError:
        raise UnreadablePicture("does not fit into memory") from None
    except (
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:  # known to GIF and WebP only
        raise UnreadablePicture(
            f"has more pixels than the limit of {FEWER_PIXELS // MILLION} million"
        ) from error
    except Exception as error:  # Pillow's readers raise nearly anything on damaged files
        ends = (EOFError, IndexError, struct.error)
        ended = (
            isinstance(error, ends) or isinstance(error.__cause__, ends) or "truncated" in str(error).lower()
        )
        raise UnreadablePicture("is cut off" if ended else "is damaged or of an unusual kind") from error


def _form(data: bytes) -> str:
    if not data:
        raise UnreadablePicture("is empty")
    if len(data) > MAX_BYTES:
        raise UnreadablePicture(f"is larger than {MAX_BYTES >> 20} MB")
    for start, form in MAGIC.items():
        if data.startswith(start):
            return form
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    if data.startswith(b"BM") and int.from_bytes(data[14:18], "little") in BMP_HEADERS:
        return "BMP"
    raise UnreadablePicture("is not an image of a known format")


def _open(data: bytes, form: str, enough: int) -> ImageFile:
    """Read the header, and refuse what it announces before memory is taken for the pixels."""
    # Not Image.open: it warns of large pictures, and warnings cannot be silenced for one thread alone.
    from PIL import BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, TiffImagePlugin
    from PIL.WebPImagePlugin import WebPImageFile

    readers: dict[str, type[ImageFile]] = {
        "JPEG": JpegImagePlugin.JpegImageFile,
        "PNG": PngImagePlugin.PngImageFile,
        "WEBP": WebPImageFile,
        "BMP": BmpImagePlugin.BmpImageFile,
        "GIF": GifImagePlugin.GifImageFile,
        "TIFF": TiffImagePlugin.TiffImageFile,
    }
    if form == "WEBP" and int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise UnreadablePicture("is cut off")
    stream = io.BytesIO(data)
    picture = readers[form](stream)
    if form == "JPEG":
        _check(picture.size, MAX_JPEG_PIXELS if _in_one_pass(picture, data, stream.tell()) else MAX_PIXELS)
        if enough:  # decoded smaller, at a half, a quarter or an eighth of its sides
            picture.draft(None, (enough, enough))
    if isinstance(picture, TiffImagePlugin.TiffImageFile):
        tile = (picture.tag_v2.get(TILE_WIDTH, 1), picture.tag_v2.get(TILE_HEIGHT, 1))
        _check(tile, FEWER_PIXELS, least=0)  # a tile may exceed the picture
    _check(picture.size, FEWER_PIXELS if form in ("GIF", "TIFF") else MAX_PIXELS)
    return picture


def _check(size: tuple[Any, ...], most: int, least: int = MIN_SIDE) -> None:
    pixels = f"{size[0]:,} × {size[1]:,} pixels"
    if min(size) < least:
        raise UnreadablePicture(f"has {pixels}; expected at least {least} on each side")
    if size[0] * size[1] > most:
        raise UnreadablePicture(f"has {pixels}, more than the limit of {most // MILLION} million")
    if least and max(size) > MAX_RATIO * min(size):
        raise UnreadablePicture(f"is more than {MAX_RATIO} times as long as wide ({pixels})")


def _in_one_pass(photo: Any, data: bytes, end: int) -> bool:
    """Whether the first scan has all layers: the decoder keeps a JPEG of several scans whole, at full size."""
    start = end - 8 - 2 * int(photo.layers)
    return "progressive" not in photo.info and data[start : start + 2] == b"\xff\xda"


def _narrow(picture: Image) -> Image:
    """Grey of more than 8 bits: 16 bits as they are, any other range from its least to its largest value."""
    from PIL import Image

    values = np.asarray(picture)
    if values.dtype.kind == "f":
        values = np.nan_to_num(values, posinf=0, neginf=0)
    least, largest = float(values.min()), float(values.max())
    if values.dtype.kind == "f" or least < 0 or largest > 0xFFFF:
        values = (values.astype(np.float64) - least) / ((largest - least) or 1.0) * 0xFFFF
    return Image.fromarray((values.astype(np.uint16) >> 8).astype(np.uint8))
