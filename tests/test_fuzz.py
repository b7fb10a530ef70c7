"""Damaged files: a short run of tests/fuzz.py, and what longer runs found."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import fuzz
import numpy as np
import pytest

from divscore import ControlSet, sources
from divscore.control.similarity import usable_rows
from divscore.errors import FileError

HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (48, 8), }"


def npy(header: bytes, length: int | None = None) -> bytes:
    size = len(header) if length is None else length
    return b"\x93NUMPY\x02\x00" + size.to_bytes(4, "little") + header + bytes(48 * 8 * 4)


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    # As many as fit into five seconds on any machine.
    for number, problem in fuzz.run(1, 5, tmp_path):
        assert not problem, f"make it again with tests/fuzz.py --seed 1 --case {number}"


def test_undamaged_files_are_read(tmp_path: Path) -> None:
    for original in fuzz.originals():
        path = tmp_path / f"whole{original.suffix}"
        path.write_bytes(original.data)
        original.open(path)


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace(b")", b"("),  # tokenize.TokenError, which is no ValueError
        HEADER.replace(b"(48", b"'''"),
        HEADER.replace(b"<f4", b"\\?4"),  # evaluated with a warning
        HEADER.replace(b"<f4", b"<f\xff"),
        HEADER[:30],
        b"(" * 9000,
    ],
)
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_the_header_of_an_array_is_damaged(tmp_path: Path, header: bytes, form: str) -> None:
    path = tmp_path / f"a.{form}"
    if form == "npy":
        path.write_bytes(npy(header))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("embedding.npy", npy(header))
    with pytest.raises(FileError, match=rf"a\.{form}.*cannot be read"):
        sources.open(path)


def test_a_header_that_unpacks_to_gigabytes_is_not_read(tmp_path: Path) -> None:
    class Counted(io.BytesIO):
        most = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.most = max(self.most, size or 0)
            return super().read(size)

    from divscore.sources.arrays import read_header

    stream = Counted(npy(HEADER, 0xFFFFFFF0))
    with pytest.raises(ValueError, match="header has 4,294,967,280 bytes"):
        read_header(stream, "a.npy")
    assert stream.most < 100


def test_signalling_nan_of_a_damaged_file_is_no_warning() -> None:
    vectors = np.ones((4, 2), dtype=np.float32)
    vectors.view(np.uint32)[1, 0] = 0x7F800001
    assert usable_rows(vectors).tolist() == [True, False, True, True]
    with pytest.raises(ValueError, match="NaN"):
        ControlSet(vectors, list("abab"), attribute="letter")
