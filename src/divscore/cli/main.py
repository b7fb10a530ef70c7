"""`divscore`: the group of commands, each imported when it is called."""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from divscore import __version__
from divscore.text import printable

TYPED = "divscore.typed"  # where a command finds the words that were typed

# Command → its file and its line in `divscore --help`, which must not import the files.
COMMANDS = {
    "audit": ("audit", "Audit images, texts or vectors against a control set."),
    "compare": ("compare", "Find the estimator, control set and number of labels for your items."),
    "control": ("control", "Choose, show, check and publish control sets."),
    "demo": ("demo", "Audit three lists of first names that come with divscore."),
    "diff": ("diff", "Show what changed between two audits, and how certain it is."),
    "embed": ("embed", "Turn images or texts into vectors once; resumes after an interruption."),
    "encoders": ("embed", "List the encoders, and which are ready to use."),
    "label": ("serve", "Label items of a collection in the browser, and get the answer."),
    "merge": ("sketch", "Merge sketches of parts into one."),
    "plan": ("plan", "Estimate how many labels you need."),
    "reproduce": ("reproduce", "Regenerate the paper's figures from its data, next to ours."),
    "sample": ("sample", "Draw items of a collection to label."),
    "serve": ("serve", "Serve the web app and its API on this computer."),
    "sketch": ("sketch", "Reduce a collection to a small file that can be audited later."),
    "verify": ("verify", "Check the evidence of a page audit."),
}


class LazyGroup(click.Group):
    """Knows its commands by name, and imports them on use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was typed, for reports."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its errors are one clean line."""
        from divscore.cli.console import boundary

        with boundary():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file, and only that: all of them take half a second."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"divscore.cli.{COMMANDS[cmd_name][0]}_command")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the command that was probably meant."""
        close = get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and close:
            ctx.fail(f"No such command '{printable(args[0])}'. Did you mean '{close[0]}'?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, and options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

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

    Exit codes: 0 fine, 1 a limit is exceeded, 2 error, 3 inconclusive.

    \b
    To complete commands, options and files with the tab key in bash (zsh: zsh_source), run
      eval "$(_DIVSCORE_COMPLETE=bash_source divscore)"
    """
    # Pillow warns about odd metadata in images, which does not concern the user.
    warnings.filterwarnings("ignore", module="PIL")
