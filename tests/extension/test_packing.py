from __future__ import annotations

import importlib.util
import json
import shutil
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from browsing import EXTENSION


@pytest.fixture(scope="module")
def packing() -> ModuleType:
    path = EXTENSION.parent / "tools" / "extension" / "pack.py"
    spec = importlib.util.spec_from_file_location("pack", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_zip_has_the_files_of_the_extension_and_is_always_the_same(
    packing: ModuleType, tmp_path: Path
) -> None:
    assert packing.problems(EXTENSION) == []
    packing.pack(EXTENSION, tmp_path / "a.zip")
    shutil.copytree(EXTENSION, tmp_path / "copy")
    packing.pack(tmp_path / "copy", tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("manifest.json"))
    assert names == {
        path.relative_to(EXTENSION).as_posix() for path in EXTENSION.rglob("*") if path.is_file()
    }
    assert "<all_urls>" not in json.dumps(manifest["permissions"] + manifest["host_permissions"])
    assert manifest["commands"]["audit"]["suggested_key"]["default"] == "Alt+D"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("ui.js", "eval('1')", "code from strings"),
        ("ui.js", "document.body.innerHTML = x", "HTML from strings"),
        ("worker.js", "fetch('https://collect.example/x')", "the address https://collect.example/x"),
        ("more.js", "1", "nothing uses this file"),
        ("notes.txt", "x", "not packed"),
        ("panel.html", '<script src="gone.js"></script>', "there is no gone.js"),
        ("popup.html", '<p data-text="unheard"></p>', "no text 'unheard'"),
    ],
)
def test_what_does_not_belong_into_the_zip_is_refused(
    packing: ModuleType, tmp_path: Path, file: str, text: str, message: str
) -> None:
    shutil.copytree(EXTENSION, tmp_path / "copy")
    with open(tmp_path / "copy" / file, "a", encoding="utf-8") as stream:
        stream.write(f"\n{text}\n")
    assert any(message in each for each in packing.problems(tmp_path / "copy"))


def test_more_permissions_are_refused(packing: ModuleType, tmp_path: Path) -> None:
    shutil.copytree(EXTENSION, tmp_path / "copy")
    file = tmp_path / "copy" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"host_permissions": ["<all_urls>"]}))
    assert any("permissions" in each for each in packing.problems(tmp_path / "copy"))
