"""Options that several commands share: encoders, cache and workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from divscore.encoders.registry import ENCODERS
from divscore.errors import InputError
from divscore.jobs.cache import default_cache
from divscore.jobs.encode import Encoding
from divscore.sources.places import FORMS

__all__ = ["cluster_option", "encoding_options", "workers_option"]


F = TypeVar("F", bound=Callable[..., Any])


def encoding_options(command: F) -> F:
    """Add the options, and hand the command an `encoding` in their place."""

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
        options = _options(encoder_option, faces)
        folder = None if no_cache else (cache or default_cache())
        count = _number(pca)
        workers = int(kwargs.get("workers") or min(4, os.cpu_count() or 1))
        with Encoding(
            encoder, model=model, options=options, pca=count, cache=folder, workers=workers
        ) as encoding:
            return command(*args, encoding=encoding, form=FORMS.get(form or "", ""), **kwargs)

    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


OPTIONS = (
    click.option(
        "--encoder",
        type=click.Choice(list(ENCODERS)),
        help="What turns items into vectors; by default the control set's own, faces for images, ngrams for texts.",
    ),
    click.option("--model", metavar="PATH", help="Weights of the encoder ('divscore encoders' says which)."),
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
        help="Which faces of an image count.  [default: largest]",
    ),
    click.option(
        "--pca", metavar="N|FILE", help="Shorten vectors to N numbers, or as a projection saved earlier does."
    ),
    click.option("--cache", metavar="DIR", help="Where vectors of items encoded before are kept."),
    click.option("--no-cache", is_flag=True, help="Keep no vectors of items."),
    click.option(
        "--format", "form", type=click.Choice(list(FORMS)), help="What '-' or a file of another suffix holds."
    ),
)


def _number(pca: str | None) -> int | str | None:
    if pca is None or not pca.lstrip("+-").isdigit():
        return pca
    if int(pca) < 1:
        raise InputError(f"--pca {pca}: expected a number of at least 1, or a file")
    return int(pca)


def _options(pairs: tuple[str, ...], faces: str | None) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark or not name:
            raise InputError(f"--encoder-option takes NAME=VALUE, got '{pair}'")
        options[name.strip()] = value.strip()
    if faces:
        options["faces"] = faces
    return options


# Where a command's passes run: `--workers` and `--cluster`.

workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    default=min(4, os.cpu_count() or 1),
    show_default="cores, at most 4",
    help="How many work at once.",
)


def _named(context: click.Context, parameter: click.Parameter, address: str | None) -> str | None:
    if address is not None and not address.strip():
        raise click.BadParameter("is empty; give the address that 'dask scheduler' prints, or its file")
    return address


cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    callback=_named,
    help="Work on a Dask cluster: its scheduler's address, such as tcp://10.0.0.5:8786, or its scheduler file.",
)
