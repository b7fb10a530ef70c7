"""Partial: what one partition gives, small enough to be sent home."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from divscore.errors import DivscoreError, FileError
from divscore.jobs.blocks import Coded, tabulate_blocks
from divscore.sketch.scorer import Scorer, keep_scorer
from divscore.sketch.sketchtable import SketchTable
from divscore.sources.partition import Partition, UnseenError
from divscore.sources.table import PROBLEMS_KEPT, VectorSource
from divscore.sources.texts import Texts

__all__ = ["Assignment", "Partial", "RowWatch", "coded", "sketch_partition", "tried"]

LARGE_BLOCK = 96 << 20  # with thousands of collections, so that a block has several rows of each
TRIES = 3  # of a remote file, which may fail for a moment
WAIT_SECONDS = 0.5

Read = TypeVar("Read")


@dataclass(frozen=True)
class Assignment:
    """What is the same for all partitions of a pass."""

    scorer: Scorer
    name: str
    by: str | None = None
    strict: bool = False
    verbose: bool = False
    shared: bool = False  # one sample for the intervals of all collections
    seen: int = 0  # rows of the whole source, where that is known: decides how sums are rounded


@dataclass(frozen=True)
class Partial:
    """The numbers of the collections that a partition has rows of, and what could not be read.

    A partition that failed has a reason and no table; where it is `fatal` the whole pass is wrongly set up.
    """

    table: SketchTable | None = None
    rows: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    failed: str | None = None
    fatal: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on its way home."""
        return 0 if self.table is None else self.table.nbytes


def sketch_partition(
    assignment: Assignment,
    partition: Partition,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Partial:
    """Read one partition, in whichever process or machine; what is wrong with it is told, not raised."""
    try:
        return tried(partition, lambda: _sketched(assignment, partition, workers, progress))
    except DivscoreError as error:
        return Partial(failed=str(error), fatal=isinstance(error, UnseenError))


def tried(partition: Partition, read: Callable[[], Read]) -> Read:
    """What is read from a partition; a remote one is tried again, and no copy of it is left behind."""
    for attempt in range(TRIES):
        try:
            return read()
        except DivscoreError as error:
            lasting = isinstance(error, UnseenError) or not partition.location.remote
            if lasting or attempt + 1 == TRIES:
                raise
            time.sleep(WAIT_SECONDS * 2**attempt)
        finally:
            partition.location.release()
    raise AssertionError


def _sketched(
    assignment: Assignment, partition: Partition, workers: int, progress: Callable[[int], None] | None
) -> Partial:
    scorer = assignment.scorer
    keep_scorer(scorer)  # the first that comes to a process stays, with all that was made from it
    source = partition.open(LARGE_BLOCK if assignment.shared else None)
    watch = RowWatch(source, assignment.strict, assignment.verbose)
    sketches = tabulate_blocks(
        watch.blocks(assignment.by),
        scorer.control,
        name=assignment.name,
        seed=scorer.seed,
        workers=workers,
        seen=assignment.seen,
        shared=assignment.shared,
        progress=progress,
    )
    problems = tuple([*source.problems, *watch.problems][:PROBLEMS_KEPT])
    return Partial(sketches.table, watch.rows, source.unreadable, problems)


def coded(values: Sequence[str]) -> Coded:
    """Names and codes of a column of text."""
    texts = values if isinstance(values, Texts) else Texts.of(values)
    return texts.names, texts.codes


class RowWatch:
    """Passes blocks on and, where someone wants to know, notes the rows that will be skipped."""

    def __init__(self, source: VectorSource, strict: bool, verbose: bool) -> None:
        self.source = source
        self.strict = strict
        self.verbose = verbose
        self.rows = 0
        self.problems: list[str] = []

    def blocks(self, by: str | None) -> Iterator[tuple[Any, Coded | None]]:
        """Vectors of each block, and whose they are."""
        piece = self.source.request.piece
        first = piece.first if piece else 0
        for block in self.source:
            if self.strict or self.verbose:
                start = first + self.rows
                self._inspect(block.vectors, block.numbers or range(start, start + len(block.vectors)))
            self.rows += len(block.vectors)
            yield block.vectors, coded(block.values[by]) if by else None

    def _inspect(self, vectors: Any, numbers: Sequence[int]) -> None:
        finite = np.isfinite(vectors).all(axis=1)
        for at in np.flatnonzero(~finite | ~vectors.any(axis=1)).tolist():
            kind = "only zeros" if finite[at] else "NaN or infinite numbers"
            message = f"{self.source.path}, row {numbers[at]}: the vector has {kind}"
            if self.strict:
                raise FileError(f"{message}; mend or remove it, or leave out --strict to skip such rows")
            if len(self.problems) < PROBLEMS_KEPT:
                self.problems.append(message)
