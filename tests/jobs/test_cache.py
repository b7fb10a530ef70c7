"""The cache: vectors of items encoded before, by content and encoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from divscore.errors import FileError
from divscore.jobs.cache import Cache, ItemVectors
from divscore.jobs.encode import Encoding, fingerprint


def test_cache_by_content_and_encoder(tmp_path: Path, photos: Path, model: Path, monkeypatch: Any) -> None:
    encoded: list[int] = []
    folder = tmp_path / "cache"

    def first_time() -> Iterator[Encoding]:
        with Encoding("onnx", model=model, cache=folder) as some:
            kind = type(some.encoder("image"))
            monkeypatch.setattr(kind, "encode", _counted(kind.encode, encoded))
            yield some
            monkeypatch.undo()

    for expected in (200, 0):
        encoded.clear()
        for some in first_time():
            blocks = list(tiny.encoded(photos, some))
        assert sum(encoded) == expected
    moved = tmp_path / "moved"
    moved.mkdir()
    for number, path in enumerate(sorted(photos.iterdir())):
        (moved / f"{number}.png").write_bytes(path.read_bytes())
    encoded.clear()
    for some in first_time():
        again = list(tiny.encoded(moved, some))
    assert sum(encoded) == 0
    assert {tuple(v) for b in again for v in b.vectors} == {tuple(v) for b in blocks for v in b.vectors}
    assert len(list(folder.glob("onnx-*.sqlite"))) == 1
    with Encoding("onnx", model=model, cache=folder, options={"normalise": "none"}) as other:
        list(tiny.encoded(photos, other))
    assert len(list(folder.glob("onnx-*.sqlite"))) == 2


def _counted(encode: Any, counts: list[int]) -> Any:
    def counting(self: Any, items: Any) -> Any:
        counts.append(len(items))
        return encode(self, items)

    return counting


def test_cache_keeps_several_none_and_reasons(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "er", "thing/1 a=b", 3)
    rng = np.random.default_rng(0)
    entries = {
        b"1" * 16: ItemVectors(rng.normal(size=(1, 3)).astype(np.float32)),
        b"2" * 16: ItemVectors(rng.normal(size=(4, 3)).astype(np.float32), detected=4),
        b"3" * 16: ItemVectors(np.empty((0, 3), np.float32), 0, "empty", "shows no face"),
        b"5" * 16: ItemVectors(rng.normal(size=(1, 3)).astype(np.float32), small=7),
    }
    cache.add(entries)
    cache.close()
    known = Cache(tmp_path / "deep" / "er", "thing/1 a=b", 3).lookup([*entries, b"4" * 16, b""])
    assert set(known) == set(entries)
    for key, entry in entries.items():
        assert known[key].vectors.tobytes() == entry.vectors.tobytes()
        assert known[key][1:] == entry[1:]


def test_vectors_of_an_earlier_version_of_the_encoder_are_not_used(tmp_path: Path) -> None:
    with Encoding("faces", cache=tmp_path) as encoding:
        for name in ("faces-0123456789abcdef.sqlite", "faces-1-0123456789abcdef.sqlite", "faces-mine.sqlite"):
            (tmp_path / name).write_bytes(b"anything")
        (tmp_path / "onnx-0123456789abcdef.sqlite").write_bytes(b"anything")
        assert encoding.troubles() == []
        encoding._caches[encoding.spec("image")] = cache = Cache(tmp_path, "faces/2 weights=a largest", 128)
        assert cache.path.name.startswith("faces-2-")
        cache.close()
        assert encoding.troubles() == [
            f"the cache {tmp_path / name} is from an earlier version of its encoder and is not used; you can delete it"
            for name in ("faces-0123456789abcdef.sqlite", "faces-1-0123456789abcdef.sqlite")
        ]
        assert encoding.troubles() == []  # reported once
    assert Cache(tmp_path, "faces/2 weights=b largest", 128).outdated == cache.outdated
    assert Cache(tmp_path, "onnx/1 a=b", 3).outdated == []


def test_a_cache_that_cannot_be_used_says_so(tmp_path: Path, photos: Path, model: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with (
        Encoding("onnx", model=model, cache=tmp_path / "file") as some,
        pytest.raises(FileError, match="--no-cache"),
    ):
        list(tiny.encoded(photos, some))
    with Encoding("onnx", model=model, cache=tmp_path) as some:
        list(tiny.encoded(photos, some))
    next(tmp_path.glob("onnx-*.sqlite")).write_bytes(b"no database" * 1000)
    for rest in (*tmp_path.glob("*-wal"), *tmp_path.glob("*-shm")):
        rest.unlink()
    with (
        Encoding("onnx", model=model, cache=tmp_path) as some,
        pytest.raises(FileError, match="cannot be used"),
    ):
        list(tiny.encoded(photos, some))


def test_a_cache_that_breaks_does_not_stop_the_work(tmp_path: Path, photos: Path, model: Path) -> None:
    with Encoding("onnx", model=model, cache=tmp_path) as some:
        whole = np.concatenate([block.vectors for block in tiny.encoded(photos, some)])
        file = next(tmp_path.glob("onnx-*.sqlite"))
        data = file.read_bytes()
    file.write_bytes(data[:4096] + bytes(len(data) - 4096))
    for rest in (*tmp_path.glob("*-wal"), *tmp_path.glob("*-shm")):
        rest.unlink()
    with Encoding("onnx", model=model, cache=tmp_path) as some:
        again = np.concatenate([block.vectors for block in tiny.encoded(photos, some)])
        assert "is no longer used" in some.troubles()[0]
    np.testing.assert_allclose(again, whole, atol=1e-6)


def test_what_could_not_be_read_is_not_remembered(tmp_path: Path, model: Path) -> None:
    bad = tmp_path / "photos" / "a.png"
    bad.parent.mkdir()
    bad.write_bytes(b"no picture")
    with Encoding("onnx", model=model, cache=tmp_path / "cache") as some:
        list(tiny.encoded(bad.parent, some))
        cache = Cache(tmp_path / "cache", "", 8)
        cache.path = next((tmp_path / "cache").glob("*.sqlite"))
        assert not cache.lookup([fingerprint(b"no picture")])
        cache.close()
