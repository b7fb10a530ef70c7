"""Pictures: the bytes of an image file as an RGB array, with limits that a hostile file cannot get around."""

from __future__ import annotations

import io
import math
import os
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from divscore.errors import DivscoreError, FileError
from divscore.text import count, without_secrets

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

IMAGE_SUFFIXES = frozenset(
    [
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp"),
        *(".heic", ".heif", ".hif", ".avif"),
    ]
)
# What to do about items that cannot be read. A suffix decides where the content does not help: a raw file is a TIFF
# with a thumbnail, and a video is too large to look into.
CONVERT = "convert to JPEG"
FRAMES = "extract frames as JPEG"
PILLOW_HEIF = "run pip install pillow-heif, or convert to JPEG"
NEW_PILLOW = "install Pillow 11.3 or later, or convert to JPEG"
NOT_READ = {
    **dict.fromkeys((".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg"), FRAMES),
    **dict.fromkeys((".wmv", ".flv", ".3gp", ".mts", ".m2ts"), FRAMES),
    **dict.fromkeys((".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".srf", ".sr2", ".dng"), CONVERT),
    **dict.fromkeys((".raf", ".orf", ".rw2", ".pef", ".srw"), CONVERT),
    **dict.fromkeys((".jxl", ".jp2", ".j2k", ".jpx", ".jxr", ".svg", ".svgz", ".eps"), CONVERT),
    **dict.fromkeys((".psd", ".psb", ".xcf", ".exr", ".tga"), CONVERT),
}
UNSUPPORTED = "is not supported; "  # begins the reason of such an item

MILLION = 1_000_000
MAX_BYTES = 256 << 20  # a file is held in memory while it is decoded; no camera writes larger ones
# Pillow takes four bytes a pixel and the array three more: 120 million pixels are about 0.8 GB.
MAX_PIXELS = 120 * MILLION
# While they load, Pillow's GIF and TIFF readers warn of pictures beyond 89 million; libheif keeps more copies.
FEWER_PIXELS = 80 * MILLION
MAX_JPEG_PIXELS = 500 * MILLION  # decoded at an eighth of its sides, this is 8 million; the time is seconds
ENOUGH_PIXELS = 4 * MILLION  # of a picture that may be reduced: long ones are not kept at full width
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
# In the first box of a file: what it was made with, and what can read it.
HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
AVIF_BRANDS = {b"avif", b"avis"}
BOXED = ("HEIF", "AVIF")
JPEG_XL = (b"\xff\x0a", b"\0\0\0\x0cJXL \r\n")
HEAD = 512  # bytes that tell the format
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
    if advice := NOT_READ.get(suffix_of(content)):
        raise UnreadablePicture(f"{UNSUPPORTED}{advice}")
    remote = "://" in content
    try:
        if not remote:
            # Opening a pipe or a device could wait forever.
            about = os.stat(content)
            if not stat.S_ISREG(about.st_mode):
                raise FileError("is a folder" if stat.S_ISDIR(about.st_mode) else "is not a regular file")
            with open(content, "rb") as stream:
                data = _read(stream)
        else:
            import fsspec

            with fsspec.open(content, "rb") as stream:
                data = _read(stream)
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


def _read(stream: Any) -> bytes:
    """Read a file, unless its first bytes show that it cannot be decoded."""
    head = cast(bytes, stream.read(HEAD))
    form = _boxed(head)
    if form is not None:
        _reader(form)
    return head + cast(bytes, stream.read(MAX_BYTES + 1 - len(head)))


def suffix_of(name: str) -> str:
    """The suffix of a file name in small letters, with its dot."""
    return os.path.splitext(name)[1].lower()


def not_read(files: Mapping[tuple[str, str], int]) -> list[str]:
    """Sentences about files that are not supported, counted by what to do and by suffix.

    >>> not_read({(FRAMES, ".mp4"): 2, (CONVERT, ".psd"): 1, (FRAMES, ".avi"): 1})
    ['3 files were not read (.avi, .mp4): extract frames as JPEG', '1 file was not read (.psd): convert to JPEG']
    """
    texts = []
    for advice in dict.fromkeys(advice for advice, _ in files):
        suffixes = {suffix: number for (each, suffix), number in files.items() if each == advice}
        number = sum(suffixes.values())
        verb = "was" if number == 1 else "were"
        texts.append(f"{count(number, 'files')} {verb} not read ({', '.join(sorted(suffixes))}): {advice}")
    return texts


def decode(data: bytes, *, enough: int = 0) -> NDArray[np.uint8]:
    """Decode a JPEG, PNG, WebP, GIF (first frame), TIFF (first page), BMP, HEIC or AVIF file to RGB (height, width, 3).

    The EXIF orientation is applied, and transparency becomes white. With `enough`, the picture may be smaller than
    stored as long as its shorter side keeps that many pixels, or as the whole keeps four million.
    """
    from PIL import Image

    form = _form(data)
    try:
        stored = _open(data, form, enough)
        stored.load()
        if form in BOXED:
            _check(stored.size, FEWER_PIXELS)  # again: the box around the pixels may have told another size
        picture: Image.Image = stored
        # One of the forms that can be averaged: L, RGB or RGBA.
        if stored.mode in WIDE_GREY or stored.mode.startswith("I;16"):
            picture = _narrow(stored)
        elif stored.has_transparency_data:
            picture = stored.convert("RGBA")
        elif stored.mode not in ("L", "RGB"):
            picture = stored.convert("L" if stored.mode == "1" else "RGB")
        times = min(picture.size) // _enough(enough, picture.size) if enough else 1
        if times > 1:
            picture = picture.reduce(times)
        if picture.mode == "RGBA":
            ground = Image.new("RGB", picture.size, "white")
            ground.paste(picture, mask=picture.getchannel("A"))
            picture = ground
        if picture.mode != "RGB":
            picture = picture.convert("RGB")  # it would copy what is RGB already
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
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # of GIF and WebP only
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
    if boxed := _boxed(data):
        return boxed
    raise UnreadablePicture("is not an image of a known format")


def _boxed(data: bytes) -> str | None:
    """The format of a file that consists of boxes: "HEIF" or "AVIF"; None if it does not. Others are refused."""
    if data.startswith(JPEG_XL):
        raise UnreadablePicture(f"{UNSUPPORTED}{CONVERT}")
    if data[4:8] != b"ftyp":
        return None
    box = data[8 : min(int.from_bytes(data[:4], "big"), HEAD)]
    brands = {box[at : at + 4] for at in range(0, len(box), 4)}
    if brands & AVIF_BRANDS:
        return "AVIF"
    if brands & HEIF_BRANDS:
        return "HEIF"
    raise UnreadablePicture(f"{UNSUPPORTED}{FRAMES}")  # MP4, QuickTime and their kin


def _reader(form: str) -> type[ImageFile]:
    """The class that reads HEIC or AVIF, if it is installed."""
    with suppress(ImportError):
        if form == "AVIF":
            from PIL.AvifImagePlugin import SUPPORTED, AvifImageFile

            if SUPPORTED:
                return AvifImageFile
    with suppress(ImportError):
        import pillow_heif

        # Its later versions leave AVIF to Pillow.
        reader = getattr(pillow_heif, "AvifImageFile" if form == "AVIF" else "HeifImageFile", None)
        if reader is not None:
            return cast("type[ImageFile]", reader)
    raise UnreadablePicture(f"{UNSUPPORTED}{NEW_PILLOW if form == 'AVIF' else PILLOW_HEIF}")


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
    picture = (_reader(form) if form in BOXED else readers[form])(stream)
    if form == "JPEG":
        _check(picture.size, MAX_JPEG_PIXELS if _in_one_pass(picture, data, stream.tell()) else MAX_PIXELS)
        if enough:  # decoded smaller, at a half, a quarter or an eighth of its sides
            side = _enough(enough, picture.size)
            picture.draft(None, (side, side))
    if isinstance(picture, TiffImagePlugin.TiffImageFile):
        tile = (picture.tag_v2.get(TILE_WIDTH, 1), picture.tag_v2.get(TILE_HEIGHT, 1))
        _check(tile, FEWER_PIXELS, least=0)  # a tile may exceed the picture
    _check(picture.size, FEWER_PIXELS if form in ("GIF", "TIFF", *BOXED) else MAX_PIXELS)
    return picture


def _enough(enough: int, size: tuple[int, int]) -> int:
    """Pixels that the shorter side needs."""
    return min(enough, max(1, math.isqrt(ENOUGH_PIXELS * min(size) // max(size))))


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
