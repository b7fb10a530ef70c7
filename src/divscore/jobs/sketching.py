"""sketch_source(): one pass over a collection, cut into partitions and put together again in their order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError
from divscore.jobs.engine import Engine
from divscore.sketch.many import Coded, Sketches, sketch_blocks
from divscore.sketch.missing import MissingPart
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sketch.sketch import Origin, Sketch
from divscore.sources.places import UnseenError
from divscore.sources.table import PROBLEMS_KEPT, Partition, Table, Texts, partitions_of

__all__ = [
    "Assignment",
    "Partial",
    "RowWatch",
    "Sketched",
    "check_sendable",
    "coded",
    "sketch_partition",
    "sketch_source",
    "tried",
]


# Partial: what one partition gives, small enough to be sent home.

LARGE_BLOCK = 64 << 20  # with many collections: a block should have several rows of each
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
    seen: int = 0  # rows of the whole source, where that is known: decides how sums are rounded


@dataclass(frozen=True)
class Partial:
    """The sketches of the collections that a partition has rows of, and what could not be read.

    A partition that failed has a reason and no sketches; where it is `fatal` the whole pass is wrongly set up.
    """

    sketches: Sketches | None = None
    rows: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    failed: str | None = None
    fatal: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on its way home."""
        return 0 if self.sketches is None else self.sketches.nbytes


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
    scorer = shared_scorer(
        assignment.scorer
    )  # the first that reaches a process stays, with what follows from it
    source = partition.open(LARGE_BLOCK if assignment.by is not None else 0)
    watch = RowWatch(source, assignment.strict, assignment.verbose)
    sketches = sketch_blocks(
        watch.blocks(assignment.by),
        scorer.control,
        scorer,
        name=assignment.name,
        workers=workers,
        seen=assignment.seen,
        progress=progress,
    )
    problems = tuple([*source.problems, *watch.problems][:PROBLEMS_KEPT])
    return Partial(sketches, watch.rows, source.unreadable, problems)


def coded(values: Sequence[str]) -> Coded:
    """Names and codes of a column of text."""
    texts = values if isinstance(values, Texts) else Texts.of(values)
    return texts.names, texts.codes


class RowWatch:
    """Passes blocks on and, where someone wants to know, notes the rows that will be skipped."""

    def __init__(self, source: Table, strict: bool, verbose: bool) -> None:
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


@dataclass(frozen=True)
class Sketched:
    """The sketches of a pass, and the parts of the source that are missing from them."""

    sketches: dict[str, Sketch]
    partitions: int
    rows: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    missing: tuple[MissingPart, ...] = ()


def sketch_source(
    source: Table,
    control: ControlSet,
    *,
    by: str | None = None,
    seed: int = 0,
    workers: int = 1,
    executor: Executor | None = None,
    engine: Engine | None = None,
    strict: bool = False,
    verbose: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
    on_failure: Callable[[MissingPart], None] = lambda missing: None,
) -> Sketched:
    """Sketch files in one pass: one collection, or one for each value of the column `by`.

    The result is the same to the last bit whoever does the work.

    Parameters
    ----------
    source : Table
        What `sources.open_table` returned.
    control : ControlSet
        What the collection is compared with; fitted here, once.
    by : str, optional
        Column whose values are collections of their own; it must have been asked for when the source was opened.
    workers : int
        Threads at work; of an executor, how many work at once, where it does not say so itself.
    executor : concurrent.futures.Executor, optional
        Other workers: a process pool, or ``client.get_executor(pure=False)`` of a Dask client.
    engine : Engine, optional
        An engine that is used more than once, in place of `workers` and `executor`.
    strict : bool
        Make the first bad row, and the first bad file of several, an error.
    progress : callable
        Called with numbers of rows as they are finished.
    on_failure : callable
        Called with each file or part that has to be left out, when that is known.
    """
    scorer, partitions = scorer_for(control, seed), list(partitions_of(source))
    known = sum(part.rows or 0 for part in source.parts)
    assignment = Assignment(scorer, source.name, by, strict, verbose, known)
    reduction = _Reduction(source, control, scorer, strict, on_failure)
    used = nullcontext(engine) if engine is not None else Engine(workers, executor=executor)
    with used as at_work:
        if not at_work.local:
            check_sendable(control)
        for partition, found in _partials(source, at_work, assignment, partitions, progress):
            reduction.take(partition, found)
    return reduction.result()


def _partials(
    source: Table,
    engine: Engine,
    assignment: Assignment,
    partitions: list[Partition],
    progress: Callable[[int], None],
) -> Iterator[tuple[Partition, Partial]]:
    if (engine.own and len(partitions) == 1) or engine.inline or source.here_only:
        # Blocks of a single partition are shared among threads, which does not change the result.
        threads = engine.workers if engine.own else 1
        for each in partitions:
            yield each, sketch_partition(assignment, each, workers=threads, progress=progress)
        return
    # With many collections a part's result may take as many bytes as its vectors.
    at_work = engine.map(
        partial(sketch_partition, assignment), partitions, large=assignment.by is not None, killed=_killed
    )
    for partition, found in at_work:
        progress(found.rows)
        yield partition, found


def _killed(partition: Partition, reason: str) -> Partial:
    return Partial(failed=reason)


def check_sendable(control: ControlSet) -> None:
    """Refuse a similarity that other processes could not find by its name."""
    function = control.similarity.function
    if function is None:
        return
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if getattr(module, getattr(function, "__qualname__", ""), None) is not function:
        raise InputError(
            f"the similarity '{control.similarity.name}' cannot be sent to other processes: it must be a function that "
            "a module defines, not one made on the spot"
        )


class _Reduction:
    """Takes partials in their order; bad ones are noted, or raised where nothing else is left."""

    def __init__(
        self,
        source: Table,
        control: ControlSet,
        scorer: Scorer,
        strict: bool,
        on_failure: Callable[[MissingPart], None],
    ) -> None:
        self.source, self.control, self.scorer, self.strict = source, control, scorer, strict
        self.sketches = Sketches(Origin.of(control, scorer.seed))
        self.on_failure = on_failure
        self.partitions = self.rows = self.unreadable = 0
        self.problems: list[str] = []
        self.missing: list[MissingPart] = []
        for each in source.missing:
            self._note(each)

    def take(self, partition: Partition, found: Partial) -> None:
        self.partitions += 1
        if found.failed is not None:
            if self.strict or found.fatal or not self.source.many:
                raise FileError(found.failed)
            self._note(MissingPart(partition.label, found.failed, partition.rows))
            return
        self.rows += found.rows
        self.unreadable += found.unreadable
        self.problems = [*self.problems, *found.problems][:PROBLEMS_KEPT]
        if found.sketches is not None:
            self.sketches.merge(found.sketches)

    def result(self) -> Sketched:
        if self.missing and not self.rows and not self.unreadable:
            raise FileError(f"nothing of {self.source.path} could be read; {self.missing[0].reason}")
        return Sketched(
            self.sketches.sketches(self.control, self.scorer),
            self.partitions,
            self.rows,
            self.unreadable,
            tuple(self.problems),
            tuple(self.missing),
        )

    def _note(self, missing: MissingPart) -> None:
        self.missing.append(missing)
        self.on_failure(missing)
