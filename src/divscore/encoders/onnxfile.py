"""The files of an ONNX model: the graph, weights that it keeps in other files, and the configuration beside it."""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from divscore.digest import digest_of, short
from divscore.errors import FileError, MissingExtraError

__all__ = ["ModelFiles", "find_graph", "outside_weights"]

PLACES = ("model.onnx", "onnx/model.onnx")


@dataclass(frozen=True)
class ModelFiles:
    """A graph's path and the folders in which files that belong to it may lie."""

    graph: Path
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, graph: Path) -> ModelFiles:
        """Belonging files lie beside the graph or one folder up, as where exporters write into `onnx/`."""
        return cls(graph, (graph.parent, graph.absolute().parent.parent))

    def find(self, name: str) -> Path | None:
        """A belonging file, None if there is none."""
        return next((folder / name for folder in self.folders if (folder / name).is_file()), None)

    def require(self, name: str, purpose: str) -> Path:
        """A belonging file that must be there."""
        if found := self.find(name):
            return found
        raise FileError(
            f"{self.graph} needs {name} beside it or in the folder above, {purpose}; there is none"
        )

    def settings(self, name: str) -> dict[str, Any]:
        """What a belonging JSON file says, nothing if there is none."""
        path = self.find(name)
        if path is None:
            return {}
        try:
            says = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise FileError(f"{path} is not JSON ({error}); repair it or fetch it again") from error
        if not isinstance(says, dict):
            raise FileError(f"{path} has a {type(says).__name__} where an object of settings is expected")
        return says

    @cached_property
    def weights(self) -> str:
        """Short fingerprint of the graph and all its weights."""
        beside = (self.graph.parent / name for name in outside_weights(self.graph))
        try:
            return short(digest_of([self.graph, *beside]))
        except OSError as error:
            raise FileError(
                f"{self.graph} keeps weights in another file that cannot be read ({error})"
            ) from error


def find_graph(path: Path) -> Path:
    """The .onnx file itself, or the one in a folder."""
    if path.is_file():
        return path
    for place in PLACES:
        if (path / place).is_file():
            return path / place
    raise FileError(
        f"the folder {path} has neither {' nor '.join(PLACES)}; give --model the .onnx file itself"
    )


def outside_weights(graph: Path) -> list[str]:
    """Names, relative to the graph's folder, of files that hold weights of it (models beyond 2 GB)."""
    if graph.stat().st_size == 0 or not _mentions(graph, b"location"):
        return []
    try:
        import onnx
        from onnx.external_data_helper import _get_all_tensors, uses_external_data
    except ImportError as error:
        raise MissingExtraError(
            f"{graph} keeps weights in other files, which needs onnx; install it with: pip install 'divscore[onnx]'"
        ) from error
    try:
        model = onnx.load(graph, load_external_data=False)
    except Exception:  # no ONNX file at all: onnxruntime says so
        return []
    entries = (entry for t in _get_all_tensors(model) if uses_external_data(t) for entry in t.external_data)
    names = sorted({entry.value for entry in entries if entry.key == "location"})
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise FileError(f"{graph} wants weights from {name}; expected a file in the graph's own folder")
    return names


def _mentions(path: Path, word: bytes) -> bool:
    # Parsing costs as much memory as the weights; a graph without the word has no weights elsewhere.
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(word) >= 0
