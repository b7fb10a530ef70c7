"""`sentence`: a sentence-embedding model, as sentence-transformers publishes them with an ONNX file.

A text's vector is the mean of its token vectors, scaled to length one. A model that states another pooling
(1_Pooling/config.json), or that pools in the graph itself (an output `sentence_embedding`), is followed.
"""

from __future__ import annotations

from collections.abc import Mapping

from divscore.encoders.onnx import OPTIONS as ALL
from divscore.encoders.onnx import model_files
from divscore.encoders.registry import Encoder
from divscore.encoders.session import Session
from divscore.encoders.textmodel import TextStyle, text_model
from divscore.errors import InputError

__all__ = ["OPTIONS", "load"]

OPTIONS: dict[str, str] = {
    "length": ALL["length"],
    "output": ALL["output"],
    "pool": "cls or mean, where the output has a vector a token (default: as the model says, else mean)",
}
PREFERRED = ("sentence_embedding", "last_hidden_state", "token_embeddings")
POOLING = "1_Pooling/config.json"


def load(kind: str, model: str | None, options: Mapping[str, str], threads: int) -> Encoder:
    """Load a folder, an .onnx file or a model of the hub, as `EncoderSpec.load` calls it."""
    files = model_files(model)
    usual = "mean" if "pool" in options else _pooling(files.settings(POOLING))
    style = TextStyle("sentence/1", usual, PREFERRED, unit=True)
    return text_model(style, files, Session(files.graph, threads), options)


def _pooling(says: Mapping[str, object]) -> str:
    modes = sorted(key for key, value in says.items() if key.startswith("pooling_mode_") and value is True)
    known = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    if not modes:
        return "mean"
    if len(modes) == 1 and modes[0] in known:
        return known[modes[0]]
    raise InputError(
        f"the model's {POOLING} asks for {' and '.join(modes)}; divscore has pool=mean and pool=cls"
    )
