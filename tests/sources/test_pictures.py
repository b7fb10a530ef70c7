from __future__ import annotations

import functools
import io
import re
import resource
import struct
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from divscore.errors import FileError
from divscore.sources import pictures
from divscore.sources.pictures import (
    IMAGE_SUFFIXES,
    MAX_BYTES,
    NOT_READ,
    UnreadablePicture,
    decode,
    read_picture,
)

Image = pytest.importorskip("PIL.Image")
ImageDraw = pytest.importorskip("PIL.ImageDraw")


def stored(picture: Any, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def blocks(height: int = 24, width: int = 20, seed: int = 0) -> Any:
    """Squares of four by four pixels in random colours."""
    colours = np.random.default_rng(seed).integers(0, 256, (height // 4, width // 4, 3), dtype=np.uint8)
    return Image.fromarray(colours.repeat(4, axis=0).repeat(4, axis=1))


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width: int, height: int, *, before: bytes = b"", body: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", header), before, chunk(b"IDAT", body), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("PNG", {}),
        ("BMP", {}),
        ("GIF", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("WEBP", {"lossless": True}),
    ],
)
def test_lossless_formats_give_every_pixel(form: str, options: dict[str, Any]) -> None:
    picture = blocks()
    found = decode(stored(picture, form, **options))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.asarray(picture))


@pytest.mark.parametrize(
    ("form", "options"), [("JPEG", {"quality": 95}), ("JPEG", {"progressive": True}), ("WEBP", {})]
)
def test_lossy_formats_come_near(form: str, options: dict[str, Any]) -> None:
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    plane = np.broadcast_to(ramp[:, None, None], (64, 48, 3))
    found = decode(stored(Image.fromarray(plane), form, **options))
    assert found.shape == (64, 48, 3)
    assert np.abs(found.astype(int) - plane).max() <= 8


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "RGB"])
def test_modes_end_as_rgb(mode: str) -> None:
    checks = (np.indices((8, 8)).sum(axis=0) % 2 * 255).astype(np.uint8)
    picture = Image.fromarray(checks).convert("RGB").convert(mode)
    found = decode(stored(picture, "TIFF"))
    np.testing.assert_array_equal(found, np.repeat(checks[:, :, None], 3, axis=2))


def test_jpeg_of_four_inks() -> None:
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert np.abs(decode(stored(red, "JPEG")).astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_cut(form: str) -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    found = decode(stored(Image.fromarray(values), form))
    np.testing.assert_array_equal(found, np.repeat((values >> 8).astype(np.uint8)[:, :, None], 3, axis=2))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_unbounded_greys_run_from_least_to_largest(dtype: Any) -> None:
    values = np.array([[-100_000, 0], [50_000, 100_000]], dtype=dtype)
    found = decode(stored(Image.fromarray(values), "TIFF"))
    assert found[:, :, 0].tolist() == [[0, 127], [191, 255]]


def test_float_picture_without_numbers() -> None:
    values = np.array([[np.nan, np.inf], [1.0, -np.inf]], dtype=np.float32)
    assert decode(stored(Image.fromarray(values), "TIFF"))[:, :, 0].tolist() == [[0, 0], [255, 0]]


def test_transparency_lies_on_white() -> None:
    colour = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    colour.putpixel((0, 0), (200, 0, 0, 255))
    colour.putpixel((1, 0), (0, 0, 0, 128))
    for form in ("PNG", "TIFF", "WEBP"):
        found = decode(stored(colour, form, **({"lossless": True} if form == "WEBP" else {})))
        assert found[0, 0].tolist() == [200, 0, 0]
        assert found[0, 1].tolist() == [127, 127, 127]
        assert (found[1:] == 255).all()
    grey = decode(stored(Image.new("LA", (4, 4), (10, 0)), "PNG"))
    assert (grey == 255).all()


@pytest.mark.parametrize("form", ["PNG", "GIF"])
def test_palette_with_a_transparent_colour(form: str) -> None:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putpixel((2, 1), 0)
    found = decode(stored(picture, form, transparency=1))
    assert found[1, 2].tolist() == [255, 0, 0]
    assert found[0, 0].tolist() == [255, 255, 255]


def test_palette_with_shades_of_transparency() -> None:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([255, 0, 0, 0, 0, 0])
    assert (decode(stored(picture, "PNG", transparency=bytes([255, 128]))) == 127).all()


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_one_colour_named_transparent(mode: str) -> None:
    picture = Image.new(mode, (4, 4), 7 if mode == "L" else (7, 7, 7))
    data = stored(picture, "PNG", transparency=7 if mode == "L" else (7, 7, 7))
    assert (decode(data) == 255).all()


def test_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("#ff0000", "#00ff00", "#0000ff")]
    for form in ("GIF", "WEBP", "TIFF", "PNG"):
        options = {"lossless": True} if form == "WEBP" else {}
        data = stored(frames[0], form, save_all=True, append_images=frames[1:], **options)
        assert (decode(data) == [255, 0, 0]).all(), form


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation: int) -> None:
    upright = np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3) * 3
    undone = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: upright.swapaxes(0, 1)[::-1],
        7: upright[::-1, ::-1].swapaxes(0, 1),
        8: upright.swapaxes(0, 1)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[274] = orientation
    turned = Image.fromarray(np.ascontiguousarray(undone))
    for form in ("PNG", "TIFF", "WEBP"):
        data = stored(turned, form, exif=exif, **({"lossless": True} if form == "WEBP" else {}))
        np.testing.assert_array_equal(decode(data), upright, err_msg=form)


def test_orientation_of_a_reduced_photograph() -> None:
    picture = Image.new("RGB", (640, 480))
    ImageDraw.Draw(picture).rectangle((0, 0, 639, 120), fill="white")
    exif = Image.Exif()
    exif[274] = 6  # the top of the scene is on the right
    found = decode(stored(picture, "JPEG", exif=exif), enough=100)
    assert found.shape == (160, 120, 3)
    assert found[:, -20:].mean() > 250
    assert found[:, :60].mean() < 5


def test_damaged_orientation_leaves_the_picture() -> None:
    data = stored(blocks(), "PNG", exif=b"Exif\0\0nonsense")
    np.testing.assert_array_equal(decode(data), np.asarray(blocks()))


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize(("kind", "cut"), [(2, 0), (2, 6), (99, 0)])
@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about the metadata
def test_a_photo_with_damaged_metadata_is_still_turned(form: str, kind: int, cut: int) -> None:
    tags = [struct.pack("<HHII", 274, 3, 1, 6), struct.pack("<HHII", 305, kind, 400, 60_000)]
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(tags) + bytes(4)
    data = stored(Image.new("RGB", (64, 40)), form, exif=exif[: len(exif) - cut])
    assert decode(data).shape == (64, 40, 3)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_enough_keeps_the_shorter_side(form: str) -> None:
    picture = Image.new("RGB", (1300, 900), "#336699")
    data = stored(picture, form)
    assert decode(data).shape == (900, 1300, 3)
    for enough in (100, 250, 449, 451, 899, 5000):
        found = decode(data, enough=enough)
        assert min(enough, 900) <= min(found.shape[:2]) < 2 * enough
        assert found.shape[1] / found.shape[0] == pytest.approx(13 / 9, abs=0.02)
        assert np.abs(found.astype(int) - [0x33, 0x66, 0x99]).max() <= 3


def test_reducing_averages() -> None:
    checks = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    found = decode(stored(Image.fromarray(checks), "PNG"), enough=16)
    assert found.shape == (16, 16, 3)
    assert np.abs(found.astype(int) - 127).max() <= 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"<html>not found</html>", "is not an image of a known format"),
        (b"BMW makes cars, and this is a text.", "is not an image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image of a known format"),
        (b"8BPS\0\1" + bytes(40), "is not an image of a known format"),
        (png(1, 1), "has 1 × 1 pixels"),
        (png(0, 9), "is damaged"),
        (png(4000, 9), "is more than 200 times as long as wide"),
        (b"RIFF\x04\0\0\0WEBPJUNK", "is damaged"),
    ],
)
def test_refusals(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadablePicture, match=f"^{re.escape(reason)}"):
        decode(data)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_files_that_stop_early(form: str) -> None:
    data = stored(blocks(200, 200), form)
    for share in (0.4, 0.7, 0.95):
        with pytest.raises(UnreadablePicture, match=r"^is cut off$"):
            decode(data[: int(share * len(data))])


def test_reasons_are_file_errors_that_keep_their_cause() -> None:
    data = stored(blocks(), "JPEG")
    with pytest.raises(FileError) as caught:
        decode(data[:-30])
    assert caught.value.__cause__ is not None


def test_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BYTES == 256 << 20
    monkeypatch.setattr(pictures, "MAX_BYTES", 1 << 20)
    with pytest.raises(UnreadablePicture, match=r"^is larger than 1 MB$"):
        decode(stored(blocks(), "PNG") + bytes(1 << 20))


def _gif(screen: int, frame: int) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", screen, screen, 0x80, 0, 0) + bytes(6)
    comment, control = b"!\xfe\x03abc\0", b"!\xf9\x04\x09\0\0\0\0"  # dispose of the frame to the background
    return head + comment + control + b"," + struct.pack("<4HB", 0, 0, frame, frame, 0) + b"\x02\x01\x44\0;"


def _tiff(tags: dict[int, int]) -> bytes:
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items())]
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(entries) + bytes(64)


@functools.cache
def _bombs() -> dict[str, bytes]:
    zeros = zlib.compress(bytes(30_000_000), 9)
    side = 50_000
    jpeg = stored(Image.new("L", (16, 16)), "JPEG")
    at = jpeg.index(b"\xff\xc0") + 5
    header = struct.pack("<IiiHHIIIIII", 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)
    plain = {256: side, 257: side, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: side, 279: 64}
    tiled = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1, 322: 65_520, 323: 65_520, 324: 8, 325: 64}
    size = (side - 1).to_bytes(3, "little") * 2
    return {
        "png": png(side, side, body=zeros),
        "png text": png(20, 20, before=chunk(b"zTXt", b"Comment\0\0" + zeros)),
        "png profile": png(20, 20, before=chunk(b"iCCP", b"name\0\0" + zeros)),
        "jpeg": jpeg[:at] + struct.pack(">HH", side, side) + jpeg[at + 4 :],
        "gif screen": _gif(side, 20),
        "gif frame": _gif(20, 9_500),  # Pillow would warn only
        "gif larger frame": _gif(20, side),
        "bmp": b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header,
        "tiff": _tiff(plain),
        "tiff tile": _tiff(tiled),
        "webp": b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<II", 10, 0) + size,
        "webp lossless": b"RIFF" + struct.pack("<I", 18) + b"WEBPVP8L\x05\0\0\0\x2f\xff\xff\xff\x0f\0",
    }


def _peak() -> int:
    """Most bytes that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.mark.parametrize("name", _bombs())
def test_bombs_are_refused_by_their_headers(name: str) -> None:
    data = _bombs()[name]
    assert len(data) < 40_000
    before, start = _peak(), time.process_time()
    with pytest.raises(UnreadablePicture, match="damaged" if name.startswith("png ") else "million|too many"):
        decode(data, enough=500)
    assert time.process_time() - start < 1
    assert _peak() - before < 50_000_000


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_hundred_million_pixels(form: str) -> None:
    data = stored(
        Image.new("L", (10_000, 10_000), 200), form, **({"compress_level": 1} if form == "PNG" else {})
    )
    found = decode(data, enough=600)
    assert found.shape[0] == found.shape[1]
    assert 600 <= found.shape[0] < 1200
    assert (found == 200).all()


def test_large_photographs_only_where_the_decoder_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_PIXELS", 20_000)
    picture = blocks(400, 400)
    assert decode(stored(picture, "JPEG"), enough=100).shape == (100, 100, 3)
    with pytest.raises(UnreadablePicture, match="400 × 400 pixels"):
        decode(stored(picture, "JPEG"))
    with pytest.raises(UnreadablePicture, match="400 × 400 pixels"):
        decode(stored(picture, "JPEG", progressive=True), enough=100)  # kept whole while it is decoded
    with pytest.raises(UnreadablePicture, match="400 × 400 pixels"):
        decode(stored(picture, "PNG"), enough=100)
    monkeypatch.setattr(pictures, "MAX_JPEG_PIXELS", 100_000)
    with pytest.raises(UnreadablePicture, match="400 × 400 pixels"):
        decode(stored(picture, "JPEG"), enough=100)


def test_several_threads_at_once() -> None:
    data = [stored(blocks(96, 80, seed), form) for seed in range(4) for form in ("PNG", "GIF", "BMP", "TIFF")]
    alone = [decode(one) for one in data]
    with ThreadPoolExecutor(4) as pool:
        for mine, theirs in zip(alone * 5, pool.map(decode, data * 5), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def _samples() -> list[bytes]:
    picture, exif = blocks(), Image.Exif()
    exif[274] = 6
    veiled = picture.copy()
    veiled.putalpha(picture.convert("L"))
    frames = {"save_all": True, "append_images": [blocks(seed=1)]}
    return [
        stored(picture, "JPEG", exif=exif),
        stored(picture, "JPEG", progressive=True),
        stored(veiled, "PNG", exif=exif),
        stored(picture.quantize(8), "PNG", transparency=3),
        stored(picture, "GIF", disposal=2, **frames),
        stored(picture, "WEBP"),
        stored(veiled, "WEBP", lossless=True, exif=exif),
        stored(picture, "TIFF"),
        stored(picture, "TIFF", compression="tiff_lzw"),
        stored(picture, "BMP"),
    ]


def test_damaged_files_decode_or_are_refused() -> None:
    rng = np.random.default_rng(7)
    reasons = []
    for sample in _samples():
        assert decode(sample).shape in ((24, 20, 3), (20, 24, 3))
        for case in range(24):
            data = bytearray(sample[: rng.integers(1, len(sample))] if case % 4 == 0 else sample)
            reach = min(len(data), 60 if case % 4 == 1 else len(data))
            for _ in range(rng.integers(1, 6)):
                data[rng.integers(reach)] = rng.integers(256)
            try:
                found = decode(bytes(data), enough=7 * (case % 2))
            except UnreadablePicture as error:
                reasons.append(str(error))
            else:
                assert found.ndim == 3
                assert found.shape[2] == 3
                assert found.dtype == np.uint8
    assert 60 < len(reasons) < 220
    assert all(re.match("is |has |does ", reason) for reason in reasons)


# HEIC and AVIF: by what is in a file, and only where something can decode it.


def heic(picture: Any, **options: Any) -> bytes:
    heif = pytest.importorskip("pillow_heif", reason="the extra 'heif' is not installed")
    stream = io.BytesIO()
    heif.from_pillow(picture).save(stream, **options)
    return stream.getvalue()


def avif(picture: Any, **options: Any) -> bytes:
    pytest.importorskip("PIL.AvifImagePlugin", reason="this Pillow does not read AVIF")
    return stored(picture, "AVIF", **options)


def halves(mode: str = "RGB") -> Any:
    """Red above blue, with a green edge on the left."""
    pixels = np.zeros((64, 128, 3), dtype=np.uint8)
    pixels[:32], pixels[32:] = (255, 0, 0), (0, 0, 255)
    pixels[:, :20] = (0, 255, 0)
    return Image.fromarray(pixels).convert(mode)


def turned() -> bytes:
    exif = Image.Exif()
    exif[274] = 6
    return exif.tobytes()


@pytest.mark.parametrize("make", [heic, avif])
def test_photos_of_phones(make: Any) -> None:
    found = decode(make(halves(), quality=95))
    assert np.abs(found.astype(int) - np.asarray(halves())).mean() < 3
    found = decode(make(halves(), quality=95, exif=turned()))
    assert found.shape == (128, 64, 3)
    assert [found[y, x].argmax() for y, x in ((5, 5), (-5, 5), (-5, -5))] == [1, 2, 0]
    clear = halves("RGBA")
    clear.putalpha(0)
    assert decode(make(clear)).min() > 250
    assert decode(make(halves("L"))).shape == (64, 128, 3)
    assert decode(make(halves()), enough=32).shape == (32, 64, 3)


@pytest.mark.parametrize("make", [heic, avif])
@pytest.mark.parametrize(
    ("width", "height", "reason"),
    [
        (12_000, 10_000, r"12,000 × 10,000 pixels, more than the limit of 80 million"),
        (12_000, 20, "more than 200 times as long as wide"),
        (1, 64, "expected at least 2 on each side"),
    ],
)
def test_the_size_of_a_photo_is_checked_first(make: Any, width: int, height: int, reason: str) -> None:
    data = bytearray(make(halves()))
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">II", width, height)
    with pytest.raises(UnreadablePicture, match=reason):
        decode(bytes(data))


def test_photos_without_a_decoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    photos = {"HEIF": heic(halves()), "AVIF": avif(halves())}
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setitem(sys.modules, "PIL.AvifImagePlugin", None)
    for form, advice in {"HEIF": r"pip install pillow-heif", "AVIF": "Pillow 11.3"}.items():
        path = tmp_path / "photo.jpg"
        path.write_bytes(photos[form])
        with pytest.raises(UnreadablePicture, match=f"is not supported; .*{advice}"):
            decode(photos[form])
        with pytest.raises(UnreadablePicture, match=f"is not supported; .*{advice}"):
            read_picture(str(path))
    path.write_bytes(stored(halves(), "PNG"))  # whatever it is called
    assert decode(read_picture(str(path.rename(tmp_path / "photo.heic")))).shape == (64, 128, 3)


@pytest.mark.parametrize(
    ("head", "advice"),
    [
        (b"\0\0\0\x18ftypisom\0\0\2\0isommp42", "extract frames as JPEG"),
        (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "extract frames as JPEG"),
        (b"\xff\x0a" + bytes(40), "convert to JPEG"),
        (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(40), "convert to JPEG"),
    ],
)
def test_videos_and_jpeg_xl_by_their_content(tmp_path: Any, head: bytes, advice: str) -> None:
    with pytest.raises(UnreadablePicture, match=f"is not supported; {advice}"):
        decode(head)
    with open(tmp_path / "a.jpg", "wb") as stream:
        stream.write(head)
        stream.truncate(MAX_BYTES + 100)
    with pytest.raises(UnreadablePicture, match=advice):
        read_picture(str(tmp_path / "a.jpg"))


def test_a_video_is_not_opened(tmp_path: Any) -> None:
    # There is no such file: the name is enough.
    with pytest.raises(UnreadablePicture, match="is not supported; extract frames as JPEG"):
        read_picture(str(tmp_path / "clip.MP4"))
    with pytest.raises(UnreadablePicture, match="is not supported; convert to JPEG"):
        read_picture("s3://bucket/raw.CR2")


def test_suffixes_are_lower_case_with_a_dot() -> None:
    assert not IMAGE_SUFFIXES & NOT_READ.keys()
    assert {".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp"} < IMAGE_SUFFIXES
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in IMAGE_SUFFIXES)
