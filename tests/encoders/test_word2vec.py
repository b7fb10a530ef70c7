from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from divscore.encoders import word2vec as module
from divscore.encoders.registry import EncoderSpec
from divscore.encoders.word2vec import STOPWORDS, Word2Vec, WordVectors, clean, words
from divscore.errors import FileError

WORDS = ["house", "cat", "Paris", "café", "don't", "2", "the"]
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)
Write = Callable[..., Path]


def binary(
    path: Path, names: Sequence[str | bytes] = WORDS, table: np.ndarray = TABLE, end: bytes = b""
) -> Path:
    raw = [name.encode() if isinstance(name, str) else name for name in names]
    body = [name + b" " + row.astype("<f4").tobytes() + end for name, row in zip(raw, table, strict=True)]
    path.write_bytes(b"%d %d\n" % table.shape + b"".join(body))
    return path


def google(path: Path) -> Path:
    return binary(path, end=b"\n")


def glove(path: Path, names: Sequence[str] = WORDS, table: np.ndarray = TABLE, header: str = "") -> Path:
    lines = [" ".join([name, *map(repr, row.tolist())]) for name, row in zip(names, table, strict=True)]
    path.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def text(path: Path) -> Path:
    return glove(path, header=f"{len(WORDS)} 5\n")


@pytest.mark.parametrize("write", [binary, google, text, glove])
def test_every_form_gives_the_same_vectors(write: Write, tmp_path: Path) -> None:
    vectors = WordVectors(write(tmp_path / "model"))
    assert (len(vectors), vectors.dimension) == TABLE.shape
    for word, row in zip(WORDS, TABLE, strict=True):
        found = vectors.get(word)
        assert found is not None
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, row)
    for absent in ("Cat", "hous", "house ", "", "\ud800", "dog"):
        assert vectors.get(absent) is None


@pytest.mark.parametrize("write", [binary, text, glove])
def test_every_form_may_be_packed(write: Write, tmp_path: Path) -> None:
    plain = write(tmp_path / "model")
    packed = tmp_path / "model.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    found, same = WordVectors(packed), WordVectors(plain)
    assert found.digest == same.digest == hashlib.sha256(plain.read_bytes()).hexdigest()
    np.testing.assert_array_equal(found.get("café"), TABLE[3])
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(FileError, match=r"model\.gz cannot be read"):
        WordVectors(packed)


def test_of_equal_words_the_first_counts(tmp_path: Path) -> None:
    names = ["cat", "dog", "cat", "cat"]
    for write in (binary, glove):
        vectors = WordVectors(write(tmp_path / "m", names, TABLE[:4]))
        np.testing.assert_array_equal(vectors.get("cat"), TABLE[0])
        np.testing.assert_array_equal(vectors.get("dog"), TABLE[1])


def test_odd_words_do_no_harm(tmp_path: Path) -> None:
    spaced = WordVectors(glove(tmp_path / "g", [". . .", "cat", "at name@domain.com"], TABLE[:3]))
    assert (len(spaced), spaced.dimension) == (3, 5)
    np.testing.assert_array_equal(spaced.get("cat"), TABLE[1])
    broken = WordVectors(binary(tmp_path / "b", [b"\xff\xfe", "cat"], TABLE[:2]))
    np.testing.assert_array_equal(broken.get("cat"), TABLE[1])
    assert broken.get("\ufffd\ufffd") is None


def test_text_with_other_line_ends(tmp_path: Path) -> None:
    content = glove(tmp_path / "g").read_bytes()
    for end in (b"\r\n", b" \n"):
        (tmp_path / "g").write_bytes(content.replace(b"\n", end))
        np.testing.assert_array_equal(WordVectors(tmp_path / "g").get("house"), TABLE[0])
    (tmp_path / "g").write_bytes(content.rstrip(b"\n"))
    np.testing.assert_array_equal(WordVectors(tmp_path / "g").get("the"), TABLE[-1])


@pytest.mark.parametrize("write", [binary, google, text])
def test_every_truncation_is_an_error(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path / "m")
    content = path.read_bytes()
    # A written number that lost its last digits is still a number, so text is cut before its last one.
    for end in range(0, len(content) - (30 if write is text else 2), 5):
        path.write_bytes(content[:end])
        with pytest.raises(FileError):
            WordVectors(path)


def test_damage_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m"
    cases = {
        b"": "is empty",
        b"\x80\x04\x95gensim": r"gensim's \.model or \.kv.*save_word2vec_format",
        b"just some text\n": "not a file of word vectors",
        b"\x00\x01\x02" * 50: "not a file of word vectors",
        b"a,b,c\n1,2,3\n": "not a file of word vectors",
        b"0 5\n": "announces 0 words",
        b"5 0\n": "announces 5 words",
        b"2 99999999999999999999\na 1\n": "announces 2 words",
        b"2 3\na 1 2 3\nb 1 2\n": "word 2 has 2 numbers, expected 3",
        b"2 3\na 1 2\nb 1 2\n": "word 1 has 2 numbers, expected 3",
        b"a 1 2 3\nb 1 2 3\n" * 30 + b"c 1 2\n": "word 61 has 2 numbers, expected 3",
        b"3 2\na 1 2\nb 1 2\n": "announces 3 words and has 2",
        b"1 2\na 1 2\nb 1 2\n": "announces 1 words and has 2",
        b"1 1\na " + struct.pack("<f", 1) + b"b " + struct.pack("<f", 1): "announces 1 words and has more",
        b"2 1\na " + struct.pack("<f", 1) + b"b\x00\x00": "announces 2 words and has 1 complete",
    }
    for content, message in cases.items():
        path.write_bytes(content)
        with pytest.raises(FileError, match=message):
            WordVectors(path)
    with pytest.raises(FileError, match="No such file"):
        WordVectors(tmp_path / "none")
    with pytest.raises(FileError, match="Is a directory"):
        WordVectors(tmp_path)


def test_numbers_are_checked_when_they_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text("ok 1 2\nbad 1 x\nnan nan 1\nbig 1e300 1\n")
    vectors = WordVectors(path)
    np.testing.assert_array_equal(vectors.get("ok"), [1, 2])
    for word in ("bad", "nan", "big"):
        with pytest.raises(FileError, match=f"'{word}' is not followed by 2 finite numbers"):
            vectors.get(word)


@pytest.fixture
def encoder(tmp_path: Path) -> Callable[..., Word2Vec]:
    path = str(binary(tmp_path / "model.bin"))

    def make(**options: str) -> Word2Vec:
        found = EncoderSpec("word2vec", "text", path, tuple(options.items())).load()
        assert isinstance(found, Word2Vec)
        return found

    return make


def test_a_text_is_the_mean_of_its_known_words(encoder: Callable[..., Word2Vec]) -> None:
    found = encoder().encode(
        ["The cat, the HOUSE and a unicorn!", "", " \n", "unicorns", "cat cat paris", "PARIS", "the"]
    )
    assert found.vectors.dtype == np.float32
    assert found.owner.tolist() == [0, 4]
    np.testing.assert_allclose(found.vectors[0], (TABLE[0] + TABLE[1]) / 2, rtol=1e-6)
    np.testing.assert_allclose(
        found.vectors[1], TABLE[1], rtol=1e-6
    )  # as written or in small letters: no Paris
    unknown = "has no word that the model knows"
    assert found.reasons == {1: "is empty", 2: "is empty", 3: unknown, 5: unknown, 6: unknown}
    assert found.detected.tolist() == [1, 0, 0, 0, 1, 0, 0]


def test_order_and_batches_do_not_matter(encoder: Callable[..., Word2Vec]) -> None:
    texts = ["cat house", "Paris café 2", "don’t cat", "house house cat"]
    whole = encoder(stopwords="off").encode(texts).vectors
    single = [encoder(stopwords="off").encode([t]).vectors[0] for t in reversed(texts)]
    np.testing.assert_array_equal(whole, single[::-1])


def test_stop_words(encoder: Callable[..., Word2Vec]) -> None:
    kept = encoder(stopwords="off").encode(["The cat", "Don't"]).vectors
    np.testing.assert_allclose(kept, [(TABLE[6] + TABLE[1]) / 2, TABLE[4]], rtol=1e-6)
    assert encoder().encode(["Don’t"]).reasons
    assert {"the", "don't", "is", "them"} <= STOPWORDS
    assert all(word == word.lower() for word in STOPWORDS)
    assert not {"cat", "woman", "man", "good"} & STOPWORDS


def test_a_small_memory_changes_nothing(
    encoder: Callable[..., Word2Vec], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["cat house Paris", "café 2 cat", "cat"]
    before = encoder().encode(texts).vectors
    monkeypatch.setattr(module, "REMEMBERED", 2)
    np.testing.assert_array_equal(encoder().encode(texts).vectors, before)


def test_identity(encoder: Callable[..., Word2Vec], tmp_path: Path) -> None:
    digest = hashlib.sha256((tmp_path / "model.bin").read_bytes()).hexdigest()[:16]
    assert encoder().identity == f"word2vec/1 stopwords=on clean=off weights={digest}"
    assert encoder(clean="tweets").identity == f"word2vec/1 stopwords=on clean=tweets weights={digest}"
    assert (encoder().variant, encoder().resolution, encoder().dimension) == ("", 0, 5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("don't 'quoted' rock'n'roll dogs'", ["don't", "quoted", "rock'n'roll", "dogs"]),
        ("snake_case e-mail 3.5 a1", ["snake", "case", "e", "mail", "3", "5", "a1"]),
        ("cafe\u0301 हिन्दी 日本語", ["café", "हिन्दी", "日本語"]),
        ("\u0301 !! 😂 \ud800", []),
    ],
)
def test_words(given: str, expected: list[str]) -> None:
    assert words(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("RT @a_b: hello", ["hello"]),
        ('!!! RT @x hi RT @y: "yes"', ["hi", "RT", "yes"]),
        ("ART RTs rt it", ["ART", "RTs", "rt", "it"]),
        ("see https://t.co/Ab?x=1 or WWW.x.org/a now", ["see", "or", "now"]),
        ("#BlackLivesMatter &amp; #2nd", ["BlackLivesMatter", "2nd"]),
        ("&#128514; &lt;3 i&#39;m 24 4ever 7 1st 2's", ["i'm", "4ever", "1st", "2's"]),
        ("a@b.com @me", ["a", "b", "com"]),
    ],
)
def test_tweets_are_cleaned(given: str, expected: list[str]) -> None:
    assert words(clean(given)) == expected


def test_cleaning_is_asked_for(encoder: Callable[..., Word2Vec]) -> None:
    given = ["@cat RT 2 house"]
    np.testing.assert_allclose(encoder(clean="tweets").encode(given).vectors, TABLE[:1], rtol=1e-6)
    np.testing.assert_allclose(encoder().encode(given).vectors[0], TABLE[[0, 1, 5]].mean(0), rtol=1e-5)
