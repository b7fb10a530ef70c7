"""The command line as tests use it."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from divscore.cli import main


def invoke(*arguments: str) -> Any:
    """Run a command, whatever comes of it."""
    return CliRunner().invoke(main, list(arguments))


def run(*arguments: str) -> Any:
    """Run a command that must succeed."""
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stderr
    return done


def audited(*arguments: str) -> Any:
    """The document of an audit with the control set c.csv."""
    return json.loads(run("audit", *arguments, "--control", "c.csv", "--json", "-").stdout)
