"""The command line: one file a noun."""

from divscore.cli.main import main

__all__ = ["main"]
