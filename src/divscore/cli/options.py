"""Options that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
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


control = click.option(
    "--control",
    "control_path",
    required=True,
    type=PATH,
    metavar="C",
    help="Control set, or labelled examples: a table or a folder.",
)
optional_control = click.option(
    "--control",
    "control_path",
    type=PATH,
    metavar="C",
    help="Control set, or labelled examples: a table or a folder. Not needed with labels of the collection itself.",
)
attribute = click.option(
    "--attribute", metavar="NAME", help="Column of group names; 'gender×tone' for intersections."
)
groups = click.option(
    "--groups",
    metavar="A,B",
    callback=lambda _, __, names: [name.strip() for name in names.split(",")] if names else None,
    help="Order of the groups: disparity = share(A) − share(B).",
)
rename = click.option(
    "--rename",
    metavar="LABEL=NAME,...",
    multiple=True,
    callback=_read_names,
    help="Names for labels: 0=female,1=male. Labels with one name become one group.",
)
pool = click.argument("pool", metavar="POOL", type=PATH)
control_set = click.argument("path", metavar="C", type=PATH)
sketch_file = click.option(
    "-o",
    "--out",
    required=True,
    metavar="FILE",
    type=PATH,
    help="Sketch file to write, here or in a store (s3://…).",
)
confidence = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Level of the interval."
)
column = click.option(
    "--column", metavar="NAME", help="Column of texts, image paths or vectors, if there are several."
)
by = click.option(
    "--by",
    metavar="COLUMN",
    help="Treat every value of this column as its own collection ('folder' for images), in one pass.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of all random choices: the same seed, input and version give the same result.",
)
strict = click.option("--strict", is_flag=True, help="Stop at the first item that would be skipped.")
verbose = click.option("--verbose", is_flag=True, help="List the skipped items.")
json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json = click.option(
    "--json",
    "json_path",
    metavar="FILE|-",
    type=PATH,
    help="Write the result as JSON, here or in a store (s3://…); '-' prints it instead of the table.",
)
workers = click.option(
    "--workers",
    type=click.IntRange(1),
    default=WORKERS,
    show_default="cores, at most 4",
    help="Number of parallel workers.",
)
cluster = click.option(
    "--cluster",
    metavar="ADDRESS",
    callback=_check_address,
    help="Work on a Dask cluster: the scheduler's address, such as tcp://10.0.0.5:8786, or its scheduler file.",
)
encoder = click.option(
    "--encoder",
    type=click.Choice(list(ENCODERS)),
    help="What turns items into vectors. By default the control set's encoder, faces for images, text for texts.",
)
model = click.option(
    "--model", metavar="PATH", type=PATH, help="Weights of the encoder; see 'divscore encoders'."
)
no_cache = click.option("--no-cache", is_flag=True, help="Do not keep vectors of encoded items.")
ENCODING = (
    encoder,
    model,
    click.option(
        "--encoder-option",
        "-E",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the encoder; repeatable.",
    ),
    click.option(
        "--faces",
        type=click.Choice(["largest", "all"]),
        help="Which faces of an image are counted.  [default: largest]",
    ),
    click.option(
        "--pca",
        metavar="N|FILE",
        type=PATH,
        help="Shorten vectors to N numbers, or with a projection that was saved earlier.",
    ),
    click.option(
        "--cache",
        metavar="DIR",
        type=PATH,
        help="Where the vectors of encoded items are kept, for later runs.",
    ),
    no_cache,
    click.option(
        "--format",
        "form",
        type=click.Choice(list(FORMS)),
        help="Format of '-' or of a file with another suffix.",
    ),
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

    for option in reversed(
        ENCODING
    ):  # decorators apply from the inside out, and help lists the outermost first
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
