"""SIGTERM ends a command cleanly."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["audit", "-"], ["sketch", "-", "-o", "x.sketch"], ["embed", "-", "-o", "x.arrow"]],
    ids=lambda c: c[0],
)
def test_a_command_that_is_asked_to_end_does_so_cleanly(tmp_path: Path, command: list[str]) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 8))
    np.savez(tmp_path / "c.npz", embedding=vectors, group=np.repeat(["a", "b"], 20))
    against = [] if command[0] == "embed" else ["--control", "c.npz"]
    pipe = subprocess.PIPE
    running = subprocess.Popen(
        [sys.executable, "-m", "divscore", *command, *against],
        cwd=tmp_path,
        stdin=pipe,
        stderr=pipe,
        text=True,
    )
    assert running.stdin is not None
    running.stdin.write("text\nwords\n")
    running.stdin.flush()
    left = bytearray(b"\1\0\0\0")
    while any(left):  # until it has read what is there, and waits for more
        assert running.poll() is None
        fcntl.ioctl(running.stdin, termios.FIONREAD, left)
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=30)[1]
    assert running.returncode == 128 + signal.SIGTERM
    assert said.splitlines()[-1] == "stopped"
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]
