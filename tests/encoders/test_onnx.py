from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import (
    MIX,
    TEXTS,
    close,
    colour,
    configure,
    graph,
    image_model,
    load,
    node,
    onnx,
    picture,
    rows_of,
    text_model,
    tokenizer,
    unit,
)
from onnx import TensorProto, numpy_helper
from tinybert import forward, write_bert

from divscore.encoders.onnx import Session
from divscore.errors import FileError, InputError


def many_outputs(path: Path, names: Mapping[str, str], shapes: Mapping[str, Any] | None = None) -> Path:
    """Outputs by name: flat (n, 3), grid (n, 4, 3), block (n, 3, 1, 1), whole (n, 3, 2, 2), or numbers (n, 1) int64."""
    nodes = [
        node("ReduceMean", "pixels", "flat_", axes=[2, 3], keepdims=0),
        node("ReduceMean", "pixels", "block_", axes=[2, 3], keepdims=1),
        node("Reshape", "pixels shape", "rows"),
        node("Transpose", "rows", "grid_", perm=[0, 2, 1]),
        node("Cast", "flat_", "numbers_", to=TensorProto.INT64),
        *(
            node("Identity", "pixels" if what == "whole" else f"{what}_", name)
            for name, what in names.items()
        ),
    ]
    usual = {
        "flat": ("n", 3),
        "grid": ("n", 4, 3),
        "block": ("n", 3, 1, 1),
        "whole": ("n", 3, 2, 2),
        "numbers": ("n", 3),
    }
    outputs = {
        name: ("int64" if what == "numbers" else "float32", (shapes or usual)[what])
        for name, what in names.items()
    }
    pixels = {"pixels": ("float32", ("n", 3, 2, 2))}
    return graph(path, nodes, pixels, outputs, {"shape": np.array([0, 3, 4], dtype=np.int64)})


@pytest.mark.parametrize(
    ("names", "options", "wanted"),
    [
        ({"a": "grid", "image_embeds": "flat"}, {}, "output=image_embeds pool=none"),
        ({"pooler_output": "flat", "embedding": "flat"}, {}, "output=embedding pool=none"),
        ({"a": "grid", "b": "flat", "c": "numbers"}, {}, "output=b pool=none"),
        ({"a": "grid", "b": "flat", "c": "flat"}, {}, "output=a pool=cls"),
        ({"a": "grid"}, {"pool": "mean"}, "output=a pool=mean"),
        ({"a": "block"}, {}, "output=a pool=none"),
        ({"a": "flat", "b": "grid"}, {"output": "b"}, "output=b pool=cls"),
    ],
)
def test_the_output_is_chosen(
    names: dict[str, str], options: dict[str, str], wanted: str, tmp_path: Path
) -> None:
    encoder = load(many_outputs(tmp_path / "m.onnx", names), normalise="raw", **options)
    assert wanted in encoder.identity
    image = picture(2, 2)
    first, mean = image[0, 0].astype(float), image.astype(float).mean(axis=(0, 1))
    close(encoder.encode([image]), (first if "pool=cls" in wanted else mean)[None])
    assert encoder.dimension == 3


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        ({"a": "flat", "b": "flat"}, {}, r"not clear which output .* Pass output=NAME, one of a float32"),
        ({"a": "whole"}, {}, "not clear which output"),
        ({"a": "flat"}, {"output": "z"}, r"has no output 'z'. Pass output=NAME, one of a float32\[n, 3\]"),
        ({"a": "numbers", "b": "flat"}, {"output": "a"}, "has no vectors"),
        ({"a": "flat"}, {"pool": "mean"}, "has one vector per item; remove pool=mean"),
        ({"a": "grid"}, {"pool": "max"}, "no pool=max; choose pool=cls or pool=mean"),
    ],
)
def test_outputs_that_cannot_be_used(
    names: dict[str, str], options: dict[str, str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        load(many_outputs(tmp_path / "m.onnx", names), normalise="raw", **options)


def test_sizes_that_the_graph_keeps_to_itself_are_measured(tmp_path: Path) -> None:
    for what, shape in {
        "flat": ("n", "d"),
        "grid": ("n", "t", "d"),
        "block": ("n", "d", "h", "w"),
        "whole": None,
    }.items():
        path = many_outputs(tmp_path / f"{what}.onnx", {"a": what}, {what: shape})
        if what == "whole":
            with pytest.raises(InputError, match="not clear which output"):
                load(path, normalise="raw")
        else:
            assert load(path, normalise="raw").dimension == 3
    assert (
        load(many_outputs(tmp_path / "f.onnx", {"a": "flat"}, {"flat": None}), normalise="raw").dimension == 3
    )


def test_files_that_are_no_onnx(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"its location is unknown"):
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(FileError, match=r"m\.onnx is not a valid ONNX model"):
            load(tmp_path / "m.onnx", normalise="none")
    with pytest.raises(FileError, match="no such file"):
        load(tmp_path / "lost.onnx", normalise="none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"has neither model\.onnx nor onnx/model\.onnx"):
        load(tmp_path / "empty", normalise="none")


def test_weights_in_another_file_are_part_of_the_identity(tmp_path: Path) -> None:
    identities, vectors = [], []
    for name, factor in {"a": 1, "b": 1, "c": 2}.items():
        path = image_model(tmp_path / name / "m.onnx")
        model = onnx.load(path)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(MIX * np.float32(factor), "mix"))
        onnx.save(model, path, save_as_external_data=True, location="m.onnx_data", size_threshold=0)
        assert (path.parent / "m.onnx_data").stat().st_size >= MIX.nbytes
        encoder = load(path, normalise="none")
        identities.append(encoder.identity)
        vectors.append(encoder.encode([picture(8, 8)]).vectors)
    assert identities[0] == identities[1] != identities[2]
    np.testing.assert_allclose(vectors[2], 2 * vectors[0], rtol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[1])


def test_threads_reach_onnxruntime(tmp_path: Path) -> None:
    path = image_model(tmp_path / "m.onnx")
    for threads in (0, 1, 2):
        options = Session(path, threads)._session.get_session_options()
        assert options.intra_op_num_threads == threads
        assert options.inter_op_num_threads == 1


# The model hub, played by a server on this machine


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves files as the hub's resolve addresses do, and notes what was asked."""

    def __init__(self, repos: Mapping[str, Path]) -> None:
        hub = self
        self.repos, self.asked = repos, list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def do_HEAD(self) -> None:
                hub.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: Any) -> None:
        self.asked.append(f"{request.command} {request.path}")
        repo, _, rest = request.path[1:].partition("/resolve/")
        file = self.repos.get(repo, Path("nowhere")) / rest.partition("/")[2]
        code, content, headers = 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
        if repo == "owner/gated":
            code, headers = 403, {"X-Error-Code": "GatedRepo"}
        elif repo not in self.repos:
            headers = {"X-Error-Code": "RepoNotFound"}
        elif file.is_file():
            code, content = 200, file.read_bytes()
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{len(content)}-{file.name}"'}
        request.send_response(code)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tokenizer(tmp_path / "repo")
    text_model(folder / "onnx" / "model.onnx")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    big = image_model(tmp_path / "images" / "onnx" / "vision_model.onnx")
    onnx.save(onnx.load(big), big, save_as_external_data=True, location="far.data", size_threshold=0)
    configure(tmp_path / "images", size=8, do_normalize=False)
    bert = write_bert(tmp_path / "bert")
    served = Hub({"owner/sentences": folder, "owner/images": tmp_path / "images", "owner/bert": bert})
    connect(served.address, tmp_path, monkeypatch)
    yield served
    served.close()


def connect(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub use this address and a cache of its own."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    cache = str(tmp_path / "cache")
    download = partial(hub.hf_hub_download, endpoint=address, cache_dir=cache, token=False)
    monkeypatch.setattr(hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "try_to_load_from_cache", partial(hub.try_to_load_from_cache, cache_dir=cache))


def test_a_sentence_model_is_downloaded_once(hub: Hub, tmp_path: Path) -> None:
    encoder = load("owner/sentences", "text", "sentence")
    close(encoder.encode(TEXTS), unit(np.array([rows_of(text, 4).mean(axis=0) for text in TEXTS])))
    assert "GET /owner/sentences/resolve/main/onnx/model.onnx" in hub.asked
    assert f"GET /owner/sentences/resolve/{COMMIT}/tokenizer.json" in hub.asked
    hub.asked.clear()
    for model in ("owner/sentences", "owner/sentences:onnx/model.onnx", tmp_path / "repo"):
        assert load(model, "text", "sentence").identity == encoder.identity
    assert hub.asked == []


def test_a_bert_without_a_graph_is_downloaded_as_weights(hub: Hub, tmp_path: Path) -> None:
    encoder = load("owner/bert", "text", "sentence")
    close(encoder.encode(TEXTS), unit(np.array([forward(text).mean(axis=0) for text in TEXTS])))
    assert f"GET /owner/bert/resolve/{COMMIT}/config.json" in hub.asked
    assert encoder.identity == load(tmp_path / "bert", "text", "sentence").identity
    hub.asked.clear()
    assert "int8=on" in load("owner/bert", "text", "sentence", int8="on").identity
    assert not any("onnx" in line for line in hub.asked)


def test_an_image_model_with_weights_in_another_file_is_downloaded(hub: Hub) -> None:
    image = picture(8, 8)
    close(load("owner/images").encode([image]), colour(image)[None])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("owner/nothing", "the hub has no public model of that name"),
        ("owner/gated", "needs permission, request access"),
        ("owner/images", "has no onnx/model.onnx and no model.onnx and no model.safetensors; name the file"),
        ("owner/sentences:lost.onnx", "has no lost.onnx"),
        ("owner/two--dashes", "not a valid name on the model hub"),
        ("owner/sentences:a/../b", "not a valid name on the model hub"),
    ],
)
def test_what_the_hub_refuses_is_explained(model: str, says: str, hub: Hub) -> None:
    with pytest.raises(InputError, match=says):
        load(model, "text", "sentence")


def test_without_a_connection_the_way_round_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect("http://127.0.0.1:9", tmp_path, monkeypatch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it tries for a minute
    for name, kind, file in (
        ("vgg16", "image", "model.safetensors"),
        ("sentence", "text", "onnx/model.onnx"),
    ):
        with pytest.raises(
            InputError, match=f"owner/name is not a local file, and {file} could not be"
        ) as error:
            load("owner/name", kind, name)
        assert "on another machine and pass --model PATH" in str(error.value)
