from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divscore import ControlSet
from divscore.audit.audit import audit
from divscore.encoders import ngrams
from divscore.encoders.ngrams import NgramEncoder
from divscore.encoders.registry import EncoderSpec
from divscore.errors import InputError

TWEETS = Path(__file__).parents[3] / "shared" / "data" / "tweets_dialect.parquet"
TEXTS = [
    "Anna",
    "The quick brown fox, it's told, jumps over 13 lazy dogs!",
    "naïve café, Ça va? STRASSE straße",
    "cafe\u0301 vs caf\u00e9",
    "😂😂 lol \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "東京都、日本。ﾊﾝｶｸ",
    "مرحبا بالعالم، كيف الحال؟",
    "a\u0300\u0301\u0302b \u0308",
    "x",
    "",
    "\x00\x01\x02\x03\x1b[0m\x7f\u200b",
    "lorem ipsum dolor " * 9_000,
    " \t\n",
    "I don’t know; i don't know",
    "ﬁne Ⅷ ½ ｆｕｌｌ",
]
DIGEST = "be9f86f21bc6549a326fd10cb808472ad0279831e30c4f946a16daae1e452c10"


def mixed(value: int) -> int:
    value ^= value >> 16
    value = value * 0x85EBCA6B % 2**32
    value ^= value >> 13
    value = value * 0xC2B2AE35 % 2**32
    return value ^ value >> 16


def by_hand(text: str, dimension: int) -> list[float]:
    """The same vector, one feature after the other."""
    points = [2, *map(ord, text), 3]
    hashes = []
    for size in range(1, 5):
        for start in range(len(points) - size + 1):
            rolling = 0
            for point in points[start : start + size]:
                rolling = (rolling * 0x01000193 + point) % 2**32
            hashes.append(rolling ^ size * 0x9E3779B1 % 2**32)
    for word in re.findall("[a-z0-9é日本']+", text):
        letters = [mixed((ord(c) * 0x9E3779B1 + at * 0x85EBCA77) % 2**32) for at, c in enumerate(word)]
        hashes.append(sum(letters) % 2**32 ^ 0x51ED270B)
    counts = [0] * (2 * dimension)
    for found in map(mixed, hashes):
        for bits in (found % 2**16, found >> 16):
            counts[bits * 2 * dimension >> 16] += 1
    table = [plus - minus for plus, minus in zip(counts[:dimension], counts[dimension:], strict=True)]
    norm = math.sqrt(sum(count * count for count in table))
    return [count / norm for count in table]


@pytest.mark.parametrize("dimension", [16, 300, 512])
@pytest.mark.parametrize("text", ["a", "it's 2 late, café", "日本, 日本! 日", "lol " * 300])
def test_vectors_are_those_of_the_definition(text: str, dimension: int) -> None:
    found = NgramEncoder(dimension).encode([text]).vectors
    expected = np.array(by_hand(text.strip(), dimension), dtype=np.float32)
    np.testing.assert_array_equal(found[0], expected)


def test_vectors_never_change() -> None:
    found = NgramEncoder().encode(TEXTS)
    assert found.vectors.dtype == np.float32
    assert found.reasons == {9: "is empty", 12: "is empty"}
    assert hashlib.sha256(found.vectors.astype("<f4").tobytes()).hexdigest() == DIGEST
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, rtol=1e-6)


def test_batches_and_order_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for text in TEXTS if text.strip()]
    whole = NgramEncoder().encode(texts).vectors
    turned = NgramEncoder().encode(texts[::-1]).vectors[::-1]
    single = np.concatenate([NgramEncoder().encode([text]).vectors for text in texts])
    np.testing.assert_array_equal(whole, turned)
    np.testing.assert_array_equal(whole, single)
    for batch, letters in ((1, 10**9), (3, 10**9), (10**9, 1), (10**9, 40), (10**9, 10**9)):
        monkeypatch.setattr(ngrams, "TEXTS", batch)
        monkeypatch.setattr(ngrams, "LETTERS", letters)
        np.testing.assert_array_equal(NgramEncoder().encode(texts).vectors, whole)


@given(st.lists(st.text(st.characters(), max_size=12), max_size=8))
def test_any_text_has_a_vector_of_its_own(texts: list[str]) -> None:
    encoder = NgramEncoder(32)
    found = encoder.encode(texts)
    assert sorted([*found.owner, *found.reasons]) == list(range(len(texts)))
    for at, vector in zip(found.owner, found.vectors, strict=True):
        assert texts[at].strip()
        np.testing.assert_array_equal(encoder.encode([texts[at]]).vectors[0], vector)


def test_lone_surrogates_are_letters_like_others() -> None:
    found = NgramEncoder().encode(["a\ud800b", "\udfff", "ab"]).vectors
    assert found.shape == (3, 512)
    assert not np.array_equal(found[0], found[2])


def test_equal_but_for_case_and_form() -> None:
    pairs = [
        ("Anna", "  aNNA\n"),
        ("café", "CAFE\u0301"),
        ("ＦＵＬＬ", "full"),
        ("don’t", "Don't"),
        ("straße", "STRASSE"),
    ]
    for one, other in pairs:
        found = NgramEncoder().encode([one, other]).vectors
        np.testing.assert_array_equal(found[0], found[1])


def test_similar_texts_are_near() -> None:
    texts = [
        "catherine",
        "katherine",
        "bob",
        "see you all at the market",
        "at the market: see you, all",
        "no",
    ]
    near = NgramEncoder().encode(texts).vectors @ NgramEncoder().encode(texts).vectors.T
    assert near[0, 1] > 0.6 > 0.3 > abs(near[0, 2])
    assert near[3, 4] > 0.6
    assert near[3, 5] < 0.5


def test_whole_words_count() -> None:
    # The same letter groups inside a word, and as a word of its own with one more on either side.
    spread = NgramEncoder(4096)
    one, same, other = spread.encode(["x abcde y", "y abcde x", "y abcdx abcde"]).vectors
    assert one @ same > one @ other


def test_nothing_to_encode() -> None:
    found = NgramEncoder().encode([])
    assert found.vectors.shape == (0, 512)
    assert len(found.owner) == len(found.detected) == len(found.reasons) == 0
    assert NgramEncoder().encode([""]).vectors.shape == (0, 512)


def test_load() -> None:
    encoder = EncoderSpec("ngrams", "text").load()
    assert (encoder.identity, encoder.variant, encoder.dimension, encoder.resolution) == (
        "ngrams/1 dimension=512",
        "",
        512,
        0,
    )
    assert (
        EncoderSpec("ngrams", "text", None, (("dimension", "64"),)).load().identity == "ngrams/1 dimension=64"
    )
    for wrong in ("8", "5000", "-1", "many", "1.5", ""):
        with pytest.raises(InputError, match="dimension"):
            EncoderSpec("ngrams", "text", None, (("dimension", wrong),)).load()


@dataclass(frozen=True)
class Tweets:
    """The 1,800 tweets that most likely are AAE, and as many for WHE."""

    texts: list[str]
    dialect: np.ndarray


@pytest.fixture(scope="module")
def tweets() -> Tweets:
    if not TWEETS.exists():
        pytest.skip(f"the tweets are not at {TWEETS}")
    import pyarrow.parquet as parquet

    table = parquet.read_table(TWEETS, columns=["text", "aa", "white"])
    rows = [np.argsort(-table[name].to_numpy(), kind="stable")[:1_800] for name in ("aa", "white")]
    assert not set(rows[0]) & set(rows[1])
    texts = table["text"].to_pylist()
    return Tweets([texts[i] for half in rows for i in half], np.repeat(["AAE", "WHE"], 1_800))


@pytest.mark.slow
def test_dialects_of_tweets(tweets: Tweets) -> None:
    vectors = NgramEncoder().encode(tweets.texts).vectors
    errors = []
    for split in range(6):
        rng = np.random.default_rng([20, split])
        labelled, rest = np.split(rng.permutation(len(vectors)), [100])
        control = ControlSet(vectors[labelled], tweets.dialect[labelled], attribute="dialect")
        first = tweets.dialect[rest] == "AAE"
        for share in range(11):
            chosen = [
                rng.choice(rest[first], 50 * share, False),
                rng.choice(rest[~first], 500 - 50 * share, False),
            ]
            result = audit(vectors[np.concatenate(chosen)], control, seed=split)
            errors.append(abs(result.disparity - (share / 5 - 1)))
    assert np.mean(errors) <= 0.05
