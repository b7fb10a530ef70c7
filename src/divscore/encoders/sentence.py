"""`sentence`: a sentence model, as sentence-transformers publishes them with an ONNX file; and the text half of `onnx`.

A sentence's vector is the mean of its token vectors, scaled to length one. If the model states another pooling
(1_Pooling/config.json) or pools in the graph itself (an output `sentence_embedding`), that is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.onnx import PREFERRED, ModelFiles, Session, choose_output, not_finite, whole
from divscore.encoders.registry import Encoded
from divscore.errors import FileError, InputError
from divscore.files import sha256

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
POOLING = "1_Pooling/config.json"
BATCH = 32
USUAL_LENGTH = 512
LARGEST_LENGTH = 100_000  # configuration files say 10^30 for "no limit"


class TextModel:
    """An encoder of texts; the vector of a text does not depend on the rest of its batch.

    `style` is the encoder's name and version, `pool` and `preferred` are as in `choose_output`, and `unit` scales
    vectors to length one.
    """

    variant = ""
    resolution = 0

    def __init__(
        self,
        style: str,
        files: ModelFiles,
        threads: int,
        options: Mapping[str, str],
        *,
        pool: str = "mean",
        preferred: Sequence[str] = PREFERRED,
        unit: bool = False,
    ) -> None:
        from tokenizers import Tokenizer

        self._session = session = Session(files.graph, threads)
        self._ports = {port.name: port for port in session.inputs}
        if "input_ids" not in self._ports or set(self._ports) - set(INPUTS):
            raise InputError(
                f"{session.name} takes {'; '.join(map(str, session.inputs))}; expected input_ids and optionally "
                "attention_mask and token_type_ids, for texts. Of a model for images and texts, export the text half "
                "alone (for CLIP often text_model.onnx)"
            )
        self._fixed_length = self._ports["input_ids"].fixed(1)
        settings = files.settings(dict, "tokenizer_config.json")
        # Tokens of a text to read: as the user or the configuration says, at most what the graph takes.
        stated = (
            files.settings(dict, "sentence_bert_config.json").get("max_seq_length"),
            settings.get("model_max_length"),
        )
        limits = (int(n) for n in stated if isinstance(n, int | float) and 0 < n < LARGEST_LENGTH)
        option = options.get("length")
        length = whole("length", option) if option else next(limits, USUAL_LENGTH)
        most = self._fixed_length or length
        if option and length > most:
            raise InputError(f"length={length}: {files.graph} takes {most} tokens at most")
        length = min(length, most)
        path = files.find("tokenizer.json")
        if path is None:
            raise FileError(f"{session.name} needs tokenizer.json next to it or one folder up; there is none")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise FileError(
                f"{path} is not a tokenizer that the tokenizers library can read ({error})"
            ) from error
        special = self._tokenizer.num_special_tokens_to_add(False)
        if length <= special:
            raise InputError(f"length={length} leaves no room for words; expected more than {special}")
        # The padding token: as the tokenizer itself says, or by its name in the configuration, or by a usual name.
        token = settings.get("pad_token")
        names = (token.get("content") if isinstance(token, dict) else token, "[PAD]", "<pad>")
        numbers = (self._tokenizer.token_to_id(name) for name in names if isinstance(name, str))
        self._pad = next((number for number in numbers if number is not None), 0)
        if self._tokenizer.padding:
            self._pad = int(self._tokenizer.padding["pad_id"])
        # Each batch is padded here, to its own longest text.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length)
        blank = dict.fromkeys(INPUTS, np.zeros((1, self._fixed_length or 1), dtype=np.int64))
        self._output = choose_output(session, self._feeds(blank), options, pool, preferred)
        self._unit = unit
        self.dimension = self._output.dimension
        self.identity = (
            f"{style} kind=text length={length} pad={self._pad} {self._output} "
            f"scaled={'unit' if unit else 'no'} tokenizer={sha256(path)[:16]} weights={files.weights}"
        )

    def encode(self, items: Sequence[str]) -> Encoded:
        """One vector per text; empty texts have none."""
        reasons = {i: "is empty" for i, text in enumerate(items) if not text.strip()}
        full = [i for i in range(len(items)) if i not in reasons]
        rows = dict(zip(full, self._tokenizer.encode_batch([items[i] for i in full]), strict=True))
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

    def _batches(self, lengths: Mapping[int, int]) -> Iterator[list[int]]:
        """Texts of similar length together, to pad little; of equal length if the graph would see the padding."""
        step = self._session.batch or BATCH
        padding_allowed = "attention_mask" in self._ports or self._fixed_length is not None
        batch: list[int] = []
        for i in sorted(lengths, key=lambda i: lengths[i]):
            if batch and (len(batch) == step or not (padding_allowed or lengths[i] == lengths[batch[0]])):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _feeds(self, padded: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        return {name: padded[name].astype(port.type) for name, port in self._ports.items()}


def load(model: str, options: Mapping[str, str], threads: int) -> TextModel:
    """Load a sentence model: a folder, an .onnx file, or a name on the hub."""
    files = ModelFiles.of(model)
    settings = {} if "pool" in options else files.settings(dict, POOLING)
    pools = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    modes = sorted(key for key, on in settings.items() if key.startswith("pooling_mode_") and on is True)
    if len(modes) > 1 or not set(modes) <= pools.keys():
        raise InputError(
            f"the model's {POOLING} asks for {' and '.join(modes)}; divscore has pool=mean and pool=cls"
        )
    pool = pools[modes[0]] if modes else "mean"
    preferred = ("sentence_embedding", "last_hidden_state", "token_embeddings")
    return TextModel("sentence/1", files, threads, options, pool=pool, preferred=preferred, unit=True)


def load_onnx(model: str, options: Mapping[str, str], threads: int) -> TextModel:
    """Load any ONNX model of texts."""
    return TextModel("onnx/1", ModelFiles.of(model, "onnx/text_model.onnx"), threads, options)
