"""Fixtures: pictures of two colours and a model, which the tests of jobs share."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.image_model(tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flat folder of 60 red and 140 blue pictures."""
    import tiny

    return tiny.folder(tmp_path_factory.mktemp("photos"), {"red": 60, "blue": 140}, 1, sub_folders=False)


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.folder(tmp_path_factory.mktemp("labelled"), {"red": 40, "blue": 40}, 2)


@pytest.fixture
def hostile_pictures(tmp_path: Path) -> Path:
    """Thirty-one good pictures among six bad ones, and odd names."""
    import tiny

    root = tiny.folder(tmp_path / "hostile", {"red": 10, "blue": 20}, 4)
    good = (root / "red" / "0000.png").read_bytes()
    (root / "red" / "cut.png").write_bytes(good[: len(good) // 2])
    (root / "red" / "text.jpg").write_bytes(b"this is no picture\n" * 10)
    (root / "red" / "nothing.png").write_bytes(b"")
    (root / "red" / "bomb.png").write_bytes(bomb())
    (root / "blue" / "two\nlines 😀.png").write_bytes(good)
    (root / "blue" / "folder.png").mkdir()
    (root / "blue" / "dead.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(root / "blue" / "pipe.png")
    (root / "blue" / "loop").symlink_to(root, target_is_directory=True)
    return root


def bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """A small file that says it has so many pixels."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) + part(b"IDAT", data) + part(b"IEND", b"")
