"""The group of commands: help, errors and exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from commands import run

from divscore.cli import main


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["audit", "absent.npy", "--control", "labelled.parquet"], "absent.npy"),
        (["audit", "even.npy", "--control", "absent.parquet"], "absent.parquet"),
        (["audit", "even.npy", "--control", "labelled.parquet", "--attribute", "colour"], "colour"),
        (["audit", "even.npy", "--control", "labelled.parquet", "--groups", "a,c"], "'c'"),
        (["audit", "even.npy", "--control", "labelled.parquet", "--confidence", "2"], "confidence"),
        (["audit", "places.parquet", "--control", "labelled.parquet", "--by", "planet"], "planet"),
        (["control", "select", "labelled.parquet", "-o", "C", "--size", "500"], "500"),
        (["control", "select", "labelled.parquet", "-o", "C", "--alpha", "much"], "much"),
        (["merge", "even.npy", "-o", "x.sketch"], "not a sketch"),
    ],
)
def test_errors_are_one_clean_line(files, args, message):
    result = run(*args, code=2)
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith("divscore: ")
    assert result.stderr.count("\n") == 1


def test_every_command_has_help_with_an_example():
    for command in (["audit"], ["plan"], ["sketch"], ["merge"], ["control", "select"]):
        result = run(*command, "--help")
        assert "Example" in result.stdout, command
        assert "divscore " in result.stdout


HELP = """
import sys
from click import Context
from divscore.cli import main

def show(words, command):
    try:
        main([*words, "--help"], prog_name="divscore")
    except SystemExit:
        pass
    for name, below in getattr(command, "commands", {}).items():
        show([*words, name], below)

for name in main.list_commands(Context(main)):
    show([name], main.get_command(Context(main), name))
print(*sys.modules, file=sys.stderr)
"""


def test_help_loads_nothing_that_takes_long():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage: divscore ") >= 16  # every command and sub-command
    loaded = set(done.stderr.splitlines()[-1].split())
    heavy = {"scipy", "pyarrow", "matplotlib", "pandas", "jinja2", "fsspec", "rich", "PIL", "distributed"}
    assert not loaded & heavy


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("divscore ", ["plain,audit", "plain,compare", "plain,control", "plain,demo", "plain,diff"]),
        ("divscore em", ["plain,embed"]),
        ("divscore audit --est", ["plain,--estimator"]),
        ("divscore audit --estimator rec", ["plain,rectified"]),
        ("divscore audit pho", ["file,pho"]),
        ("divscore audit photos --control ", ["file,"]),
        ("divscore control s", ["plain,select", "plain,show"]),
    ],
)
def test_a_shell_completes_commands_options_and_files(typed: str, offered: list[str]) -> None:
    number = str(typed.count(" "))
    shell = {"_DIVSCORE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": number}
    told = CliRunner().invoke(main, [], prog_name="divscore", env=shell)
    assert told.stdout.splitlines()[: len(offered)] == offered


def test_the_help_says_how_to_turn_completion_on() -> None:
    assert 'eval "$(_DIVSCORE_COMPLETE=bash_source divscore)"' in run("--help").stdout
    shell = {"_DIVSCORE_COMPLETE": "zsh_source"}
    assert "#compdef divscore" in CliRunner().invoke(main, [], prog_name="divscore", env=shell).stdout


def test_every_option_has_a_help_text():
    def commands(group: click.Group, context: click.Context) -> Iterator[click.Command]:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield command
            if isinstance(command, click.Group):
                yield from commands(command, context)

    for command in commands(main, click.Context(main)):
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{command.name} {option.opts[0]}"


def test_a_misspelt_command_is_answered_with_the_likely_one():
    told = CliRunner().invoke(main, ["adit"])
    assert told.exit_code == 2
    assert "No such command 'adit'. Did you mean 'audit'?" in told.stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr


def test_standard_input_and_exit_code_of_a_real_process(files):
    rows = np.load("mostly_a.npy")
    text = "".join(json.dumps({"v": row.tolist()}) + "\n" for row in rows)
    command = [
        sys.executable,
        "-m",
        "divscore",
        "audit",
        "-",
        "--control",
        "labelled.parquet",
        "--max-disparity",
        "0.1",
    ]
    result = subprocess.run(command, input=text, capture_output=True, text=True, env=os.environ, check=False)
    assert result.returncode == 1, result.stderr
    assert "Between" in result.stdout


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
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 128 + signal.SIGTERM
    assert said.splitlines()[-1] == "stopped"
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]
