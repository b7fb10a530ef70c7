"""Where a command's passes run: `--workers` and `--cluster`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import click

from divscore.cli.console import warn
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.encode import Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.source import EncodedSource
from divscore.sources.cuts import divisible
from divscore.sources.open import parts_of
from divscore.sources.places import WHOLE, Location
from divscore.sources.table import VectorSource

__all__ = ["Engines", "cluster_option", "tell_dividing", "workers_option"]

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

    def suiting(self, source: VectorSource) -> Engine:
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


def _much_text(source: VectorSource) -> bool:
    if isinstance(source, EncodedSource):
        return False
    files = [part.location for part in parts_of(source)]
    if any(each.suffix not in WHOLE for each in files) or (len(files) < 2 and not divisible(files[0])):
        return False
    return sum(each.size() for each in files) >= WORTH_PROCESSES
