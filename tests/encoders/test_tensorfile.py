from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tinybert import safetensors_bytes

from divscore.encoders.tensorfile import read_header, take
from divscore.errors import FileError

library = pytest.importorskip("safetensors.numpy")
in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
FLOATS = arrays.arrays(
    st.sampled_from([np.dtype("<f4"), np.dtype("<f2")]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


@in_one_folder
@given(tensors=st.dictionaries(st.text(min_size=1).filter(lambda t: t != "__metadata__"), FLOATS))
def test_what_the_library_writes_is_read(tensors: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    try:
        library.save_file({name: array.copy() for name, array in tensors.items()}, path)
    except UnicodeEncodeError:  # lone surrogates are no names
        return
    header = read_header(path)
    assert set(header) == set(tensors)
    for name, array in tensors.items():
        if np.isfinite(array).all():
            np.testing.assert_array_equal(take(path, header, name, array.shape), array.astype(np.float32))
        else:
            with pytest.raises(FileError, match="has numbers that are not finite; download it again"):
                take(path, header, name, array.shape)


def test_bfloat16_is_the_upper_half_of_a_float32(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    values = np.array([[1.0, -2.5, 0.0], [3.140625, -1e-30, 3e38]], dtype=np.float32)
    path.write_bytes(safetensors_bytes({"x": values}, "BF16"))
    read = take(path, read_header(path), "x", (2, 3))
    np.testing.assert_array_equal(read, (values.view(np.uint32) & 0xFFFF0000).view(np.float32))


@in_one_folder
@given(data=st.data())
def test_damaged_files_are_refused_or_read(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    whole = bytearray(safetensors_bytes({"x": np.ones((2, 3)), "y": np.ones(4)}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with suppress(FileError):  # and no other error
        header = read_header(path)
        for name, tensor in header.items():
            assert take(path, header, name, tensor.shape).shape == tensor.shape


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]},
            "x lies outside the file; the file is damaged",
        ),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}, "x lies outside the file"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "x lies outside the file"),
        (
            {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
            "x has 8 bytes; expected 12 for F32 of shape",
        ),
        ({"dtype": "F32", "shape": [10**30], "data_offsets": [0, 8]}, "x has 8 bytes; expected 4,000,000"),
        ({"dtype": "F32", "shape": [2]}, "x: .*data_offsets"),
        (
            {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
            "is of type I64; expected float32, float16 or",
        ),
        ({"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}, "is of type F8_E4M3; expected float32"),
        ("F32", "x: expected an object"),
    ],
)
def test_wrong_headers_are_named(entry: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    path.write_bytes(safetensors_bytes({"y": np.ones(2)}, x=entry))
    with pytest.raises(FileError, match=says) as caught:
        take(path, header := read_header(path), "x", header["x"].shape)
    assert str(path) in str(caught.value)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    for content, says in {
        b"": "is not a weights file; expected weights as .safetensors",
        b"PK\x03\x04" + bytes(80): "a zip archive, such as PyTorch's .pth",
        struct.pack("<Q", 1 << 40) + b"{}": "has 10 bytes and announces a header of 1,099,511,627,776",
        struct.pack("<Q", 9) + b'{"x": [1]': "the header of .* is not valid JSON",
    }.items():
        path.write_bytes(content)
        with pytest.raises(FileError, match=says):
            read_header(path)
    with pytest.raises(FileError, match="no such file"):
        read_header(tmp_path / "lost.safetensors")
