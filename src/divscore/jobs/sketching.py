"""sketch_source(): one pass over a collection, cut into partitions and put together again in their order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

from divscore.audit.missing import Gaps, Missing
from divscore.control.controlset import ControlSet
from divscore.errors import FileError, InputError
from divscore.jobs.engine import Engine
from divscore.jobs.partial import Assignment, Partial, sketch_partition
from divscore.jobs.samples import share_one
from divscore.sketch.many import Sketches
from divscore.sketch.scorer import Scorer, scorer_for
from divscore.sketch.sketch import Sketch
from divscore.sources.open import ManySource, parts_of
from divscore.sources.partition import Partition, partitions_of
from divscore.sources.table import PROBLEMS_KEPT, VectorSource

__all__ = ["Sketched", "check_sendable", "packed", "sketch_source"]


@dataclass(frozen=True)
class Sketched:
    """The sketches of a pass, and the parts of the source that are missing from them."""

    sketches: dict[str, Sketch]
    partitions: int
    rows: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()

    @cached_property
    def gaps(self) -> Gaps:
        """What is missing, as it is kept with results."""
        return Gaps.among(self.missing)


def sketch_source(
    source: VectorSource,
    control: ControlSet,
    *,
    by: str | None = None,
    seed: int = 0,
    workers: int = 1,
    executor: Executor | None = None,
    engine: Engine | None = None,
    samples: str = "own",
    strict: bool = False,
    verbose: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
    on_failure: Callable[[Missing], None] = lambda missing: None,
) -> Sketched:
    """Sketch files in one pass: one collection, or one for each value of the column `by`.

    The result is the same to the last bit whoever does the work.

    Parameters
    ----------
    source : VectorSource
        What `open_vectors` or `open_many` returned.
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
    samples : {"own", "shared", "auto"}
        What the intervals of collections rest on: a sample of each one's items, which costs time where they are many;
        one sample of all items together, with which sketches can be audited but not merged or saved; or whichever
        suits the source. Two groups only.
    strict : bool
        Make the first bad row, and the first bad file of several, an error.
    progress : callable
        Called with numbers of rows as they are finished.
    on_failure : callable
        Called with each file or part that has to be left out, when that is known.
    """
    scorer, partitions = scorer_for(control, seed), list(partitions_of(source))
    shared = share_one(samples, by, scorer, partitions)
    known = sum(part.rows or 0 for part in parts_of(source))
    assignment = Assignment(packed(scorer), source.name, by, strict, verbose, shared, known)
    reduction = _Reduction(source, Sketches(control, seed=seed, shared=shared), strict, on_failure)
    used = nullcontext(engine) if engine is not None else Engine(workers, executor=executor)
    with used as at_work:
        if not at_work.local:
            check_sendable(control)
        for partition, found in _partials(source, at_work, assignment, partitions, progress):
            reduction.take(partition, found)
    return reduction.result()


def _partials(
    source: VectorSource,
    engine: Engine,
    assignment: Assignment,
    partitions: list[Partition],
    progress: Callable[[int], None],
) -> Iterator[tuple[Partition, Partial]]:
    if (engine.own and len(partitions) == 1) or engine.inline or source.location.path == "-":
        # Blocks of a single partition are shared among threads, which does not change the result.
        threads = engine.workers if engine.own else 1
        for each in partitions:
            yield each, sketch_partition(assignment, each, workers=threads, progress=progress)
        return
    # With many collections a part's result may take as many bytes as its vectors.
    at_work = engine.run(
        partial(sketch_partition, assignment), partitions, large=assignment.by is not None, killed=_killed
    )
    for partition, found in at_work:
        progress(found.rows)
        yield partition, found


def _killed(partition: Partition, reason: str) -> Partial:
    return Partial(failed=reason)


def packed(scorer: Scorer) -> Scorer:
    """The fitted scorer, so that no worker fits anything; what follows from it is left out, to keep it small."""
    control = copy(scorer.control)
    control.__dict__["digest"] = scorer.control.digest
    control.__dict__.pop("units", None)
    light = replace(scorer, control=control)
    light.__dict__["replicates"] = replace(scorer.replicates)
    return light


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
        source: VectorSource,
        sketches: Sketches,
        strict: bool,
        on_failure: Callable[[Missing], None],
    ) -> None:
        self.source, self.sketches, self.strict = source, sketches, strict
        self.on_failure = on_failure
        self.partitions = self.rows = self.unreadable = 0
        self.problems: list[str] = []
        self.missing: list[Missing] = []
        for each in source.unopened:
            self._note(each)

    def take(self, partition: Partition, found: Partial) -> None:
        self.partitions += 1
        if found.failed is not None:
            if self.strict or found.fatal or not isinstance(self.source, ManySource):
                raise FileError(found.failed)
            self._note(Missing(partition.label, found.failed, partition.rows))
            return
        self.rows += found.rows
        self.unreadable += found.unreadable
        self.problems = [*self.problems, *found.problems][:PROBLEMS_KEPT]
        if found.table is not None:
            self.sketches.merge(found.table)

    def result(self) -> Sketched:
        if self.missing and not self.rows and not self.unreadable:
            raise FileError(f"nothing of {self.source.path} could be read; {self.missing[0].reason}")
        return Sketched(
            self.sketches.sketches(),
            self.partitions,
            self.rows,
            self.unreadable,
            tuple(self.problems),
            tuple(self.missing),
        )

    def _note(self, missing: Missing) -> None:
        self.missing.append(missing)
        self.on_failure(missing)
