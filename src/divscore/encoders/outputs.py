"""Which output of a graph holds the vectors, and how several vectors an item become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.encoders.session import Port, Session
from divscore.errors import InputError

__all__ = ["POOLS", "PREFERRED", "Choice", "Output", "measured", "not_finite"]

PREFERRED = (
    "image_embeds",
    "text_embeds",
    "sentence_embedding",
    "embedding",
    "embeddings",
    "pooler_output",
)
POOLS = ("cls", "mean")


@dataclass(frozen=True)
class Output:
    """An output by name, and its pooling: cls (the first vector), mean, or none where there is one vector an item.

    >>> print(Output("last_hidden_state", 384, "mean"))
    output=last_hidden_state pool=mean
    """

    name: str
    dimension: int
    pool: str = "none"

    def __str__(self) -> str:
        return f"output={self.name} pool={self.pool}"

    def vectors(self, result: NDArray[Any], mask: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """One vector an item; the mean is over tokens that the mask (n, tokens) marks with 1."""
        result = result.astype(np.float32, copy=False)
        if self.pool == "none":
            return result.reshape(len(result), -1)
        if self.pool == "cls":
            return result[:, 0]
        if mask is None:
            return np.asarray(result.mean(axis=1))
        if mask.shape != result.shape[:2]:
            raise InputError(
                f"the output {self.name} has {result.shape[1]} vectors for {mask.shape[1]} tokens, so their mean "
                "over tokens is not defined; choose another with output=NAME, or pool=cls"
            )
        weight = mask.astype(np.float32)
        summed = np.einsum("ntd,nt->nd", result, weight, dtype=np.float32)
        return np.asarray(summed / np.maximum(weight.sum(axis=1), 1)[:, None])


@dataclass(frozen=True)
class Choice:
    """What decides which output is taken: the user's `name` and `pool`, or else the first of `preferred` names.

    `usual` pools an output with a vector a token if the user does not say how.
    """

    usual: str
    preferred: Sequence[str] = PREFERRED
    name: str | None = None
    pool: str | None = None

    def among(self, outputs: Sequence[Port], model: str) -> Output:
        """The output to take."""
        if self.pool is not None and self.pool not in POOLS:
            raise InputError(f"pool={self.pool} is unknown; expected {' or '.join(POOLS)}")
        port = self._named(outputs, model) if self.name else self._likely(list(filter(_usable, outputs)))
        if port is None:
            raise InputError(
                f"it is not clear which output of {model} holds the vectors; pass output=NAME, one of "
                f"{_listed(outputs)}"
            )
        if port.rank == 3:
            return Output(port.name, port.fixed(2) or 0, self.pool or self.usual)
        if self.pool is not None:
            raise InputError(f"{model}: the output {port} has one vector an item; leave out pool={self.pool}")
        return Output(port.name, port.fixed(1) or 0)

    def _named(self, outputs: Sequence[Port], model: str) -> Port:
        for port in outputs:
            if port.name == self.name and _usable(port):
                return port
            if port.name == self.name:
                raise InputError(
                    f"{model}: the output {port} holds no vectors; expected numbers of the shape (items, d), "
                    f"(items, tokens, d) or (items, d, 1, 1). There are {_listed(outputs)}"
                )
        raise InputError(f"{model} has no output '{self.name}'; pass output=NAME, one of {_listed(outputs)}")

    def _likely(self, usable: Sequence[Port]) -> Port | None:
        named = {port.name: port for port in usable}
        for name in self.preferred:
            if name in named:
                return named[name]
        ranks = {rank: [port for port in usable if port.rank == rank] for rank in (2, 3, 4)}
        if len(ranks[2]) == 1:
            return ranks[2][0]
        return next(iter(ranks[3] or (not ranks[2] and ranks[4]) or []), None)


def measured(session: Session, blank: Mapping[str, NDArray[Any]]) -> list[Port]:
    """The outputs with all sizes filled in, if need be by running a blank item."""
    if all(_settled(port) for port in session.outputs):
        return list(session.outputs)
    results = session.run(blank, [port.name for port in session.outputs])
    return [
        replace(port, shape=("items", *np.shape(result)[1:]))
        for port, result in zip(session.outputs, results, strict=True)
    ]


def not_finite(vectors: NDArray[np.float32]) -> dict[int, str]:
    """Reasons for rows that overflowed, which happens with models in half precision."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    return {int(row): "made the model give numbers that are not finite" for row in bad}


def _settled(port: Port) -> bool:
    free = {2: (1,), 3: (2,), 4: (1, 2, 3)}.get(port.rank)
    return free is not None and all(port.fixed(axis) for axis in free)


def _usable(port: Port) -> bool:
    shaped = port.rank in (2, 3) or (port.rank == 4 and port.fixed(2) == 1 and port.fixed(3) == 1)
    return shaped and port.type in ("float32", "float16", "float64")


def _listed(outputs: Sequence[Port]) -> str:
    return "; ".join(map(str, outputs))
