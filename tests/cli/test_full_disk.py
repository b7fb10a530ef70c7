"""A disk that is full: one line that names the file, exit code 2, and nothing partial."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import invoke, run

MOST = 1_000  # bytes of a file


@contextmanager
def full_disk() -> Iterator[None]:
    """The system refuses to write more than a thousand bytes to a file, in whatever library."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


AUDIT = ("audit", "mostly_a.npy", "--control", "labelled.parquet")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("embed", "texts.txt", "-o", "x.arrow"), ".x.arrow.parts/part-00000.arrow"),
        (("embed", "texts.txt", "-o", "out/"), "out/part-00000.arrow"),
        (("embed", "texts.txt", "-o", "x.arrow", "--pca", "4"), "x.arrow.pca.npz"),
        (("sketch", "mostly_a.npy", "--control", "labelled.parquet", "-o", "x.sketch"), "x.sketch"),
        (("merge", "big.sketch", "-o", "x.sketch"), "x.sketch"),
        ((*AUDIT, "--json", "x.json"), "x.json"),
        ((*AUDIT, "--report", "x.html"), "x.html"),
        ((*AUDIT, "--report", "memory://full/x.html"), "x.html, to be uploaded as memory://full/x.html"),
        (("diff", "big.json", "big.json", "--json", "x.json"), "x.json"),
        (("control", "select", "labelled.parquet", "-o", "C"), "C"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_file_that_cannot_be_written_is_named(files: Path, command: tuple[str, ...], name: str) -> None:
    Path("texts.txt").write_text("\n".join(f"a text {at}" for at in range(200)))
    if command[0] == "merge":
        run("sketch", "mostly_a.npy", "--control", "labelled.parquet", "-o", "big.sketch")
    if command[0] == "diff":
        run("audit", "places.parquet", "--control", "labelled.parquet", "--by", "place", "--json", "big.json")
    before = sorted(os.listdir())
    with full_disk():
        done = invoke(*command)
    assert done.exit_code == 2, done.output
    said = done.stderr.splitlines()[-1]
    assert said.startswith("divscore: cannot write ")
    assert said.endswith(f"{name}: File too large")
    assert sorted(os.listdir()) == before


def test_standard_output_and_input_are_named(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    for more in ((), ("--json", "-")):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "divscore", *AUDIT, *more]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert (
            done.stderr.splitlines()[-1] == "divscore: cannot write standard output: No space left on device"
        )
    Path("copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files / "copies"))
    with full_disk():
        done = invoke("audit", "-", "--control", "labelled.parquet", input="text\n" * 2_000)
    assert done.exit_code == 2
    assert "cannot write a temporary copy to" in done.stderr
    assert os.listdir("copies") == []
