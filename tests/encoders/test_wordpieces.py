"""Word pieces are those of the library `tokenizers`, for every text."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divscore.encoders import wordpieces
from divscore.encoders.wordpieces import END, ESCAPE, FOLDER, SURROGATES, WORD, WordPieces, rules

PIECES = (FOLDER / "pieces.txt").read_text(encoding="utf-8").split("\n")[:-1]
MADE_FROM = (FOLDER / "unicode.txt").read_text(encoding="ascii").splitlines()[0].split()[-1]
PROJECT = Path(__file__).parents[2]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TWEETS = PROJECT.parent / "shared" / "data" / "tweets_dialect.parquet"
# Marks that stay and can change places, and what may stand between them.
MARKS = sorted(rules()._sorts)
AMONG = ["a", "\u0344", "\u0340", "\u0327", "\u0bcd", "\u200b", "\0", "\U0001d160", "中", " ", "\ufffd"]


@pytest.fixture(scope="module")
def theirs() -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    if tokenizers.__version__ != MADE_FROM:  # it may have another Unicode inside
        pytest.skip(f"unicode.txt was made from tokenizers {MADE_FROM}, not {tokenizers.__version__}")
    vocabulary = {piece: at for at, piece in enumerate(PIECES)}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


@pytest.fixture(scope="module")
def ours() -> WordPieces:
    return WordPieces(PIECES)


def test_the_version_behind_the_rules_is_stated() -> None:
    assert f'"tokenizers=={MADE_FROM}"' in (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"the library tokenizers {MADE_FROM} " in (FOLDER / "NOTICE").read_text(encoding="utf-8")


def ids(tokenizer: Any, text: str) -> list[int]:
    """What the library says; it cannot take lone surrogates, so U+FFFD, which it drops, stands for them."""
    clean = "".join("\ufffd" if ord(char) in SURROGATES else char for char in text)
    found: list[int] = tokenizer.encode(clean, add_special_tokens=False).ids
    return found


def words(tokenizer: Any, text: str) -> list[str]:
    """Words before they are cut."""
    clean = tokenizer.normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(clean)]


def test_the_rules_of_every_code_point(theirs: Any, ours: WordPieces) -> None:
    for start in range(0, sys.maxunicode + 1, 256):
        points = [point for point in range(start, start + 256) if point not in SURROGATES]
        text = "".join(f"a{chr(point)}b " for point in points)
        if WORD.findall(wordpieces._clean(text)) != words(theirs, text):
            # Control characters of ASCII are dropped later, word by word: pieces are compared instead.
            different = [hex(p) for p in points if ours.ids(f"a{chr(p)}b") != ids(theirs, f"a{chr(p)}b")]
            assert start == 0, different
            assert not different
    assert not rules().apply("".join(map(chr, SURROGATES)))


TEXT = st.text(
    st.one_of(st.characters(), st.sampled_from("aéİΣß '’#@[]中가\t\0\x01\u0301\u200d😂")), max_size=40
)
ODD = st.lists(
    st.one_of(
        TEXT,
        st.sampled_from([*SPECIALS, "[cls]", "[CLS", "[UNK]]", "unaffable", "x" * 100, "x" * 101, "é" * 101]),
        st.sampled_from(PIECES),
    ),
    max_size=8,
).map("".join)


@settings(max_examples=400)
@given(text=ODD)
def test_any_text(theirs: Any, ours: WordPieces, text: str) -> None:
    assert ours.ids(text) == ids(theirs, text)


@settings(max_examples=400)
@given(text=st.text(st.sampled_from(MARKS + AMONG * 5), max_size=12))
def test_marks_are_sorted_as_unicode_sorts_them(theirs: Any, text: str) -> None:
    # Most of these words are unknown, which would hide their order: words are compared, not pieces.
    assert WORD.findall(wordpieces._clean(text)) == words(theirs, text)


def test_tweets(theirs: Any, ours: WordPieces) -> None:
    if not TWEETS.exists():
        pytest.skip(f"the tweets are not at {TWEETS}")
    import pyarrow.parquet as parquet

    texts = parquet.read_table(TWEETS, columns=["text"])["text"].to_pylist()[::5]
    found = theirs.encode_batch(texts, add_special_tokens=False)
    assert [ours.ids(text) for text in texts] == [each.ids for each in found]


@given(texts=st.lists(ODD, max_size=12), letters=st.integers(1, 40))
def test_blocks_say_whose_pieces_they_have(ours: WordPieces, texts: list[str], letters: int) -> None:
    found: list[list[int]] = [[] for _ in range(len(texts) + 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wordpieces, "LETTERS", letters)
        patch.setattr(wordpieces, "TEXTS", 5)
        patch.setattr(wordpieces, "REMEMBERED", 6)
        for block in ours.blocks(texts):
            rest = block.pieces.tolist()
            for at, number in enumerate(block.counts.tolist(), block.first):
                found[at] += rest[:number]
                rest = rest[number:]
            assert not rest
    assert found == [*(ours.ids(text) for text in texts), []]


def test_what_is_remembered_is_bounded(ours: WordPieces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpieces, "REMEMBERED", 100)
    monkeypatch.setattr(wordpieces, "LETTERS", 50)
    for start in range(0, 2_000, 100):
        list(ours.blocks([" ".join(f"zq{number}" for number in range(start, start + 100))]))
        assert len(ours._words) < 120
    astral = "".join(map(chr, range(0x20000, 0x30000)))
    before = len(rules())
    rules().apply(astral)
    assert len(rules()) == before


def test_threads_share_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpieces, "REMEMBERED", 10)
    texts = [" ".join(f"w{(seed * 31 + at) % 97}" for at in range(40)) for seed in range(60)]
    expected = [WordPieces(PIECES).ids(text) for text in texts]
    shared, wrong = WordPieces(PIECES), []

    def cut() -> None:
        wrong.extend(text for text, pieces in zip(texts, expected, strict=True) if shared.ids(text) != pieces)

    threads = [threading.Thread(target=cut) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_marks_ends_and_special_pieces_is_never_in_a_text(ours: WordPieces) -> None:
    assert ours.ids(f"a{END}b") == ours.ids("ab")
    assert ours.ids(f"[C{END}LS]") == ours.ids("[ cls ]")
    assert ours.ids(f"{ESCAPE}CLS {ESCAPE}é") == ours.ids("cls e")
