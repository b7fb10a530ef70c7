"""Plain data out of pickle files: numbers, texts, lists, dicts and numpy arrays, and nothing that can act.

Python's own reader calls whatever a file names. This one is given stand-ins for the handful of names that numpy
and gensim write, refuses every other name, and never lets numpy rebuild a dtype from a file's description,
which could lay objects over bytes. Before it starts, all lengths in the file are held against the file's size.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import struct
from collections.abc import Collection
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError
from divscore.sources.pickleops import check_opcodes
from divscore.sources.plainarray import PlainArray, PlainType, Token

__all__ = ["Record", "read_object_npy", "read_plain"]

DAMAGE = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
PLAIN = (str, int, float, np.number, np.bool_, type(None))


class Record:
    """An object of a class that the caller named: only its state, as the file has it."""

    __slots__ = ("state",)
    name = ""

    def __new__(cls, *_: Any) -> Record:
        """Make an empty one; what the class itself would do with arguments is not done."""
        made = super().__new__(cls)
        made.state = {}
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError(f"the state of {self.name} is not a dict")
        self.state: dict[Any, Any] = state


def read_plain(source: str | os.PathLike[str] | BinaryIO, records: Collection[str] = ()) -> Any:
    """Read a pickle that holds plain data; objects of the classes named in `records` come back as `Record`."""
    if not isinstance(source, (str, os.PathLike)):
        data = source.read()
        return _load(io.BytesIO(data), data, 0, str(getattr(source, "name", "the stream")), records)
    label = os.fspath(source)
    with _opened(label) as stream:
        return _mapped(stream, 0, label, records)


def read_object_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read a .npy file, also one of objects: arrays of numbers or texts, lists, dicts, texts, numbers and None."""
    label = os.fspath(path)
    with _opened(label) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            shape, fortran, dtype = _header(stream)
        except DAMAGE as error:
            raise _damaged(label, "a numpy array", error) from error
        start, count = stream.tell(), math.prod(shape)
        objects = dtype.kind == "O"
        if dtype.hasobject and not objects:
            raise FileError(f"{label} holds records with objects inside ({dtype}), which are not plain data")
        if not objects and count * (dtype.itemsize or 1) > size - start:
            raise FileError(
                f"{label} is truncated: {size} bytes, expected {start + count * dtype.itemsize} for shape {shape}; "
                "make or fetch it again"
            )
        if not objects:
            return np.fromfile(stream, dtype, count).reshape(shape, order="F" if fortran else "C")
        found = _mapped(stream, start, label, ())
    if not isinstance(found, np.ndarray) or found.shape != shape:
        raise FileError(f"{label} is damaged: its objects do not have the shape {shape} of its header")
    _check_data(found, label)
    return np.asarray(found)


def _opened(label: str) -> BinaryIO:
    try:
        return open(label, "rb")
    except OSError as error:
        raise FileError(f"{label} cannot be opened ({error.strerror}); check the path") from error


def _mapped(stream: BinaryIO, start: int, label: str, records: Collection[str]) -> Any:
    if os.fstat(stream.fileno()).st_size <= start:
        raise FileError(f"{label} ends before its data; make or fetch it again")
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        stream.seek(start)
        return _load(stream, data, start, label, records)


def _load(stream: BinaryIO, data: bytes | mmap.mmap, start: int, label: str, records: Collection[str]) -> Any:
    try:
        check_opcodes(data, start, label)
        return _Reader(stream, len(data) - start, label, records).load()
    except DAMAGE as error:
        if isinstance(error, FileError):
            raise
        raise _damaged(label, "a pickle of plain data", error) from error


def _damaged(label: str, kind: str, error: Exception) -> FileError:
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return FileError(
        f"{label} cannot be read as {kind}: it is truncated, damaged or of another format ({said}); "
        "make or fetch it again"
    )


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of numpy's format")


def _check_data(found: Any, label: str) -> None:
    waiting, seen = [found], set[int]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, PLAIN) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            waiting += each.ravel().tolist() if each.dtype.kind == "O" else []
        elif isinstance(each, (list, tuple)):
            waiting += each
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        else:
            raise FileError(
                f"{label} contains a {type(each).__name__}; expected arrays, lists, dicts, texts and numbers"
            )


class _Reader(pickle.Unpickler):
    """The unpickler; stand-ins are its own, so that no file can change what the next one meets."""

    def __init__(self, stream: BinaryIO, size: int, label: str, records: Collection[str]) -> None:
        super().__init__(stream, encoding="latin1")  # Python 2's texts, as numpy recommends
        # Protocol 2 writes an array's bytes as a text, which is encoded and then filled in; nothing takes more.
        self._label, self._left = label, 4 * size
        self._known: dict[str, Any] = {
            "__builtin__.bytes": Token(lambda: b""),  # protocols 0 to 2 write empty bytes this way
            "collections.OrderedDict": Token(self._dict),
            "numpy.dtype": Token(PlainType),
        }
        self._ndarray = self._known["numpy.ndarray"] = Token(self._refuse)
        for core in ("numpy.core", "numpy._core"):
            self._known[f"{core}.multiarray._reconstruct"] = Token(self._array)
            self._known[f"{core}.multiarray.scalar"] = Token(self._scalar)
            self._known[f"{core}.numeric._frombuffer"] = Token(self._frombuffer)
        for module in ("codecs", "_codecs"):
            self._known[f"{module}.encode"] = Token(self._encode)
        for name in records:
            self._known[name] = type(name.rpartition(".")[2], (Record,), {"__slots__": (), "name": name})

    def find_class(self, module: str, name: str, /) -> Any:
        """Give the stand-in of an admitted name."""
        try:
            return self._known[f"{module}.{name}"]
        except KeyError:
            raise FileError(
                f"{self._label} contains {module}.{name}, which is not data; it was not read, because loading it "
                "could run a program. Save the numbers with numpy.save or as Parquet instead"
            ) from None

    def persistent_load(self, pid: Any, /) -> Any:
        """Refuse objects kept elsewhere."""
        raise FileError(f"{self._label} refers to data outside the file ({pid!r}), which cannot be read")

    def charge(self, size: int) -> None:
        """Pay for memory out of the file's size, or a small file could ask for one array a million times."""
        self._left -= size
        if self._left < 0:
            raise FileError(f"{self._label} claims more data than it holds; make or fetch it again")

    def _refuse(self, *_: Any) -> Any:
        raise FileError(
            f"{self._label} makes arrays in a way that numpy does not write; save it again with numpy"
        )

    def _dict(self, items: Any = ()) -> dict[Any, Any]:
        self.charge(len(items))
        return dict(items)

    def _encode(self, text: Any, encoding: Any) -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            return bytes(self._refuse())
        self.charge(len(text))
        return text.encode("latin1")

    def _array(self, cls: Any, *_: Any) -> PlainArray:
        if cls is not self._ndarray:
            self._refuse()
        made = np.empty(0, dtype=np.int8).view(PlainArray)
        made.charge = self.charge
        return made

    def _scalar(self, kind: Any, raw: Any) -> Any:
        return self._frombuffer(raw, kind, (1,), "C")[0]

    def _frombuffer(self, raw: Any, kind: Any, shape: Any, order: Any) -> PlainArray:
        made = self._array(self._ndarray)
        made.__setstate__((1, shape, kind, order == "F", raw))
        return made
