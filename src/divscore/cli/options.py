"""Options about encoders that several commands share, and what is said while items are encoded."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import click

from divscore.cli.console import progress_bar, warn
from divscore.control.controlset import ControlSet
from divscore.encoders.registry import ENCODERS
from divscore.errors import InputError
from divscore.jobs.cache import default_cache
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.encode import SEVERAL, EncodedSource, Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.pool import open_pool
from divscore.sources.cuts import divisible
from divscore.sources.items import Items
from divscore.sources.places import FORMS, WHOLE, Location
from divscore.sources.table import Table
from divscore.text import printable

__all__ = [
    "Engines",
    "cluster_option",
    "encoding_options",
    "read_control",
    "tell_dividing",
    "tell_encoded",
    "watched",
    "workers_option",
]


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
    fit_with: tuple[Items, ...] = (),
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
    for problem in source.items.unlisted:
        warn(f"{problem}; its pictures are missing from the result")
    if source.items.other:
        most = source.items.other.most_common(5)
        listed = ", ".join(f"{number:,} {suffix or 'without suffix'}" for suffix, number in most)
        warn(f"{source.path}: passed over files that are no images divscore reads ({listed})")


WORDS = {"unreadable": "could not be read", "empty": "had nothing to encode"}


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
# Starting processes takes a second or two; so many bytes of text take longer to parse.
WORTH_PROCESSES = 64 << 20
WORTH_TELLING = 1 << 30  # bytes of text that are looked through for longer than nobody wonders


class Engines:
    """The engine that suits a source; started when first needed, let go at the end."""

    def __init__(self, workers: int, cluster: str | None) -> None:
        self._workers = workers
        # At once: a wrong address is told before anything else is done.
        self._cluster = ClusterEngine(cluster, tell=warn) if cluster is not None else None
        self._started: dict[bool, Engine] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in (self._cluster, *self._started.values()):
            if engine is not None:
                engine.__exit__(kind, error, trace)

    def lend(self, encoding: Encoding) -> None:
        """Let items be encoded on the cluster too, where there is one."""
        if self._cluster is not None:
            encoding.hand_to(self._cluster)

    def suiting(self, source: Table) -> Engine:
        """The cluster, or else threads, or processes for much text: parsing holds Python's lock."""
        if self._cluster is not None:
            return self._cluster
        return self._started_as(processes=self._workers > 1 and _much_text(source))

    def crunching(self) -> Engine:
        """The cluster, or else processes, for thousands of audits: they hold Python's lock."""
        if self._cluster is not None:
            return self._cluster
        return self._started_as(processes=self._workers > 1)

    def _started_as(self, *, processes: bool) -> Engine:
        if processes not in self._started:
            self._started[processes] = Engine(self._workers, processes=processes)
        return self._started[processes]


def tell_dividing(what: str, files: Iterable[Location]) -> None:
    """Say that large files of text are looked through before anything else, to divide them."""
    size = sum(each.size() for each in files if divisible(each))
    if size >= WORTH_TELLING:
        warn(f"{what}: looking where {size / 1e9:,.1f} GB of text can be divided")


def _much_text(source: Table) -> bool:
    if isinstance(source, EncodedSource):
        return False
    files = source.locations
    if any(each.suffix not in WHOLE for each in files) or (len(files) < 2 and not divisible(files[0])):
        return False
    return sum(each.size() for each in files) >= WORTH_PROCESSES
