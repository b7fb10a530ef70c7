"""`divscore serve` and `divscore label`."""

from __future__ import annotations

from typing import Any

import click

from divscore.cli import options as opt
from divscore.cli.console import say, warn
from divscore.errors import MissingExtraError

FOLDER = "divscore-project"
port = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    show_default="8642, or the next that is free",
    help="Port on 127.0.0.1; 0 is any.",
)
LABEL_EXAMPLES = """
\b
Examples:
  divscore label photos/
  divscore label photos/ --groups female,male --attribute gender
  divscore label posts.csv --column text --project dialect-study
"""
SERVE_EXAMPLES = """
\b
Examples:
  divscore serve
  divscore serve study --source photos/ --control gender-control
  divscore serve study --watch incoming/ --control gender-control
  divscore serve study --headless --port 9000
"""


def _serve(folder: str, *, no_cache: bool, **options: Any) -> None:
    try:
        from divscore.web.server import serve as run
    except ImportError as error:
        raise MissingExtraError.of("the web app needs FastAPI and uvicorn", "web") from error
    run(folder, say=_said, cache=not no_cache, **options)


def _said(line: str) -> None:
    if line.startswith("http"):
        warn("Open this address in a browser; Ctrl-C stops the server. All labels are saved at once.")
    say(line)


@click.command(epilog=LABEL_EXAMPLES)
@click.argument("source", metavar="SOURCE", type=opt.PATH)
@opt.names("A,B,...", "Names of the groups; the page asks for them if they are left out.")
@opt.text("--attribute", "NAME", "What the groups are values of, such as gender.")
@opt.path(
    "--project", "FOLDER", "Folder for labels and results; it is created.", default=FOLDER, show_default=True
)
@opt.column
@opt.by
@port
@opt.flag("--no-browser", "Do not open a browser; print the address only.")
@opt.encoder
@opt.model
@opt.no_cache
def label(
    source: str,
    groups: list[str] | None,
    attribute: str | None,
    project: str,
    column: str | None,
    by: str | None,
    port: int | None,
    no_browser: bool,
    **encoding: Any,
) -> None:
    """Label items of a collection in the browser, and get the answer.

    SOURCE is a folder of images, a table with a column of texts, image paths or vectors, or what else 'divscore audit'
    takes. The page draws the sample that 'divscore sample' draws, saves every label at once, and audits the collection
    when all drawn items are labelled. Everything stays on this computer.
    """
    start = {"groups": groups or [], "attribute": attribute, "column": column, "by": by}
    _serve(project, sources=[source], port=port, browser=not no_browser, start=start, **encoding)


@click.command(epilog=SERVE_EXAMPLES)
@click.argument("folder", metavar="[FOLDER]", type=opt.PATH, default=FOLDER)
@opt.path(
    "--source sources",
    "PATH",
    "A collection that can be labelled or audited in the page; repeatable. So is all that is in FOLDER.",
    multiple=True,
)
@opt.path(
    "--control controls",
    "C",
    "A control set that 'divscore control select' wrote; repeatable.",
    multiple=True,
)
@opt.path(
    "--watch",
    "PATH",
    "A folder or table to audit again whenever it changes; repeatable. Needs one --control.",
    multiple=True,
)
@opt.flag(
    "--headless",
    "For servers: open no browser, and print a token for programs, or take the one in $DIVSCORE_TOKEN.",
)
@port
@opt.text("--public-url", "URL", "Address under which a proxy on this computer forwards requests.")
@opt.encoder
@opt.model
@opt.no_cache
def serve(folder: str, **options: Any) -> None:
    """Serve the web app and its API on this computer: label, curate, audit, watch.

    FOLDER is the project folder with labels, control sets and audits; it is created. The API is at /api/v1, described
    in /api/v1/openapi.json. The address that is printed works once, and gives the browser a cookie.
    """
    _serve(folder, **options)
