"""One pass over a collection given on the command line, with progress, and every skipped row accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from divscore.cli.console import progress_bar, warn
from divscore.control import ControlSet
from divscore.engines import Coded, sketch_blocks
from divscore.errors import FileError, MismatchError
from divscore.sketch import Sketch
from divscore.sources import VectorSource, open_many
from divscore.sources.pool import ENCODER_KEY
from divscore.sources.texts import Texts

__all__ = ["open_collection", "sketch_source", "whole_source"]

LISTED = 20


def open_collection(
    path: str, control: ControlSet, *, column: str | None, by: str | None, strict: bool
) -> VectorSource:
    """Open a collection and check that its vectors can be compared with the control set's."""
    source = open_many(path, column=column, extra=[by] if by else [], strict=strict)
    if source.dimension != control.dimension:
        raise MismatchError(
            f"{source.path} has vectors of {source.dimension} numbers, the control set of {control.dimension}; "
            "both must come from the same encoder"
        )
    encoder = source.metadata.get(ENCODER_KEY)
    if encoder and control.encoder and encoder != control.encoder:
        raise MismatchError(
            f"{source.path} was encoded by '{encoder}', the control set by '{control.encoder}'; encode both alike"
        )
    return source


def sketch_source(
    source: VectorSource,
    control: ControlSet,
    *,
    by: str | None = None,
    seed: int = 0,
    workers: int = 1,
    strict: bool = False,
    verbose: bool = False,
) -> dict[str, Sketch]:
    """Sketch a source in one pass: one collection, or one for each value of the column `by`."""
    watch = _RowWatch(source, strict, verbose)
    with progress_bar(source.name, source.rows) as advance:
        sketches = sketch_blocks(
            watch.blocks(by), control, name=source.name, seed=seed, workers=workers, progress=advance
        )
    if not sketches:
        raise FileError(f"{source.path} holds no row with a usable vector")
    if source.unreadable:
        # Which collection an unreadable row belonged to is not known; with --by it is said once, for all.
        if len(sketches) == 1:
            next(iter(sketches.values())).skip("unreadable", source.unreadable)
        else:
            warn(f"{source.path}: {source.unreadable} rows had no readable vector and were left out")
    watch.tell()
    return sketches


def whole_source(source: VectorSource, *, strict: bool, verbose: bool) -> Any:
    """All vectors of a source in memory, for the one estimator that cannot do with less."""
    watch = _RowWatch(source, strict, verbose)
    with progress_bar(source.name, source.rows) as advance:
        blocks = []
        for vectors, _ in watch.blocks(None):
            blocks.append(vectors)
            advance(len(vectors))
    watch.tell()
    if not blocks:
        raise FileError(f"{source.path} holds no row with a usable vector")
    return np.concatenate(blocks)


def _coded(values: Sequence[str]) -> Coded:
    texts = values if isinstance(values, Texts) else Texts.of(values)
    return texts.names, texts.codes


class _RowWatch:
    """Passes blocks on and, where someone wants to know, notes the rows that will be skipped."""

    def __init__(self, source: VectorSource, strict: bool, verbose: bool) -> None:
        self.source = source
        self.strict = strict
        self.verbose = verbose
        self.problems: list[str] = []

    def blocks(self, by: str | None) -> Iterator[tuple[Any, Coded | None]]:
        row = 0
        for block in self.source:
            if self.strict or self.verbose:
                self._inspect(block.vectors, row)
            row += len(block.vectors)
            yield block.vectors, _coded(block.values[by]) if by else None

    def tell(self) -> None:
        """List what was left out, if asked to."""
        if self.verbose:
            for problem in [*self.source.problems, *self.problems]:
                warn(problem)

    def _inspect(self, vectors: Any, first: int) -> None:
        finite = np.isfinite(vectors).all(axis=1)
        for at in np.flatnonzero(~finite | ~vectors.any(axis=1)):
            kind = "only zeros" if finite[at] else "NaN or infinite numbers"
            message = f"{self.source.path}, row {first + int(at)}: the vector has {kind}"
            if self.strict:
                raise FileError(f"{message}; mend or remove it, or leave out --strict to skip such rows")
            if len(self.problems) < LISTED:
                self.problems.append(message)
