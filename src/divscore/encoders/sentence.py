"""`sentence`: a sentence model, as sentence-transformers publishes them; and the text half of `onnx`.

A model is an ONNX file, or the weights of a BERT (model.safetensors with config.json), from which the graph is built.
A sentence's vector is the mean of its token vectors, scaled to length one. If the model states another pooling
(1_Pooling/config.json) or pools in the graph itself (an output `sentence_embedding`), that is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.bert import EXPORT, read_bert
from divscore.encoders.onnx import (
    PLACES,
    PREFERRED,
    WEIGHTS,
    ModelFiles,
    Session,
    choose_output,
    not_finite,
    whole,
)
from divscore.encoders.registry import Encoded, Encoder, versioned
from divscore.errors import FileError, InputError
from divscore.files import sha256

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
POOLING = "1_Pooling/config.json"
MODULES = "modules.json"
BUILT = {"Transformer", "Pooling", "Normalize"}  # what a model may consist of if the graph is built here
BATCH = 32
MOST_TOKENS = 1024  # of a batch with its padding: larger ones need more memory, and are slower
USUAL_LENGTH = 512
LARGEST_LENGTH = 100_000  # configuration files say 10^30 for "no limit"
CHARACTERS = 8  # per token that are read at first; more than most languages need
MARGIN = 8  # words behind the last token that counts, so that the cut cannot have changed it


class TextModel(Encoder):
    """An encoder of texts; the vector of a text does not depend on the rest of its batch.

    `style` is the encoder's name and version, `pool` and `preferred` are as in `choose_output`, and `unit` scales
    vectors to length one. `settings` are further words of the identity; `positions` and `vocabulary` are the most that
    the graph takes, if it does not say so itself.
    """

    def __init__(
        self,
        style: str,
        files: ModelFiles,
        session: Session,
        options: Mapping[str, str],
        *,
        pool: str = "mean",
        preferred: Sequence[str] = PREFERRED,
        unit: bool = False,
        settings: str = "",
        positions: int | None = None,
        vocabulary: int | None = None,
    ) -> None:
        from tokenizers import Tokenizer

        self._session = session
        self._ports = {port.name: port for port in session.inputs}
        if "input_ids" not in self._ports or set(self._ports) - set(INPUTS):
            raise InputError(
                f"{session.name} takes {'; '.join(map(str, session.inputs))}; expected input_ids and optionally "
                "attention_mask and token_type_ids, for texts. Of a model for images and texts, export the text half "
                "alone (for CLIP often text_model.onnx)"
            )
        self._fixed_length = self._ports["input_ids"].fixed(1)
        tokens = files.settings(dict, "tokenizer_config.json")
        # Tokens of a text to read: as the user or the configuration says, at most what the graph takes.
        stated = (
            files.settings(dict, "sentence_bert_config.json").get("max_seq_length"),
            tokens.get("model_max_length"),
        )
        limits = (int(n) for n in stated if isinstance(n, int | float) and 0 < n < LARGEST_LENGTH)
        option = options.get("length")
        length = whole("length", option) if option else next(limits, USUAL_LENGTH)
        most = self._fixed_length or positions or length
        if option and length > most:
            raise InputError(f"length={length}: {files.graph} takes {most} tokens at most")
        length = min(length, most)
        path = files.find("tokenizer.json")
        if path is None:
            raise FileError(f"{files.graph} needs tokenizer.json next to it or one folder up; there is none")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise FileError(
                f"{path} is not a tokenizer that the tokenizers library can read ({error})"
            ) from error
        largest = max(self._tokenizer.get_vocab().values(), default=0)
        if vocabulary is not None and largest >= vocabulary:
            raise FileError(
                f"{path} has a token with the number {largest}, but {files.graph} has {vocabulary:,} tokens, from 0; "
                "expected files of the same model"
            )
        special = self._tokenizer.num_special_tokens_to_add(False)
        if length <= special:
            raise InputError(f"length={length} leaves no room for words; expected more than {special}")
        # The padding token: as the tokenizer itself says, or by its name in the configuration, or by a usual name.
        token = tokens.get("pad_token")
        names = (token.get("content") if isinstance(token, dict) else token, "[PAD]", "<pad>")
        numbers = (self._tokenizer.token_to_id(name) for name in names if isinstance(name, str))
        self._pad = next((number for number in numbers if number is not None), 0)
        if self._tokenizer.padding:
            self._pad = int(self._tokenizer.padding["pad_id"])
        # Each batch is padded here, to its own longest text.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length)
        self._characters = CHARACTERS * length
        blank = dict.fromkeys(INPUTS, np.zeros((1, self._fixed_length or 1), dtype=np.int64))
        self._output = choose_output(session, self._feeds(blank), options, pool, preferred)
        self._unit = unit
        self.dimension = self._output.dimension
        self.identity = (
            f"{style} kind=text length={length} pad={self._pad} {self._output} "
            f"scaled={'unit' if unit else 'no'} tokenizer={sha256(path)[:16]} {settings}weights={files.weights}"
        )

    def encode(self, items: Sequence[str]) -> Encoded:
        """One vector per text; empty texts have none."""
        reasons = {i: "is empty" for i, text in enumerate(items) if not text.strip()}
        full = [i for i in range(len(items)) if i not in reasons]
        rows = dict(zip(full, self._tokens([items[i] for i in full]), strict=True))
        unknown = [i for i, row in rows.items() if all(row.special_tokens_mask)]
        reasons |= dict.fromkeys(unknown, "has no word that the tokenizer knows")
        vectors = np.zeros((len(items), self.dimension), dtype=np.float32)
        for batch in self._batches({i: len(row.ids) for i, row in rows.items() if i not in reasons}):
            shape = (len(batch), self._fixed_length or max(len(rows[i].ids) for i in batch))
            padded = {name: np.zeros(shape, dtype=np.int64) for name in INPUTS}
            padded["input_ids"][:] = self._pad
            for line, i in enumerate(batch):
                used = slice(len(rows[i].ids))
                padded["input_ids"][line, used] = rows[i].ids
                padded["attention_mask"][line, used] = 1
                padded["token_type_ids"][line, used] = rows[i].type_ids
            results = self._session.run(self._feeds(padded), [self._output.name])
            vectors[batch] = self._output.vectors(results[0], padded["attention_mask"])
            if self._unit:
                norm = np.linalg.norm(vectors[batch], axis=1, keepdims=True)
                vectors[batch] /= np.where(norm > 0, norm, 1)
        return Encoded.of(vectors, reasons | not_finite(vectors))

    def _tokens(self, texts: Sequence[str]) -> list[Any]:
        """The tokens of each text; of a long one no more is read than its first tokens need."""
        rows: list[Any] = self._tokenizer.encode_batch([text[: self._characters] for text in texts])
        for at, text in enumerate(texts):
            size = self._characters
            while size < len(text) and not _settled(rows[at]):
                size *= 4
                rows[at] = self._tokenizer.encode(text[:size])
        return rows

    def _batches(self, lengths: Mapping[int, int]) -> Iterator[list[int]]:
        """Texts of similar length together, to pad little; of equal length if the graph would see the padding."""
        padding_allowed = "attention_mask" in self._ports or self._fixed_length is not None
        batch: list[int] = []
        for i in sorted(lengths, key=lambda i: lengths[i]):
            room = MOST_TOKENS // (self._fixed_length or lengths[i])
            step = self._session.batch or max(1, min(BATCH, room))
            if batch and (len(batch) >= step or not (padding_allowed or lengths[i] == lengths[batch[0]])):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _feeds(self, padded: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        return {name: padded[name].astype(port.type) for name, port in self._ports.items()}


def _settled(row: Any) -> bool:
    """Whether the first tokens stay the same if more of the text is read: they end some words before the cut."""
    kept, cut = (
        max((word for part in parts for word in part.word_ids if word is not None), default=-1)
        for parts in ([row], row.overflowing)
    )
    return kept + MARGIN < cut


def load(model: str, options: Mapping[str, str], threads: int) -> TextModel:
    """Load a sentence model: a folder, an .onnx or .safetensors file, or a name on the hub."""
    int8 = options.get("int8") == "on"
    files = (
        ModelFiles.of(model, WEIGHTS, places=(WEIGHTS, *PLACES))
        if int8
        else ModelFiles.of(model, places=(*PLACES, WEIGHTS))
    )
    pool = options.get("pool") or _stated_pool(files)
    preferred = ("sentence_embedding", "last_hidden_state", "token_embeddings")
    if files.graph.suffix == ".safetensors":
        modules = [entry.get("type", "") for entry in files.settings(list[dict[str, Any]], MODULES)]
        if other := [kind for kind in modules if str(kind).rpartition(".")[2] not in BUILT]:
            raise InputError(
                f"{MODULES} of {files.graph} asks for {', '.join(map(str, other))}; divscore builds "
                f"{', '.join(sorted(BUILT))}. {EXPORT}"
            )
        bert = read_bert(files.graph, int8)
        session = Session(bert.graph, threads, bert.weights)
        limits = {"positions": bert.positions, "vocabulary": bert.vocabulary}
        settings = f"{bert.settings} "
    elif int8:
        raise InputError(
            f"int8=on needs a BERT's {WEIGHTS} with config.json; {files.graph} is a graph already. Leave out int8"
        )
    else:
        session, limits, settings = Session(files.graph, threads), {}, ""
    return TextModel(
        versioned("sentence"),
        files,
        session,
        options,
        pool=pool,
        preferred=preferred,
        unit=True,
        settings=settings,
        **limits,
    )


def _stated_pool(files: ModelFiles) -> str:
    """The pooling that the model's files ask for, mean if they do not say."""
    settings = files.settings(dict, POOLING)
    prefix = "pooling_mode_"
    # Newer files have one word or a list of words, older ones a switch for each word.
    words = settings.get("pooling_mode") or [
        key.removeprefix(prefix) for key, on in settings.items() if key.startswith(prefix) and on is True
    ]
    modes = sorted(map(str, words)) if isinstance(words, list) else [str(words)]
    pools = {"cls_token": "cls", "mean_tokens": "mean", "cls": "cls", "mean": "mean"}
    if len(modes) > 1 or not set(modes) <= pools.keys():
        raise InputError(
            f"the model's {POOLING} asks for {' and '.join(modes)}; divscore has pool=mean and pool=cls"
        )
    return pools[modes[0]] if modes else "mean"


def load_onnx(model: str, options: Mapping[str, str], threads: int) -> TextModel:
    """Load any ONNX model of texts."""
    files = ModelFiles.of(model, "onnx/text_model.onnx")
    return TextModel(versioned("onnx"), files, Session(files.graph, threads), options)
