"""Encoding: items through workers, in order; what cannot be encoded is skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from conftest import PPB

from divscore.encoders.registry import ENCODERS
from divscore.errors import ControlError, DivscoreError, FileError, InputError
from divscore.jobs import encode
from divscore.jobs.embed import embed
from divscore.jobs.encode import Chunk, Encoding
from divscore.jobs.encodedsource import embedded_messages, face_messages
from divscore.jobs.engine import DeadlyTaskError, Engine
from divscore.jobs.pool import read_control
from divscore.sources import open_table
from divscore.sources.items import ItemBatch


def texts(count: int) -> list[ItemBatch]:
    return [ItemBatch([f"text {at}" for at in range(count)], [str(at) for at in range(count)])]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_only_a_bounded_number_of_items_is_in_flight(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = encode._prepare

    def prepare(batch: ItemBatch, *arguments: Any, **asked: Any) -> Any:
        started.append(len(batch))
        return real(batch, *arguments, **asked)

    monkeypatch.setattr(encode, "_prepare", prepare)
    taken: list[str] = []
    with Encoding("ngrams", workers=workers) as encoding:
        for batch, results in encoding.run(texts(20_000), "text"):
            assert len(batch) == len(results)
            assert sum(started) - len(taken) <= encode.CHUNK["text"] * (2 * workers + 2)
            taken += batch.ids
    assert taken == [str(at) for at in range(20_000)]


class Deadly(Engine):
    """Workers die on chunks with certain texts."""

    def __init__(self, *deadly: str) -> None:
        super().__init__(2)
        self.deadly = deadly

    def _wait(self, work: Any, task: object, future: Any) -> Any:
        if isinstance(task, Chunk) and not set(self.deadly).isdisjoint(task.contents):
            raise DeadlyTaskError(f"{task}: several workers died on it")
        return super()._wait(work, task, future)


def test_an_item_that_crashes_its_worker_is_skipped_alone() -> None:
    def encoded(*deadly: str) -> list[encode.ItemVectors]:
        with Encoding("ngrams") as encoding, Deadly(*deadly) as engine:
            encoding.engines.cluster = engine
            return [each for _, results in encoding.run(texts(1000), "text") for each in results]

    results = encoded("text 3", "text 4", "text 700")
    skipped = {at: (each.kind, each.reason) for at, each in enumerate(results) if each.kind}
    assert skipped == dict.fromkeys((3, 4, 700), ("unreadable", "crashed its worker"))
    assert all(each.vectors.shape == (1, 512) for at, each in enumerate(results) if at not in skipped)
    with pytest.raises(DivscoreError, match=r"the workers died on 3 items in a row, the last of them 5"):
        encoded("text 3", "text 4", "text 5")


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="unknown encoder 'magic'; choose one of faces, "):
        Encoding("magic")


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_pictures_in_memory_reach_the_workers(tmp_path: Path, model: Path, cached: bool) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    rng = np.random.default_rng(0)
    for number in range(12):
        memory.pipe(f"/shelf/{number:02}.png", tiny.png(tiny.picture(rng, "red")))
    try:
        with Encoding("onnx", model=model, workers=2, cache=tmp_path if cached else None) as some:
            blocks = list(tiny.encoded("memory://shelf", some))
        assert sum(len(block.vectors) for block in blocks) == 12
        with Encoding("faces", workers=2, cache=tmp_path if cached else None) as faces:
            source = tiny.encoded("memory://shelf", faces)
            assert not list(source)
        assert source.skipped_by(None, 0)[0]["shelf"] == {
            "unreadable": 0,
            "empty": 12,
        }  # read, and no face in it
    finally:
        memory.rm("/shelf", recursive=True)


@pytest.mark.parametrize("cached", [False, True])
def test_faces_that_are_too_small_are_counted(tmp_path: Path, cached: bool) -> None:
    portraits = sorted((PPB.parent / "ppb2017_images").glob("*.jpg"))
    if not portraits or ENCODERS["faces"].missing:
        pytest.skip("needs the PPB-2017 portraits and the extra faces")
    (tmp_path / "photos").mkdir()
    portrait = tiny.Image.open(portraits[0]).convert("RGB")
    person, bystander = (
        portrait.resize((width, width * portrait.height // portrait.width)) for width in (200, 32)
    )
    for number, people in enumerate(
        ((person, bystander), (person, person, bystander, bystander), (bystander,))
    ):
        scene = tiny.Image.new("RGB", (800, 300), "grey")
        for at, one in enumerate(people):
            scene.paste(one, (200 * at, 0))
        (tmp_path / "photos" / f"{number}.png").write_bytes(tiny.png(scene))
    for fresh in (3, 0):  # the second time, the cache knows them
        # Named, or the one for images that nobody named.
        with Encoding(
            "faces" if cached else None,
            options={"faces": "all"},
            cache=tmp_path / "cache" if cached else None,
        ) as some:
            source = tiny.encoded(tmp_path / "photos", some)
            assert sum(len(block.vectors) for block in source) == 1 + 2
            assert source.tally["small"] == 1 + 2 + 1
            first, *_, several, last = source.messages(verbose=False)
            assert "1 showed no face, or only small ones" in first
            assert last.endswith(
                "photos: 4 faces were not counted: they are less than 20 pixels wide or high, or less than 1/96 of "
                "the image's longer side"
            )
            done = embed(source.items, tmp_path / "photos.arrow", some, overwrite=True)
            assert (done.vectors, done.several, done.small) == (3, 1, 4)
            assert some.stored == (fresh if cached else 0)
            # An audit of the vectors repeats both.
            vectors = open_table(tmp_path / "photos.arrow")
            said = [text.replace("photos.arrow: ", "photos: ") for text in embedded_messages(vectors)]
            assert said == [several, last]
    assert face_messages(1, 1, every=False)[0] == "1 image shows more than one face; the largest is counted"
    assert face_messages(0, 1, every=True)[0].startswith("1 face was not counted: ")


def test_large_pictures_are_encoded_before_the_next_is_decoded(
    photos: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Encoding("onnx", model=model).spec("image")
    contents = [str(path) for path in sorted(photos.iterdir())[:8]]
    at_once = encode.encode_chunk(spec, Chunk("some", contents))
    sizes: list[int] = []
    encoder = type(encode.load_encoder(spec))
    whole = encoder.encode

    def counted(self: Any, items: Any) -> Any:
        sizes.append(len(items))
        return whole(self, items)

    monkeypatch.setattr(encoder, "encode", counted)
    picture = encode.decode(Path(contents[0]).read_bytes(), enough=encode.load_encoder(spec).resolution)
    monkeypatch.setattr(encode, "HELD", 3 * picture.nbytes - 1)
    few = encode.encode_chunk(spec, Chunk("some", contents))
    assert sizes == [3, 3, 2]
    for one, other in zip(few, at_once, strict=True):
        np.testing.assert_allclose(one.vectors, other.vectors, rtol=1e-5)


def test_an_encoder_that_fails_on_one_item_spares_the_others(
    photos: Path, model: Path, monkeypatch: Any
) -> None:
    with Encoding("onnx", model=model) as some:
        kind = type(some.encoder("image"))
        encode = kind.encode
        marked = np.asarray(tiny.Image.open(sorted(photos.iterdir())[3]))

        def failing(self: Any, items: Any) -> Any:
            if any(np.array_equal(item, marked) for item in items):
                raise MemoryError("too much")
            return encode(self, items)

        monkeypatch.setattr(kind, "encode", failing)
        source = tiny.encoded(photos, some)
        assert sum(len(block.vectors) for block in source) == 199
    assert "made the encoder fail (MemoryError: too much)" in source.problems[0]


def test_a_folder_that_cannot_be_listed_is_no_small_matter(
    labelled: Path, model: Path, monkeypatch: Any
) -> None:
    listing = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("red"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with Encoding("onnx", model=model) as some:
        with pytest.raises(
            ControlError, match="red cannot be listed: Permission denied; a group would be missing"
        ):
            read_control(labelled, some)
        with pytest.raises(FileError, match="red cannot be listed"):
            list(tiny.encoded(labelled, some, strict=True))
