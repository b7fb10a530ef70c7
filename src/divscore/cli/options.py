"""Options about encoders that several commands share, and what is said while items are encoded."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from divscore.cli.console import progress_bar, warn
from divscore.control.controlset import ControlSet
from divscore.encoders.registry import ENCODERS
from divscore.errors import InputError
from divscore.jobs.cache import default_cache
from divscore.jobs.encode import SEVERAL, Encoding
from divscore.jobs.pool import open_pool
from divscore.jobs.source import EncodedSource
from divscore.sources.folder import FolderItems
from divscore.sources.items import ItemSource
from divscore.sources.sniff import FORMS
from divscore.text import printable

__all__ = ["encoding_options", "read_control", "tell_encoded", "watched"]

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


def read_control(
    path: str,
    encoding: Encoding,
    *,
    fit_with: tuple[ItemSource, ...] = (),
    **asked: Any,
) -> ControlSet:
    """Read labelled examples with a progress bar, and tell what could not be encoded."""
    control = open_pool(path, encoding, fit_with=fit_with, watch=_labelled_bar, **asked)
    if control.left_out:
        told = ", ".join(
            f"{control.counts[name]} of {control.counts[name] + control.left_out.get(name, 0)} '{printable(name)}'"
            for name in control.groups
        )
        warn(f"{path}: encoded {told}; the others have nothing that the encoder could use")
    return control


@contextmanager
def _labelled_bar(source: EncodedSource) -> Iterator[None]:
    with progress_bar("labelled examples", source.rows) as advance:
        source.on_items = advance
        yield


@contextmanager
def watched(source: EncodedSource, verbose: bool = False) -> Iterator[None]:
    """Show a bar of items, and at the end what was seen in them."""
    with progress_bar(source.name, source.rows) as advance:
        source.on_items = advance
        yield
    tell_encoded(source, verbose)
    for trouble in source.encoding.troubles():
        warn(trouble)


def tell_encoded(source: EncodedSource, verbose: bool = False) -> None:
    """Say on stderr how many items gave vectors, and why the others did not."""
    skipped = source.skipped()
    lost = sum(skipped.values())
    total = source.encoded + source.items.unreadable
    words = WORDS if source.encoding.name != "faces" else {**WORDS, "empty": "showed no face"}
    kinds = [f"{number:,} {words[kind]}" for kind, number in skipped.items() if number]
    if lost:
        hint = "" if verbose else " (--verbose lists them)"
        warn(f"{source.path}: {total - lost:,} of {total:,} items encoded; {', '.join(kinds)}{hint}")
    if source.several:
        kept = "all counted" if SEVERAL in source.encoding.options else "the largest counted"
        warn(f"{source.path}: more than one face was seen in {source.several:,} of the images, {kept}")
    for problem in source.items.problems if isinstance(source.items, FolderItems) else ():
        warn(f"{problem}; its pictures are missing from the result")
    if isinstance(source.items, FolderItems) and source.items.other:
        most = source.items.other.most_common(5)
        listed = ", ".join(f"{number:,} {suffix or 'without suffix'}" for suffix, number in most)
        warn(f"{source.path}: passed over files that are no images divscore reads ({listed})")


WORDS = {"unreadable": "could not be read", "empty": "had nothing to encode"}
