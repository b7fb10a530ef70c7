"""The command line as tests use it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result, _NamedTextIOWrapper

from divscore.cli import main


def invoke(*arguments: object, **options: Any) -> Result:
    """Run a command, whatever comes of it."""
    return CliRunner().invoke(main, [str(each) for each in arguments], **options)


def run(*arguments: object, code: int = 0, **options: Any) -> Result:
    """Run a command that must end with an exit code."""
    done = invoke(*arguments, **options)
    assert done.exit_code == code, done.output
    return done


def document(*arguments: object, **options: Any) -> Any:
    """The JSON that a command prints with ``--json -``."""
    return json.loads(run(*arguments, "--json", "-", **options).stdout)


def audited(*arguments: object) -> Any:
    """The document of an audit with the control set c.csv."""
    return document("audit", *arguments, "--control", "c.csv")


def on_screen(*arguments: object) -> str:
    """What a command prints if standard output is a terminal, as far as it can tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_NamedTextIOWrapper, "isatty", lambda self: self.name == "<stdout>", raising=False)
        return run(*arguments).stdout


def on_terminal(command: list[str], stream: str, columns: int = 150) -> str:
    """What a process writes to a stream that is a real terminal."""
    screen, inside = pty.openpty()
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    streams: dict[str, Any] = {stream: inside, other: subprocess.DEVNULL}
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([sys.executable, *command], stdin=inside, env=environment, **streams) as process:
        os.close(inside)
        read = bytearray()
        while block := _read(screen):
            read += block
    os.close(screen)
    assert process.returncode == 0, bytes(read)
    return read.decode().replace("\r\n", "\n")


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 1 << 16)
    except OSError:  # the other side is closed
        return b""
