"""sketch_source(): one pass over a collection, cut into partitions and put together again in their order."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from divscore.blas import one_thread
from divscore.control.controlset import ControlSet
from divscore.encoders.registry import DEFAULTS, FORMER_DEFAULT, SELECT_AGAIN, is_outdated, renew_control
from divscore.errors import DivscoreError, FileError, InputError, MismatchError
from divscore.files import PathLike
from divscore.jobs.encode import Encoding
from divscore.jobs.encodedsource import embedded_messages
from divscore.jobs.engine import Engine, Engines
from divscore.jobs.pool import Progress, Warn, no_progress, no_warning, read_control
from divscore.sketch.many import Coded, Sketches, sketch_blocks
from divscore.sketch.missing import MissingPart
from divscore.sketch.scan import Mapper
from divscore.sketch.scorer import Scorer, scorer_for, shared_scorer
from divscore.sketch.sketch import Origin, Sketch
from divscore.sketch.sketchfile import is_sketch
from divscore.sources import Items
from divscore.sources import open as open_collection
from divscore.sources.cuts import much_text, warn_of_dividing
from divscore.sources.manifest import ENCODER_KEY, part_of
from divscore.sources.places import UnseenError
from divscore.sources.table import PROBLEMS_KEPT, Table, Texts
from divscore.text import count, named

PATH = (str, os.PathLike)
LARGE_BLOCK = 80 << 20  # with many collections: a block should have several rows of each
MOST_PART_ROWS = 1 << 18  # of a partition that is kept as it was scanned until it is merged
ATTEMPTS = 3  # to read a remote file, which may fail for a moment
WAIT_SECONDS = 0.5
FEW_NUMBERS = 8

R = TypeVar("R")


@dataclass(frozen=True)
class Sketched:
    """The sketches of a pass, and the parts of the source that are missing from them."""

    sketches: dict[str, Sketch]
    partitions: int
    rows: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    missing: tuple[MissingPart, ...] = ()


@one_thread
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
    on_missing: Callable[[MissingPart], None] = lambda part: None,
) -> Sketched:
    """Sketch files in one pass: one collection, or one for each value of the column `by`.

    The result is the same to the last bit on `workers` threads, on an `executor` (a process pool, or
    ``client.get_executor(pure=False)`` of a Dask client), or on an `engine` that is used more than once. The column
    `by` must have been asked for when the source was opened. `strict` makes the first bad row, and the first bad file
    of several, an error. `progress` is called with numbers of finished rows, `on_missing` with each missing part.
    """
    scorer, partitions = scorer_for(control, seed), list(source.divided())
    sketches = Sketches(Origin.of(control, seed))
    rows = unreadable = 0
    problems: list[str] = []
    missing: list[MissingPart] = []

    def lost(part: MissingPart) -> None:
        missing.append(part)
        on_missing(part)

    for part in source.missing:
        lost(part)
    with nullcontext(engine) if engine is not None else Engine(workers, executor=executor) as used:
        if not used.local:
            check_sendable(control)
        known_rows = sum(part.rows or 0 for part in source.parts)
        read: Callable[..., Partial] = partial(
            sketch_partition, scorer, source.name, by, _unusable(strict, verbose), seen=known_rows
        )
        here = used.inline or source.here_only or (used.own and len(partitions) == 1)
        if here:
            # Chunks of a single partition are shared among threads, which does not change the result.
            def mapper(task: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterator[Any]:
                with Engine(used.workers if used.own else 1) as threads:
                    yield from (result for _, result in threads.map(task, chunks))

            read = partial(read, mapper=mapper, progress=progress)
        if used.local:
            read = partial(read, part_of=sketches)
        # In the order of the source, not as they finish: sums of floats depend on their order. With many collections a
        # result may take as many bytes as the vectors it was made from.
        parts = enumerate(partitions)
        for _, _, result in read_parts(
            source, parts, read, None if here else used, strict=strict, large=by is not None, lost=lost
        ):
            if result is None:
                continue
            if not here:
                progress(result.rows)
            rows += result.rows
            unreadable += result.unreadable
            problems = [*problems, *result.problems][:PROBLEMS_KEPT]
            sketches.merge(result.sketches)
    if missing and not rows and not unreadable:
        raise FileError(f"nothing of {source.path} could be read; {missing[0].reason}")
    by_name = sketches.sketches(control, scorer)
    return Sketched(by_name, len(partitions), rows, unreadable, tuple(problems), tuple(missing))


@dataclass(frozen=True)
class Partial:
    """The result of one partition, small enough to be sent: sketches of its collections, and what was not read."""

    sketches: Sketches
    rows: int
    unreadable: int
    problems: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes to send."""
        return self.sketches.nbytes


@one_thread
def sketch_partition(
    scorer: Scorer,
    name: str,
    by: str | None,
    unusable: str,
    number: int,
    partition: Table,
    *,
    seen: int = 0,
    part_of: Sketches | None = None,
    mapper: Mapper = map,
    progress: Callable[[int], None] | None = None,
) -> Partial:
    """Sketch one partition, in whichever process or machine.

    `seen` is the number of rows of the whole source, if it is known: it decides how sums are rounded.
    """
    if (partition.rows or MOST_PART_ROWS) >= MOST_PART_ROWS:
        part_of = None
    # The first scorer that reaches a process is kept for all tasks, with everything computed from it.
    shared = shared_scorer(scorer)
    table = partition.select(block_bytes=LARGE_BLOCK if by is not None else 0, unusable=unusable)
    options: dict[str, Any] = {"seen": seen, "part_of": part_of, "mapper": mapper, "progress": progress}
    sketches = sketch_blocks(_with_names(table, by), shared.control, shared, name=name, **options)
    return Partial(sketches, table.read, table.unreadable, tuple(table.problems))


@dataclass(frozen=True)
class _NumberedTable:
    """A run of `divided` and its number."""

    number: int
    table: Table

    def __str__(self) -> str:
        return str(self.table)


@dataclass(frozen=True)
class _Failed:
    """Why a part could not be read; if it is `fatal`, all others would fail too."""

    reason: str
    fatal: bool = False


def read_parts(
    source: Table,
    parts: Iterable[tuple[int, Table]],
    read: Callable[[int, Table], R],
    engine: Engine | None,
    *,
    strict: bool,
    lost: Callable[[MissingPart], None],
    large: bool = False,
) -> Iterator[tuple[int, Table, R | None]]:
    """Read numbered runs of `divided` in order, on the workers of an engine, or here.

    A run of one file among several that cannot be read is None, and `lost` is called with it; otherwise it is an error.
    """
    work, numbered = partial(_read_part, read), (_NumberedTable(*part) for part in parts)
    results: Iterable[tuple[_NumberedTable, R | _Failed]] = ((part, work(part)) for part in numbered)
    if engine is not None and not (engine.inline or source.here_only):
        results = engine.map(work, numbered, large=large, killed=lambda part, reason: _Failed(reason))
    for part, result in results:
        if not isinstance(result, _Failed):
            yield part.number, part.table, result
            continue
        if strict or result.fatal or not source.many:
            raise FileError(result.reason)
        lost(MissingPart(str(part), result.reason, part.table.rows))
        yield part.number, part.table, None


def _read_part(read: Callable[[int, Table], R], part: _NumberedTable) -> R | _Failed:
    """Read in whichever process or machine: an error is a result. A remote part is tried again, its copy removed."""
    table = part.table
    for attempt in range(ATTEMPTS):
        try:
            table.check_visible()
            return read(part.number, table)
        except DivscoreError as error:
            if table.here_only:
                raise
            unseen = isinstance(error, UnseenError)
            if unseen or not table.location.remote or attempt + 1 == ATTEMPTS:
                return _Failed(str(error), unseen)
            time.sleep(WAIT_SECONDS * 2**attempt)
        finally:
            table.location.release()
    raise AssertionError


def _unusable(strict: bool, verbose: bool) -> str:
    return "refuse" if strict else "list" if verbose else ""


def _with_names(table: Table, by: str | None) -> Iterator[tuple[Any, Coded | None]]:
    """Vectors of each block, and the names and codes of their collections."""
    for block in table:
        if by is None:
            yield block.vectors, None
        else:
            texts = Texts.of(block.values[by])
            yield block.vectors, (texts.names, texts.codes)


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


@contextmanager
def running(
    *,
    by: str | None = None,
    seed: int = 0,
    encoder: str | Encoding | None = None,
    model: PathLike | None = None,
    options: dict[str, str] | None = None,
    pca: int | PathLike | None = None,
    cache: PathLike | bool = True,
    workers: int = 1,
    cluster: str | None = None,
    strict: bool = False,
    verbose: bool = False,
    progress: Progress = no_progress,
    warn: Warn = no_warning,
) -> Iterator[Run]:
    """Start what a call needs to read collections, and stop it at the end.

    `encoder`, `model`, `options`, `pca` and `cache` are as in `Encoding`; by default the control set's encoder, "faces"
    for images and "text" for texts, and the user's cache folder (``cache=False`` keeps no vectors). `cluster` is the
    address of a Dask scheduler, or its scheduler file. `strict` makes the first item that would be skipped an error;
    `verbose` names the skipped items in warnings. `progress` is called with a name and a total (or None) where
    something takes long, and returns a context manager that gives a function to call with the number of finished
    items. `warn` is called with each message about the input that a person should read.
    """
    with ExitStack() as stack:
        if not isinstance(encoder, Encoding):
            encoder = Encoding(encoder, model=model, options=options, pca=pca, cache=cache, workers=workers)
            stack.enter_context(encoder)
        engines = stack.enter_context(Engines(workers, cluster, warn))
        yield Run(encoder, engines, by, seed, strict, verbose, progress, warn)


@dataclass(frozen=True)
class Run:
    """How the collections of one call are read: encoder, workers, options, and where progress and warnings go."""

    encoding: Encoding
    engines: Engines
    by: str | None
    seed: int
    strict: bool
    verbose: bool
    progress: Progress
    warn: Warn

    def read_control(self, thing: Any, **reading: Any) -> ControlSet:
        """Read labelled examples; see `jobs.pool.read_control`."""
        talk: dict[str, Any] = {"verbose": self.verbose, "progress": self.progress, "warn": self.warn}
        return read_control(thing, self.encoding, **reading, **talk)

    def open(self, thing: Any, column: str | None, form: str) -> Items | Table | None:
        """Open a path or a table; items are not encoded yet. None for sketches, and vectors in memory."""
        if not hasattr(thing, "__arrow_c_stream__") and (not isinstance(thing, PATH) or is_sketch(thing)):
            if self.by and isinstance(thing, PATH):
                raise InputError(
                    f"{thing} is a sketch and has no columns; create it with 'divscore sketch --by {self.by}'"
                )
            if self.by:
                raise InputError("--by needs a table or a file with columns; vectors alone have none")
            return None
        extra, forced = [self.by] if self.by else [], self.encoding.forced
        return open_collection(
            thing, column=column, extra=extra, form=form, strict=self.strict, forced=forced
        )

    def vectors_of(self, source: Items | Table, control: ControlSet) -> Table:
        """The vectors of a collection; they must come from the control set's encoder."""
        if encoded := source.kind != "vectors":
            if control.encoder is None and not self.encoding.forced:
                raise MismatchError(
                    f"{source.path} has to be encoded, but the control set does not say which encoder made its "
                    "vectors; name it with --encoder, or use labelled examples instead of vectors"
                )
            self.encoding.fit(source)
            source = self.encoding.encode(source, strict=self.strict)
        elif self.encoding.shortens:
            raise FileError(f"{source.path} has vectors already; --pca shortens only what is encoded")
        if 0 < len(source.number_columns) < FEW_NUMBERS:
            names = ", ".join(source.number_columns)
            self.warn(f"{source.path}: the columns {names} are used as vectors (--column names another)")
        for part in source.parts:
            encoder = part.metadata.get(ENCODER_KEY)
            if encoder is None and control.encoder and os.path.exists(part.location.url):
                self.warn(
                    f"{part.path} does not say which encoder made it; assuming the control set's, {control.encoder}"
                )
            if encoder and control.encoder and encoder != control.encoder:
                raise MismatchError(self._different(part, encoder, control.encoder, encoded))
        if source.dimension != control.dimension:
            raise MismatchError(
                f"{source.path} has vectors of {source.dimension} numbers, the control set of {control.dimension}; "
                "both must come from the same encoder"
            )
        return source

    def _different(self, part: Table, encoder: str, of_control: str, encoded: bool) -> str:
        """What to do if two encoders made vectors and control set; the vectors may have been `encoded` just now."""
        if is_outdated(of_control):
            return f"{part.path} was encoded by '{encoder}'; the control set {renew_control(of_control)}"
        name, other = (each.partition("/")[0] for each in (encoder, of_control))
        file = part_of(part.location.url) or part.path
        shorter = " --pca …" if " pca=" in encoder else ""
        again = f"'divscore embed SOURCE -o {file}{shorter}"
        if encoded and name != other and self.encoding.forced:
            advice = f"leave out --encoder, or create the control set again with --encoder {name}"
        elif is_outdated(encoder):
            advice = f"the vectors are from an earlier version. Encode the items again: {again} --overwrite'"
        elif {name, other} == {FORMER_DEFAULT, DEFAULTS["text"]}:
            advice = (
                f"encode the items again: {again} --encoder {other} --overwrite'; or create the control set again "
                f"from its labelled examples: '{SELECT_AGAIN} {name}'"
            )
        else:
            advice = "use the same encoder for both"
        return f"{part.path} was encoded by '{encoder}', the control set by '{of_control}'; {advice}"

    def sketch(self, source: Table, control: ControlSet) -> Sketched:
        """Sketch a source in one pass, and count what was skipped."""
        with self.watched(source) as advance:
            done = sketch_source(
                source,
                control,
                by=self.by,
                seed=self.seed,
                engine=self.engines.start(processes=much_text(source)),
                strict=self.strict,
                verbose=self.verbose,
                progress=advance,
                on_missing=self._warn_of_missing,
            )
        if not done.sketches:
            raise FileError(f"{source.path} has no item with a usable vector")
        known, unknown = source.skipped_by(self.by, done.unreadable)
        if not self.by:
            known[source.name]["unreadable"] += sum(part.rows or 0 for part in done.missing)
        for name, kinds in known.items():
            if name in done.sketches:
                for kind, number in kinds.items():
                    done.sketches[name].skip(kind, number)
            elif number := sum(kinds.values()):
                self.warn(f"{named(name)}: skipped, as none of its {count(number, 'items')} has a vector")
        if unknown:
            verbs = "has no vector and was" if unknown == 1 else "have no vector and were"
            self.warn(f"{source.path}: {count(unknown, 'items')} {verbs} skipped")
        for problem in done.problems if self.verbose else ():
            self.warn(problem)
        return done

    def each(
        self,
        source: Table,
        read: Callable[[int, Table], R],
        *,
        only: Container[int] | None = None,
        missing: list[MissingPart] | None = None,
        engine: Engine | None = None,
    ) -> Iterator[tuple[int, Table, R | None]]:
        """Read the runs of `divided`, or `only` those with some numbers, on any worker and in order.

        A run of one file among several that cannot be read is None, and reported and added to `missing`, if given.
        """
        engine = engine or self.engines.start(processes=much_text(source))
        parts = ((n, table) for n, table in enumerate(source.divided()) if only is None or n in only)

        def lost(part: MissingPart) -> None:
            if missing is not None:
                missing.append(part)
                self._warn_of_missing(part)

        return read_parts(source, parts, read, engine, strict=self.strict, lost=lost)

    def read_vectors(self, source: Table) -> tuple[Any, dict[str, int], list[MissingPart]]:
        """All vectors of a source, skipped items by kind, and missing parts; 'self-training' needs them all at once."""
        missing = self.warn_of_missing(source)
        vectors: list[Any] = []
        problems: list[str] = []
        unreadable = 0

        def read(number: int, part: Table) -> tuple[Table, list[Any]]:
            table = part.select(unusable=_unusable(self.strict, self.verbose))
            return table, [block.vectors for block in table]

        with self.watched(source) as advance:
            for _, _, result in self.each(source, read, missing=missing, engine=Engine(1)):
                if result is not None:
                    table, blocks = result
                    advance(table.read)
                    vectors += blocks
                    problems += table.problems
                    unreadable += table.unreadable
        for problem in problems[:PROBLEMS_KEPT] if self.verbose else ():
            self.warn(problem)
        if not vectors:
            reason = f"; {missing[0].reason}" if missing else ""
            raise FileError(f"{source.path} has no row with a usable vector{reason}")
        skipped = source.skipped_by(None, unreadable)[0][source.name]
        skipped["unreadable"] += sum(absent.rows or 0 for absent in missing)
        return np.concatenate(vectors), dict(skipped), missing

    @contextmanager
    def watched(self, source: Table) -> Iterator[Callable[[int], None]]:
        """Show progress, then what a person should know about the items."""
        warn_of_dividing(source.path, source.locations, self.warn)
        with self.progress(source.name, source.rows) as advance:
            yield source.watch(advance)
        for text in source.messages(self.verbose) + embedded_messages(source):
            self.warn(text)

    def warn_of_missing(self, source: Table) -> list[MissingPart]:
        """Report the parts that are known from the start to be missing, and return them."""
        for absent in source.missing:
            self._warn_of_missing(absent)
        return list(source.missing)

    def _warn_of_missing(self, part: MissingPart) -> None:
        rows = f" ({count(part.rows, 'rows')})" if part.rows else ""
        self.warn(f"missing{rows}: {part.reason}")
