"""sketch_source(): one pass over a collection, cut into partitions and put together again in their order."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from divscore.control.controlset import ControlSet
from divscore.errors import DivscoreError, FileError, InputError
from divscore.jobs.cluster import ClusterEngine
from divscore.jobs.encode import SEVERAL, EncodedSource, Encoding
from divscore.jobs.engine import Engine
from divscore.jobs.pool import Progress, Warn, no_progress, no_warning
from divscore.sketch.many import Coded, Sketches, sketch_blocks
from divscore.sketch.missing import MissingPart
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sketch.sketch import Origin, Sketch
from divscore.sources.cuts import divisible
from divscore.sources.places import WHOLE, Location, UnseenError
from divscore.sources.table import PROBLEMS_KEPT, Partition, Table, Texts, partitions_of
from divscore.text import named

# Partial: what one partition gives, small enough to be sent home.

LARGE_BLOCK = 80 << 20  # with many collections: a block should have several rows of each
MOST_PART_ROWS = 1 << 18  # of a partition that is kept as it was scanned until it is merged
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
    part_of: Sketches | None = None,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Partial:
    """Read one partition, in whichever process or machine; what is wrong with it is noted, not raised."""
    if (partition.rows or MOST_PART_ROWS) >= MOST_PART_ROWS:
        part_of = None
    try:
        return tried(partition, lambda: _sketched(assignment, partition, part_of, workers, progress))
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
    assignment: Assignment,
    partition: Partition,
    part_of: Sketches | None,
    workers: int,
    progress: Callable[[int], None] | None,
) -> Partial:
    # The first that reaches a process stays, with what follows from it.
    scorer = shared_scorer(assignment.scorer)
    source = partition.open(LARGE_BLOCK if assignment.by is not None else 0)
    watch = RowWatch(source, assignment.strict, assignment.verbose)
    sketches = sketch_blocks(
        watch.blocks(assignment.by),
        scorer.control,
        scorer,
        name=assignment.name,
        workers=workers,
        seen=assignment.seen,
        part_of=part_of,
        progress=progress,
    )
    problems = tuple([*source.problems, *watch.problems][:PROBLEMS_KEPT])
    return Partial(sketches, watch.rows, source.unreadable, problems)


def coded(values: Sequence[str]) -> Coded:
    """Names and codes of a column of text."""
    texts = values if isinstance(values, Texts) else Texts.of(values)
    return texts.names, texts.codes


class RowWatch:
    """Passes blocks on and, if strict or verbose, notes the rows that will be skipped."""

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
                raise FileError(f"{message}; fix or remove it, or leave out --strict to skip such rows")
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
        Number of threads; of the executor's workers, if it does not tell.
    executor : concurrent.futures.Executor, optional
        Other workers: a process pool, or ``client.get_executor(pure=False)`` of a Dask client.
    engine : Engine, optional
        An engine that is used more than once, instead of `workers` and `executor`.
    strict : bool
        Make the first bad row, and the first bad file of several, an error.
    progress : callable
        Called with numbers of rows as they are finished.
    on_failure : callable
        Called with each missing file or part, as soon as it is known.
    """
    scorer, partitions = scorer_for(control, seed), list(partitions_of(source))
    known = sum(part.rows or 0 for part in source.parts)
    assignment = Assignment(scorer, source.name, by, strict, verbose, known)
    reduction = _Reduction(source, control, scorer, strict, on_failure)
    used = nullcontext(engine) if engine is not None else Engine(workers, executor=executor)
    with used as at_work:
        if not at_work.local:
            check_sendable(control)
        part_of = reduction.sketches if at_work.local else None
        for partition, found in _partials(source, at_work, assignment, part_of, partitions, progress):
            reduction.take(partition, found)
    return reduction.result()


def _partials(
    source: Table,
    engine: Engine,
    assignment: Assignment,
    part_of: Sketches | None,
    partitions: list[Partition],
    progress: Callable[[int], None],
) -> Iterator[tuple[Partition, Partial]]:
    if (engine.own and len(partitions) == 1) or engine.inline or source.here_only:
        # Blocks of a single partition are shared among threads, which does not change the result.
        threads = engine.workers if engine.own else 1
        for each in partitions:
            yield (
                each,
                sketch_partition(assignment, each, part_of=part_of, workers=threads, progress=progress),
            )
        return
    # With many collections a part's result may take as many bytes as its vectors.
    task = partial(sketch_partition, assignment, part_of=part_of)
    at_work = engine.map(task, partitions, large=assignment.by is not None, killed=_killed)
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
            "a module defines, not a local one"
        )


class _Reduction:
    """Takes partials in their order; bad ones are missing, or raised if strict or alone."""

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


# Run: sketches of whatever was opened, with progress, messages and a count of what was skipped.

WORTH_PARSING = 64 << 20  # bytes of text: parsing them takes longer than starting processes
SLOW_TO_DIVIDE = 1 << 30  # bytes of text: looking for record boundaries takes seconds
THREADS = 4  # next to an encoder, which is slower than any sketch
LISTED = 20  # skipped items that are named with `verbose`
SKIPPED = {"unreadable": "could not be read", "empty": "had nothing to encode"}


class Engines:
    """The workers of one call, started when first needed: a cluster, or threads, or processes."""

    def __init__(self, workers: int, cluster: str | None, warn: Warn = no_warning) -> None:
        # Connects at once: a wrong address is an error before anything else is done.
        self._cluster = ClusterEngine(cluster, notify=warn) if cluster is not None else None
        self.workers = workers if self._cluster is None else self._cluster.workers
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
        """Encode items on the cluster too, where there is one."""
        if self._cluster is not None:
            encoding.use(self._cluster)

    def start(self, *, processes: bool) -> Engine:
        """The cluster, or else processes for work that holds Python's lock, or threads."""
        if self._cluster is not None:
            return self._cluster
        processes = processes and self.workers > 1
        if processes not in self._started:
            self._started[processes] = Engine(self.workers, processes=processes)
        return self._started[processes]


def much_text(source: Table) -> bool:
    """Whether parsing is worth processes: it holds Python's lock."""
    files = source.locations
    if any(each.suffix not in WHOLE for each in files) or (len(files) < 2 and not divisible(files[0])):
        return False
    return sum(each.size() for each in files) >= WORTH_PARSING


@dataclass(frozen=True, kw_only=True)
class Run:
    """How the collections of one call are read: who works, and who is told about progress and problems."""

    engines: Engines
    by: str | None = None
    seed: int = 0
    strict: bool = False
    verbose: bool = False
    progress: Progress = no_progress
    warn: Warn = no_warning

    def sketch(self, source: Table, control: ControlSet) -> Sketched:
        """Sketch a source in one pass, and count what was skipped."""
        with self._watched(source) as advance:
            if isinstance(source, EncodedSource):
                for each in source.missing:
                    self._warn_of_missing(each)
                # Items are encoded while they are read, by the encoding's own workers.
                rows = RowWatch(source, self.strict, self.verbose)
                threads = min(self.engines.workers, THREADS)
                scorer = scorer_for(control, self.seed)
                table = sketch_blocks(
                    rows.blocks(self.by), control, scorer, name=source.name, workers=threads
                )
                problems = (*source.problems, *rows.problems)[:LISTED]
                sketches = table.sketches(control, scorer)
                done = Sketched(sketches, 1, rows.rows, source.unreadable, problems, source.missing)
            else:
                done = sketch_source(
                    source,
                    control,
                    by=self.by,
                    seed=self.seed,
                    engine=self.engines.start(processes=much_text(source)),
                    strict=self.strict,
                    verbose=self.verbose,
                    progress=advance,
                    on_failure=self._warn_of_missing,
                )
        if not done.sketches:
            raise FileError(f"{source.path} has no item with a usable vector")
        known, unknown = _skipped(source, done.unreadable, self.by)
        if not self.by:
            known[source.name]["unreadable"] += sum(each.rows or 0 for each in done.missing)
        for name, kinds in known.items():
            if name in done.sketches:
                for kind, number in kinds.items():
                    done.sketches[name].skip(kind, number)
            elif number := sum(kinds.values()):
                self.warn(f"{named(name)}: skipped, as none of its {number:,} items has a vector")
        if unknown:
            self.warn(f"{source.path}: {unknown:,} items have no vector and were skipped")
        for problem in done.problems if self.verbose else ():
            self.warn(problem)
        return done

    def read_vectors(self, source: Table) -> tuple[Any, dict[str, int], list[MissingPart]]:
        """All vectors of a source, skipped items by kind, and missing parts; 'self-training' needs them all at once."""
        missing = list(source.missing)
        for each in missing:
            self._warn_of_missing(each)
        blocks: list[Any] = []
        problems: list[str] = []
        unreadable = 0
        with self._watched(source) as advance:

            def read(part: Table | Partition) -> tuple[RowWatch, list[Any]]:
                rows = RowWatch(
                    part.open() if isinstance(part, Partition) else part, self.strict, self.verbose
                )
                vectors = []
                for block, _ in rows.blocks(None):
                    vectors.append(block)
                    advance(len(block))
                return rows, vectors

            for part in [source] if isinstance(source, EncodedSource) else partitions_of(source):
                try:
                    rows, vectors = (
                        tried(part, partial(read, part)) if isinstance(part, Partition) else read(part)
                    )
                except DivscoreError as error:
                    if self.strict or isinstance(error, UnseenError) or not source.many:
                        raise
                    missing.append(MissingPart(part.label, str(error), part.rows))
                    self._warn_of_missing(missing[-1])
                    continue
                blocks += vectors
                problems += [*rows.source.problems, *rows.problems]
                unreadable += rows.source.unreadable
        for problem in problems[:LISTED] if self.verbose else ():
            self.warn(problem)
        if not blocks:
            why = f"; {missing[0].reason}" if missing else ""
            raise FileError(f"{source.path} has no row with a usable vector{why}")
        skipped = _skipped(source, unreadable, None)[0][source.name]
        skipped["unreadable"] += sum(each.rows or 0 for each in missing)
        return np.concatenate(blocks), dict(skipped), missing

    @contextmanager
    def _watched(self, source: Table) -> Iterator[Callable[[int], None]]:
        """Show the progress of vectors, or of items where these are encoded first."""
        if not isinstance(source, EncodedSource):
            warn_of_dividing(source.path, source.locations, self.warn)
            with self.progress(source.name, source.rows) as advance:
                yield advance
            return
        with self.progress(source.name, source.rows) as advance:
            source.on_items = advance
            yield lambda rows: None
        skipped, encoding = source.skipped(), source.encoding
        total = source.encoded + source.items.unreadable
        words = {**SKIPPED, "empty": "showed no face"} if encoding.name == "faces" else SKIPPED
        kinds = [f"{number:,} {words[kind]}" for kind, number in skipped.items() if number]
        if kinds:
            hint = "" if self.verbose else " (--verbose lists them)"
            encoded = total - sum(skipped.values())
            self.warn(f"{source.path}: {encoded:,} of {total:,} items encoded; {', '.join(kinds)}{hint}")
        if source.several:
            kept = "all are counted" if SEVERAL in encoding.options else "the largest is counted"
            self.warn(f"{source.path}: {source.several:,} images show more than one face; {kept}")
        for problem in source.items.unlisted:
            self.warn(f"{problem}; its images are missing from the result")
        if source.items.other:
            most = source.items.other.most_common(5)
            listed = ", ".join(f"{number:,} {suffix or 'without suffix'}" for suffix, number in most)
            self.warn(
                f"{source.path}: these files were not read, as their formats are not supported: {listed}"
            )
        for trouble in encoding.troubles():
            self.warn(trouble)

    def _warn_of_missing(self, part: MissingPart) -> None:
        rows = f" ({part.rows:,} rows)" if part.rows else ""
        self.warn(f"missing{rows}: {part.reason}")


def _skipped(source: Table, unreadable: int, by: str | None) -> tuple[dict[str, Counter[str]], int]:
    """Items without a vector by collection and kind, and how many belong to an unknown collection.

    For a file of vectors these are rows that could not be read, and what `embed` noted in its metadata.
    """
    known: dict[str, Counter[str]] = {} if by else {source.name: Counter(unreadable=0, empty=0)}
    if isinstance(source, EncodedSource):
        for (kind, values), number in source.skips.items():
            known.setdefault(values[0] if by else source.name, Counter())[kind] += number
        unreadable = source.items.unreadable
    else:
        noted = [part.embedded for part in source.parts if part.embedded]
        for each in noted:
            kinds_of = each.skipped_by.get(by, {}) if by else {source.name: each.skipped}
            if each.skipped_items != sum(sum(kinds.values()) for kinds in kinds_of.values()):
                # Some are not attributed, so the counts of all collections would be too low.
                return {}, unreadable + sum(each.skipped_items for each in noted)
            for name, kinds in kinds_of.items():
                known.setdefault(name, Counter()).update(kinds)
    if by:
        return known, unreadable
    known[source.name]["unreadable"] += unreadable
    return known, 0


def warn_of_dividing(what: str, files: Iterable[Location], warn: Warn) -> None:
    """Say that large files of text are scanned first, to find where they can be divided."""
    size = sum(each.size() for each in files if divisible(each))
    if size >= SLOW_TO_DIVIDE:
        warn(f"{what}: finding where to divide {size / 1e9:,.1f} GB of text")
