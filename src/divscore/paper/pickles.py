"""Plain data out of pickled .npy files: numbers, texts, lists, dicts and NumPy arrays, and nothing that can act.

Python's own reader calls whatever a file names. This one finds stand-ins for the few names that NumPy writes, refuses
every other name, and never lets NumPy rebuild a dtype from a file's description, which could lay objects over bytes.
What is built is charged against the size of the file.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.files import PathLike, reason
from divscore.sources.arrays import read_header
from divscore.sources.places import Location

# They reach outside the file (persistent ids, the copyreg registry, buffers), or only Python 1 wrote them.
REFUSED = frozenset(
    {"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER", "INST", "OBJ"}
)
NUMBERED = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "FRAME"})
TYPES = re.compile(r"[<>|=]?(?:f[248]|[iu][1248]|b1|[SU][0-9]{1,9}|O[48]?)")


def read_object_npy(path: PathLike) -> NDArray[Any]:
    """Read a .npy file of objects; what is in them besides plain data can neither be called nor looked into."""
    label = os.fspath(path)
    with Location(label, label).reading("a NumPy array"), open(label, "rb") as stream:
        shape, _, dtype, _ = read_header(stream, label)
        data = stream.read()
    if dtype.kind != "O":
        raise FileError(
            f"{label} has numbers of shape {shape} without file names; expected PPB-2017's names and their vectors"
        )
    array = read_plain(data, label)
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise FileError(f"{label} is damaged: its objects do not have the shape {shape} of its header")
    return np.asarray(array)


def read_plain(data: bytes, label: str) -> Any:
    """Read a pickle of plain data."""
    try:
        # Python's reader makes room for a text of 2^60 letters or for memo number 2^32 before it looks further; this
        # walk compares every such claim with the size of the file.
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in REFUSED:
                raise FileError(
                    f"{label} has the opcode {opcode.name}, which reaches outside the file and is not data"
                )
            if opcode.name in NUMBERED and not 0 <= int(argument or 0) <= len(data):
                raise EOFError(f"{opcode.name} {argument} in {len(data)} bytes")
        return _PlainUnpickler(data, label).load()
    except FileError:
        raise
    except Exception as error:  # damaged files make the reader raise nearly anything
        raise FileError(
            f"{label} cannot be read as a pickle of plain data: it is truncated, damaged or of another format "
            f"({reason(error)}); create or download it again"
        ) from error


class _Token:
    """What a name in a file stands for: it can be called, and neither looked into nor changed."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)


class _Type:
    """A dtype as a file describes it; only kind, size and byte order are believed."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: Any, *_: Any) -> None:
        if not (isinstance(code, str) and TYPES.fullmatch(code)):
            raise ValueError(f"an array of type {code!r}; expected numbers, texts or objects")
        self._code, self._order = code.lstrip("<>|="), code[0] if code[0] in "<>" else "="

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) >= 5 and state[2:5] == (None, None, None)):
            raise ValueError("an array of records; expected numbers, texts or objects")
        self._order = state[1] if state[1] in ("<", ">") else self._order

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("O" if self._code[0] == "O" else self._order + self._code)


class _PlainArray(np.ndarray[Any, Any]):
    """An array that is filled once, from a state that must add up."""

    charge: Callable[[int], None]

    def __setstate__(self, state: Any) -> None:
        charge = self.__dict__.pop("charge")
        *_, shape, kind, fortran, raw = state
        if not (isinstance(kind, _Type) and isinstance(shape, tuple) and all(type(n) is int for n in shape)):
            raise ValueError("an array's description is not NumPy's")
        dtype = kind.dtype
        objects = dtype.kind == "O"
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        expected = math.prod(shape) * (1 if objects else dtype.itemsize)
        if min(shape, default=0) < 0 or not dtype.itemsize:
            raise ValueError(f"an array has shape {shape} and type {dtype}")
        if not isinstance(raw, list if objects else (bytes, bytearray)):
            raise ValueError(f"an array of type {dtype} comes as a {type(raw).__name__}")
        if len(raw) != expected:
            raise ValueError(
                f"an array of shape {shape} has {len(raw)} bytes or entries, expected {expected}"
            )
        charge(expected)
        filling: Any = (1, shape, dtype, bool(fortran), raw if objects else bytes(raw))
        super().__setstate__(filling)


class _PlainUnpickler(pickle.Unpickler):
    """The unpickler; its stand-ins are its own, so that no file can change what the next one meets."""

    def __init__(self, data: bytes, label: str) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")  # Python 2's texts, as NumPy recommends
        # Python 2's texts of bytes are encoded and then copied; nothing takes more.
        self._label, self._left = label, 4 * len(data)
        self._ndarray = _Token(self._refuse)
        self._known = {"numpy.dtype": _Token(_Type), "numpy.ndarray": self._ndarray}
        for core in ("numpy.core", "numpy._core"):
            self._known[f"{core}.multiarray._reconstruct"] = _Token(self._array)
            self._known[f"{core}.multiarray.scalar"] = _Token(self._scalar)

    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return self._known[f"{module}.{name}"]
        except KeyError:
            raise FileError(
                f"{self._label} contains {module}.{name}, which is not data. It was not read, because loading it could "
                "run a program. Save the numbers with numpy.save or as Parquet instead"
            ) from None

    def charge(self, size: int) -> None:
        """Pay for memory out of the file's size, or a small file could ask for one array a million times."""
        self._left -= size
        if self._left < 0:
            raise FileError(f"{self._label} claims more data than it has; create or download it again")

    def _refuse(self, *_: Any) -> Any:
        raise FileError(
            f"{self._label} makes arrays in a way that NumPy does not write; save it again with NumPy"
        )

    def _array(self, cls: Any, *_: Any) -> _PlainArray:
        if cls is not self._ndarray:
            self._refuse()
        array = np.empty(0, dtype=np.int8).view(_PlainArray)
        array.charge = self.charge
        return array

    def _scalar(self, kind: Any, raw: Any) -> Any:
        array = self._array(self._ndarray)
        array.__setstate__((1, (1,), kind, False, raw))
        return array[0]
