"""`tokens` and `text`: sums of token vectors, the same to the bit everywhere."""

from __future__ import annotations

import base64
import hashlib
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divscore.encoders import tokens, wordpieces
from divscore.encoders.ngrams import NgramEncoder
from divscore.encoders.registry import DEFAULTS, EncoderSpec
from divscore.encoders.tokens import FOLDER, TABLE, TextEncoder, TokenEncoder, table
from divscore.encoders.wordpieces import WordPieces

TEXTS = [
    "Anna",
    "The mother of a naïve café owner",
    "😂😂 lol",
    "東京都、日本。",
    "مرحبا بالعالم، كيف الحال؟",
    "x\x00\x01y \x7f",
    "a\ud800b",
    "his mother told her father " * 3_000,
]
DIGEST = "0391ac032b4164cd81355f0be054fd70c1361ce304af5bc8e1dc089e4b90777d"
DIGEST_OF_TEXT = "591421bcf065f1d9576500517706e99fb6f4e0f53f5afc3cc336de61b20db489"
PACKED = np.load(FOLDER / "table.npy")
PIECES = (FOLDER / "pieces.txt").read_text(encoding="utf-8").splitlines()


def test_the_table_is_the_one_that_the_identity_names() -> None:
    assert hashlib.sha256((FOLDER / "table.npy").read_bytes()).hexdigest() == TABLE
    assert PACKED.shape == (len(PIECES), 257)
    assert PACKED.dtype == np.int8
    assert 0 <= PACKED[:, -1].min() <= PACKED[:, -1].max() == 7
    special = [at for at, piece in enumerate(PIECES) if piece.startswith("[") and len(piece) > 1]
    assert not PACKED[special, :-1].any()


@pytest.mark.parametrize("text", [text for text in TEXTS if len(text) < 100])
def test_vectors_are_those_of_the_definition(text: str) -> None:
    ids = WordPieces(PIECES).ids(text)
    total = [sum(int(PACKED[i, axis]) << int(PACKED[i, -1]) for i in ids) for axis in range(256)]
    norm = sum(number**2 for number in total) ** 0.5
    expected = np.array([number / norm for number in total], dtype=np.float32)
    np.testing.assert_array_equal(TokenEncoder().encode([text]).vectors[0], expected)
    # `text` has the square root of one half of each.
    both = TextEncoder(NgramEncoder()).encode([text]).vectors[0]
    letters = NgramEncoder().encode([text]).vectors[0]
    np.testing.assert_array_equal(both, np.concatenate([letters, expected]) * np.float32(0.5**0.5))


def test_vectors_never_change() -> None:
    found = EncoderSpec("tokens", "text").load().encode([*TEXTS, "", "\U0001f602"])
    assert found.reasons == {8: "is empty", 9: "has no word that the table knows"}
    assert hashlib.sha256(found.vectors.astype("<f4").tobytes()).hexdigest() == DIGEST
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, rtol=1e-6)
    # If this fails because of ngrams, the version of text must grow too.
    both = EncoderSpec("text", "text").load().encode(TEXTS).vectors
    assert hashlib.sha256(both.astype("<f4").tobytes()).hexdigest() == DIGEST_OF_TEXT


def test_without_a_known_piece_ngrams_are_left() -> None:
    found = TextEncoder(NgramEncoder()).encode(["\U0001f602", "", "word", "[CLS]"])
    assert found.reasons == {1: "is empty"}
    assert found.owner.tolist() == [0, 2, 3]
    letters = NgramEncoder().encode(["\U0001f602", "[CLS]"]).vectors
    np.testing.assert_array_equal(found.vectors[[0, 2], :512], letters)
    assert not found.vectors[[0, 2], 512:].any()
    half = (found.vectors[1, :512] ** 2).sum()
    assert half == pytest.approx(0.5, abs=1e-6)


def test_batches_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TEXTS * 3
    whole = TokenEncoder().encode(texts).vectors
    for batch, letters, remembered in ((1, 1, 1), (5, 40, 3), (512, 1 << 20, 1 << 16)):
        monkeypatch.setattr(tokens, "TEXTS", batch)
        monkeypatch.setattr(wordpieces, "LETTERS", letters)
        monkeypatch.setattr(wordpieces, "REMEMBERED", remembered)
        np.testing.assert_array_equal(TokenEncoder().encode(texts).vectors, whole)


@given(st.lists(st.text(st.characters(), max_size=12), max_size=8))
def test_any_text_has_a_vector_of_its_own_or_a_reason(texts: list[str]) -> None:
    for encoder in (TokenEncoder(), TextEncoder(NgramEncoder(32))):
        found = encoder.encode(texts)
        assert sorted([*found.owner, *found.reasons]) == list(range(len(texts)))
        for at, vector in zip(found.owner, found.vectors, strict=True):
            np.testing.assert_array_equal(encoder.encode([texts[at]]).vectors[0], vector)


def test_sums_of_long_texts_do_not_overflow() -> None:
    # The largest numbers of the table, so often that 32 bits, and squares in 64, are too few.
    largest = int(np.abs(PACKED[:, :-1].astype(int) << PACKED[:, -1:].astype(int)).max(axis=1).argmax())
    assert not PIECES[largest].startswith("##")
    one, many = TokenEncoder().encode([PIECES[largest], f"{PIECES[largest]} " * 300_000]).vectors
    np.testing.assert_allclose(many, one, atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of memory differs")
def test_large_and_odd_texts_take_bounded_time_and_memory() -> None:
    encoder = EncoderSpec(DEFAULTS["text"], "text").load()
    encoder.encode(["warm é"])
    odd = {
        "words": "some words of a long text, " * 380_000,
        "letters": "x" * 10_000_000,
        "ideographs": "日本" * 300_000,
        "signs": "[]" * 300_000,
        "unknown": " ".join(f"qz{number:x}jx" for number in range(100_000)),
        "controls": "\x01\x02a" * 300_000,
        "marks": "a\u0301\U0001d165" * 50_000,
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, text in odd.items():
        start = time.process_time()
        found = encoder.encode([text])
        assert found.vectors.shape == (1, 768), name
        assert np.isfinite(found.vectors).all()
        assert time.process_time() - start < 30, name
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # KB


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of memory differs")
def test_long_words_are_not_remembered() -> None:
    code = """
import resource
from divscore.encoders.tokens import TokenEncoder
encoder = TokenEncoder()
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
encoder.encode(["warm " + "x" * 1_000_000])
before = most()
for number in range(80):
    encoder.encode([f"{number}x" + "a" * 500_000, f"{number}y" + "a\\x01" * 250_000])
print(most() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30_000  # KB; the words have 80 MB


def test_meaning_is_near() -> None:
    texts = ["my mother", "her daughter", "the engine broke", "a motor failed"]
    near = TokenEncoder().encode(texts).vectors @ TokenEncoder().encode(texts).vectors.T
    assert near[0, 1] > near[0, 2]
    assert near[2, 3] > near[0, 3]


def test_letters_of_unknown_words_are_counted() -> None:
    assert table().unknown([]) == (0, 0)
    assert table().unknown(["a mother", "!? 12", "her"]) == (0, 10)
    assert table().unknown(["Мать and I"]) == (4, 8)


@pytest.mark.parametrize(
    "text",
    [
        "Привет, как дела? Сегодня хорошая погода",
        "วันนี้อากาศดีมากเราไปเดินเล่นกันเถอะ",
        "ราคา100บาทถูกมากเลยนะครับ",
        "今天天气很好，我们去公园散步吧。",
        "今日は天気がいいので散歩しましょう。",
        "오늘은 날씨가 좋아서 산책합시다",
        "مرحبا بالعالم، كيف الحال؟",
        "आज मौसम बहुत अच्छा है",
        "Σήμερα ο καιρός είναι πολύ καλός",
    ],
)
def test_letters_of_other_scripts_are_unknown(text: str) -> None:
    unknown, letters = table().unknown([text])
    assert unknown > 0.9 * letters > 9


def test_emoji_and_codes_are_not_unknown_words() -> None:
    digests = [hashlib.sha512(bytes([at])).digest() for at in range(100)]
    for texts in (
        [
            "lol \U0001f602\U0001f62d \U0001f525 \U0001f4af",
            "omg ❤️ ★★★ → ¯\\_(ツ)_/¯ no way, I love this song",
        ],
        [digest.hex() for digest in digests],
        [base64.b64encode(digest).decode() for digest in digests],
        ["https://t.co/AbCdEfGh12 look at this @xx_1337_xx #tbt"],
    ):
        unknown, letters = table().unknown(texts)
        assert unknown < 0.05 * letters, texts[0]


def test_load() -> None:
    encoder = EncoderSpec("text", "text", None, (("dimension", "64"),)).load()
    assert encoder.identity == f"text/1 dimension=64 table={TABLE[:16]}"
    assert (encoder.variant, encoder.dimension, encoder.resolution) == ("", 320, 0)
    assert EncoderSpec("tokens", "text").load().identity == f"tokens/1 table={TABLE[:16]}"
    assert DEFAULTS["text"] == "text"
