"""A graph that onnxruntime runs: its inputs and outputs, and runs of a whole batch."""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError, InputError, MissingExtraError, check_cancelled
from divscore.files import sha256

__all__ = [
    "POOLS",
    "PREFERRED",
    "Choice",
    "HubModel",
    "ModelFiles",
    "Output",
    "Port",
    "Session",
    "find_graph",
    "folder_of",
    "locate",
    "measured",
    "not_finite",
    "outside_weights",
]


TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}


@dataclass(frozen=True)
class Port:
    """An input or output: numpy's name of its type, and its shape, where names stand for free dimensions."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    @property
    def rank(self) -> int:
        """How many dimensions; 0 where the graph does not say."""
        return len(self.shape)

    def fixed(self, axis: int) -> int | None:
        """The size along an axis, None where it is free."""
        size = self.shape[axis] if axis < self.rank else None
        return size if isinstance(size, int) and size > 0 else None

    def __str__(self) -> str:
        return f"{self.name} {self.type}[{', '.join(str(size or '?') for size in self.shape)}]"


class Session:
    """An ONNX graph from a file, or from bytes with its weights given apart; may be run from several threads."""

    def __init__(
        self, source: Path | bytes, threads: int = 0, weights: Mapping[str, NDArray[np.float32]] | None = None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        given = {name: onnxruntime.OrtValue.ortvalue_from_numpy(w) for name, w in (weights or {}).items()}
        if given:
            # Packing them ahead takes one more copy while loading, and made VGG-16 no faster.
            options.add_session_config_entry("session.disable_prepacking", "1")
            options.add_external_initializers(list(given), list(given.values()))
        model = source if isinstance(source, bytes) else str(source)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise FileError(_refusal(source, error)) from error
        self.inputs = tuple(_port(found) for found in self._session.get_inputs())
        self.outputs = tuple(_port(found) for found in self._session.get_outputs())
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)

    @property
    def batch(self) -> int | None:
        """How many items a run must have, None if any number will do."""
        return next((size for port in self.inputs if (size := port.fixed(0))), None)

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """Named outputs for a batch that is not longer than `batch`; a short one is filled up with its last item."""
        check_cancelled()
        rows = len(next(iter(feeds.values())))
        missing = (self.batch or rows) - rows
        if missing:
            feeds = {name: np.concatenate([x, x[-1:].repeat(missing, axis=0)]) for name, x in feeds.items()}
        results: list[NDArray[Any]] = self._session.run(list(outputs), dict(feeds))
        return [result[:rows] for result in results]


def _port(found: Any) -> Port:
    return Port(found.name, TYPES.get(found.type, found.type), tuple(found.shape or ()))


def _refusal(source: Path | bytes, error: Exception) -> str:
    name = "the graph" if isinstance(source, bytes) else str(source)
    says = str(error).splitlines()[0]
    return f"{name} cannot be loaded as an ONNX model; expected a file as exporters write it ({says})"


# Which output of a graph holds the vectors, and how several vectors an item become one.

PREFERRED = (
    "image_embeds",
    "text_embeds",
    "sentence_embedding",
    "embedding",
    "embeddings",
    "pooler_output",
)
POOLS = ("cls", "mean")


@dataclass(frozen=True)
class Output:
    """An output by name, and its pooling: cls (the first vector), mean, or none where there is one vector an item.

    >>> print(Output("last_hidden_state", 384, "mean"))
    output=last_hidden_state pool=mean
    """

    name: str
    dimension: int
    pool: str = "none"

    def __str__(self) -> str:
        return f"output={self.name} pool={self.pool}"

    def vectors(self, result: NDArray[Any], mask: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """One vector an item; the mean is over tokens that the mask (n, tokens) marks with 1."""
        result = result.astype(np.float32, copy=False)
        if self.pool == "none":
            return result.reshape(len(result), -1)
        if self.pool == "cls":
            return result[:, 0]
        if mask is None:
            return np.asarray(result.mean(axis=1))
        if mask.shape != result.shape[:2]:
            raise InputError(
                f"the output {self.name} has {result.shape[1]} vectors for {mask.shape[1]} tokens, so their mean "
                "over tokens is not defined; choose another with output=NAME, or pool=cls"
            )
        weight = mask.astype(np.float32)
        summed = np.einsum("ntd,nt->nd", result, weight, dtype=np.float32)
        return np.asarray(summed / np.maximum(weight.sum(axis=1), 1)[:, None])


@dataclass(frozen=True)
class Choice:
    """What decides which output is taken: the user's `name` and `pool`, or else the first of `preferred` names.

    `usual` pools an output with a vector a token if the user does not say how.
    """

    usual: str
    preferred: Sequence[str] = PREFERRED
    name: str | None = None
    pool: str | None = None

    def among(self, outputs: Sequence[Port], model: str) -> Output:
        """The output to take."""
        if self.pool is not None and self.pool not in POOLS:
            raise InputError(f"pool={self.pool} is unknown; expected {' or '.join(POOLS)}")
        port = self._named(outputs, model) if self.name else self._likely(list(filter(_usable, outputs)))
        if port is None:
            raise InputError(
                f"it is not clear which output of {model} holds the vectors; pass output=NAME, one of "
                f"{_listed(outputs)}"
            )
        if port.rank == 3:
            return Output(port.name, port.fixed(2) or 0, self.pool or self.usual)
        if self.pool is not None:
            raise InputError(f"{model}: the output {port} has one vector an item; leave out pool={self.pool}")
        return Output(port.name, port.fixed(1) or 0)

    def _named(self, outputs: Sequence[Port], model: str) -> Port:
        for port in outputs:
            if port.name == self.name and _usable(port):
                return port
            if port.name == self.name:
                raise InputError(
                    f"{model}: the output {port} holds no vectors; expected numbers of the shape (items, d), "
                    f"(items, tokens, d) or (items, d, 1, 1). There are {_listed(outputs)}"
                )
        raise InputError(f"{model} has no output '{self.name}'; pass output=NAME, one of {_listed(outputs)}")

    def _likely(self, usable: Sequence[Port]) -> Port | None:
        named = {port.name: port for port in usable}
        for name in self.preferred:
            if name in named:
                return named[name]
        ranks = {rank: [port for port in usable if port.rank == rank] for rank in (2, 3, 4)}
        if len(ranks[2]) == 1:
            return ranks[2][0]
        return next(iter(ranks[3] or (not ranks[2] and ranks[4]) or []), None)


def measured(session: Session, blank: Mapping[str, NDArray[Any]]) -> list[Port]:
    """The outputs with all sizes filled in, if need be by running a blank item."""
    if all(_settled(port) for port in session.outputs):
        return list(session.outputs)
    results = session.run(blank, [port.name for port in session.outputs])
    return [
        replace(port, shape=("items", *np.shape(result)[1:]))
        for port, result in zip(session.outputs, results, strict=True)
    ]


def not_finite(vectors: NDArray[np.float32]) -> dict[int, str]:
    """Reasons for rows that overflowed, which happens with models in half precision."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    return {int(row): "made the model give numbers that are not finite" for row in bad}


def _settled(port: Port) -> bool:
    free = {2: (1,), 3: (2,), 4: (1, 2, 3)}.get(port.rank)
    return free is not None and all(port.fixed(axis) for axis in free)


def _usable(port: Port) -> bool:
    shaped = port.rank in (2, 3) or (port.rank == 4 and port.fixed(2) == 1 and port.fixed(3) == 1)
    return shaped and port.type in ("float32", "float16", "float64")


def _listed(outputs: Sequence[Port]) -> str:
    return "; ".join(map(str, outputs))


# The files of an ONNX model: the graph, weights that it keeps in other files, and the configuration beside it.

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
            return sha256(self.graph, *beside)[:16]
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


# Models by their name on the Hugging Face hub, such as `timm/vgg16.tv_in1k` or `owner/name:file`.
#
# The hub is asked only if the user names such a model. What was fetched stays in huggingface_hub's own cache and is
# used from there without asking again, so that a model does not change between two runs.

NAME = re.compile(
    r"(?P<repo>[a-z0-9][\w.-]*/[a-z0-9][\w.-]*)(:(?P<file>\w[\w./-]*))?", re.ASCII | re.IGNORECASE
)
SUFFIXES = {".safetensors", ".h5", ".hdf5", ".keras", ".onnx", ".bin", ".pt", ".pth", ".npz", ".json"}


class _UnreachableError(Exception):
    """The file is not in the cache, and the hub did not give it."""


@dataclass(frozen=True)
class HubModel:
    """A repository on the hub, a file in it if one was named, and the commit that is meant (None: the newest)."""

    repo: str
    file: str | None = None
    commit: str | None = None

    def fetch(self, names: Iterable[str]) -> Path:
        """The file that was named with the model, or else the first of `names` that the repository has."""
        wanted = [self.file] if self.file else list(names)
        failure: _UnreachableError | None = None
        absent = []  # as far as the cache knows, which may be out of date
        for name in wanted:
            cached = self._cached(name)
            if cached is False:
                absent.append(name)
                continue
            try:
                if path := cached or (None if failure else self._download(name)):
                    return path
            except _UnreachableError as error:
                failure = error
        try:
            for name in absent if failure is None else ():
                if path := self._download(name):
                    return path
        except _UnreachableError as error:
            failure = error
        raise self._refusal(wanted, failure) from failure

    def add(self, names: Iterable[str]) -> None:
        """Fetch what the repository has of these files; what can do without them goes on if the hub is away."""
        for name in names:
            if self._cached(name) is None:
                try:
                    self._download(name)
                except _UnreachableError:
                    return

    def at(self, fetched: Path) -> HubModel:
        """The same repository at the commit of a fetched file, so that all files are of one state."""
        return replace(self, file=None, commit=folder_of(fetched).name)

    def _refusal(self, wanted: list[str], failure: _UnreachableError | None) -> InputError:
        if failure is None:
            return InputError(
                f"the hub's {self.repo} has no {' and no '.join(wanted)}; name the file to take: "
                f"--model {self.repo}:FILE (its files are at {_page(self.repo)}/tree/main)"
            )
        return InputError(
            f"--model {self.repo} is no file here, and {wanted[0]} could not be fetched from the model hub "
            f"({failure}); without a connection, download it from {_page(self.repo)} on another machine and give "
            "--model PATH"
        )

    def _cached(self, name: str) -> Path | Literal[False] | None:
        """A file that was fetched before, False if the hub said before that there is none, None if unknown."""
        hub, _ = _client()
        try:
            found = hub.try_to_load_from_cache(self.repo, name, revision=self.commit)
        except ValueError as error:
            raise InputError(
                f"--model {self.repo} is no file here, nor can it be a name on the model hub ({_first_line(error)})"
            ) from error
        if isinstance(found, str):
            return Path(found)
        return None if found is None else False

    def _download(self, name: str) -> Path | None:
        hub, errors = _client()
        try:
            return Path(hub.hf_hub_download(self.repo, name, revision=self.commit))
        except errors.GatedRepoError as error:
            raise InputError(
                f"the hub gives {self.repo} only to those who were granted access; ask for it at "
                f"{_page(self.repo)} and log in (hf auth login), or download {name} there and give --model PATH"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise InputError(
                f"--model {self.repo} is no file here, and the hub has no public model of that name; check the "
                "spelling, give --model PATH, or log in if the model is private (hf auth login)"
            ) from error
        except errors.LocalEntryNotFoundError as error:
            raise _UnreachableError(_first_line(error.__cause__ or error)) from error
        except errors.EntryNotFoundError:
            return None
        except Exception as error:  # whatever the network, the disk or a proxy may raise
            raise _UnreachableError(_first_line(error)) from error


def locate(model: str) -> Path | HubModel:
    """A file or folder that exists, or else a name on the hub."""
    path = Path(os.path.expanduser(model))
    if path.exists():
        return path
    form = NAME.fullmatch(model)
    if form and (form["file"] or not (path.parent.is_dir() or path.suffix.lower() in SUFFIXES)):
        return HubModel(form["repo"], form["file"])
    raise FileError(
        f"--model {model}: there is no such file or folder; expected a path, or a name on the model hub such as "
        "owner/name or owner/name:FILE"
    )


def folder_of(fetched: Path) -> Path:
    """The local folder that mirrors the repository of a fetched file; it is named after the commit."""
    return next(folder for folder in fetched.parents if folder.parent.name == "snapshots")


def _page(repo: str) -> str:
    return f"https://huggingface.co/{repo}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _client() -> tuple[Any, Any]:
    try:
        import huggingface_hub
        from huggingface_hub import utils
    except ImportError as error:
        raise MissingExtraError(
            "models by their name on the hub need huggingface_hub; install it with: pip install 'divscore[onnx]'"
        ) from error
    return huggingface_hub, utils
