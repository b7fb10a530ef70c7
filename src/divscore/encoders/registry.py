"""The encoders by name, what each needs, and how one is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError, MissingExtraError

__all__ = ["DEFAULTS", "ENCODERS", "About", "Encoded", "Encoder", "EncoderSpec", "Kind"]


# What an encoder is, and what it gives back.


@dataclass(frozen=True)
class Encoded:
    """Vectors of some items: usually one each, none where there was nothing to encode, several for several faces.

    `owner[j]` is the item that vector j belongs to, in ascending order. `reasons` says for each item without a
    vector why it has none. `found[i]` is how many things, such as faces, item i showed, also where only one was
    encoded.
    """

    vectors: NDArray[np.float32]
    owner: NDArray[np.intp]
    found: NDArray[np.intp]
    reasons: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, vectors: NDArray[Any], reasons: Mapping[int, str] | None = None) -> Encoded:
        """One vector an item; rows named in `reasons` are left out."""
        lost = dict(reasons or {})
        keep = np.ones(len(vectors), dtype=bool)
        keep[list(lost)] = False
        rows = np.ascontiguousarray(vectors[keep], dtype=np.float32)
        return cls(rows, np.flatnonzero(keep), keep.astype(np.intp), lost)


class Encoder(Protocol):
    """Turns items into vectors: texts (str), or pictures as RGB arrays of shape (height, width, 3).

    `identity` names the encoder, its version and its weights: vectors of equal identity can be compared, others
    not. `variant` is what else changes the outcome without making vectors incomparable; the cache minds it.
    `enough` is the shorter side in pixels beyond which a picture need not be decoded (0 for texts).
    """

    identity: str
    variant: str
    dimension: int
    enough: int

    def encode(self, items: Sequence[Any]) -> Encoded:
        """Encode a batch."""
        ...


Kind = Literal["image", "text"]


@dataclass(frozen=True)
class About:
    """An encoder before it is loaded: `needs` are the modules of its extra, `model` what --model takes."""

    module: str
    function: str
    kinds: tuple[Kind, ...]
    summary: str
    size: str
    extra: str = ""
    needs: tuple[str, ...] = ()
    model: str = ""
    processes: bool = False  # holds Python's lock while it works, so that threads would not help
    costly: bool = True  # worth keeping the vectors of items that were encoded before

    @property
    def missing(self) -> list[str]:
        """Modules that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]

    def require(self, name: str) -> None:
        """Raise the error that names the extra to install."""
        if self.missing:
            raise MissingExtraError(
                f"the encoder '{name}' needs {', '.join(self.missing)}; install it with: "
                f"pip install 'divscore[{self.extra}]'"
            )


ENCODERS: dict[str, About] = {
    "faces": About(
        "divscore.encoders.faces",
        "load",
        ("image",),
        "128 numbers a face, for photographs of people (the default for images)",
        "32 MB, installed with the extra",
        "faces",
        ("PIL", "dlib", "face_recognition_models"),
        processes=True,
    ),
    "ngrams": About(
        "divscore.encoders.ngrams",
        "load",
        ("text",),
        "letters, letter groups and words of texts and names (the default for texts)",
        "nothing to fetch",
        costly=False,
    ),
    "onnx": About(
        "divscore.encoders.onnx",
        "load",
        ("image", "text"),
        "any ONNX model with an embedding output: CLIP, DINOv2, ArcFace …",
        "the model's",
        "onnx",
        ("onnxruntime", "tokenizers", "PIL"),
        "an .onnx file or its folder (for texts with tokenizer.json beside it), or a name on the model hub",
    ),
    "sentence": About(
        "divscore.encoders.sentence",
        "load",
        ("text",),
        "a sentence model, mean of its token vectors",
        "the model's, often 90–500 MB",
        "onnx",
        ("onnxruntime", "tokenizers"),
        "folder with model.onnx and tokenizer.json, or a name on the model hub",
    ),
    "vgg16": About(
        "divscore.encoders.vgg16",
        "load",
        ("image",),
        "the paper's picture features, 4,096 numbers (with --pca 300, the paper's 300)",
        "about 550 MB",
        "onnx",
        ("onnxruntime", "onnx", "safetensors", "h5py", "PIL"),
        "vgg16 weights as .safetensors (torchvision's or timm's names) or Keras' .h5, or a name on the model hub",
    ),
    "word2vec": About(
        "divscore.encoders.word2vec",
        "load",
        ("text",),
        "the paper's text features: the mean of a text's word vectors",
        "the model's, often 1–4 GB",
        "text",
        (),
        "word vectors: gensim KeyedVectors, word2vec .bin or .txt, GloVe",
        costly=False,
    ),
}
DEFAULTS: dict[Kind, str] = {"image": "faces", "text": "ngrams"}


@dataclass(frozen=True)
class EncoderSpec:
    """Which encoder with which settings: small, and the same in every process."""

    name: str
    kind: Kind
    model: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def about(self) -> About:
        """What is known of it without loading it."""
        if self.name not in ENCODERS:
            raise InputError(f"unknown encoder '{self.name}'; there are {', '.join(ENCODERS)}")
        return ENCODERS[self.name]

    def load(self, threads: int = 0) -> Encoder:
        """Load the encoder; `threads` it may use itself (0: as many as it likes)."""
        about = self.about
        if self.kind not in about.kinds:
            raise InputError(f"the encoder '{self.name}' takes {' or '.join(about.kinds)}s, not {self.kind}s")
        about.require(self.name)
        if about.model and self.model is None:
            raise InputError(f"the encoder '{self.name}' needs --model: {about.model}")
        build = getattr(import_module(about.module), about.function)
        return cast(Encoder, build(self.kind, self.model, _known(self), threads))


def _known(spec: EncoderSpec) -> Mapping[str, str]:
    allowed = getattr(import_module(spec.about.module), "OPTIONS", {})
    for name, _ in spec.options:
        if name not in allowed:
            listed = "; ".join(f"{key}: {says}" for key, says in allowed.items()) or "none"
            raise InputError(f"the encoder '{spec.name}' has no option '{name}'; it has {listed}")
    return dict(spec.options)
