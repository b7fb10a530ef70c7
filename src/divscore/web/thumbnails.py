"""Thumbnails: pictures of items at the size of a screen, made by a few threads and kept in a bounded cache."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from starlette.exceptions import HTTPException

from divscore.errors import FileError
from divscore.sources.items import fingerprint

MOST_BYTES = 48 << 20
QUALITY = 85


class Thumbnails:
    """Resized pictures by content and size; the least recently used are dropped first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: OrderedDict[tuple[bytes, int], bytes] = OrderedDict()
        self._bytes, self._most = 0, most_bytes
        self._lock = threading.Lock()
        # Few threads of their own: a large picture takes many megabytes while it is decoded, and labels must not wait.
        self._pool = ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 1)), "divscore-pictures")

    async def get(self, content: str | bytes, size: int) -> bytes:
        """The picture as JPEG, at most `size` pixels wide and high."""
        # The content of a file may change; its version is part of the key.
        key = fingerprint(content if isinstance(content, bytes) else _version(content)), size
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._pool, resized, content, size)
        except FileError as error:
            raise HTTPException(404, f"the picture {error}") from error
        with self._lock:
            if key not in self._kept:
                self._kept[key] = data
                self._bytes += len(data)
            while self._bytes > self._most:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return data


def _version(path: str) -> str:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return path
    return f"{path}\0{about.st_size}\0{about.st_mtime_ns}"


def resized(content: str | bytes, size: int) -> bytes:
    """Decode a picture within the limits of `sources.pictures`, and encode it as JPEG; smaller ones keep their size."""
    from PIL import Image

    from divscore.sources.pictures import decode, read_picture

    picture = Image.fromarray(decode(read_picture(content), enough=size))
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()
