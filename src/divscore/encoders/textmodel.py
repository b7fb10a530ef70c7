"""Texts through an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.images import whole
from divscore.encoders.registry import Encoded
from divscore.encoders.session import (
    PREFERRED,
    Choice,
    ModelFiles,
    Output,
    Port,
    Session,
    measured,
    not_finite,
)
from divscore.errors import FileError, InputError
from divscore.files import sha256

__all__ = ["INPUTS", "TextModel", "TextStyle", "TokenRow", "Tokens", "longest", "text_model"]


# Texts as token numbers, by a tokenizer.json as the `tokenizers` library reads it.

USUAL = 512
SANE = 100_000  # configuration files say 10^30 for "no limit"


@dataclass(frozen=True)
class TokenRow:
    """The tokens of one text, cut to the model's length but not padded."""

    ids: Sequence[int]
    types: Sequence[int]
    words: int  # tokens that come of the text, not of the frame around it

    def __len__(self) -> int:
        return len(self.ids)


class Tokens:
    """A tokenizer that cuts texts to `length` tokens, its frame of special tokens included."""

    def __init__(self, path: Path, length: int, pad: object = None) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise FileError(
                f"{path} is no tokenizer that the tokenizers library can read ({error})"
            ) from error
        frame = self._tokenizer.num_special_tokens_to_add(False)
        if length <= frame:
            raise InputError(f"length={length} leaves no room for words; expected more than {frame}")
        self.pad = self._padding(pad.get("content") if isinstance(pad, dict) else pad)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length)

    def _padding(self, stated: object) -> int:
        if self._tokenizer.padding:
            return int(self._tokenizer.padding["pad_id"])
        names = [name for name in (stated, "[PAD]", "<pad>") if isinstance(name, str)]
        known = (self._tokenizer.token_to_id(name) for name in names)
        return next((number for number in known if number is not None), 0)

    def rows(self, texts: Sequence[str]) -> list[TokenRow]:
        """The tokens of each text."""
        found = self._tokenizer.encode_batch(list(texts))
        return [TokenRow(e.ids, e.type_ids, len(e.ids) - sum(e.special_tokens_mask)) for e in found]

    def padded(self, rows: Sequence[TokenRow], length: int | None = None) -> dict[str, NDArray[np.int64]]:
        """Inputs of a transformer: all rows padded to the longest of them, or to `length`."""
        shape = (len(rows), length or max(map(len, rows)))
        ids = np.full(shape, self.pad, dtype=np.int64)
        types, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row.ids
            types[i, : len(row)] = row.types
            mask[i, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def longest(files: ModelFiles, wanted: int | None, graph: int | None) -> int:
    """How many tokens of a text are read: as the user wants or the configuration says, at most what the graph takes."""
    stated = (
        files.settings("sentence_bert_config.json").get("max_seq_length"),
        files.settings("tokenizer_config.json").get("model_max_length"),
    )
    sane = (int(n) for n in stated if isinstance(n, int | float) and 0 < n < SANE)
    length = wanted or next(sane, USUAL)
    return min(length, graph) if graph else length


INPUTS = ("input_ids", "attention_mask", "token_type_ids")
BATCH = 32


class Words:
    """The inputs for texts of a graph: which it has, and whether their length is fixed."""

    def __init__(self, ports: Sequence[Port], model: str) -> None:
        self.ports = {port.name: port for port in ports}
        if "input_ids" not in self.ports or set(self.ports) - set(INPUTS):
            raise InputError(
                f"{model} takes {'; '.join(map(str, ports))}; expected input_ids and, if need be, attention_mask "
                "and token_type_ids, so export the encoder alone"
            )
        self.length = self.ports["input_ids"].fixed(1)

    @property
    def masked(self) -> bool:
        """Whether the graph knows which tokens only fill up."""
        return "attention_mask" in self.ports

    def feeds(self, padded: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """Of padded tokens, what the graph takes."""
        return {name: padded[name].astype(port.type) for name, port in self.ports.items()}


@dataclass(frozen=True)
class TextStyle:
    """What an encoder of texts makes of a graph's output: which it prefers, how it pools, whether it scales to 1."""

    name: str
    pool: str = "mean"
    preferred: Sequence[str] = PREFERRED
    unit: bool = False


class TextModel:
    """An encoder of texts, which gives a text the same vector whatever else is in its batch."""

    variant = ""
    enough = 0

    def __init__(
        self,
        identity: str,
        session: Session,
        words: Words,
        tokens: Tokens,
        output: Output,
        unit: bool = False,
    ) -> None:
        self.identity = identity
        self.dimension = output.dimension
        self._session = session
        self._words = words
        self._tokens = tokens
        self._output = output
        self._unit = unit

    def encode(self, items: Sequence[str]) -> Encoded:
        """One vector a text; empty texts get none."""
        reasons = {i: "is empty" for i, text in enumerate(items) if not text.strip()}
        full = [i for i in range(len(items)) if i not in reasons]
        rows = dict(zip(full, self._tokens.rows([items[i] for i in full]), strict=True))
        reasons |= {i: "has no word that the tokenizer knows" for i, row in rows.items() if not row.words}
        vectors = np.zeros((len(items), self.dimension), dtype=np.float32)
        for batch in self._batches({i: row for i, row in rows.items() if row.words}):
            vectors[batch] = self._run([rows[i] for i in batch])
        return Encoded.of(vectors, reasons | not_finite(vectors))

    def _batches(self, rows: dict[int, TokenRow]) -> Iterator[list[int]]:
        """Texts of like length together, so that little is padded; of the same length where padding would show."""
        step = self._session.batch or BATCH
        uneven = self._words.masked or self._words.length is not None
        batch: list[int] = []
        for i in sorted(rows, key=lambda i: len(rows[i])):
            if batch and (len(batch) == step or not (uneven or len(rows[i]) == len(rows[batch[0]]))):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _run(self, rows: Sequence[TokenRow]) -> NDArray[np.float32]:
        padded = self._tokens.padded(rows, self._words.length)
        results = self._session.run(self._words.feeds(padded), [self._output.name])
        vectors = self._output.vectors(results[0], padded["attention_mask"])
        if not self._unit:
            return vectors
        norm = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(norm > 0, norm, 1), dtype=np.float32)


def text_model(
    style: TextStyle, files: ModelFiles, session: Session, options: Mapping[str, str]
) -> TextModel:
    """An encoder out of a graph and the files beside it."""
    name = str(files.graph)
    words = Words(session.inputs, name)
    wanted = whole("length", options["length"]) if "length" in options else None
    length = longest(files, wanted, words.length)
    if wanted and wanted > length:
        raise InputError(f"length={wanted}: {name} takes {length} tokens; give that or fewer")
    tokenizer = files.require("tokenizer.json", "to turn texts into tokens")
    tokens = Tokens(tokenizer, length, files.settings("tokenizer_config.json").get("pad_token"))
    blank = tokens.padded([TokenRow([tokens.pad], [0], 1)], words.length)
    choice = Choice(style.pool, style.preferred, options.get("output"), options.get("pool"))
    output = choice.among(measured(session, words.feeds(blank)), name)
    identity = (
        f"{style.name} kind=text length={length} pad={tokens.pad} {output} "
        f"scaled={'unit' if style.unit else 'no'} tokenizer={sha256(tokenizer)[:16]} weights={files.weights}"
    )
    return TextModel(identity, session, words, tokens, output, style.unit)
