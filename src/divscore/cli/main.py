"""`divscore`: the group of commands, each loaded when it is called."""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from divscore import __version__
from divscore.text import printable

__all__ = ["TYPED", "main"]

TYPED = "divscore.typed"  # where a command finds the words that were typed

# Command → (module, what `divscore --help` says), so that help needs none of the modules.
COMMANDS = {
    "audit": ("divscore.cli.audit_command", "Audit images, texts or vectors against a control set."),
    "compare": (
        "divscore.cli.compare_command",
        "Which estimator, control set and number of labels suit your items?",
    ),
    "control": ("divscore.cli.control_command", "Choose, show, check and publish control sets."),
    "demo": ("divscore.cli.demo_command", "Audit three lists of first names that come with divscore."),
    "diff": ("divscore.cli.diff_command", "What changed between two audits, and is that beyond doubt?"),
    "embed": (
        "divscore.cli.embed_command",
        "Turn images or texts into vectors once; goes on after an interruption.",
    ),
    "encoders": ("divscore.cli.embed_command", "List what turns items into vectors, and what is ready."),
    "merge": ("divscore.cli.sketch_command", "Join sketches of parts into one."),
    "plan": ("divscore.cli.plan_command", "How many labels for an interval of a wanted width?"),
    "reproduce": (
        "divscore.cli.reproduce_command",
        "Regenerate the paper's figures from its data, with ours beside.",
    ),
    "sketch": (
        "divscore.cli.sketch_command",
        "Reduce a collection to some kilobytes that can be audited later.",
    ),
}


class LazyGroup(click.Group):
    """Knows its commands by name and imports them on use."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Keep what was typed, which a report repeats."""
        typed = list(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[TYPED] = typed
        return context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a first audit."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the command that was probably meant."""
        close = get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and close:
            ctx.fail(f"No such command '{printable(args[0])}'. Did you mean '{close[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="divscore")
def main() -> None:
    """How unevenly are groups represented in an unlabelled collection, and how sure are we?

    \b
    Try it:      divscore demo
    Then:        divscore audit photos/ --control labelled/ --attribute gender
    In a gate:   divscore audit photos.npy --control labelled.parquet --max-disparity 0.2

    Exit codes: 0 fine, 1 beyond a limit that was given, 2 error, 3 inconclusive.
    """
    # Pillow warns of odd metadata inside pictures, which is nobody's concern here.
    warnings.filterwarnings("ignore", module="PIL")
