from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import TEXTS, close, image_model, load, rows_of, text_model, tokenizer, unit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divscore.encoders import sentence
from divscore.errors import FileError, InputError


def test_a_texts_vector_is_its_own(tmp_path: Path) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx"), "text")
    wanted = np.array([rows_of(text).mean(axis=0) for text in TEXTS])
    close(encoder.encode(TEXTS), wanted)
    close(encoder.encode(TEXTS[::-1]), wanted[::-1])
    for text, row in zip(TEXTS, wanted, strict=True):
        close(encoder.encode([text]), row[None])
    many = TEXTS * 15  # several batches
    close(encoder.encode(many), np.tile(wanted, (15, 1)))
    assert (encoder.dimension, encoder.resolution) == (5, 0)
    assert encoder.identity.startswith(
        "onnx/1 kind=text length=512 pad=0 output=last_hidden_state pool=mean scaled=no tokenizer="
    )


@pytest.mark.parametrize(
    ("shape", "masked", "kind"),
    [
        ((1, "t"), True, "int64"),
        ((4, 12), True, "int64"),
        (("n", 12), True, "int32"),
        (("n", "t"), False, "int64"),
        ((1, "t"), False, "int32"),
    ],
)
def test_fixed_shapes_and_graphs_without_a_mask(
    shape: tuple[Any, Any], masked: bool, kind: str, tmp_path: Path
) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx", shape, masked, kind), "text")
    wanted = np.array([rows_of(text).mean(axis=0) for text in TEXTS])
    close(encoder.encode(TEXTS), wanted)
    close(encoder.encode(TEXTS[2:]), wanted[2:])
    assert f"length={shape[1] if shape[1] == 12 else 512}" in encoder.identity


def test_empty_texts_get_a_reason(tmp_path: Path) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx"), "text")
    encoded = encoder.encode(["", "anna", "  \n", "ben", "\u200b"])
    assert encoded.owner.tolist()[:2] == [1, 3]
    assert encoded.reasons[0] == encoded.reasons[2] == "is empty"
    close(encoder.encode(["anna", ""]), rows_of("anna").mean(axis=0)[None])
    nothing = encoder.encode(["", " "])
    assert nothing.vectors.shape == (0, 5)
    assert encoder.encode([]).vectors.shape == (0, 5)


def test_texts_that_lose_all_their_words_get_a_reason(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Replace

    made = Tokenizer.from_file(str(tokenizer(tmp_path) / "tokenizer.json"))
    made.normalizer = Replace("!", "")
    made.save(str(tmp_path / "tokenizer.json"))
    encoded = load(text_model(tmp_path / "m.onnx"), "text").encode(["!!!", "anna!"])
    assert encoded.owner.tolist() == [1]
    assert encoded.reasons == {0: "has no word that the tokenizer knows"}


def test_length_comes_from_options_or_configuration(tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / "m.onnx")
    text = TEXTS[3]
    close(load(path, "text", length="4").encode([text]), rows_of(text, 4).mean(axis=0)[None])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 5}))
    close(load(path, "text").encode([text]), rows_of(text, 5).mean(axis=0)[None])
    assert "length=7" in load(path, "text", length="7").identity
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": int(1e30)}))
    assert "length=512" in load(path, "text").identity
    with pytest.raises(InputError, match="length=2 leaves no room for words; expected more than 2"):
        load(path, "text", length="2")
    with pytest.raises(InputError, match="length=none: expected a whole number"):
        load(path, "text", length="none")
    fixed = text_model(tmp_path / "fixed.onnx", ("n", 12))
    with pytest.raises(InputError, match=r"length=13: .* takes 12 tokens at most"):
        load(fixed, "text", length="13")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with BERT's kind of tokenizer: words of several pieces, and special tokens in the text itself."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("pieces")
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "[", "]"]
    numbers = {piece: i for i, piece in enumerate(known)}
    made = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=60))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(known[:4])
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(folder / "tokenizer.json"))
    text_model(folder / "m.onnx")
    return folder


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["", " ", "  ", "\n" * 90]),
            st.sampled_from(["a", "ab", "ba" * 20, "b" * 300, "[SEP]", "[", "c"]),
            st.integers(1, 40),
        ),
        max_size=9,
    ),
    length=st.integers(3, 20),
)
def test_of_a_long_text_the_first_tokens_count(
    parts: list[tuple[str, str, int]], length: int, pieces: Path
) -> None:
    from tokenizers import Tokenizer

    text = "".join(f"{space}{word}" * times for space, word, times in parts)
    whole = Tokenizer.from_file(str(pieces / "tokenizer.json"))
    whole.enable_truncation(length)
    encoder = load(pieces / "m.onnx", "text", length=str(length))
    assert [row.ids for row in encoder._tokens([text, "a"])] == [whole.encode(t).ids for t in (text, "a")]


def test_no_more_of_a_huge_text_is_read_than_needed(tmp_path: Path) -> None:
    encoder = load(text_model(tokenizer(tmp_path) / "m.onnx"), "text", length="16")
    read: list[int] = []

    class Counting:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def encode_batch(self, texts: list[str]) -> Any:
            read.extend(map(len, texts))
            return self.inner.encode_batch(texts)

        def encode(self, text: str) -> Any:
            read.append(len(text))
            return self.inner.encode(text)

    encoder._tokenizer = Counting(encoder._tokenizer)
    text = "anna reads a long book " * 500_000  # 11 MB
    wide = "x" * 1000 + " " + text  # needs a second look
    wanted = np.array([rows_of(t[:2000], 16).mean(axis=0) for t in (text, wide)])
    close(encoder.encode([text, wide]), wanted)
    assert sum(read) < 5_000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(lengths=st.lists(st.integers(1, 3000), max_size=200))
def test_batches_hold_everything_once_and_are_not_large(lengths: list[int], bare: Any) -> None:
    batches = list(bare._batches(dict(enumerate(lengths))))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= sentence.MOST_TOKENS
        assert len(batch) <= sentence.BATCH
    ends = [(min(lengths[i] for i in batch), max(lengths[i] for i in batch)) for batch in batches]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(text_model(tokenizer(tmp_path_factory.mktemp("bare")) / "m.onnx"), "text")


def test_pooling_of_texts(tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / "m.onnx")
    close(load(path, "text", pool="cls").encode(TEXTS), np.array([rows_of(text)[0] for text in TEXTS]))
    pooled = text_model(tmp_path / "p.onnx", pooled="pooler_output", shape=(1, "t"))
    encoder = load(pooled, "text")
    assert "output=pooler_output pool=none" in encoder.identity
    close(encoder.encode(TEXTS), np.array([rows_of(text).max(axis=0) for text in TEXTS]))


def test_the_tokenizer_must_be_there(tmp_path: Path) -> None:
    path = text_model(tmp_path / "deep" / "onnx" / "m.onnx")
    with pytest.raises(FileError, match=r"needs tokenizer\.json next to it or one folder up"):
        load(path, "text")
    (tmp_path / "deep" / "tokenizer.json").write_text("{}")
    with pytest.raises(FileError, match=r"tokenizer\.json is not a tokenizer"):
        load(path, "text")
    tokenizer(tmp_path / "deep")
    first = load(path, "text").identity
    tokenizer(tmp_path / "deep", frame=False)
    assert load(path, "text").identity != first


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_sentences_are_means_of_length_one(place: str, tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / place, pooled="pooler_output", shape=("n", "t"))
    wanted = unit(np.array([rows_of(text).mean(axis=0) for text in TEXTS]))
    for model in (tmp_path, path):
        encoder = load(model, "text", "sentence")
        close(encoder.encode(TEXTS), wanted)
        close(encoder.encode([TEXTS[3], "", TEXTS[1]]), wanted[[3, 1]])
    assert encoder.identity.startswith(
        "sentence/1 kind=text length=512 pad=0 output=last_hidden_state pool=mean scaled=unit tokenizer="
    )
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 9}))
    short = unit(np.array([rows_of(text, 4).mean(axis=0) for text in TEXTS]))
    close(load(tmp_path, "text", "sentence").encode(TEXTS), short)


def test_a_models_own_pooling_is_followed(tmp_path: Path) -> None:
    path = text_model(tokenizer(tmp_path) / "model.onnx")
    (tmp_path / "1_Pooling").mkdir()
    says = tmp_path / "1_Pooling" / "config.json"
    says.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    cls = unit(np.array([rows_of(text)[0] for text in TEXTS]))
    mean = unit(np.array([rows_of(text).mean(axis=0) for text in TEXTS]))
    close(load(path, "text", "sentence").encode(TEXTS), cls)
    close(load(path, "text", "sentence", pool="mean").encode(TEXTS), mean)
    says.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(InputError, match="asks for max_tokens"):
        load(path, "text", "sentence")


def test_graphs_that_take_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected input_ids .* export the text half alone"):
        load(image_model(tmp_path / "m.onnx"), "text")
