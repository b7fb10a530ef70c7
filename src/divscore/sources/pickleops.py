"""A look over a pickle's opcodes before anything is built: every length and every memo number fits the file."""

from __future__ import annotations

import mmap
import pickletools
import struct

from divscore.errors import FileError

__all__ = ["check_opcodes"]

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
