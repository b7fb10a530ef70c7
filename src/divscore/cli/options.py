"""Options that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from divscore.cli.console import progress_bar, warn
from divscore.control.controlset import ControlSet
from divscore.encoders.registry import ENCODERS, is_outdated, renew_control
from divscore.errors import InputError
from divscore.jobs.encode import Encoding
from divscore.jobs.pool import read_control
from divscore.sources.places import FORMS
from divscore.text import count

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(readable=False)  # shells complete it; whether it can be read is not for click to say
WORKERS = min(4, os.cpu_count() or 1)


def text(names: str, metavar: str, help: str, **more: Any) -> Callable[[F], F]:
    """An option that takes a text; `names` are separated by spaces."""
    return click.option(*names.split(), metavar=metavar, help=help, **more)


def path(names: str, metavar: str, help: str, **more: Any) -> Callable[[F], F]:
    """An option that takes a path or an address."""
    return text(names, metavar, help, type=PATH, **more)


def number(names: str, least: int, help: str, **more: Any) -> Callable[[F], F]:
    """An option that takes a whole number of at least `least`; the help shows its default."""
    return click.option(
        *names.split(), type=click.IntRange(least), help=help, **{"show_default": True, **more}
    )


def choice(names: str, values: Iterable[str], help: str, **more: Any) -> Callable[[F], F]:
    """An option that takes one of a few words."""
    return click.option(*names.split(), type=click.Choice(list(values)), help=help, show_default=True, **more)


def names(metavar: str, help: str) -> Callable[[F], F]:
    """The option --groups, which takes names."""

    def split(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
        return [name.strip() for name in value.split(",")] if value else None

    return text("--groups", metavar, help, callback=split)


def flag(names: str, help: str) -> Callable[[F], F]:
    """An option that is given or not."""
    return click.option(*names.split(), is_flag=True, help=help)


def _check_address(context: click.Context, parameter: click.Parameter, address: str | None) -> str | None:
    if address is not None and not address.strip():
        raise click.BadParameter("is empty; expected the address that 'dask scheduler' prints, or its file")
    return address


def _read_names(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> dict[str, str] | None:
    """Read LABEL=NAME pairs."""
    names: dict[str, str] = {}
    for pair in (part for word in words for part in word.split(",")):
        label, _, name = (part.strip() for part in pair.partition("="))
        if not label or not name:
            raise click.BadParameter(f"takes LABEL=NAME, such as 0=female,1=male, got '{pair}'")
        if names.setdefault(label, name) != name:
            raise click.BadParameter(f"gives '{label}' two names, '{names[label]}' and '{name}'")
    return names or None


control = path(
    "--control control_path", "C", "Control set, or labelled examples: a table or a folder.", required=True
)
optional_control = path(
    "--control control_path",
    "C",
    "Control set, or labelled examples: a table or a folder. Not needed with labels of the collection itself.",
)
attribute = text("--attribute", "NAME", "Column of group names; 'gender×tone' for intersections.")
groups = names("A,B", "Order of the groups: disparity = share(A) − share(B).")
rename = text(
    "--rename",
    "LABEL=NAME,...",
    "Names for labels: 0=female,1=male. Labels with one name become one group.",
    multiple=True,
    callback=_read_names,
)
pool = click.argument("pool", metavar="POOL", type=PATH)
control_set = click.argument("path", metavar="C", type=PATH)
sketch_file = path("-o --out", "FILE", "Sketch file to write, here or in a store (s3://…).", required=True)
confidence = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Level of the interval."
)
column = text("--column", "NAME", "Column of texts, image paths or vectors, if there are several.")
by = text(
    "--by",
    "COLUMN",
    "Treat every value of this column as its own collection ('folder' for images), in one pass.",
)
seed = number(
    "--seed",
    0,
    "Seed of all random choices: the same seed, input and version give the same result.",
    default=0,
)
strict = flag("--strict", "Stop at the first item that would be skipped.")
verbose = flag("--verbose", "List the skipped items.")
json_flag = flag("--json as_json", "Print JSON.")
json = path(
    "--json json_path",
    "FILE|-",
    "Write the result as JSON, here or in a store (s3://…); '-' prints it instead of the table.",
)
workers = number(
    "--workers", 1, "Number of parallel workers.", default=WORKERS, show_default="cores, at most 4"
)
cluster = text(
    "--cluster",
    "ADDRESS",
    "Work on a Dask cluster: the scheduler's address, such as tcp://10.0.0.5:8786, or its scheduler file.",
    callback=_check_address,
)
encoder = choice(
    "--encoder",
    ENCODERS,
    "What turns items into vectors. By default the control set's encoder, faces for images, text for texts.",
)
model = path("--model", "PATH", "Weights of the encoder; see 'divscore encoders'.")
no_cache = flag("--no-cache", "Do not keep vectors of encoded items.")
ENCODING = (
    encoder,
    model,
    text("--encoder-option -E", "NAME=VALUE", "A setting of the encoder; repeatable.", multiple=True),
    choice("--faces", ["largest", "all"], "Which faces of an image are counted.  [default: largest]"),
    path("--pca", "N|FILE", "Shorten vectors to N numbers, or with a projection that was saved earlier."),
    path("--cache", "DIR", "Where the vectors of encoded items are kept, for later runs."),
    no_cache,
    choice("--format form", FORMS, "Format of '-' or of a file with another suffix."),
)


def encoding_options(command: F) -> F:
    """Add the options about encoders, and pass the command an `encoding` instead of them."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        encoder: str | None,
        model: str | None,
        encoder_option: tuple[str, ...],
        faces: str | None,
        pca: str | None,
        cache: str | None,
        no_cache: bool,
        form: str | None,
        **kwargs: Any,
    ) -> Any:
        options = {}
        for pair in (*encoder_option, *([f"faces={faces}"] if faces else ())):
            name, equals, value = pair.partition("=")
            if not equals or not name:
                raise InputError(f"--encoder-option takes NAME=VALUE, got '{pair}'")
            options[name.strip()] = value.strip()
        size = int(pca) if pca is not None and pca.lstrip("+-").isdigit() else pca
        if isinstance(size, int) and size < 1:
            raise InputError(f"--pca {pca}: expected a number of at least 1, or a file")
        folder = False if no_cache else (cache or True)
        workers = int(kwargs.get("workers") or WORKERS)
        with Encoding(
            encoder, model=model, options=options, pca=size, cache=folder, workers=workers
        ) as encoding:
            try:
                return command(*args, encoding=encoding, form=FORMS.get(form or "", ""), **kwargs)
            finally:
                for trouble in encoding.troubles():
                    warn(trouble)
                # Vectors of faces are personal: whoever gets a copy on disk should know.
                if encoding.stored:
                    kept = f"kept the vectors of {count(encoding.stored, 'items')} in {encoding.cache} for later runs"
                    warn(f"{kept}; --no-cache keeps none")

    # Decorators apply from the inside out, and help lists the outermost first.
    for option in reversed(ENCODING):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def read_pool(
    path: str, encoding: Encoding, *, groups: list[str] | None = None, **options: Any
) -> ControlSet:
    """Read labelled examples or a control set; the options are those of the command line."""
    control = read_control(path, encoding, order=groups, progress=progress_bar, warn=warn, **options)
    if control.encoder and is_outdated(control.encoder):
        warn(f"{path} {renew_control(control.encoder)}")
    return control
