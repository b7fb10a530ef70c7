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
import pickletools
import re
import struct
from collections.abc import Callable, Collection
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divscore.errors import FileError

__all__ = ["PlainArray", "PlainType", "Record", "Token", "check_opcodes", "read_object_npy", "read_plain"]


# A look over a pickle's opcodes before anything is built: every length and every memo number fits the file.

# They reach outside the file (persistent ids, the copyreg registry, buffers), or only Python 1 wrote them.
REFUSED = frozenset(
    {"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER", "INST", "OBJ"}
)
NUMBERED = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "FRAME"})
PREFIX = {
    pickletools.TAKEN_FROM_ARGUMENT1: struct.Struct("<B"),
    pickletools.TAKEN_FROM_ARGUMENT4: struct.Struct("<i"),
    pickletools.TAKEN_FROM_ARGUMENT4U: struct.Struct("<I"),
    pickletools.TAKEN_FROM_ARGUMENT8U: struct.Struct("<Q"),
}
OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
SHORT, SPECIAL = -1, -2


def check_opcodes(data: bytes | mmap.mmap, start: int, label: str) -> None:
    """Walk from `start` to the pickle's end.

    A few bytes can claim a text of 2^60 letters or memo number 2^32, and Python's reader makes room before it
    looks further; here each such claim is held against the size of the file.
    """
    at, size, widths = start, len(data), WIDTHS
    while at < size:
        width = widths[data[at]]
        if width >= 0:
            at += 1 + width
        elif width == SHORT and at + 1 < size:
            at += 2 + data[at + 1]
        else:
            at = _after(data, at, size, label)
            if not at:
                return
    raise EOFError("it ends without the mark of its end")


def _after(data: bytes | mmap.mmap, at: int, size: int, label: str) -> int:
    """Where an unusual opcode and its argument end; 0 for the one that ends the pickle."""
    opcode = OPCODES.get(data[at])
    if opcode is None:
        raise ValueError(f"byte {at} is no opcode")
    if opcode.name in REFUSED:
        raise FileError(
            f"{label} contains the opcode {opcode.name}, which reaches outside the file and is not data"
        )
    if opcode.arg is None:
        return 0
    if opcode.arg.n >= 0:
        end = at + 1 + opcode.arg.n
        number = int.from_bytes(data[at + 1 : end], "little")
    elif opcode.arg.n == pickletools.UP_TO_NEWLINE:
        end = _line(data, _line(data, at) - 1 if opcode.name == "GLOBAL" else at)
        number = int(data[at + 1 : end]) if opcode.name in NUMBERED else 0
    else:
        prefix = PREFIX[opcode.arg.n]
        (number,) = prefix.unpack(data[at + 1 : at + 1 + prefix.size])
        end = at + 1 + prefix.size + number
    if not 0 <= number <= size or end > size:
        raise EOFError(f"{number} is announced at byte {at} of {size}")
    return int(end)


def _line(data: bytes | mmap.mmap, at: int) -> int:
    """Where the line ends that begins after this byte."""
    end = data.find(b"\n", at + 1)
    if end < 0:
        raise EOFError("it ends within a line")
    return end + 1


def _widths() -> list[int]:
    """Bytes of each opcode's argument, or how else to look at it."""
    widths = [SPECIAL] * 256
    for code, opcode in OPCODES.items():
        if opcode.name in REFUSED | NUMBERED - {"BINPUT"} or opcode.name == "STOP":
            continue
        if opcode.arg is None or opcode.arg.n >= 0:
            widths[code] = opcode.arg.n if opcode.arg else 0
        elif opcode.arg.n == pickletools.TAKEN_FROM_ARGUMENT1:
            widths[code] = SHORT
    return widths


WIDTHS = _widths()


# Stand-ins for what numpy names in a pickle: a token, a type, and an array that checks what it is filled with.

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
