"""ONNX models: a graph that onnxruntime runs, its outputs, its files, and models by name on the Hugging Face hub."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError, InputError, check_cancelled
from divscore.files import read_json, sha256

T = TypeVar("T")
Ports = tuple[str, Sequence[int | str]]  # numpy's name of the type, and the shape
SMALL = 1024  # bytes of an array that is part of the graph


@dataclass(frozen=True)
class Port:
    """An input or output: numpy's name of its type, and its shape; names stand for free dimensions."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions; 0 if the graph does not say."""
        return len(self.shape)

    def fixed(self, axis: int) -> int | None:
        """The size along an axis, None if it is free."""
        size = self.shape[axis] if axis < self.rank else None
        return size if isinstance(size, int) and size > 0 else None

    def __str__(self) -> str:
        return f"{self.name} {self.type}[{', '.join(str(size or '?') for size in self.shape)}]"


class Session:
    """An ONNX graph from a file, or from bytes with separate weights; several threads may run it."""

    def __init__(
        self, source: Path | bytes, threads: int = 0, weights: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if weights:
            # Packing them ahead takes one more copy while loading, and made VGG-16 and BERT in float32 no faster.
            options.add_session_config_entry("session.disable_prepacking", "1")
            values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            options.add_external_initializers(list(weights), values)
        self.name = "the graph" if isinstance(source, bytes) else str(source)
        model = source if isinstance(source, bytes) else str(source)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise FileError(f"{self.name} is not a valid ONNX model ({_first_line(error)})") from error
        self.inputs = tuple(_port(node) for node in self._session.get_inputs())
        self.outputs = tuple(_port(node) for node in self._session.get_outputs())
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        # The number of items that a run must have, None if it is free.
        self.batch = next((size for port in self.inputs if (size := port.fixed(0))), None)

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """Named outputs for at most `batch` items; a short batch is padded with its last item."""
        check_cancelled()
        rows = len(next(iter(feeds.values())))
        padding = (self.batch or rows) - rows
        if padding:
            feeds = {name: np.concatenate([x, x[-1:].repeat(padding, axis=0)]) for name, x in feeds.items()}
        results: list[NDArray[Any]] = self._session.run(list(outputs), dict(feeds))
        return [result[:rows] for result in results]


def _port(node: Any) -> Port:
    kind = node.type.removeprefix("tensor(").removesuffix(")")
    return Port(node.name, {"float": "float32", "double": "float64"}.get(kind, kind), tuple(node.shape or ()))


class Graph:
    """A graph that is built node by node; its weights stay outside, and `Session` takes them from memory.

    Written into the graph (`inside`) they would be copied several times, and could not have more than 2 GB; a small
    network is faster with them.
    """

    def __init__(self, name: str, *, inside: bool = False) -> None:
        self.name = name
        self._inside = inside
        self.weights: dict[str, NDArray[Any]] = {}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add(self, kind: str, *inputs: str | NDArray[Any], **attributes: Any) -> str:
        """Add a node, and return the name of its output; arrays are weights or, if they are small, constants."""
        return self._add(kind, inputs, 1, attributes)[0]

    def split(self, x: str, parts: int, axis: int) -> list[str]:
        """Cut a tensor into equal parts."""
        return self._add("Split", [x], parts, {"axis": axis})

    def _add(
        self, kind: str, inputs: Iterable[str | NDArray[Any]], outputs: int, attributes: Mapping[str, Any]
    ) -> list[str]:
        from onnx import helper

        names = [value if isinstance(value, str) else self._hold(value) for value in inputs]
        results = [f"{kind}{len(self._nodes)}.{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, names, results, **attributes))
        return results

    def _hold(self, array: NDArray[Any]) -> str:
        """Keep an array under a name; small ones in the graph, where onnxruntime sees what it can simplify."""
        from onnx import TensorProto, helper, numpy_helper

        name = f"constant{len(self._constants)}"
        if self._inside or array.nbytes < SMALL:
            self._constants.append(numpy_helper.from_array(array, name))
            return name
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "memory", "offset": "0", "length": str(array.nbytes)}.items():
            tensor.external_data.add(key=key, value=value)
        self._constants.append(tensor)
        self.weights[name] = array
        return name

    def model(self, inputs: Mapping[str, Ports], outputs: Mapping[str, Ports]) -> bytes:
        """The graph as a file's bytes; types and shapes by name. The output is that of the last node."""
        from onnx import helper

        def values(ports: Mapping[str, Ports]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
                for name, (kind, shape) in ports.items()
            ]

        self._nodes[-1].output[0] = next(iter(outputs))
        graph = helper.make_graph(self._nodes, self.name, values(inputs), values(outputs), self._constants)
        # Versions that onnxruntime 1.18 knows, whatever the newest onnx would write.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(model.SerializeToString())


# Outputs: which one has the vectors, and how several vectors per item become one.

PREFERRED = ("image_embeds", "text_embeds", "sentence_embedding", "embedding", "embeddings", "pooler_output")


@dataclass(frozen=True)
class Output:
    """An output by name, and its pooling: cls (the first vector), mean, or none if it has one vector per item.

    >>> print(Output("last_hidden_state", 384, "mean"))
    output=last_hidden_state pool=mean
    """

    name: str
    dimension: int
    pool: str = "none"

    def __str__(self) -> str:
        return f"output={self.name} pool={self.pool}"

    def vectors(self, result: NDArray[Any], mask: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """One vector per item; the mean is over tokens that the mask (items, tokens) marks with 1."""
        result = result.astype(np.float32, copy=False)
        if self.pool == "none":
            return result.reshape(len(result), -1)
        if self.pool == "cls":
            return result[:, 0]
        if mask is None:
            return np.asarray(result.mean(axis=1))
        if mask.shape != result.shape[:2]:
            raise InputError(
                f"the output {self.name} has {result.shape[1]} vectors for {mask.shape[1]} tokens, so it has no mean "
                "over tokens; choose another with output=NAME, or pool=cls"
            )
        weight = mask.astype(np.float32)
        summed = np.einsum("ntd,nt->nd", result, weight, dtype=np.float32)
        return np.asarray(summed / np.maximum(weight.sum(axis=1), 1)[:, None])


def choose_output(
    session: Session,
    blank: Mapping[str, NDArray[Any]],
    options: Mapping[str, str],
    pool: str,
    preferred: Sequence[str] = PREFERRED,
) -> Output:
    """The user's output=NAME, or the first of the `preferred` names, or the only one that can be meant.

    `blank` is an input to run if the graph does not state the sizes of its outputs; `pool` is the pooling of an output
    with one vector per token if the user names none.
    """
    outputs = session.outputs
    sized = {2: (1,), 3: (2,), 4: (1, 2, 3)}  # the axes whose sizes must be known, by rank
    if not all(port.rank in sized and all(map(port.fixed, sized[port.rank])) for port in outputs):
        results = session.run(blank, [port.name for port in outputs])
        shapes = [("items", *np.shape(result)[1:]) for result in results]
        outputs = tuple(replace(port, shape=s) for port, s in zip(outputs, shapes, strict=True))
    listed = f"Pass output=NAME, one of {'; '.join(map(str, outputs))}"
    usable = {
        port.name: port
        for port in outputs
        if port.type in ("float32", "float16", "float64")
        and (port.rank in (2, 3) or (port.rank == 4 and port.fixed(2) == port.fixed(3) == 1))
    }
    if name := options.get("output"):
        if name not in [port.name for port in outputs]:
            raise InputError(f"{session.name} has no output '{name}'. {listed}")
        if name not in usable:
            raise InputError(
                f"{session.name}: the output {name} has no vectors; expected floating-point numbers of shape "
                f"(items, d), (items, tokens, d) or (items, d, 1, 1). {listed}"
            )
        port = usable[name]
    else:
        one, tokens, maps = ([port for port in usable.values() if port.rank == rank] for rank in (2, 3, 4))
        likely = [usable[name] for name in preferred if name in usable]
        # Several outputs of one vector per item may be anything, such as class scores next to the embedding.
        likely += one if len(one) == 1 else tokens or ([] if one else maps)
        if not likely:
            raise InputError(f"it is not clear which output of {session.name} has the vectors. {listed}")
        port = likely[0]
    if port.rank == 3:
        return Output(port.name, port.fixed(2) or 0, options.get("pool", pool))
    if "pool" in options:
        raise InputError(
            f"{session.name}: the output {port} has one vector per item; remove pool={options['pool']}"
        )
    return Output(port.name, port.fixed(1) or 0)


def not_finite(vectors: NDArray[np.float32]) -> dict[int, str]:
    """Reasons for rows that overflowed, which happens with models in half precision."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    return {int(row): "the model returned numbers that are not finite" for row in bad}


def whole(name: str, value: str) -> int:
    """An option that is a number of pixels or tokens."""
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InputError(f"{name}={value}: expected a whole number above 0")
    return int(value)


# Files of a model: the graph, weights in other files, and configuration next to it.

IMAGE_CONFIG = "preprocessor_config.json"
PLACES = ("model.onnx", "onnx/model.onnx")
CONFIGURATION = (
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    IMAGE_CONFIG,
)
WEIGHTS = "model.safetensors"
WEIGHTS_CONFIGURATION = ("config.json", "modules.json")


@dataclass(frozen=True)
class ModelFiles:
    """The path of a graph, or of weights to build it from, and the folders that may have files of the same model."""

    graph: Path
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, model: str, *hub_names: str, places: Sequence[str] = PLACES) -> ModelFiles:
        """Files of a path, of a folder with one of `places`, or of a name on the hub, where `hub_names` come first."""
        place = _locate(model)
        if isinstance(place, HubModel):
            graph = place.fetch(
                dict.fromkeys((*hub_names, *sorted(places, key=lambda name: "/" not in name)))
            )
            root = next(folder for folder in graph.parents if folder.parent.name == "snapshots")
            # The folder is named after the commit: all other files come from the same one.
            place = HubModel(place.repo, commit=root.name)
            place.fetch_all(
                CONFIGURATION if graph.suffix == ".onnx" else (*CONFIGURATION, *WEIGHTS_CONFIGURATION)
            )
            for name in _external_weights(graph):
                place.fetch([(graph.parent / name).relative_to(root).as_posix()])
            return cls(graph, (graph.parent, root))
        graph = place
        if place.is_dir():
            graph = next((place / name for name in places if (place / name).is_file()), place)
            if graph is place:
                raise FileError(
                    f"the folder {place} has neither {' nor '.join(places)}; give --model the file itself"
                )
        # Exporters that write into `onnx/` leave the configuration one folder up.
        return cls(graph, (graph.parent, graph.absolute().parent.parent))

    def find(self, name: str) -> Path | None:
        """A file of the model, None if there is none."""
        return next((folder / name for folder in self.folders if (folder / name).is_file()), None)

    def settings(self, kind: type[T], name: str) -> T:
        """The content of a JSON file of the model; the default of its type if there is no such file."""
        path = self.find(name)
        if path is None:
            return kind()
        return read_json(kind, path.read_bytes(), str(path), hint="fix it or download it again")

    @cached_property
    def weights(self) -> str:
        """Short digest of the graph and all its weights."""
        try:
            return sha256(self.graph, *map(self.graph.parent.joinpath, _external_weights(self.graph)))[:16]
        except OSError as error:
            raise FileError(
                f"{self.graph} has weights in another file that cannot be read ({error})"
            ) from error


def _external_weights(graph: Path) -> list[str]:
    """Names, relative to the graph's folder, of files with weights of it (models above 2 GB)."""
    if graph.suffix == ".safetensors":
        return []
    # Parsing costs as much memory as the weights; a graph without this word has no weights elsewhere.
    with open(graph, "rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            return []
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(b"location") < 0:
                return []
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    try:
        model = onnx.load(graph, load_external_data=False)
    except Exception:  # not an ONNX file at all: onnxruntime reports it
        return []
    entries = (entry for t in _get_all_tensors(model) if uses_external_data(t) for entry in t.external_data)
    names = sorted({entry.value for entry in entries if entry.key == "location"})
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise FileError(f"{graph} asks for weights in {name}; expected a file in the graph's own folder")
    return names


# Models by their name on the Hugging Face hub, such as `timm/vgg16.tv_in1k` or `owner/name:file`.
#
# The hub is asked only if the user names such a model. Downloads stay in huggingface_hub's own cache and are used
# from there without asking again, so a model does not change between two runs.

NAME = re.compile(
    r"(?P<repo>[a-z0-9][\w.-]*/[a-z0-9][\w.-]*)(:(?P<file>\w[\w./-]*))?", re.ASCII | re.IGNORECASE
)
HUB = "https://huggingface.co"
SUFFIXES = {".safetensors", ".h5", ".hdf5", ".keras", ".onnx", ".bin", ".pt", ".pth", ".npz", ".json"}


class _UnreachableError(Exception):
    """The file is not in the cache, and the hub did not return it."""


@dataclass(frozen=True)
class HubModel:
    """A repository on the hub, a file in it if the user named one, and a commit (None: the newest)."""

    repo: str
    file: str | None = None
    commit: str | None = None

    def fetch(self, names: Iterable[str]) -> Path:
        """The file that was named with the model, otherwise the first of `names` that the repository has."""
        wanted = [self.file] if self.file else list(names)
        cached = {name: self._cached(name) for name in wanted}
        failure: _UnreachableError | None = None
        # What the hub did not have before comes last: the repository may have changed since.
        for name in sorted(wanted, key=lambda name: cached[name] is False):
            if path := cached[name]:
                return path
            try:
                if failure is None and (path := self._download(name)):
                    return path
            except _UnreachableError as error:
                failure = error
        if failure is None:
            raise InputError(
                f"{self.repo} on the model hub has no {' and no '.join(wanted)}; name the file: --model "
                f"{self.repo}:FILE (files: {HUB}/{self.repo}/tree/main)"
            )
        raise InputError(
            f"--model {self.repo} is not a local file, and {wanted[0]} could not be downloaded from the model hub "
            f"({failure}). Without a connection, download it from {HUB}/{self.repo} on another machine and pass "
            "--model PATH"
        ) from failure

    def fetch_all(self, names: Iterable[str]) -> None:
        """Download those of the optional files that the repository has; stop quietly if the hub is unreachable."""
        for name in names:
            if self._cached(name) is None:
                try:
                    self._download(name)
                except _UnreachableError:
                    return

    def _cached(self, name: str) -> Path | Literal[False] | None:
        """A downloaded file, False if the hub is known not to have it, None if unknown."""
        from huggingface_hub import try_to_load_from_cache

        try:
            path = try_to_load_from_cache(self.repo, name, revision=self.commit)
        except ValueError as error:
            raise InputError(
                f"--model {self.repo} is not a local file and not a valid name on the model hub ({_first_line(error)})"
            ) from error
        return Path(path) if isinstance(path, str) else None if path is None else False

    def _download(self, name: str) -> Path | None:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )

        try:
            return Path(hf_hub_download(self.repo, name, revision=self.commit))
        except RepositoryNotFoundError as error:  # also if access is restricted
            raise InputError(
                f"--model {self.repo} is not a local file, and the hub has no public model of that name. Check the "
                f"spelling, or pass --model PATH. If the model is private or needs permission, request access at "
                f"{HUB}/{self.repo} and log in (hf auth login)"
            ) from error
        except LocalEntryNotFoundError as error:
            raise _UnreachableError(_first_line(error.__cause__ or error)) from error
        except EntryNotFoundError:
            return None
        except Exception as error:  # whatever the network, the disk or a proxy may raise
            raise _UnreachableError(_first_line(error)) from error


def fetch_file(model: str, hub_name: str) -> Path:
    """A local file, or the file `hub_name` (or the one that the user named) of a model on the hub."""
    place = _locate(model)
    return place.fetch([hub_name]) if isinstance(place, HubModel) else place


def _locate(model: str) -> Path | HubModel:
    """A file or folder that exists, otherwise a name on the hub."""
    path = Path(os.path.expanduser(model))
    if path.exists():
        return path
    form = NAME.fullmatch(model)
    if form and (form["file"] or not (path.parent.is_dir() or path.suffix.lower() in SUFFIXES)):
        return HubModel(form["repo"], form["file"])
    raise FileError(
        f"--model {model}: no such file or folder; expected a path, or a name on the model hub such as owner/name or "
        "owner/name:FILE"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
