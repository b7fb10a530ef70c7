"""Stand-ins for what numpy names in a pickle: a token, a type, and an array that checks what it is filled with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["PlainArray", "PlainType", "Token"]

TYPES = re.compile(r"[<>|=]?(?:f[248]|[iu][1248]|b1|[SU][0-9]{1,9}|O[48]?)")


class Token:
    """What a name in a file stands for: something that can be called, and neither looked into nor changed."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __call__(self, *args: Any) -> Any:
        """Do what the stand-in does."""
        return self._call(*args)


class PlainType:
    """A numpy dtype as a file describes it, of which only kind, size and byte order are believed."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: Any, *_: Any) -> None:
        if not (isinstance(code, str) and TYPES.fullmatch(code)):
            raise ValueError(f"an array of type {code!r}; expected numbers, texts or objects")
        self._code = code.lstrip("<>|=")
        self._order = code[0] if code[0] in "<>" else "="

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) >= 5 and state[2:5] == (None, None, None)):
            raise ValueError("an array of records; expected numbers, texts or objects")
        self._order = state[1] if state[1] in ("<", ">") else self._order

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, made anew from its name."""
        return np.dtype("O" if self._code[0] == "O" else self._order + self._code)


class PlainArray(np.ndarray[Any, Any]):
    """An array that is filled once, from a state that must add up; otherwise like any other array.

    `charge` is told how many bytes or entries it takes. Copied by pickle it becomes an ordinary array.
    """

    charge: Callable[[int], None]

    def __setstate__(self, state: Any) -> None:
        charge = self.__dict__.pop("charge")
        *_, shape, kind, fortran, raw = state
        if not (
            isinstance(kind, PlainType) and isinstance(shape, tuple) and all(type(n) is int for n in shape)
        ):
            raise ValueError("an array's description is not numpy's")
        dtype = kind.dtype
        if min(shape, default=0) < 0 or not dtype.itemsize:
            raise ValueError(f"an array has shape {shape} and type {dtype}")
        objects = dtype.kind == "O"
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(raw, list if objects else (bytes, bytearray)):
            raise ValueError(f"an array of type {dtype} comes as a {type(raw).__name__}")
        expected = math.prod(shape) * (1 if objects else dtype.itemsize)
        if len(raw) != expected:
            raise ValueError(
                f"an array of shape {shape} has {len(raw)} bytes or entries, expected {expected}"
            )
        charge(expected)
        filling: Any = (1, shape, dtype, bool(fortran), raw if objects else bytes(raw))
        super().__setstate__(filling)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)
