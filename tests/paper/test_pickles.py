from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divscore.errors import FileError
from divscore.paper import pickles
from divscore.paper.pickles import read_object_npy

SAMPLE: dict[str, Any] = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "swapped": np.arange(3, dtype=">i4"),
    "texts": np.array(["a", "bé"]),
    "bytes": np.array([b"x", b"yz"]),
    "objects": np.array([1, "x", None], dtype=object),
    "nested": np.array([np.ones(2), [np.zeros(1), {"a": 2}]], dtype=object),
    "empty": np.zeros((0, 300)),
    "flags": np.array([True, False]),
    "scalar": np.float32(1.5),
    "plain": [1, -(2**70), 2.5, "é", None, True, (1, 2), {"k": [3]}, b"raw", {4}],
}


def read_plain(stream: io.BytesIO) -> Any:
    return pickles.read_plain(stream.getvalue(), "a.npy")


def dump(value: Any, protocol: int = 4) -> io.BytesIO:
    return io.BytesIO(pickle.dumps(value, protocol))


def save_objects(path: Path, value: Any) -> Path:
    np.save(path, np.array(value, dtype=object), allow_pickle=True)
    return path


class Calls:
    def __init__(self, function: Any, *args: Any) -> None:
        self.parts = (function, args)

    def __reduce__(self) -> Any:
        return self.parts


def raw(module: str, name: str, *args: str) -> io.BytesIO:
    texts = b"".join(b"V" + arg.encode() + b"\n" for arg in args)
    return io.BytesIO(f"c{module}\n{name}\n(".encode() + texts + b"tR.")


@pytest.mark.parametrize("protocol", [3, 4])
def test_plain_data_comes_back(protocol: int) -> None:
    value = SAMPLE if protocol >= 4 else {**SAMPLE, "plain": SAMPLE["plain"][:-1]}  # sets are no data before
    found = read_plain(dump(value, protocol))
    assert found.keys() == value.keys()
    for name in ("matrix", "columns", "swapped", "texts", "bytes", "objects", "empty", "flags", "scalar"):
        np.testing.assert_array_equal(found[name], value[name])
        assert found[name].shape == value[name].shape
        assert found[name].dtype.newbyteorder("=") == value[name].dtype.newbyteorder("=")
    np.testing.assert_array_equal(found["nested"][0], np.ones(2))
    assert found["nested"][1][1] == {"a": 2}
    assert found["plain"] == value["plain"]


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_are_not_refused_for_their_size(protocol: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, 30_000, dtype=np.uint8)
    np.testing.assert_array_equal(read_plain(dump(values, protocol)), values)


EVIL = {
    "posix.system": lambda mark: dump(Calls(os.system, f"touch {mark}"), 3),
    "os.system": lambda mark: raw("os", "system", f"touch {mark}"),
    "builtins.eval": lambda mark: dump(Calls(eval, f"open({mark!r}, 'w')"), 3),
    "builtins.getattr": lambda mark: dump(Calls(getattr, "a", "upper"), 3),
    "subprocess.Popen": lambda mark: dump(Calls(subprocess.Popen, ["touch", mark]), 3),
    "numpy.testing._private.utils.runstring": lambda mark: raw(
        "numpy.testing._private.utils", "runstring", f"open({mark!r}, 'w')"
    ),
    "numpy.f2py.compile": lambda mark: raw("numpy.f2py", "compile", "x"),
    "numpy.load": lambda mark: dump(Calls(np.load, mark), 3),
    "numpy.memmap": lambda mark: raw("numpy", "memmap", mark),
    "numpy.core.multiarray.fromfile": lambda mark: raw("numpy.core.multiarray", "fromfile", mark),
    "collections.namedtuple": lambda mark: dump(Calls(collections.namedtuple, "x", "y"), 3),
    "copyreg._reconstructor": lambda mark: raw("copyreg", "_reconstructor"),
    "divscore.errors.FileError": lambda mark: raw("divscore.errors", "FileError", "x"),
}


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("wrapped", [False, True])
def test_nothing_is_called(name: str, wrapped: bool, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    stream = EVIL[name](str(mark))
    if wrapped:  # inside a list, behind data that is fine
        stream = io.BytesIO(b"(lVfine\na" + stream.read().removeprefix(b"\x80\x03")[:-1] + b"a.")
    with pytest.raises(FileError, match=f"contains {name.replace('.', '[.]')}, which is not data"):
        read_plain(stream)
    assert not mark.exists()


def test_a_dotted_name_is_no_way_around() -> None:
    attack = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.dumps\x93."
    with pytest.raises(FileError, match=r"numpy\.ndarray\.dumps, which is not data"):
        read_plain(io.BytesIO(attack.replace(b"\x0e", b"\x0d")))


@pytest.mark.parametrize(
    "data",
    [
        b"Pfile\n.",
        b"Vfile\nQ.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"\x84\x01\x00\x00\x00.",
        b"\x80\x05\x97.",
        b"(ios\nsystem\n.",
    ],
    ids=["persid", "binpersid", "ext1", "ext2", "ext4", "buffer", "inst"],
)
def test_opcodes_that_reach_outside(data: bytes) -> None:
    with pytest.raises(FileError, match="reaches outside the file"):
        read_plain(io.BytesIO(data))


NDARRAY = b"cnumpy\nndarray\n"
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n(" + NDARRAY + b"(K\x00tC\x01btR"
DTYPE = b"cnumpy\ndtype\n(X\x02\x00\x00\x00%sK\x00K\x01tR"


def state(shape: bytes, dtype: bytes, data: bytes) -> io.BytesIO:
    return io.BytesIO(RECONSTRUCT + b"(K\x01(" + shape + b"t" + dtype + b"I00\n" + data + b"tb.")


def test_states_by_hand_are_right() -> None:  # so that what follows fails for its own reason
    found = read_plain(state(b"K\x02", DTYPE % b"i1", b"C\x02\x05\x06"))
    assert found.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (state(b"K\x08", DTYPE % b"O8", b"C\x08AAAAAAAA"), "comes as a bytes"),
        (state(b"K\x01", DTYPE % b"V8", b"C\x08AAAAAAAA"), "an array of type 'V8'"),
        (state(b"K\x01", DTYPE % b"M8", b"C\x08AAAAAAAA"), "an array of type 'M8'"),
        (state(b"J\xff\xff\xff\x7f", DTYPE % b"f8", b"C\x08AAAAAAAA"), "expected 17179869176"),
        (state(b"J\xff\xff\xff\xff", DTYPE % b"f8", b"C\x00"), r"shape \(-1,\)"),
        (state(b"K\x09", DTYPE % b"S0", b"C\x00"), "type"),
        (state(b"K\x01", NDARRAY, b"C\x01A"), "not NumPy's"),
        (
            state(b"K\x01", DTYPE % b"f8" + b"(K\x03V|\nN(Va\nt}I8\nI1\nI63\ntb", b"C\x08AAAAAAAA"),
            "an array of records",
        ),
        (io.BytesIO(NDARRAY + b"(M\xff\xfftR."), "in a way that NumPy does not write"),
        (io.BytesIO(RECONSTRUCT.replace(NDARRAY, b"cnumpy\ndtype\n") + b"."), "in a way that NumPy does not"),
        (io.BytesIO(NDARRAY + b"}Vreal\nK\x01sb."), "cannot be read"),
        (io.BytesIO(NDARRAY + b"N}V_call\nK\x01s\x86b."), "cannot be read"),
    ],
)
def test_array_tricks(stream: io.BytesIO, why: str) -> None:
    with pytest.raises(FileError, match=why):
        read_plain(stream)


def test_an_array_is_filled_once() -> None:
    whole = state(b"K\x02", DTYPE % b"i1", b"C\x02\x05\x06").getvalue()
    filling = whole[len(RECONSTRUCT) : -1]
    with pytest.raises(FileError, match="cannot be read"):
        read_plain(io.BytesIO(RECONSTRUCT + filling + filling + b"."))


@pytest.mark.parametrize(
    "data",
    [
        b"Nr\xff\xff\xff\x7f.",
        b"Np4000000000\n.",
        b"Np" + b"0" * 30 + b"4000000000\n.",
        b"Np-1\n.",
        b"\x8e" + struct.pack("<Q", 1 << 60) + b".",
        b"B\xff\xff\xff\xff.",
        b"\x96" + struct.pack("<Q", 1 << 40) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
        b"T\xff\xff\xff\xff.",
    ],
)
def test_claims_larger_than_the_file_cost_nothing(data: bytes) -> None:
    with pytest.raises(FileError, match="truncated, damaged"):
        read_plain(io.BytesIO(data))


def test_one_text_cannot_become_many_arrays() -> None:
    big = b"B\x00\x00\x01\x00" + b"a" * (1 << 16) + b"q\x00"
    kind = b"cnumpy\ndtype\n(X\x06\x00\x00\x00S65536K\x00K\x01tR"
    call = b"cnumpy.core.multiarray\nscalar\nq\x01(" + kind + b"h\x00tq\x02R"
    with pytest.raises(FileError, match="claims more data than it has"):
        read_plain(io.BytesIO(big + call + b"h\x01h\x02R" * 10 + b"."))


def test_every_truncation_is_an_error() -> None:
    whole = dump(SAMPLE).getvalue()
    for end in range(0, len(whole), 7):
        with pytest.raises(FileError):
            read_plain(io.BytesIO(whole[:end]))


def test_random_damage_is_an_error_or_data() -> None:
    rng = np.random.default_rng(0)
    for protocol in (3, 4):
        whole = np.frombuffer(dump(SAMPLE, protocol).getvalue(), dtype=np.uint8)
        for _ in range(400):
            broken = whole.copy()
            broken[rng.integers(len(whole), size=3)] = rng.integers(256, size=3)
            try:
                read_plain(io.BytesIO(broken.tobytes()))
            except FileError:
                continue


def test_object_arrays_of_numpy_files(tmp_path: Path) -> None:
    rows = [np.arange(3.0), np.ones(2, dtype=np.float32)]
    path = save_objects(tmp_path / "a.npy", [rows[0], rows[1], "text", {"k": [1, 2.5]}])
    found = read_object_npy(path)
    assert type(found) is np.ndarray
    assert found.shape == (4,)
    np.testing.assert_array_equal(found[0], rows[0])
    np.testing.assert_array_equal(found[1], rows[1])
    assert found[2:].tolist() == ["text", {"k": [1, 2.5]}]
    np.save(tmp_path / "d.npy", {"x": rows[0]}, allow_pickle=True)  # type: ignore[arg-type]
    np.testing.assert_array_equal(read_object_npy(tmp_path / "d.npy").item()["x"], rows[0])


def test_object_files_with_more_than_data(tmp_path: Path) -> None:
    path = save_objects(tmp_path / "evil.npy", [1, Calls(os.system, f"touch {tmp_path / 'called'}")])
    with pytest.raises(FileError, match=r"posix\.system|nt\.system"):
        read_object_npy(path)
    assert not (tmp_path / "called").exists()
    path = save_objects(tmp_path / "cut.npy", [np.ones(3), "x"])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileError, match=r"cut\.npy cannot be read"):
        read_object_npy(path)
    for content in (b"", b"no numpy file", b"\x93NUMPY\x09\x00"):
        (tmp_path / "other.npy").write_bytes(content)
        with pytest.raises(FileError, match="as a NumPy array"):
            read_object_npy(tmp_path / "other.npy")


def test_a_file_of_numbers_has_no_names(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3)[:2])
    with pytest.raises(FileError, match=r"numbers of shape \(2, 3\) without file names"):
        read_object_npy(tmp_path / "a.npy")


def test_an_object_file_of_another_shape(tmp_path: Path) -> None:
    path = save_objects(tmp_path / "a.npy", [1, "x", 2])
    path.write_bytes(path.read_bytes().replace(b"(3,)", b"(4,)"))
    with pytest.raises(FileError, match="do not have the shape"):
        read_object_npy(path)


def test_a_loop_ends(tmp_path: Path) -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    path = save_objects(tmp_path / "a.npy", [{"a": loop}, 2])
    assert read_object_npy(path)[0]["a"][1][0] == 1
