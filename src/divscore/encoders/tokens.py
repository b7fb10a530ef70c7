"""Texts as token numbers, by a tokenizer.json as the `tokenizers` library reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.onnxfile import ModelFiles
from divscore.errors import FileError, InputError

__all__ = ["TokenRow", "Tokens", "longest"]

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
