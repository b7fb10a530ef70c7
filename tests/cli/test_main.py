"""The group of commands: help, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

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
