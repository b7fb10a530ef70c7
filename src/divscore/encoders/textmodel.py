"""Texts through an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.digest import digest_of, short
from divscore.encoders.encoding import Encoded
from divscore.encoders.imageconfig import whole
from divscore.encoders.onnxfile import ModelFiles
from divscore.encoders.outputs import PREFERRED, Choice, Output, measured, not_finite
from divscore.encoders.session import Port, Session
from divscore.encoders.tokens import TokenRow, Tokens, longest
from divscore.errors import InputError

__all__ = ["INPUTS", "TextModel", "TextStyle", "text_model"]

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
        f"scaled={'unit' if style.unit else 'no'} tokenizer={short(digest_of([tokenizer]))} weights={files.weights}"
    )
    return TextModel(identity, session, words, tokens, output, style.unit)
